//! Options for the setup of a trace, shared by the commands that create one.

use usertrace::context::{contexts, is_context};
use usertrace_consumer::TraceSetup;
use usertrace_reader::Patterns as Filter;

use crate::byte_size::{self, SizeError};
use crate::trigger;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Setup {
    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front
    /// for those that are not wanted; several with commas between them, of which the last that
    /// matches counts; PATTERN if EXPR: only those whose values fulfil a condition, up to the end
    /// of the argument [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_parser = patterns)]
    event: Vec<Patterns>,

    /// Full rings overwrite their oldest events: the trace has the last ones, whatever is read of
    /// it meanwhile
    #[arg(long, conflicts_with = "block")]
    pub(crate) flight: bool,

    /// Programs wait when a ring is full, as long as somebody records: no event is lost
    #[arg(long)]
    block: bool,

    /// Bytes in a sub-buffer, a power of two from 4096 to 32M; k and M are understood [default: the
    /// kernel's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    subbuf_size: Option<u32>,

    /// Sub-buffers in each ring, a power of two [default: the kernel's]
    #[arg(long, value_name = "COUNT", value_parser = count)]
    subbuf_count: Option<u32>,

    /// What each event is to say besides its fields: vpid, vtid, procname, cpu_id, ip, cgroup_ns,
    /// ipc_ns, mnt_ns, net_ns, pid_ns, time_ns, user_ns, uts_ns, or app.NAME, which the program
    /// defines; several with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = context)]
    context: Vec<String>,

    /// What to do when an event happens: PATTERN [if EXPR] then ACTION [once|every N], with the
    /// actions stop, start, snapshot, rotate and notify (usertrace trigger add --help); may be
    /// given several times. It replaces the triggers of a trace that exists
    #[arg(long, value_name = "TRIGGER", value_parser = trigger::checked)]
    trigger: Vec<String>,
}

impl From<Setup> for TraceSetup {
    fn from(setup: Setup) -> Self {
        Self {
            events: setup
                .event
                .into_iter()
                .flat_map(|Patterns(of)| of)
                .collect(),
            subbuf_size: setup.subbuf_size,
            subbuf_count: setup.subbuf_count,
            contexts: setup.context,
            flight: setup.flight,
            block: setup.block,
            triggers: setup.trigger,
            counts: Vec::new(),
        }
    }
}

/// Default size of the fallback's sub-buffers, in bytes.
pub(crate) const DEFAULT_SUBBUF: u32 = 64 << 10;

/// Largest sub-buffer, in bytes: a ring has at most 64 MiB, and at least two sub-buffers.
pub(crate) const MAX_SUBBUF: u32 = 32 << 20;

/// Parses the size of a sub-buffer in bytes.
fn size(text: &str) -> Result<u32, String> {
    let size = match byte_size::parse(text) {
        Ok(size) => size,
        Err(SizeError::TooLarge) => u64::MAX,
        Err(SizeError::NotANumber) => {
            return Err("not a number, perhaps with k, M or G behind it".to_owned());
        }
    };
    if !(4096..=MAX_SUBBUF.into()).contains(&size) || !size.is_power_of_two() {
        return Err("a power of two from 4096 to 32M".to_owned());
    }
    u32::try_from(size).map_err(|error| error.to_string())
}

/// Parses the number of sub-buffers in a ring.
fn count(text: &str) -> Result<u32, String> {
    let number: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number < 2 || !number.is_power_of_two() {
        return Err("a power of two from 2 on".to_owned());
    }
    Ok(number)
}

/// Patterns of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Patterns(Vec<String>);

/// Splits an argument at its commas, up to a condition.
fn patterns(text: &str) -> Result<Patterns, String> {
    let mut list = Vec::new();
    let mut rest = text;
    loop {
        let next = rest.split_once(',').unwrap_or((rest, ""));
        if rest.len() == next.0.len() || condition_of(next.0).is_some() {
            // The last one, or one with a condition, in which commas may stand.
            list.push(pattern(rest)?);
            return Ok(Patterns(list));
        }
        list.push(pattern(next.0)?);
        rest = next.1;
    }
}

/// The condition after `PATTERN if`.
fn condition_of(pattern: &str) -> Option<&str> {
    let (_, condition) = pattern.split_once(" if")?;
    (condition.is_empty() || condition.starts_with(' ')).then_some(condition)
}

/// Checks the condition of a pattern, if it has one. The kernel checks no more than its size.
pub(crate) fn checked_condition(text: &str) -> Result<String, String> {
    match condition_of(text) {
        Some(_) => pattern(text),
        None => Ok(text.to_owned()),
    }
}

/// Checks a pattern of events. The kernel would refuse an invalid one without a message, and in the
/// fallback programs would record nothing.
fn pattern(text: &str) -> Result<String, String> {
    match Filter::check(&[text]) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) if condition_of(text).is_some() => Err(error.to_string()),
        Err(_) => Err("letters, digits, _ - . : * ?, and perhaps ! in front".to_owned()),
    }
}

/// Checks the name of a context.
fn context(text: &str) -> Result<String, String> {
    match is_context(text) {
        true => Ok(text.to_owned()),
        false => {
            let names: Vec<_> = contexts().collect();
            let names = names.join(", ");
            Err(format!(
                "no such context; there are {names}, callstack:N (1 to 64 frames), and app.NAME"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("256k"), Ok(256 << 10));
        assert_eq!(size("1M"), Ok(1 << 20));
        assert_eq!(size("32M"), Ok(MAX_SUBBUF));
        for bad in ["", "k", "-1", "ü", "1T"] {
            assert!(
                size(bad).is_err_and(|why| why.starts_with("not a number")),
                "{bad}"
            );
        }
        for bad in ["4096M", "1G", "64M", "2k", "5000", "0", "17179869184G"] {
            assert!(
                size(bad).is_err_and(|why| why.contains("from 4096 to 32M")),
                "{bad}"
            );
        }
    }

    #[test]
    fn invalid_setups_are_refused() {
        assert_eq!(count("16"), Ok(16));
        for bad in ["", "0", "1", "3", "-2"] {
            assert!(count(bad).is_err(), "{bad}");
        }
        for good in ["shop:*", "!a-b.c_?", "0", "1"] {
            assert_eq!(pattern(good).as_deref(), Ok(good));
        }
        for (text, expected) in [
            ("a,!b", &["a", "!b"][..]),
            ("a,b if x == \"p,q\" , y", &["a", "b if x == \"p,q\" , y"]),
            ("a if x", &["a if x"]),
            ("a,if", &["a", "if"]),
        ] {
            match patterns(text) {
                Ok(Patterns(found)) => assert_eq!(found, expected),
                // A comma is no operator.
                Err(error) => assert!(text.contains(" , ") && error.contains('^'), "{error}"),
            }
        }
        for (bad, place) in [
            ("a if x >", "x >\n     ^"),
            ("a,b if ", "^"),
            ("a if (x", "^"),
        ] {
            let error = patterns(bad).unwrap_err();
            assert!(error.contains(place), "{error}");
        }
        for bad in ["", "!", "a/b", "a b", "ü", "a,,b"] {
            assert!(patterns(bad).is_err() && pattern(bad).is_err(), "{bad}");
        }
        assert!(context("vtid").is_ok() && context("app.request").is_ok());
        assert!(context("app.").is_err());
        let message = context("thread").unwrap_err();
        for name in ["vpid", "procname", "uts_ns", "app.NAME"] {
            assert!(message.contains(name), "{message}");
        }
    }
}
