//! Measures what a `redis-server` loses when its calls are wrapped: with `usertrace record --malloc
//! --pthread`, with the same and `--flight`, and with LTTng-UST's wrappers of the C library and of
//! pthread in a session, in turns.
//!
//! Usage: redis USERTRACE
//!
//! The load is `redis-benchmark`'s, and the clock is this program's. All events go into files, but
//! with `--flight` only the last ones, after the load: its difference is what reading them costs.
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
use usertrace_bench::{Load, Redis, Served, median};

/// Turns that count; one more comes first.
const ROUNDS: usize = 5;
/// Requests of one kind in a turn: if clients wait for each answer, and if they send [`AT_A_TIME`].
const REQUESTS: [u64; 2] = [100_000, 400_000];
const AT_A_TIME: u64 = 16;
/// How long the server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the server runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Usertrace,
    Flight,
    Lttng,
}

impl How {
    fn is_ours(self) -> bool {
        matches!(self, Self::Usertrace | Self::Flight)
    }
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

    let paths = Paths {
        usertrace: &usertrace,
        server: &server,
        directory: directory.path(),
    };
    let result = Redis {
        waiting: measure(&paths, 1)?,
        pipelined: Some(measure(&paths, AT_A_TIME)?),
    };
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

/// Measures a load of `at_a_time` requests of each client.
fn measure(paths: &Paths<'_>, at_a_time: u64) -> Result<Load> {
    let mut turns: [Vec<Turn>; 5] = Default::default();
    for round in 0..=ROUNDS {
        let ways = [
            How::Plain,
            How::Usertrace,
            How::Flight,
            How::Lttng,
            How::Plain,
        ];
        for (how, turns) in ways.into_iter().zip(&mut turns) {
            let turn = turn(how, paths, at_a_time)?;
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    let [plain, ours, flight, theirs, again] = &turns;
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
            lost_events: of(&|turn, _| turn.lost_events),
        }
    };
    Ok(Load {
        plain: served(plain),
        again: Some(served(again)),
        usertrace: served(ours),
        flight: Some(served(flight)),
        lttng: served(theirs),
    })
}

/// The programs of a turn, and its directory.
struct Paths<'a> {
    usertrace: &'a Path,
    server: &'a Path,
    /// For the socket and the traces.
    directory: &'a Path,
}

/// One run of a server.
struct Turn {
    /// Requests per second.
    rate: f64,
    /// Nanoseconds of a processor that the server took for each.
    ns: f64,
    /// Events that found no room, for each request.
    lost_events: f64,
}

/// Runs one server.
fn turn(how: How, paths: &Paths<'_>, at_a_time: u64) -> Result<Turn> {
    let Paths {
        usertrace,
        server,
        directory,
    } = *paths;
    let summary = directory.join("summary");
    let socket = directory.join("socket");
    let traces = directory.join("traces");
    let mut command = match how.is_ours() {
        true => {
            let mut command = Command::new(usertrace);
            command
                .args(["record", "--quiet", "--malloc", "--pthread"])
                .args((how == How::Flight).then_some("--flight"))
                .arg(format!("--json={}", summary.display()))
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
        false => Command::new(server),
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
    let turn = load(&socket, &mut child, at_a_time);
    let _ = ask(&socket, &["shutdown", "nosave"]);
    if turn.is_err() {
        // It may not have heard of that.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let lost = session.as_ref().map(|session| {
        session.stop();
        session.lost()
    });
    drop(session);
    let mut turn = turn?;
    ensure!(status.success(), "redis-server: {status}");
    turn.lost_events = lost.unwrap_or(0) as f64 / requests(at_a_time);
    if how.is_ours() {
        turn.lost_events = lost_in(&summary)? as f64 / requests(at_a_time);
        ensure!(traces.read_dir()?.next().is_some(), "no trace was recorded");
        fs::remove_dir_all(&traces)?;
    }
    Ok(turn)
}

/// Waits for the server, and makes the requests.
fn load(socket: &Path, server: &mut Child, at_a_time: u64) -> Result<Turn> {
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
        .args(["-q", "-t", "set,get", "-P", &at_a_time.to_string()])
        .args(["-n", &requests_of_a_kind(at_a_time).to_string(), "-s"])
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
    let requests = requests(at_a_time);
    Ok(Turn {
        rate: requests / took.as_secs_f64(),
        ns: (self::processor(socket)? - processor) * 1e9 / requests,
        lost_events: 0.0,
    })
}

/// Requests of each of the two kinds.
fn requests_of_a_kind(at_a_time: u64) -> u64 {
    REQUESTS[usize::from(at_a_time > 1)]
}

/// Requests of both kinds.
fn requests(at_a_time: u64) -> f64 {
    2.0 * requests_of_a_kind(at_a_time) as f64
}

/// The events that a recording lost, by its summary.
fn lost_in(summary: &Path) -> Result<u64> {
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(summary)?)?;
    let processes = summary["processes"].as_array().context("the summary")?;
    let lost = processes.iter().map(|process| process["lost"].as_u64());
    lost.sum::<Option<u64>>().context("lost events")
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
