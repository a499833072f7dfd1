//! Symbols of programs that compilers made, and of files that nobody should trust.

mod build;
mod damage;
mod hostile;
mod places;
mod separate;
