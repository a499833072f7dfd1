//! Finds conditions in traces that programs cannot use: they accept no event, and fire nothing.
//!
//! The kernel checks only the size and the parentheses of an expression, so a write to a control
//! file can store one that is none. This parser is that of the programs.

use usertrace_consumer::{ControlFsError, TraceDir};
use usertrace_sys::filter::{Patterns, Trigger};

/// The conditions of a trace that are no expressions, as messages.
pub(crate) fn conditions(trace: &TraceDir) -> Result<Vec<String>, ControlFsError> {
    let mut problems = rules(&trace.events(None)?);
    for trigger in trace.triggers()? {
        if let Err(error) = Trigger::parse(&trigger.text) {
            let (number, text) = (trigger.number, &trigger.text);
            problems.push(format!("trigger {number} never fires: {text:?}: {error}"));
        }
    }
    Ok(problems)
}

/// The rules of a filter that are none.
fn rules(lines: &[String]) -> Vec<String> {
    let problem = |line: &String| {
        let error = Patterns::as_shown(&[line]).err()?;
        // Its first line: the text with the caret follows.
        let why = error.to_string();
        let why = why.lines().next().unwrap_or_default().to_owned();
        Some(format!("programs cannot use the rule {line:?}: {why}"))
    };
    lines.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements: E4
    #[test]
    fn rules_that_are_no_expressions_are_named() {
        let lines = ["*", "0", "a:* if x > 1", "a if x >", "!b if (y", "!b if y"];
        let said = rules(&lines.map(str::to_owned));
        assert_eq!(said.len(), 2, "{said:?}");
        for (said, begin) in said.iter().zip([
            "programs cannot use the rule \"a if x >\": expected a value, found the end",
            "programs cannot use the rule \"!b if (y\": ",
        ]) {
            assert!(said.starts_with(begin) && !said.contains('\n'), "{said:?}");
        }
    }
}
