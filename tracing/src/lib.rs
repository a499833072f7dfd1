//! Records the spans and events of programs that use the `tracing` crate through usertrace
//! (B1), beside whatever else the program does with them:
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
//! In names `::` becomes a dot, and what must not be there `_`. A span's id is `tracing`'s; 0 is
//! none. Fields are `s64`, `u64`, `f64`, `bool`, or text, which is what all else becomes: errors,
//! `{:?}`, `{}`, 128 bits. A field without a value is left out. As `tracing` does not say of what
//! type a field is, an event is described when it first comes; one callsite's events may have up to
//! 16 layouts. Those beyond, and those with more than 32 fields, have their fields as one text,
//! `fields`.
//!
//! Log levels are those of syslog: `ERROR` is 3, `WARN` 4, `INFO` 6, `DEBUG` 7; `TRACE` is 14.
//!
//! While no trace wants an event, it costs what `tracing` does to get here, a look into a table,
//! and the load and the branch of any other event. An event that is wanted is put together on the
//! stack. Memory is allocated for what is longer than 512 bytes, and for a layout that is new,
//! which also waits for another thread that declares one. Other than that nobody waits. Nothing is
//! hidden from other layers.
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

/// Makes all ready before `main`, as in a program whose events are declared by `event!`. What an
/// asynchronous runtime's threads do later finds it done.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = usertrace::runtime::init_before_main;
