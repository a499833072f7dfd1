//! A demo of the project's main job, with a program of others: records it, then panics the kernel
//! and extracts the trace from the dump. `scripts/demo` builds everything and calls this.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;
use usertrace_vm::{Guest, KernelConfig, Outcome, Streams};

/// How many events are shown of each trace.
const SHOWN: usize = 12;

#[derive(Parser)]
#[command(about = "Record sqlite3 in the guest, then let the kernel panic, and read the dump")]
struct Cli {
    /// Where to leave the traces; made anew
    #[arg(long)]
    out: PathBuf,
    /// Directory of the command `usertrace` and of the library to preload
    #[arg(long)]
    programs: PathBuf,
    /// What was done before, and how long it took: NAME=SECONDS
    #[arg(long, value_parser = step)]
    step: Vec<(String, u64)>,
}

fn step(text: &str) -> Result<(String, u64)> {
    let (name, seconds) = text.split_once('=').context("not NAME=SECONDS")?;
    // A word for the shell that calls this.
    Ok((name.replace('-', " "), seconds.parse()?))
}

/// The counts of a trace.
struct Counts {
    events: u64,
    lost: u64,
    bytes: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if cli.out.exists() {
        fs::remove_dir_all(&cli.out).with_context(|| format!("removing {}", cli.out.display()))?;
    }
    fs::create_dir_all(&cli.out)?;
    let out = cli.out.canonicalize()?;
    let mut steps = cli.step;
    let mut timed = |name: &str, began: Instant| {
        steps.push((name.to_owned(), began.elapsed().as_secs()));
    };

    let began = Instant::now();
    let run =
        guest(&cli.programs, &out, include_str!("../../demo/record.sh"))?.run(Streams::inherit())?;
    ensure!(
        run.outcome == Outcome::Passed,
        "recording failed\n{}",
        run.explain()
    );
    let recorded = counts(&out.join("recorded.json"), &out.join("recorded"))?;
    timed("boot and record", began);
    title("The first and the last events, read by babeltrace2");
    let text = read(&out.join("recorded"), &recorded)?;
    show_ends(&text);

    title("Once more, and the kernel panics in the middle");
    let began = Instant::now();
    let run = guest(&cli.programs, &out, include_str!("../../demo/panic.sh"))?
        .crash(true)
        .run(Streams::inherit())?;
    ensure!(
        matches!(run.outcome, Outcome::Panicked(_)),
        "there was no panic\n{}",
        run.explain()
    );
    println!("{}", run.outcome);
    let Some(Ok(dump)) = &run.dump else {
        bail!("the panic left no dump\n{}", run.explain());
    };
    timed("boot, panic, save the dump", began);

    let began = Instant::now();
    let extracted_dir = out.join("extracted");
    let extracted = extract(
        &cli.programs,
        dump,
        &out.join("extracted.json"),
        &extracted_dir,
    )?;
    ensure!(extracted.events > 0, "the dump had no events");
    timed("extract", began);
    title("sqlite3's last events before the panic, out of the dump, read by babeltrace2");
    let text = read(&extracted_dir, &extracted)?;
    show_end(&text);

    title("The report, with the crash marked");
    let began = Instant::now();
    let page = out.join("crash.html");
    report(&cli.programs, &extracted_dir, &page)?;
    println!("{}", page.display());
    timed("report", began);

    title("Summary");
    println!("{:<28} {:>12} {:>8} {:>12}", "", "events", "lost", "bytes");
    for (name, counts) in [("recorded", &recorded), ("extracted", &extracted)] {
        println!(
            "{name:<28} {:>12} {:>8} {:>12}",
            counts.events, counts.lost, counts.bytes
        );
    }
    println!("{:<28} {:>34}", "dump", fs::metadata(dump)?.len());
    println!();
    for (name, seconds) in &steps {
        println!("{name:<28} {seconds:>10} s");
    }
    println!("\nThe traces and the dump are in {}", out.display());
    Ok(())
}

fn title(text: &str) {
    println!("\n\x1b[1m# {text}\x1b[0m");
}

/// A guest that runs one of the demo's scripts.
fn guest(programs: &Path, out: &Path, script: &str) -> Result<Guest> {
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/workload.sh");
    let path = format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        programs.display()
    );
    let command: [&OsStr; 5] = [
        "/bin/sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        "demo".as_ref(),
        workload.as_os_str(),
    ];
    Ok(Guest::new(KernelConfig::Release)?
        .out(out)
        .env("PATH", path)
        .command(command))
}

/// Extracts the traces from a dump, with a summary, and returns their counts.
fn extract(programs: &Path, dump: &Path, json: &Path, to: &Path) -> Result<Counts> {
    let status = Command::new(programs.join("usertrace"))
        .arg("extract")
        .arg(dump)
        .arg("--output")
        .arg(to)
        .arg(format!("--json={}", json.display()))
        .status()
        .context("running usertrace extract")?;
    ensure!(status.success(), "usertrace extract: {status}");
    counts(json, to)
}

/// Makes a page of traces.
fn report(programs: &Path, traces: &Path, page: &Path) -> Result<()> {
    let status = Command::new(programs.join("usertrace"))
        .arg("report")
        .arg(traces)
        .arg("-o")
        .arg(page)
        .status()
        .context("running usertrace report")?;
    ensure!(status.success(), "usertrace report: {status}");
    Ok(())
}

/// The counts in a summary of the command, and the size of the trace.
fn counts(json: &Path, trace: &Path) -> Result<Counts> {
    let text = fs::read(json).with_context(|| format!("reading {}", json.display()))?;
    let summary: Value = serde_json::from_slice(&text)?;
    let mut counts = Counts {
        events: 0,
        lost: 0,
        bytes: size(trace)?,
    };
    add(&summary, &mut counts)?;
    Ok(counts)
}

/// Adds the processes of a summary, which are in it directly (record) or below its traces
/// (extract).
fn add(summary: &Value, counts: &mut Counts) -> Result<()> {
    for trace in summary["traces"].as_array().into_iter().flatten() {
        add(trace, counts)?;
    }
    for process in summary["processes"].as_array().into_iter().flatten() {
        let number = |name: &str| {
            process[name]
                .as_u64()
                .with_context(|| format!("the summary of a process has no {name}"))
        };
        counts.events += number("events")?;
        counts.lost += number("lost")?;
    }
    Ok(())
}

/// The size of all files below a directory, in bytes.
fn size(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() {
            size(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(sum)
}

/// The trace as babeltrace2 prints it: exactly as many lines as the summary says, and no warning
/// but of lost events.
fn read(trace: &Path, counts: &Counts) -> Result<String> {
    let run = Command::new("babeltrace2")
        .arg("--clock-date")
        .arg(trace)
        .stdin(Stdio::null())
        .output()
        .context("running babeltrace2")?;
    let errors = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "babeltrace2 failed:\n{errors}");
    ensure!(
        counts.lost > 0 || errors.trim().is_empty(),
        "babeltrace2 warns:\n{errors}"
    );
    let text = String::from_utf8_lossy(&run.stdout);
    // The rest says what programs had loaded.
    let is_event =
        |line: &&str| !line.contains(" lttng_ust_statedump:") && !line.contains(" lttng_ust_lib:");
    let text: String = text
        .lines()
        .filter(is_event)
        .flat_map(|line| [line, "\n"])
        .collect();
    let lines = text.lines().count() as u64;
    ensure!(
        lines == counts.events,
        "babeltrace2 reads {lines} events, the summary says {}",
        counts.events
    );
    Ok(text)
}

fn show_ends(text: &str) {
    for line in text.lines().take(SHOWN / 2) {
        println!("{line}");
    }
    println!("...");
    for line in last(text, SHOWN / 2) {
        println!("{line}");
    }
}

fn show_end(text: &str) {
    for line in last(text, SHOWN) {
        println!("{line}");
    }
}

fn last(text: &str, count: usize) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().rev().take(count).collect();
    lines.reverse();
    lines
}
