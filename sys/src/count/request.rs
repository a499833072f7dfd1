//! What to count, as people write it: `PATTERN [hist(VALUE)|sum(VALUE)] [by KEY]`, and with
//! `usertrace stat` also `[if EXPRESSION]`.

use std::fmt;
use std::ops::Range;

use usertrace_expression::WithCaret;

/// The longest name of a field or context that a channel can count by.
const NAME_MAX: usize = 127;

/// What to count. A program counts events that the pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRequest<'a> {
    /// The pattern of events, as in a filter.
    pub pattern: &'a [u8],
    /// What to do with the values of a field.
    pub value: Option<CountValue<'a>>,
    /// The field, or context (`$ctx.NAME`), whose values are counted apart.
    pub key: Option<&'a [u8]>,
}

/// A field whose values are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountValue<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// A histogram is wanted, too. Tables always have one.
    pub histogram: bool,
}

/// Why a text does not say what to count, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountRequestError {
    kind: Kind,
    place: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NoPattern,
    Pattern,
    Word,
    Value,
    Key,
    Twice,
    NoKey,
    Condition,
    NoCondition,
    Lines,
}

impl fmt::Display for CountRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::NoPattern => "expected a pattern of events",
            Kind::Pattern => "invalid event pattern: use letters, digits, `_-.:*?`",
            Kind::Word => "expected `hist(FIELD)`, `sum(FIELD)`, `by KEY` or `if EXPRESSION`",
            Kind::Value => "expected the name of a field in parentheses",
            Kind::Key => "invalid key: use a field, or a context `$ctx.NAME`",
            Kind::Twice => "only one field can be added up",
            Kind::NoKey => "expected a field, or a context `$ctx.NAME`, after `by`",
            Kind::Condition => "a condition is only for the filter of the trace",
            Kind::NoCondition => "expected an expression after `if`",
            Kind::Lines => "an expression ends with its line",
        })
    }
}

impl std::error::Error for CountRequestError {}

impl CountRequestError {
    /// Prints the error, the text and a caret under the place, on three lines. `text` is what was
    /// parsed.
    pub fn with_caret<'a>(&'a self, text: &'a [u8]) -> WithCaret<'a, Self> {
        WithCaret::new(self, self.place.clone(), text)
    }
}

impl<'a> CountRequest<'a> {
    /// Parses `PATTERN [hist(VALUE)|sum(VALUE)] [by KEY]`. Does not allocate.
    ///
    /// # Errors
    /// If the text has another form, or if a name is invalid.
    pub fn parse(text: &'a [u8]) -> Result<Self, CountRequestError> {
        match Self::parse_with_condition(text)? {
            (request, None) => Ok(request),
            (_, Some(condition)) => Err(CountRequestError {
                kind: Kind::Condition,
                place: text.len() - condition.len()..text.len(),
            }),
        }
    }

    /// Parses `PATTERN [hist(VALUE)|sum(VALUE)] [by KEY] [if EXPRESSION]`. Returns the expression,
    /// which may be none, beside the rest. Does not allocate.
    ///
    /// # Errors
    /// Likewise.
    pub fn parse_with_condition(
        text: &'a [u8],
    ) -> Result<(Self, Option<&'a [u8]>), CountRequestError> {
        let text = text.trim_ascii_end();
        let mut words = Words { text, at: 0 };
        let end = text.len()..text.len();
        let error = |kind, place: &Range<usize>| {
            let place = place.clone();
            Err(CountRequestError { kind, place })
        };
        let Some(place) = words.next() else {
            return error(Kind::NoPattern, &end);
        };
        let pattern = &text[place.clone()];
        if !pattern.iter().all(is_of_pattern) {
            return error(Kind::Pattern, &place);
        }
        let (mut value, mut key, mut condition) = (None, None, None);
        while let Some(place) = words.next() {
            let word = &text[place.clone()];
            let functions = [(&b"hist("[..], true), (b"sum(", false)];
            let called = functions
                .into_iter()
                .find_map(|(function, histogram)| Some((word.strip_prefix(function)?, histogram)));
            match called {
                Some(_) if value.is_some() => return error(Kind::Twice, &place),
                Some((argument, histogram)) => {
                    let name = argument.strip_suffix(b")").filter(|name| is_value(name));
                    let Some(name) = name else {
                        return error(Kind::Value, &place);
                    };
                    value = Some(CountValue { name, histogram });
                }
                None if word == b"by" && key.is_none() => {
                    let Some(place) = words.next() else {
                        return error(Kind::NoKey, &end);
                    };
                    let name = &text[place.clone()];
                    if !is_key(name) {
                        return error(Kind::Key, &place);
                    }
                    key = Some(name);
                }
                None if word == b"if" => {
                    let expression = text[place.end..].trim_ascii_start();
                    let place = text.len() - expression.len()..text.len();
                    if expression.is_empty() {
                        return error(Kind::NoCondition, &end);
                    }
                    if let Some(at) = expression.iter().position(|byte| *byte == b'\n') {
                        let at = place.start + at;
                        return error(Kind::Lines, &(at..at + 1));
                    }
                    condition = Some(expression);
                    break;
                }
                None => return error(Kind::Word, &place),
            }
        }
        let request = Self {
            pattern,
            value,
            key,
        };
        Ok((request, condition))
    }
}

/// True if a channel can add up a field of this name. The kernel accepts the same names.
#[must_use]
pub fn is_value(name: &[u8]) -> bool {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let begins = name.first().is_some_and(|byte| !byte.is_ascii_digit());
    begins && name.len() <= NAME_MAX && name.iter().all(is_good)
}

/// True if a channel can count by this: a field, or `$ctx.NAME` with a context that a channel can
/// have.
#[must_use]
pub fn is_key(name: &[u8]) -> bool {
    match name.strip_prefix(b"$ctx.") {
        Some(context) => match context.strip_prefix(b"app.") {
            Some(own) => {
                let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                !own.is_empty() && context.len() <= CONTEXT_MAX && own.iter().all(is_good)
            }
            None => CONTEXTS.contains(&context),
        },
        None => is_value(name),
    }
}

/// The longest name of a context.
const CONTEXT_MAX: usize = 31;

/// The contexts that any program can provide.
const CONTEXTS: [&[u8]; 13] = [
    b"vpid",
    b"vtid",
    b"procname",
    b"cpu_id",
    b"ip",
    b"cgroup_ns",
    b"ipc_ns",
    b"mnt_ns",
    b"net_ns",
    b"pid_ns",
    b"time_ns",
    b"user_ns",
    b"uts_ns",
];

fn is_of_pattern(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.:*?".contains(byte)
}

/// The places of the words of a text.
struct Words<'a> {
    text: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Option<Range<usize>> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let len = self.text[start..]
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(self.text.len() - start);
        self.at = start + len;
        Some(start..self.at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        match CountRequest::parse_with_condition(text.as_bytes()) {
            Ok((request, condition)) => {
                let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let value = request.value.map(|value| {
                    let function = if value.histogram { "hist" } else { "sum" };
                    format!(" {function}({})", string(value.name))
                });
                let key = request.key.map(|key| format!(" by {}", string(key)));
                let condition = condition.map(|condition| format!(" if {}", string(condition)));
                let parts = [value, key, condition].map(Option::unwrap_or_default);
                string(request.pattern) + &parts.concat()
            }
            Err(error) => error.with_caret(text.as_bytes()).to_string(),
        }
    }

    #[test]
    fn what_to_count_is_parsed() {
        for (text, expected) in [
            ("libc:malloc", "libc:malloc"),
            (" libc:malloc  hist(size) ", "libc:malloc hist(size)"),
            ("* sum(x) by y", "* sum(x) by y"),
            ("by by by", "by by by"),
            ("a by $ctx.vtid hist(b)", "a hist(b) by $ctx.vtid"),
            ("a by $ctx.app.request", "a by $ctx.app.request"),
            ("a if x == 1", "a if x == 1"),
            ("if by if if  if > \"by x\" ", "if by if if if > \"by x\""),
            ("a by y hist(x)\tif x >  1", "a hist(x) by y if x >  1"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    /// A channel has no condition: the filter of its trace has.
    #[test]
    fn conditions_are_only_parsed_where_they_can_be() {
        let text = b"a by x  if y > 1";
        let error = CountRequest::parse(text).unwrap_err();
        let shown = error.with_caret(text).to_string();
        assert!(shown.starts_with("a condition is only for"), "{shown}");
        assert!(shown.contains("\n             ^^^^^"), "{shown}");
        assert!(CountRequest::parse(b"a by x").is_ok());
    }

    #[test]
    fn errors_have_a_caret_under_the_word() {
        for (text, caret, message) in [
            ("", "^", "expected a pattern of events"),
            ("a/b", "^^^", "invalid event pattern"),
            ("a b", "  ^", "expected `hist"),
            ("a hist", "  ^^^^", "expected `hist"),
            ("a hist(", "  ^^^^^", "expected the name of a field"),
            ("a hist()", "  ^^^^^^", "expected the name of a field"),
            ("a sum(x.y)", "  ^^^^^^^^", "expected the name of a field"),
            ("a sum(x) hist(x)", "         ^^^^^^^", "only one field"),
            ("a by", "    ^", "expected a field, or"),
            ("a by $x", "     ^^", "invalid key"),
            ("a by $ctx.tid", "     ^^^^^^^^", "invalid key"),
            ("a by $ctx.app.", "     ^^^^^^^^^", "invalid key"),
            ("a by x by y", "       ^^", "expected `hist"),
            ("a if", "    ^", "expected an expression"),
            ("a if ", "    ^", "expected an expression"),
            ("a if x == 1\nb", "           ^", "an expression ends"),
        ] {
            let shown = shown(text);
            let lines: Vec<&str> = shown.lines().collect();
            let [first, _, under] = lines[..] else {
                panic!("{text}: {shown}");
            };
            assert!(first.starts_with(message), "{text}: {first}");
            assert!(under.starts_with(&format!("  {caret}")), "{text}:\n{shown}");
        }
    }

    proptest! {
        #[test]
        fn a_text_may_be_anything(text in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Err(error) = CountRequest::parse(&text) {
                prop_assert!(!error.with_caret(&text).to_string().is_empty());
            }
            if let Err(error) = CountRequest::parse_with_condition(&text) {
                prop_assert!(!error.with_caret(&text).to_string().is_empty());
            }
        }

        #[test]
        fn any_text_of_requests_is_parsed_or_refused(text in "[a-c:*() $byhistum.\t]{0,40}") {
            if let Ok(request) = CountRequest::parse(text.as_bytes()) {
                prop_assert!(request.pattern.iter().all(is_of_pattern));
                prop_assert!(request.key.is_none_or(is_key));
            }
        }
    }
}
