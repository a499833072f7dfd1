//! A shell on the console, for a person.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use usertrace_init::{GO, Job, Report};

use crate::command;
use crate::ports::Status;

const CONSOLE: &str = "/dev/ttyS0";
const GO_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the shell to its end.
pub(crate) fn run(job: &Job, status: &Status) -> Result<Report> {
    // The host waits for this line, and hands its terminal over.
    println!("usertrace: shell {}", job.nonce);
    status.send(&Report::Started);
    if !status.wait_for(GO, GO_TIMEOUT) {
        bail!("the host did not take the console");
    }
    let console = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(CONSOLE)
            .context(CONSOLE)
    };
    let program = if Path::new("/bin/bash").exists() {
        "/bin/bash"
    } else {
        "/bin/sh"
    };
    let mut shell = Command::new(program);
    command::prepare(&mut shell, job);
    shell
        .stdin(Stdio::from(console()?))
        .stdout(Stdio::from(console()?))
        .stderr(Stdio::from(console()?));
    // SAFETY: the closure makes two system calls and allocates nothing, which is all that may
    // happen between fork and exec.
    unsafe {
        shell.pre_exec(|| {
            nix::unistd::setsid()?;
            // The console is the shell's controlling terminal: job control and Ctrl-C work.
            if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = shell
        .spawn()
        .with_context(|| format!("starting {program}"))?;
    let status = command::wait(&child)?;
    Ok(Report::Exit {
        status,
        stdout: 0,
        stderr: 0,
    })
}
