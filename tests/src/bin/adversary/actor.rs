//! One thread of one actor, and how it makes calls.

use std::sync::atomic::Ordering;

use syscalls::{Errno, Sysno, raw};
use usertrace_tests::random::Random;

use crate::history;
use crate::kinds::Kind;
use crate::plan::{Plan, ThreadId};
use crate::run_state::{RunState, millis, nanos};

/// What a call came to: a value, or an error number.
pub(crate) type CallResult = Result<usize, i32>;

/// One thread of an actor.
#[derive(Clone, Copy)]
pub(crate) struct Actor {
    pub(crate) run: &'static RunState,
    pub(crate) plan: Plan,
    pub(crate) who: ThreadId,
    /// A child, whose parent waits for it: the run state shows what the parent does.
    pub(crate) is_child: bool,
}

/// Any system call, by its number.
///
/// It is safe to call in this program only: each address given to it is 0, lies in the areas, in a
/// mapping of the caller's that no Rust object lies in, where one of them was, or is that of an
/// object which the call may write.
pub(crate) fn system<const N: usize>(number: usize, arguments: [usize; N]) -> CallResult {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: What the comment above says of the addresses.
    let result = unsafe { raw::syscall6(number, a, b, c, d, e, f) };
    Errno::from_ret(result).map_err(Errno::into_raw)
}

/// Likewise, by its name.
pub(crate) fn call<const N: usize>(name: Sysno, arguments: [usize; N]) -> CallResult {
    system(name as usize, arguments)
}

impl Actor {
    /// The numbers of this thread's step.
    pub(crate) fn stream(&self, step: u64) -> Random {
        self.plan.stream(self.who, step)
    }

    /// A call of this kind, which is counted, and seen while it lasts.
    pub(crate) fn around(&self, kind: Kind, call: impl FnOnce() -> CallResult) -> CallResult {
        self.with(kind, &[], call)
    }

    /// Likewise, with arguments that the history shows.
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

    /// Something is wrong.
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

    /// Waits until it is this actor's turn, if they take turns. False at the end of the run.
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

    /// A step begins. False at the end of the run.
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

    /// The step is over. `what` goes into the sum of the run.
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
    // SAFETY: No memory is touched, and nobody waits for what else an exit does.
    unsafe { libc::_exit(status) }
}

/// Waits for the end of a child. It is killed when it does not end, and what the wait came to is
/// its status.
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
        // A child that cannot be killed is what the watchdog sees: this call lasts.
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}
