//! Measures what an instrumented program costs that does nothing: how much later its `main` begins,
//! and how much more memory it has, than the same program without the library.
//!
//! The two programs are beside this one; they start in turns. Standard output has the result, as
//! JSON.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use usertrace_bench::{Memory, StartUp, median, now};

/// Starts of each program.
const ROUNDS: usize = 101;
/// Those before the first that counts.
const WARM: usize = 3;

fn main() -> Result<()> {
    let beside = |name: &str| -> Result<PathBuf> { Ok(env::current_exe()?.with_file_name(name)) };
    let (plain, instrumented) = (beside("plain")?, beside("instrumented")?);
    let mut runs: Vec<[Run; 2]> = Vec::new();
    for round in 0..WARM + ROUNDS {
        // The order alternates.
        let pair = if round % 2 == 0 {
            [run(&plain)?, run(&instrumented)?]
        } else {
            let second = run(&instrumented)?;
            [run(&plain)?, second]
        };
        runs.push(pair);
    }
    let runs = &runs[WARM..];
    let of = |which: usize, part: &dyn Fn(&Run) -> f64| -> f64 {
        median(
            &runs
                .iter()
                .map(|pair| part(&pair[which]))
                .collect::<Vec<_>>(),
        )
    };
    let memory = |which| Memory {
        rss: of(which, &|run| run.memory.rss),
        anonymous: of(which, &|run| run.memory.anonymous),
        shared: of(which, &|run| run.memory.shared),
        file: of(which, &|run| run.memory.file),
        pss: of(which, &|run| run.memory.pss),
    };
    let later: Vec<f64> = runs
        .iter()
        .map(|[plain, instrumented]| instrumented.ms - plain.ms)
        .collect();
    let start_up = StartUp {
        plain_ms: of(0, &|run| run.ms),
        instrumented_ms: of(1, &|run| run.ms),
        later_ms: median(&later),
        plain: memory(0),
        instrumented: memory(1),
    };
    println!("{}", serde_json::to_string_pretty(&start_up)?);
    Ok(())
}

/// One start of a program.
struct Run {
    /// From before the spawn to its `main`, in milliseconds.
    ms: f64,
    memory: Memory,
}

fn run(program: &Path) -> Result<Run> {
    let mut command = Command::new(program);
    command
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", "null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let start = now();
    let mut child = command
        .spawn()
        .with_context(|| program.display().to_string())?;
    let mut begun = [0; 8];
    let said = child
        .stdout
        .as_mut()
        .context("no output")?
        .read_exact(&mut begun);
    let memory = memory(child.id());
    // Its input ends, and so does it.
    drop(child.stdin.take());
    let status = child.wait()?;
    said.context("it did not say when it began")?;
    ensure!(status.success(), "{}: {status}", program.display());
    let begun = Duration::from_nanos(u64::from_ne_bytes(begun));
    Ok(Run {
        ms: begun.saturating_sub(start).as_secs_f64() * 1e3,
        memory: memory?,
    })
}

fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?
        + &fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let of = |key: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(number.with_context(|| key.to_string())?.trim().parse()?)
    };
    Ok(Memory {
        rss: of("VmRSS:")?,
        anonymous: of("RssAnon:")?,
        shared: of("RssShmem:")?,
        file: of("RssFile:")?,
        pss: of("Pss:")?,
    })
}
