//! The daemon that reads the rings and writes the traces.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use usertrace_ctf::recording::WRITE_NOW;
use usertrace_os::procfs;

use super::cpu_avoidance::CpuAvoidance;
use super::daemon::{TakeOver, Task, WatchdogWakeup, give_up, mark_at_death};
use super::header::{Entry, PROCESSES};
use super::output::{Drained, Recording, Until};
use super::place::Places;
use crate::clock::monotonic;
use crate::os::{futex, process};
use crate::writer::ReaderWakeup;

/// How long to wait before what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often that is tried when the process is gone and nothing can change any more but the disk.
const LAST_TRIES: u32 = 3;

/// How long to wait for a record that its writer is at: nobody tells when it is complete.
const WAIT: Duration = Duration::from_millis(20);

/// How long to doze after something was read, and how often in a row with nothing, before it sleeps
/// until it is woken.
const DOZE: Duration = Duration::from_millis(1);
const DOZES: u32 = 32;

struct Slot<'a> {
    recording: Recording<'a>,
    /// How often its process asked, when it was read last.
    asked: u32,
    failures: u32,
}

/// What somebody asked for since the last round.
#[derive(Clone, Copy)]
struct Asked {
    /// The traces of all processes.
    all: bool,
    /// What is in the rings now, and when that was.
    now: Option<u64>,
}

impl Slot<'_> {
    /// Reads the rings, and says whether the process has ended and its trace is complete.
    fn read(
        &mut self,
        entry: &Entry,
        gone: bool,
        asked: Asked,
        places: &mut Places<'_>,
    ) -> io::Result<(Drained, bool)> {
        match self.try_to_read(entry, gone, asked, places) {
            Ok(read) => {
                self.failures = 0;
                Ok(read)
            }
            Err(error) => {
                self.failures += 1;
                if gone && self.failures > LAST_TRIES {
                    // Nothing will change it. What was written is there.
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
        asked: Asked,
        places: &mut Places<'_>,
    ) -> io::Result<(Drained, bool)> {
        let count = entry.asked.load(Ordering::SeqCst);
        let asks = count != self.asked;
        // Nobody will be there to complete its trace later.
        let complete = gone || asks && entry.ends.load(Ordering::Relaxed) != 0;
        let wanted = asks || asked.now.is_some() || asked.all && self.recording.is_wanted();
        let until = match (complete, wanted) {
            (true, _) => Until::End,
            (_, true) => Until::Now,
            _ => Until::Filled,
        };
        let drained = self.recording.drain(until, places)?;
        self.asked = count;
        if let Some(now) = asked.now {
            self.recording.tell_written(now);
        }
        if complete {
            self.recording.finish()?;
        }
        Ok((drained, gone))
    }
}

/// Notes that somebody asks for what is in the rings now.
extern "C" fn on_request(signo: libc::c_int) {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    on_death(signo);
}

/// How often somebody asked.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Rings the worker_wakeup when the watchdog dies, so that the worker does not sleep then.
extern "C" fn on_death(_: libc::c_int) {
    let rung = NOTIFICATIONS.load(Ordering::Relaxed);
    // SAFETY: set to the worker_wakeup's before the handler was installed.
    if let Some(rung) = unsafe { rung.as_ref() } {
        rung.fetch_add(1, Ordering::SeqCst);
    }
}

static NOTIFICATIONS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// The life of a worker, in a child of the watchdog's. If that dies, a child of the worker's does
/// `take_over`.
pub(super) fn start(task: &Task, bell: &WatchdogWakeup, take_over: TakeOver) -> ! {
    let header = task.pool.header();
    task.pool.journal().pids[1].store(std::process::id(), Ordering::Relaxed);
    mark_at_death(&header.worker_wakeup.readers[1]);
    let rung = std::ptr::from_ref(&header.worker_wakeup.notifications).cast_mut();
    NOTIFICATIONS.store(rung, Ordering::Relaxed);
    // The watchdog may be this process's parent, or its child.
    // SAFETY: the handler does nothing but atomic access to what is there.
    unsafe {
        let handler = on_death as extern "C" fn(libc::c_int) as usize;
        libc::signal(libc::SIGCHLD, handler);
        libc::signal(libc::SIGUSR1, handler);
        let handler = on_request as extern "C" fn(libc::c_int) as usize;
        libc::signal(WRITE_NOW, handler);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1, 0, 0, 0);
    }
    run(task, bell, take_over)
}

/// Replaces the watchdog if it died. True: this is the process that does so.
fn guard(task: &Task) -> bool {
    let word = &task.pool.header().worker_wakeup.readers[0];
    let seen = word.load(Ordering::SeqCst);
    let mut died = seen & libc::FUTEX_OWNER_DIED != 0;
    let mut failed = false;
    loop {
        let mut status = 0;
        // SAFETY: writes to `status`.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
        if pid <= 0 {
            break;
        }
        // One that had not come as far as its mark.
        died |= pid as u32 == seen;
        failed |= give_up(task, status);
    }
    if !died || failed {
        return false;
    }
    // SAFETY: this process has one thread.
    match unsafe { process::fork(libc::SIGCHLD) } {
        Ok(0) => return true,
        Ok(pid) => {
            // Unless it was faster: then this is its mark, or what the kernel made of it.
            let _ = word.compare_exchange(seen, pid, Ordering::SeqCst, Ordering::SeqCst);
        }
        Err(_) => {}
    }
    false
}

/// Reads until the watchdog says that it is over.
fn run(task: &Task, bell: &WatchdogWakeup, take_over: TakeOver) -> ! {
    let (header, journal) = (task.pool.header(), task.pool.journal());
    let own = std::process::id();
    let mut worker = Worker::new(task);
    let mut idle = DOZES;
    loop {
        let rung = header.worker_wakeup.notifications.load(Ordering::SeqCst);
        if guard(task) {
            // Its copies of the worker's files would keep locks that are the worker's.
            drop(worker);
            take_over(task, bell, own);
        }
        let finish = journal.finish.load(Ordering::SeqCst) != 0;
        let result = worker.round(bell);
        if finish && result.is_ok() && worker.slots.is_empty() {
            super::spawn::exit(0);
        }
        let worker_wakeup = &header.worker_wakeup;
        match result {
            Ok(Drained::Some) => {
                idle = 0;
                rest(worker_wakeup, rung, ReaderWakeup::DOZES, Some(DOZE));
            }
            Ok(Drained::Nothing) if idle < DOZES => {
                idle += 1;
                rest(worker_wakeup, rung, ReaderWakeup::DOZES, Some(DOZE));
            }
            Ok(Drained::Nothing) => rest(worker_wakeup, rung, ReaderWakeup::SLEEPS, None),
            Ok(Drained::Waits) => rest(worker_wakeup, rung, ReaderWakeup::SLEEPS, Some(WAIT)),
            Err(_) => rest(worker_wakeup, rung, ReaderWakeup::SLEEPS, Some(RETRY)),
        }
    }
}

/// Sleeps until the worker_wakeup is rung, unless that happened since `rung` was read. `how`: what
/// writers are told.
fn rest(worker_wakeup: &ReaderWakeup, rung: u32, how: u32, at_most: Option<Duration>) {
    worker_wakeup.sleeping.store(how, Ordering::SeqCst);
    if worker_wakeup.notifications.load(Ordering::SeqCst) == rung {
        futex::wait(&worker_wakeup.notifications, rung, at_most);
    }
    worker_wakeup.sleeping.store(0, Ordering::SeqCst);
}

struct Worker<'a> {
    task: &'a Task,
    /// How many of [`REQUESTS`] were done.
    requests: u32,
    places: Places<'a>,
    slots: BTreeMap<usize, Slot<'a>>,
    aside: CpuAvoidance,
    hostname: Option<String>,
    /// The last error that was told.
    told: Option<String>,
}

impl<'a> Worker<'a> {
    fn new(task: &'a Task) -> Self {
        let mut places = Places::new(&task.output);
        let pool = task.pool;
        for slot in 0..pool.layout().slots.min(PROCESSES) {
            let trace = pool.slot_journal(slot).trace();
            places.advance(trace.map(|trace| trace.place).unwrap_or_default());
        }
        Self {
            task,
            requests: 0,
            places,
            slots: BTreeMap::new(),
            aside: CpuAvoidance::new(),
            hostname: procfs::hostname(),
            told: None,
        }
    }

    /// Looks at all processes.
    fn round(&mut self, bell: &WatchdogWakeup) -> io::Result<Drained> {
        let pool = self.task.pool;
        let header = pool.header();
        let asked_for_all = header.asked.load(Ordering::SeqCst);
        let requests = REQUESTS.load(Ordering::Relaxed);
        let asked = Asked {
            all: asked_for_all != header.answered.load(Ordering::Relaxed),
            // When somebody asks, that is until when all is written.
            now: (requests != self.requests).then(monotonic),
        };
        if asked.now.is_some() || self.slots.is_empty() {
            self.places.look();
        } else {
            self.places.look_again();
        }
        if header.wanted.load(Ordering::SeqCst) != header.looked.load(Ordering::SeqCst) {
            bell.ring();
        }
        let mut busy = Vec::new();
        for slot in self.slots.values_mut() {
            slot.recording.look(&mut busy);
        }
        self.aside.step(&busy);
        let (mut some, mut failed) = (Drained::Nothing, None);
        for slot in 0..pool.layout().slots.min(PROCESSES) {
            match self.visit(slot, asked, bell) {
                Ok(drained) => some = some.max(drained),
                Err(error) => failed = Some(error),
            }
        }
        self.tell(failed.as_ref());
        if asked.all {
            // Release: pairs with the load of who asked, and reads the error.
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

    /// Looks at the process of a slot: begins its trace, reads its rings, and frees the slot when
    /// it has ended.
    fn visit(&mut self, slot: usize, asked: Asked, bell: &WatchdogWakeup) -> io::Result<Drained> {
        let pool = self.task.pool;
        let (entry, journal) = (&pool.header().entries[slot], pool.journal());
        let (pid, live) = entry.process().unwrap_or((0, false));
        // SeqCst: what the process did before it was found gone, is seen.
        let gone = pid != 0 && journal.gone[slot].load(Ordering::SeqCst) == pid;
        // Relaxed: a worker that was killed stored it, before this one began.
        let is_complete = gone && journal.complete[slot].load(Ordering::Relaxed) == pid;
        if live && !is_complete && !self.slots.contains_key(&slot) {
            self.begin(slot)?;
            // The watchdog is to watch it.
            bell.ring();
        }
        if !live && !gone {
            return Ok(Drained::Nothing);
        }
        let (drained, has_ended) = match self.slots.get_mut(&slot) {
            Some(known) => known.read(entry, gone, asked, &mut self.places)?,
            // It never began, or its trace is complete.
            None => (Drained::Nothing, gone),
        };
        if !has_ended {
            return Ok(drained);
        }
        self.free(slot, pid);
        bell.ring();
        Ok(Drained::Some)
    }

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

    /// Gives the slot of a process that has ended, and whose trace is complete, to the next one.
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
            // Not as new, so not for another process.
            Err(_) => header.entries[slot].spend(),
        }
    }

    /// Says what goes wrong where somebody can find it: in the program's status, and in a file
    /// beside the traces.
    fn tell(&mut self, error: Option<&io::Error>) {
        let number = error.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        let header = self.task.pool.header();
        header.error.store(number, Ordering::Relaxed);
        header
            .worker_wakeup
            .stuck
            .store(error.is_some().into(), Ordering::Relaxed);
        let text = error.map(ToString::to_string);
        if text != self.told {
            // Where this cannot be written either, the status says it.
            if let Some(text) = &text {
                self.task.output.log(text);
            }
            self.told = text;
        }
    }
}
