//! A thread of an actor, and the system calls that it makes.

use std::sync::atomic::Ordering;

use syscalls::{Errno, Sysno, raw};
use usertrace_tests::random::Random;

use crate::history;
use crate::kinds::Kind;
use crate::plan::{Plan, ThreadId};
use crate::run_state::{RunState, millis, nanos};

/// The result of a call: a value, or an error number.
pub(crate) type CallResult = Result<usize, i32>;

/// One thread of an actor.
#[derive(Clone, Copy)]
pub(crate) struct Actor {
    pub(crate) run: &'static RunState,
    pub(crate) plan: Plan,
    pub(crate) who: ThreadId,
    /// Whether this is a child whose parent waits. The run state shows the parent's call meanwhile.
    pub(crate) is_child: bool,
}

/// Any system call, by its number.
///
/// It is safe in this program only, where each address is one of these: 0; in the areas, or where
/// they were; in a mapping of the caller without Rust objects; of an object that the call may
/// write.
pub(crate) fn system<const N: usize>(number: usize, arguments: [usize; N]) -> CallResult {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the function's comment lists the addresses that this program passes.
    let result = unsafe { raw::syscall6(number, a, b, c, d, e, f) };
    Errno::from_ret(result).map_err(Errno::into_raw)
}

/// Likewise, by its name.
pub(crate) fn call<const N: usize>(name: Sysno, arguments: [usize; N]) -> CallResult {
    system(name as usize, arguments)
}

impl Actor {
    /// The random numbers of a step of this thread.
    pub(crate) fn stream(&self, step: u64) -> Random {
        self.plan.stream(self.who, step)
    }

    /// Makes a call, counts it, and shows it in the run state while it lasts.
    pub(crate) fn around(&self, kind: Kind, call: impl FnOnce() -> CallResult) -> CallResult {
        self.with(kind, &[], call)
    }

    /// Like [`around`](Self::around), with arguments for the history.
    pub(crate) fn with(
        &self,
        kind: Kind,
        arguments: &[usize],
        call: impl FnOnce() -> CallResult,
    ) -> CallResult {
        let at = history::begin(kind, self.who.thread, arguments);
        let now = &self.run.now[self.who.actor][self.who.thread];
        if !self.is_child {
            now.since.store(millis(), Ordering::Relaxed);
            now.kind.store(kind as u32 + 1, Ordering::Release);
        }
        let begun = nanos();
        let result = call();
        let time = nanos() - begun;
        if !self.is_child {
            now.kind.store(0, Ordering::Release);
        }
        self.run.count(kind, result, time);
        history::end(at, result);
        result
    }

    /// A system call of this kind.
    pub(crate) fn call<const N: usize>(
        &self,
        kind: Kind,
        name: Sysno,
        arguments: [usize; N],
    ) -> CallResult {
        self.with(kind, &arguments, || call(name, arguments))
    }

    /// Reports a finding.
    pub(crate) fn find(&self, text: &str) {
        let ThreadId {
            actor,
            round,
            thread,
        } = self.who;
        let who = format!(
            "actor {actor}, round {round}, thread {thread}{}",
            if self.is_child { ", a child" } else { "" }
        );
        if self.run.find(&format!("{who}: {text}")) {
            history::tell(&who, text);
        }
    }

    /// Waits for this actor's turn, if actors take turns. Returns false at the end of the run.
    pub(crate) fn wait_for_turn(&self) -> bool {
        let turn = self.who.actor as u32 + 1;
        loop {
            if self.run.stops() {
                return false;
            }
            let now = self.run.turn.load(Ordering::Acquire);
            if !self.plan.turns || now == turn {
                return true;
            }
            self.run.sleep_while(now);
        }
    }

    /// Begins a step. Returns false at the end of the run.
    pub(crate) fn begin_step(&self) -> bool {
        if !self.wait_for_turn() {
            return false;
        }
        let steps = self.run.steps.fetch_add(1, Ordering::Relaxed);
        if self.plan.calls != 0 && steps >= self.plan.calls {
            self.run.stop.store(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Ends a step. `what` goes into the sum of the run.
    pub(crate) fn end_step(&self, step: u64, what: u64) {
        if self.plan.turns {
            let sum = self.run.sum.load(Ordering::Relaxed);
            let ThreadId { actor, round, .. } = self.who;
            let words = [actor as u64, round, step, what];
            let sum = words.iter().fold(sum, |sum, word| {
                (sum ^ word)
                    .wrapping_mul(0x0000_0100_0000_01b3)
                    .rotate_left(23)
            });
            self.run.sum.store(sum, Ordering::Relaxed);
            self.run.set_turn(0);
        }
    }
}

/// Sleeps.
pub(crate) fn nap(millis: u64) {
    std::thread::sleep(std::time::Duration::from_millis(millis));
}

/// Ends this process at once.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: no memory is involved, and no exit handler is needed.
    unsafe { libc::_exit(status) }
}

/// Waits for the end of a child, and returns its status. Kills it after two seconds.
pub(crate) fn reap(pid: usize) -> CallResult {
    let begun = millis();
    loop {
        let mut status = 0_i32;
        let found = call(
            Sysno::wait4,
            [
                pid,
                &raw mut status as usize,
                (libc::WNOHANG | libc::__WALL) as usize,
                0,
            ],
        )?;
        if found == pid {
            if libc::WIFSTOPPED(status) {
                let _ = call(Sysno::kill, [pid, libc::SIGKILL as usize]);
                continue;
            }
            return Ok(status as usize);
        }
        if millis() - begun > 2000 {
            let _ = call(Sysno::kill, [pid, libc::SIGKILL as usize]);
        }
        // The watchdog reports a child that cannot be killed, because this call lasts.
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
