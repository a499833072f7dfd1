//! The schema: the keys of traces and channels. Each is a control file, and its value the file's
//! content.

use crate::triggers::without_number;
use crate::{CONTROL, MAIN};

/// The version of the schema.
pub(super) const VERSION: u64 = 1;

/// The largest value of a control file: the kernel takes one write of less than 4096 bytes.
pub(super) const MAX_VALUE: usize = 4095;

/// A key of a trace or channel.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The control file, in the directory of the trace or channel.
    pub(super) file: &'static str,
    pub(super) kind: Kind,
    /// The content of the control file at which `usertrace save` leaves the key out. `None`: it
    /// always prints the key.
    pub(super) silent: Option<&'static str>,
}

/// The kind of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `true` or `false`; 1 or 0 in the control file.
    Flag,
    /// A word of the kernel's. The kernel knows which ones there are.
    Word,
    /// A number.
    Number,
    /// A number of bytes, also as text with a unit: `"64k"`.
    Size,
    /// A 32-bit number, printed in hexadecimal.
    Mask,
    /// Words, which the control file takes in one write.
    Words,
    /// Lines of a filter, which the control file takes one by one.
    Filter,
    /// Triggers, which the control file takes one by one.
    Triggers,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Flag(bool),
    Word(String),
    /// For [`Kind::Number`], [`Kind::Size`] and [`Kind::Mask`].
    Number(u64),
    /// For [`Kind::Words`], [`Kind::Filter`] and [`Kind::Triggers`].
    List(Vec<String>),
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        file: name,
        kind,
        silent: None,
    }
}

const fn silent(name: &'static str, kind: Kind, at: &'static str) -> Key {
    Key {
        silent: Some(at),
        ..key(name, kind)
    }
}

pub(super) const STARTED: Key = Key {
    file: "start",
    ..key("started", Kind::Flag)
};
pub(super) const ALLOCATE: Key = silent("allocate", Kind::Flag, "0");
/// A new trace accepts all events.
const TRACE_FILTER: Key = silent("filter", Kind::Filter, "*");
pub(super) const FILTER: Key = key("filter", Kind::Filter);
pub(super) const FILTER_MASK: Key = silent("filter_mask", Kind::Mask, "0xffffffff");
pub(super) const TRIGGERS: Key = silent("triggers", Kind::Triggers, "");
pub(super) const MODE: Key = key("mode", Kind::Word);
pub(super) const SCOPE: Key = key("scope", Kind::Word);
pub(super) const SUBBUF_SIZE: Key = key("subbuf_size", Kind::Size);
pub(super) const SUBBUF_COUNT: Key = key("subbuf_count", Kind::Number);
pub(super) const PREFAULT: Key = silent("prefault", Kind::Flag, "0");
pub(super) const CONTEXTS: Key = silent("contexts", Kind::Words, "");
pub(super) const VALUE: Key = silent("value", Kind::Word, "0");
pub(super) const KEY: Key = silent("key", Kind::Word, "0");

static OF_TRACE: [Key; 5] = [STARTED, ALLOCATE, TRACE_FILTER, FILTER_MASK, TRIGGERS];
static OF_CONTROL: [Key; 3] = [SUBBUF_SIZE, SUBBUF_COUNT, PREFAULT];
static OF_MAIN: [Key; 6] = [MODE, SCOPE, SUBBUF_SIZE, SUBBUF_COUNT, PREFAULT, CONTEXTS];
static OF_ADDED: [Key; 10] = [
    FILTER,
    FILTER_MASK,
    MODE,
    VALUE,
    KEY,
    SCOPE,
    SUBBUF_SIZE,
    SUBBUF_COUNT,
    PREFAULT,
    CONTEXTS,
];

/// The size of a ring.
pub(super) static OF_RINGS: [Key; 2] = [SUBBUF_SIZE, SUBBUF_COUNT];

/// The keys of a trace, in the order in which they are printed.
pub(super) fn of_trace() -> &'static [Key] {
    &OF_TRACE
}

/// The keys of the channel of this name, in the order in which they are printed.
pub(super) fn of_channel(name: &str) -> &'static [Key] {
    match name {
        CONTROL => &OF_CONTROL,
        MAIN => &OF_MAIN,
        _ => &OF_ADDED,
    }
}

impl Kind {
    /// Names it in errors.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Flag => "true or false",
            Self::Word => "a word in quotes",
            Self::Number | Self::Mask => "a number",
            Self::Size => "a number of bytes, or a text like \"64k\" or \"1M\"",
            Self::Words | Self::Filter | Self::Triggers => "a list of texts in brackets",
        }
    }

    /// Parses the content of a control file. `None` if it is no such value.
    pub(super) fn of_control_file(self, text: &str) -> Option<Value> {
        let text = text.trim_end();
        match self {
            Self::Flag => match text {
                "0" => Some(Value::Flag(false)),
                "1" => Some(Value::Flag(true)),
                _ => None,
            },
            Self::Word => Some(Value::Word(text.to_owned())),
            Self::Number | Self::Size => text.parse().ok().map(Value::Number),
            Self::Mask => {
                let digits = text.strip_prefix("0x")?;
                u64::from_str_radix(digits, 16).ok().map(Value::Number)
            }
            Self::Words => Some(Value::List(text.lines().map(str::to_owned).collect())),
            Self::Filter => {
                // The kernel shows `0` for no rule.
                let lines = text.lines().filter(|line| *line != "0");
                // Nothing is accepted before the first accepting rule, so refusals there have no
                // effect, and the kernel drops them from a new filter.
                let lines = lines.skip_while(|line| line.starts_with('!'));
                Some(Value::List(lines.map(str::to_owned).collect()))
            }
            Self::Triggers => Some(Value::List(text.lines().map(without_number).collect())),
        }
    }
}

impl Value {
    /// The texts to write to the control file of a key, one for each write.
    pub(super) fn writes(&self, kind: Kind) -> Vec<String> {
        match self {
            Self::Flag(flag) => vec![u8::from(*flag).to_string()],
            Self::Word(word) => vec![word.clone()],
            Self::Number(number) => vec![number.to_string()],
            Self::List(words) if kind == Kind::Words => vec![words.join(" ")],
            Self::List(lines) if kind == Kind::Triggers => lines.clone(),
            Self::List(lines) => {
                // As in the command `filter`: if the first line refuses, all others are accepted.
                let refuses = lines.first().is_some_and(|line| line.starts_with('!'));
                let first = if refuses { "1" } else { "0" };
                // A rule may contain spaces, so each is a write of its own.
                let writes = [first].into_iter().chain(lines.iter().map(String::as_str));
                writes.map(str::to_owned).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_and_written_line_by_line() {
        for (shown, lines) in [
            ("0\n", &[][..]),
            ("*\n", &["*"]),
            ("a:*\n!a:b\n", &["a:*", "!a:b"]),
            ("!a:b\na:*\n", &["a:*"]),
            ("a:b if x == \"0 1\"\n", &["a:b if x == \"0 1\""]),
        ] {
            let value = Kind::Filter.of_control_file(shown).unwrap();
            let list: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
            assert_eq!(value, Value::List(list));
            let writes = value.writes(Kind::Filter);
            assert_eq!(writes[0], "0");
            assert_eq!(writes[1..], *lines);
        }
    }

    /// The numbers of triggers are the kernel's, and a trace that is loaded gets others.
    #[test]
    fn triggers_are_read_and_written_line_by_line() {
        let shown = "3 a:* if x == \"then\" then stop once\n17 b then notify\n";
        let value = Kind::Triggers.of_control_file(shown).unwrap();
        let lines = ["a:* if x == \"then\" then stop once", "b then notify"];
        assert_eq!(value, Value::List(lines.map(str::to_owned).to_vec()));
        assert_eq!(value.writes(Kind::Triggers), lines);
    }

    #[test]
    fn control_files_are_parsed_by_kind() {
        let number = |n| Some(Value::Number(n));
        assert_eq!(Kind::Mask.of_control_file("0x000000ff\n"), number(255));
        assert_eq!(Kind::Size.of_control_file("65536\n"), number(65536));
        let refusal = Value::List(vec!["!a:b".to_owned()]);
        assert_eq!(refusal.writes(Kind::Filter), ["1", "!a:b"]);
        let list = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            Some(Value::List(words.collect()))
        };
        assert_eq!(Kind::Words.of_control_file(""), list(&[]));
        assert_eq!(
            Kind::Words.of_control_file("vpid\nip\n"),
            list(&["vpid", "ip"])
        );
        for (kind, bad) in [
            (Kind::Flag, "2"),
            (Kind::Flag, ""),
            (Kind::Number, "-1"),
            (Kind::Mask, "12"),
        ] {
            assert_eq!(kind.of_control_file(bad), None, "{bad:?}");
        }
    }
}
