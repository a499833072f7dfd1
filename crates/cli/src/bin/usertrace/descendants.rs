//! Finds programs that cannot be traced among those that the recorded program executes. The
//! recorded program may be a shell or another wrapper.
//!
//! Such programs do not load the tracer's libraries. The kernel reports executed programs only to
//! processes with more rights than a recorder needs. So a thread of the recorder scans the
//! processes below it from time to time. It misses programs that end before a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::time::TimeValLike;
use usertrace_os::procfs;

use crate::obstacle::{self, Found};

/// Least time between two scans.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Pause after a scan, in multiples of the processor time that the scan took. So the thread uses at
/// most 2% of a processor. A scan takes longer on a busy machine, but no more processor time.
const PAUSE_FACTOR: u32 = 50;
/// Limit of reported programs: a recording can execute any number.
const MAX_FOUND: usize = 20;
/// Limit of inspected programs: some programs make and execute new ones all the time.
const MAX_INSPECTED: usize = 10_000;

/// Thread that scans the processes below this one until [`Watch::end`].
#[derive(Debug)]
pub(crate) struct Watch {
    end: Sender<()>,
    thread: Option<JoinHandle<Vec<Found>>>,
}

impl Watch {
    /// Starts the thread; call it before the program is started. `preloads`: as for
    /// [`obstacle::of`].
    pub(crate) fn start(preloads: bool) -> Self {
        let (end, ended) = channel();
        // Another thread passes signals on to the program, so this one blocks all of them.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let thread = thread::Builder::new().name("descendants".to_owned());
        let thread = thread.spawn(move || Descendants::new(preloads).watch(&ended));
        if let Ok(mask) = mask {
            // Cannot fail: this thread had that mask before.
            let _ = mask.thread_set_mask();
        }
        Self {
            end,
            // Without the thread, only the report is missing; the recording is complete.
            thread: thread.ok(),
        }
    }

    /// Ends the thread and returns what it found: each program once.
    pub(crate) fn end(self) -> Vec<Found> {
        drop(self.end);
        let found = self.thread.map(JoinHandle::join);
        found.and_then(Result::ok).unwrap_or_default()
    }
}

/// Processor time that the calling thread has used.
fn processor_time() -> Duration {
    // Cannot fail: RUSAGE_THREAD exists since Linux 2.6.26.
    getrusage(UsageWho::RUSAGE_THREAD).map_or(Duration::ZERO, |usage| {
        let micros = (usage.user_time() + usage.system_time()).num_microseconds();
        Duration::from_micros(micros.unsigned_abs())
    })
}

/// State of the scans: the processes below this one, and their programs.
#[derive(Debug)]
struct Descendants {
    preloads: bool,
    /// The program of each process of the last scan; `None` if the kernel hides it.
    running: BTreeMap<u32, Option<PathBuf>>,
    inspected: BTreeSet<PathBuf>,
    found: Vec<Found>,
}

impl Descendants {
    fn new(preloads: bool) -> Self {
        Self {
            preloads,
            running: BTreeMap::new(),
            inspected: BTreeSet::new(),
            found: Vec::new(),
        }
    }

    fn watch(mut self, ended: &Receiver<()>) -> Vec<Found> {
        loop {
            let before = processor_time();
            self.scan();
            let pause = (processor_time().saturating_sub(before) * PAUSE_FACTOR).max(MIN_PAUSE);
            if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return self.found;
            }
        }
    }

    fn scan(&mut self) {
        // A process whose parent ended is no longer in this one's tree, so earlier finds are kept.
        let mut pids: BTreeSet<u32> = self.running.keys().copied().collect();
        let mut open: Vec<u32> = pids.iter().copied().collect();
        open.push(process::id());
        while let Some(pid) = open.pop() {
            let children = procfs::children(pid).into_iter();
            open.extend(children.filter(|child| pids.insert(*child)));
        }
        let before = std::mem::take(&mut self.running);
        for pid in pids {
            let link = format!("/proc/{pid}/exe");
            let path = match fs::read_link(&link) {
                Ok(path) => Some(path),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
                // The process has ended.
                Err(_) => continue,
            };
            if before.get(&pid) != Some(&path) {
                self.inspect(pid, path.as_ref());
            }
            self.running.insert(pid, path);
        }
    }

    /// Inspects the program that a process runs, unless another process ran the same.
    fn inspect(&mut self, pid: u32, path: Option<&PathBuf>) {
        if self.found.len() == MAX_FOUND || self.inspected.len() == MAX_INSPECTED {
            return;
        }
        if path.is_some_and(|path| !self.inspected.insert(path.clone())) {
            return;
        }
        let found = obstacle::of_process(pid, self.preloads);
        self.found
            .extend(found.filter(|found| !self.found.contains(found)));
    }
}
