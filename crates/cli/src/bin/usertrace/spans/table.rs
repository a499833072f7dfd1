//! Spans as tables.

use usertrace_reader::{Printer, duration};
use usertrace_report::spans::{Collected, Ending, Name, ProcessInfo, Span};

use crate::output;

/// Most children that are listed with a name.
const MAX_CHILDREN: usize = 5;

/// A line for each name.
pub(super) fn names(collected: &Collected, top: usize) -> String {
    let names = &collected.names;
    if names.iter().all(|name| name.count() + name.unended == 0) {
        return "no spans\n".to_owned();
    }
    let titles = [
        "COUNT", "OPEN", "TOTAL", "BUSY", "P50", "P99", "MAX", "CHILDREN", "NAME", "",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    let is_used = |name: &&Name| name.count() + name.unended > 0;
    rows.extend(names.iter().filter(is_used).take(top).map(|name| {
        let is_some = name.count() > 0;
        let time = |ns: u64| match is_some {
            true => duration(ns),
            false => "-".to_owned(),
        };
        [
            name.count().to_string(),
            name.unended.to_string(),
            time(ns(name.total)),
            time(ns(name.busy)),
            time(name.percentile(50)),
            time(name.percentile(99)),
            time(name.max()),
            share(name.in_children, name.total),
            name.name.clone(),
            children(names, name),
        ]
    }));
    let mut text = output::table(&rows);
    let further = names.iter().filter(is_used).count().saturating_sub(top);
    if further > 0 {
        text.push_str(&format!(
            "and {}; --top lists more\n",
            output::count(further, "further name", "further names")
        ));
    }
    text
}

/// The direct children of a name, with their share of its time.
fn children(names: &[Name], name: &Name) -> String {
    let all = &name.children;
    let mut parts: Vec<String> = all
        .iter()
        .take(MAX_CHILDREN)
        .filter_map(|child| {
            let share = share(child.total, name.total);
            Some(format!("{} {share}", names.get(child.name)?.name))
        })
        .collect();
    if all.len() > MAX_CHILDREN {
        parts.push(format!("and {} more", all.len() - MAX_CHILDREN));
    }
    parts.join(", ")
}

/// A line for each root span.
pub(super) fn roots(collected: &Collected) -> String {
    if collected.trees.is_empty() {
        return "no such root spans\n".to_owned();
    }
    let titles = [
        "DURATION", "BUSY", "SPANS", "BEGAN", "PROCESS", "ID", "NAME", "FIELDS",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    let mut printer = Printer::new();
    for tree in &collected.trees {
        let Some(root) = tree.spans.first() else {
            continue;
        };
        let mut began = Vec::new();
        printer.time(&mut began, root.begin);
        let process = collected.processes.get(&tree.process);
        rows.push([
            duration(root.duration().cast_unsigned()),
            duration(root.busy.max(0).cast_unsigned()),
            (tree.spans.len() as u64 + tree.left_out).to_string(),
            String::from_utf8_lossy(&began).into_owned(),
            process.map_or_else(String::new, process_name),
            root.ids.to_string(),
            root.class.name.clone(),
            [fields(root), marks(root)].concat(),
        ]);
    }
    output::table(&rows)
}

/// The name and the id of a process.
pub(super) fn process_name(process: &ProcessInfo) -> String {
    let name = process.name.as_deref().unwrap_or("?");
    match process.pid {
        Some(pid) => format!("{name} ({pid})"),
        None => name.to_owned(),
    }
}

/// All fields of a span, the latest value of each.
pub(super) fn fields(span: &Span) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for part in &span.fields {
        let (fields, _) = part.own();
        for (field, text) in fields.iter().zip(part.texts()) {
            match names.iter().position(|name| *name == field.name) {
                Some(at) => shown[at] = text,
                None => {
                    names.push(&field.name);
                    shown.push(text);
                }
            }
        }
    }
    shown.join(", ")
}

/// What is special of a span.
pub(super) fn marks(span: &Span) -> String {
    let mut marks = String::new();
    if span.is_orphan {
        marks.push_str(" [parent unknown]");
    }
    match span.ending {
        Ending::Closed => {}
        Ending::Replaced => marks.push_str(" [its end was lost]"),
        Ending::Open => marks.push_str(" [open at the end]"),
    }
    marks
}

pub(super) fn share(part: u128, whole: u128) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

fn ns(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}
