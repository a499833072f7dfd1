//! Measures what libraries to preload add to the calls that they wrap: `malloc` and `free`, and the
//! lock of a mutex that no other thread has.
//!
//! Usage: wrapped LIBRARY...
//!
//! One program runs in several ways in turns: plain; with the libraries, while no trace wants their
//! events; and recorded by the fallback. Its rings overwrite then, so that no reader runs beside
//! it. So do those of LTTng-UST's wrappers, which run if `bench/lttng/with-daemon` starts this.
//! heaptrack's library, if it is installed, walks a stack for each `malloc`, and writes to a
//! file; ours with `callstack` does so for each call that gets something. The program times
//! itself, and prints the median of its batches. Standard output has a row for each way, as JSON.

use std::ffi::{OsStr, OsString};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use usertrace_bench::lttng::{self, SESSIONS};
use usertrace_bench::{WrappedCall, median};

/// Says that this process is the program that is measured.
const VARIABLE: &str = "USERTRACE_BENCH_WRAPPED";
/// Runs of each.
const TURNS: usize = 7;
/// In each run.
const BATCHES: usize = 31;
/// Pairs of calls in a batch.
const PAIRS: u32 = 20_000;
/// The pairs of calls.
const NAMES: [&str; 2] = ["malloc(64), free", "pthread_mutex_lock, unlock"];

/// LTTng-UST's session: its rings overwrite, as ours do.
const OVERWRITE: lttng::Session = SESSIONS[2];

/// How the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Unwanted,
    Recorded,
    WithStacks,
    Lttng,
    Heaptrack,
}

/// Where Debian has heaptrack's library.
const HEAPTRACK: [&str; 2] = [
    "/usr/lib/heaptrack/libheaptrack_preload.so",
    "/usr/lib/x86_64-linux-gnu/heaptrack/libheaptrack_preload.so",
];
/// LTTng-UST's libraries, and their events.
const LTTNG: &str = "liblttng-ust-libc-wrapper.so:liblttng-ust-pthread-wrapper.so";
const LTTNG_EVENTS: &str = "lttng_ust_libc:*,lttng_ust_pthread:*";

impl How {
    const ALL: [Self; 6] = [
        Self::Plain,
        Self::Unwanted,
        Self::Recorded,
        Self::WithStacks,
        Self::Lttng,
        Self::Heaptrack,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Unwanted => "usertrace, no trace",
            Self::Recorded => "usertrace, recorded",
            Self::WithStacks => "usertrace, recorded with `callstack`",
            Self::Lttng => "LTTng-UST's wrappers, recorded",
            Self::Heaptrack => "heaptrack's library",
        }
    }

    fn can_run(self) -> bool {
        match self {
            Self::Lttng => std::env::var_os("LTTNG_HOME").is_some(),
            Self::Heaptrack => heaptrack().is_some(),
            _ => true,
        }
    }

    /// Whether it wraps the pair of calls of this number.
    fn wraps(self, pair: usize) -> bool {
        self != Self::Heaptrack || pair == 0
    }

    fn prepare(self, command: &mut Command, libraries: &OsStr, directory: &Path) {
        let backend = match self {
            Self::Plain => return,
            Self::Unwanted => "off",
            Self::Recorded | Self::WithStacks => "fast",
            Self::Lttng => {
                command.env("LD_PRELOAD", LTTNG);
                return;
            }
            Self::Heaptrack => {
                let library = heaptrack().unwrap_or_default();
                command
                    .env("LD_PRELOAD", library)
                    .env("DUMP_HEAPTRACK_OUTPUT", directory.join("heaptrack"));
                return;
            }
        };
        command
            .env("LD_PRELOAD", libraries)
            .env("USERTRACE_BACKEND", backend)
            .env("USERTRACE_OUTPUT", "null")
            .env("USERTRACE_MODE", "overwrite")
            .env("USERTRACE_PREFAULT", "all");
        if self == Self::WithStacks {
            command.env("USERTRACE_CONTEXTS", "callstack");
        }
    }
}

fn heaptrack() -> Option<&'static str> {
    HEAPTRACK.into_iter().find(|path| Path::new(path).exists())
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
    let directory = tempfile::tempdir()?;
    how.prepare(&mut command, libraries, directory.path());
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
    let ways: Vec<How> = How::ALL.into_iter().filter(|how| how.can_run()).collect();
    let _session = How::Lttng
        .can_run()
        .then(|| OVERWRITE.start_for(&lttng::output(), LTTNG_EVENTS));
    let mut times = vec![[const { Vec::new() }; NAMES.len()]; ways.len()];
    for _ in 0..TURNS {
        for (how, times) in ways.iter().zip(&mut times) {
            for (time, times) in run(*how, &libraries)?.into_iter().zip(times) {
                times.push(time);
            }
        }
    }
    let mut rows = Vec::new();
    for (pair, calls) in NAMES.into_iter().enumerate() {
        let plain = median(&times[0][pair]);
        for (how, times) in ways.iter().zip(&times).filter(|(how, _)| how.wraps(pair)) {
            let ns = median(&times[pair]);
            eprintln!(
                "{calls}, {}: {ns:.1} ns, {:+.1} ns",
                how.title(),
                ns - plain
            );
            rows.push(WrappedCall {
                calls: calls.to_owned(),
                how: how.title().to_owned(),
                ns,
                more_ns: ns - plain,
            });
        }
    }
    println!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}
