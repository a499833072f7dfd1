//! Filters: which events a trace wants, and which of its channels they go to (E4).
//!
//! Rules are not trusted: evaluating them never panics, and takes bounded time. An invalid rule
//! ends the list. A rule with unknown flags accepts nothing.
//!
//! A rule may have a condition, which is an expression. This module stores its text and hands it
//! on. See [`Condition`] for what the rules of an event become.

mod condition;
mod patterns;
mod rules;
mod written;

pub use self::condition::{Condition, Conditions, MAX_CONDITIONS};
pub use self::patterns::{PatternError, PatternProblem, Patterns};
pub use self::rules::{
    ALL, Accepted, Filter, RuleError, Rules, add_rule, begins_with_all, each_word, matches, put,
    words,
};
pub use self::written::{Written, join, written};
