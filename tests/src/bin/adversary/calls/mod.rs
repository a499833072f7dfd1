//! The steps of a traced program, each of one or a few calls.

pub(crate) mod access;
pub(crate) mod life;
pub(crate) mod ltt;
pub(crate) mod mm;
pub(crate) mod ring;
