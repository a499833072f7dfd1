//! Measures what it takes to extract the traces of dumps, beside `dd`, which copies as many bytes
//! as come out (C7): `extraction USERTRACE DUMP...`, where the first argument is the command's
//! path.
//!
//! All of them take turns. Dumps are in the page cache after the first one, and what is written is
//! in memory: no disk is measured. Standard output has a line for each dump, with medians.
//! `scripts/bench crash` makes the dumps.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use usertrace_bench::{median, now};
use usertrace_testing::exited::{reap, size};

/// Turns that count; one more comes first.
const ROUNDS: usize = 21;
/// Where memory is.
const MEMORY: &str = "/dev/shm";

/// Resource usage of one run of a program.
struct Run {
    ms: f64,
    /// The most memory that it had, in KiB.
    peak_kib: f64,
}

/// A dump, and what its turns took.
struct Dump {
    path: PathBuf,
    extract: Vec<Run>,
    dd: Vec<Run>,
    /// Bytes of all files that come out.
    bytes: u64,
}

fn main() -> Result<()> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let usertrace = arguments.next().context("extraction USERTRACE DUMP...")?;
    let mut dumps: Vec<_> = arguments
        .map(|path| Dump {
            path,
            extract: Vec::new(),
            dd: Vec::new(),
            bytes: 0,
        })
        .collect();
    ensure!(!dumps.is_empty(), "extraction USERTRACE DUMP...");
    let directory = Path::new(MEMORY).join(format!("usertrace-extraction-{}", std::process::id()));
    fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
    let measured = turns(&usertrace, &mut dumps, &directory);
    fs::remove_dir_all(&directory)?;
    measured?;

    let ms = |runs: &[Run]| median(&runs.iter().map(|run| run.ms).collect::<Vec<_>>());
    let first = ms(&dumps[0].extract);
    for Dump {
        path,
        extract,
        dd,
        bytes,
    } in &dumps
    {
        let peak: Vec<_> = extract.iter().map(|run| run.peak_kib).collect();
        let (extract, dd) = (ms(extract), ms(dd));
        println!(
            "{}: {bytes} bytes of traces in {extract:.1} ms, {:.2} times as long as out of the first; dd of as many: {dd:.1} ms, \
             {:.2} times that; peak memory {:.1} MiB",
            path.display(),
            extract / first,
            extract / dd,
            median(&peak) / 1024.0,
        );
    }
    Ok(())
}

fn turns(usertrace: &Path, dumps: &mut [Dump], directory: &Path) -> Result<()> {
    let (traces, from, to) = (
        directory.join("traces"),
        directory.join("from"),
        directory.join("to"),
    );
    for round in 0..=ROUNDS {
        for dump in &mut *dumps {
            let mut command = Command::new(usertrace);
            command
                .arg("extract")
                .arg(&dump.path)
                .arg("-o")
                .arg(&traces);
            let extract = run(&mut command)?;
            dump.bytes = size(&traces)?;
            fs::remove_dir_all(&traces)?;

            fs::write(&from, vec![1; usize::try_from(dump.bytes)?])?;
            let operand = |name: &str, path: &Path| {
                let mut operand = OsString::from(name);
                operand.push(path);
                operand
            };
            let mut command = Command::new("dd");
            command.args([operand("if=", &from), operand("of=", &to)]);
            let dd = run(command.arg("bs=64K"))?;
            fs::remove_file(&from)?;
            fs::remove_file(&to)?;
            if round > 0 {
                dump.extract.push(extract);
                dump.dd.push(dd);
            }
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<Run> {
    let begun = now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let ended = reap(Some(child.id()))?.context("somebody else waited for it")?;
    let ms = (now() - begun).as_secs_f64() * 1e3;
    ensure!(ended.status.success(), "{command:?}: {}", ended.status);
    Ok(Run {
        ms,
        peak_kib: ended.peak_kib as f64,
    })
}
