//! The guest's first process. In a first boot, it builds a root around the host's own, runs one
//! command (or a shell on the console), and reports the result. In a crash kernel it finds
//! `/proc/vmcore`, saves it, and ends.
//!
//! It never panics, but reports errors to the host: the death of the first process panics the
//! kernel, and would look like a bug of the kernel.

mod command;
mod dump;
mod kexec;
mod leaks;
mod mounts;
mod ports;
mod shell;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::reboot::{RebootMode, reboot};
use usertrace_init::{BYE, JOB_PATH, Job, Report};

use crate::ports::Status;

/// How long the host may take to answer before the guest powers off all the same.
const BYE_TIMEOUT: Duration = Duration::from_secs(30);

fn main() {
    let status = match start() {
        Ok(status) => status,
        Err(e) => {
            // Without a port the console is all there is; the host sees a guest that never said
            // hello.
            eprintln!("usertrace-init: {e:#}");
            power_off();
        }
    };
    if Path::new("/proc/vmcore").exists() {
        status.send(&Report::DumpStarted);
        status.send(&match load_job().and_then(|job| dump::save(&job)) {
            Ok(bytes) => Report::DumpSaved(bytes),
            Err(e) => Report::DumpFailed(format!("{e:#}")),
        });
    } else {
        status.send(&Report::Hello);
        if let Err(e) = load_job().and_then(|job| first_boot(&job, &status)) {
            status.send(&Report::Trouble(format!("{e:#}")));
        }
    }
    status.wait_for(BYE, BYE_TIMEOUT);
    power_off();
}

fn start() -> Result<Arc<Status>> {
    mounts::kernel_file_systems(Path::new("/"))?;
    let status = Arc::new(Status::open()?);
    status.start_beating().context("heartbeat")?;
    Ok(status)
}

fn load_job() -> Result<Job> {
    let bytes = fs::read(JOB_PATH).with_context(|| format!("reading {JOB_PATH}"))?;
    Ok(Job::decode(&bytes)?)
}

fn first_boot(job: &Job, status: &Status) -> Result<()> {
    mounts::enter_root(job)?;
    if let Some(dump) = &job.dump {
        kexec::arm(dump).context("arming the crash kernel")?;
    }
    let report = if job.argv.is_empty() {
        shell::run(job, status)?
    } else {
        command::run(job, status)?
    };
    command::kill_everything_else();
    leaks::look();
    nix::unistd::sync();
    status.send(&report);
    Ok(())
}

fn power_off() -> ! {
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // No power-off on this machine: where QEMU runs with -no-reboot, a reboot ends it as well.
    let _ = reboot(RebootMode::RB_AUTOBOOT);
    loop {
        std::thread::park();
    }
}
