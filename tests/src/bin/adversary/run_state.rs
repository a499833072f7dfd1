//! The state that all actors share: counts, findings, and the current call of each thread.
//!
//! It is a memory file, so that a program which an actor executes still finds it.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use syscalls::Sysno;

use crate::actor::call;
use crate::kinds::{KINDS, Kind};

/// The most actors.
pub(crate) const ACTORS: usize = 24;
/// The most threads of an actor.
pub(crate) const THREADS: usize = 4;
/// Findings that are kept, and their length.
const FINDINGS: usize = 16;
const TEXT: usize = 400;
/// Error numbers that are counted.
const ERRORS: usize = 134;
/// Slots for families of processes, see [`RunState::join_family`].
const FAMILIES: usize = 4096;

/// The family of a process to which several programs' words may belong.
pub(crate) const ANYBODY: u32 = 0;

/// How often one kind of call was made.
#[repr(C)]
pub(crate) struct Count {
    pub(crate) tried: AtomicU64,
    pub(crate) succeeded: AtomicU64,
    /// The time of all calls together, in nanoseconds.
    pub(crate) time: AtomicU64,
    pub(crate) errors: [AtomicU32; ERRORS],
}

/// The call that a thread is making.
#[repr(C)]
pub(crate) struct CurrentCall {
    /// The kind of the call, plus 1; 0: none.
    pub(crate) kind: AtomicU32,
    pub(crate) tid: AtomicI32,
    /// When the call began, in milliseconds of CLOCK_MONOTONIC.
    pub(crate) since: AtomicU64,
}

#[repr(C)]
struct Finding {
    ready: AtomicU32,
    len: AtomicU32,
    text: [AtomicU8; TEXT],
}

/// The shared state of a run. All zeros are its initial state.
#[repr(C)]
pub(crate) struct RunState {
    pub(crate) counts: [Count; KINDS],
    pub(crate) now: [[CurrentCall; THREADS]; ACTORS],
    /// The processes of the actors, 0 for none.
    pub(crate) pids: [AtomicI32; ACTORS],
    /// Steps of all actors.
    pub(crate) steps: AtomicU64,
    /// Not 0: the actors end.
    pub(crate) stop: AtomicU32,
    /// The actor whose turn it is, plus 1. 0: the supervisor.
    pub(crate) turn: AtomicU32,
    /// A sum over all steps, their kinds and their actors. Equal runs that take turns have equal
    /// sums.
    pub(crate) sum: AtomicU64,
    findings: AtomicU32,
    finding: [Finding; FINDINGS],
    families: [AtomicU64; FAMILIES],
}

/// The descriptor of the run state, also in programs that actors execute.
pub(crate) const RUN_STATE_FD: RawFd = 200;

fn map(fd: RawFd) -> &'static RunState {
    // SAFETY: A new mapping, at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<RunState>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED, "the run state cannot be mapped");
    // SAFETY: the mapping has that size, is page-aligned and never unmapped. Any bytes are valid
    // atomics.
    unsafe { &*at.cast() }
}

impl RunState {
    /// Creates the state, which lives as long as the process and its children.
    pub(crate) fn new() -> &'static Self {
        let name: &CStr = c"run-state";
        // SAFETY: The name is a C string.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
        assert!(fd >= 0, "memfd_create");
        // SAFETY: Numbers only.
        let done = unsafe {
            libc::ftruncate(fd, size_of::<Self>() as i64) == 0
                && libc::dup2(fd, RUN_STATE_FD) == RUN_STATE_FD
                && libc::close(fd) == 0
        };
        assert!(done, "the run state cannot be created");
        map(RUN_STATE_FD)
    }

    /// The state of the program that executed this one.
    pub(crate) fn inherited() -> &'static Self {
        map(RUN_STATE_FD)
    }

    /// Counts a call.
    pub(crate) fn count(&self, kind: Kind, result: Result<usize, i32>, time: u64) {
        let count = &self.counts[kind as usize];
        count.tried.fetch_add(1, Ordering::Relaxed);
        count.time.fetch_add(time, Ordering::Relaxed);
        match result {
            Ok(_) => count.succeeded.fetch_add(1, Ordering::Relaxed),
            Err(errno) => {
                let error = &count.errors[(errno.unsigned_abs() as usize).min(ERRORS - 1)];
                u64::from(error.fetch_add(1, Ordering::Relaxed))
            }
        };
    }

    /// Gives the turn to an actor, or to the supervisor.
    pub(crate) fn set_turn(&self, turn: u32) {
        self.turn.store(turn, Ordering::Release);
        let word = self.turn.as_ptr() as usize;
        let all = i32::MAX as usize;
        let _ = call(
            Sysno::futex,
            [word, libc::FUTEX_WAKE as usize, all, 0, 0, 0],
        );
    }

    /// Sleeps until the turn changes, or for a moment.
    pub(crate) fn sleep_while(&self, turn: u32) {
        let word = self.turn.as_ptr() as usize;
        let moment = [0_i64, 20_000_000];
        let _ = call(
            Sysno::futex,
            [
                word,
                libc::FUTEX_WAIT as usize,
                turn as usize,
                moment.as_ptr() as usize,
                0,
                0,
            ],
        );
    }

    /// Whether the run is over.
    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Stores a finding, and returns whether there was room. The first findings matter most.
    pub(crate) fn find(&self, text: &str) -> bool {
        let at = self.findings.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(finding) = self.finding.get(at) else {
            return false;
        };
        for (place, byte) in finding.text.iter().zip(text.bytes()) {
            place.store(byte, Ordering::Relaxed);
        }
        let len = text.len().min(TEXT) as u32;
        finding.len.store(len, Ordering::Relaxed);
        // Pairs with the acquire in `findings`.
        finding.ready.store(1, Ordering::Release);
        true
    }

    /// Clears counts, findings and steps.
    pub(crate) fn forget(&self) {
        for count in &self.counts {
            count.tried.store(0, Ordering::Relaxed);
            count.succeeded.store(0, Ordering::Relaxed);
            count.time.store(0, Ordering::Relaxed);
            for error in &count.errors {
                error.store(0, Ordering::Relaxed);
            }
        }
        for number in [&self.steps, &self.sum] {
            number.store(0, Ordering::Relaxed);
        }
        self.stop.store(0, Ordering::Relaxed);
    }

    pub(crate) fn has_findings(&self) -> bool {
        self.findings.load(Ordering::Relaxed) != 0
    }

    /// All findings.
    pub(crate) fn findings(&self) -> Vec<String> {
        let ready = |finding: &&Finding| finding.ready.load(Ordering::Acquire) != 0;
        let text = |finding: &Finding| {
            let len = finding.len.load(Ordering::Relaxed) as usize;
            let bytes = finding.text.iter().take(len);
            let bytes: Vec<_> = bytes.map(|byte| byte.load(Ordering::Relaxed)).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        self.finding.iter().filter(ready).map(text).collect()
    }

    /// Notes that process `pid` writes words of a family: its own, or that of the process whose
    /// memory it shares.
    pub(crate) fn join_family(&self, pid: i32, family: u32) {
        let word = u64::from(pid.unsigned_abs()) << 32 | u64::from(family);
        self.families[pid.unsigned_abs() as usize % FAMILIES].store(word, Ordering::Relaxed);
    }

    /// The family of a process, if it is known.
    pub(crate) fn family(&self, pid: u32) -> Option<u32> {
        let word = self.families[pid as usize % FAMILIES].load(Ordering::Relaxed);
        let family = word as u32;
        ((word >> 32) as u32 == pid && family != ANYBODY).then_some(family)
    }
}

/// Milliseconds of CLOCK_MONOTONIC.
pub(crate) fn millis() -> u64 {
    nanos() / 1_000_000
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: It writes the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
