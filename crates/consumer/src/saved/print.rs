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

/// Prints a list: each rule and trigger has a line of its own, and so have many words.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::key::{self, Key};
    use super::super::parse::parse;
    use super::super::trace::SavedChannel;
    use super::*;

    /// Any value that a control file can have.
    fn value(key: &'static Key) -> BoxedStrategy<Value> {
        let filter = prop_oneof!["!?[a-z:*?]{1,8}", "[!-~]([ -~é]{0,20}[!-~])?"];
        match key.kind {
            Kind::Flag => any::<bool>().prop_map(Value::Flag).boxed(),
            Kind::Word => "[a-z_]{1,8}".prop_map(Value::Word).boxed(),
            Kind::Number => (0..1u64 << 40).prop_map(Value::Number).boxed(),
            Kind::Size => prop_oneof![0..1u64 << 40, (0..40u32).prop_map(|n| 1 << n)]
                .prop_map(Value::Number)
                .boxed(),
            Kind::Mask => any::<u32>().prop_map(|n| Value::Number(n.into())).boxed(),
            Kind::Words => vec("[a-z_.]{1,30}", 0..8).prop_map(Value::List).boxed(),
            Kind::Filter => vec(filter, 0..8).prop_map(Value::List).boxed(),
            Kind::Triggers => {
                let trigger = "[a-z:*?]{1,8}( if x == \"[ -!#-)+-\\[\\]-~é]{0,9}\")? then (stop|start|notify)( once| every 7)?";
                vec(trigger, 0..8).prop_map(Value::List).boxed()
            }
        }
    }

    fn settings(keys: &'static [Key]) -> BoxedStrategy<Vec<Setting>> {
        let setting = |key: &'static Key| {
            let some = prop::option::of(value(key));
            some.prop_map(move |value| {
                value.map(|value| Setting {
                    key,
                    value,
                    line: 0,
                })
            })
        };
        let settings: Vec<_> = keys.iter().map(setting).collect();
        let settings = settings.prop_map(|settings| settings.into_iter().flatten().collect());
        settings.boxed()
    }

    fn trace(name: String) -> impl Strategy<Value = SavedTrace> {
        let channel = |name: &'static str| {
            settings(key::of_channel(name)).prop_map(move |settings| SavedChannel {
                name: name.to_owned(),
                line: 0,
                settings,
            })
        };
        let names = Just(["control", "main", "z", "a.b", "x@1"]).prop_shuffle();
        let channels = (names, 0..5usize).prop_flat_map(move |(names, count)| {
            names[..count]
                .iter()
                .map(|n| channel(n))
                .collect::<Vec<_>>()
        });
        (settings(key::of_trace()), channels).prop_map(move |(settings, channels)| SavedTrace {
            name: name.clone(),
            line: 0,
            settings,
            channels,
        })
    }

    proptest! {
        /// Requirements: E2, E4
        #[test]
        fn printed_traces_are_parsed_as_they_were(
            one in trace("web".to_owned()),
            other in trace("db:1".to_owned()),
        ) {
            let traces = [one, other];
            let text = print_saved_traces(&traces);
            let parsed = parse(Path::new("f"), &text).unwrap().traces;
            prop_assert_eq!(&print_saved_traces(&parsed), &text);
            for (trace, parsed) in traces.iter().zip(&parsed) {
                prop_assert_eq!(&trace.name, &parsed.name);
                let all = |trace: &SavedTrace| -> Vec<_> {
                    let of_channels = trace.channels.iter().flat_map(|channel| {
                        channel.settings.iter().map(|setting| (channel.name.clone(), setting))
                    });
                    let settings = trace.settings.iter().map(|setting| (String::new(), setting));
                    let settings = settings.chain(of_channels);
                    settings.map(|(of, setting)| (of, setting.key.name, setting.value.clone())).collect()
                };
                prop_assert_eq!(all(trace), all(parsed));
            }
        }
    }

    #[test]
    fn texts_are_quoted_as_a_person_would() {
        for (text, expected) in [
            ("shop:*", "\"shop:*\""),
            ("a if path == \"/api/*\"", "'a if path == \"/api/*\"'"),
            ("it's", "\"it's\""),
            ("it's \"so\"", "\"it's \\\"so\\\"\""),
            ("a\u{1}", "\"a\\u0001\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
