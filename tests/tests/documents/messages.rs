//! Messages that a page quotes, and the code that prints them.
//!
//! A page has messages in blocks of `text`, one in each line, with `…` for the parts that vary.

use std::fmt::Write as _;
use std::fs;

use usertrace_vm::repository;

/// Values of constants that messages have in them.
const CONSTANTS: &[&str] = &["USERTRACE_PRELOAD_DIR", "/sys/kernel/ltt"];

/// The messages of a page.
pub(crate) fn quoted(page: &str) -> impl Iterator<Item = &str> {
    let mut is_block = false;
    page.lines().filter(move |line| {
        if let Some(kind) = line.strip_prefix("```") {
            is_block = kind == "text";
            return false;
        }
        is_block && !line.is_empty()
    })
}

/// The texts of the code, with `…` for what is formatted into them.
pub(crate) struct Code(String);

impl Code {
    /// Reads sources, but for tests.
    pub(crate) fn read(files: Vec<String>) -> Self {
        let mut text = String::new();
        for file in files {
            if file.contains("/tests/") || file.contains("crates/testing/") {
                continue;
            }
            // One that is about to be removed is listed still.
            let Ok(source) = fs::read_to_string(repository().join(&file)) else {
                continue;
            };
            let _ = writeln!(text, "{}", texts(&source));
        }
        Self(text)
    }

    /// The first fixed part of a message that the code does not have.
    pub(crate) fn unknown_part<'a>(&self, message: &'a str) -> Option<&'a str> {
        let message = message.strip_prefix("usertrace: ").unwrap_or(message);
        let mut parts = vec![message];
        for separator in ["…"].iter().chain(CONSTANTS) {
            parts = parts
                .into_iter()
                .flat_map(|part| part.split(separator))
                .collect();
        }
        // Punctuation, and this word, may come from the error around one.
        let mut parts = parts.into_iter().map(|part| {
            let part = part.trim_matches([' ', '"', ':', ';', ',']);
            part.strip_prefix("cannot ").unwrap_or(part)
        });
        parts.find(|part| !self.has(part))
    }

    /// Has the code this text, as a whole or in a few pieces?
    fn has(&self, text: &str) -> bool {
        let words: Vec<_> = text.split_whitespace().collect();
        let (mut at, mut pieces) = (0, 0);
        while at < words.len() {
            let longest = (at + 1..=words.len())
                .rev()
                .find(|&end| self.0.contains(&words[at..end].join(" ")));
            match longest {
                Some(end) => at = end,
                None => return false,
            }
            pieces += 1;
        }
        pieces <= (words.len() / 3).max(1)
    }
}

/// A source with its texts in one line each.
fn texts(source: &str) -> String {
    let source = source
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let mut joined = String::new();
    let mut is_continued = false;
    for line in source.lines() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let line = if is_continued {
            line.trim_start()
        } else {
            line
        };
        is_continued = line.ends_with('\\');
        joined.push_str(line.strip_suffix('\\').unwrap_or(line));
        if !is_continued {
            joined.push('\n');
        }
    }
    placeholders(&joined.replace("\\\"", "\""))
}

/// `…` in place of each `{…}` of a format.
fn placeholders(text: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        replaced.push_str(&rest[..open]);
        let inner = &rest[open + 1..];
        match inner.find(['{', '}', '"', '\n']) {
            Some(end) if inner[end..].starts_with('}') => {
                replaced.push('…');
                rest = &inner[end + 1..];
            }
            _ => {
                replaced.push('{');
                rest = inner;
            }
        }
    }
    replaced + rest
}

#[test]
fn a_changed_message_is_noticed() {
    let code = Code(texts(
        "say(\"cannot open {name:?}: \\\n     it is \\\"closed\\\"\");\n// said by nobody\n",
    ));
    assert_eq!(code.unknown_part("cannot open …: it is \"closed\""), None);
    assert_eq!(code.unknown_part("usertrace: cannot open … it is"), None);
    for changed in [
        "cannot shut it …",
        "… said by nobody",
        "cannot open …: it was closed",
    ] {
        assert!(code.unknown_part(changed).is_some(), "{changed}");
    }
}

#[test]
fn blocks_of_text_have_messages() {
    let page = "text\n\n```text\na …\nb\n```\n\n```sh\nc\n```\n";
    assert_eq!(quoted(page).collect::<Vec<_>>(), ["a …", "b"]);
}
