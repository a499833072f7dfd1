//! The filter of the trace for its info area: rules for events, and contexts.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use syscalls::Errno;
use usertrace_sys::count::CountRequest;
use usertrace_sys::filter::{
    ALL, Filter, RuleError, Written, add_rule, begins_with_all, put, written,
};
use usertrace_sys::uapi::{
    LTT_CHANNEL_CONTROL, LTT_CHANNEL_MAIN, LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE,
    LTT_MAX_CONTEXTS, LTT_RULE_CONTEXT, LTT_RULE_KEY, LTT_RULE_VALUE,
};

use super::super::env;
use super::super::shared::shared;
use super::super::status::NoFallback;
use super::layout::{CHANNELS, TABLES};
use crate::context::Kind;
use crate::os::signal::SignalMaskGuard;
use crate::os::{fork_private, memory};

/// What the environment says is to be counted: the sizes of cells of the channels that count it.
/// Their rules are added to the filter.
pub(super) fn cell_sizes(
    settings: &env::Fast,
    filter: &mut Filter,
) -> Result<[u32; TABLES], NoFallback> {
    let mut sizes = [0; TABLES];
    let lines = settings.count.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.trim_ascii().is_empty());
    for (n, line) in lines.enumerate() {
        let bad = NoFallback::Count(line);
        let request = CountRequest::parse(line).map_err(|_| bad)?;
        let size = sizes.get_mut(n).ok_or(bad)?;
        let channel = CHANNELS + n;
        put(filter, channel, 0, request.pattern).ok_or(bad)?;
        *size = LTT_COUNT_CELL_PLAIN;
        if let Some(value) = request.value {
            put(filter, channel, LTT_RULE_VALUE, value.name).ok_or(bad)?;
            *size = LTT_COUNT_CELL_VALUE;
        }
        if let Some(key) = request.key {
            put(filter, channel, LTT_RULE_KEY, key).ok_or(bad)?;
        }
    }
    Ok(sizes)
}

/// A filter in a mapping of its own, until it is dropped. On the stack it would make the program's
/// stack larger for good.
#[derive(Debug)]
pub(super) struct MappedFilter(NonNull<Filter>);

impl MappedFilter {
    /// A filter without rules.
    pub(super) fn new() -> Result<Self, NoFallback> {
        let memory = fork_private::map_kept().ok_or(NoFallback::Memory(Errno::ENOMEM))?;
        Ok(Self(memory))
    }
}

impl Deref for MappedFilter {
    type Target = Filter;

    fn deref(&self) -> &Filter {
        // SAFETY: `new` mapped it, and zeros are a filter without rules, which a test shows.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for MappedFilter {
    fn deref_mut(&mut self) -> &mut Filter {
        // SAFETY: as in `deref`; the mapping is this object's alone.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for MappedFilter {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and no reference outlives this object.
        unsafe { memory::unmap(self.0.as_ptr().cast(), size_of::<Filter>()) };
    }
}

/// The filter that the environment specifies, in the kernel's form.
pub(super) fn filter(settings: &env::Fast) -> Result<MappedFilter, NoFallback> {
    let mut filter = MappedFilter::new()?;
    // As in `record -e`.
    let mut patterns = patterns(settings.filter).peekable();
    if begins_with_all(patterns.peek().map(|first| first.pattern)) {
        put(&mut filter, LTT_CHANNEL_CONTROL, 0, ALL).ok_or(NoFallback::Sizes)?;
    }
    for word in patterns {
        add_rule(&mut filter, &word).map_err(|error| {
            let condition = word.condition.unwrap_or_default();
            match error {
                RuleError::Condition(error) => NoFallback::Condition(condition, Some(error)),
                RuleError::Unprintable => NoFallback::Condition(condition, None),
                RuleError::Pattern | RuleError::Full => NoFallback::Filter(word.pattern),
            }
        })?;
    }
    // A signal handler that looks for a context's name must not find an incomplete one.
    let _held = SignalMaskGuard::new();
    for (n, name) in words(settings.contexts).enumerate() {
        let is_one = n < LTT_MAX_CONTEXTS && Kind::of_name(name, &shared().apps).is_some();
        is_one
            .then(|| put(&mut filter, LTT_CHANNEL_MAIN, LTT_RULE_CONTEXT, name))
            .flatten()
            .ok_or(NoFallback::Context(name))?;
    }
    Ok(filter)
}

fn is_separator(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b','
}

/// Patterns that blanks or commas separate. A condition ends with its line.
fn patterns(text: &'static [u8]) -> impl Iterator<Item = Written<'static>> {
    written(text, is_separator)
}

/// Words that blanks or commas separate.
fn words(text: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    let words = text.split(|byte| is_separator(*byte));
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(filter: &'static str, contexts: &'static str) -> Result<Vec<u8>, NoFallback> {
        let settings = env::Fast {
            filter: filter.as_bytes(),
            contexts: contexts.as_bytes(),
            ..env::Fast::DEFAULT
        };
        Ok(super::filter(&settings)?.rules().to_vec())
    }

    #[test]
    fn zeros_are_a_filter_without_rules() {
        assert_eq!(MappedFilter::new().unwrap().rules(), Filter::new().rules());
    }

    /// Requirements: E4
    #[test]
    fn rules_equal_those_of_the_kernel() {
        for (filter, contexts, expected) in [
            ("", "", &b"\0\0\x01*"[..]),
            ("0", "", b""),
            ("libc:free", "", b"\0\0\x09libc:free"),
            ("1 !b", "", b"\0\0\x01*\0\x01\x01b"),
            ("0 a:b,!c*\n", "", b"\0\0\x03a:b\0\x01\x02c*"),
            ("a 0 1", "", b"\0\0\x01*"),
            (
                "a,b if x\nc",
                "",
                b"\0\0\x01a\0\x05\x01b\0\x10\x01x\0\0\x01c",
            ),
            (
                "!a?",
                "ip vtid",
                b"\0\0\x01*\0\x01\x02a?\x01\x02\x02ip\x01\x02\x04vtid",
            ),
        ] {
            assert_eq!(
                rules(filter, contexts).as_deref(),
                Ok(expected),
                "{filter:?}"
            );
        }
    }

    #[test]
    fn channels_that_count_have_rules() {
        let counts = |count: &'static str| {
            let settings = env::Fast {
                count: count.as_bytes(),
                ..env::Fast::DEFAULT
            };
            let mut filter = Filter::new();
            let sizes = cell_sizes(&settings, &mut filter)?;
            let count = sizes.iter().take_while(|size| **size != 0).count();
            Ok((sizes[..count].to_vec(), filter.rules().to_vec()))
        };
        assert_eq!(counts(""), Ok((vec![], vec![])));
        let (sizes, rules) = counts("libc:malloc hist(size)\n\n* by $ctx.vtid\n").unwrap();
        assert_eq!(sizes, [640, 64]);
        let expected = b"\x02\0\x0blibc:malloc\x02\x40\x04size\x03\0\x01*\x03\x80\x09$ctx.vtid";
        assert_eq!(rules, expected);
        let bad = NoFallback::Count(b"a hist(");
        assert_eq!(counts("a\na hist("), Err(bad));
        assert_eq!(counts(&*"a\n".repeat(14).leak()).unwrap().0, [64; 14]);
        assert_eq!(
            counts(&*"a\n".repeat(15).leak()),
            Err(NoFallback::Count(b"a"))
        );
    }

    #[test]
    fn invalid_rules_are_named() {
        for (filter, bad) in [
            ("0 a/b", "a/b"),
            ("!", "!"),
            ("a !!b", "!!b"),
            ("\u{e9}", "\u{e9}"),
        ] {
            assert_eq!(rules(filter, ""), Err(NoFallback::Filter(bad.as_bytes())));
        }
        let bad = rules("a,b if x > ,c", "");
        assert!(
            matches!(bad, Err(NoFallback::Condition(b"x > ,c", Some(_)))),
            "{bad:?}"
        );
        let long = "a".repeat(256).leak();
        assert_eq!(rules(long, ""), Err(NoFallback::Filter(long.as_bytes())));
        let many = vec!["abcdefghijklmnopqrstuvwxyz"; 141].join(" ").leak();
        let last = NoFallback::Filter(b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(rules(many, ""), Err(last));
        assert_eq!(rules("", "vtid tid"), Err(NoFallback::Context(b"tid")));
        let app = (0..17).map(|n| format!("app.x{n}")).collect::<Vec<_>>();
        let app = app.join(",").leak();
        assert_eq!(rules("", app), Err(NoFallback::Context(b"app.x16")));
    }
}
