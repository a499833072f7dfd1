//! Checks of every extraction, and of every trace that is read, whatever the dump or the trace
//! contains (F4).
#![allow(
    unreachable_pub,
    reason = "programs of this and of other crates use it"
)]

use std::error::Error;
use std::path::Path;

use usertrace_crash::{ExtractError, ExtractOptions, Extraction, PhysicalMemory, extract};
use usertrace_reader::{Item, Printer, Reader, Selection};

/// Asserts that an error and its causes have messages.
pub fn check_error(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        assert!(
            !error.to_string().trim().is_empty(),
            "no message: {error:?}"
        );
        next = error.source();
    }
}

/// Extracts to an existing directory, and reads the result: it is undamaged, and has the counted
/// events. `None`: nothing can be extracted.
pub fn extract_all(
    memory: &impl PhysicalMemory,
    root: u64,
    options: &ExtractOptions,
    output: &Path,
) -> Option<Extraction> {
    let extraction = match extract(memory, root, options, output) {
        Ok(extraction) => extraction,
        Err(error) => {
            check_error(&error);
            // A dump's contents can make extraction impossible, but not writing.
            assert!(matches!(error, ExtractError::Directory(_)), "{error:?}");
            return None;
        }
    };
    let messages = &extraction.problems.messages;
    assert!(messages.iter().all(|message| !message.is_empty()));
    assert_eq!(messages.is_empty(), extraction.problems.count == 0);
    let mut traces = extraction.traces.iter();
    if traces.any(|trace| !trace.processes.is_empty()) {
        let (events, problems) = read_all(output);
        assert_eq!(problems, [""; 0]);
        assert_eq!(events, extraction.events());
    }
    Some(extraction)
}

/// Reads and prints all traces below a directory. Returns the number of events, and messages about
/// unreadable parts.
pub fn read_all(directory: &Path) -> (u64, Vec<String>) {
    let mut reader = match Reader::open(&[directory.to_owned()], Selection::default()) {
        Ok(reader) => reader,
        Err(problem) => {
            check_error(&problem);
            return (0, vec![problem.to_string()]);
        }
    };
    let (mut printer, mut line) = (Printer::new(), Vec::new());
    let (mut events, mut problems) = (0, Vec::new());
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => {
                events += 1;
                line.clear();
                printer.event(&mut line, &event);
                assert_eq!(line.last(), Some(&b'\n'));
            }
            Item::Lost(_) => {}
            Item::Error(error) => {
                check_error(&error);
                problems.push(error.to_string());
            }
        }
    }
    (events, problems)
}
