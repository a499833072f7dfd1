//! Programs that cannot be traced among those that a program executes, which may be a shell or
//! another wrapper.
//!
//! Such programs do not load the tracer's libraries. The kernel tells what processes execute only
//! to those who have more rights than a recorder needs. So a thread of the recorder looks at the
//! processes below it from time to time. It misses programs that end before it looks.

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

/// Time between two looks, at least.
const LEAST: Duration = Duration::from_millis(10);
/// The thread pauses for so many times the processor time of its last look: so it takes 2% of a
/// processor. Beside other work a look lasts longer, but takes no more of it.
const PAUSE: u32 = 50;
/// Programs that are found: a recording can have any number.
const MOST: usize = 20;
/// How many programs the thread looks at: some programs make and execute new ones all the time.
const MOST_LOOKED_AT: usize = 10_000;

/// Looks at the processes below this one until it ends.
#[derive(Debug)]
pub(crate) struct Watch {
    end: Sender<()>,
    thread: Option<JoinHandle<Vec<Found>>>,
}

impl Watch {
    /// Starts to look, before a program is started. `preloads`: as for [`obstacle::of`].
    pub(crate) fn start(preloads: bool) -> Self {
        let (end, ended) = channel();
        // Signals are for the thread that passes them on.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let thread = thread::Builder::new().name("descendants".to_owned());
        let thread = thread.spawn(move || Descendants::new(preloads).watch(&ended));
        if let Ok(mask) = mask {
            // Cannot fail: the mask is one that the thread had.
            let _ = mask.thread_set_mask();
        }
        Self {
            end,
            // Without a thread nothing is found, and the recording is as good.
            thread: thread.ok(),
        }
    }

    /// What was found: each program once.
    pub(crate) fn end(self) -> Vec<Found> {
        drop(self.end);
        let found = self.thread.map(JoinHandle::join);
        found.and_then(Result::ok).unwrap_or_default()
    }
}

/// Processor time of the calling thread until now.
fn processor_time() -> Duration {
    // Cannot fail: each kernel has it since Linux 2.6.26.
    getrusage(UsageWho::RUSAGE_THREAD).map_or(Duration::ZERO, |usage| {
        let micros = (usage.user_time() + usage.system_time()).num_microseconds();
        Duration::from_micros(micros.unsigned_abs())
    })
}

/// What is known of the processes below this one.
#[derive(Debug)]
struct Descendants {
    preloads: bool,
    /// What each runs that was there at the last look; nothing if that is hidden.
    running: BTreeMap<u32, Option<PathBuf>>,
    looked_at: BTreeSet<PathBuf>,
    found: Vec<Found>,
}

impl Descendants {
    fn new(preloads: bool) -> Self {
        Self {
            preloads,
            running: BTreeMap::new(),
            looked_at: BTreeSet::new(),
            found: Vec::new(),
        }
    }

    fn watch(mut self, ended: &Receiver<()>) -> Vec<Found> {
        loop {
            let before = processor_time();
            self.look();
            let pause = (processor_time().saturating_sub(before) * PAUSE).max(LEAST);
            if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return self.found;
            }
        }
    }

    fn look(&mut self) {
        // Those whose parent is gone are no longer below this one.
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
                // It has ended.
                Err(_) => continue,
            };
            if before.get(&pid) != Some(&path) {
                self.look_at(pid, path.as_ref());
            }
            self.running.insert(pid, path);
        }
    }

    /// Looks at the program that a process runs, unless another process ran the same.
    fn look_at(&mut self, pid: u32, path: Option<&PathBuf>) {
        if self.found.len() == MOST || self.looked_at.len() == MOST_LOOKED_AT {
            return;
        }
        if path.is_some_and(|path| !self.looked_at.insert(path.clone())) {
            return;
        }
        let found = obstacle::of_process(pid, self.preloads);
        self.found
            .extend(found.filter(|found| !self.found.contains(found)));
    }
}
