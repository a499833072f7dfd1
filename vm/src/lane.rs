//! Steps of the suite, one after the other, and other steps beside them.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, Signal, killpg};
use nix::unistd::Pid;
use usertrace_vm::repository;

/// How long a step may say nothing: a test that hangs must not take the sum of all others along. What a step takes in all
/// depends on what else the machine does. Longest silent is who waits for the debug kernel, which is built meanwhile.
pub(crate) const SILENCE: Duration = Duration::from_secs(30 * 60);

/// The process group of each lane's running step; 0 between steps.
static GROUPS: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];
/// That of the kernel's build beside them.
static BUILD: AtomicI32 = AtomicI32::new(0);

/// Steps that run one after the other.
#[derive(Debug)]
pub(crate) struct Lane {
    group: &'static AtomicI32,
    /// What its steps printed, while it is not their turn.
    held: Mutex<Option<Vec<u8>>>,
}

impl Lane {
    /// What its steps print is shown as it comes.
    pub(crate) fn shown() -> Self {
        Self {
            group: &GROUPS[0],
            held: Mutex::new(None),
        }
    }

    /// Beside the shown one: what its steps print is held until [`show`](Self::show).
    pub(crate) fn held() -> Self {
        Self {
            group: &GROUPS[1],
            held: Mutex::new(Some(Vec::new())),
        }
    }

    /// Shows what was held, and from now on what is printed, as it comes.
    pub(crate) fn show(&self) {
        let mut held = self.lock();
        if let Some(bytes) = held.take() {
            to_stdout(&bytes);
        }
    }

    pub(crate) fn print(&self, bytes: &[u8]) {
        match &mut *self.lock() {
            Some(held) => held.extend_from_slice(bytes),
            None => to_stdout(bytes),
        }
    }

    /// Runs the command in the repository, and ends it when it has said nothing for as long as `silence`. What it prints is
    /// shown when it is the lane's turn, and returned; with its status, or why it has none.
    pub(crate) fn run(
        &self,
        name: &str,
        mut command: Command,
        silence: Duration,
    ) -> (String, Result<(), String>) {
        let line: Vec<OsString> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(Into::into)
            .collect();
        let line = line.join(" ".as_ref());
        self.print(format!("\n=== {name}: {}\n", line.to_string_lossy()).as_bytes());
        let spawned = command
            .current_dir(repository())
            .stdin(Stdio::null())
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(e) => return (String::new(), Err(e.to_string())),
        };
        let group = Group::of(&child, self.group);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (says, said) = channel();
        let mut hangs = false;
        let output = std::thread::scope(|scope| {
            let says_too = says.clone();
            scope.spawn(|| stderr.map(|stderr| self.pass(stderr, says_too)));
            let group = &group;
            let watch = scope.spawn(move || {
                loop {
                    match said.recv_timeout(silence) {
                        Ok(()) => {}
                        Err(RecvTimeoutError::Disconnected) => return false,
                        Err(RecvTimeoutError::Timeout) => {
                            group.kill();
                            return true;
                        }
                    }
                }
            });
            // The summaries are on standard output; what a test writes to standard error cannot pass for one.
            let output = stdout.map(|stdout| self.pass(stdout, says));
            hangs = watch.join().unwrap_or(false);
            output.unwrap_or_default()
        });
        let outcome = match child.wait() {
            _ if hangs => Err(format!("said nothing for {} s", silence.as_secs())),
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(e) => Err(e.to_string()),
        };
        (String::from_utf8_lossy(&output).into_owned(), outcome)
    }

    /// Prints all that comes, says that it came, and returns it.
    fn pass(&self, mut from: impl Read, says: Sender<()>) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buf = vec![0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut buf) {
            // Nobody listens any more when the step has been ended.
            let _ = says.send(());
            self.print(&buf[..n]);
            all.extend_from_slice(&buf[..n]);
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a build beside the lanes. What it says, and how it ended, whoever needs it finds out by building again.
pub(crate) fn build(mut command: Command) {
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    if let Ok(mut child) = spawned {
        let _group = Group::of(&child, &BUILD);
        let _ = child.wait();
    }
}

/// Whoever reads may be gone: the tests go on.
fn to_stdout(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// The processes of a step. They are a group of their own, so that they can be ended together.
struct Group {
    id: Pid,
    lane: &'static AtomicI32,
}

impl Group {
    fn of(child: &Child, lane: &'static AtomicI32) -> Self {
        let pid = child.id().cast_signed();
        // Relaxed: the handler runs on a thread of this process, and needs no other store.
        lane.store(pid, Ordering::Relaxed);
        Self {
            id: Pid::from_raw(pid),
            lane,
        }
    }

    fn kill(&self) {
        let _ = killpg(self.id, Signal::SIGKILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.lane.store(0, Ordering::Relaxed);
    }
}

/// Ends the running steps, and the build, then this process: Ctrl-C does not reach the steps' groups by itself.
extern "C" fn end(signal: libc::c_int) {
    for group in &GROUPS {
        let group = group.load(Ordering::Relaxed);
        if group > 0 {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
    let build = BUILD.load(Ordering::Relaxed);
    if build > 0 {
        // Politely: then make removes what is half written, which would be taken for whole.
        let _ = killpg(Pid::from_raw(build), Signal::SIGTERM);
    }
    // SAFETY: _exit may be called in a signal handler, and does not return.
    unsafe { libc::_exit(128 + signal) }
}

/// Makes Ctrl-C and a polite kill end the running steps, too.
pub(crate) fn catch_signals() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only calls functions that may be called in one.
        unsafe { nix::sys::signal::signal(signal, SigHandler::Handler(end)) }
            .context("catching signals")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_started_fails() {
        let lane = Lane::shown();
        let (_, outcome) = lane.run("nothing", Command::new("/no/such/program"), SILENCE);
        assert!(outcome.is_err());
        let (output, outcome) = lane.run("sh", sh("echo a; echo b >&2; exit 3"), SILENCE);
        assert_eq!((output.as_str(), outcome.is_err()), ("a\n", true));
    }

    #[test]
    fn a_step_that_hangs_is_ended_with_all_its_processes() {
        // The inner shell holds the pipe: the output would not end before it.
        let (output, outcome) = Lane::shown().run(
            "sh",
            sh("echo a; sh -c 'sleep 1000; true'; true"),
            Duration::from_millis(300),
        );
        assert_eq!(
            (output.as_str(), outcome),
            ("a\n", Err("said nothing for 0 s".into()))
        );
    }

    #[test]
    fn a_step_that_goes_on_saying_something_is_not_ended() {
        // On either stream; in all it takes longer than it may be silent.
        let script = "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i; sleep 0.5; echo $i >&2; done";
        let (output, outcome) = Lane::shown().run("sh", sh(script), Duration::from_secs(5));
        assert_eq!((output.as_str(), outcome), ("1\n2\n3\n4\n5\n6\n", Ok(())));
    }

    #[test]
    fn what_is_printed_beside_is_held_until_its_turn() {
        let lane = Lane::held();
        let (output, outcome) = lane.run("sh", sh("echo a"), SILENCE);
        assert_eq!((output.as_str(), outcome), ("a\n", Ok(())));
        let held = lane.lock().clone().expect("held");
        assert_eq!(
            String::from_utf8_lossy(&held),
            "\n=== sh: sh -c echo a\na\n"
        );
        lane.show();
        assert_eq!(*lane.lock(), None);
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }
}
