//! Measures what the libraries to preload add to the calls that they wrap: `malloc` and `free`, and
//! the lock of a mutex that no other thread has.
//!
//! Usage: wrapped LIBRARY...
//!
//! One program runs in three ways in turns: plain; with the libraries, while no trace wants their
//! events; and recorded by the fallback. Its rings overwrite then, so that no reader runs beside
//! it. The program times itself, and prints the median of its batches.

use std::ffi::{OsStr, OsString};
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use usertrace_bench::median;

/// Says that this process is the program that is measured.
const VARIABLE: &str = "USERTRACE_BENCH_WRAPPED";
/// Runs of each.
const TURNS: usize = 9;
/// In each run.
const BATCHES: usize = 101;
/// Pairs of calls in a batch.
const PAIRS: u32 = 20_000;
/// The pairs of calls.
const NAMES: [&str; 2] = ["malloc(64), free", "pthread_mutex_lock, unlock"];

/// How the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Unwanted,
    Recorded,
}

impl How {
    const ALL: [Self; 3] = [Self::Plain, Self::Unwanted, Self::Recorded];

    fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Unwanted => "preloaded, no trace",
            Self::Recorded => "recorded",
        }
    }

    fn prepare(self, command: &mut Command, libraries: &OsStr) {
        let backend = match self {
            Self::Plain => return,
            Self::Unwanted => "off",
            Self::Recorded => "fast",
        };
        command
            .env("LD_PRELOAD", libraries)
            .env("USERTRACE_BACKEND", backend)
            .env("USERTRACE_OUTPUT", "null")
            .env("USERTRACE_MODE", "overwrite")
            .env("USERTRACE_PREFAULT", "all");
    }
}

/// Nanoseconds of a pair, the median of all batches.
fn time(mut pair: impl FnMut()) -> f64 {
    let batches: Vec<_> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            (0..PAIRS).for_each(|_| pair());
            start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
        })
        .collect();
    median(&batches)
}

/// The program that is measured: a line with a number for each pair of calls.
fn program() {
    let memory = time(|| {
        // SAFETY: memory that was given just now, or NULL. The compiler must not see that nobody
        // uses it.
        unsafe { libc::free(black_box(libc::malloc(black_box(64)))) }
    });
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mutex = black_box(&raw mut mutex);
    let lock = time(|| {
        // SAFETY: a mutex that stays where it is until the end of this function.
        unsafe {
            libc::pthread_mutex_lock(mutex);
            libc::pthread_mutex_unlock(mutex);
        }
    });
    println!("{memory} {lock}");
}

fn run(how: How, libraries: &OsStr) -> anyhow::Result<[f64; NAMES.len()]> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, "1");
    how.prepare(&mut command, libraries);
    let output = command.output().context("cannot run the program")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // The dynamic linker goes on without a library that it cannot load.
    ensure!(
        output.status.success() && errors.is_empty(),
        "{}: {errors}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    numbers?
        .try_into()
        .map_err(|_| anyhow::anyhow!("the program printed {text:?}"))
}

fn main() -> anyhow::Result<()> {
    if std::env::var_os(VARIABLE).is_some() {
        program();
        return Ok(());
    }
    let libraries: Vec<OsString> = std::env::args_os().skip(1).collect();
    if libraries.is_empty() {
        bail!("name the libraries to preload: libusertrace_malloc.so, libusertrace_pthread.so");
    }
    let libraries = libraries.join(OsStr::new(":"));
    let mut times = [const { [const { Vec::new() }; NAMES.len()] }; How::ALL.len()];
    for _ in 0..TURNS {
        for (how, times) in How::ALL.into_iter().zip(&mut times) {
            for (time, times) in run(how, &libraries)?.into_iter().zip(times) {
                times.push(time);
            }
        }
    }
    for (n, name) in NAMES.iter().enumerate() {
        println!("{name}:");
        let plain = median(&times[0][n]);
        for (how, times) in How::ALL.into_iter().zip(&times) {
            let time = median(&times[n]);
            println!(
                "  {:20} {time:7.1} ns  {:+7.1} ns",
                how.title(),
                time - plain
            );
        }
    }
    Ok(())
}
