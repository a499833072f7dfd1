//! The worker: the daemon that reads the rings and writes the traces.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use usertrace_ctf::recording::WRITE_NOW;
use usertrace_os::procfs;

use super::cpu_avoidance::CpuAvoidance;
use super::daemon::{DaemonFiles, TakeOver, Task, mark_at_death, reaches_failure_limit};
use super::header::{Entry, PROCESSES};
use super::output::{Drained, Recording, Unread, Until};
use super::place::Places;
use crate::clock::monotonic;
use crate::os::{futex, process};
use crate::writer::ReaderWakeup;

/// How long to wait after an error before the worker writes again.
const RETRY: Duration = Duration::from_secs(1);
/// How often it tries again when the process has ended, so that only the disk can change.
const LAST_TRIES: u32 = 3;

/// How long to wait for a record that a writer has reserved: not every writer tells when it is
/// complete.
const WAIT: Duration = Duration::from_millis(20);

/// How long the worker dozes after a round. After [`DOZES`] rounds in which it read nothing, it
/// sleeps until a writer wakes it.
const DOZE: Duration = Duration::from_millis(1);
const DOZES: u32 = 32;

/// The trace of the process in one slot.
struct Slot<'a> {
    recording: Recording<'a>,
    /// The process's count of requests when the rings were read last.
    asked: u32,
    /// Attempts to write that failed in a row.
    failures: u32,
}

/// Requests that came since the last round.
#[derive(Clone, Copy)]
struct Requests {
    /// To write the traces of all processes.
    all: bool,
    /// To write all that is in the rings now, and the time of that.
    now: Option<u64>,
}

impl Slot<'_> {
    /// Reads the rings. Also returns whether the process has ended and its trace is complete.
    fn read(
        &mut self,
        entry: &Entry,
        gone: bool,
        requests: Requests,
        places: &mut Places<'_>,
    ) -> io::Result<(Drained, bool)> {
        match self.try_to_read(entry, gone, requests, places) {
            Ok(read) => {
                self.failures = 0;
                Ok(read)
            }
            Err(error) => {
                self.failures += 1;
                if gone && self.failures > LAST_TRIES {
                    // The disk will not recover. The trace keeps what was written so far.
                    self.recording.give_up(&error);
                    return Ok((Drained::Some, true));
                }
                Err(error)
            }
        }
    }

    fn try_to_read(
        &mut self,
        entry: &Entry,
        gone: bool,
        requests: Requests,
        places: &mut Places<'_>,
    ) -> io::Result<(Drained, bool)> {
        let count = entry.asked.load(Ordering::SeqCst);
        let asks = count != self.asked;
        // The daemons end with that process, and cannot complete its trace later.
        let complete = gone || asks && entry.ends.load(Ordering::Relaxed) != 0;
        let until = if complete {
            Until::End
        } else if asks || requests.now.is_some() {
            Until::Request
        } else if requests.all && self.recording.is_wanted() {
            Until::Now
        } else {
            Until::Filled
        };
        let drained = self.recording.drain(until, places)?;
        self.asked = count;
        if complete {
            self.recording.finish()?;
        }
        Ok((drained, gone))
    }
}

/// Handler of [`WRITE_NOW`]: a request to write all that is in the rings now.
extern "C" fn on_request(signo: libc::c_int) {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    on_death(signo);
}

/// Number of such requests.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Handler of signals that tell of the watchdog's death: notifies the worker, so that it does not
/// go to sleep.
extern "C" fn on_death(_: libc::c_int) {
    let seen = NOTIFICATIONS.load(Ordering::Relaxed);
    // SAFETY: `start` stored the address of the worker's futex before it installed the handler. The
    // pool stays mapped.
    if let Some(seen) = unsafe { seen.as_ref() } {
        seen.fetch_add(1, Ordering::SeqCst);
    }
}

/// The worker's futex, for signal handlers.
static NOTIFICATIONS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Runs a worker, in a child of the watchdog. If the watchdog dies, a child of the worker calls
/// `take_over`.
pub(super) fn start(task: &Task, files: &DaemonFiles, take_over: TakeOver) -> ! {
    let header = task.pool.header();
    task.pool.journal().pids[1].store(std::process::id(), Ordering::Relaxed);
    mark_at_death(&header.worker_wakeup.readers[1]);
    let seen = std::ptr::from_ref(&header.worker_wakeup.notifications).cast_mut();
    NOTIFICATIONS.store(seen, Ordering::Relaxed);
    // The watchdog may be this process's parent, or its child.
    // SAFETY: the handlers only access atomics, in this program and in the pool.
    unsafe {
        let handler = on_death as extern "C" fn(libc::c_int) as usize;
        libc::signal(libc::SIGCHLD, handler);
        libc::signal(libc::SIGUSR1, handler);
        let handler = on_request as extern "C" fn(libc::c_int) as usize;
        libc::signal(WRITE_NOW, handler);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1, 0, 0, 0);
    }
    run(task, files, take_over)
}

/// Forks a new watchdog if it died. True: this is the child, which is to become the watchdog.
fn replace_dead_watchdog(task: &Task) -> bool {
    let word = &task.pool.header().worker_wakeup.readers[0];
    let seen = word.load(Ordering::SeqCst);
    let mut died = seen & libc::FUTEX_OWNER_DIED != 0;
    let mut failed = false;
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes to `status` alone.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
        if pid <= 0 {
            break;
        }
        // It may have died before it marked itself.
        died |= pid as u32 == seen;
        failed |= reaches_failure_limit(task, status);
    }
    if !died || failed {
        return false;
    }
    // SAFETY: this process has one thread.
    match unsafe { process::fork(libc::SIGCHLD) } {
        Ok(0) => return true,
        Ok(pid) => {
            // If the child was faster, the word has its mark, or the kernel's mark of its death.
            let _ = word.compare_exchange(seen, pid, Ordering::SeqCst, Ordering::SeqCst);
        }
        Err(_) => {}
    }
    false
}

/// Reads the rings until the watchdog lets the worker end.
fn run(task: &Task, files: &DaemonFiles, take_over: TakeOver) -> ! {
    let (header, journal) = (task.pool.header(), task.pool.journal());
    let own = std::process::id();
    let mut worker = Worker::new(task, files);
    let mut idle = DOZES;
    loop {
        let seen = header.worker_wakeup.notifications.load(Ordering::SeqCst);
        if replace_dead_watchdog(task) {
            // Copies of the worker's files in this process would keep the worker's locks.
            drop(worker);
            take_over(task, files, own);
        }
        let finish = journal.finish.load(Ordering::SeqCst) != 0;
        let result = worker.round();
        if finish && result.is_ok() && worker.slots.is_empty() {
            super::spawn::exit(0);
        }
        let worker_wakeup = &header.worker_wakeup;
        match result {
            Ok(Drained::Some) => {
                idle = 0;
                rest(worker_wakeup, seen, ReaderWakeup::DOZES, Some(DOZE));
            }
            Ok(Drained::Nothing) if idle < DOZES => {
                idle += 1;
                rest(worker_wakeup, seen, ReaderWakeup::DOZES, Some(DOZE));
            }
            Ok(Drained::Nothing) => rest(worker_wakeup, seen, ReaderWakeup::SLEEPS, None),
            Ok(Drained::Waits) => rest(worker_wakeup, seen, ReaderWakeup::SLEEPS, Some(WAIT)),
            Err(_) => rest(worker_wakeup, seen, ReaderWakeup::SLEEPS, Some(RETRY)),
        }
    }
}

/// Sleeps until the worker is notified, unless that happened since `seen` was loaded. `how`: the
/// value of `sleeping` for writers.
fn rest(worker_wakeup: &ReaderWakeup, seen: u32, how: u32, at_most: Option<Duration>) {
    worker_wakeup.sleeping.store(how, Ordering::SeqCst);
    if worker_wakeup.notifications.load(Ordering::SeqCst) == seen {
        futex::wait(&worker_wakeup.notifications, seen, at_most);
    }
    worker_wakeup.sleeping.store(0, Ordering::SeqCst);
}

/// The state of a worker.
struct Worker<'a> {
    task: &'a Task,
    files: &'a DaemonFiles,
    /// How many of [`REQUESTS`] are done.
    requests: u32,
    places: Places<'a>,
    slots: BTreeMap<usize, Slot<'a>>,
    avoidance: CpuAvoidance,
    hostname: Option<String>,
    /// The last error that was reported.
    reported: Option<String>,
}

impl<'a> Worker<'a> {
    fn new(task: &'a Task, files: &'a DaemonFiles) -> Self {
        let mut places = Places::new(&task.output);
        let pool = task.pool;
        for slot in 0..pool.layout().slots.min(PROCESSES) {
            let trace = pool.slot_journal(slot).trace();
            places.advance(trace.map(|trace| trace.place).unwrap_or_default());
        }
        Self {
            task,
            files,
            requests: 0,
            places,
            slots: BTreeMap::new(),
            avoidance: CpuAvoidance::new(),
            hostname: procfs::hostname(),
            reported: None,
        }
    }

    /// Reads the rings of all processes once.
    fn round(&mut self) -> io::Result<Drained> {
        let pool = self.task.pool;
        let header = pool.header();
        let asked_for_all = header.asked.load(Ordering::SeqCst);
        let requests = REQUESTS.load(Ordering::Relaxed);
        let asked = Requests {
            all: asked_for_all != header.answered.load(Ordering::Relaxed),
            // All events up to this time are written then.
            now: (requests != self.requests).then(monotonic),
        };
        if asked.now.is_some() || self.slots.is_empty() {
            self.places.look();
        } else {
            self.places.look_again();
        }
        if header.wanted.load(Ordering::SeqCst) != header.looked.load(Ordering::SeqCst) {
            self.files.watchdog_wakeup.notify();
        }
        self.places.set_processes(self.slots.len());
        let mut busy = Vec::new();
        for slot in self.slots.values_mut() {
            slot.recording.look(&mut busy);
        }
        self.avoidance.step(&busy);
        let (mut some, mut failed) = (Drained::Nothing, None);
        for slot in 0..pool.layout().slots.min(PROCESSES) {
            match self.visit(slot, asked) {
                Ok(drained) => some = some.max(drained),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(now) = asked.now {
            self.confirm(now, failed.is_none());
        }
        self.report(failed.as_ref());
        if asked.all {
            // Release: pairs with the load of the process that asked, which then reads the error.
            header.answered.store(asked_for_all, Ordering::Release);
            futex::wake(&header.answered, u32::MAX >> 1);
        }
        self.requests = requests;
        if let Some(error) = failed {
            return Err(error);
        }
        if some == Drained::Some {
            pool.journal().failures.store(0, Ordering::Relaxed);
        }
        Ok(some)
    }

    /// Stores that everything up to `now` is written, after a round for all processes: one of them
    /// may have had no trace before, and readers must find that when they find these notes.
    /// `is_whole`: nothing failed.
    ///
    /// The mark of a trace does not wait for records that may never be complete, as snapshots do
    /// not; live viewers have to.
    fn confirm(&self, now: u64, is_whole: bool) {
        let recordings = self.slots.values().map(|slot| &slot.recording);
        let mut unread = Unread::Nothing;
        for recording in recordings {
            unread = unread.max(recording.unread());
            if recording.unread() != Unread::Complete {
                recording.mark_written(now);
            }
        }
        if let Some(confirmation) = &self.files.confirmation
            && is_whole
            && unread == Unread::Nothing
        {
            confirmation.confirm(now);
        }
    }

    /// Handles the process in a slot: begins its trace, reads its rings, and frees the slot when it
    /// has ended.
    fn visit(&mut self, slot: usize, requests: Requests) -> io::Result<Drained> {
        let pool = self.task.pool;
        let (entry, journal) = (&pool.header().entries[slot], pool.journal());
        let (pid, live) = entry.process().unwrap_or((0, false));
        // SeqCst: the stores of the process happened before the watchdog found that it had ended.
        let gone = pid != 0 && journal.gone[slot].load(Ordering::SeqCst) == pid;
        // Relaxed: a worker that was killed stored it before this one began.
        let is_complete = gone && journal.complete[slot].load(Ordering::Relaxed) == pid;
        if live && !is_complete && !self.slots.contains_key(&slot) {
            self.begin(slot)?;
            // The watchdog has to watch it.
            self.files.watchdog_wakeup.notify();
        }
        if !live && !gone {
            return Ok(Drained::Nothing);
        }
        let (drained, has_ended) = match self.slots.get_mut(&slot) {
            Some(known) => known.read(entry, gone, requests, &mut self.places)?,
            // It wrote nothing, or its trace is complete.
            None => (Drained::Nothing, gone),
        };
        if !has_ended {
            return Ok(drained);
        }
        self.free(slot, pid);
        self.files.watchdog_wakeup.notify();
        Ok(Drained::Some)
    }

    /// Begins to record the process in a slot.
    fn begin(&mut self, slot: usize) -> io::Result<()> {
        let Task {
            pool,
            output,
            clock,
        } = self.task;
        let recording = Recording::new(*pool, slot, output, clock, self.hostname.clone())?;
        let new = Slot {
            recording,
            asked: 0,
            failures: 0,
        };
        self.slots.insert(slot, new);
        Ok(())
    }

    /// Frees the slot of a process that has ended, and whose trace is complete, for another
    /// process.
    fn free(&mut self, slot: usize, pid: u32) {
        let pool = self.task.pool;
        let (header, journal) = (pool.header(), pool.journal());
        self.slots.remove(&slot);
        journal.complete[slot].store(pid, Ordering::Relaxed);
        let wiped = pool.wipe(slot);
        journal.gone[slot].store(0, Ordering::SeqCst);
        // Before another process with this id can have the slot.
        journal.complete[slot].store(0, Ordering::Relaxed);
        match wiped {
            Ok(()) => {
                header.entries[slot].free();
                header.freed.fetch_add(1, Ordering::SeqCst);
                futex::wake(&header.freed, u32::MAX >> 1);
            }
            // Its memory is not zeroed, so no other process may use it.
            Err(_) => header.entries[slot].spend(),
        }
    }

    /// Reports an error in the program's status, and in the log beside the traces.
    fn report(&mut self, error: Option<&io::Error>) {
        let number = error.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        let header = self.task.pool.header();
        header.error.store(number, Ordering::Relaxed);
        header
            .worker_wakeup
            .stuck
            .store(error.is_some().into(), Ordering::Relaxed);
        let text = error.map(ToString::to_string);
        if text != self.reported {
            // If the log cannot be written either, the status has the error.
            if let Some(text) = &text {
                self.task.output.log(text);
            }
            self.reported = text;
        }
    }
}
