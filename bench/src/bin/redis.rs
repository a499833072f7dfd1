//! Measures what a `redis-server` loses when its calls are wrapped: with `usertrace record --malloc
//! --pthread`, and with LTTng-UST's wrappers of the C library and of pthread in a session, in turns.
//!
//! Usage: redis USERTRACE
//!
//! The load is `redis-benchmark`'s, and the clock is this program's. All events go into files.
//! Standard output has the result, as JSON; `bench/lttng/with-daemon` starts this.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use usertrace_bench::lttng::{self, SESSIONS};
use usertrace_bench::{Redis, median};

/// Turns that count; one more comes first.
const ROUNDS: usize = 5;
/// Requests of each of two kinds in a turn.
const REQUESTS: u64 = 100_000;
/// How long the server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the server runs.
#[derive(Clone, Copy)]
enum How {
    Plain,
    Usertrace,
    Lttng,
}

fn main() -> Result<()> {
    let usertrace = env::args_os().nth(1).context("usage: redis USERTRACE")?;
    let usertrace = PathBuf::from(usertrace);
    let directory = tempfile::tempdir_in("/tmp")?;
    // The package of `redis-server` starts a system service, and this one has the same executable.
    let server = directory.path().join("redis-server");
    let installed = ["/usr/bin/redis-server", "/usr/bin/redis-check-rdb"];
    let installed = installed.iter().find(|path| Path::new(path).exists());
    symlink(installed.context("redis-tools is not installed")?, &server)?;

    let mut rates = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for (at, how) in [How::Plain, How::Usertrace, How::Lttng]
            .into_iter()
            .enumerate()
        {
            let rate = turn(how, &usertrace, &server, directory.path())?;
            if round > 0 {
                rates[at].push(rate);
            }
        }
    }
    let [plain, ours, theirs] = &rates;
    let loss = |rates: &[f64]| {
        let losses = rates
            .iter()
            .zip(plain)
            .map(|(rate, plain)| 1.0 - rate / plain);
        median(&losses.collect::<Vec<_>>())
    };
    let result = Redis {
        plain: median(plain),
        usertrace: median(ours),
        lttng: median(theirs),
        usertrace_loss: loss(ours),
        lttng_loss: loss(theirs),
    };
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

/// The requests per second of one server.
fn turn(how: How, usertrace: &Path, server: &Path, directory: &Path) -> Result<f64> {
    let socket = directory.join("socket");
    let traces = directory.join("traces");
    let mut command = match how {
        How::Usertrace => {
            let mut command = Command::new(usertrace);
            command
                .args(["record", "--quiet", "--malloc", "--pthread"])
                .args([
                    "--subbuf-size",
                    "1048576",
                    "--subbuf-count",
                    "16",
                    "--output",
                ])
                .args([&traces, Path::new("--"), server]);
            command
        }
        _ => Command::new(server),
    };
    command.env("USERTRACE_BACKEND", "fast");
    let session = match how {
        How::Lttng => {
            command.env(
                "LD_PRELOAD",
                "liblttng-ust-libc-wrapper.so:liblttng-ust-pthread-wrapper.so",
            );
            // Per-UID buffers that discard, as ours do.
            let events = "lttng_ust_libc:*,lttng_ust_pthread:*";
            Some(SESSIONS[0].start_for(&lttng::output(), events))
        }
        _ => None,
    };
    command
        .args(["--port", "0", "--save", "", "--dir"])
        .args([directory, Path::new("--unixsocket"), &socket])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().context("redis-server")?;
    let rate = load(&socket, &mut child);
    let _ = ask(&socket, &["shutdown", "nosave"]);
    if rate.is_err() {
        // It may not have heard of that.
        let _ = child.kill();
    }
    let status = child.wait()?;
    drop(session);
    let rate = rate?;
    ensure!(status.success(), "redis-server: {status}");
    if matches!(how, How::Usertrace) {
        ensure!(traces.read_dir()?.next().is_some(), "no trace was recorded");
        fs::remove_dir_all(&traces)?;
    }
    Ok(rate)
}

/// Waits for the server, and makes the requests.
fn load(socket: &Path, server: &mut Child) -> Result<f64> {
    let deadline = Instant::now() + PATIENCE;
    while ask(socket, &["ping"]).is_err() {
        let ended = server.try_wait()?;
        ensure!(ended.is_none(), "redis-server has ended: {ended:?}");
        ensure!(Instant::now() < deadline, "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    let output = Command::new("redis-benchmark")
        .args(["-q", "-t", "set,get", "-n", &REQUESTS.to_string(), "-s"])
        .arg(socket)
        .env("USERTRACE_BACKEND", "off")
        .output()
        .context("redis-benchmark")?;
    let took = begun.elapsed();
    ensure!(
        output.status.success(),
        "redis-benchmark: {}",
        output.status
    );
    Ok(2.0 * REQUESTS as f64 / took.as_secs_f64())
}

/// Asks the server something by `redis-cli`.
fn ask(socket: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new("redis-cli")
        .arg("-s")
        .arg(socket)
        .args(arguments)
        .env("USERTRACE_BACKEND", "off")
        .output()
        .context("redis-cli")?;
    ensure!(output.status.success(), "redis-cli: {}", output.status);
    Ok(())
}
