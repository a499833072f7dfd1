//! The counting part of `usertrace top`: see [`top`]. The program itself draws the screen.

pub mod top;
