//! `usertrace doctor`: reports what works on this machine, and how to get the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use usertrace::__private::Rseq;
use usertrace::RseqError;
use usertrace_consumer::{ControlFs, ControlFsError, FtraceError, Tracefs, describe};
use usertrace_sys::Calls;

use crate::kernel_commands::{self, KernelCommand};
use crate::lockdown::{self, Lockdown};
use crate::output;
use crate::root::Root;
use crate::unusable;

/// Memory limit in bytes below which two rings of usual sizes do not fit.
const MIN_USEFUL_LIMIT: u64 = 16 << 20;

/// Remedy if this user cannot read the control file system.
const REMEDY: &str = "as root, or of the group of the control file system";

/// Remedy if a lockdown for confidentiality forbids something.
const UNLOCK: &str = "lockdown=integrity on the kernel's command line";

/// Say what this machine can do, what is missing, and how to get it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace doctor
  usertrace doctor --json | jq -r '.[] | select(.remedy) | .remedy'      # what there is to do

Each line is about one thing that tracing uses: \"ok\", \"no\" if something that programs or commands need is missing, and
\"--\" if it is missing and the rest works without it. Below what is missing stands what to do about it. The commands follow:
\"ok\" if one works here, else \"--\", the reason, and what to use instead.

Exit status: 0 if programs can be traced into the kernel's buffers and this user can control that, else 1.")]
pub(crate) struct Args {
    /// Write the findings as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    #[command(flatten)]
    root: Root,

    /// Where the kernel's other file systems are: for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    system: PathBuf,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// Missing, and the kernel's buffers cannot be used without it.
    Missing,
    /// Missing, and everything else works without it.
    Lacking,
}

/// Result of one check, with a remedy if there is one.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    /// The result of the check, or the reason why something is missing.
    what: String,
    /// How to fix it.
    remedy: Option<String>,
    /// `name` is a command of `usertrace`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_command: bool,
}

impl Finding {
    fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            what: what.into(),
            remedy: None,
            is_command: false,
        }
    }

    fn missing(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            remedy: Some(remedy.into()),
            ..Self::ok(name, what)
        }
    }

    fn lacking(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Lacking,
            ..Self::missing(name, what, remedy)
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let findings = self.findings();
        let works = findings.iter().all(|f| f.state != State::Missing);
        if let Some(to) = &self.json {
            output::json(to, &findings)?;
        } else {
            output::print(&findings.iter().map(lines).collect::<String>())?;
        }
        Ok(u8::from(!works))
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![kernel(), rseq()];
        findings.extend(self.control());
        findings.push(self.kdump());
        findings.extend(self.lockdown());
        findings.push(self.tracefs());
        findings.push(fallback());
        findings.push(babeltrace());
        findings.extend(self.commands());
        findings
    }

    /// Checks which commands work on this machine, for this user.
    fn commands(&self) -> Vec<Finding> {
        let control = self.root.open();
        let may_change = self.may_change();
        let state = |command: &KernelCommand| match &control {
            Err(ControlFsError::Missing(_)) if Calls::discover().is_err() => {
                Finding::lacking(command.name, "needs the patched kernel", command.instead)
            }
            Err(error @ ControlFsError::Missing(_)) => {
                let remedy = format!("mount -t ltt ltt {}", self.root.path.display());
                Finding::lacking(command.name, describe(error), remedy)
            }
            Err(error) => Finding::lacking(command.name, describe(error), REMEDY),
            Ok(_) if command.changes && !may_change => {
                let remedy = "see permission above";
                Finding::lacking(command.name, "this user cannot change traces", remedy)
            }
            Ok(_) => Finding::ok(command.name, "works"),
        };
        let record = match &control {
            Ok(_) if !may_change => {
                let remedy = "see permission above";
                Finding::lacking("record", "this user cannot make traces", remedy)
            }
            Ok(_) => Finding::ok("record", "works, with the kernel's buffers"),
            Err(ControlFsError::Missing(_)) => {
                Finding::ok("record", "works: each program writes its own trace")
            }
            Err(error) => Finding::lacking("record", describe(error), REMEDY),
        };
        let needs_nothing = [
            "ctl",
            "extract",
            "view",
            "export",
            "report",
            "list --events",
            "top DIR",
            "generate",
        ];
        let works = needs_nothing.map(|name| Finding::ok(name, "works"));
        let commands = kernel_commands::ALL.into_iter().map(state);
        let all = std::iter::once(record).chain(commands).chain(works);
        all.map(|finding| Finding {
            is_command: true,
            ..finding
        })
        .collect()
    }

    /// Whether this user may create traces.
    fn may_change(&self) -> bool {
        let root = self.root.path.as_os_str().as_encoded_bytes();
        // SAFETY: `CString` ends the path with a NUL; `access` only reads it.
        std::ffi::CString::new(root)
            .is_ok_and(|path| unsafe { libc::access(path.as_ptr(), libc::W_OK) } == 0)
    }

    /// Checks the control file system, this user's permission to use it, and the memory limits of
    /// traces.
    fn control(&self) -> Vec<Finding> {
        let root = &self.root.path;
        let control = match self.root.open() {
            Ok(control) => control,
            Err(ControlFsError::Missing(_)) => {
                let what = format!("no control file system at {}", root.display());
                let remedy = match Calls::discover() {
                    Ok(_) => format!("mount -t ltt ltt {}", root.display()),
                    Err(_) => "it comes with such a kernel".to_owned(),
                };
                return vec![Finding::missing("control", what, remedy)];
            }
            Err(error) => {
                return vec![Finding::missing("control", describe(&error), REMEDY)];
            }
        };
        let what = match control.traces() {
            Ok(traces) => output::count(traces.len(), "trace", "traces"),
            Err(_) => "its traces cannot be listed".to_owned(),
        };
        let conditions = conditions(&control);
        let mounted = Finding::ok("control", format!("{}, {what}", root.display()));
        let may = self.may_change();
        let permission = if may {
            Finding::ok("permission", "this user can make traces")
        } else {
            let remedy = format!(
                "as root: chgrp GROUP {0} && chmod g+w,+t {0}, for a group of this user's; or sudo",
                root.display()
            );
            Finding::missing("permission", "this user cannot make traces", remedy)
        };
        let mut findings = vec![mounted, permission];
        findings.extend(conditions);
        if may {
            findings.extend(["limit_total", "limit_user", "limit_process"].map(|name| {
                let path = root.join(name);
                limit(name, &path)
            }));
        }
        findings
    }

    /// Checks whether the kernel's own events can be recorded, and whether a killed recording left
    /// some behind.
    fn tracefs(&self) -> Finding {
        let name = "kernel events";
        let found = Tracefs::find_below(&self.system);
        let (what, remedy) = match &found {
            Err(FtraceError::NoTracefs)
                if Lockdown::of(&self.system) == Lockdown::Confidentiality =>
            {
                ("forbidden by lockdown", UNLOCK.to_owned())
            }
            Err(FtraceError::NoTracefs) => (
                "no tracefs: record --kernel needs it",
                "as root: mount -t tracefs tracefs /sys/kernel/tracing (CONFIG_FTRACE)".to_owned(),
            ),
            Err(_) => (
                "this user cannot use tracefs",
                "as root, or sudo".to_owned(),
            ),
            Ok(tracefs) => match tracefs.leftovers().unwrap_or_default().first() {
                None => return Finding::ok(name, tracefs.path().display().to_string()),
                Some(instance) => (
                    "are being recorded, perhaps for a recording that was killed",
                    format!("if so, start that again, or: rmdir {}", instance.display()),
                ),
            },
        };
        Finding::lacking(name, what, remedy)
    }

    /// Checks whether a crash of the kernel produces a dump.
    fn kdump(&self) -> Finding {
        let number = |file: &str| -> Option<u64> {
            let text = fs::read_to_string(self.system.join("sys/kernel").join(file)).ok()?;
            text.trim().parse().ok()
        };
        let size = number("kexec_crash_size").unwrap_or(0);
        if size == 0 {
            let remedy = "put crashkernel=256M on the kernel's command line and restart; install kdump-tools";
            return Finding::lacking("kdump", "no memory is reserved for a crash kernel", remedy);
        }
        if number("kexec_crash_loaded") != Some(1) {
            let what = format!(
                "{} MiB are reserved, and no crash kernel is loaded",
                size >> 20
            );
            return match lockdown::kexec_rule(&self.system) {
                Some(rule) => {
                    Finding::lacking("kdump", format!("{what}: {}", rule.what), rule.remedy)
                }
                None => Finding::lacking("kdump", what, "as root: kdump-config load"),
            };
        }
        Finding::ok(
            "kdump",
            format!("a crash kernel is loaded, in {} MiB", size >> 20),
        )
    }

    /// Checks for a lockdown of the kernel that forbids what some commands do.
    fn lockdown(&self) -> Option<Finding> {
        let name = "lockdown";
        match Lockdown::of(&self.system) {
            Lockdown::None => None,
            level @ Lockdown::Integrity => Some(Finding::ok(
                name,
                format!("{level}: a crash kernel must be signed"),
            )),
            level @ Lockdown::Confidentiality => Some(Finding::lacking(
                name,
                format!(
                    "{level}: no kernel events, no extract of /proc/kcore or of the previous \
                     boot, and a crash kernel must be signed"
                ),
                UNLOCK,
            )),
        }
    }
}

fn lines(finding: &Finding) -> String {
    let state = match finding.state {
        State::Ok => "ok",
        State::Missing => "no",
        State::Lacking => "--",
    };
    let (name, width) = match finding.is_command {
        true => (format!("usertrace {}", finding.name), 36),
        false => (finding.name.to_owned(), 14),
    };
    let mut lines = format!("{state}  {name:<width$}{}\n", finding.what);
    if let Some(remedy) = &finding.remedy {
        lines += &format!("    {:<width$}{remedy}\n", "");
    }
    lines
}

/// Checks whether programs can use the conditions of all traces.
fn conditions(control: &ControlFs) -> Option<Finding> {
    let names = control.trace_names().unwrap_or_default();
    let mut problems = names.iter().filter_map(|name| {
        let trace = control.trace(name).ok()?;
        let problem = unusable::conditions(&trace).ok()?.into_iter().next()?;
        Some((name, problem))
    });
    let (name, problem) = problems.next()?;
    let what = format!("trace {name:?}: {problem}");
    let remedy = format!(
        "usertrace status {name} has all; usertrace filter and usertrace trigger add check conditions first"
    );
    Some(Finding::lacking("conditions", what, remedy))
}

/// Checks for trace buffers in the kernel.
fn kernel() -> Finding {
    match Calls::discover() {
        Ok(_) => Finding::ok("kernel", "has trace buffers for user space"),
        Err(error) => {
            let remedy = "build one with the patches of kernel-patches/: scripts/kernel build (docs/start/install.md)";
            Finding::missing("kernel", error.to_string(), remedy)
        }
    }
}

/// Checks for restartable sequences, which let events do without atomic instructions.
fn rseq() -> Finding {
    let remedy = match Rseq::find() {
        Ok(_) => return Finding::ok("rseq", "restartable sequences"),
        Err(RseqError::Library) => {
            "a library registered them before the C library could: see GLIBC_TUNABLES=glibc.pthread.rseq"
        }
        Err(_) => "a kernel with CONFIG_RSEQ, and no filter of system calls that forbids rseq()",
    };
    Finding::missing("rseq", "no restartable sequences", remedy)
}

/// Checks a memory limit of the control file system.
fn limit(name: &'static str, path: &Path) -> Finding {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            return Finding::lacking(name, format!("cannot be read: {error}"), REMEDY);
        }
    };
    let text = text.trim();
    match text.parse::<u64>() {
        Ok(bytes) if bytes < MIN_USEFUL_LIMIT => {
            let what = format!("{bytes} bytes: events will be lost");
            Finding::lacking(
                name,
                what,
                format!("echo {MIN_USEFUL_LIMIT} >{}", path.display()),
            )
        }
        Ok(bytes) => Finding::ok(name, format!("{} MiB", bytes >> 20)),
        Err(_) => Finding::ok(name, text),
    }
}

/// Checks for the shared memory that the fallback needs.
fn fallback() -> Finding {
    // SAFETY: the name is a constant C string; the call takes no other memory.
    let fd = unsafe { libc::memfd_create(c"usertrace".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        let what = format!("no shared memory: {error}");
        let remedy = "a filter of system calls that lets memfd_create() through";
        return Finding::lacking("fallback", what, remedy);
    }
    // SAFETY: `memfd_create` returned this descriptor above, and nothing else has it.
    unsafe { libc::close(fd) };
    Finding::ok(
        "fallback",
        "traces can be written without the kernel's buffers",
    )
}

/// Checks for babeltrace2, which prints traces.
fn babeltrace() -> Finding {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&paths).map(|path| path.join("babeltrace2"));
    match candidates.find(|path| path.is_file()) {
        Some(path) => Finding::ok("babeltrace2", path.display().to_string()),
        None => Finding::lacking("babeltrace2", "not found", "apt install babeltrace2"),
    }
}
