//! Descriptions of events, from the control channel (E6).
//!
//! A description is one line of text, `ID PROVIDER:NAME LOGLEVEL[ TYPE FIELD[;TYPE FIELD]...]`;
//! `LTT_ID_META` in `sys/include/linux/ltt.h` has the details. The traced process wrote it, so it
//! may be anything (F4): what is not such a line is refused, and an id keeps its first description.
//! Another kind of line, `@CHANNEL TYPE FIELD[;TYPE FIELD]...`, says what the payloads of a channel
//! begin with, and `$ TEXT` has the process's command line.

mod cmdline;
mod contexts;
mod description;
mod error;
mod event;
mod field;
mod line;
mod percent;
mod table;

pub use contexts::{Contexts, InChannel};
pub use description::Description;
pub use error::DescriptionError;
pub use event::Event;
pub use field::{Element, Field, FieldError, FieldType, Integer, Label, Scalar};
pub use table::EventTable;
