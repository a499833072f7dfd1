//! Counts events, interval by interval.

use std::time::{Duration, Instant};

use usertrace_cli::top::{Counter, Rates, Row, STEP};
use usertrace_reader::Patterns;

use super::args::Args;
use super::view::View;

/// The counters of a `usertrace top`, and the rates in the last interval.
pub(super) struct Top {
    pub(super) args: Args,
    pub(super) counters: Vec<Box<dyn Counter>>,
    pub(super) events: Option<Patterns>,
    pub(super) begun: Instant,
    pub(super) rates: Rates,
    pub(super) rows: Vec<Row>,
    /// Messages about events that cannot be counted.
    pub(super) problems: Vec<String>,
    /// The names of the condition were looked for in the events.
    pub(super) is_checked: bool,
    pub(super) view: View,
}

impl Top {
    /// Counts new events. Returns the time until the next call is needed.
    pub(super) fn step(&mut self) -> Duration {
        let begun = Instant::now();
        let until = begun + STEP;
        let waits = self.counters.iter_mut().map(|counter| counter.step(until));
        let wait = waits.min().unwrap_or(STEP);
        // Leave the CPU to others for as long as this step took.
        wait.max(begun.elapsed().min(2 * STEP))
    }

    /// Ends an interval: computes its rows.
    pub(super) fn update(&mut self) {
        let counters = self.counters.iter_mut();
        let counted: Vec<_> = counters.flat_map(|counter| counter.counted()).collect();
        let mut rows = self.rates.update(Instant::now(), &counted);
        rows.retain(|row| self.args.of.has(row.pid, &row.process));
        if let Some(patterns) = &self.events {
            rows.retain(|row| {
                row.event
                    .as_deref()
                    .is_some_and(|event| patterns.accept(event))
            });
        }
        self.rows = rows;
        self.check_names();
        for counter in &mut self.counters {
            self.problems.extend(counter.problems());
        }
    }

    /// Says once which names of the condition no event has, as soon as there are events.
    fn check_names(&mut self) {
        let Some(condition) = self.args.condition.as_ref().filter(|_| !self.is_checked) else {
            return;
        };
        let counters = self.counters.iter();
        let bindings: Vec<_> = counters
            .flat_map(|counter| counter.bindings(condition))
            .collect();
        self.is_checked = !bindings.is_empty();
        if self.is_checked {
            self.problems.extend(condition.unknown_names(&bindings));
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.counters.iter().all(|counter| counter.has_ended())
    }
}
