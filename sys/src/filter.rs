//! Which events a trace wants, and which of its channels they go to (E4).
//!
//! Whatever the rules say, this neither panics nor takes more than a moment: what is no rule, or
//! one of a kernel that knows more than this, accepts nothing.

use std::fmt;

use crate::limits::{CHANNELS, RULES_LEN};
use crate::uapi::{LTT_CHANNEL_CONTROL, LTT_RULE_CONTEXT, LTT_RULE_REFUSE};

/// What accepts everything.
pub const ALL: &[u8] = b"*";

/// The rules of a trace, as the info area has them. All zeros: none, which accepts nothing.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Rules {
    /// Bytes of them.
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

/// Channels whose rules accept an event, a bit for each; that of the control channel is the
/// trace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted(u32);

impl Accepted {
    /// The rules of the channel accept the event.
    pub fn by(self, channel: usize) -> bool {
        channel < CHANNELS && self.0 & (1 << channel) != 0
    }
}

impl Rules {
    /// Makes it so many bytes of what `word` has, 4 bytes at a time, and says whether they are
    /// others than before.
    pub fn copy(&mut self, len: usize, word: impl Fn(usize) -> [u8; 4]) -> bool {
        // Those of a kernel that has room for more: a part of them would accept what the rest
        // refuses.
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

    /// No rules.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        parse(self.bytes.get(..self.len).unwrap_or_default())
    }

    /// Calls `each` with the names of the contexts of a channel, which are kept with the rules.
    pub fn each_context(&self, channel: usize, mut each: impl FnMut(&[u8])) {
        for rule in self.rules() {
            if rule.flags == LTT_RULE_CONTEXT && usize::from(rule.channel) == channel {
                each(rule.pattern);
            }
        }
    }

    /// Who accepts an event, as the last rule that matches it says: `event` is `PROVIDER:NAME`, and
    /// `name` its name.
    pub fn accept(&self, event: &[u8], name: &[u8]) -> Accepted {
        let mut accepted = 0u32;
        for rule in self.rules() {
            // What else the flags of a later kernel mean, it is not to accept what this one may
            // not.
            let accepts = rule.flags == 0;
            if !accepts && rule.flags & LTT_RULE_REFUSE == 0
                || usize::from(rule.channel) >= CHANNELS
            {
                continue;
            }
            let bit = 1 << rule.channel;
            if (accepted & bit != 0) == accepts {
                // It would change nothing.
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

/// The rules that these bytes are.
fn parse(mut rest: &[u8]) -> impl Iterator<Item = Rule<'_>> {
    std::iter::from_fn(move || {
        let [channel, flags, len, behind @ ..] = rest else {
            return None;
        };
        let (pattern, behind) = behind.split_at_checked(usize::from(*len))?;
        if pattern.is_empty() {
            // Nor is there a rule behind it.
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

/// The rules of a trace while they are put together: always a whole number of them.
#[derive(Clone, Debug)]
#[repr(transparent)]
pub struct Filter(Rules);

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    /// No rules.
    #[must_use]
    pub const fn new() -> Self {
        Self(Rules {
            len: 0,
            bytes: [0; RULES_LEN],
        })
    }

    /// Makes it empty again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &[u8] {
        &self.0.bytes[..self.0.len]
    }

    /// Makes it what [`Rules::copy`] makes of these.
    pub fn copy(&mut self, len: usize, word: impl Fn(usize) -> [u8; 4]) {
        self.0.copy(len, word);
    }

    /// Appends bytes that are rules. Nothing, and nothing is changed, if there is no room for all
    /// of them.
    pub fn append(&mut self, rules: &[u8]) -> Option<()> {
        let Rules { len, bytes } = &mut self.0;
        let end = *len + rules.len();
        bytes.get_mut(*len..end)?.copy_from_slice(rules);
        *len = end;
        Some(())
    }
}

/// Adds what a word of a filter means. Nothing if that is none, or if there is no room.
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

/// Gives each word that such rules are made of to `each`, as far as they are those of the trace.
pub fn each_word(rules: &[u8], mut each: impl FnMut(bool, &[u8])) {
    for rule in parse(rules) {
        let is_of_trace = usize::from(rule.channel) == LTT_CHANNEL_CONTROL;
        if is_of_trace && matches!(rule.flags, 0 | LTT_RULE_REFUSE) {
            each(rule.flags == LTT_RULE_REFUSE, rule.pattern);
        }
    }
}

/// Adds a rule. Nothing if there is no room.
pub fn put(filter: &mut Filter, channel: usize, flags: u8, pattern: &[u8]) -> Option<()> {
    let len = u8::try_from(pattern.len()).ok()?;
    let head = [channel as u8, flags, len];
    if filter.rules().len() + head.len() + pattern.len() > RULES_LEN {
        return None;
    }
    filter.append(&head)?;
    filter.append(pattern)
}

/// Whether what no pattern matches is wanted, by the first one: if that says what is not wanted,
/// all else is meant to be.
pub fn begins_with_all(first: Option<&[u8]>) -> bool {
    first.is_none_or(|first| first.starts_with(b"!"))
}

/// The words by which a filter has these patterns, whatever it had before.
pub fn words(patterns: &[impl AsRef<str>]) -> impl Iterator<Item = &str> {
    let mut patterns = patterns.iter().map(AsRef::as_ref).peekable();
    let all = begins_with_all(patterns.peek().map(|first: &&str| first.as_bytes()));
    std::iter::once(if all { "1" } else { "0" }).chain(patterns)
}

/// Patterns of events, as a trace's filter has them, for those who read traces.
#[derive(Debug)]
pub struct Patterns(Rules);

/// What is no pattern of events, or one too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern(pub String);

impl fmt::Display for BadPattern {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(pattern) = self;
        write!(
            to,
            "{pattern:?} is no pattern of events, or there is no room for it"
        )
    }
}

impl std::error::Error for BadPattern {}

impl Patterns {
    /// Those of `NAME` or `PROVIDER:NAME`, with `*` and `?`, or `!` in front for those that are not
    /// wanted. Where the first one says what is not, all else is.
    ///
    /// # Errors
    /// When one is no pattern, or there are too many.
    pub fn new(patterns: &[impl AsRef<str>]) -> Result<Self, BadPattern> {
        Self::of(words(patterns))
    }

    /// Those that the kernel shows of a filter, which accepts nothing but what they say.
    ///
    /// # Errors
    /// When one is no pattern, or there are too many.
    pub fn as_shown(lines: &[impl AsRef<str>]) -> Result<Self, BadPattern> {
        Self::of(lines.iter().map(AsRef::as_ref))
    }

    fn of<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, BadPattern> {
        let mut filter = Filter::new();
        for word in words {
            add_rule(&mut filter, word.as_bytes()).ok_or_else(|| BadPattern(word.to_owned()))?;
        }
        Ok(Self(filter.0))
    }

    /// Whether an event, of this `PROVIDER:NAME`, is wanted: as the last pattern that matches it
    /// says.
    #[must_use]
    pub fn accept(&self, event: &str) -> bool {
        let name = event.split(':').nth(1).unwrap_or_default();
        let accepted = self.0.accept(event.as_bytes(), name.as_bytes());
        accepted.by(LTT_CHANNEL_CONTROL)
    }
}

/// Whether a pattern matches all of a text: `*` any bytes, `?` any one, all else itself.
///
/// It goes back to the last `*` only: what an earlier one took could as well have been taken by
/// that. So this takes the product of both lengths at most.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and where what it took ends.
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

    /// Who accepts `shop:order-paid`.
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
            // With a colon, the provider counts, too.
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

    /// Of what a kernel that knows more says, what is understood holds.
    #[test]
    fn what_is_not_understood_accepts_nothing() {
        for (list, expected) in [
            (&[(0, 2, "*")][..], 0),
            (&[(0, 0, "*"), (0, 2, "*")], 1),
            (&[(0, 0, "*"), (0, 3, "*")], 0),
            (&[(16, 0, "*"), (255, 0, "*"), (2, 0, "*")], 4),
            // The end is where there is no rule.
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
    fn rules_are_others_if_a_byte_is() {
        let mut rules = rules(b"");
        assert!(!copy(&mut rules, b""));
        assert!(copy(&mut rules, b"\0\0\x01*"));
        assert!(!copy(&mut rules, b"\0\0\x01*"));
        assert!(copy(&mut rules, b"\0\0\x01?"));
        assert!(copy(&mut rules, b"\0\0\x01?\0"));
        assert!(copy(&mut rules, b"\0\0\x01?"));
        // More than there is room for is not there.
        // More than there is room for is none.
        assert!(copy(&mut rules, &[1; RULES_LEN]));
        assert!(copy(&mut rules, &[1; RULES_LEN + 8]));
        assert_eq!(rules.len, 0);
        rules.clear();
        assert_eq!(rules.rules().count(), 0);
    }

    /// As a textbook has it.
    fn by_the_book(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', pattern @ ..], _) => {
                (0..=text.len()).any(|at| by_the_book(pattern, &text[at..]))
            }
            ([b'?', pattern @ ..], [_, text @ ..]) => by_the_book(pattern, text),
            ([a, pattern @ ..], [b, text @ ..]) if a == b => by_the_book(pattern, text),
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
        fn patterns_match_as_by_the_book(pattern in pattern(), text in text()) {
            prop_assert_eq!(matches(&pattern, &text), by_the_book(&pattern, &text));
        }

        /// Also of the sort that takes others for ever.
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

        /// Who accepts an event is who did before the last rule, but for the channel that this one
        /// is of.
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
                && by_the_book(pattern, subject);
            let expected = match (holds, *flags) {
                (false, _) => then,
                (true, 0) => then | 1 << channel,
                (true, _) => then & !(1 << channel),
            };
            prop_assert_eq!(now, expected);
        }
    }
}
