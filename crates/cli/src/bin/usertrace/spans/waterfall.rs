//! A span and those below it as a waterfall.

use std::collections::HashMap;

use usertrace_reader::{Printer, duration};
use usertrace_report::spans::{Collected, Happened, Span, Tree};

use super::table::{fields, marks, process_name};

/// Narrowest bar, widest bar, and widest column of names.
const MIN_BAR: usize = 20;
const MAX_BAR: usize = 120;
const MAX_NAME: usize = 48;
/// Most events of a span that are printed.
const MAX_EVENTS: usize = 100;
/// Letters for threads. Further ones share the last one.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?";

const NO_THREAD: char = '.';
const SEVERAL: char = '*';

/// Width of a column of times: `999.9 µs`.
const TIME: usize = 9;

/// The lines of a tree from the span `top` on, for a terminal of so many columns.
pub(super) fn text(collected: &Collected, tree: &Tree, top: usize, columns: usize) -> String {
    let order = tree.below(top);
    let root = &tree.spans[top];
    let spans = || order.iter().map(|&(index, _)| &tree.spans[index]);
    let end = spans().map(|span| span.end).max().unwrap_or(root.end);
    let letters = Letters::of(spans());
    let label = |(index, depth): (usize, usize)| {
        let name = &tree.spans[index].class.name;
        // The provider of the top span goes without saying.
        let provider = root
            .class
            .name
            .split_once(':')
            .map(|(provider, _)| provider);
        let short = name.split_once(':').filter(|(of, _)| Some(*of) == provider);
        let name = short.map_or(&name[..], |(_, name)| name);
        cut(
            &format!("{:1$}{name}", "", (2 * depth).min(MAX_NAME / 2)),
            MAX_NAME,
        )
    };
    let width = order
        .iter()
        .map(|&place| label(place).chars().count())
        .max();
    let width = width.unwrap_or(0);
    let taken = width + 2 * (TIME + 2) + "  ||".len();
    let bar = columns.saturating_sub(taken).clamp(MIN_BAR, MAX_BAR);
    let scale = Scale {
        begin: root.begin,
        end,
        bar,
    };

    let mut text = head(collected, tree, root);
    text.push_str(&letters.legend(collected, tree));
    text.push_str(&format!(
        "\n{:width$}  {:>TIME$}  {:>TIME$}  |{:bar$}|\n",
        "SPAN",
        "DURATION",
        "BUSY",
        duration(scale.whole().cast_unsigned()),
    ));
    for &place in &order {
        let span = &tree.spans[place.0];
        text.push_str(&format!(
            "{:width$}  {:>TIME$}  {:>TIME$}  |{}|{}\n",
            label(place),
            duration(span.duration().cast_unsigned()),
            duration(span.busy.max(0).cast_unsigned()),
            letters.bar(span, &scale),
            match place.0 == top {
                true => String::new(),
                false => marks(span),
            },
        ));
        let indent = " ".repeat((2 * place.1 + 2).min(MAX_NAME / 2 + 2));
        let own = fields(span);
        if place.0 != top && !own.is_empty() {
            text.push_str(&format!("{indent}{own}\n"));
        }
        for followed in &span.follows {
            text.push_str(&match followed.span_id {
                0 => format!("{indent}follows from a span that is not in the trace\n"),
                _ => format!("{indent}follows from {followed}\n"),
            });
        }
        for event in span.events.iter().take(MAX_EVENTS) {
            text.push_str(&event_line(event, &letters, &indent, root.begin));
        }
        if let Some(more) = span.events.len().checked_sub(MAX_EVENTS + 1) {
            let more = more + 1;
            text.push_str(&format!(
                "{indent}and {more} further events (--json has all)\n"
            ));
        }
    }
    if tree.left_out > 0 {
        text.push_str(&format!(
            "{} further spans, events and periods of threads had no room\n",
            tree.left_out
        ));
    }
    text
}

/// What the top span is.
fn head(collected: &Collected, tree: &Tree, root: &Span) -> String {
    let mut began = Vec::new();
    Printer::new().time(&mut began, root.begin);
    let busy = root.busy.max(0);
    let mut text = format!(
        "{} {}{}\n  {} from {}: busy {}, idle {}\n",
        root.class.name,
        root.ids,
        marks(root),
        duration(root.duration().cast_unsigned()),
        String::from_utf8_lossy(&began),
        duration(busy.cast_unsigned()),
        duration(root.duration().saturating_sub(busy).max(0).cast_unsigned()),
    );
    if let Some(process) = collected.processes.get(&tree.process) {
        let host = process.host.as_deref();
        let host = host.map_or_else(String::new, |host| format!(" on {host}"));
        text.push_str(&format!("  process {}{host}\n", process_name(process)));
    }
    let own = fields(root);
    if !own.is_empty() {
        text.push_str(&format!("  {own}\n"));
    }
    text
}

fn event_line(event: &Happened, letters: &Letters, indent: &str, begin: i64) -> String {
    let at = duration(event.ns.saturating_sub(begin).max(0).cast_unsigned());
    let own = event.all_texts();
    let letter = letters.of_thread(event.thread);
    let name = event.name();
    let lasted = event
        .duration()
        .map(|ns| format!(" {}", duration(ns.cast_unsigned())));
    let lasted = lasted.unwrap_or_default();
    format!("{indent}{at} {letter} {name}{lasted}: {}\n", own.join(", "))
}

/// Where times are in a bar.
struct Scale {
    begin: i64,
    end: i64,
    bar: usize,
}

impl Scale {
    fn whole(&self) -> i64 {
        self.end.saturating_sub(self.begin).max(0)
    }

    /// The cells from one time to another one: one at least.
    fn cells(&self, begin: i64, end: i64) -> std::ops::Range<usize> {
        let cell = |ns: i64| {
            let ns = i128::from(ns.saturating_sub(self.begin).clamp(0, self.whole()));
            (ns * self.bar as i128 / i128::from(self.whole().max(1))) as usize
        };
        let first = cell(begin).min(self.bar - 1);
        first..cell(end).clamp(first + 1, self.bar)
    }
}

/// A letter for each thread, in the order in which they come.
struct Letters {
    by_thread: HashMap<Option<i64>, usize>,
    order: Vec<Option<i64>>,
}

impl Letters {
    fn of<'a>(spans: impl Iterator<Item = &'a Span>) -> Self {
        let mut all: Vec<(i64, Option<i64>)> = Vec::new();
        for span in spans {
            all.extend(span.stays.iter().map(|stay| (stay.begin, stay.thread)));
            all.extend(span.events.iter().map(|event| (event.ns, event.thread)));
        }
        all.sort_unstable();
        let mut letters = Self {
            by_thread: HashMap::new(),
            order: Vec::new(),
        };
        for (_, thread) in all {
            let next = letters.order.len();
            if *letters.by_thread.entry(thread).or_insert(next) == next {
                letters.order.push(thread);
            }
        }
        letters
    }

    fn of_thread(&self, thread: Option<i64>) -> char {
        let number = self.by_thread.get(&thread).copied().unwrap_or(0);
        char::from(LETTERS[number.min(LETTERS.len() - 1)])
    }

    fn legend(&self, collected: &Collected, tree: &Tree) -> String {
        let process = collected.processes.get(&tree.process);
        let threads = self.order.iter().take(LETTERS.len() - 1).map(|&thread| {
            let letter = self.of_thread(thread);
            let Some(tid) = thread else {
                return format!("{letter} a thread that the trace does not know");
            };
            match process.and_then(|process| process.thread_name(tid)) {
                Some(name) => format!("{letter} {name} {tid}"),
                None => format!("{letter} thread {tid}"),
            }
        });
        let threads: Vec<String> = threads.collect();
        match &threads[..] {
            [] => String::new(),
            threads => format!("  threads: {}\n", threads.join(", ")),
        }
    }

    fn bar(&self, span: &Span, scale: &Scale) -> String {
        let mut cells = vec![' '; scale.bar];
        cells[scale.cells(span.begin, span.end)].fill(NO_THREAD);
        for stay in &span.stays {
            let letter = self.of_thread(stay.thread);
            for cell in &mut cells[scale.cells(stay.begin, stay.end)] {
                *cell = match *cell {
                    ' ' | NO_THREAD => letter,
                    same if same == letter => letter,
                    _ => SEVERAL,
                };
            }
        }
        cells.into_iter().collect()
    }
}

/// The text, or its beginning if it is too long.
fn cut(text: &str, max: usize) -> String {
    match text.chars().count() > max {
        true => text.chars().take(max - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
