//! Adds up events, bytes and time by call stack, in one pass and in bounded memory.

mod addresses;
mod code;
mod frames;
mod profile;
mod samples;
mod table;
mod timeline;
mod tree;
mod waits;
mod weight;

pub(crate) use frames::{Frame, Frames, ModuleInfo, Symbolize};
pub(crate) use profile::Profile;
pub(crate) use samples::{Key, Label};
pub(crate) use table::{NO_STACK, Space, StackId, StackTable};
pub(crate) use timeline::Timeline;
pub(crate) use tree::{NodeKind, Owners, ROOT, Tree, label};
pub(crate) use waits::{Wait, WaitPlace};
pub use weight::Weight;
pub(crate) use weight::{Weights, add};
