//! Runs the command, with its streams on ports of their own.
//!
//! The command's streams are pipes, and threads carry them to the ports: a port can be opened only
//! once, so a program that opens `/dev/stderr` would fail on one.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use usertrace_init::{Job, PORT_STDERR, PORT_STDIN, PORT_STDOUT, Report};

use crate::ports::{self, Status};

/// Runs the command until it has ended and all its output has been carried.
pub(crate) fn run(job: &Job, status: &Status) -> Result<Report> {
    let (program, args) = job
        .argv
        .split_first()
        .ok_or_else(|| anyhow!("no command"))?;
    let stdout = ports::open(PORT_STDOUT)?;
    let stderr = ports::open(PORT_STDERR)?;
    let stdin = ports::open(PORT_STDIN)?;

    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    prepare(&mut command, job);
    status.send(&Report::Started);
    let mut child = match command.spawn() {
        Ok(child) => child,
        // The status that a shell would have.
        Err(e) => {
            let code = if e.kind() == ErrorKind::NotFound {
                127
            } else {
                126
            };
            let text = format!("{}: {e}\n", program.to_string_lossy());
            (&stderr)
                .write_all(text.as_bytes())
                .context("stderr port")?;
            return Ok(Report::Exit {
                status: code,
                stdout: 0,
                stderr: text.len() as u64,
            });
        }
    };
    drop(command);
    if let Some(to) = child.stdin.take() {
        carry(stdin, to)?;
    }
    let outs = [
        carry(child.stdout.take().context("no stdout")?, stdout)?,
        carry(child.stderr.take().context("no stderr")?, stderr)?,
    ];
    let code = wait(&child)?;
    // A process that still holds the pipes would keep them open for ever.
    kill_everything_else();
    let [out, err] = outs.map(|thread| {
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("thread panicked")))
            .context("carrying output")
    });
    Ok(Report::Exit {
        status: code,
        stdout: out?,
        stderr: err?,
    })
}

/// Gives the command the environment and the working directory of the job.
pub(crate) fn prepare(command: &mut Command, job: &Job) {
    let cwd = if job.cwd.is_dir() {
        job.cwd.as_path()
    } else {
        Path::new("/")
    };
    command
        .env_clear()
        .envs(job.env.iter().map(|(k, v)| (k, v)))
        .current_dir(cwd);
}

/// Carries bytes in a thread of its own, which ends with their number.
///
/// Not `io::copy`: that would splice the pipe into the port, a path of the driver that is hardly
/// ever used.
fn carry(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> Result<JoinHandle<io::Result<u64>>> {
    let work = move || {
        let mut buf = vec![0; 64 << 10];
        let mut total = 0;
        loop {
            match from.read(&mut buf) {
                Ok(0) => return Ok(total),
                Ok(n) => {
                    to.write_all(&buf[..n])?;
                    total += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    };
    std::thread::Builder::new()
        .spawn(work)
        .context("starting a thread")
}

/// Waits for the command, and reaps orphans meanwhile.
pub(crate) fn wait(child: &Child) -> Result<u8> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(p, code)) if p == pid => return Ok(code as u8),
            Ok(WaitStatus::Signaled(p, signal, _)) if p == pid => {
                return Ok(128 + signal as i32 as u8);
            }
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e).context("waiting for the command"),
        }
    }
}

/// Ends every other process, and waits until all are gone.
pub(crate) fn kill_everything_else() {
    // From process 1, -1 means every process but this one.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while !matches!(waitpid(None, None), Err(nix::Error::ECHILD)) {}
}
