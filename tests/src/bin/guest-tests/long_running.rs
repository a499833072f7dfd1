//! Long-running recorders: stalled ones, full disks, chunks, and the daemon (C5, D3, D7, E3, E7,
//! E8, F1).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use usertrace::Outcome;
use usertrace_consumer::finished_chunks;
use usertrace_testing::babeltrace::{self, Printed, Read};
use usertrace_testing::counts::counts;
use usertrace_testing::wait;
use usertrace_tests::child::Child;
use usertrace_tests::control::Trace;
use usertrace_tests::event::{self, by_thread, check_prefix};
use usertrace_tests::guest::{is_debug, scaled};
use usertrace_tests::random::Random;
use usertrace_tests::running::Running;
use usertrace_tests::shared::Shared;
use usertrace_tests::{cpu, program};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![stalled_recorder_loses_per_mode];

pub(crate) const ON_ONE_KERNEL: &[Case] = cases![
    restarted_and_rotating_daemon_loses_and_repeats_nothing,
    daemon_makes_tables_of_each_finished_chunk,
    view_follows_events_that_were_not_flushed,
    full_disk_loses_nothing_silently,
    recording_stopped_by_a_full_disk_can_be_continued,
    file_size_limit_acts_like_a_full_disk,
    old_chunks_are_removed_at_the_limits,
];

/// Declares events of which each goes to one trace, by the trace's filter.
macro_rules! of_mode {
    ($name:ident, $text:literal) => {
        usertrace::tracepoint! {
            /// One event of many.
            mod $name { provider: "slow", name: $text, loglevel: Info, fields: { thread: u32, number: u64 } }
        }
    };
}
of_mode!(discard, "discard");
of_mode!(overwrite, "overwrite");
of_mode!(block, "block");

const MODES: [&str; 3] = ["discard", "overwrite", "block"];

/// How long recorders stall. The rings are full after some seconds. The full tier waits a minute,
/// or less on a slow kernel.
fn a_while() -> Duration {
    Duration::from_secs(counts(20, if is_debug() { 20 } else { 60 }))
}

/// How many events a thread writes before it sleeps.
const AT_ONCE: u64 = 4;

/// How many events a thread has written.
pub(crate) struct WriterCounts {
    recorded: Shared,
    lost: Shared,
    /// The longest time of one event, in microseconds.
    longest: Shared,
}

impl WriterCounts {
    pub(crate) fn new() -> Self {
        Self {
            recorded: Shared::new(),
            lost: Shared::new(),
            longest: Shared::new(),
        }
    }

    fn get(of: &Shared) -> u64 {
        of.get().load(Ordering::Relaxed)
    }

    /// Writes an event per millisecond, in groups, until `stop` is set: on an emulated processor, a
    /// sleep costs as much as many events. Only recorded events have numbers.
    fn write(&self, stop: &AtomicU64, event: impl Fn(u64) -> Outcome) {
        // All events of a trace go to one ring.
        cpu::pin(0);
        let mut number = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            for _ in 0..AT_ONCE {
                let begun = Instant::now();
                match event(number) {
                    Outcome::Recorded => number += 1,
                    Outcome::Lost => {
                        self.lost.get().fetch_add(1, Ordering::Relaxed);
                    }
                    Outcome::Off => {}
                }
                let took = begun.elapsed().as_micros() as u64;
                self.longest.get().fetch_max(took, Ordering::Relaxed);
            }
            self.recorded.get().store(number, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(AT_ONCE));
        }
    }
}

/// Starts a child whose threads write [`event::numbered`] until `stop` is set.
pub(crate) fn writers(stop: &Shared, written: &[WriterCounts]) -> Child {
    let mut child = Child::spawn(|link| {
        event::attach();
        link.send(0);
        std::thread::scope(|scope| {
            for (thread, written) in written.iter().enumerate() {
                let stop = stop.get();
                scope.spawn(move || {
                    written.write(stop, |number| event::write(thread as u32, number));
                });
            }
        });
    });
    child.link.receive();
    child
}

/// Checks that each recorded event is there once, and that the trace counts the lost ones.
pub(crate) fn check(read: &Read, written: &[WriterCounts]) {
    let threads = by_thread(read.events.iter().map(Printed::numbered));
    for (thread, written) in written.iter().enumerate() {
        let numbers = threads.get(&(thread as u32)).map_or(&[][..], Vec::as_slice);
        let recorded = WriterCounts::get(&written.recorded);
        assert_eq!(check_prefix(numbers), recorded, "thread {thread}");
    }
    let lost: u64 = written
        .iter()
        .map(|written| WriterCounts::get(&written.lost))
        .sum();
    assert_eq!(read.discarded, lost);
    println!("{} events, {lost} lost", read.events.len());
}

pub(crate) fn signal(running: &Running, signal: Signal) {
    let pid = Pid::from_raw(running.0.id().cast_signed());
    kill(pid, signal).expect("it runs");
}

pub(crate) fn usertrace(arguments: &[&str], output: &Path) -> Command {
    let mut command = Command::new(program::path("usertrace"));
    command
        .args(arguments)
        .arg("--output")
        .arg(output)
        .stdin(Stdio::null())
        .env_remove("NOTIFY_SOCKET");
    command
}

/// A file with a program's standard error.
pub(crate) struct StderrLog(PathBuf);

impl StderrLog {
    pub(crate) fn by(command: &mut Command, path: PathBuf) -> Self {
        command.stderr(File::create(&path).expect("a file"));
        Self(path)
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("the file")
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.text().matches(what).count()
    }
}

/// Waits until a recorder tries again to write to a full disk, as it does once a second.
fn wait_for_another_try(recorder: &Running) {
    let path = format!("/proc/{}/io", recorder.0.id());
    let calls = || -> u64 {
        let text = fs::read_to_string(&path).expect("its system calls");
        let line = text.lines().find_map(|line| line.strip_prefix("syscw: "));
        line.and_then(|calls| calls.parse().ok())
            .unwrap_or_else(|| panic!("{text}"))
    };
    // One call may be that of the recorder's message.
    let before = calls();
    wait::until("it tries again", || calls() > before + 1);
}

pub(crate) fn consumed(trace: &Trace) -> u64 {
    trace.stats().rings.iter().map(|ring| ring.consumed).sum()
}

/// Checks the trace of a stalled recorder, and its summary, by the mode of the trace.
fn check_mode(mode: &str, output: &Path, written: &WriterCounts) {
    let recorded = WriterCounts::get(&written.recorded);
    let text = fs::read(output.with_extension("json")).expect("the summary");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let says = |what: &str| json["processes"][0][what].as_u64().expect("a number");
    let read = babeltrace::read(output);
    let numbers: Vec<_> = read
        .events
        .iter()
        .map(|event| event.field("number"))
        .collect();
    let (lost, count) = (WriterCounts::get(&written.lost), numbers.len() as u64);
    println!(
        "{mode}: {} recorded, {count} read, {lost} lost, {} overwritten",
        recorded,
        says("overwritten")
    );
    assert!(numbers.is_sorted_by(|a, b| a < b), "{mode}");
    assert_eq!((says("events"), says("lost")), (count, lost), "{mode}");
    assert_eq!(
        (read.discarded, read.discarded_packets),
        (lost, says("overwritten")),
        "{mode}"
    );
    assert_eq!((says("damaged"), says("holes")), (0, 0), "{mode}");
    match mode {
        "overwrite" => {
            assert_eq!((lost, numbers.last()), (0, Some(&(recorded - 1))));
            // Of whole sub-buffers, but for the one that was being read.
            let missing = recorded - count;
            let room = |records: u64| records * event::RECORD_LEN as u64;
            let overwritten = says("overwritten");
            assert!(overwritten > 10 && room(missing) <= overwritten * 4096);
            // A header, a pad, and a full time stamp are no records.
            assert!(
                room(missing) >= (overwritten - 1) * (4096 - 100),
                "{missing} in {overwritten}"
            );
        }
        _ => {
            assert_eq!(check_prefix(&numbers), recorded, "{mode}");
            assert_eq!(says("overwritten"), 0);
            let longest = Duration::from_micros(WriterCounts::get(&written.longest));
            if mode == "block" {
                assert_eq!(lost, 0);
                assert!(longest > a_while() / 2, "{longest:?}");
            } else {
                assert!(lost > 1000, "{lost}");
                assert!(longest < a_while() / 2, "{longest:?}");
            }
        }
    }
}

/// Requirements: D7, E3, E7
fn stalled_recorder_loses_per_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let traces = MODES.map(|mode| {
        let trace = Trace::create(mode);
        trace.set_geometry("main", 4096, 8);
        trace.write("main/mode", mode).expect("mode");
        trace.write("filter", "0").expect("filter");
        trace
            .write("filter", &format!("slow:{mode}"))
            .expect("filter");
        trace.start();
        trace
    });
    let output = |mode: &str| directory.path().join(mode);
    let mut recorders = MODES.map(|mode| {
        let json = format!(
            "--json={}",
            directory.path().join(mode).with_extension("json").display()
        );
        let mut command = usertrace(
            &["record", "--quiet", "--trace", mode, &json],
            &output(mode),
        );
        Running::start(&mut command)
    });
    let (stop, written) = (Shared::new(), MODES.map(|_| WriterCounts::new()));
    let mut child = Child::spawn(|link| {
        event::attach();
        link.send(0);
        let [of_discard, of_overwrite, of_block] = &written;
        let stop = stop.get();
        std::thread::scope(|scope| {
            scope.spawn(|| of_discard.write(stop, |n| usertrace::event!(discard, 0, n)));
            scope.spawn(|| of_overwrite.write(stop, |n| usertrace::event!(overwrite, 1, n)));
            scope.spawn(|| of_block.write(stop, |n| usertrace::event!(block, 2, n)));
        });
    });
    child.link.receive();
    for trace in &traces {
        wait::until("it is read", || consumed(trace) > 0);
    }
    let recorded = |mode: usize| WriterCounts::get(&written[mode].recorded);
    recorders
        .iter()
        .for_each(|recorder| signal(recorder, Signal::SIGSTOP));
    // Room for some thousand events: that takes seconds.
    let unread = |mode: usize| -> u64 {
        let rings = traces[mode].stats().rings.into_iter();
        let rings = rings.filter(|ring| ring.channel == "main");
        rings.map(|ring| ring.head - ring.consumed).sum()
    };
    wait::until("all rings were full for some time", || {
        WriterCounts::get(&written[0].lost) > 1000 && unread(1) > 20 * 4096 && unread(2) > 7 * 4096
    });
    // The stall begins here: the time until the rings are full depends on the machine.
    let begun = Instant::now();
    let mut waits = recorded(2);
    wait::until("who waits writes nothing", || {
        std::thread::sleep(Duration::from_secs(3));
        std::mem::replace(&mut waits, recorded(2)) == recorded(2)
    });
    wait::until("it has stood still for long enough", || {
        begun.elapsed() >= a_while()
    });
    assert_eq!(recorded(2), waits, "who waits writes nothing");
    recorders
        .iter()
        .for_each(|recorder| signal(recorder, Signal::SIGCONT));
    wait::until("it goes on", || recorded(2) > waits + 300);
    stop.get().store(1, Ordering::Relaxed);
    child.join();
    for (trace, recorder) in traces.iter().zip(&mut recorders) {
        wait::until("all was read", || trace.stats().processes.is_empty());
        signal(recorder, Signal::SIGINT);
        assert!(recorder.wait().success());
    }
    for (n, mode) in MODES.into_iter().enumerate() {
        check_mode(mode, &output(mode), &written[n]);
    }
}

/// A small disk.
struct Disk(PathBuf);

impl Disk {
    /// Creates a disk with room for the beginning of a trace.
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("a directory");
        let disk = Self(path);
        disk.mount(MsFlags::empty(), "size=256k");
        disk
    }

    fn mount(&self, flags: MsFlags, options: &str) {
        let mounted = mount(Some("none"), &self.0, Some("tmpfs"), flags, Some(options));
        mounted.expect("tmpfs");
    }

    fn path(&self) -> PathBuf {
        self.0.join("trace")
    }

    fn make_room(&self) {
        self.mount(MsFlags::MS_REMOUNT, "size=64m");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount(&self.0);
    }
}

/// Checks that the traces have, or count as lost, all events. The second one had room for
/// everything.
fn check_losses(written: &[WriterCounts], outputs: [&Path; 2]) {
    // An event is lost if it is for any trace; so only the one in which everything had room is
    // compared by numbers.
    let [small, large] = outputs.map(babeltrace::read);
    assert_eq!(large.discarded, 0);
    let attempts: u64 = written
        .iter()
        .map(|of| WriterCounts::get(&of.recorded) + WriterCounts::get(&of.lost))
        .sum();
    assert_eq!(large.events.len() as u64, attempts);
    assert_eq!(small.events.len() as u64 + small.discarded, attempts);
    assert!(small.discarded > 100);
    let told: u64 = written.iter().map(|of| WriterCounts::get(&of.lost)).sum();
    assert_eq!(small.discarded, told);
    println!("{attempts} events, {told} lost in one trace");
}

/// Requirements: C5, E7
fn full_disk_loses_nothing_silently() {
    let directory = tempfile::tempdir().expect("a directory");
    for chunks in [false, true] {
        let disk = Disk::new(directory.path().join("disk"));
        // One trace has room for the events of the meantime, the other has not.
        let traces = [("small", 4096, 4), ("large", 65536, 64)];
        let traces = traces.map(|(name, size, count)| Trace::started_with(name, size, count));
        let mut recorders = traces.each_ref().map(|trace| {
            let mut arguments = vec!["record", "--quiet", "--trace", trace.name()];
            if chunks {
                arguments.extend(["--rotate-size", "100k"]);
            }
            let output = disk.0.join(trace.name());
            let mut command = usertrace(&arguments, &output);
            let log = StderrLog::by(&mut command, directory.path().join(trace.name()));
            (Running::start(&mut command), log, output)
        });
        // The disk must not be full before both record.
        wait::until("both record", || {
            recorders.iter().all(|(.., output)| output.exists())
        });
        let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
        let writers = writers(&stop, &written);
        let told = "No space left on device";
        wait::until("both say that the disk is full", || {
            recorders.iter().all(|(_, log, _)| log.count(told) > 0)
        });
        let lost = || {
            traces[0]
                .stats()
                .rings
                .iter()
                .map(|ring| ring.lost)
                .sum::<u64>()
        };
        let before = lost();
        wait::until("what has no room is lost, and counted", || {
            lost() > before + 100
        });
        let try_again = || {
            for (recorder, ..) in &recorders {
                wait_for_another_try(recorder);
            }
        };
        try_again();
        let read = consumed(&traces[1]);
        try_again();
        assert_eq!(consumed(&traces[1]), read, "nothing is read");
        disk.make_room();
        let again = "there is room again";
        wait::until("both go on", || {
            recorders.iter().all(|(_, log, _)| log.count(again) > 0)
        });
        stop.get().store(1, Ordering::Relaxed);
        writers.join();
        for ((recorder, log, _), trace) in recorders.iter_mut().zip(&traces) {
            wait::until("all was read", || trace.stats().processes.is_empty());
            signal(recorder, Signal::SIGINT);
            assert!(recorder.wait().success(), "{}", log.text());
            assert_eq!(
                (log.count(told), log.count(again)),
                (1, 1),
                "{}",
                log.text()
            );
        }
        print!("chunks {chunks}: ");
        check_losses(&written, [&recorders[0].2, &recorders[1].2]);
        drop((recorders, disk));
        fs::remove_dir(directory.path().join("disk")).expect("unmounted");
    }
}

/// Requirements: C5
fn recording_stopped_by_a_full_disk_can_be_continued() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::new(directory.path().join("disk"));
    let trace = Trace::started_with("full", 65536, 64);
    let record = ["record", "--quiet", "--trace", "full"];
    let mut command = usertrace(&record, &disk.path());
    let log = StderrLog::by(&mut command, directory.path().join("said"));
    let mut recorder = Running::start(&mut command);
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    let writers = writers(&stop, &written);
    wait::until("it says that the disk is full", || {
        log.count("No space left") > 0
    });
    wait_for_another_try(&recorder);
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
    signal(&recorder, Signal::SIGINT);
    assert_eq!(recorder.wait().code(), Some(125), "{}", log.text());
    let text = log.text();
    let last = text.lines().last().expect("a line");
    assert!(
        last.contains(" bytes of 1 process") && last.contains("goes on"),
        "{last}"
    );
    // The trace so far can be read now.
    let before = babeltrace::read(&disk.path());
    assert!(!before.events.is_empty());
    disk.make_room();
    let mut recorder = Running::start(&mut usertrace(&record, &disk.path()));
    wait::until("all was read", || trace.stats().processes.is_empty());
    signal(&recorder, Signal::SIGINT);
    assert!(recorder.wait().success());
    let read = babeltrace::read(&disk.path());
    assert!(read.events.len() > before.events.len());
    check(&read, &written);
}

/// `ulimit -f`, whose signal kills programs that do not handle it.
///
/// Requirements: C5
fn file_size_limit_acts_like_a_full_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let trace = Trace::started_with("limited", 65536, 64);
    let mut command = usertrace(&["record", "--quiet", "--trace", "limited"], &output);
    let log = StderrLog::by(&mut command, directory.path().join("said"));
    let mut recorder = Running::start(&mut command);
    let limit = |bytes: u64| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        let pid = recorder.0.id().cast_signed();
        // SAFETY: a child of this process, and a structure that is only read.
        let set = unsafe {
            libc::prlimit(
                pid,
                libc::RLIMIT_FSIZE,
                &raw const limit,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(set, 0);
    };
    limit(100_000);
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    let writers = writers(&stop, &written);
    wait::until("it says so", || log.count("File too large") > 0);
    wait_for_another_try(&recorder);
    limit(libc::RLIM_INFINITY);
    wait::until("it goes on", || log.count("there is room again") > 0);
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
    wait::until("all was read", || trace.stats().processes.is_empty());
    signal(&recorder, Signal::SIGINT);
    assert!(recorder.wait().success(), "{}", log.text());
    assert_eq!(log.text().lines().count(), 2, "{}", log.text());
    check(&babeltrace::read(&output), &written);
}

/// The chunks that have tables in this directory, with the numbers of events that these have.
fn tables(root: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(root).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    // What is being written is elsewhere, and hidden.
    let recordings = paths.filter(|path| path.to_string_lossy().contains("/recording="));
    let chunks = recordings.flat_map(|path| fs::read_dir(path).expect("chunks"));
    let complete = chunks.filter_map(|chunk| {
        let path = chunk.expect("an entry").path();
        let summary = fs::read_to_string(path.join("_usertrace.json")).ok()?;
        let (_, events) = summary.split_once("\"events\":").expect("a number");
        let events = events.split(',').next().expect("a number");
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = name.strip_prefix("chunk=").expect("a chunk").to_owned();
        Some((name, events.parse().expect("a number")))
    });
    complete.collect()
}

/// A killed daemon's chunks get their tables from the next one, and none has them twice.
///
/// Requirements: D7, E8
fn daemon_makes_tables_of_each_finished_chunk() {
    let directory = tempfile::tempdir().expect("a directory");
    let (output, root) = (
        directory.path().join("out"),
        directory.path().join("tables"),
    );
    let root_option = root.to_str().expect("text");
    let trace = Trace::started_with("tables", 4096, 8);
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    // A chunk that nobody can read: somebody removed what was in it.
    let emptied = output.join("tables/20261122T150347Z-000000");
    fs::create_dir_all(&emptied).expect("a directory");
    // Chunks without tables, as a daemon of an earlier version would leave them.
    let daemon = Daemon::start(&["--rotate-size", "50k"], directory.path());
    let writing = writers(&stop, &written);
    let finished = || {
        finished_chunks(&output.join("tables"))
            .unwrap_or_default()
            .len()
    };
    wait::until("chunks are finished", || finished() >= 3);
    drop(daemon);
    let options = ["--rotate-size", "50k", "--parquet", root_option];
    let daemon = Daemon::start(&options, directory.path());
    wait::until("there are tables", || tables(&root).len() >= 3);
    // It is killed, perhaps while it writes some.
    drop(daemon);
    let mut daemon = Daemon::start(&options, directory.path());
    stop.get().store(1, Ordering::Relaxed);
    writing.join();
    wait::until("all was read", || trace.stats().processes.is_empty());
    drop(trace);
    wait::until("it says so", || {
        daemon.log.count("tables was removed: ") > 0
    });
    assert!(
        daemon
            .log
            .count("20261122T150347Z-000000 is not in the tables yet")
            == 1
    );
    fs::remove_dir(&emptied).expect("the directory");
    let chunks = finished_chunks(&output.join("tables")).expect("chunks");
    wait::until("all have tables", || tables(&root).len() >= chunks.len());
    signal(&daemon.running, Signal::SIGTERM);
    assert!(daemon.running.wait().success(), "{}", daemon.log.text());
    let counted = chunks.iter().map(|chunk| {
        let name = chunk.file_name().expect("a name").to_string_lossy();
        (
            name.into_owned(),
            babeltrace::read(chunk).events.len() as u64,
        )
    });
    assert_eq!(tables(&root), counted.collect());
    let hidden = fs::read_dir(&root).expect("it").count();
    assert_eq!(hidden, 1, "one recording, and nothing else");
}

/// A daemon, and its notifications to the service manager.
pub(crate) struct Daemon {
    pub(crate) running: Running,
    socket: UnixDatagram,
    pub(crate) log: StderrLog,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str], directory: &Path) -> Self {
        let path = directory.join("notify");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(wait::LIMIT)).expect("a time");
        let arguments = [&["daemon"], arguments].concat();
        let mut command = usertrace(&arguments, &directory.join("out"));
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "3000000");
        let log = StderrLog::by(&mut command, directory.join("said"));
        let running = Running::start(&mut command);
        let daemon = Self {
            running,
            socket,
            log,
        };
        daemon.hear("READY=1");
        daemon
    }

    /// Waits for a notification.
    fn hear(&self, what: &str) {
        let mut bytes = [0; 1000];
        let begun = Instant::now();
        loop {
            let len = self.socket.recv(&mut bytes).expect("it tells something");
            if bytes[..len].starts_with(what.as_bytes()) {
                return;
            }
            assert!(begun.elapsed() < wait::LIMIT, "waited in vain for {what}");
        }
    }
}

/// Checks the chunks of a trace in which each event was recorded or lost, and returns their names.
fn check_chunks(output: &Path, attempts: u64) -> Vec<String> {
    let chunks = fs::read_dir(output).expect("chunks");
    let names = chunks.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<_> = names.map(|name| name.expect("UTF-8")).collect();
    names.retain(|name| name != ".usertrace");
    let read = babeltrace::read(output);
    assert_eq!(
        read.events.len() as u64 + read.discarded,
        attempts,
        "{}",
        output.display()
    );
    println!(
        "{}: {} chunks, {} events, {} lost",
        output.display(),
        names.len(),
        read.events.len(),
        read.discarded
    );

    // Each chunk can be read alone, and no event is in two.
    let parts = names
        .iter()
        .map(|chunk| babeltrace::read(&output.join(chunk)));
    assert_eq!(
        parts.map(|part| part.events.len()).sum::<usize>(),
        read.events.len()
    );

    check_order(output, read.events.len());
    names
}

/// Checks that `usertrace view` prints so many events, each thread's in order.
fn check_order(output: &Path, count: usize) {
    let view = Command::new(program::path("usertrace"))
        .arg("view")
        .arg(output)
        .output();
    let view = view.expect("it runs");
    assert!(view.status.success());
    let text = String::from_utf8(view.stdout).expect("UTF-8");
    assert_eq!(text.lines().count(), count);
    let mut last = [None; 3];
    for line in text.lines() {
        let number = |name: &str| {
            let (_, value) = line.split_once(&format!(" {name} = ")).expect("a field");
            let end = value.find([',', ' ']).expect("an end");
            value[..end].parse::<u64>().expect("a number")
        };
        // A number that was not recorded everywhere is tried again.
        let (thread, number) = (number("thread") as usize, number("number"));
        assert!(last[thread].is_none_or(|last| last <= number), "{line}");
        last[thread] = Some(number);
    }
}

/// Requirements: C5, E8
fn restarted_and_rotating_daemon_loses_and_repeats_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("out");
    // Small, so that events are lost while nobody reads.
    let first = Trace::started_with("first", 4096, 8);
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    let mut second = None;
    let mut writing = None;
    let mut random = Random::new();
    // Each kind of end comes at least once, and both also after a request for a new chunk.
    let turns = scaled(12).max(6);
    for turn in 0..turns {
        let mut daemon = Daemon::start(&["--rotate-size", "100k"], directory.path());
        if turn == 0 {
            // One that comes later.
            second = Some(Trace::started_with("second", 65536, 64));
            writing = Some(writers(&stop, &written));
        }
        let before = consumed(&first);
        wait::until("it reads", || consumed(&first) > before);
        if turn % 4 == 1 {
            signal(&daemon.running, Signal::SIGHUP);
            daemon.hear("RELOADING=1\nMONOTONIC_USEC=");
            daemon.hear("READY=1");
        }
        if turn == 0 {
            daemon.hear("STATUS=2 traces: ");
            daemon.hear("WATCHDOG=1");
        }
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        if turn % 2 == 0 {
            drop(daemon);
        } else {
            signal(&daemon.running, Signal::SIGTERM);
            daemon.hear("STOPPING=1");
            assert!(daemon.running.wait().success(), "{}", daemon.log.text());
            assert!(daemon.log.text().contains("the traces go on"));
        }
    }
    assert!(fs::read_to_string(first.path().join("start")).is_ok_and(|text| text.trim() == "1"));
    let second = second.expect("created");
    let mut daemon = Daemon::start(&["--rotate-size", "100k"], directory.path());
    stop.get().store(1, Ordering::Relaxed);
    writing.expect("started").join();
    for trace in [&first, &second] {
        wait::until("all was read", || trace.stats().processes.is_empty());
    }
    // One is removed, the other is left.
    drop(first);
    wait::until("it says so", || daemon.log.count("first was removed: ") > 0);
    signal(&daemon.running, Signal::SIGTERM);
    assert!(daemon.running.wait().success());
    assert!(second.path().exists());
    assert!(output.join("second/.usertrace").exists() && !output.join("first/.usertrace").exists());
    let attempts: u64 = written
        .iter()
        .map(|of| WriterCounts::get(&of.recorded) + WriterCounts::get(&of.lost))
        .sum();
    let fewest = if turns < 12 { 2 } else { 6 };
    for name in ["first", "second"] {
        let names = check_chunks(&output.join(name), attempts);
        assert!(names.len() >= fewest, "{names:?}");
        let current = names.iter().filter(|name| name.ends_with(".current"));
        assert!(
            current.count() <= usize::from(name == "second"),
            "{names:?}"
        );
    }
    // The writers know how many events the small trace lost.
    let lost: u64 = written.iter().map(|of| WriterCounts::get(&of.lost)).sum();
    assert_eq!(babeltrace::read(&output.join("first")).discarded, lost);

    // The trace that is gone is closed when the next one begins.
    drop(second);
    let daemon = Daemon::start(&[], directory.path());
    assert!(!output.join("second/.usertrace").exists());
    drop(daemon);
}

/// The size of a recording, in bytes.
fn bytes(path: &Path) -> u64 {
    let text = Command::new("du")
        .args(["-sb", "--exclude=.usertrace"])
        .arg(path)
        .output()
        .expect("du");
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    text.split_whitespace()
        .next()
        .expect("a number")
        .parse()
        .expect("a number")
}

/// The names of a recording's complete chunks, in order.
fn complete_chunks(output: &Path) -> Vec<String> {
    let entries = fs::read_dir(output).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<_> = names.map(|name| name.expect("UTF-8")).collect();
    names.retain(|name| !name.starts_with('.') && !name.ends_with(".current"));
    names.sort();
    names
}

/// The number of a chunk, from its name.
fn chunk_number(name: &str) -> u64 {
    name.rsplit('-')
        .next()
        .expect("a number")
        .parse::<u64>()
        .expect("a number")
}

/// Requirements: F1
fn old_chunks_are_removed_at_the_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let (stop, written) = (Shared::new(), [(); 3].map(|()| WriterCounts::new()));
    let trace = Trace::started_with("kept", 65536, 64);
    let writers = writers(&stop, &written);
    let record = |name: &str, options: &[&str]| {
        let arguments = [&["record", "--quiet", "--trace", "kept"], options].concat();
        let output = directory.path().join(name);
        let mut command = usertrace(&arguments, &output);
        let log = StderrLog::by(&mut command, directory.path().join(format!("{name}.said")));
        (Running::start(&mut command), log, output)
    };

    for options in [
        ["--rotate-time", "1s", "--keep", "2"],
        ["--rotate-size", "50k", "--max-size", "400k"],
    ] {
        let name = options[0].trim_start_matches('-');
        let (mut recorder, log, output) = record(name, &options);
        wait::until("old ones go", || {
            complete_chunks(&output)
                .first()
                .is_some_and(|first| chunk_number(first) > 3)
        });
        signal(&recorder, Signal::SIGINT);
        assert!(recorder.wait().success(), "{}", log.text());
        trace.start();
        let names = complete_chunks(&output);
        let last = chunk_number(names.last().expect("a chunk"));
        assert!(
            names
                .iter()
                .map(|name| chunk_number(name))
                .eq(last + 1 - names.len() as u64..=last),
            "{names:?}"
        );
        match name {
            "rotate-time" => assert_eq!(names.len(), 2),
            _ => assert!(
                (100_000..420_000).contains(&bytes(&output)),
                "{}",
                bytes(&output)
            ),
        }
        // Each thread's numbers have a gap only for the time before this recorder.
        let read = babeltrace::read(&output);
        let threads = by_thread(read.events.iter().map(Printed::numbered));
        for numbers in threads.values() {
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
    }

    // Without chunks it ends.
    let (mut recorder, log, output) = record("ends", &["--max-size", "300k"]);
    assert!(recorder.wait().success(), "{}", log.text());
    assert_eq!(
        log.count("as many as there may be: the recording ends"),
        1,
        "{}",
        log.text()
    );
    assert!(
        (300_000..2_000_000).contains(&bytes(&output)),
        "{}",
        bytes(&output)
    );
    let read = babeltrace::read(&output);
    for numbers in by_thread(read.events.iter().map(Printed::numbered)).values() {
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }
    stop.get().store(1, Ordering::Relaxed);
    writers.join();
}

/// `view --follow` prints events that nothing has flushed, also where chunks end meanwhile.
///
/// The program writes the next events only when these were printed, and chunks end by their size.
/// So no later event and no end of a chunk brings them.
///
/// Requirements: C5, E8
fn view_follows_events_that_were_not_flushed() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace");
    let trace = Trace::started_with("followed", 65536, 8);
    let mut command = usertrace(
        &[
            "record",
            "--quiet",
            "--trace",
            "followed",
            "--rotate-size",
            "20k",
        ],
        &output,
    );
    let mut recorder = Running::start(&mut command);
    let mut child = Child::spawn(|link| {
        event::attach();
        link.send(0);
        let mut number = 0;
        loop {
            let count = link.receive();
            if count == 0 {
                break;
            }
            for _ in 0..count {
                assert_eq!(event::write(0, number), Outcome::Recorded);
                number += 1;
            }
        }
    });
    child.link.receive();
    wait::until("it is recorded", || output.exists());
    let mut view = Command::new(program::path("usertrace"));
    let view = view
        .args(["view", "--follow"])
        .arg(&output)
        .stdout(Stdio::piped());
    let mut view = Running::start(view);
    let mut lines = BufReader::new(view.0.stdout.take().expect("piped")).lines();
    let mut next = |number: u64| {
        let line = lines.next().expect("a line").expect("text");
        assert!(
            line.contains(&format!("number = {number} ")),
            "{number}: {line}"
        );
    };
    let mut times = Vec::new();
    let mut number = 0;
    // Single events first, then as many as end some chunks.
    for count in [1; 10].into_iter().chain([200; 100]) {
        let begun = Instant::now();
        child.link.send(count);
        (number..number + count).for_each(&mut next);
        number += count;
        times.push(begun.elapsed());
        if fs::read_dir(&output).expect("chunks").count() > 4 {
            break;
        }
    }
    let entries = fs::read_dir(&output).expect("chunks");
    let entries: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    assert!(entries.len() > 4, "{number} events: {entries:?}");
    times.sort();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("median {median:?}, most {most:?}");
    child.link.send(0);
    child.join();
    wait::until("all was read", || trace.stats().processes.is_empty());
    signal(&recorder, Signal::SIGINT);
    assert!(recorder.wait().success());
    assert!(lines.next().is_none());
    assert!(view.wait().success());
}
