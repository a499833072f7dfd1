//! What the command counts while programs run: [`top`] has no screen here, which the program itself
//! draws.

pub mod top;
