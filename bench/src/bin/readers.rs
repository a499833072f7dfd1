//! Measures programs that read a trace and print all of it: `usertrace view` and `usertrace
//! export`, beside babeltrace2, as it is installed, and 2.1 from the cache of `scripts/setup`.
//!
//! Usage: readers USERTRACE
//!
//! The fallback writes a trace of `numbers`, then all read it in turns, to /dev/null. Standard
//! output has the result, as JSON.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use usertrace_bench::{Reader, Readers, median};
use usertrace_testing::exited;
use usertrace_testing::tools::babeltrace;

/// Events of 32 bytes in the trace.
const EVENTS: u64 = 1_000_000;
/// Turns that count; one more comes first.
const ROUNDS: usize = 5;

/// What one run took: seconds by the clock and of a processor, and MiB.
type Run = [f64; 3];

fn main() -> Result<()> {
    let usertrace = env::args_os().nth(1).context("usage: readers USERTRACE")?;
    let usertrace = PathBuf::from(usertrace);
    let directory = tempfile::tempdir()?;
    let trace = write_trace(directory.path())?;
    let ours = |arguments: &[&str]| {
        let mut command = Command::new(&usertrace);
        command.args(arguments);
        (format!("usertrace {}", arguments.join(" ")), command)
    };
    let theirs = |mut command: Command| -> Result<(String, Command)> {
        let said = command.arg("--version").output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = said.split_whitespace().nth(1).unwrap_or("?").to_owned();
        Ok((
            format!("babeltrace2 {version}"),
            Command::new(command.get_program()),
        ))
    };
    let mut commands = vec![
        ours(&["view"]),
        ours(&["export", "--json"]),
        theirs(Command::new("babeltrace2"))?,
    ];
    let newer = theirs(babeltrace())?;
    if newer.0 != commands[2].0 {
        commands.push(newer);
    }
    for (_, command) in &mut commands {
        command
            .arg(&trace)
            .env("USERTRACE_BACKEND", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
    }
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); commands.len()];
    for round in 0..=ROUNDS {
        for ((name, command), runs) in commands.iter_mut().zip(&mut runs) {
            let (exited, time) = exited::run(command).with_context(|| name.clone())?;
            ensure!(exited.status.success(), "{name}: {}", exited.status);
            if round > 0 {
                runs.push([
                    time.as_secs_f64(),
                    exited.processor.as_secs_f64(),
                    exited.peak_kib as f64 / 1024.0,
                ]);
            }
        }
    }
    let rows = commands.iter().zip(&runs).map(|((name, _), runs)| {
        let of = |part: usize| median(&runs.iter().map(|run| run[part]).collect::<Vec<_>>());
        Reader {
            command: name.clone(),
            seconds: of(0),
            processor: of(1),
            peak_mib: of(2),
        }
    });
    let readers = Readers {
        events: EVENTS,
        rows: rows.collect(),
    };
    println!("{}", serde_json::to_string_pretty(&readers)?);
    Ok(())
}

/// Writes the trace, and returns the directory that has it.
fn write_trace(directory: &Path) -> Result<PathBuf> {
    // The fallback's daemons become children of this process when the program has ended.
    // SAFETY: no memory is involved.
    let ret = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    ensure!(ret == 0, "PR_SET_CHILD_SUBREAPER");
    let trace = directory.join("trace");
    std::fs::create_dir(&trace)?;
    let program = env::current_exe()?.with_file_name("numbers");
    let status = Command::new(program)
        .args(["usertrace", &EVENTS.to_string()])
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", &trace)
        .env("USERTRACE_MODE", "block")
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success(), "numbers: {status}");
    while exited::reap(None)?.is_some() {}
    Ok(trace)
}
