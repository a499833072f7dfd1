//! Measures how fast events get into files when none may be lost: ours on the fallback, and
//! LTTng-UST's, in turns. Writers wait for room, rings are of the same size, and the time ends when
//! the last event is in a file of the same disk.
//!
//! Standard output has the result, as JSON. `bench/lttng/with-daemon` starts it. With the path of
//! `usertrace` as an argument, both send their events to LTTng's relay daemon on the loopback
//! device, which writes the files.

use std::env;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use usertrace_bench::lttng::{self, Session, Started};
use usertrace_bench::{Disk, ToDisk, median, now};
use usertrace_os::procfs;
use usertrace_testing::exited::{reap, size};
use usertrace_testing::relayd::Relayd;

/// Turns of each: half a minute, as neighbours on the machine are noisy for seconds.
const ROUNDS: usize = 9;
/// Events of 32 bytes in a turn: a gigabyte, so that what a start takes is little of it.
const EVENTS: u64 = 30_000_000;
/// Events of 4 bytes in the turn that only counts bytes.
const SMALL_EVENTS: u64 = 1_000_000;
/// Each ring has as many sub-buffers as LTTng-UST's, of the same size.
const SUBBUF_SIZE: &str = "1048576";
const SUBBUF_COUNT: &str = "16";

fn main() -> Result<()> {
    // The fallback's daemons become children of ours when the program has ended.
    // SAFETY: no memory is involved.
    let ret = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    ensure!(ret == 0, "PR_SET_CHILD_SUBREAPER");
    let output = lttng::output();
    fs::create_dir_all(&output)?;
    let relayed = env::args_os().nth(1).map(PathBuf::from);
    let relay = relayed.map(|usertrace| (usertrace, Relayd::start()));
    let ours_of = |output: &Path, events| match &relay {
        Some((usertrace, relay)) => ours_by_relay(output, usertrace, relay),
        None => ours(output, events),
    };
    let session = Session::BLOCKING;
    let theirs_of = |output: &Path, events| match &relay {
        Some((_, relay)) => {
            let address = relay.address().replacen("tcp", "net", 1);
            theirs(|| session.start_at_relay(&address), &relay.output(), events)
        }
        None => {
            let directory = output.join(format!("{}-0", session.name));
            theirs(|| session.start(output, 0), &directory, events)
        }
    };
    let ours = |output: &Path| ours_of(output, LARGE);
    let theirs = |output: &Path| theirs_of(output, LARGE);
    let mut runs: [Vec<Disk>; 2] = Default::default();
    // The first turn of each is not counted.
    for round in 0..=ROUNDS {
        let pair = if round % 2 == 0 {
            [ours(&output)?, theirs(&output)?]
        } else {
            let second = theirs(&output)?;
            [ours(&output)?, second]
        };
        for (runs, run) in runs.iter_mut().zip(pair) {
            runs.push(run);
        }
    }
    let small_bytes = match &relay {
        Some(_) => None,
        None => Some([
            ours_of(&output, SMALL)?.bytes,
            theirs_of(&output, SMALL)?.bytes,
        ]),
    };
    let [ours, theirs] = runs.map(|mut runs| runs.split_off(1));
    let ratio = |part: fn(&Disk) -> f64| {
        let pairs = ours.iter().zip(&theirs);
        median(
            &pairs
                .map(|(ours, theirs)| part(ours) / part(theirs))
                .collect::<Vec<_>>(),
        )
    };
    let result = ToDisk {
        faster: ratio(|run| run.events_per_second),
        consumer: ratio(|run| run.consumer_ns),
        usertrace: Disk::median(&ours),
        lttng: Disk::median(&theirs),
        small_bytes,
    };
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

/// The events of a turn.
#[derive(Clone, Copy)]
struct Load {
    count: u64,
    /// Bytes of the payload of one.
    payload: u64,
}

const LARGE: Load = Load {
    count: EVENTS,
    payload: 32,
};
const SMALL: Load = Load {
    count: SMALL_EVENTS,
    payload: 4,
};

fn ours(output: &Path, events: Load) -> Result<Disk> {
    let directory = output.join("usertrace");
    fs::create_dir(&directory)?;
    let [begun, _] = numbers(None, "usertrace", events, |command| {
        command
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_OUTPUT", &directory)
            .env("USERTRACE_MODE", "block")
            .env("USERTRACE_RINGS", "cpu")
            .env("USERTRACE_SUBBUF_SIZE", SUBBUF_SIZE)
            .env("USERTRACE_SUBBUF_COUNT", SUBBUF_COUNT);
    })?;
    measured(begun, daemons(None)?, &directory, events)
}

/// The processor time of the daemons that were left to this process: all its children but one.
fn daemons(other: Option<u32>) -> Result<Duration> {
    let mut time = Duration::ZERO;
    // A daemon's child is left to this process when the daemon ends.
    let next = || {
        let children = procfs::children(std::process::id());
        children.into_iter().find(|&child| Some(child) != other)
    };
    while let Some(child) = next() {
        let daemon = reap(Some(child))?.context("somebody else waited for it")?;
        time += daemon.processor;
    }
    Ok(time)
}

/// The recorder and the daemons are the consumer. It ends when the relay has confirmed everything.
fn ours_by_relay(output: &Path, usertrace: &Path, relay: &Relayd) -> Result<Disk> {
    let spool = output.join("spool");
    let mut recorder = Command::new(usertrace);
    recorder
        .args(["record", "--quiet", "--block", "--relay-wait", "1h"])
        .args(["--subbuf-size", SUBBUF_SIZE, "--subbuf-count", SUBBUF_COUNT])
        .args(["--relay", &relay.address(), "--output"])
        .arg(&spool)
        .arg("--");
    let [begun, recorder] = numbers(Some(recorder), "usertrace", LARGE, |command| {
        command
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_RINGS", "cpu");
    })?;
    let consumer = recorder + daemons(relay.pid())?;
    fs::remove_dir_all(&spool)?;
    measured(begun, consumer, &relay.output(), LARGE)
}

/// LTTng-UST's, in a session that writes to this directory.
fn theirs(start: impl FnOnce() -> Started, directory: &Path, events: Load) -> Result<Disk> {
    let before = consumerd()?;
    let session = start();
    let [begun, _] = numbers(None, "lttng", events, |command| {
        command
            .env("USERTRACE_BACKEND", "off")
            .env("LTTNG_UST_ALLOW_BLOCKING", "1");
    })?;
    // It returns when everything is written, or the relay has it.
    session.stop();
    let consumer = consumerd()?.saturating_sub(before);
    let measured = measured(begun, consumer, directory, events);
    let lost = session.lost();
    ensure!(lost == 0, "{lost} events were lost");
    measured
}

/// Runs the program, below a recorder if there is one. Returns when its first event was about to be
/// written, and the processor time of the recorder.
fn numbers(
    recorder: Option<Command>,
    who: &str,
    events: Load,
    set_up: impl FnOnce(&mut Command),
) -> Result<[Duration; 2]> {
    let path = env::current_exe()?.with_file_name("numbers");
    let mut command = match recorder {
        Some(mut recorder) => {
            recorder.arg(&path);
            recorder
        }
        None => Command::new(&path),
    };
    command
        .args([who, &events.count.to_string()])
        .args((events.payload == SMALL.payload).then_some("small"))
        .stdout(Stdio::piped());
    set_up(&mut command);
    let mut child = command
        .spawn()
        .with_context(|| path.display().to_string())?;
    let mut said = [[0; 8]; 2];
    let mut stdout = child.stdout.take().context("no output")?;
    let read = stdout.read_exact(said.as_flattened_mut());
    let exited = reap(Some(child.id()))?.context("somebody else waited for it")?;
    let status = exited.status;
    ensure!(status.success(), "numbers {who}: {status}");
    read.context("it did not say when it began, and what it took")?;
    let [begun, program] = said.map(|said| Duration::from_nanos(u64::from_ne_bytes(said)));
    // A recorder has waited for the program, so the program's time is in its own.
    Ok([begun, exited.processor.saturating_sub(program)])
}

fn measured(begun: Duration, consumer: Duration, directory: &Path, events: Load) -> Result<Disk> {
    let took = now().saturating_sub(begun);
    let bytes = size(directory)?;
    let Load { count, payload } = events;
    ensure!(bytes > count * payload, "{bytes} bytes of {count} events");
    fs::remove_dir_all(directory)?;
    Ok(Disk {
        events_per_second: count as f64 / took.as_secs_f64(),
        consumer_ns: consumer.as_secs_f64() * 1e9 / count as f64,
        bytes: bytes as f64 / count as f64,
    })
}

/// How much time of a processor LTTng's consumer daemons had so far; 0: there is none yet.
fn consumerd() -> Result<Duration> {
    // SAFETY: no memory is involved.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.cast_unsigned();
    let home =
        env::var_os("LTTNG_HOME").context("LTTNG_HOME is not set: bench/lttng/with-daemon")?;
    let mut sum = Duration::ZERO;
    for entry in fs::read_dir("/proc")? {
        let path: PathBuf = entry?.path();
        // A process that ends meanwhile is not it.
        let read = |file: &str| fs::read(path.join(file)).unwrap_or_default();
        let contains = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|at| at == part);
        // Others may have one of their own.
        let is_ours = contains(&read("cmdline"), b"lttng-consumerd")
            && contains(&read("environ"), home.as_encoded_bytes());
        if !is_ours {
            continue;
        }
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        // Behind the name, which may be anything: state is field 3, the times are 14 and 15.
        let fields: Vec<&str> = match stat.rsplit_once(')') {
            Some((_, rest)) => rest.split_whitespace().collect(),
            None => continue,
        };
        let time = |at: usize| {
            fields
                .get(at - 3)
                .and_then(|field| field.parse::<u64>().ok())
        };
        let (Some(user), Some(system)) = (time(14), time(15)) else {
            continue;
        };
        // One writes, and one does for it what needs other rights.
        sum += Duration::from_millis((user + system) * 1000 / ticks);
    }
    Ok(sum)
}
