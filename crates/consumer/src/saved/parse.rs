//! Parses the text of saved traces. An error names the line and the key.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use usertrace_sys::filter::Trigger;

use super::error::SavedTraceError;
use super::key::{self, Key, Kind, MAX_VALUE, VERSION, Value};
use super::trace::{SavedChannel, SavedFile, SavedTrace, Setting};
use crate::control_fs::is_name;

/// A text with the name of its file.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

/// A named table: a trace or a channel.
struct Section<'a> {
    name: String,
    line: usize,
    /// Its other keys, by line.
    entries: Vec<Entry<'a>>,
}

type Entry<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

/// Parses a file of saved traces.
///
/// # Errors
/// About the first line that is wrong. Only the kernel knows the names of modes and the like: it
/// checks them.
pub(super) fn parse(path: &Path, text: &str) -> Result<SavedFile, SavedTraceError> {
    let source = Source { path, text };
    let document = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        source.error(start, error.message())
    })?;
    let entries = entries(document.get_ref());
    let version = entries.iter().find(|(key, _)| key.get_ref() == "version");
    let Some((_, version)) = version else {
        let what = format!("version = {VERSION} is missing: the version of the schema");
        return Err(source.error(0, what));
    };
    if number(version.get_ref()) != Some(VERSION) {
        let what = format!("version: this program knows only version {VERSION} of the schema");
        return Err(source.error(version.span().start, what));
    }
    let mut traces: Vec<SavedTrace> = Vec::new();
    for (key, value) in entries {
        match key.get_ref().as_ref() {
            "version" => {}
            "trace" => {
                for table in source.tables("trace", value)? {
                    let trace = source.trace(table)?;
                    let of = traces.iter().map(|before| (&before.name[..], before.line));
                    source.check_new("trace", &trace.name, trace.line, of)?;
                    traces.push(trace);
                }
            }
            other => {
                let what = format!("unknown key {other:?}; known: version, [[trace]]");
                return Err(source.error(key.span().start, what));
            }
        }
    }
    Ok(SavedFile {
        path: path.to_owned(),
        traces,
    })
}

/// The keys and values of a table, by line.
fn entries<'a>(table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

impl Source<'_> {
    /// The line of an offset, from 1.
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        before.filter(|&&byte| byte == b'\n').count() + 1
    }

    fn error(&self, offset: usize, what: impl Into<String>) -> SavedTraceError {
        self.error_in(self.line(offset), what)
    }

    fn error_in(&self, line: usize, what: impl Into<String>) -> SavedTraceError {
        SavedTraceError::Invalid {
            path: self.path.to_owned(),
            line,
            what: what.into(),
        }
    }

    fn check_new<'n>(
        &self,
        kind: &str,
        name: &str,
        line: usize,
        mut before: impl Iterator<Item = (&'n str, usize)>,
    ) -> Result<(), SavedTraceError> {
        match before.find(|(other, _)| *other == name) {
            None => Ok(()),
            Some((_, first)) => {
                let what = format!("name: line {first} has a {kind} {name:?} already");
                Err(self.error_in(line, what))
            }
        }
    }

    /// The tables of `[[NAME]]`.
    fn tables<'a>(
        &self,
        name: &str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<Vec<&'a Spanned<DeValue<'a>>>, SavedTraceError> {
        let is_table = |value: &&Spanned<DeValue<'_>>| value.get_ref().is_table();
        match value.get_ref() {
            DeValue::Array(array) if array.iter().all(|value| is_table(&value)) => {
                Ok(array.iter().collect())
            }
            _ => {
                let what = format!("{name}: write [[{name}]] above each one");
                Err(self.error(value.span().start, what))
            }
        }
    }

    /// Takes the name out of a table.
    fn section<'a>(
        &self,
        kind: &str,
        table: &'a Spanned<DeValue<'a>>,
    ) -> Result<Section<'a>, SavedTraceError> {
        let start = table.span().start;
        let mut entries = table.get_ref().as_table().map(entries).unwrap_or_default();
        let Some(at) = entries.iter().position(|(key, _)| key.get_ref() == "name") else {
            return Err(self.error(start, format!("name is missing in this {kind}")));
        };
        let (_, value) = entries.remove(at);
        let start = value.span().start;
        let Some(name) = value.get_ref().as_str() else {
            return Err(self.error(start, "name: expected a text in quotes"));
        };
        if !is_name(name) {
            let what = format!(
                "name: {name:?} is no name of a {kind}: that has up to 31 letters, digits and _ - . : + @"
            );
            return Err(self.error(start, what));
        }
        Ok(Section {
            name: name.to_owned(),
            line: self.line(start),
            entries,
        })
    }

    fn trace(&self, table: &Spanned<DeValue<'_>>) -> Result<SavedTrace, SavedTraceError> {
        let mut section = self.section("trace", table)?;
        let of_channels = |entry: &mut Entry<'_>| entry.0.get_ref() == "channel";
        let tables = section.entries.extract_if(.., of_channels).next();
        let place = format!("trace {:?}", section.name);
        let settings = self.settings(&place, key::of_trace(), &["[[trace.channel]]"], &section)?;
        let mut channels: Vec<SavedChannel> = Vec::new();
        let tables = tables.map(|(_, value)| self.tables("trace.channel", value));
        for table in tables.transpose()?.unwrap_or_default() {
            let section = self.section("channel", table)?;
            let of = channels
                .iter()
                .map(|before| (&before.name[..], before.line));
            self.check_new("channel", &section.name, section.line, of)?;
            let place = format!("channel {:?}", section.name);
            let settings = self.settings(&place, key::of_channel(&section.name), &[], &section)?;
            channels.push(SavedChannel {
                name: section.name,
                line: section.line,
                settings,
            });
        }
        Ok(SavedTrace {
            name: section.name,
            line: section.line,
            settings,
            channels,
        })
    }

    /// Parses the settings of a section. `more`: names of its other keys, for errors.
    fn settings(
        &self,
        place: &str,
        keys: &'static [Key],
        more: &[&str],
        section: &Section<'_>,
    ) -> Result<Vec<Setting>, SavedTraceError> {
        let mut settings = Vec::new();
        for (name, value) in &section.entries {
            let start = name.span().start;
            let Some(key) = keys.iter().find(|key| key.name == name.get_ref()) else {
                let name = name.get_ref();
                let known = keys.iter().map(|key| key.name);
                let known: Vec<_> = ["name"]
                    .into_iter()
                    .chain(known)
                    .chain(more.iter().copied())
                    .collect();
                let known = known.join(", ");
                let what = format!("unknown key {name:?} of {place}; known: {known}");
                return Err(self.error(start, what));
            };
            let line = self.line(start);
            let value = self.value(key, value)?;
            settings.push(Setting { key, value, line });
        }
        Ok(settings)
    }

    fn value(&self, key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Value, SavedTraceError> {
        let start = value.span().start;
        let name = key.name;
        let number = number(value.get_ref());
        let parsed = match (key.kind, value.get_ref()) {
            (Kind::Flag, DeValue::Boolean(flag)) => Some(Value::Flag(*flag)),
            (Kind::Word, DeValue::String(word)) => {
                self.check_text(key, start, word)?;
                Some(Value::Word(word.clone().into_owned()))
            }
            (Kind::Number | Kind::Size, DeValue::Integer(_)) => number.map(Value::Number),
            (Kind::Mask, DeValue::Integer(_)) => {
                let number = number.filter(|&number| number <= u32::MAX.into());
                number.map(Value::Number)
            }
            (Kind::Size, DeValue::String(text)) => size(text).map(Value::Number),
            (Kind::Words | Kind::Filter | Kind::Triggers, DeValue::Array(array)) => {
                let mut words = Vec::new();
                for element in array.iter() {
                    let start = element.span().start;
                    let Some(word) = element.get_ref().as_str() else {
                        let found = element.get_ref().type_str();
                        let what = format!("{name}: expected a text in quotes, found {found}");
                        return Err(self.error(start, what));
                    };
                    self.check_text(key, start, word)?;
                    words.push(word.to_owned());
                }
                Some(Value::List(words))
            }
            _ => None,
        };
        parsed.ok_or_else(|| {
            let expected = key.kind.describe();
            let found = match value.get_ref() {
                DeValue::Integer(number) => number.to_string(),
                DeValue::String(text) => format!("{:?}", clip(text)),
                other => other.type_str().to_owned(),
            };
            self.error(start, format!("{name}: expected {expected}, found {found}"))
        })
    }

    /// Checks a text that goes into a control file. The kernel knows what it means.
    fn check_text(&self, key: &Key, start: usize, text: &str) -> Result<(), SavedTraceError> {
        let what = if text.trim().is_empty() {
            "an empty text"
        } else if text.len() > MAX_VALUE {
            "a text of more than 4095 bytes"
        } else if text.contains(char::is_control) {
            "a control character"
        } else if key.kind == Kind::Triggers {
            let Err(error) = Trigger::parse(text) else {
                return Ok(());
            };
            let at = match text.get(error.place().start..) {
                None | Some("") => "the end".to_owned(),
                Some(rest) => format!("{:?}", clip(rest)),
            };
            return Err(self.error(start, format!("{}: {error}, at {at}", key.name)));
        } else if key.kind != Kind::Filter && text.contains(char::is_whitespace) {
            "a space in a word"
        } else {
            return Ok(());
        };
        Err(self.error(start, format!("{}: {what}", key.name)))
    }
}

/// The beginning of a text, for errors.
fn clip(text: &str) -> &str {
    text.char_indices()
        .nth(60)
        .map_or(text, |(end, _)| &text[..end])
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Parses a number of bytes with a unit.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::super::print_saved_traces;
    use super::*;

    fn error(text: &str) -> String {
        parse(Path::new("web.toml"), text).unwrap_err().to_string()
    }

    const WEB: &str = "version = 1\n[[trace]]\nname = \"web\"\n";
    const MAIN: &str =
        "version = 1\n[[trace]]\nname = \"web\"\n[[trace.channel]]\nname = \"main\"\n";

    /// Requirements: E1, E3
    #[test]
    fn errors_name_file_line_and_key() {
        for (head, text, line, words) in [
            ("", "", 1, "version = 1 is missing"),
            (
                "",
                "version = 2\n",
                1,
                "version: this program knows only version 1",
            ),
            ("", "version = 1\nversion = 1\n", 2, "duplicate key"),
            (
                "",
                "version = 1\ntraces = 1\n",
                2,
                "unknown key \"traces\"; known: version, [[trace]]",
            ),
            (
                "",
                "version = 1\n\n[trace]\nname = \"web\"\n",
                3,
                "write [[trace]]",
            ),
            ("", "version = 1\ntrace = [1]\n", 2, "write [[trace]]"),
            (
                "",
                "version = 1\n[[trace]]\nstarted = true\n",
                2,
                "name is missing in this trace",
            ),
            (
                "",
                "version = 1\n[[trace]]\nname = 1\n",
                3,
                "name: expected a text",
            ),
            (
                "",
                "version = 1\n[[trace]]\nname = \"../web\"\n",
                3,
                "name: \"../web\" is no name of a trace",
            ),
            (
                "",
                "version = 1\n[[trace]]\nname = \"\\u0000\"\n",
                3,
                "is no name of a trace",
            ),
            (
                "",
                "version = 1\n[[trace]]\nname = \"..\"\n",
                3,
                "is no name of a trace",
            ),
            (
                WEB,
                "channel = 1\n",
                4,
                "trace.channel: write [[trace.channel]]",
            ),
            (
                WEB,
                "[[trace.channel]]\nname = \"a/b\"\n",
                5,
                "is no name of a channel",
            ),
            (
                WEB,
                "[[trace.channel]]\nmode = \"discard\"\n",
                4,
                "name is missing in this channel",
            ),
            (
                WEB,
                "[[trace]]\nname = \"web\"\n",
                5,
                "name: line 3 has a trace \"web\" already",
            ),
            (
                WEB,
                "strated = true\n",
                4,
                "unknown key \"strated\" of trace \"web\"; known: name, started,",
            ),
            (WEB, "mode = \"block\"\n", 4, "unknown key \"mode\""),
            (
                WEB,
                "started = \"yes\"\n",
                4,
                "started: expected true or false, found \"yes\"",
            ),
            (
                WEB,
                "started = 1\n",
                4,
                "started: expected true or false, found 1",
            ),
            (
                WEB,
                "filter = \"a\"\n",
                4,
                "filter: expected a list of texts in brackets, found \"a\"",
            ),
            (
                WEB,
                "filter = [\n  \"a\",\n  1,\n]\n",
                6,
                "filter: expected a text in quotes, found integer",
            ),
            (WEB, "filter = [\"\"]\n", 4, "filter: an empty text"),
            (
                WEB,
                "filter = [\"a\\u0000b\"]\n",
                4,
                "filter: a control character",
            ),
            (
                WEB,
                "filter = [\"a\\nb\"]\n",
                4,
                "filter: a control character",
            ),
            (WEB, "filter = [\"a\0b\"]\n", 4, "invalid"),
            (
                WEB,
                "triggers = [\n\"a then stop\",\n\"a if x = 1 then stop\"]\n",
                6,
                "triggers: unknown operator \"=\" (use \"==\"), at \"= 1 then stop\"",
            ),
            (
                WEB,
                "triggers = [\"a\"]\n",
                4,
                "triggers: expected \"then\"",
            ),
            (
                WEB,
                "triggers = [\"a then stop every\"]\n",
                4,
                ", at the end",
            ),
            (
                WEB,
                "triggers = \"a then stop\"\n",
                4,
                "triggers: expected a list",
            ),
            (
                MAIN,
                "triggers = []\n",
                6,
                "unknown key \"triggers\" of channel",
            ),
            (
                WEB,
                "filter_mask = 0x100000000\n",
                4,
                "filter_mask: expected a number, found",
            ),
            (
                MAIN,
                "filter = []\n",
                6,
                "unknown key \"filter\" of channel \"main\"",
            ),
            (
                MAIN,
                "subbuf_size = \"1T\"\n",
                6,
                "subbuf_size: expected a number of bytes",
            ),
            (MAIN, "subbuf_size = \"+1k\"\n", 6, "subbuf_size: expected"),
            (
                MAIN,
                "subbuf_size = \"18446744073709551615k\"\n",
                6,
                "subbuf_size: expected",
            ),
            (
                MAIN,
                "subbuf_count = -2\n",
                6,
                "subbuf_count: expected a number, found -2",
            ),
            (
                MAIN,
                "subbuf_count = \"2\"\n",
                6,
                "subbuf_count: expected a number, found \"2\"",
            ),
            (
                MAIN,
                "subbuf_count = 18446744073709551616\n",
                6,
                "subbuf_count: expected a number",
            ),
            (
                MAIN,
                "mode = []\n",
                6,
                "mode: expected a word in quotes, found array",
            ),
            (MAIN, "mode = \"a b\"\n", 6, "mode: a space in a word"),
            (
                MAIN,
                "contexts = [\"vpid vtid\"]\n",
                6,
                "contexts: a space in a word",
            ),
            (
                MAIN,
                "[[trace.channel]]\nname = \"main\"\n",
                7,
                "name: line 5 has a channel \"main\" already",
            ),
            (MAIN, "x = \n", 6, ""),
        ] {
            let error = error(&format!("{head}{text}"));
            let begin = format!("web.toml:{line}: ");
            assert!(error.starts_with(&begin), "{begin}: {error}");
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn control_channel_has_no_mode() {
        let text = MAIN.replace("\"main\"", "\"control\"");
        assert!(parse(Path::new("f"), &format!("{text}subbuf_count = 64\n")).is_ok());
        let error = error(&format!("{text}mode = \"block\"\n"));
        assert!(
            error.contains("known: name, subbuf_size, subbuf_count, prefault"),
            "{error}"
        );
    }

    #[test]
    fn sizes_have_units() {
        for (value, bytes) in [
            ("4096", "\"4k\""),
            ("\"1M\"", "\"1M\""),
            ("\"1024k\"", "\"1M\""),
            ("\"5000\"", "5000"),
            ("0x1_000", "\"4k\""),
        ] {
            let text = format!("{MAIN}subbuf_size = {value}\n");
            let file = parse(Path::new("f"), &text).unwrap();
            let printed = print_saved_traces(&file.traces);
            let line = format!("subbuf_size = {bytes}");
            assert!(printed.lines().any(|printed| printed == line), "{printed}");
        }
    }

    /// A text as deep, or with as many keys or traces, as a file of 1 MiB can have.
    #[test]
    fn large_texts_are_refused_or_taken_in_bounded_memory() {
        let n = 1 << 19;
        for text in [
            format!("version = 1\nx = {}", "[".repeat(n)),
            format!("version = 1\n{}", "[".repeat(n)),
            format!("version = 1\n[{}x]", "a.".repeat(n / 2)),
            format!("version = 1\nx = \"{}", "\\".repeat(n)),
            format!("{WEB}filter = [{}]\n", "\"a\",".repeat(n / 4) + "1"),
            format!("{WEB}filter = [\"{}\"]\n", "a".repeat(n)),
        ] {
            assert!(error(&text).starts_with("web.toml:"));
        }
    }
}
