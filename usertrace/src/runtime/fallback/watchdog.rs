//! The daemon that watches: the processes, and the worker.
//!
//! There are two daemons so that one may be killed: each notices the other's end at once, and
//! replaces it. The watchdog has a descriptor of each process that it watches (`pidfd`), so it
//! learns of a death when it happens. That a process executes another program leaves no such trace;
//! for that, it looks now and then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syscalls::Errno;
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LTT_SCOPE_THREAD};

use super::daemon::{Task, WatchdogWakeup, give_up, mark_at_death};
use super::header::{Entry, PROCESSES};
use super::journal::Begun;
use super::namespace;
use super::spawn;
use super::worker;
use crate::os::process;
use usertrace_os::process::pidfd_open;
use usertrace_os::procfs::{device_and_inode, has_ended, start_ticks};

/// How long to wait for a child of a process that is gone, if a fork began and the child did not
/// arrive: it was killed before, or the fork failed.
const FORK_GRACE: Duration = Duration::from_secs(10);
/// How often to look for what cannot be waited for: at first, and when nothing happens for long.
const LOOKS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
/// The same where the kernel gives no descriptors of processes.
const BLIND: Duration = Duration::from_millis(50);

/// One process that is watched.
struct Watched {
    /// Its id, as its entry has it.
    pid: u32,
    /// The PID namespace of that id, as the entry had it.
    namespace: u64,
    /// The id here.
    outer: u32,
    /// Readable when it has ended.
    pidfd: Option<OwnedFd>,
    /// Its address space: there is nothing to read there any more when it has executed another
    /// program.
    maps: Option<File>,
}

/// Device and inode of the pool, as the kernel shows them among the mappings of each process that
/// has it.
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

/// The address space of a process, if that has the pool mapped; nothing if that cannot be said.
///
/// # Errors
/// When it is another program by now.
fn address_space(pid: u32, pool: Option<&str>) -> Result<Option<File>, Errno> {
    let Ok(mut maps) = File::open(format!("/proc/{pid}/maps")) else {
        return Ok(None);
    };
    let mut text = String::new();
    let read = maps.read_to_string(&mut text);
    let (Ok(_), Some(pool)) = (read, pool) else {
        return Ok(Some(maps));
    };
    // Empty: its first thread has ended. Others may go on for long, with all that they share.
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
    /// Nothing if it is gone. `pool`: see [`identity`].
    fn new(
        entry: &Entry,
        pid: u32,
        known: Option<OwnedFd>,
        begun: &Begun,
        pool: Option<&str>,
    ) -> Option<Self> {
        let namespace = entry.namespace();
        let candidates = namespace::candidates(pid, namespace).into_iter();
        // Ids are copied from the memory of programs: the pool's mapping says which one it is.
        let (outer, maps) = candidates
            .filter_map(|outer| Some((outer, address_space(outer, pool).ok()?)))
            .max_by_key(|(_, maps)| maps.is_some())?;
        let pidfd = match known.map_or_else(|| pidfd_open(outer), Ok) {
            Ok(fd) => Some(fd),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return None,
            Err(_) => None,
        };
        // The descriptor is of whoever has the id now: is that who had it?
        if !begun.is_same(outer, start_ticks(outer).unwrap_or(0)) {
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

    /// Its rings will not change any more. `pool`: look thoroughly, for what does not tell by
    /// itself; see [`identity`].
    fn is_gone(&mut self, pool: Option<Option<&str>>) -> bool {
        match (&self.pidfd, pool) {
            (Some(pidfd), None) => readable(pidfd.as_raw_fd()),
            (Some(pidfd), Some(pool)) => readable(pidfd.as_raw_fd()) || self.has_left(pool),
            (None, pool) => has_ended(self.outer) || self.has_left(pool.flatten()),
        }
    }

    /// Its address space is gone.
    fn has_left(&mut self, pool: Option<&str>) -> bool {
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

fn readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one element.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// The first watchdog. `program` is a descriptor of the process in slot 0, if there is one.
pub(super) fn start(task: &Task, program: Option<OwnedFd>) {
    spawn::settle();
    if task.pool.open_all().is_err() {
        return;
    }
    let Ok(bell) = WatchdogWakeup::new() else {
        return;
    };
    run(task, &bell, program, None);
}

/// Replaces the watchdog of a worker. See [`TakeOver`](super::daemon::TakeOver).
fn take_over(task: &Task, bell: &WatchdogWakeup, worker: u32) -> ! {
    run(task, bell, None, Some(worker))
}

/// Watches, until there is nothing left to watch. `worker`: the process that this one replaces the
/// watchdog of.
fn run(task: &Task, bell: &WatchdogWakeup, program: Option<OwnedFd>, worker: Option<u32>) -> ! {
    let (header, journal) = (task.pool.header(), task.pool.journal());
    journal.pids[0].store(std::process::id(), Ordering::Relaxed);
    mark_at_death(&header.worker_wakeup.readers[0]);
    let mut watchdog = Watchdog {
        task,
        bell,
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
        let rung = watchdog.wait(wait);
        wait = if rung {
            *LOOKS.start()
        } else {
            (wait * 2).min(*LOOKS.end())
        };
        // SeqCst: who had ended when this was asked is marked before the answer.
        let wanted = header.wanted.load(Ordering::SeqCst);
        watchdog.look(!rung);
        if !rung && threads {
            // Rings of threads that are gone are to be given to others.
            header.worker_wakeup.notify();
        }
        watchdog.scan(None);
        header.looked.store(wanted, Ordering::SeqCst);
    }
}

struct Worker {
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
                // SAFETY: writes to `status`; a zombie still has its id.
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

struct Watchdog<'a> {
    task: &'a Task,
    bell: &'a WatchdogWakeup,
    /// See [`identity`].
    pool: Option<String>,
    /// By slot.
    watched: BTreeMap<usize, Watched>,
    worker: Worker,
    /// Until when to wait for children that may never come.
    forks_until: Option<Instant>,
}

impl Watchdog<'_> {
    fn start_worker(&mut self) {
        // SAFETY: this process has one thread.
        match unsafe { process::fork(libc::SIGCHLD) } {
            Ok(0) => worker::start(self.task, self.bell, take_over),
            Ok(pid) => self.worker = Worker::new(pid),
            // The next look tries again.
            Err(_) => self.worker = Worker::new(0),
        }
    }

    /// Watches processes that are new.
    fn scan(&mut self, mut program: Option<OwnedFd>) {
        let pool = self.task.pool;
        for slot in 0..pool.layout().slots.min(PROCESSES) {
            let entry = &pool.header().entries[slot];
            let Some((pid, _)) = entry.process() else {
                self.watched.remove(&slot);
                continue;
            };
            // By a namespace that it has not told yet, it may have been taken for another one.
            let namespace = entry.namespace();
            let is_it = |watched: &Watched| watched.pid == pid && watched.namespace == namespace;
            if self.watched.get(&slot).is_some_and(is_it) {
                continue;
            }
            let known = if slot == 0 { program.take() } else { None };
            let begun = &pool.slot_journal(slot).process;
            match Watched::new(entry, pid, known, begun, self.pool.as_deref()) {
                Some(watched) => {
                    self.watched.insert(slot, watched);
                }
                None => self.tell_gone(slot, pid),
            }
        }
    }

    /// Looks for processes that are gone.
    fn look(&mut self, thoroughly: bool) {
        let pool = thoroughly.then_some(self.pool.as_deref());
        let watched = self.watched.iter_mut();
        let gone = watched.filter_map(|(slot, watched)| {
            let gone = watched.is_gone(pool);
            gone.then_some((*slot, watched.pid))
        });
        let gone: Vec<_> = gone.collect();
        for (slot, pid) in gone {
            self.tell_gone(slot, pid);
        }
        if self.worker.is_gone() {
            // Its parent reaps it; that is this process, or none.
            let status = process::wait(self.worker.pid);
            if status.is_ok_and(|status| give_up(self.task, status)) {
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

    /// Tells the worker to read the rest of a process's slot.
    fn tell_gone(&self, slot: usize, pid: u32) {
        let header = self.task.pool.header();
        // First, as a watchdog that is killed behind the next line is not asked again.
        header.entries[slot].leave(pid);
        // SeqCst: pairs with the worker's load.
        if self.task.pool.journal().gone[slot].swap(pid, Ordering::SeqCst) != pid {
            header.worker_wakeup.notify();
        }
    }

    /// Waits until something happens. Says whether it did.
    fn wait(&self, at_most: Duration) -> bool {
        let watched = self.watched.iter();
        let gone = &self.task.pool.journal().gone;
        // Those that are known to be gone, and wait for the worker, would end each wait at once.
        let waiting =
            watched.filter(|(slot, watched)| gone[**slot].load(Ordering::SeqCst) != watched.pid);
        let mut blind = self.worker.pidfd.is_none();
        let mut fds = vec![self.bell.as_raw_fd()];
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
        // SAFETY: as many elements.
        let ready = unsafe {
            libc::poll(
                polls.as_mut_ptr(),
                polls.len() as libc::nfds_t,
                at_most.as_millis() as libc::c_int + 1,
            )
        };
        self.bell.silence();
        ready > 0
    }

    /// Nobody is there, and nobody can come.
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
        // SeqCst: whoever takes an entry looks at this afterwards, and either that one sees this,
        // or this sees the entry.
        header.closed.store(1, Ordering::SeqCst);
        if header.entries.iter().all(Entry::is_unused) {
            return true;
        }
        header.closed.store(0, Ordering::SeqCst);
        false
    }

    /// Lets the worker end, and ends.
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
                spawn::exit(0);
            }
            self.wait(BLIND);
        }
    }
}
