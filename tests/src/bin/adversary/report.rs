//! Prints the result of a run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::kinds::{Expect, Kind};
use crate::plan::Plan;
use crate::run_state::RunState;
use crate::supervisor::Supervisor;

/// How often a kind of calls must be tried before its lack of success is a failure.
const OFTEN: u64 = 60;
/// How many steps a run must have before a kind that was never tried is a failure.
const MANY: u64 = 40_000;

/// Prints the findings, and the command that repeats the run.
pub(crate) fn findings(run: &RunState, plan: &Plan) {
    let mut seen = Vec::new();
    for finding in run.findings() {
        if !seen.contains(&finding) {
            println!("FOUND: {finding}");
            seen.push(finding);
        }
    }
    if !seen.is_empty() {
        println!("seed {}, run it again by: {}", plan.seed, plan.again());
    }
}

/// Prints the calls by kind. Returns whether the run passed.
pub(crate) fn print(supervisor: &Supervisor, run: &RunState, plan: &Plan, took: Duration) -> bool {
    let steps = run.steps.load(Ordering::Relaxed);
    let mut calls = 0;
    let mut missing = Vec::new();
    println!(
        "{:>9} {:>9} {:>9}  calls of this kind",
        "tried", "succeeded", "ms"
    );
    for kind in Kind::all() {
        let count = &run.counts[kind as usize];
        let tried = count.tried.load(Ordering::Relaxed);
        let succeeded = count.succeeded.load(Ordering::Relaxed);
        calls += tried;
        let mut errors: Vec<_> = (0..)
            .zip(&count.errors)
            .map(|(error, count)| (count.load(Ordering::Relaxed), error))
            .filter(|(count, _)| *count != 0)
            .collect();
        errors.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
        let errors: Vec<_> = errors
            .iter()
            .take(4)
            .map(|(count, error)| format!("{count} {:?}", nix::errno::Errno::from_raw(*error)))
            .collect();
        println!(
            "{tried:>9} {succeeded:>9} {:>9}  {}{}{}",
            count.time.load(Ordering::Relaxed) / 1_000_000,
            kind.name(),
            if errors.is_empty() { "" } else { ": " },
            errors.join(", ")
        );
        match kind.expect() {
            Expect::Refused if succeeded != 0 => {
                run.find(&format!("{} succeeded {succeeded} times", kind.name()));
            }
            _ if supervisor.is_possible(kind)
                && succeeded == 0
                && (tried >= OFTEN || steps >= MANY) =>
            {
                missing.push(format!("{} ({tried} times)", kind.name()));
            }
            _ => {}
        }
    }
    println!("ends of processes: {:?}", supervisor.ends);
    println!(
        "{calls} calls in {steps} steps, {:.1} s",
        took.as_secs_f64()
    );
    if plan.turns {
        println!("sum of all steps: {:016x}", run.sum.load(Ordering::Relaxed));
    }
    findings(run, plan);
    let found = run.has_findings();
    if !found && !missing.is_empty() {
        println!(
            "FAILED: what should succeed was tried and never did: {}\nseed {}, run it again by: {}",
            missing.join("; "),
            plan.seed,
            plan.again()
        );
    }
    let well = !found && missing.is_empty();
    println!("{}", if well { "nothing was found" } else { "FAILED" });
    well
}
