//! Filters: which events a trace wants, and which of its channels they go to (E4).
//!
//! Rules are not trusted: evaluating them never panics, and takes bounded time. An invalid rule
//! ends the list. A rule with unknown flags accepts nothing.

use std::fmt;

use crate::limits::{CHANNELS, RULES_LEN};
use crate::uapi::{LTT_CHANNEL_CONTROL, LTT_RULE_CONTEXT, LTT_RULE_REFUSE};

/// The pattern that matches everything.
pub const ALL: &[u8] = b"*";

/// The rules of a trace, in the format of the info area. All zeros: no rules, which accept nothing.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Rules {
    /// Bytes in use.
    len: usize,
    bytes: [u8; RULES_LEN],
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule<'a> {
    channel: u8,
    flags: u8,
    pattern: &'a [u8],
}

/// The channels whose rules accept an event, a bit for each. The bit of the control channel is the
/// trace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted(u32);

impl Accepted {
    /// True if the rules of the channel accept the event.
    pub fn by(self, channel: usize) -> bool {
        channel < CHANNELS && self.0 & (1 << channel) != 0
    }
}

impl Rules {
    /// Copies `len` bytes of rules from `word`, which returns 4 bytes at an offset. Returns whether
    /// the rules changed.
    pub fn copy(&mut self, len: usize, word: impl Fn(usize) -> [u8; 4]) -> bool {
        // Ignore rules that are too long: a part of them would accept events that the rest refuses.
        let len = if len > RULES_LEN { 0 } else { len };
        let mut changed = self.len != len;
        self.len = len;
        for (n, bytes) in self.bytes[..len].chunks_mut(4).enumerate() {
            let word = &word(4 * n)[..bytes.len()];
            if bytes != word {
                bytes.copy_from_slice(word);
                changed = true;
            }
        }
        changed
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        parse(self.bytes.get(..self.len).unwrap_or_default())
    }

    /// Calls `each` with the names of the contexts of a channel, which are stored with the rules.
    pub fn each_context(&self, channel: usize, mut each: impl FnMut(&[u8])) {
        for rule in self.rules() {
            if rule.flags == LTT_RULE_CONTEXT && usize::from(rule.channel) == channel {
                each(rule.pattern);
            }
        }
    }

    /// Evaluates the rules for an event; the last matching rule of each channel decides. `event` is
    /// `PROVIDER:NAME`, and `name` its second part.
    pub fn accept(&self, event: &[u8], name: &[u8]) -> Accepted {
        let mut accepted = 0u32;
        for rule in self.rules() {
            // A rule with unknown flags of a later kernel may refuse, but never accepts.
            let accepts = rule.flags == 0;
            if !accepts && rule.flags & LTT_RULE_REFUSE == 0
                || usize::from(rule.channel) >= CHANNELS
            {
                continue;
            }
            let bit = 1 << rule.channel;
            if (accepted & bit != 0) == accepts {
                // The rule would not change the result.
                continue;
            }
            let subject = if rule.pattern.contains(&b':') {
                event
            } else {
                name
            };
            if matches(rule.pattern, subject) {
                accepted ^= bit;
            }
        }
        Accepted(accepted)
    }
}

/// Parses rules; ends at the first invalid one.
fn parse(mut rest: &[u8]) -> impl Iterator<Item = Rule<'_>> {
    std::iter::from_fn(move || {
        let [channel, flags, len, behind @ ..] = rest else {
            return None;
        };
        let (pattern, behind) = behind.split_at_checked(usize::from(*len))?;
        if pattern.is_empty() {
            // An empty pattern ends the list.
            rest = &[];
            return None;
        }
        rest = behind;
        Some(Rule {
            channel: *channel,
            flags: *flags,
            pattern,
        })
    })
}

/// A builder of the rules of a trace: always a whole number of them.
#[derive(Clone, Debug)]
#[repr(transparent)]
pub struct Filter(Rules);

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    /// Creates a filter without rules.
    #[must_use]
    pub const fn new() -> Self {
        Self(Rules {
            len: 0,
            bytes: [0; RULES_LEN],
        })
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[u8] {
        &self.0.bytes[..self.0.len]
    }

    /// Replaces the rules, as [`Rules::copy`] does.
    pub fn copy(&mut self, len: usize, word: impl Fn(usize) -> [u8; 4]) {
        self.0.copy(len, word);
    }

    /// Appends encoded rules. None, and no change, if not all of them fit.
    pub fn append(&mut self, rules: &[u8]) -> Option<()> {
        let Rules { len, bytes } = &mut self.0;
        let end = *len + rules.len();
        bytes.get_mut(*len..end)?.copy_from_slice(rules);
        *len = end;
        Some(())
    }
}

/// Adds the rule of a filter's word. None if the word is invalid, or does not fit.
pub fn add_rule(filter: &mut Filter, word: &[u8]) -> Option<()> {
    let (flags, pattern) = match word {
        b"0" => {
            filter.clear();
            return Some(());
        }
        b"1" => (0, ALL),
        [b'!', pattern @ ..] => (LTT_RULE_REFUSE, pattern),
        pattern => (0, pattern),
    };
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:*?".contains(byte);
    if pattern.is_empty() || !pattern.iter().all(is_good) {
        return None;
    }
    put(filter, LTT_CHANNEL_CONTROL, flags, pattern)
}

/// Calls `each` for each rule of the trace itself: whether it refuses, and its pattern.
pub fn each_word(rules: &[u8], mut each: impl FnMut(bool, &[u8])) {
    for rule in parse(rules) {
        let is_of_trace = usize::from(rule.channel) == LTT_CHANNEL_CONTROL;
        if is_of_trace && matches!(rule.flags, 0 | LTT_RULE_REFUSE) {
            each(rule.flags == LTT_RULE_REFUSE, rule.pattern);
        }
    }
}

/// Adds a rule. None if it does not fit.
pub fn put(filter: &mut Filter, channel: usize, flags: u8, pattern: &[u8]) -> Option<()> {
    let len = u8::try_from(pattern.len()).ok()?;
    let head = [channel as u8, flags, len];
    if filter.rules().len() + head.len() + pattern.len() > RULES_LEN {
        return None;
    }
    filter.append(&head)?;
    filter.append(pattern)
}

/// Returns whether unmatched events are wanted. The first pattern decides: if it excludes events,
/// all others are wanted.
pub fn begins_with_all(first: Option<&[u8]>) -> bool {
    first.is_none_or(|first| first.starts_with(b"!"))
}

/// The words that set a filter to these patterns.
pub fn words(patterns: &[impl AsRef<str>]) -> impl Iterator<Item = &str> {
    let mut patterns = patterns.iter().map(AsRef::as_ref).peekable();
    let all = begins_with_all(patterns.peek().map(|first: &&str| first.as_bytes()));
    std::iter::once(if all { "1" } else { "0" }).chain(patterns)
}

/// Patterns of events in the syntax of a trace's filter, for readers of traces.
#[derive(Debug)]
pub struct Patterns(Rules);

/// A pattern that is invalid, or one too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(pub String);

impl fmt::Display for PatternError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(pattern) = self;
        write!(
            to,
            "{pattern:?} is no pattern of events, or there is no room for it"
        )
    }
}

impl std::error::Error for PatternError {}

impl Patterns {
    /// Parses patterns: `NAME` or `PROVIDER:NAME`, with `*` and `?`, and with `!` in front to
    /// exclude events. If the first pattern excludes events, all others are wanted.
    ///
    /// # Errors
    /// If a pattern is invalid, or there are too many.
    pub fn new(patterns: &[impl AsRef<str>]) -> Result<Self, PatternError> {
        Self::of(words(patterns))
    }

    /// Parses the patterns that the kernel shows of a filter, which accepts nothing else.
    ///
    /// # Errors
    /// If a pattern is invalid, or there are too many.
    pub fn as_shown(lines: &[impl AsRef<str>]) -> Result<Self, PatternError> {
        Self::of(lines.iter().map(AsRef::as_ref))
    }

    fn of<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut filter = Filter::new();
        for word in words {
            add_rule(&mut filter, word.as_bytes()).ok_or_else(|| PatternError(word.to_owned()))?;
        }
        Ok(Self(filter.0))
    }

    /// True if the event with the name `PROVIDER:NAME` is wanted; the last matching pattern
    /// decides.
    #[must_use]
    pub fn accept(&self, event: &str) -> bool {
        let name = event.split(':').nth(1).unwrap_or_default();
        let accepted = self.0.accept(event.as_bytes(), name.as_bytes());
        accepted.by(LTT_CHANNEL_CONTROL)
    }
}

/// True if a pattern matches a whole text: `*` matches any bytes, `?` any one, all others
/// themselves.
///
/// It backtracks only to the last `*`, which can match anything that an earlier one could. So the
/// time is at most the product of both lengths.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The position after the last `*`, and the end of its match.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, t));
            }
            Some(&wanted) if wanted == b'?' || wanted == byte => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((behind, end)) = star else {
                    return false;
                };
                (p, t) = (behind, end + 1);
                star = Some((p, t));
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(bytes: &[u8]) -> Rules {
        let mut rules = Rules {
            len: 0,
            bytes: [0; RULES_LEN],
        };
        copy(&mut rules, bytes);
        rules
    }

    fn copy(rules: &mut Rules, bytes: &[u8]) -> bool {
        rules.copy(bytes.len(), |at| {
            std::array::from_fn(|n| bytes.get(at + n).copied().unwrap_or(0xee))
        })
    }

    fn encode(list: &[(u8, u8, &str)]) -> Vec<u8> {
        let encode = |&(channel, flags, pattern): &(u8, u8, &str)| {
            let mut bytes = vec![channel, flags, pattern.len() as u8];
            bytes.extend(pattern.as_bytes());
            bytes
        };
        list.iter().flat_map(encode).collect()
    }

    /// The channels that accept `shop:order-paid`.
    fn accepted(bytes: &[u8]) -> u32 {
        rules(bytes).accept(b"shop:order-paid", b"order-paid").0
    }

    #[test]
    fn patterns_match_all_of_a_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("**", "abc", true),
            ("?", "", false),
            ("?", "a", true),
            ("?*", "", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("ab", "a", false),
            ("a*", "ab", true),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("*a*", "bab", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a?c", "abc", true),
            ("*?c", "bc", true),
            ("*?c", "c", false),
            ("*aab", "aaab", true),
            ("A", "a", false),
            ("[a]", "a", false),
            (r"\*", "*", false),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_rule_that_matches_decides() {
        for (list, expected) in [
            (&[][..], 0),
            (&[(0, 0, "*")], 1),
            (&[(0, 0, "*"), (0, 1, "order-*")], 0),
            (&[(0, 1, "order-*"), (0, 0, "*")], 1),
            (&[(0, 0, "*"), (0, 1, "order-p"), (0, 1, "refund")], 1),
            (
                &[(0, 0, "order-paid"), (3, 0, "*"), (15, 0, "*paid")],
                0x8009,
            ),
            (&[(3, 0, "*"), (4, 0, "*"), (3, 1, "*")], 0x10),
            // A pattern with a colon also matches the provider.
            (&[(0, 0, "shop:order-paid")], 1),
            (&[(0, 0, "shop:*")], 1),
            (&[(0, 0, "*:*")], 1),
            (&[(0, 0, "*:paid")], 0),
            (&[(0, 0, "order-paid:")], 0),
            (&[(0, 0, "shop*")], 0),
        ] {
            assert_eq!(accepted(&encode(list)), expected, "{list:?}");
        }
    }

    /// Known rules of a newer kernel apply, unknown ones accept nothing.
    #[test]
    fn unknown_rules_accept_nothing() {
        for (list, expected) in [
            (&[(0, 2, "*")][..], 0),
            (&[(0, 0, "*"), (0, 2, "*")], 1),
            (&[(0, 0, "*"), (0, 3, "*")], 0),
            (&[(16, 0, "*"), (255, 0, "*"), (2, 0, "*")], 4),
            // An invalid rule ends the list.
            (&[(0, 0, "*"), (1, 0, ""), (0, 1, "*")], 1),
        ] {
            assert_eq!(accepted(&encode(list)), expected, "{list:?}");
        }
        let whole = encode(&[(0, 0, "*"), (2, 0, "order-*")]);
        for len in 0..whole.len() {
            assert_eq!(accepted(&whole[..len]), u32::from(len >= 4), "{len}");
        }
        assert_eq!(accepted(&whole), 5);
    }

    #[test]
    fn copy_reports_changes() {
        let mut rules = rules(b"");
        assert!(!copy(&mut rules, b""));
        assert!(copy(&mut rules, b"\0\0\x01*"));
        assert!(!copy(&mut rules, b"\0\0\x01*"));
        assert!(copy(&mut rules, b"\0\0\x01?"));
        assert!(copy(&mut rules, b"\0\0\x01?\0"));
        assert!(copy(&mut rules, b"\0\0\x01?"));
        // Rules that are too long are ignored.
        assert!(copy(&mut rules, &[1; RULES_LEN]));
        assert!(copy(&mut rules, &[1; RULES_LEN + 8]));
        assert_eq!(rules.len, 0);
        rules.clear();
        assert_eq!(rules.rules().count(), 0);
    }

    /// A reference implementation of `matches`.
    fn reference_matches(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', pattern @ ..], _) => {
                (0..=text.len()).any(|at| reference_matches(pattern, &text[at..]))
            }
            ([b'?', pattern @ ..], [_, text @ ..]) => reference_matches(pattern, text),
            ([a, pattern @ ..], [b, text @ ..]) if a == b => reference_matches(pattern, text),
            _ => false,
        }
    }

    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(&b"ab*?:"[..]), 0..8)
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(&b"ab:"[..]), 0..10)
    }

    proptest! {
        #[test]
        fn patterns_match_as_the_reference(pattern in pattern(), text in text()) {
            prop_assert_eq!(matches(&pattern, &text), reference_matches(&pattern, &text));
        }

        /// Includes patterns that take exponential time in naive implementations.
        #[test]
        fn no_pattern_takes_long(stars in 1..127usize, len in 0..2048usize) {
            let pattern = [b"a*".repeat(stars), b"b".to_vec()].concat();
            prop_assert!(!matches(&pattern, &b"a".repeat(len)));
        }

        #[test]
        fn rules_may_be_anything(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            rules(&bytes).accept(b"shop:order-paid", b"order-paid");
            rules(&bytes).accept(b"", b"");
        }

        /// The last rule changes the result of its own channel only.
        #[test]
        fn each_rule_is_of_one_channel(
            list in prop::collection::vec((0..18u8, 0..4u8, pattern()), 1..20),
            event in text(),
        ) {
            let encode = |list: &[(u8, u8, Vec<u8>)]| -> Vec<u8> {
                list.iter()
                    .filter(|(_, _, pattern)| !pattern.is_empty())
                    .flat_map(|(channel, flags, pattern)| {
                        [&[*channel, *flags, pattern.len() as u8], &pattern[..]].concat()
                    })
                    .collect()
            };
            let full = [b"a:", &event[..]].concat();
            let accept = |list| rules(&encode(list)).accept(&full, &event).0;
            let (last, before) = list.split_last().unwrap();
            let (now, then) = (accept(&list), accept(before));
            let (channel, flags, pattern) = last;
            let subject = if pattern.contains(&b':') { &full } else { &event };
            let holds = *channel < 16
                && (*flags == 0 || flags & 1 != 0)
                && !pattern.is_empty()
                && reference_matches(pattern, subject);
            let expected = match (holds, *flags) {
                (false, _) => then,
                (true, 0) => then | 1 << channel,
                (true, _) => then & !(1 << channel),
            };
            prop_assert_eq!(now, expected);
        }
    }
}
