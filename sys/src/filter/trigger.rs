//! Triggers: what a trace does when an event happens.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;

use usertrace_expression::{Expression, ParseError, WithCaret};

use super::rules::{Filter, is_pattern, is_storable, put_with};
use crate::uapi::{LTT_EXPR_MAX, LTT_RULE_TRIGGER};

/// The longest pattern, in bytes.
const PATTERN_MAX: usize = u8::MAX as usize;

/// What a trigger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerAction {
    /// Stops the trace.
    Stop,
    /// Starts the trace.
    Start,
    /// Tells a daemon to write a snapshot.
    Snapshot,
    /// Tells a recorder to begin a new chunk.
    Rotate,
    /// Tells programs that wait.
    Notify,
}

impl TriggerAction {
    /// All actions.
    pub const ALL: [Self; 5] = [
        Self::Stop,
        Self::Start,
        Self::Snapshot,
        Self::Rotate,
        Self::Notify,
    ];

    /// The word for it in a line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Snapshot => "snapshot",
            Self::Rotate => "rotate",
            Self::Notify => "notify",
        }
    }
}

/// Which of the events that match fire a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerRepeat {
    /// Each.
    Always,
    /// Only the first one.
    Once,
    /// Each one whose count is a multiple of this number.
    Every(NonZeroU64),
}

/// A line of the file `triggers` of a trace: `[NUMBER] PATTERN [if EXPR] then ACTION [once|every
/// N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger<'a> {
    /// The number at the start of a line that the kernel shows.
    pub number: Option<u32>,
    /// Which events it is about: `NAME` or `PROVIDER:NAME`, with `*` and `?`.
    pub pattern: &'a str,
    /// The expression that must be true for an event.
    pub condition: Option<&'a str>,
    /// What it does.
    pub action: TriggerAction,
    /// How often.
    pub repeat: TriggerRepeat,
}

/// Why a line is no trigger, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerError {
    problem: TriggerProblem,
    place: Range<usize>,
}

/// What is wrong with the line of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TriggerProblem {
    /// There is no pattern.
    NoPattern,
    /// A word is no pattern, or too long.
    Pattern,
    /// After the pattern stands neither `if` nor `then`.
    ExpectedIf,
    /// There is no `then` before the action.
    NoThen,
    /// A word is no action.
    Action,
    /// After `every` stands no number, or 0.
    Count,
    /// The condition is no expression.
    Condition(ParseError),
    /// The condition is longer than [`LTT_EXPR_MAX`], or has a control character.
    Unprintable,
}

impl fmt::Display for TriggerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPattern => f.write_str("expected a pattern of events"),
            Self::Pattern => f.write_str(
                "invalid pattern of events (letters, digits, _ - . : and the wildcards * and ?)",
            ),
            Self::ExpectedIf => f.write_str("expected \"if\" or \"then\" after the pattern"),
            Self::NoThen => f.write_str("expected \"then\" before the action"),
            Self::Action => {
                f.write_str("expected an action:")?;
                for (n, action) in TriggerAction::ALL.iter().enumerate() {
                    let separator = if n == 0 { " " } else { ", " };
                    write!(f, "{separator}{}", action.name())?;
                }
                Ok(())
            }
            Self::Count => f.write_str("expected a number after \"every\", at least 1"),
            Self::Condition(error) => error.fmt(f),
            Self::Unprintable => write!(
                f,
                "the condition is longer than {LTT_EXPR_MAX} bytes, or has a control character"
            ),
        }
    }
}

impl fmt::Display for TriggerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for TriggerError {}

impl TriggerError {
    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> TriggerProblem {
        self.problem
    }

    /// The bytes of the line that are wrong. Empty at the end of the line. They may end within a
    /// character.
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// Prints the error, the line and a caret under the place, on three lines without a final line
    /// feed. `line` is the parsed line.
    #[must_use]
    pub fn with_caret<'a>(&'a self, line: &'a str) -> WithCaret<'a, Self> {
        WithCaret::new(self, self.place(), line.as_bytes())
    }
}

/// Takes words off the end of a line.
struct Tail<'a> {
    line: &'a str,
    /// The end of what is left.
    end: usize,
}

impl<'a> Tail<'a> {
    fn new(line: &'a str) -> Self {
        let end = line.trim_ascii_end().len();
        Self { line, end }
    }

    fn rest(&self) -> &'a str {
        self.line.get(..self.end).unwrap_or_default()
    }

    /// The place of the last word; empty at the start of the line if there is none.
    fn last(&self) -> Range<usize> {
        let rest = self.rest();
        let start = rest.rfind(is_blank).map_or(0, |at| at + 1);
        start..self.end
    }

    /// Takes the last word off.
    fn take(&mut self) -> (&'a str, Range<usize>) {
        let place = self.last();
        let word = self.line.get(place.clone()).unwrap_or_default();
        self.end = self.line[..place.start].trim_ascii_end().len();
        (word, place)
    }
}

fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace()
}

/// Splits the first word off. Returns it, its offset, and the rest.
fn first_word(text: &str) -> (&str, usize, &str) {
    let start = text.len() - text.trim_ascii_start().len();
    let len = text[start..].find(is_blank);
    let end = len.map_or(text.len(), |len| start + len);
    (&text[start..end], start, &text[end..])
}

/// A number of digits alone.
fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    let is_digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_digits)
}

/// Whether a text is a pattern, or one with `if` and a condition.
fn has_pattern(text: &str) -> bool {
    let (pattern, _, rest) = first_word(text);
    let (word, _, _) = first_word(rest);
    !pattern.is_empty() && matches!(word, "" | "if")
}

impl<'a> Trigger<'a> {
    /// Parses a line as people write it, or as the kernel shows it. The words after the condition
    /// are taken off the end of the line, so `then` may occur in the condition.
    ///
    /// # Errors
    /// If the line is no trigger.
    pub fn parse(line: &'a str) -> Result<Self, TriggerError> {
        let error = |problem, place| TriggerError { problem, place };
        let mut tail = Tail::new(line);
        let (last, last_place) = tail.take();
        let before = &line[tail.last()];
        let repeat = match last {
            "once" => TriggerRepeat::Once,
            "every" if before != "then" => {
                return Err(error(TriggerProblem::Count, last_place.end..last_place.end));
            }
            count if before == "every" => {
                let count = number(count).and_then(NonZeroU64::new);
                let count = count.ok_or(error(TriggerProblem::Count, last_place))?;
                tail.take();
                TriggerRepeat::Every(count)
            }
            _ => {
                tail = Tail::new(line);
                TriggerRepeat::Always
            }
        };
        let (action, action_place) = tail.take();
        if action == "then" && repeat == TriggerRepeat::Always {
            return Err(error(TriggerProblem::Action, line.len()..line.len()));
        }
        let (then, then_place) = tail.take();
        if then != "then" {
            // Where a word is missing, the place is the end of the line.
            let place = match then_place.is_empty() {
                true => line.len()..line.len(),
                false => action_place,
            };
            return Err(error(TriggerProblem::NoThen, place));
        }
        let found = TriggerAction::ALL.iter().find(|of| of.name() == action);
        let action = *found.ok_or(error(TriggerProblem::Action, action_place))?;

        let mut head = tail.rest();
        let mut start = 0;
        let (word, _, behind) = first_word(head);
        let leading = number(word).filter(|_| has_pattern(behind));
        if leading.is_some() {
            start = head.len() - behind.len();
            head = behind;
        }
        let (pattern, at, rest) = first_word(head);
        let place = start + at..start + at + pattern.len();
        if pattern.is_empty() {
            return Err(error(TriggerProblem::NoPattern, place));
        }
        if !is_pattern(pattern.as_bytes()) || pattern.len() > PATTERN_MAX {
            return Err(error(TriggerProblem::Pattern, place));
        }
        let (word, at, expression) = first_word(rest);
        let condition = match word {
            "" => None,
            "if" => {
                let blanks = expression.len() - expression.trim_ascii_start().len();
                let start = tail.end - expression.len() + blanks;
                let expression = expression.trim_ascii();
                check(expression).map_err(|(problem, place)| {
                    error(problem, start + place.start..start + place.end)
                })?;
                Some(expression)
            }
            _ => {
                let start = tail.end - rest.len() + at;
                return Err(error(TriggerProblem::ExpectedIf, start..start + word.len()));
            }
        };
        Ok(Self {
            number: leading,
            pattern,
            condition,
            action,
            repeat,
        })
    }
}

/// Checks a condition. The error has its place in there.
fn check(expression: &str) -> Result<(), (TriggerProblem, Range<usize>)> {
    let expression = expression.as_bytes();
    Expression::parse(expression)
        .map_err(|error| (TriggerProblem::Condition(error), error.place()))?;
    if !is_storable(expression) {
        return Err((TriggerProblem::Unprintable, 0..expression.len()));
    }
    Ok(())
}

/// The line, without a number.
impl fmt::Display for Trigger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pattern)?;
        if let Some(condition) = self.condition {
            write!(f, " if {condition}")?;
        }
        write!(f, " then {}", self.action.name())?;
        match self.repeat {
            TriggerRepeat::Always => Ok(()),
            TriggerRepeat::Once => f.write_str(" once"),
            TriggerRepeat::Every(count) => write!(f, " every {count}"),
        }
    }
}

/// Appends the entries of a trigger with this number, as the kernel publishes them. None, and no
/// change, if they do not fit.
pub fn put_trigger(filter: &mut Filter, number: u8, trigger: &Trigger<'_>) -> Option<()> {
    let expression = trigger.condition.unwrap_or_default().as_bytes();
    let pattern = trigger.pattern.as_bytes();
    put_with(filter, number.into(), LTT_RULE_TRIGGER, pattern, expression)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every(count: u64) -> TriggerRepeat {
        TriggerRepeat::Every(NonZeroU64::new(count).unwrap())
    }

    /// Requirements: E4
    #[test]
    fn lines_have_a_pattern_and_an_action() {
        use TriggerAction::{Notify, Rotate, Snapshot, Start, Stop};
        use TriggerRepeat::{Always, Once};
        for (line, number, pattern, condition, action, repeat) in [
            ("a then stop", None, "a", None, Stop, Always),
            (" \ta  then\tstart \n", None, "a", None, Start, Always),
            (
                "shop:* if code == 7 then snapshot once",
                None,
                "shop:*",
                Some("code == 7"),
                Snapshot,
                Once,
            ),
            ("a then rotate every 3", None, "a", None, Rotate, every(3)),
            (
                "a if then == 1 then notify every 18446744073709551615",
                None,
                "a",
                Some("then == 1"),
                Notify,
                every(u64::MAX),
            ),
            (
                "a if x == \" then stop once\" then stop",
                None,
                "a",
                Some("x == \" then stop once\""),
                Stop,
                Always,
            ),
            (
                "12 a if x then stop",
                Some(12),
                "a",
                Some("x"),
                Stop,
                Always,
            ),
            ("7 then stop", None, "7", None, Stop, Always),
            ("3 7 then stop", Some(3), "7", None, Stop, Always),
            ("3 if then stop", Some(3), "if", None, Stop, Always),
            ("3 if x then stop", None, "3", Some("x"), Stop, Always),
            ("4 3 if x then stop", Some(4), "3", Some("x"), Stop, Always),
            ("then then stop", None, "then", None, Stop, Always),
            ("once then stop once", None, "once", None, Stop, Once),
            (
                "a if every then stop every 1",
                None,
                "a",
                Some("every"),
                Stop,
                every(1),
            ),
        ] {
            let expected = Trigger {
                number,
                pattern,
                condition,
                action,
                repeat,
            };
            assert_eq!(Trigger::parse(line), Ok(expected), "{line:?}");
        }
    }

    /// Requirements: E4
    #[test]
    fn wrong_lines_are_refused_at_their_place() {
        let long = format!("{} then stop", "a".repeat(256));
        for (line, place, message) in [
            ("", "", "expected \"then\""),
            ("a", "", "expected \"then\""),
            ("a stop", "stop", "expected \"then\""),
            ("a if x stop once", "stop", "expected \"then\""),
            ("a then", "", "expected an action: stop, start,"),
            ("a then panic", "panic", "expected an action: stop, start,"),
            ("a then stop twice", "twice", "expected \"then\""),
            ("a then stop every", "", "expected a number"),
            ("a then stop every 0", "0", "expected a number"),
            ("a then stop every +1", "+1", "expected a number"),
            (
                "a then stop every 18446744073709551616",
                "18446744073709551616",
                "expected a number",
            ),
            ("then stop", "", "expected a pattern"),
            ("!a then stop", "!a", "invalid pattern"),
            (&long, &long[..256], "invalid pattern"),
            ("a b then stop", "b", "expected \"if\" or \"then\""),
            ("1 a b then stop", "a", "expected \"if\" or \"then\""),
            ("a if then stop", "", "expected a value"),
            ("é if x > 1 then stop", "é", "invalid pattern"),
            ("a if x == ] then stop", "]", "expected a value"),
            ("a if (x then stop", "(", "\"(\" has no \")\""),
            ("2  a  if  x = 1  then stop", "=", "unknown operator"),
            ("a if x\u{1} then stop", "\u{1}", ""),
        ] {
            let error = Trigger::parse(line).unwrap_err();
            let found = &line.as_bytes()[error.place()];
            assert_eq!(found, place.as_bytes(), "{line:?}: {error}");
            assert!(error.to_string().contains(message), "{line:?}: {error}");
            let shown = error.with_caret(line).to_string();
            assert_eq!(shown.lines().count(), 3, "{shown}");
        }
        let error = Trigger::parse("a if x = 1 then stop").unwrap_err();
        let expected = "unknown operator \"=\" (use \"==\")\n  a if x = 1 then stop\n         ^";
        assert_eq!(
            error.with_caret("a if x = 1 then stop").to_string(),
            expected
        );
    }

    #[test]
    fn entries_are_a_pattern_and_pieces() {
        let mut filter = Filter::new();
        let trigger = Trigger::parse("a* if x > 1 then stop once").unwrap();
        put_trigger(&mut filter, 9, &trigger).unwrap();
        let trigger = Trigger::parse("b then notify").unwrap();
        put_trigger(&mut filter, 255, &trigger).unwrap();
        assert_eq!(
            filter.rules(),
            b"\x09\x20\x02a*\x09\x10\x05x > 1\xff\x20\x01b"
        );
    }

    proptest! {
        #[test]
        fn lines_may_be_anything(line in "(\\PC|[ \t]| then | if | every | stop | once |1)*") {
            if let Err(error) = Trigger::parse(&line) {
                prop_assert!(line.as_bytes().get(error.place()).is_some(), "{:?}", error);
                let _ = error.with_caret(&line).to_string();
            }
        }

        /// Lines that are shown are parsed as what they show, with any number before them.
        #[test]
        fn shown_lines_are_parsed_as_before(
            pattern in "[a-z0-9*:]{1,4}|if|then|every|once|[0-9]",
            condition in prop::option::of("x|then|if|every|then == 1|x == \" then stop every 2\""),
            action in prop::sample::select(&TriggerAction::ALL[..]),
            count in 0..3u64,
            number in prop::option::of(1..256u32),
        ) {
            let repeat = match count {
                0 => TriggerRepeat::Always,
                1 => TriggerRepeat::Once,
                count => every(count),
            };
            let condition = condition.as_deref();
            let pattern = pattern.as_str();
            let trigger = Trigger { number: None, pattern, condition, action, repeat };
            let line = match number {
                Some(number) => format!("{number} {trigger}"),
                None => trigger.to_string(),
            };
            // Without a number, a first word of digits can be one.
            if number.is_some() || !pattern.bytes().all(|byte| byte.is_ascii_digit()) {
                prop_assert_eq!(Trigger::parse(&line), Ok(Trigger { number, ..trigger }));
            }
        }
    }
}
