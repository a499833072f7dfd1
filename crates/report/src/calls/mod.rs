//! Calls of functions, from the events of `record --function`: who called whom, and how long that
//! took.
//!
//! Exits may be missing: an exception or `longjmp` leaves functions without one, and events are
//! lost. A missing exit is noticed when a function around it exits. If the trace's symbols are
//! known, it is also noticed by the next call: the function that contains the call site is the
//! caller, so what is above it on the stack has been left.

mod call_events;
mod names;
mod stack;
mod tree;

pub use call_events::{Calls, Step};
pub use names::FunctionNames;
pub use stack::Call;
pub use tree::{CallNode, CallTree};
