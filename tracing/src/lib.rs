//! Layer of `tracing` that records a program's spans and events through usertrace (B1). Other
//! layers work as before:
//!
//! ```
//! use tracing_subscriber::prelude::*;
//!
//! tracing_subscriber::registry().with(usertrace_tracing::Layer::new()).init();
//!
//! let request = tracing::info_span!("request", path = "/").entered();
//! tracing::info!(status = 200, "served");
//! # drop(request);
//! ```
//!
//! | in the program | event | fields |
//! |---|---|---|
//! | an event | `TARGET:FILE-LINE`, `TARGET:NAME` if it has a name, `TARGET:MODULE-LINE` if it has a target of its own | `span`: the one that it is in, and its own, the text as `message` |
//! | a span is made | `TARGET:SPAN.new` | `span`, `parent`, and its own |
//! | a field is filled in later | `TARGET:SPAN.record` | `span`, and those fields |
//! | it follows from another one | `TARGET:SPAN.follows` | `span`, `follows` |
//! | it is entered, left, and over | `TARGET:SPAN.enter`, `.exit`, `.close` | `span` |
//!
//! In names, `::` becomes a dot, and an invalid character `_`. A span's id is `tracing`'s; 0 is
//! none. Fields are `s64`, `u64`, `f64`, `bool`, or text. All other types become text: errors,
//! `{:?}`, `{}`, 128 bits. A field without a value is left out. `tracing` does not give the types
//! of fields, so an event is described when it first comes. The events of a call site may have up
//! to 16 layouts. Further ones, and events with more than 32 fields, have their fields as one text,
//! `fields`.
//!
//! Log levels are those of syslog: `ERROR` is 3, `WARN` 4, `INFO` 6, `DEBUG` 7; `TRACE` is 14.
//!
//! An event that no trace wants costs what `tracing` does to get here, a look into a table, and the
//! load and branch of any other event. An event that is wanted is assembled on the stack. Memory is
//! allocated for payloads longer than 512 bytes, and for a new layout, which also waits for other
//! threads that declare one. Nothing else waits. Nothing is hidden from other layers.
//!
//! Records of the `log` crate come through `tracing-log` (`LogTracer`), as `log:log_event`, with
//! the fields `message`, `log_target`, `log_module_path`, `log_file` and `log_line`.

mod current;
mod event;
mod layer;
mod list;
mod names;
mod part;
mod site;
mod text;
mod values;

pub use self::layer::Layer;

/// Initialises the library before `main`, as in a program that declares events by `event!`. So the
/// threads of an asynchronous runtime need not do it later.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = usertrace::__private::init_before_main;
