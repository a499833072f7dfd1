//! Measures what a `redis-server` loses when its calls are wrapped: with `usertrace record --malloc
//! --pthread`, and with LTTng-UST's wrappers of the C library and of pthread in a session, in
//! turns.
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
use usertrace_bench::{Redis, Served, median};

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

    let mut turns: [Vec<Turn>; 3] = Default::default();
    for round in 0..=ROUNDS {
        let ways = [How::Plain, How::Usertrace, How::Lttng];
        for (how, turns) in ways.into_iter().zip(&mut turns) {
            let turn = turn(how, &usertrace, &server, directory.path())?;
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    let [plain, ours, theirs] = &turns;
    let served = |turns: &[Turn]| {
        let of = |part: &dyn Fn(&Turn, &Turn) -> f64| {
            let pairs = turns.iter().zip(plain);
            median(
                &pairs
                    .map(|(turn, plain)| part(turn, plain))
                    .collect::<Vec<_>>(),
            )
        };
        Served {
            rate: of(&|turn, _| turn.rate),
            loss: of(&|turn, plain| 1.0 - turn.rate / plain.rate),
            ns: of(&|turn, _| turn.ns),
            more_ns: of(&|turn, plain| turn.ns - plain.ns),
        }
    };
    let result = Redis {
        plain: served(plain),
        usertrace: served(ours),
        lttng: served(theirs),
    };
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

/// One run of a server.
struct Turn {
    /// Requests per second.
    rate: f64,
    /// Nanoseconds of a processor that the server took for each.
    ns: f64,
}

/// Runs one server.
fn turn(how: How, usertrace: &Path, server: &Path, directory: &Path) -> Result<Turn> {
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
    let turn = load(&socket, &mut child);
    let _ = ask(&socket, &["shutdown", "nosave"]);
    if turn.is_err() {
        // It may not have heard of that.
        let _ = child.kill();
    }
    let status = child.wait()?;
    drop(session);
    let turn = turn?;
    ensure!(status.success(), "redis-server: {status}");
    if matches!(how, How::Usertrace) {
        ensure!(traces.read_dir()?.next().is_some(), "no trace was recorded");
        fs::remove_dir_all(&traces)?;
    }
    Ok(turn)
}

/// Waits for the server, and makes the requests.
fn load(socket: &Path, server: &mut Child) -> Result<Turn> {
    let deadline = Instant::now() + PATIENCE;
    while ask(socket, &["ping"]).is_err() {
        let ended = server.try_wait()?;
        ensure!(ended.is_none(), "redis-server has ended: {ended:?}");
        ensure!(Instant::now() < deadline, "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let processor = processor(socket)?;
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
    let requests = 2.0 * REQUESTS as f64;
    Ok(Turn {
        rate: requests / took.as_secs_f64(),
        ns: (self::processor(socket)? - processor) * 1e9 / requests,
    })
}

/// Seconds of a processor that the server took so far, as it says.
fn processor(socket: &Path) -> Result<f64> {
    let said = ask(socket, &["info", "cpu"])?;
    let of = |key: &str| -> Result<f64> {
        let value = said.lines().find_map(|line| line.strip_prefix(key));
        let value = value.with_context(|| format!("redis-server does not say {key}"))?;
        Ok(value.trim().parse()?)
    };
    Ok(of("used_cpu_user:")? + of("used_cpu_sys:")?)
}

/// Asks the server something by `redis-cli`.
fn ask(socket: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("redis-cli")
        .arg("-s")
        .arg(socket)
        .args(arguments)
        .env("USERTRACE_BACKEND", "off")
        .output()
        .context("redis-cli")?;
    ensure!(output.status.success(), "redis-cli: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
