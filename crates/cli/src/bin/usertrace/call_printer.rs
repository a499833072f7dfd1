//! Prints calls of functions with indentation, as `uftrace replay` does.

use std::fmt::Write as _;
use std::rc::Rc;

use usertrace_reader::{Event, Printer, duration};
use usertrace_report::calls::{Call, Calls};
use usertrace_symbols::Resolver;

/// Deepest indentation, in calls: deeper ones are printed there.
const MAX_DEPTH: usize = 100;

/// A line whose end depends on the next event.
#[derive(Debug)]
struct Pending {
    process: usize,
    thread: Option<i64>,
    function: u64,
    depth: usize,
    name: Rc<str>,
}

/// Prints calls, and other events as comments between them.
#[derive(Debug, Default)]
pub(crate) struct CallPrinter {
    calls: Calls,
    printer: Printer,
    pending: Option<Pending>,
    has_head: bool,
    mixes_threads: bool,
}

impl CallPrinter {
    /// Appends the lines of an event. The resolver must have noted the events about modules.
    pub(crate) fn event(
        &mut self,
        out: &mut Vec<u8>,
        event: &Event<'_>,
        mut resolver: Option<&mut Resolver>,
    ) {
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_head, true) {
            let _ = writeln!(text, "{:>10} {:>10}   FUNCTION", "# DURATION", "TID");
        }
        let process = event.trace.process();
        let Some(step) = self.calls.event(event, resolver.as_deref_mut()) else {
            self.put_pending(&mut text);
            let thread = self.calls.thread_of(event);
            let depth = self.calls.depth(process, thread);
            let mut values = Vec::new();
            self.printer.values(&mut values, event);
            let values = String::from_utf8_lossy(&values);
            let what = format!("/* {}: {values} */", event.class.name);
            line(&mut text, None, thread, depth, &what);
            out.extend_from_slice(text.as_bytes());
            return;
        };
        self.mixes_threads |= step.thread.is_none();
        let nothing_left = step.left.is_empty();
        let is_leaf = |pending: &Pending| {
            (
                pending.process,
                pending.thread,
                pending.function,
                pending.depth,
            ) == (process, step.thread, step.function, step.depth)
        };
        let took = |call: &Call| {
            let ns = event.ns.saturating_sub(call.begin).max(0);
            duration(ns.cast_unsigned())
        };
        if let (false, true, Some(call)) = (step.is_entry, nothing_left, &step.ended)
            && let Some(pending) = self.pending.take_if(|pending| is_leaf(pending))
        {
            let what = format!("{};", with_parentheses(&pending.name));
            line(&mut text, Some(&took(call)), step.thread, step.depth, &what);
            out.extend_from_slice(text.as_bytes());
            return;
        }
        self.put_pending(&mut text);
        let around = step.depth + usize::from(step.ended.is_some());
        for (n, call) in step.left.iter().enumerate() {
            let names = &mut self.calls.names;
            let name = names.function(resolver.as_deref_mut(), process, call.function);
            let depth = around + step.left.len() - 1 - n;
            line(
                &mut text,
                None,
                step.thread,
                depth,
                &format!("}} /* {name}: left without an exit */"),
            );
        }
        match (step.is_entry, &step.ended) {
            (true, _) => {
                self.pending = Some(Pending {
                    process,
                    thread: step.thread,
                    function: step.function,
                    depth: step.depth,
                    name: step.name,
                });
            }
            (false, Some(call)) => {
                let what = format!("}} /* {} */", step.name);
                line(&mut text, Some(&took(call)), step.thread, step.depth, &what);
            }
            (false, None) => {
                let what = format!("}} /* {}: its entry is missing */", step.name);
                line(&mut text, None, step.thread, step.depth, &what);
            }
        }
        out.extend_from_slice(text.as_bytes());
    }

    /// Appends the line that waits for the next event, if there is one.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) {
        let mut text = String::new();
        self.put_pending(&mut text);
        out.extend_from_slice(text.as_bytes());
    }

    /// What to say at the end.
    pub(crate) fn note(&self) -> Option<&'static str> {
        self.mixes_threads.then_some(
            "this trace does not tell threads apart, so calls of several threads may be mixed: \
             record --context vtid tells them apart",
        )
    }

    /// Forgets names: modules were loaded or unloaded.
    pub(crate) fn forget_names(&mut self) {
        self.calls.names.clear();
    }

    /// The reader may have read other declarations.
    pub(crate) fn forget_classes(&mut self) {
        self.calls.forget_classes();
    }

    fn put_pending(&mut self, text: &mut String) {
        if let Some(pending) = self.pending.take() {
            let what = format!("{} {{", with_parentheses(&pending.name));
            line(text, None, pending.thread, pending.depth, &what);
        }
    }
}

/// The name with parentheses. C++ names have those of their parameters.
fn with_parentheses(name: &str) -> String {
    match name.ends_with(')') {
        true => name.to_owned(),
        false => format!("{name}()"),
    }
}

fn line(text: &mut String, took: Option<&str>, thread: Option<i64>, depth: usize, what: &str) {
    let thread = thread.map_or_else(|| "?".to_owned(), |thread| thread.to_string());
    let (took, indent) = (took.unwrap_or_default(), 2 * depth.min(MAX_DEPTH));
    let _ = writeln!(text, "{took:>10} [{thread:>8}] | {:indent$}{what}", "");
}
