//! How large expressions may be.

/// The length of the longest expression in bytes.
pub const MAX_TEXT: usize = 4096;

/// How many steps an expression may have. A comparison of a field with a small constant takes one,
/// a connection by `&&` or `||` two.
pub const MAX_STEPS: usize = 64;

/// How many values of an expression may wait for their operators.
pub const MAX_DEPTH: usize = 16;

/// How many different fields and contexts an expression may refer to.
pub const MAX_REFERENCES: usize = 16;
