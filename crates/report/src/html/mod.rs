//! Writes a recorded trace as one self-contained HTML page.
//!
//! The trace is read once, in order of time. The page's size is limited, however long the trace is:
//! it has event counts in bins (`pyramid.rs`), the longest spans (`spans.rs`), and as many single
//! events as fit (`detail.rs`). Counts are exact, even if events are omitted. Text from the trace
//! is data in the page, never HTML.
//!
//! ```no_run
//! use usertrace_reader::{Reader, Selection};
//! use usertrace_report::html::Report;
//! use usertrace_report::stacks::SymbolOptions;
//!
//! let selection = Selection { modules: true, ..Selection::default() };
//! let mut reader = Reader::open(&["traces".into()], selection)?;
//! let report = Report::collect(&mut reader, Report::DETAIL, Some(SymbolOptions::default()));
//! report.write("A trace", &mut std::fs::File::create("report.html")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod collect;
mod detail;
mod flame;
mod losses;
mod page;
mod pyramid;
mod requests;
mod spans;

pub use collect::Report;
