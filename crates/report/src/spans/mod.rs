//! The tree of spans of programs that use `tracing`, from the events of the layer.
//!
//! A span begins with its event `.new` and ends with `.close`. Its parent is the one that `.new`
//! names. A root span has none, and is usually a request. These cases are no error:
//!
//! - **Ids are reused** after `.close`. A second `.new` of an open id means that the `.close` was
//!   lost: the first span has no end then.
//! - **The parent is unknown**: its `.new` was lost, was not selected, or came before the recording
//!   began. The span is a root then, and is marked.
//! - **A span never ends**: it lasts up to the last event of its process, and is marked.
//!
//! A span's parent was there before it, so a trace cannot describe a circle. Span 0 is none.
//!
//! *Busy* is the time while at least one thread was in the span, from `.enter` to `.exit`; several
//! threads at once count once. *Idle* is the rest of its duration. *In children* is the time while
//! at least one direct child was open; it ends with the span.
//!
//! Other events of a thread that is in a span are events of that span, as those of `tracing` are.
//! If two of them begin and end something, the first one has the other one with it.

pub(crate) mod ids;
pub(crate) mod live;
pub(crate) mod role;
pub(crate) mod thread;

mod class;
mod collector;
mod condition;
mod inside;
mod names;
mod process;
mod slowest;
mod tree;

pub use class::Class;
pub use collector::{Collected, Collector, LeftOut, Options};
pub use condition::FieldText;
pub use ids::Ids;
pub use names::{Child, Name};
pub use process::ProcessInfo;
pub use tree::{Ending, Happened, Paired, Part, Span, Stay, Tree};
