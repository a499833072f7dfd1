//! A recorded trace as one HTML page, which needs nothing else.
//!
//! The trace is read once, by time, and what is kept of it has a limit, however long it is: counts
//! in bins (`pyramid.rs`), the longest of what lasts (`spans.rs`), and single events as far as
//! there is room (`detail.rs`). Counts are exact whatever is left out. What comes from the trace is
//! data in the page, never HTML.
//!
//! ```no_run
//! use usertrace_reader::{Reader, Selection};
//! use usertrace_report::html::Report;
//!
//! let mut reader = Reader::open(&["traces".into()], Selection::default())?;
//! let report = Report::collect(&mut reader, Report::DETAIL);
//! report.write("A trace", &mut std::fs::File::create("report.html")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod binary;
mod collect;
mod detail;
mod durations;
mod lanes;
mod losses;
mod page;
mod pairing;
mod pyramid;
mod rules;
mod spans;

pub use collect::Report;
