//! Filters: which events a trace wants, and which of its channels they go to (E4).
//!
//! Rules are not trusted: evaluating them never panics, and takes bounded time. An invalid rule
//! ends the list. A rule with unknown flags accepts nothing.
//!
//! A rule may have a condition, which is an expression. This module stores its text and hands it
//! on. See [`Condition`] for what the rules of an event become.
//!
//! The [triggers](Trigger) of a trace are stored with its rules.

mod condition;
mod patterns;
mod rules;
mod trigger;
mod written;

pub use self::condition::{Condition, Conditions, MAX_CONDITIONS};
pub use self::patterns::{PatternError, PatternProblem, Patterns};
pub use self::rules::{
    ALL, Accepted, Filter, RuleError, Rules, TriggerCondition, add_rule, begins_with_all,
    each_word, matches, put, words,
};
pub use self::trigger::{
    Trigger, TriggerAction, TriggerError, TriggerProblem, TriggerRepeat, put_trigger,
};
pub use self::written::{Written, join, written};
