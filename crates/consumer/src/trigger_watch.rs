//! Does what the triggers of a trace ask of a daemon: snapshots, and new chunks.
//!
//! The kernel counts what fires. A daemon compares its counts with a note of those that it has
//! answered, in the directory of the trace's snapshots. So what fired while no daemon ran is
//! answered by the next one, and what it answered is not answered again. An action follows each
//! firing, and at most one in an interval: it answers all firings before.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::Flock;
use usertrace_ctf::Version;
use usertrace_ctf::recording::{Chunk, DIRECTORY, RecordingNote, read_note, value};
use usertrace_sys::filter::TriggerAction;

use super::checkpoint::{create, lock, write_whole};
use super::chunks::{self, Limits};
use super::error::OutputError;
use super::recorder::{RecorderEvent, remove_old};
use super::trigger_event::{TriggerEvent, times};
use super::triggers::{FiredFile, FiredTrigger, TraceTrigger, WaitOutcome};
use super::{ControlFs, ControlFsError, SessionSummary, SnapshotError, TraceDir, snapshot};

/// Directory with the snapshots of all traces, in the output directory of a daemon.
const SNAPSHOTS: &str = "snapshots";
/// Name of the note with the counts that were answered.
const NOTE: &str = "triggers";
/// The file in a snapshot that says why it was written.
const REASON: &str = "trigger.txt";

/// What a daemon does when triggers fire.
#[derive(Clone, Debug)]
pub struct TriggerOptions {
    /// Least time between two snapshots of a trace, and between two chunks that triggers begin.
    pub interval: Duration,
    /// Number of snapshots to keep of each trace, the newest ones. The new one always stays.
    pub keep: Option<usize>,
    /// Maximum size in bytes of the snapshots of each trace. If exceeded, the oldest are removed.
    pub max_size: Option<u64>,
}

impl TriggerOptions {
    /// The limits of the other snapshots, when a new one is written.
    fn limits(&self) -> Limits {
        Limits {
            keep: self.keep.map(|keep| keep.saturating_sub(1)),
            max_size: self.max_size,
            ..Limits::default()
        }
    }
}

/// Counts of firings, by the number of the trigger.
type Counts = BTreeMap<u32, u64>;

/// When an action was done last.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Instant>,
    /// It was reported that the next one is postponed.
    is_postponed: bool,
}

impl Pace {
    /// How long to wait until the next one. `None` if it is due.
    fn left(&self, now: Instant, interval: Duration) -> Option<Duration> {
        let next = self.last?.checked_add(interval)?;
        next.checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    fn begin(&mut self, now: Instant) {
        (self.last, self.is_postponed) = (Some(now), false);
    }
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Job {
    thread: JoinHandle<Result<Written, SnapshotError>>,
    /// The counts that it answers.
    goal: Counts,
    firings: u64,
}

/// A snapshot that was written.
#[derive(Debug)]
struct Written {
    path: Option<PathBuf>,
    summary: SessionSummary,
    removed: Vec<RecorderEvent>,
}

/// What [`TriggerWatch::take_events`] returns.
#[derive(Debug, Default)]
pub(super) struct WatchEvents {
    pub(super) triggers: Vec<TriggerEvent>,
    /// Snapshots that were removed.
    pub(super) removed: Vec<RecorderEvent>,
    /// Processes that a snapshot does not have completely.
    pub(super) problems: Vec<String>,
}

/// Follows the triggers of one trace.
#[derive(Debug)]
pub(super) struct TriggerWatch {
    trace: TraceDir,
    of: RecordingNote,
    file: FiredFile,
    /// The directory of its snapshots.
    output: PathBuf,
    /// Held from the first action on.
    directory: Option<Flock<File>>,
    /// Something may have fired since the counts were read.
    is_ready: bool,
    /// Waiting for the file has failed, so the trace is gone.
    is_over: bool,
    /// The triggers that ask for something, with their counts.
    fired: Vec<(TraceTrigger, FiredTrigger)>,
    answered: Counts,
    snapshots: Pace,
    chunks: Pace,
    job: Option<Job>,
    events: WatchEvents,
    /// The last failure that was reported.
    failure: Option<String>,
}

impl TriggerWatch {
    /// Starts to follow the triggers of a trace, for a daemon with this output directory.
    ///
    /// # Errors
    /// If the trace has no such files, or the note cannot be read.
    pub(super) fn open(trace: TraceDir, output: &Path) -> Result<Self, WatchError> {
        let file = FiredFile::open(&trace)?;
        let of = trace.recorded()?;
        let output = output.join(SNAPSHOTS).join(&of.name);
        let note = output.join(DIRECTORY).join(NOTE);
        let answered = read_note(&note, |text| Some(answered(text, &of)));
        let answered = answered.map_err(OutputError::at(&note))?;
        Ok(Self {
            trace,
            of,
            file,
            output,
            directory: None,
            is_ready: true,
            is_over: false,
            fired: Vec::new(),
            answered: answered.unwrap_or_default(),
            snapshots: Pace::default(),
            chunks: Pace::default(),
            job: None,
            events: WatchEvents::default(),
            failure: None,
        })
    }

    /// The descriptor that is readable when something fired. `None` if the trace is gone.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_over).then(|| self.file.as_fd())
    }

    /// Takes what `poll` says of that descriptor.
    pub(super) fn polled(&mut self, outcome: WaitOutcome) {
        match outcome {
            WaitOutcome::Fired => self.is_ready = true,
            WaitOutcome::Removed => (self.is_ready, self.is_over) = (true, true),
            WaitOutcome::TimedOut => {}
        }
    }

    /// Whether the trace was removed, and nothing is being written of it.
    pub(super) fn is_gone(&self) -> bool {
        self.job.is_none() && self.file.is_removed()
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> WatchEvents {
        std::mem::take(&mut self.events)
    }

    /// Does what is due. `end_chunk` ends the current chunk of the recording, and returns whether
    /// there is one.
    pub(super) fn follow(
        &mut self,
        control_fs: &ControlFs,
        options: &TriggerOptions,
        end_chunk: impl FnOnce() -> bool,
    ) {
        if self
            .job
            .as_ref()
            .is_some_and(|job| job.thread.is_finished())
        {
            self.finish_job();
        }
        if std::mem::take(&mut self.is_ready) {
            match self.read() {
                Ok(()) => {}
                Err(_) if self.file.is_removed() => {}
                Err(error) => self.fail(TriggerEvent::Unreadable(error)),
            }
        }
        let now = Instant::now();
        let (firings, goal) = self.pending(TriggerAction::Snapshot);
        if firings > 0 && self.job.is_none() && self.is_due(TriggerAction::Snapshot, now, options) {
            self.snapshots.begin(now);
            if self.prepare() {
                self.start_job(control_fs, options, goal, firings);
            }
        }
        let (firings, goal) = self.pending(TriggerAction::Rotate);
        if firings > 0 && self.is_due(TriggerAction::Rotate, now, options) {
            self.chunks.begin(now);
            if self.prepare() {
                self.events.triggers.push(match end_chunk() {
                    true => TriggerEvent::ChunkEnds { firings },
                    false => TriggerEvent::NoChunk,
                });
                self.answer(goal);
            }
        }
    }

    /// Waits for a snapshot that is being written.
    pub(super) fn end(&mut self) {
        self.finish_job();
    }

    /// Reports that the trace was removed, if something was not answered.
    pub(super) fn report_removal(&mut self) {
        let firings = [TriggerAction::Snapshot, TriggerAction::Rotate]
            .map(|action| self.pending(action).0)
            .iter()
            .sum();
        if firings > 0 {
            self.events.triggers.push(TriggerEvent::TooLate { firings });
        }
    }

    /// Reads the counts, and what the triggers are.
    fn read(&mut self) -> Result<(), ControlFsError> {
        // In this order: of a trigger that is removed in between, nothing is asked any more.
        let Some(fired) = self.file.read()? else {
            return Ok(());
        };
        let mut triggers = self.trace.triggers()?;
        self.fired.clear();
        for counts in fired {
            if let Some(at) = triggers.iter().position(|of| of.number == counts.number) {
                self.fired.push((triggers.swap_remove(at), counts));
            }
        }
        Ok(())
    }

    /// How often triggers with an action fired and were not answered, and the counts after that.
    fn pending(&self, action: TriggerAction) -> (u64, Counts) {
        let (mut firings, mut goal) = (0u64, Counts::new());
        for (trigger, counts) in &self.fired {
            if trigger.action() != Some(action) {
                continue;
            }
            let before = self.answered.get(&trigger.number).copied().unwrap_or(0);
            // The kernel gives a number again after some time: then counting began anew.
            let new = counts.fired.checked_sub(before).unwrap_or(counts.fired);
            firings = firings.saturating_add(new);
            goal.insert(trigger.number, counts.fired);
        }
        (firings, goal)
    }

    /// Whether an action may be done now. If not, this is reported once.
    fn is_due(&mut self, action: TriggerAction, now: Instant, options: &TriggerOptions) -> bool {
        let pace = match action {
            TriggerAction::Rotate => &mut self.chunks,
            _ => &mut self.snapshots,
        };
        let Some(after) = pace.left(now, options.interval) else {
            return true;
        };
        // A failed action is tried again without a new firing, and its failure was reported.
        if !std::mem::replace(&mut pace.is_postponed, true) && self.failure.is_none() {
            self.events
                .triggers
                .push(TriggerEvent::Postponed { action, after });
        }
        false
    }

    /// Creates the directory of the snapshots, and takes its lock. Returns whether it has that.
    fn prepare(&mut self) -> bool {
        if self.directory.is_some() {
            return true;
        }
        let prepare = || -> io::Result<Flock<File>> {
            fs::create_dir_all(&self.output)?;
            let directory = lock(create(&self.output)?)?;
            // What a daemon left that was killed. Its snapshot will be written again.
            for (_, name, is_current) in chunks::chunks(&self.output)? {
                if is_current {
                    fs::remove_dir_all(self.output.join(name))?;
                }
            }
            chunks::finish_removals(&self.output.join(DIRECTORY))?;
            Ok(directory)
        };
        match prepare().map_err(OutputError::at(&self.output)) {
            Ok(directory) => self.directory = Some(directory),
            Err(error) => self.fail(TriggerEvent::NoDirectory(error)),
        }
        self.directory.is_some()
    }

    fn start_job(
        &mut self,
        control_fs: &ControlFs,
        options: &TriggerOptions,
        goal: Counts,
        firings: u64,
    ) {
        let (control_fs, name) = (control_fs.clone(), self.of.name.clone());
        let (output, limits, reason) = (self.output.clone(), options.limits(), self.reason());
        let write = move || write_snapshot(&control_fs, &name, &output, &limits, &reason);
        // A thread of its own: the rings of other processes must be read meanwhile.
        let thread = std::thread::Builder::new().name("snapshot".to_owned());
        match thread.spawn(write) {
            Ok(thread) => {
                self.job = Some(Job {
                    thread,
                    goal,
                    firings,
                });
            }
            Err(error) => self.fail(TriggerEvent::SnapshotAborted(error)),
        }
    }

    /// Describes the triggers that ask for a snapshot.
    fn reason(&self) -> String {
        let mut text = String::new();
        for (trigger, counts) in &self.fired {
            let before = self.answered.get(&trigger.number).copied().unwrap_or(0);
            if trigger.action() == Some(TriggerAction::Snapshot) && counts.fired != before {
                let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(counts.time);
                // Writing to a text never fails.
                let _ = writeln!(
                    text,
                    "{} {}\nfired {} so far, last {} for process {}",
                    trigger.number,
                    trigger.text,
                    times(counts.fired),
                    humantime::format_rfc3339_nanos(time),
                    counts.pid
                );
            }
        }
        text
    }

    /// Takes the result of a snapshot, which it waits for.
    fn finish_job(&mut self) {
        let Some(job) = self.job.take() else {
            return;
        };
        match job.thread.join() {
            // For example, as the disk is full: an empty snapshot answers nothing.
            Ok(Ok(written)) if written.path.is_none() && !written.summary.problems.is_empty() => {
                let problems = written.summary.problems;
                self.fail(TriggerEvent::SnapshotUnwritten(problems));
            }
            Ok(Ok(written)) => {
                self.failure = None;
                let events = written
                    .summary
                    .processes
                    .iter()
                    .map(|process| process.events);
                self.events.triggers.push(TriggerEvent::SnapshotWritten {
                    path: written.path,
                    firings: job.firings,
                    events: events.sum(),
                    processes: written.summary.processes.len(),
                });
                self.events.problems.extend(written.summary.problems);
                self.events.removed.extend(written.removed);
                self.answer(job.goal);
            }
            Ok(Err(error)) => self.fail(TriggerEvent::SnapshotFailed(error)),
            Err(_) => {
                let error = io::Error::other("it panicked");
                self.fail(TriggerEvent::SnapshotAborted(error));
            }
        }
    }

    /// Notes which firings are answered.
    fn answer(&mut self, goal: Counts) {
        self.answered.extend(goal);
        let is_there = |number: &u32| self.fired.iter().any(|(of, _)| of.number == *number);
        self.answered.retain(|number, _| is_there(number));
        let mut text = self.of.to_text();
        for (number, count) in &self.answered {
            let _ = writeln!(text, "{ANSWERED} {number} {count}");
        }
        let note = self.output.join(DIRECTORY).join(NOTE);
        match write_whole(&note, &text).map_err(OutputError::at(&note)) {
            Ok(()) => self.failure = None,
            Err(error) => self.fail(TriggerEvent::NotNoted(error)),
        }
    }

    /// Reports a failure, once for each distinct one.
    fn fail(&mut self, event: TriggerEvent) {
        let text = event.to_string();
        if self.failure.as_ref() != Some(&text) {
            self.failure = Some(text);
            self.events.triggers.push(event);
        }
    }
}

/// Why the triggers of a trace cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error(transparent)]
    ControlFs(#[from] ControlFsError),
    #[error(transparent)]
    Note(#[from] OutputError),
}

impl WatchError {
    /// Whether the trace or its files do not exist.
    pub(super) fn is_missing(&self) -> bool {
        match self {
            Self::ControlFs(ControlFsError::NoTrace(_)) => true,
            Self::ControlFs(ControlFsError::Io { source, .. }) => {
                source.kind() == io::ErrorKind::NotFound
            }
            _ => false,
        }
    }
}

/// The word before an answered count in the note.
const ANSWERED: &str = "answered";

/// Parses the answered counts of a note. None are, if it is of another trace.
fn answered(text: &str, of: &RecordingNote) -> Counts {
    let is_same = value(text, "generation") == Some(&of.generation.to_string())
        && value(text, "boot") == Some(&of.boot);
    let lines = text.lines().filter(|_| is_same);
    let counts = lines.filter_map(|line| {
        let (number, count) = line.strip_prefix(ANSWERED)?.trim().split_once(' ')?;
        Some((number.parse().ok()?, count.parse().ok()?))
    });
    counts.collect()
}

/// Writes a snapshot, and removes the oldest ones. Readers see only whole ones.
fn write_snapshot(
    control_fs: &ControlFs,
    name: &str,
    output: &Path,
    limits: &Limits,
    reason: &str,
) -> Result<Written, SnapshotError> {
    let output_error = OutputError::at(output);
    let last = chunks::last_number(output).map_err(&output_error)?;
    let chunk = Chunk::after(last, SystemTime::now());
    let path = output.join(chunk.current());
    let mut removed = Vec::new();
    let mut write = || -> Result<(Option<PathBuf>, SessionSummary), SnapshotError> {
        let summary = snapshot(control_fs, name, &path, Version::V1_8)?;
        if !summary.processes.is_empty() {
            fs::write(path.join(REASON), reason).map_err(OutputError::at(&path))?;
            // The new one is none of them yet.
            remove_old(output, limits, &mut removed);
        } else if !summary.problems.is_empty() {
            // Parts of processes that could not be written.
            fs::remove_dir_all(&path).map_err(&output_error)?;
            return Ok((None, summary));
        }
        let finished = chunks::finish_chunk(output, &chunk).map_err(&output_error)?;
        Ok((finished, summary))
    };
    let (finished, summary) = write().inspect_err(|_| {
        // The first error is more useful than a second one. The next daemon removes what is left.
        let _ = fs::remove_dir_all(&path);
    })?;
    Ok(Written {
        path: finished,
        summary,
        removed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: TriggerOptions = TriggerOptions {
        interval: Duration::from_secs(3600),
        keep: Some(2),
        max_size: None,
    };

    /// A plain directory in place of the control file system, with a trace that no process has.
    struct Fixture {
        directory: tempfile::TempDir,
        control_fs: ControlFs,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            for channel in ["main", "control"] {
                fs::create_dir_all(path.join("root/web").join(channel)).unwrap();
            }
            fs::write(path.join("root/abi"), "version 2\n").unwrap();
            let control_fs = ControlFs::open(&path.join("root")).unwrap();
            let fixture = Self {
                directory,
                control_fs,
            };
            fixture.trace(7);
            fixture.set(
                "triggers",
                "1 a then snapshot\n2 b then rotate\n3 c then stop\n",
            );
            fixture.fire([0, 0, 0]);
            fixture
        }

        fn set(&self, file: &str, text: &str) {
            let path = self.directory.path().join("root/web").join(file);
            fs::write(path, text).unwrap();
        }

        /// Makes it the trace of this generation.
        fn trace(&self, generation: u64) {
            self.set("stats", &format!("version 1\ngeneration {generation}\n"));
        }

        /// Sets how often the triggers 1, 2 and 3 have fired.
        fn fire(&self, fired: [u64; 3]) {
            let line = |(n, fired): (usize, u64)| {
                format!("{} matched 99 fired {fired} suppressed 0 last 5 6\n", n + 1)
            };
            let lines = fired.into_iter().enumerate().map(line);
            self.set("fired", &lines.collect::<String>());
        }

        fn out(&self) -> PathBuf {
            self.directory.path().join("out")
        }

        fn watch(&self) -> TriggerWatch {
            let trace = self.control_fs.trace("web").unwrap();
            TriggerWatch::open(trace, &self.out()).unwrap()
        }

        /// Lets a watch do what is due, as after `poll`. Returns what it says.
        fn follow(&self, watch: &mut TriggerWatch, options: &TriggerOptions) -> Vec<String> {
            watch.polled(WaitOutcome::Fired);
            watch.follow(&self.control_fs, options, || true);
            watch.end();
            let events = watch.take_events();
            assert!(events.problems.is_empty(), "{events:?}");
            events.triggers.iter().map(ToString::to_string).collect()
        }
    }

    const EMPTY: &str = "no snapshot: no process has written events";

    /// Requirements: C5
    #[test]
    fn each_firing_is_answered_once() {
        let fixture = Fixture::new();
        let mut watch = fixture.watch();
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [""; 0]);
        assert!(!fixture.out().exists(), "nothing fired");
        fixture.fire([1, 0, 5]);
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [EMPTY]);
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [""; 0]);
        fixture.fire([1, 3, 5]);
        let said = ["a new chunk begins (triggers fired 3 times)"];
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), said);
        // The next daemon.
        drop(watch);
        let mut watch = fixture.watch();
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [""; 0]);
        drop(watch);
        // What fired meanwhile.
        fixture.fire([2, 3, 5]);
        let mut watch = fixture.watch();
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [EMPTY]);
        drop(watch);
        // Another trace of the same name.
        fixture.trace(8);
        let mut watch = fixture.watch();
        assert_eq!(fixture.follow(&mut watch, &OPTIONS).len(), 2);
    }

    /// A firing within the interval is answered after it.
    ///
    /// Requirements: C5
    #[test]
    fn actions_keep_their_interval() {
        let fixture = Fixture::new();
        let mut watch = fixture.watch();
        fixture.fire([1, 1, 0]);
        assert_eq!(fixture.follow(&mut watch, &OPTIONS).len(), 2);
        fixture.fire([2, 1, 0]);
        let said = fixture.follow(&mut watch, &OPTIONS);
        let begin = "a trigger fired again, for which a snapshot follows in ";
        assert!(said.len() == 1 && said[0].starts_with(begin), "{said:?}");
        fixture.fire([9, 1, 0]);
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [""; 0], "said once");
        let now = TriggerOptions {
            interval: Duration::ZERO,
            ..OPTIONS
        };
        assert_eq!(fixture.follow(&mut watch, &now), [EMPTY]);
        assert_eq!(fixture.follow(&mut watch, &now), [""; 0]);
    }

    /// Requirements: C5
    #[test]
    fn trigger_with_a_number_from_before_is_new() {
        let fixture = Fixture::new();
        let mut watch = fixture.watch();
        fixture.fire([5, 0, 0]);
        let now = TriggerOptions {
            interval: Duration::ZERO,
            ..OPTIONS
        };
        assert_eq!(fixture.follow(&mut watch, &now), [EMPTY]);
        fixture.fire([1, 0, 0]);
        assert_eq!(fixture.follow(&mut watch, &now), [EMPTY]);
        fixture.fire([0, 0, 0]);
        assert_eq!(fixture.follow(&mut watch, &now), [""; 0]);
    }

    /// Requirements: C5
    #[test]
    fn failure_is_reported_once_and_tried_again() {
        let fixture = Fixture::new();
        let now = TriggerOptions {
            interval: Duration::ZERO,
            ..OPTIONS
        };
        let mut watch = fixture.watch();
        fs::create_dir(fixture.out()).unwrap();
        fs::write(fixture.out().join(SNAPSHOTS), "").unwrap();
        fixture.fire([1, 0, 0]);
        let said = fixture.follow(&mut watch, &now);
        let begin = "nothing is done for triggers, to be tried again: cannot write to ";
        assert!(said.len() == 1 && said[0].starts_with(begin), "{said:?}");
        assert_eq!(fixture.follow(&mut watch, &now), [""; 0]);
        fs::remove_file(fixture.out().join(SNAPSHOTS)).unwrap();
        assert_eq!(fixture.follow(&mut watch, &now), [EMPTY]);
    }

    /// Requirements: C5
    #[test]
    fn second_daemon_with_the_directory_does_nothing() {
        let fixture = Fixture::new();
        let (mut one, mut other) = (fixture.watch(), fixture.watch());
        fixture.fire([1, 0, 0]);
        assert_eq!(fixture.follow(&mut one, &OPTIONS), [EMPTY]);
        let said = fixture.follow(&mut other, &OPTIONS);
        assert!(
            said.len() == 1 && said[0].contains("another program"),
            "{said:?}"
        );
    }

    /// Requirements: C5
    #[test]
    fn leftovers_of_a_killed_daemon_are_removed() {
        let fixture = Fixture::new();
        let snapshots = fixture.out().join("snapshots/web");
        let names = [
            "20261128T090000Z-000001",
            "20261128T090001Z-000002.current",
            "mine",
        ];
        for name in names {
            fs::create_dir_all(snapshots.join(name).join("prog-1-1")).unwrap();
        }
        let mut watch = fixture.watch();
        fixture.fire([1, 0, 0]);
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [EMPTY]);
        let is_left = names.map(|name| snapshots.join(name).exists());
        assert_eq!(is_left, [true, false, true]);
    }

    /// Requirements: C5
    #[test]
    fn removal_of_the_trace_is_reported_if_something_was_asked() {
        let fixture = Fixture::new();
        let mut watch = fixture.watch();
        fixture.fire([1, 0, 0]);
        assert_eq!(fixture.follow(&mut watch, &OPTIONS), [EMPTY]);
        fixture.fire([3, 0, 0]);
        fixture.follow(&mut watch, &OPTIONS);
        assert!(!watch.is_gone());
        fs::remove_dir_all(fixture.directory.path().join("root/web")).unwrap();
        assert!(watch.is_gone());
        watch.report_removal();
        let said = watch.take_events().triggers;
        assert!(
            matches!(said[..], [TriggerEvent::TooLate { firings: 2 }]),
            "{said:?}"
        );
    }

    #[test]
    fn damaged_note_answers_nothing() {
        let of = RecordingNote {
            generation: 7,
            boot: "b".to_owned(),
            ..RecordingNote::default()
        };
        let note = of.to_text();
        let good = format!("{note}answered 1 5\nanswered 2\nanswered x 3\nanswered 9 1\n");
        assert_eq!(answered(&good, &of), Counts::from([(1, 5), (9, 1)]));
        for bad in ["", "answered 1 5\n", "generation 7\nboot c\nanswered 1 5\n"] {
            assert_eq!(answered(bad, &of), Counts::new());
        }
    }
}
