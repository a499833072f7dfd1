//! The watchdog: the daemon that watches the traced processes and the worker.
//!
//! There are two daemons so that one may be killed: each notices the other's end at once and
//! replaces it. The watchdog has a descriptor of each process (`pidfd`), and learns of its end at
//! once. No descriptor tells when a process executes another program, so the watchdog checks that
//! from time to time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syscalls::Errno;
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LTT_SCOPE_THREAD};

use super::daemon::{DaemonFiles, Task, WatchdogWakeup, mark_at_death, reaches_failure_limit};
use super::header::{Entry, PROCESSES};
use super::journal::StartId;
use super::namespace;
use super::spawn::{self, Opened};
use super::worker;
use crate::os::process;
use usertrace_os::process::pidfd_open;
use usertrace_os::procfs::{device_and_inode, has_ended, start_ticks};

/// How long to wait for a child after its parent ended, if a fork began and the child did not
/// arrive: the child was killed before that, or the fork failed.
const FORK_GRACE: Duration = Duration::from_secs(10);
/// Interval of checks for events without a descriptor: at first, and when nothing happens for long.
const LOOKS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// The same interval if the kernel has no descriptors of processes.
const BLIND: Duration = Duration::from_millis(50);

/// A process that the watchdog watches.
struct Watched {
    /// Its id, as in its entry.
    pid: u32,
    /// The PID namespace of that id, as in its entry.
    namespace: u64,
    /// Its id in the watchdog's PID namespace.
    outer: u32,
    /// Its descriptor, which is readable when it has ended.
    pidfd: Option<OwnedFd>,
    /// Its address space (`/proc/PID/maps`), which reads as empty when it has executed another
    /// program.
    maps: Option<File>,
}

/// Device and inode of the pool, as in the mappings of each process that has it mapped.
fn identity(pool: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let start = range.and_then(|(start, _)| usize::from_str_radix(start, 16).ok());
        start == Some(pool)
    })?;
    device_and_inode(line)
}

/// The address space of a process, if that has the pool mapped; none if the answer is unknown.
///
/// # Errors
/// `ESRCH`: the process has executed another program.
fn address_space(pid: u32, pool: Option<&str>) -> Result<Option<File>, Errno> {
    let Ok(mut maps) = File::open(format!("/proc/{pid}/maps")) else {
        return Ok(None);
    };
    let mut text = String::new();
    let read = maps.read_to_string(&mut text);
    let (Ok(_), Some(pool)) = (read, pool) else {
        return Ok(Some(maps));
    };
    // Empty: its first thread has ended. Other threads may go on for long, in the same memory.
    if text.is_empty() {
        return Ok(None);
    }
    let mut lines = text.lines();
    if lines.any(|line| device_and_inode(line).as_deref() == Some(pool)) {
        Ok(Some(maps))
    } else {
        Err(Errno::ESRCH)
    }
}

impl Watched {
    /// Begins to watch the process of an entry; none if that has ended. `pool`: see [`identity`].
    fn new(
        entry: &Entry,
        pid: u32,
        known: Option<OwnedFd>,
        start_id: &StartId,
        pool: Option<&str>,
    ) -> Option<Self> {
        let namespace = entry.namespace();
        let candidates = namespace::candidates(pid, namespace).into_iter();
        // Programs can write any id: the right process has the pool mapped.
        let (outer, maps) = candidates
            .filter_map(|outer| Some((outer, address_space(outer, pool).ok()?)))
            .max_by_key(|(_, maps)| maps.is_some())?;
        let pidfd = match known.map_or_else(|| pidfd_open(outer), Ok) {
            Ok(fd) => Some(fd),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return None,
            Err(_) => None,
        };
        // Another process may have the id by now, and the descriptor would be of that one.
        if !start_id.is_same(outer, start_ticks(outer).unwrap_or(0)) {
            return None;
        }
        Some(Self {
            pid,
            namespace,
            outer,
            pidfd,
            maps,
        })
    }

    /// Whether the process has ended or executed another program, so that its rings do not change
    /// any more. `pool`: also check for what no descriptor tells; see [`identity`].
    fn is_gone(&mut self, pool: Option<Option<&str>>) -> bool {
        match (&self.pidfd, pool) {
            (Some(pidfd), None) => readable(pidfd.as_raw_fd()),
            (Some(pidfd), Some(pool)) => readable(pidfd.as_raw_fd()) || self.is_unmapped(pool),
            (None, pool) => has_ended(self.outer) || self.is_unmapped(pool.flatten()),
        }
    }

    /// Whether its address space with the pool is gone.
    fn is_unmapped(&mut self, pool: Option<&str>) -> bool {
        let mut byte = [0];
        match &self.maps {
            Some(maps) => matches!(maps.read_at(&mut byte, 0), Ok(0)),
            None => match address_space(self.outer, pool) {
                Ok(maps) => {
                    self.maps = maps;
                    false
                }
                Err(_) => true,
            },
        }
    }
}

/// Whether a descriptor is readable now.
fn readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the array has one element.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Runs the first watchdog. Returns only if it cannot start.
pub(super) fn start(task: &Task, opened: Opened) {
    spawn::reset_inherited();
    if task.pool.open_all().is_err() {
        return;
    }
    let Ok(watchdog_wakeup) = WatchdogWakeup::new() else {
        return;
    };
    let files = DaemonFiles {
        watchdog_wakeup,
        confirmation: opened.confirmation,
    };
    run(task, &files, opened.program, None);
}

/// Runs a watchdog that replaces the one of `worker`. See [`TakeOver`](super::daemon::TakeOver).
fn take_over(task: &Task, files: &DaemonFiles, worker: u32) -> ! {
    run(task, files, None, Some(worker))
}

/// Watches until no process is left. `program`: a descriptor of the process in slot 0, if there is
/// one. `worker`: the worker whose watchdog this one replaces.
fn run(task: &Task, files: &DaemonFiles, program: Option<OwnedFd>, worker: Option<u32>) -> ! {
    let (header, journal) = (task.pool.header(), task.pool.journal());
    journal.pids[0].store(std::process::id(), Ordering::Relaxed);
    mark_at_death(&header.worker_wakeup.readers[0]);
    let mut watchdog = Watchdog {
        task,
        files,
        pool: identity(task.pool.address()),
        watched: BTreeMap::new(),
        worker: Worker::new(worker.unwrap_or(0)),
        forks_until: None,
    };
    if worker.is_none() {
        watchdog.start_worker();
    }
    watchdog.scan(program);
    let main = &task.pool.layout().channels[LTT_CHANNEL_MAIN];
    let threads = main.scope == LTT_SCOPE_THREAD;
    let mut wait = *LOOKS.start();
    loop {
        if watchdog.is_over() {
            watchdog.end();
        }
        let notified = watchdog.wait(wait);
        wait = if notified {
            *LOOKS.start()
        } else {
            (wait * 2).min(*LOOKS.end())
        };
        // SeqCst: the watchdog marks all processes that ended before the request, then answers.
        let wanted = header.wanted.load(Ordering::SeqCst);
        watchdog.look(!notified);
        if !notified && threads {
            // The worker has to free rings of threads that have ended.
            header.worker_wakeup.notify();
        }
        watchdog.scan(None);
        header.looked.store(wanted, Ordering::SeqCst);
    }
}

/// The worker, as the watchdog knows it.
struct Worker {
    /// Its process id; 0: there is none.
    pid: u32,
    pidfd: Option<OwnedFd>,
}

impl Worker {
    fn new(pid: u32) -> Self {
        let pidfd = if pid == 0 { None } else { pidfd_open(pid).ok() };
        Self { pid, pidfd }
    }

    fn is_gone(&self) -> bool {
        match &self.pidfd {
            Some(pidfd) => readable(pidfd.as_raw_fd()),
            None => {
                let mut status = 0;
                // SAFETY: the kernel writes to `status` alone. (A zombie still has its id.)
                unsafe {
                    libc::waitpid(
                        self.pid as libc::pid_t,
                        &raw mut status,
                        libc::WNOHANG | libc::__WALL,
                    );
                    libc::kill(self.pid as libc::pid_t, 0) != 0
                }
            }
        }
    }
}

/// The state of a watchdog.
struct Watchdog<'a> {
    task: &'a Task,
    files: &'a DaemonFiles,
    /// See [`identity`].
    pool: Option<String>,
    /// Watched processes, by slot.
    watched: BTreeMap<usize, Watched>,
    worker: Worker,
    /// Until when to wait for children that may never come.
    forks_until: Option<Instant>,
}

impl Watchdog<'_> {
    /// Forks a worker.
    fn start_worker(&mut self) {
        // SAFETY: this process has one thread.
        match unsafe { process::fork(libc::SIGCHLD) } {
            Ok(0) => worker::start(self.task, self.files, take_over),
            Ok(pid) => self.worker = Worker::new(pid),
            // The next look tries again.
            Err(_) => self.worker = Worker::new(0),
        }
    }

    /// Begins to watch processes that are new.
    fn scan(&mut self, mut program: Option<OwnedFd>) {
        let pool = self.task.pool;
        for slot in 0..pool.layout().slots.min(PROCESSES) {
            let entry = &pool.header().entries[slot];
            let Some((pid, _)) = entry.process() else {
                self.watched.remove(&slot);
                continue;
            };
            // A process that had not stored its namespace yet may have been taken for another one.
            let namespace = entry.namespace();
            let is_it = |watched: &Watched| watched.pid == pid && watched.namespace == namespace;
            if self.watched.get(&slot).is_some_and(is_it) {
                continue;
            }
            let known = if slot == 0 { program.take() } else { None };
            let start_id = &pool.slot_journal(slot).process;
            match Watched::new(entry, pid, known, start_id, self.pool.as_deref()) {
                Some(watched) => {
                    self.watched.insert(slot, watched);
                }
                None => self.report_ended(slot, pid),
            }
        }
    }

    /// Finds processes that have ended, and replaces the worker if it has.
    fn look(&mut self, thoroughly: bool) {
        let pool = thoroughly.then_some(self.pool.as_deref());
        let watched = self.watched.iter_mut();
        let gone = watched.filter_map(|(slot, watched)| {
            let gone = watched.is_gone(pool);
            gone.then_some((*slot, watched.pid))
        });
        let gone: Vec<_> = gone.collect();
        for (slot, pid) in gone {
            self.report_ended(slot, pid);
        }
        if self.worker.is_gone() {
            // This process reaps it, unless it is not the parent.
            let status = process::wait(self.worker.pid);
            if status.is_ok_and(|status| reaches_failure_limit(self.task, status)) {
                self.task
                    .pool
                    .header()
                    .worker_wakeup
                    .gone
                    .store(1, Ordering::SeqCst);
                spawn::exit(1);
            }
            self.start_worker();
        }
    }

    /// Reports to the worker that a process has ended, so that it reads the rest of the slot.
    fn report_ended(&self, slot: usize, pid: u32) {
        let header = self.task.pool.header();
        // This comes first: after the next line, no watchdog comes here again for this process.
        header.entries[slot].mark_ended(pid);
        // SeqCst: pairs with the worker's load.
        if self.task.pool.journal().gone[slot].swap(pid, Ordering::SeqCst) != pid {
            header.worker_wakeup.notify();
        }
    }

    /// Waits for the end of a process or for a notification. False: the time was over.
    fn wait(&self, at_most: Duration) -> bool {
        let watched = self.watched.iter();
        let gone = &self.task.pool.journal().gone;
        // Processes that have ended, and whose slots the worker has not freed, would end each wait.
        let waiting =
            watched.filter(|(slot, watched)| gone[**slot].load(Ordering::SeqCst) != watched.pid);
        let mut blind = self.worker.pidfd.is_none();
        let mut fds = vec![self.files.watchdog_wakeup.as_raw_fd()];
        fds.extend(self.worker.pidfd.as_ref().map(AsRawFd::as_raw_fd));
        for (_, watched) in waiting {
            match &watched.pidfd {
                Some(pidfd) => fds.push(pidfd.as_raw_fd()),
                None => blind = true,
            }
        }
        let mut polls: Vec<libc::pollfd> = fds
            .iter()
            .map(|&fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let at_most = if blind { BLIND } else { at_most };
        let at_most = self.forks_until.map_or(at_most, |until| {
            at_most.min(until.saturating_duration_since(Instant::now()))
        });
        // SAFETY: the pointer and the length are those of `polls`.
        let ready = unsafe {
            libc::poll(
                polls.as_mut_ptr(),
                polls.len() as libc::nfds_t,
                at_most.as_millis() as libc::c_int + 1,
            )
        };
        self.files.watchdog_wakeup.clear();
        ready > 0
    }

    /// Whether there is no process, and none can come. From then on the pool is closed.
    fn is_over(&mut self) -> bool {
        let header = self.task.pool.header();
        if !header.entries.iter().all(Entry::is_unused) {
            self.forks_until = None;
            return false;
        }
        if header.forks.load(Ordering::SeqCst) != 0 {
            let now = Instant::now();
            let until = *self.forks_until.get_or_insert(now + FORK_GRACE);
            if now < until {
                return false;
            }
        }
        // SeqCst: a process takes an entry, and then loads this. Either it sees the store, or this
        // sees the entry.
        header.closed.store(1, Ordering::SeqCst);
        if header.entries.iter().all(Entry::is_unused) {
            return true;
        }
        header.closed.store(0, Ordering::SeqCst);
        false
    }

    /// Lets the worker end, waits for that, and ends.
    fn end(&mut self) -> ! {
        let refused = self.task.pool.header().refused.load(Ordering::Relaxed);
        if refused != 0 {
            let slots = self.task.pool.layout().slots;
            self.task.output.log(&format!(
                "{refused} processes were not traced: {slots} processes that were forked from each other can be traced at \
                 once"
            ));
        }
        self.task.pool.journal().finish.store(1, Ordering::SeqCst);
        self.task.pool.header().worker_wakeup.notify();
        loop {
            if self.worker.is_gone() {
                if let Some(confirmation) = &self.files.confirmation {
                    confirmation.remove();
                }
                spawn::exit(0);
            }
            self.wait(BLIND);
        }
    }
}
