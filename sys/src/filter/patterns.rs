//! Patterns of events for readers of traces.

use std::fmt;

use super::rules::{Filter, RuleError, Rules, add_rule, words};
use super::written::written;
use crate::uapi::{LTT_CHANNEL_CONTROL, LTT_EXPR_MAX};

/// Patterns of events in the syntax of a trace's filter, for readers of traces.
#[derive(Debug)]
pub struct Patterns(Rules);

/// A pattern that is invalid, or one too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// The pattern, and its condition.
    pub pattern: String,
    /// What is wrong.
    pub problem: PatternProblem,
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternProblem {
    /// It cannot be used in a filter.
    Rule(RuleError),
    /// It has a condition, where there are no values.
    Condition,
}

impl fmt::Display for PatternError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, problem } = self;
        match problem {
            PatternProblem::Rule(RuleError::Condition(error)) => {
                // The caret stands under the condition.
                let mut words = written(pattern.as_bytes(), |byte| byte.is_ascii_whitespace());
                let condition = words.find_map(|word| word.condition);
                error.with_caret(condition.unwrap_or_default()).fmt(to)
            }
            PatternProblem::Rule(RuleError::Unprintable) => write!(
                to,
                "the condition of {pattern:?} is longer than {LTT_EXPR_MAX} bytes, or has a control \
                 character"
            ),
            PatternProblem::Rule(RuleError::Pattern | RuleError::Full) => write!(
                to,
                "{pattern:?} is no pattern of events, or there is no room for it"
            ),
            PatternProblem::Condition => write!(
                to,
                "{pattern:?} has a condition, which only the filter of a trace can have (readers \
                 take --where)"
            ),
        }
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
        Self::of(words(patterns), false)
    }

    /// Parses the patterns that the kernel shows of a filter, which accepts nothing else. They may
    /// have conditions.
    ///
    /// # Errors
    /// If a pattern is invalid, or there are too many.
    pub fn as_shown(lines: &[impl AsRef<str>]) -> Result<Self, PatternError> {
        Self::of(lines.iter().map(AsRef::as_ref), true)
    }

    /// Checks patterns of the filter of a trace, which may have conditions.
    ///
    /// # Errors
    /// If a pattern is invalid, or there are too many.
    pub fn check(patterns: &[impl AsRef<str>]) -> Result<(), PatternError> {
        Self::of(words(patterns), true).map(drop)
    }

    fn of<'a>(
        texts: impl Iterator<Item = &'a str>,
        may_have_conditions: bool,
    ) -> Result<Self, PatternError> {
        let mut filter = Filter::new();
        for text in texts {
            let error = |problem| PatternError {
                pattern: text.to_owned(),
                problem,
            };
            let rule = |problem| error(PatternProblem::Rule(problem));
            let mut words = written(text.as_bytes(), |byte| byte.is_ascii_whitespace());
            let (Some(word), None) = (words.next(), words.next()) else {
                return Err(rule(RuleError::Pattern));
            };
            add_rule(&mut filter, &word).map_err(rule)?;
            if word.condition.is_some() && !may_have_conditions {
                return Err(error(PatternProblem::Condition));
            }
        }
        Ok(Self(filter.0))
    }

    /// True if the event with the name `PROVIDER:NAME` is wanted, at least under a condition; the
    /// last matching pattern decides.
    #[must_use]
    pub fn accept(&self, event: &str) -> bool {
        let name = event.split(':').nth(1).unwrap_or_default();
        let accepted = self.0.accept(event.as_bytes(), name.as_bytes());
        accepted.by(LTT_CHANNEL_CONTROL)
    }
}
