//! Runs one program of the suite: captures its output, and ends it with the runner.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigHandler, Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};
use usertrace_vm::repository;

/// How long a build may print nothing before it counts as hung. A bound on the whole time would
/// fail slow machines.
pub(crate) const SILENCE: Duration = Duration::from_secs(30 * 60);
/// How long a test may print nothing. The longest takes some two minutes on the debug kernel.
pub(crate) const TEST_SILENCE: Duration = Duration::from_secs(10 * 60);

/// The process groups of running programs, for the signal handler; 0 where a place is free.
static GROUPS: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

thread_local! {
    /// The result of [`take_cpu_time`].
    static CPU_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The processor time of all programs, and of their children, that ended in this thread since the
/// last call.
pub(crate) fn take_cpu_time() -> Duration {
    CPU_TIME.take()
}

/// The output and the end of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Standard output. Summaries are read from here only: a test's standard error cannot forge
    /// one.
    pub(crate) stdout: String,
    /// Both streams, in the order in which they arrived.
    pub(crate) output: String,
    /// Success, or why the program failed.
    pub(crate) outcome: Result<(), String>,
    /// The time from its start to its end.
    pub(crate) time: Duration,
}

/// Runs the command to its end, or until it has printed nothing for as long as `silence`. The
/// command runs in the repository's root unless it names a directory of its own.
pub(crate) fn run(mut command: Command, silence: Duration) -> Finished {
    let begun = Instant::now();
    if command.get_current_dir().is_none() {
        command.current_dir(repository());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let parent = nix::unistd::getpid();
    // SAFETY: the closure makes two system calls and touches no memory of the parent's, which is
    // what may happen between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // This thread starts the program and waits for it, so it lives until the program ends.
            // SIGTERM, not SIGKILL: make then removes half-written files.
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            if nix::unistd::getppid() != parent {
                return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
            }
            Ok(())
        });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            let program = command.get_program().to_string_lossy();
            return Finished {
                stdout: String::new(),
                output: String::new(),
                outcome: Err(format!("cannot start {program}: {e}")),
                time: begun.elapsed(),
            };
        }
    };
    let group = Group::of(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let both = Mutex::new(Vec::new());
    let (alive, heartbeats) = channel();
    let mut is_hung = false;
    let captured = std::thread::scope(|scope| {
        let alive_too = alive.clone();
        scope.spawn(|| stderr.map(|stderr| capture(stderr, &both, alive_too)));
        let group = &group;
        let watch = scope.spawn(move || {
            loop {
                match heartbeats.recv_timeout(silence) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return false,
                    Err(RecvTimeoutError::Timeout) => {
                        group.kill();
                        return true;
                    }
                }
            }
        });
        let captured = stdout.map(|stdout| capture(stdout, &both, alive));
        is_hung = watch.join().unwrap_or(false);
        captured.unwrap_or_default()
    });
    let used = cpu_time(&child).unwrap_or_default();
    CPU_TIME.set(CPU_TIME.get() + used);
    let outcome = match child.wait() {
        _ if is_hung => Err(format!("printed nothing for {} s", silence.as_secs())),
        Ok(status) => describe(status),
        Err(e) => Err(e.to_string()),
    };
    let both = both.into_inner().unwrap_or_else(PoisonError::into_inner);
    Finished {
        stdout: String::from_utf8_lossy(&captured).into_owned(),
        output: String::from_utf8_lossy(&both).into_owned(),
        outcome,
        time: begun.elapsed(),
    }
}

/// Waits for the end of a program without reaping it. Returns its processor time, with that of the
/// children that it reaped.
fn cpu_time(child: &Child) -> Option<Duration> {
    let pid = child.id();
    let id = Id::Pid(Pid::from_raw(pid.cast_signed()));
    waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have spaces and parentheses. Behind it, utime is the 12th; stime, cutime and
    // cstime follow (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    let per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    Some(Duration::from_millis(ticks * 1000 / per_second.max(1)))
}

fn describe(status: ExitStatus) -> Result<(), String> {
    if status.success() {
        Ok(())
    } else {
        Err(status.to_string())
    }
}

/// Reads a stream to its end, and reports each piece as a sign of life.
fn capture(mut from: impl Read, both: &Mutex<Vec<u8>>, alive: Sender<()>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buf = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buf) {
        // The receiver is gone once it has killed the program.
        let _ = alive.send(());
        both.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(&buf[..n]);
        all.extend_from_slice(&buf[..n]);
    }
    all
}

/// The processes of a program. They share a process group, so that they can be killed together.
struct Group {
    id: Pid,
    place: Option<&'static AtomicI32>,
}

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().cast_signed();
        // Relaxed: the handler runs in this process, and reads only this number.
        let place = GROUPS.iter().find(|place| {
            place
                .compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        Self {
            id: Pid::from_raw(pid),
            place,
        }
    }

    fn kill(&self) {
        let _ = killpg(self.id, Signal::SIGKILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Ends the running programs, then this process: Ctrl-C does not reach their process groups.
extern "C" fn end(signal: libc::c_int) {
    for group in &GROUPS {
        let group = group.load(Ordering::Relaxed);
        if group > 0 {
            // SIGTERM: make removes half-written files, which it would treat as complete the
            // next time. QEMU dies with its harness.
            let _ = killpg(Pid::from_raw(group), Signal::SIGTERM);
        }
    }
    // SAFETY: _exit is async-signal-safe, and does not return.
    unsafe { libc::_exit(128 + signal) }
}

/// Makes Ctrl-C and SIGTERM end the running programs, too.
pub(crate) fn catch_signals() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only calls async-signal-safe functions and loads atomics.
        unsafe { nix::sys::signal::signal(signal, SigHandler::Handler(end)) }
            .context("installing the signal handler")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn missing_program_fails_and_is_named() {
        let finished = run(Command::new("/no/such/program"), SILENCE);
        let why = finished.outcome.unwrap_err();
        assert!(why.contains("/no/such/program"), "{why}");
    }

    #[test]
    fn streams_and_status_are_captured() {
        let finished = run(sh("echo a; echo b >&2; exit 3"), SILENCE);
        assert_eq!(finished.stdout, "a\n");
        assert!(finished.output.contains("b\n"), "{finished:?}");
        assert!(finished.outcome.unwrap_err().contains('3'));
    }

    #[test]
    fn processor_time_of_children_is_counted_once() {
        let count = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        run(sh(&format!("sh -c '{count}'; true")), SILENCE);
        assert!(take_cpu_time() > Duration::ZERO);
        assert_eq!(take_cpu_time(), Duration::ZERO);
        run(sh("sleep 0.3"), SILENCE);
        assert!(take_cpu_time() < Duration::from_millis(200));
    }

    #[test]
    fn silent_program_is_killed_with_its_children() {
        // The inner shell holds the pipe: the output would not end before it.
        let script = "echo a; sh -c 'sleep 1000; true'; true";
        let finished = run(sh(script), Duration::from_millis(300));
        assert_eq!(finished.stdout, "a\n");
        assert_eq!(finished.outcome, Err("printed nothing for 0 s".into()));
    }

    #[test]
    fn program_that_keeps_printing_is_not_killed() {
        // On either stream; in all it takes longer than it may be silent.
        let script = "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i; sleep 0.5; echo $i >&2; done";
        let finished = run(sh(script), Duration::from_secs(5));
        assert_eq!(finished.stdout, "1\n2\n3\n4\n5\n6\n");
        assert_eq!(finished.outcome, Ok(()));
    }
}
