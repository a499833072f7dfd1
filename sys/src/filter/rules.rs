//! The rules of a trace, and what they say about an event.

use super::condition::{Condition, Conditions};
use super::written::Written;
use usertrace_expression::{Expression, ParseError};

use crate::limits::{CHANNELS, RULES_LEN};
use crate::uapi::{
    LTT_CHANNEL_CONTROL, LTT_EXPR_MAX, LTT_MAX_TRIGGERS, LTT_RULE_ACCEPT_IF, LTT_RULE_CONTEXT,
    LTT_RULE_EXPR, LTT_RULE_REFUSE, LTT_RULE_REFUSE_IF, LTT_RULE_TRIGGER,
};

/// The pattern that matches everything.
pub const ALL: &[u8] = b"*";

/// Bytes of a rule before its pattern.
const HEAD: usize = 3;

/// The longest piece of an expression.
const PIECE: usize = u8::MAX as usize;

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
    /// The entries with the pieces of its condition.
    expression: &'a [u8],
}

/// What a rule does with an event that its pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Accept,
    Refuse,
    AcceptIf,
    RefuseIf,
}

impl Rule<'_> {
    /// What the rule does; none if it is not a rule for events.
    fn action(&self) -> Option<Action> {
        // A later kernel's rule with unknown flags may refuse, but never accepts. A condition
        // without its expression is one, and so is that of a channel.
        let has_condition =
            usize::from(self.channel) == LTT_CHANNEL_CONTROL && !self.expression.is_empty();
        match (self.flags, has_condition) {
            (0, _) => Some(Action::Accept),
            (ACCEPT_IF, true) => Some(Action::AcceptIf),
            (REFUSE_IF, true) => Some(Action::RefuseIf),
            (flags, _) if flags & LTT_RULE_REFUSE != 0 => Some(Action::Refuse),
            _ => None,
        }
    }

    /// The pieces of its condition.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        entries(self.expression).map(|entry| entry.pattern)
    }

    /// The text of its condition, composed in `room`; none if it is too long.
    fn text<'t>(&self, room: &'t mut [u8; LTT_EXPR_MAX]) -> Option<&'t [u8]> {
        let mut len = 0;
        for piece in self.pieces() {
            room.get_mut(len..len + piece.len())?.copy_from_slice(piece);
            len += piece.len();
        }
        room.get(..len)
    }

    /// Whether the pattern matches an event. `event` is `PROVIDER:NAME`, and `name` its second
    /// part.
    fn matches(&self, event: &[u8], name: &[u8]) -> bool {
        let has_provider = self.pattern.contains(&b':');
        matches(self.pattern, if has_provider { event } else { name })
    }
}

/// The condition of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerCondition<'a> {
    /// Any event that the pattern matches fires it.
    None,
    /// The event fires it if this expression is true.
    If(&'a [u8]),
    /// The expression is longer than [`LTT_EXPR_MAX`]. Nothing fires it.
    TooLong,
}

/// The flags of a rule with a condition. Libraries that do not know conditions see one that
/// refuses.
const ACCEPT_IF: u8 = LTT_RULE_REFUSE | LTT_RULE_ACCEPT_IF;
const REFUSE_IF: u8 = LTT_RULE_REFUSE | LTT_RULE_REFUSE_IF;

/// The channels whose rules accept an event, a bit for each. The bit of the control channel is the
/// trace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    channels: u32,
    conditions: Conditions,
}

impl Accepted {
    /// True if the rules of the channel accept the event. Those of the trace may also have
    /// [conditions](Self::conditions).
    pub fn by(self, channel: usize) -> bool {
        channel < CHANNELS && self.channels & (1 << channel) != 0
    }

    /// The conditions of the trace, if it accepts the event.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
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

    /// The rules with conditions, in their order.
    fn conditional(&self) -> impl Iterator<Item = Rule<'_>> {
        self.rules().filter(|rule| {
            let action = rule.action();
            matches!(action, Some(Action::AcceptIf | Action::RefuseIf))
        })
    }

    /// True if a rule has a condition.
    pub fn has_conditions(&self) -> bool {
        self.conditional().next().is_some()
    }

    /// Calls `each` with the text of each condition, or with none if it is too long. Their numbers
    /// in a [`Condition`] count from 0. `room` is scratch space.
    pub fn each_expression(
        &self,
        room: &mut [u8; LTT_EXPR_MAX],
        mut each: impl FnMut(Option<&[u8]>),
    ) {
        for rule in self.conditional() {
            each(rule.text(room));
        }
    }

    /// The triggers, in their order.
    fn triggers(&self) -> impl Iterator<Item = Rule<'_>> {
        let is_one = |rule: &Rule<'_>| rule.flags == LTT_RULE_TRIGGER && rule.channel != 0;
        self.rules().filter(is_one).take(LTT_MAX_TRIGGERS)
    }

    /// True if the trace has triggers.
    pub fn has_triggers(&self) -> bool {
        self.triggers().next().is_some()
    }

    /// Calls `each` with the condition of each trigger. Their indexes count from 0. `room` is
    /// scratch space.
    pub fn each_trigger(
        &self,
        room: &mut [u8; LTT_EXPR_MAX],
        mut each: impl FnMut(TriggerCondition<'_>),
    ) {
        for trigger in self.triggers() {
            each(match trigger.text(room) {
                Some([]) => TriggerCondition::None,
                Some(text) => TriggerCondition::If(text),
                None => TriggerCondition::TooLong,
            });
        }
    }

    /// The index and the number of each trigger whose pattern matches an event. `event` is
    /// `PROVIDER:NAME`, and `name` its second part.
    pub fn matching_triggers(
        &self,
        event: &[u8],
        name: &[u8],
    ) -> impl Iterator<Item = (usize, u8)> {
        let triggers = self.triggers().enumerate();
        let matching = triggers.filter(move |(_, trigger)| trigger.matches(event, name));
        matching.map(|(index, trigger)| (index, trigger.channel))
    }

    /// Evaluates the rules for an event; the last matching rule of each channel decides, except
    /// for conditions. `event` is `PROVIDER:NAME`, and `name` its second part.
    pub fn accept(&self, event: &[u8], name: &[u8]) -> Accepted {
        let mut accepted = 0u32;
        let mut conditions = Conditions::new();
        let mut number = 0;
        for rule in self.rules() {
            let Some(action) = rule.action() else {
                continue;
            };
            if usize::from(rule.channel) >= CHANNELS {
                continue;
            }
            let number = match action {
                Action::AcceptIf | Action::RefuseIf => {
                    number += 1;
                    number - 1
                }
                Action::Accept | Action::Refuse => number,
            };
            let bit = 1 << rule.channel;
            let is_accepted = accepted & bit != 0;
            let is_of_trace = usize::from(rule.channel) == LTT_CHANNEL_CONTROL;
            let has_conditions = is_of_trace && !conditions.is_empty();
            let changes = match action {
                Action::Accept => !is_accepted || has_conditions,
                Action::Refuse | Action::RefuseIf => is_accepted,
                Action::AcceptIf => true,
            };
            if !changes {
                continue;
            }
            if !rule.matches(event, name) {
                continue;
            }
            if is_of_trace && action != Action::RefuseIf {
                conditions.clear();
            }
            match action {
                Action::Accept => accepted |= bit,
                Action::Refuse => accepted &= !bit,
                Action::AcceptIf => {
                    accepted |= bit;
                    conditions.push(Condition::new(number, false));
                }
                Action::RefuseIf => conditions.push(Condition::new(number, true)),
            }
        }
        Accepted {
            channels: accepted,
            conditions,
        }
    }
}

/// Parses rules; ends at the first invalid one.
fn parse(mut rest: &[u8]) -> impl Iterator<Item = Rule<'_>> {
    std::iter::from_fn(move || {
        let (mut rule, behind) = split_entry(rest)?;
        rest = behind;
        // The pieces of a condition follow its rule.
        while let Some((piece, behind)) = split_entry(rest)
            && piece.is_piece_of(&rule)
        {
            rest = behind;
        }
        rule.expression = &rule.expression[..rule.expression.len() - rest.len()];
        Some(rule)
    })
}

impl Rule<'_> {
    fn is_piece_of(&self, rule: &Self) -> bool {
        self.flags == LTT_RULE_EXPR && self.channel == rule.channel
    }
}

/// Parses entries, which are rules or pieces of conditions.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = Rule<'_>> {
    std::iter::from_fn(move || {
        let (entry, behind) = split_entry(rest)?;
        rest = behind;
        Some(entry)
    })
}

/// Splits the first entry off, with all that follows as its expression. None if there is no valid
/// one.
fn split_entry(entries: &[u8]) -> Option<(Rule<'_>, &[u8])> {
    let [channel, flags, len, behind @ ..] = entries else {
        return None;
    };
    let (pattern, behind) = behind.split_at_checked(usize::from(*len))?;
    let rule = Rule {
        channel: *channel,
        flags: *flags,
        pattern,
        expression: behind,
    };
    // An empty pattern ends the list.
    (!pattern.is_empty()).then_some((rule, behind))
}

/// A builder of the rules of a trace: always a whole number of them.
#[derive(Clone, Debug)]
#[repr(transparent)]
pub struct Filter(pub(super) Rules);

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

/// Why a word of a filter cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It is no pattern.
    Pattern,
    /// Its condition is no expression.
    Condition(ParseError),
    /// Its condition is longer than [`LTT_EXPR_MAX`], or has a control character.
    Unprintable,
    /// There is no room for it.
    Full,
}

/// Adds the rule of a filter's word.
///
/// # Errors
/// If the word is invalid, or does not fit. The filter is then unchanged.
pub fn add_rule(filter: &mut Filter, word: &Written<'_>) -> Result<(), RuleError> {
    let (refuses, pattern) = match (word.pattern, word.condition) {
        (b"0", None) => {
            filter.clear();
            return Ok(());
        }
        (b"0", Some(_)) => return Err(RuleError::Pattern),
        (b"1", _) => (false, ALL),
        ([b'!', pattern @ ..], _) => (true, pattern),
        (pattern, _) => (false, pattern),
    };
    if !is_pattern(pattern) {
        return Err(RuleError::Pattern);
    }
    let Some(expression) = word.condition else {
        let flags = if refuses { LTT_RULE_REFUSE } else { 0 };
        return put(filter, LTT_CHANNEL_CONTROL, flags, pattern).ok_or(RuleError::Full);
    };
    Expression::parse(expression).map_err(RuleError::Condition)?;
    if !is_storable(expression) {
        return Err(RuleError::Unprintable);
    }
    let flags = if refuses { REFUSE_IF } else { ACCEPT_IF };
    let added = put_with(filter, LTT_CHANNEL_CONTROL, flags, pattern, expression);
    added.ok_or(RuleError::Full)
}

/// True if a text has the form of a pattern.
pub(super) fn is_pattern(text: &[u8]) -> bool {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:*?".contains(byte);
    !text.is_empty() && text.iter().all(is_good)
}

/// True if the kernel stores this text of an expression: it is at most [`LTT_EXPR_MAX`] long, and
/// has no control characters.
pub(super) fn is_storable(expression: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    expression.len() <= LTT_EXPR_MAX && !expression.iter().any(is_control)
}

/// Adds an entry with an expression, which may be empty. None, and no change, if it does not fit.
pub(super) fn put_with(
    filter: &mut Filter,
    channel: usize,
    flags: u8,
    pattern: &[u8],
    expression: &[u8],
) -> Option<()> {
    let before = filter.0.len;
    let mut add = || {
        put(filter, channel, flags, pattern)?;
        let mut rest = expression;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(piece_len(rest));
            put(filter, channel, LTT_RULE_EXPR, piece)?;
            rest = behind;
        }
        Some(())
    };
    let added = add();
    if added.is_none() {
        filter.0.len = before;
    }
    added
}

/// The length of the first piece of an expression. It ends with a character, as far as the text is
/// UTF-8.
fn piece_len(expression: &[u8]) -> usize {
    let is_inside = |at: usize| expression.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let longest = expression.len().min(PIECE);
    let ends = (longest - 3.min(longest - 1)..=longest).rev();
    let end = ends.into_iter().find(|at| !is_inside(*at));
    end.unwrap_or(longest)
}

/// Calls `each` for each rule of the trace itself: whether it refuses, its pattern, and its
/// condition in pieces.
pub fn each_word(rules: &[u8], mut each: impl FnMut(bool, &[u8], &mut dyn Iterator<Item = &[u8]>)) {
    for rule in parse(rules) {
        if usize::from(rule.channel) != LTT_CHANNEL_CONTROL {
            continue;
        }
        match (rule.flags, rule.action()) {
            (0, _) => each(false, rule.pattern, &mut std::iter::empty()),
            (LTT_RULE_REFUSE, _) => each(true, rule.pattern, &mut std::iter::empty()),
            (_, Some(Action::AcceptIf)) => each(false, rule.pattern, &mut rule.pieces()),
            (_, Some(Action::RefuseIf)) => each(true, rule.pattern, &mut rule.pieces()),
            _ => {}
        }
    }
}

/// Adds a rule. None if it does not fit.
pub fn put(filter: &mut Filter, channel: usize, flags: u8, pattern: &[u8]) -> Option<()> {
    let len = u8::try_from(pattern.len()).ok()?;
    let head: [u8; HEAD] = [channel as u8, flags, len];
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

    use super::super::condition::MAX_CONDITIONS;
    use super::super::written::written;
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
        rules(bytes)
            .accept(b"shop:order-paid", b"order-paid")
            .channels
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

    /// A filter as people write it.
    fn filter(text: &str) -> Filter {
        let mut filter = Filter::new();
        for word in written(text.as_bytes(), |byte| byte.is_ascii_whitespace()) {
            add_rule(&mut filter, &word).unwrap();
        }
        filter
    }

    /// What the rules of a filter say about `shop:order-paid`: whether they accept it, and its
    /// conditions, with `!` for those that refuse.
    fn decided(filter: &Filter) -> (bool, Option<String>) {
        let mut texts = Vec::new();
        filter.0.each_expression(&mut [0; LTT_EXPR_MAX], |text| {
            texts.push(String::from_utf8(text.unwrap().to_vec()).unwrap());
        });
        let accepted = filter.0.accept(b"shop:order-paid", b"order-paid");
        let conditions = accepted.conditions().list().map(|list| {
            let texts = list.iter().map(|condition| {
                let not = if condition.refuses() { "!" } else { "" };
                format!("{not}{}", texts[condition.number()])
            });
            texts.collect::<Vec<_>>().join(" ")
        });
        (accepted.by(LTT_CHANNEL_CONTROL), conditions)
    }

    /// Requirements: E4
    #[test]
    fn conditions_of_the_deciding_rules_count() {
        for (text, accepted, conditions) in [
            ("* if a", true, "a"),
            ("0 * if a\norder-* if b", true, "b"),
            ("1 shop:* if a\nother if b", true, "a"),
            ("order-* if a\n1", true, ""),
            ("order-* if a\n!order-*", false, ""),
            ("1 !order-* if a\n!* if b\n!other if c", true, "!a !b"),
            ("* if a\n!* if b", true, "a !b"),
            ("!* if a\n* if b", true, "b"),
            ("!* if b", false, ""),
            ("1 if a", true, "a"),
        ] {
            let expected = (accepted, Some(conditions.to_owned()));
            assert_eq!(decided(&filter(text)), expected, "{text:?}");
        }
        let many = format!("1{}", " !* if a\n".repeat(MAX_CONDITIONS));
        let all = ["!a"; MAX_CONDITIONS].join(" ");
        assert_eq!(decided(&filter(&many)), (true, Some(all)));
        assert_eq!(decided(&filter(&(many + "!* if a"))), (true, None));
    }

    /// Libraries without conditions refuse what they match, and so does this one if there is no
    /// expression, or if a rule of a channel has one.
    #[test]
    fn rules_whose_condition_is_unknown_refuse() {
        let is_accepted = |list: &[(u8, u8, &str)]| accepted(&encode(list)) != 0;
        for flags in [ACCEPT_IF, REFUSE_IF, ACCEPT_IF | REFUSE_IF, 0x21] {
            assert!(!is_accepted(&[(0, 0, "*"), (0, flags, "order-*")]));
        }
        for flags in [ACCEPT_IF, REFUSE_IF] {
            assert!(!is_accepted(&[
                (0, 0, "*"),
                (0, flags, "*"),
                (1, LTT_RULE_EXPR, "a")
            ]));
            assert!(!is_accepted(&[
                (2, 0, "*"),
                (2, flags, "*"),
                (2, LTT_RULE_EXPR, "a")
            ]));
            assert!(is_accepted(&[
                (0, 0, "*"),
                (0, flags, "*"),
                (0, LTT_RULE_EXPR, "a")
            ]));
        }
        // Pieces without a rule are none.
        assert!(!is_accepted(&[(0, LTT_RULE_EXPR, "*")]));
    }

    /// Triggers are no rules, and rules no triggers.
    #[test]
    fn triggers_are_apart_from_rules() {
        let entries = [
            (0, 0, "*"),
            (7, LTT_RULE_TRIGGER, "order-*"),
            (7, LTT_RULE_EXPR, "a >"),
            (7, LTT_RULE_EXPR, " 1"),
            (0, LTT_RULE_TRIGGER, "*"),
            (2, LTT_RULE_TRIGGER, "shop:?rder-paid"),
            (3, LTT_RULE_TRIGGER | LTT_RULE_REFUSE, "*"),
            (255, LTT_RULE_TRIGGER, "refund"),
            (255, LTT_RULE_EXPR, "b"),
        ];
        let bytes = encode(&entries);
        let of_trace = rules(&bytes);
        assert!(of_trace.has_triggers() && !of_trace.has_conditions());
        assert_eq!(accepted(&bytes), 1);
        let matching = of_trace.matching_triggers(b"shop:order-paid", b"order-paid");
        assert_eq!(matching.collect::<Vec<_>>(), [(0, 7), (1, 2)]);
        let mut conditions = Vec::new();
        of_trace.each_trigger(&mut [0; LTT_EXPR_MAX], |condition| {
            conditions.push(match condition {
                TriggerCondition::None => None,
                TriggerCondition::If(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
                TriggerCondition::TooLong => panic!("a short one"),
            });
        });
        assert_eq!(
            conditions,
            [Some("a > 1".to_owned()), None, Some("b".into())]
        );
        let long = vec![(1, LTT_RULE_EXPR, "x".repeat(255)); 9];
        let mut long: Vec<_> = long.iter().map(|(c, f, text)| (*c, *f, &**text)).collect();
        long.insert(0, (1, LTT_RULE_TRIGGER, "*"));
        rules(&encode(&long)).each_trigger(&mut [0; LTT_EXPR_MAX], |condition| {
            assert_eq!(condition, TriggerCondition::TooLong);
        });
        let many = vec![(1, LTT_RULE_TRIGGER, "*"); LTT_MAX_TRIGGERS + 1];
        let many = rules(&encode(&many));
        let found = many.matching_triggers(b"a:b", b"b").count();
        assert_eq!(found, LTT_MAX_TRIGGERS);
    }

    #[test]
    fn filters_are_shown_as_they_were_written() {
        let long = format!("a == \"{}é\"", "x".repeat(247));
        let text = format!("shop:*\n!a* if x > 1 || y\nb if {long}\nc");
        let filter = filter(&text);
        let mut shown = Vec::new();
        each_word(filter.rules(), |refuses, pattern, condition| {
            let mut line = if refuses { "!" } else { "" }.to_owned();
            line += std::str::from_utf8(pattern).unwrap();
            for (n, piece) in condition.enumerate() {
                line += if n == 0 { " if " } else { "" };
                line += std::str::from_utf8(piece).expect("a piece ends with a character");
            }
            shown.push(line);
        });
        assert_eq!(shown.join("\n"), text);
    }

    /// Requirements: E4
    #[test]
    fn wrong_conditions_are_refused_and_change_nothing() {
        let long = format!("a if x == \"{}\"", "y".repeat(LTT_EXPR_MAX));
        for (text, bad) in [
            ("a if", RuleErrorKind::Condition),
            ("a if x >", RuleErrorKind::Condition),
            ("a if x\u{1}", RuleErrorKind::Condition),
            ("0 if x", RuleErrorKind::Pattern),
            ("a/ if x", RuleErrorKind::Pattern),
            (&long, RuleErrorKind::Unprintable),
        ] {
            let mut filter = filter("b");
            let before = filter.rules().to_vec();
            let mut words = written(text.as_bytes(), |byte| byte.is_ascii_whitespace());
            let error = add_rule(&mut filter, &words.next().unwrap()).unwrap_err();
            assert_eq!(RuleErrorKind::from(error), bad, "{text}");
            assert_eq!(filter.rules(), before);
        }
        let mut filter = filter(&format!("a if x == \"{}\"", "y".repeat(2000)));
        let before = filter.rules().to_vec();
        let text = format!("x == \"{}\"", "z".repeat(2040));
        let word = Written {
            pattern: b"b",
            condition: Some(text.as_bytes()),
        };
        assert_eq!(add_rule(&mut filter, &word), Err(RuleError::Full));
        assert_eq!(filter.rules(), before);
    }

    /// A [`RuleError`] without its details.
    #[derive(Debug, PartialEq)]
    enum RuleErrorKind {
        Pattern,
        Condition,
        Unprintable,
        Full,
    }

    impl From<RuleError> for RuleErrorKind {
        fn from(error: RuleError) -> Self {
            match error {
                RuleError::Pattern => Self::Pattern,
                RuleError::Condition(_) => Self::Condition,
                RuleError::Unprintable => Self::Unprintable,
                RuleError::Full => Self::Full,
            }
        }
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
            rules(&bytes).each_expression(&mut [0; LTT_EXPR_MAX], |_| {});
            rules(&bytes).each_trigger(&mut [0; LTT_EXPR_MAX], |_| {});
            each_word(&bytes, |_, _, pieces| assert!(pieces.count() <= RULES_LEN));
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
            let accept = |list| rules(&encode(list)).accept(&full, &event).channels;
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
