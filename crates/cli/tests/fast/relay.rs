//! Recordings that are sent to a relay: each event is there once, whatever breaks (E8, A10, D3).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::disk::Disk;
use super::programs::write;
use super::run::{Run, VARIABLE, assert_success};
use super::trace;
use usertrace::fake::process::{child, wait};
use usertrace_ctf::recording::{RELAY_NOTE, RUNNING, TraceLocation, WRITE_NOW};
use usertrace_ctf::unfinished;
use usertrace_os::files;
use usertrace_sys::clock::monotonic;
use usertrace_testing::babeltrace::{self, Lines};
use usertrace_testing::relayd::{self, LiveViewer, Relayd};
use usertrace_testing::wait::{until, within};

/// The spool of a recording, below the directory of a run.
pub(crate) fn spool(run: &Run) -> PathBuf {
    run.path().join("spool")
}

/// `usertrace record --relay` of one of the programs.
pub(crate) fn record(run: &Run, address: &str, options: &[&str], program: &str) -> Child {
    let mut command = recorder(&spool(run), options);
    let command = command.args(["--relay", address, "--"]);
    let command = command.arg(std::env::current_exe().unwrap());
    command.env(VARIABLE, program).spawn().unwrap()
}

/// `usertrace record` with pipes; the program is missing.
pub(crate) fn recorder(output: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(["record", "--trace", "web", "-o"]);
    command.arg(output).args(options).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `usertrace send` of what is in the spool.
pub(crate) fn send(run: &Run, address: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let command = command.arg("send").arg(spool(run)).arg(address);
    command.output().unwrap()
}

/// The counts that `steps` printed at its end.
pub(crate) struct Counts {
    written: u64,
    lost: u64,
}

/// Ends `steps`. Returns its counts, and the output of the recorder.
pub(crate) fn end(mut child: Child) -> (Counts, Output) {
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    let output = child.wait_with_output().unwrap();
    (counts(&output.stdout), output)
}

/// Kills the recorder, and ends `steps`, whose daemons go on.
fn end_after_recorder(mut recorder: Child) -> Counts {
    let mut stdin = recorder.stdin.take().unwrap();
    let mut stdout = recorder.stdout.take().unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    stdin.write_all(b"q").unwrap();
    let mut printed = Vec::new();
    stdout.read_to_end(&mut printed).unwrap();
    counts(&printed)
}

/// Waits until the spool is full, and the recorder tells the workers to leave events in the rings.
fn until_full(spool: &Path) {
    let place = spool.join(".usertrace/place");
    until("the recorder tells the workers to wait", || {
        fs::read_to_string(&place).is_ok_and(|text| text.contains("hold"))
    });
}

pub(crate) fn counts(stdout: &[u8]) -> Counts {
    let text = String::from_utf8_lossy(stdout);
    let last = text.lines().last().unwrap_or_default();
    let mut words = last.split_whitespace().map(|word| word.parse().unwrap());
    let (written, lost) = (words.next().unwrap(), words.next().unwrap());
    Counts { written, lost }
}

/// Asserts that `babeltrace2` reads each event of `steps` once, in the order of writing, and that
/// all others are counted.
pub(crate) fn assert_exact(directory: &Path, counts: &Counts) {
    let read = babeltrace::read(directory);
    for thread in 1..=2 {
        let of_thread = read.events.iter().filter(|of| of.field("thread") == thread);
        let wrong = of_thread.zip(0..).find(|(event, n)| event.field("n") != *n);
        assert!(wrong.is_none(), "gap or repetition: {wrong:?}");
    }
    let found = (read.events.len() as u64, read.discarded);
    assert_eq!(found, (counts.written, counts.lost));
    assert_eq!(read.discarded_packets, 0);
}

/// Small chunks, of which several wait.
pub(crate) const SMALL: &[&str] = &["--subbuf-size", "4096", "--relay-spool", "256k"];

/// Names of the chunks that the relay has begun.
fn chunks(relay: &Relayd) -> Vec<PathBuf> {
    let mut directories = vec![relay.output()];
    // Host, session, chunk.
    for _ in 0..3 {
        let below = directories.iter().flat_map(|of| trace::directories(of));
        directories = below.collect();
    }
    // Live sessions have a trace beside their chunks.
    directories.retain(|path| !path.ends_with(".live"));
    directories
}

/// Whether a finished chunk waits in the spool.
fn waits(run: &Run) -> bool {
    let directories = trace::directories(&spool(run));
    let names = directories.iter().map(|path| path.file_name().unwrap());
    let mut names = names.map(|name| name.to_str().unwrap());
    names.any(|name| name.starts_with("20") && !name.ends_with(".current"))
}

pub(crate) fn relay_has_each_event_once_and_nothing_waits() {
    let relay = Relayd::start();
    let run = Run::new();
    let child = record(&run, &relay.address(), SMALL, "steps");
    until("the relay has chunks", || chunks(&relay).len() >= 4);
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert_exact(&relay.output(), &counts);
    assert!(relayd::is_empty(&spool(&run)));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the relay has everything, in \""), "{said}");
    assert!(said.contains("/web-20"), "{said}");
    // The program's own reader, of the relay's directory with its indexes.
    let mut view = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let viewed = view.arg("view").arg(relay.output()).output().unwrap();
    assert_success(viewed.status, &viewed.stderr);
    let lines = viewed.stdout.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(lines as u64, counts.written);
}

pub(crate) fn killed_relay_gets_the_rest_when_it_is_back() {
    let mut relay = Relayd::start();
    let run = Run::new();
    let child = record(&run, &relay.address(), SMALL, "steps");
    for round in 1..=3 {
        until("the relay has chunks", || chunks(&relay).len() >= 2 * round);
        relay.kill();
        // Something is written meanwhile.
        until("a chunk waits", || waits(&run));
        relay.restart();
    }
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert_exact(&relay.output(), &counts);
    assert!(relayd::is_empty(&spool(&run)));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot send to tcp://127.0.0.1:"), "{said}");
}

pub(crate) fn absent_relay_leaves_events_in_the_rings_and_counts_the_rest() {
    let mut relay = Relayd::stopped();
    let run = Run::new();
    let child = record(&run, &relay.address(), SMALL, "steps");
    let full = || size(&spool(&run)) >= 256 << 10;
    until("the spool is full", full);
    // The recorder looks ten times a second, so the spool may become larger. Then nothing is read,
    // and the rings fill in some milliseconds.
    let mut last = (0, Instant::now());
    until("the spool does not grow any more", || {
        let size = size(&spool(&run));
        if size != last.0 {
            last = (size, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(1)
    });
    relay.restart();
    until("the spool has room", || !full());
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert!(counts.lost > 0);
    assert_exact(&relay.output(), &counts);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("events stay in the rings"), "{said}");
    assert!(said.contains("has room again"), "{said}");
}

/// Bytes in the files below a directory.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(file) if file.is_dir() => size(&entry.path()),
        Ok(file) => file.len(),
        // It was sent and removed.
        Err(_) => 0,
    });
    sizes.sum()
}

/// Requirements: D7
pub(crate) fn absent_relay_makes_only_blocking_writers_wait() {
    let mut relay = Relayd::stopped();
    let run = Run::new();
    let options = [SMALL, &["--block"]].concat();
    let child = record(&run, &relay.address(), &options, "steps");
    until("the spool is full", || size(&spool(&run)) >= 256 << 10);
    relay.restart();
    until("the relay has chunks", || chunks(&relay).len() >= 6);
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert_eq!(counts.lost, 0);
    assert_exact(&relay.output(), &counts);
}

pub(crate) fn killed_recorder_leaves_nothing_twice() {
    let relay = Relayd::start();
    let run = Run::new();
    let child = record(&run, &relay.address(), SMALL, "steps");
    until("the relay has chunks", || chunks(&relay).len() >= 3);
    let counts = end_after_recorder(child);
    for _ in 0..2 {
        let sent = send(&run, &relay.address());
        assert_success(sent.status, &sent.stderr);
        assert_exact(&relay.output(), &counts);
    }
}

/// The recorder has told the workers to leave events in the rings. Nobody reads them then, nor
/// tells the workers to go on.
pub(crate) fn killed_recorder_with_a_full_spool_lets_writers_go_on() {
    let mut relay = Relayd::stopped();
    let run = Run::new();
    let child = record(&run, &relay.address(), SMALL, "steps");
    until_full(&spool(&run));
    // Both threads write until their events are recorded.
    let counts = end_after_recorder(child);
    relay.restart();
    let sent = send(&run, &relay.address());
    assert_success(sent.status, &sent.stderr);
    assert_exact(&relay.output(), &counts);
}

/// Snapshots and live viewers trust the marks of traces. While workers leave events in the rings,
/// these are not written, whoever asks for them.
pub(crate) fn marks_tell_of_no_event_that_stays_in_a_ring() {
    let run = Run::new();
    let directory = spool(&run);
    let mut command = recorder(&directory, &["--rotate-size", "1M", "--"]);
    let command = command.arg(std::env::current_exe().unwrap());
    let mut child = command.env(VARIABLE, "late_program").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"w").unwrap();
    let running = directory.join(RUNNING);
    // Makes the workers write, until they say that they have, or for a while.
    let are_written = |limit: Duration| {
        let since = monotonic();
        let begun = Instant::now();
        while begun.elapsed() < limit {
            signal_all(&daemons(|file| file == running), WRITE_NOW);
            thread::sleep(Duration::from_millis(20));
            let chunks = trace::directories(&directory);
            let mut traces = chunks.iter().flat_map(|chunk| trace::directories(chunk));
            if traces.any(|trace| unfinished::written(&trace) >= Some(since)) {
                return true;
            }
        }
        false
    };
    assert!(are_written(Duration::from_secs(60)));
    // As a sender does when its spool is full.
    let lock = File::create(directory.join(RELAY_NOTE)).unwrap();
    files::lock(&lock).unwrap();
    let place = directory.join(".usertrace/place");
    let text = fs::read_to_string(&place).unwrap();
    fs::write(&place, text.clone() + "hold true\n").unwrap();
    // They read the file on request.
    assert!(are_written(Duration::from_secs(60)));
    stdin.write_all(b"ww").unwrap();
    let _ = lines.find(|line| line.as_ref().unwrap() == "written");
    assert!(!are_written(Duration::from_secs(1)));
    fs::write(&place, text).unwrap();
    assert!(are_written(Duration::from_secs(60)));
    fs::remove_file(directory.join(RELAY_NOTE)).unwrap();
    stdin.write_all(b"q").unwrap();
    drop(stdin);
    assert!(lines.last().unwrap().unwrap().starts_with("3 "));
    assert!(child.wait().unwrap().success());
}

pub(crate) fn spool_leaves_room_on_the_disk() {
    record_to_a_small_disk(|_, directory| until_full(directory));
}

/// The workers keep the room themselves: the recorder may be slow.
pub(crate) fn spool_leaves_room_while_the_recorder_is_stopped() {
    record_to_a_small_disk(|recorder, directory| {
        until("there is a chunk", || {
            !trace::directories(directory).is_empty()
        });
        let signal = |signo| {
            // SAFETY: sending a signal accesses no memory; the child was not waited for.
            unsafe { libc::kill(recorder.id().cast_signed(), signo) };
        };
        signal(libc::SIGSTOP);
        thread::sleep(Duration::from_secs(2));
        signal(libc::SIGCONT);
    });
}

/// Records to a disk with little room, whose relay does not answer until `fill` has filled it.
fn record_to_a_small_disk(fill: impl FnOnce(&Child, &Path)) {
    let mut relay = Relayd::stopped();
    let run = Run::new();
    let Some(disk) = Disk::new(&run, "12M") else {
        println!("skipped: only root can mount a file system");
        return;
    };
    let directory = disk.path().join("spool");
    let address = relay.address();
    let mut command = recorder(&directory, &["--relay", &address, "--"]);
    let command = command.arg(std::env::current_exe().unwrap());
    let child = command.env(VARIABLE, "steps").spawn().unwrap();
    fill(&child, &directory);
    relay.restart();
    until("the relay has chunks", || chunks(&relay).len() >= 6);
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("No space left"), "{said}");
    assert_exact(&relay.output(), &counts);
    assert!(relayd::is_empty(&directory));
}

pub(crate) fn signal_ends_the_wait_for_a_relay() {
    let relay = Relayd::stopped();
    let run = Run::new();
    let mut child = record(&run, &relay.address(), &["--relay-wait", "1h"], "ten");
    until("the program has ended", || {
        let chunks = trace::directories(&spool(&run));
        let mut traces = chunks.iter().flat_map(|chunk| trace::directories(chunk));
        traces.any(|trace| trace.join("metadata").exists() && !trace.join(".unfinished").exists())
    });
    // The first one may come before the wait, and end the recording. One that comes too soon after
    // others kills the recorder, so the pauses grow.
    let mut pause = Duration::from_millis(300);
    let mut ended = None;
    while ended.is_none() {
        // SAFETY: the child was not waited for, so the id is its own.
        let sent = unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        assert_eq!(sent, 0);
        ended = within(pause, || child.try_wait().unwrap());
        pause *= 4;
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("bytes wait for the relay in"), "{said}");
}

pub(crate) fn recording_without_a_relay_is_sent_later() {
    let relay = Relayd::start();
    let run = Run::new();
    let printed = run.success("flood", &[]);
    let lost = printed.trim().parse().unwrap();
    run.wait();
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    let command = command.arg("send").arg(run.path()).arg(relay.address());
    let sent = command.output().unwrap();
    assert_success(sent.status, &sent.stderr);
    let written = 200_000;
    assert_exact(&relay.output(), &Counts { written, lost });
}

pub(crate) fn hostile_relay_is_an_error_and_loses_nothing() {
    let relay = Relayd::start();
    for answer in [
        &b""[..],
        b"\0",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0xff; 4096],
    ] {
        let run = Run::new();
        let ports = [(); 2].map(|()| hostile(answer));
        let address = format!("tcp://127.0.0.1:{}:{}", ports[0], ports[1]);
        let begun = Instant::now();
        let child = record(&run, &address, &["--relay-wait", "1s"], "ten");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("bytes wait for the relay in \""), "{said}");
        assert!(said.contains("usertrace send "), "{said}");
        let before = babeltrace::lines(&relay.output()).lines.len();
        let sent = send(&run, &relay.address());
        assert_success(sent.status, &sent.stderr);
        let after = babeltrace::lines(&relay.output()).lines.len();
        assert_eq!(after, before + 10);
    }
}

/// Listens on a port, and answers each connection with these bytes; with none, it stalls. The
/// thread ends with the test.
fn hostile(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut socket in listener.incoming().flatten() {
            // The peer may be gone.
            let _ = socket.write_all(answer);
            kept.push(socket);
        }
    });
    port
}

pub(crate) fn killed_workers_leave_nothing_twice() {
    let relay = Relayd::start();
    let run = Run::new();
    let mut child = record(&run, &relay.address(), SMALL, "steps");
    let mut line = String::new();
    let mut stdout = child.stdout.take().unwrap();
    let mut byte = [0];
    while stdout.read(&mut byte).unwrap() > 0 && byte != *b"\n" {
        line.push(byte[0].into());
    }
    let mut killed = 0;
    while killed < 20 {
        let workers =
            daemons(|file| file.starts_with(spool(&run)) && file.ends_with(".unfinished"));
        signal_all(&workers, libc::SIGKILL);
        killed += workers.len();
        usertrace_testing::wait::spin(Duration::from_millis(20));
    }
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    let mut printed = Vec::new();
    stdout.read_to_end(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_success(output.status, &output.stderr);
    assert_exact(&relay.output(), &counts(&printed));
}

/// A program that writes when it is told to, in rounds, by two threads and a child process, and
/// which then waits for its end.
pub(crate) fn on_request() {
    let read = || {
        // The end of the input counts, too.
        let _ = std::io::stdin().read(&mut [0]);
    };
    read();
    let mut lost = 0;
    for round in 0..ROUNDS {
        let part = round * PART..(round + 1) * PART;
        thread::scope(|scope| {
            let part = &part;
            let threads = [1, 2].map(|thread| scope.spawn(move || write(thread, part.clone())));
            lost += threads.map(|of| of.join().unwrap()).iter().sum::<u64>();
        });
        assert_eq!(wait(child(|| assert_eq!(write(3, part), 0))), 0);
        thread::sleep(Duration::from_millis(100));
        // Chunks become full one after another, however slow the recorder is.
        if (round + 1).is_multiple_of(ROUNDS_OF_A_CHUNK) {
            until_chunk(1 + (round + 1) / ROUNDS_OF_A_CHUNK);
        }
    }
    read();
    println!("{LIVE} {lost}");
}

/// Waits until the recorder has begun a chunk.
fn until_chunk(number: u64) {
    let output = PathBuf::from(std::env::var_os("USERTRACE_OUTPUT").unwrap());
    until("a chunk is full", || {
        let named = TraceLocation::named(&output);
        named.is_ok_and(|named| named.number() >= number)
    });
}

/// A program that writes an event for each byte of its input. Its child process writes the second
/// one. Then it waits for its end.
pub(crate) fn late_child() {
    let read = || {
        // The end of the input counts, too.
        let _ = std::io::stdin().read(&mut [0]);
    };
    read();
    let lost = write(1, 0..1);
    read();
    assert_eq!(wait(child(|| assert_eq!(write(2, 0..1), 0))), 0);
    read();
    println!("2 {lost}");
}

/// The relay tells viewers of new streams only along with packets, and there are no others.
pub(crate) fn live_viewer_finds_a_process_while_others_are_idle() {
    let relay = Relayd::start();
    let run = Run::new();
    let mut child = record(&run, &relay.address(), &["--live"], "late_child");
    let mut viewer = attach(&relay);
    let mut stdin = child.stdin.take().unwrap();
    for events in 1..=2 {
        stdin.write_all(b"w").unwrap();
        viewer.wait_for_events(&relay, events);
    }
    child.stdin = Some(stdin);
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert_same(&viewer.end(), &relay.output());
    assert_exact(&relay.output(), &counts);
}

/// A program that starts another one, and passes its input on to that. Both write an event for each
/// byte.
pub(crate) fn late_program() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(VARIABLE, "late_part").stdin(Stdio::piped());
    let mut byte = [0];
    let mut read = || std::io::stdin().read(&mut byte).unwrap();
    assert_eq!((read(), write(1, 0..1)), (1, 0));
    read();
    let mut part = command.spawn().unwrap();
    let mut input = part.stdin.take().unwrap();
    read();
    input.write_all(b"w").unwrap();
    let lost = write(1, 1..2);
    read();
    drop(input);
    assert!(part.wait().unwrap().success());
    println!("3 {lost}");
}

/// The other program. It says when it is traced, and when it has written.
pub(crate) fn late_part() {
    usertrace::flush().unwrap();
    for said in ["traced", "written"] {
        println!("{said}");
        if std::io::stdin().read(&mut [0]).unwrap() == 1 {
            assert_eq!(write(2, 0..1), 0);
        }
    }
}

/// Daemons that have such a file open.
fn daemons(is_it: impl Fn(&Path) -> bool) -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_open = |pid: &i32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        comm.is_ok_and(|comm| comm == "usertrace-fast\n")
            && open.any(|of| fs::read_link(of.path()).is_ok_and(|to| is_it(&to)))
    };
    pids.filter(has_open).collect()
}

/// Signals the daemons of a program that this test started.
fn signal_all(daemons: &BTreeSet<i32>, signo: libc::c_int) {
    for &daemon in daemons {
        // SAFETY: sending a signal accesses no memory.
        unsafe { libc::kill(daemon, signo) };
    }
}

/// Viewers fail when an event comes that is older than the last one. So they wait for the event of
/// a program whose daemons have not begun its trace, while those of another one go on.
pub(crate) fn live_viewer_waits_for_a_program_without_a_trace() {
    let relay = Relayd::start();
    let run = Run::new();
    let mut child = record(&run, &relay.address(), &["--live"], "late_program");
    let mut viewer = attach(&relay);
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = |expected: &str| assert_eq!(lines.next().unwrap().unwrap(), expected);
    stdin.write_all(b"w").unwrap();
    viewer.wait_for_events(&relay, 1);
    let confirmations = spool(&run).join(".confirmations");
    // A program goes on before its daemons have set their names.
    let pair = |others: &BTreeSet<i32>| {
        let mut found = BTreeSet::new();
        until("a program has two daemons", || {
            found = &daemons(|file| file.starts_with(&confirmations)) - others;
            found.len() == 2
        });
        found
    };
    let others = pair(&BTreeSet::new());
    stdin.write_all(b"w").unwrap();
    said("traced");
    let late = pair(&others);
    signal_all(&late, libc::SIGSTOP);
    stdin.write_all(b"w").unwrap();
    said("written");
    thread::sleep(Duration::from_secs(3));
    signal_all(&late, libc::SIGCONT);
    viewer.wait_for_events(&relay, 3);
    stdin.write_all(b"q").unwrap();
    drop(stdin);
    let counts = counts(lines.next().unwrap().unwrap().as_bytes());
    let output = child.wait_with_output().unwrap();
    assert_success(output.status, &output.stderr);
    assert_same(&viewer.end(), &relay.output());
    assert_exact(&relay.output(), &counts);
    assert!(relayd::is_empty(&spool(&run)));
}

/// A viewer of the session of the only recording.
fn attach(relay: &Relayd) -> LiveViewer {
    until("there is a session", || relay.output().exists());
    until("the host has a directory", || {
        !relayd::is_empty(&relay.output())
    });
    let viewer = LiveViewer::start(relay, &host(relay), "web");
    until("the viewer has attached", || {
        relay.log().contains("Attach session ID")
    });
    viewer
}

/// Small chunks.
const LIVE_OPTIONS: &[&str] = &["--live", "--rotate-size", "128k"];
const ROUNDS: u64 = 20;
/// Rounds in which more events are written than a chunk has room for.
const ROUNDS_OF_A_CHUNK: u64 = 7;
/// Events of each writer in a round.
const PART: u64 = 500;
/// Events of `on_request`.
pub(crate) const LIVE: u64 = 3 * ROUNDS * PART;

pub(crate) fn live_viewer_reads_what_is_written() {
    let relay = Relayd::start();
    let run = Run::new();
    let mut child = record(&run, &relay.address(), LIVE_OPTIONS, "on_request");
    let mut viewer = attach(&relay);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"w").unwrap();
    // While the program waits, as rings are written and idle streams say so.
    viewer.wait_for_events(&relay, LIVE as usize);
    assert!(chunks(&relay).len() > 2, "{:?}", chunks(&relay));
    child.stdin = Some(stdin);
    let (counts, output) = end(child);
    assert_success(output.status, &output.stderr);
    assert_same(&viewer.end(), &relay.output());
    assert_exact(&relay.output(), &counts);
    assert!(relayd::is_empty(&spool(&run)));
}

/// The only host that the relay knows.
fn host(relay: &Relayd) -> String {
    let hosts = trace::directories(&relay.output());
    assert_eq!(hosts.len(), 1, "{hosts:?}");
    let host = hosts[0].file_name().unwrap();
    host.to_str().unwrap().to_owned()
}

/// Asserts that a viewer printed the events that a directory has. Times differ: the clock is
/// measured while the program runs.
pub(crate) fn assert_same(seen: &[String], directory: &Path) {
    let events = |lines: &[String]| -> Vec<String> {
        let events = lines.iter().map(|line| line.rsplit_once("thread = "));
        let mut events: Vec<_> = events.map(|of| of.unwrap().1.to_owned()).collect();
        events.sort();
        events
    };
    let Lines { lines, .. } = babeltrace::lines(directory);
    assert!(events(seen) == events(&lines), "the viewer read others");
}

pub(crate) fn invalid_combinations_are_refused() {
    for options in [
        &["--relay", "localhost"][..],
        &["--relay", "tcp://h", "--keep", "3", "--rotate-time", "1s"],
        &["--relay", "tcp://h", "--max-size", "1M"],
        &["--relay", "tcp://h", "--live", "--ctf", "2"],
        &["--relay", "tcp://h", "--live", "--flight"],
        &["--live"],
        &["--relay-spool", "1M"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let command = command.arg("record").args(options).args(["--", "true"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
    }
}
