//! Adds up events, bytes and time by call stack, in one pass and in bounded memory.

mod code;
mod culprit;
mod frames;
mod notes;
mod profile;
mod samples;
mod table;
mod timeline;
mod tree;
mod waits;
mod weight;

pub use code::{Code, ModuleInfo};
pub use culprit::culprit;
pub use frames::Frames;
pub use notes::StackNotes;
pub(crate) use profile::Profile;
pub(crate) use samples::Key;
pub use table::{Location, NO_STACK, Space, StackId, StackTable};
pub(crate) use timeline::Timeline;
pub(crate) use tree::{NodeKind, Owners, ROOT, Tree, label};
pub use usertrace_symbols::{Frame, Options as SymbolOptions};
pub use weight::Weight;
pub(crate) use weight::{Weights, add};
