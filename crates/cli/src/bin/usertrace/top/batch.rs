//! `usertrace top` without a screen: each interval as lines, or as a line of JSON.

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use usertrace_cli::top::Row;

use super::counting::Top;
use super::table::{sums, table, whole};
use crate::output;

/// An interval's rows, as JSON.
#[derive(Serialize)]
struct Interval<'a> {
    /// Seconds since `top` began.
    seconds: f64,
    rows: &'a [Row],
    problems: &'a [String],
}

/// Prints each interval, until the counters end, the given count is reached, or the reader closes
/// the pipe.
pub(super) fn print(mut top: Top) -> anyhow::Result<()> {
    let mut next = top.begun + top.args.interval;
    let mut intervals = 0;
    loop {
        let wait = top.step();
        let now = Instant::now();
        // The end is printed at once, not only after the interval.
        let ended = top.has_ended();
        if now < next && !ended {
            std::thread::sleep(wait.min(next - now));
            continue;
        }
        next = now.max(next + top.args.interval);
        top.update();
        match print_interval(&mut top) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write to standard output")?,
        }
        intervals += 1;
        if ended || top.args.count.is_some_and(|count| intervals >= count) {
            return Ok(());
        }
    }
}

fn print_interval(top: &mut Top) -> io::Result<()> {
    let seconds = top.begun.elapsed().as_secs_f64();
    let rows = top.view.rows(&top.rows);
    let problems = std::mem::take(&mut top.problems);
    let mut text = String::new();
    if top.args.json {
        let interval = Interval {
            seconds,
            rows: &rows,
            problems: &problems,
        };
        text += &serde_json::to_string(&interval)?;
        text.push('\n');
    } else {
        for problem in &problems {
            output::say(problem);
        }
        text += &format!("{seconds:.1} s: {}\n", sums(&top.rows, whole).join(", "));
        text += &output::readable(&table(&rows));
        text.push('\n');
    }
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}
