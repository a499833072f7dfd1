//! Descriptions in the control channel: events, contexts, counting, command lines, modules (E6).
//!
//! A description of an event is one line of text, `ID PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE
//! FIELD]...]`. `LTT_ID_META` in `sys/include/linux/ltt.h` specifies it. A line `@CHANNEL TYPE
//! FIELD[;TYPE FIELD]...` describes the contexts of a channel, `#CHANNEL VALUE KEY` what a channel
//! counts by, and `$ TEXT` the command line of the process. `+BASE SIZE PIC BUILD_ID CRC LINK PATH`
//! describes a module that the process has loaded, and `-BASE` that it is gone. The traced process
//! wrote these lines, so they may be anything (F4): the parser refuses invalid lines, and an id
//! keeps its first description.

mod cmdline;
mod contexts;
mod counting;
mod description;
mod error;
mod event;
mod field;
mod line;
mod module;
mod percent;
mod table;

pub use contexts::{Contexts, InChannel};
pub use counting::Counting;
pub use description::Description;
pub use error::DescriptionError;
pub use event::Event;
pub use field::{Element, Field, FieldError, FieldType, Integer, Label, Scalar};
pub use module::{DebugLink, Module, ModuleChange};
pub use table::EventTable;
