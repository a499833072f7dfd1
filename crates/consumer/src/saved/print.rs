//! The text of saved traces, made to be read and edited.

use std::fmt::Write as _;

use super::key::{Key, Kind, VERSION, Value};
use super::trace::{SavedTrace, Setting};

/// Longest list of words on one line, in columns.
const WIDTH: usize = 80;

/// Prints traces as a TOML file, which [`load_saved_traces`](super::load_saved_traces) takes.
#[must_use]
pub fn print_saved_traces(traces: &[SavedTrace]) -> String {
    let mut text = format!(
        "# Settings of traces, written by \"usertrace save\": \"usertrace load FILE\" creates them.\n\
         # Version {VERSION} of the schema: docs/reference/saved-traces.md\n\
         version = {VERSION}\n"
    );
    for trace in traces {
        text += &section("[[trace]]", &trace.name, &trace.settings);
        for channel in &trace.channels {
            text += &section("[[trace.channel]]", &channel.name, &channel.settings);
        }
    }
    text
}

fn section(head: &str, name: &str, settings: &[Setting]) -> String {
    let mut text = format!("\n{head}\nname = {}\n", quoted(name));
    for Setting { key, value, .. } in settings {
        // Writing to a text never fails.
        let _ = writeln!(text, "{} = {}", key.name, printed(key, value));
    }
    text
}

/// Quotes a text. Quotes and backslashes, which expressions have, stay as they are if possible.
fn quoted(text: &str) -> String {
    let is_special = |c: char| c.is_control() || matches!(c, '"' | '\\');
    if !text.contains(is_special) {
        return format!("\"{text}\"");
    }
    if !text.contains(|c: char| c.is_control() || c == '\'') {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

fn printed(key: &Key, value: &Value) -> String {
    match value {
        Value::Flag(flag) => flag.to_string(),
        Value::Word(word) => quoted(word),
        Value::Number(number) => match key.kind {
            Kind::Size => size(*number),
            Kind::Mask => format!("{number:#010x}"),
            _ => number.to_string(),
        },
        Value::List(words) => list(key, words),
    }
}

/// Prints bytes in the largest unit that has no fraction.
fn size(bytes: u64) -> String {
    for (unit, suffix) in [(1 << 20, 'M'), (1 << 10, 'k')] {
        if bytes > 0 && bytes.is_multiple_of(unit) {
            return format!("\"{}{suffix}\"", bytes / unit);
        }
    }
    bytes.to_string()
}

/// Prints a list: each line of a filter has a line of its own, and so have many words.
fn list(key: &Key, words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    let one_line = format!("[{}]", words.join(", "));
    let is_short = words.len() <= 1 || key.kind == Kind::Words;
    if is_short && one_line.len() <= WIDTH {
        return one_line;
    }
    let lines = words.iter().map(|word| format!("  {word},\n"));
    format!("[\n{}]", lines.collect::<String>())
}
