//! Programs in containers: in PID namespaces, as process 1 and as parents of orphans, and with a
//! root of their own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use usertrace_testing::containers;

use super::filter;
use super::run::{Run, VARIABLE, assert_success};
use super::trace;

/// An `unshare` command that runs a program in a new PID namespace.
///
/// Users other than root need a user namespace for that, which not every system allows.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    // SAFETY: `geteuid` takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork"]);
    command
}

/// Runs one of the programs as process 1 of a PID namespace.
fn as_process_1(run: &Run, program: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = unshare();
    command
        .arg(std::env::current_exe().unwrap())
        .env(VARIABLE, program)
        .env("USERTRACE_BACKEND", "fast")
        .env("USERTRACE_OUTPUT", run.path())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// The number of events of a finished trace.
fn events(directory: &Path) -> usize {
    trace::read(directory).events.len()
}

/// The kernel kills the daemons with the first process of their namespace. If that process ends by
/// `exit`, its events are written before.
pub(crate) fn process_1_ends_when_its_trace_is_written() {
    for (mode, program, written) in [
        ("discard", "ten", 10),
        ("overwrite", "ten", 10),
        ("block", "flood", 200_000),
        // All events are written at exit, but the trace is not complete.
        ("discard", "written", 10),
    ] {
        for _ in 0..5 {
            let run = Run::new();
            let output = as_process_1(&run, program, &[("USERTRACE_MODE", mode)]);
            assert_success(output.status, &output.stderr);
            let directories = run.directories();
            assert_eq!(directories.len(), 1, "{mode}: {directories:?}");
            assert_eq!(events(&directories[0]), written, "{mode}");
        }
    }
}

/// `usertrace record` learns of such a process from its daemons.
pub(crate) fn process_1_is_recorded() {
    let run = Run::new();
    let traces = run.path().join("traces");
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command
        .args(["record", "--json", "-q", "-o"])
        .arg(&traces)
        .arg("--");
    let unshare = unshare();
    command.arg(unshare.get_program()).args(unshare.get_args());
    command.arg(std::env::current_exe().unwrap());
    let output = command.env(VARIABLE, "ten").output().unwrap();
    assert_success(output.status, &output.stderr);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let processes = json["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1, "{json}");
    assert_eq!(processes[0]["events"], 10);
    assert_eq!(events(&trace::directories(&traces)[0]), 10);
}

/// A child in another namespace has an id there that another process has here.
pub(crate) fn children_in_other_namespaces_are_distinguished() {
    for (rings, mode) in [("cpu", "discard"), ("thread", "block")] {
        let run = Run::new();
        let mut command = run.command(
            "namespaces",
            &[("USERTRACE_RINGS", rings), ("USERTRACE_MODE", mode)],
        );
        // SAFETY: between fork and exec, the child makes system calls only.
        unsafe {
            command.pre_exec(|| {
                if libc::geteuid() != 0 && libc::unshare(libc::CLONE_NEWUSER) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let output = command.output().unwrap();
        assert_success(output.status, &output.stderr);
        let mut threads: Vec<_> = run
            .directories()
            .iter()
            .flat_map(|directory| trace::read(directory).threads())
            .map(|(thread, numbers)| (thread, numbers.len()))
            .collect();
        threads.sort();
        // Threads and events: the parent, three children in the namespace, and a grandchild there.
        let expected = [(1, 10), (10, 50), (11, 50), (12, 50), (20, 50)];
        assert_eq!(threads, expected, "{rings} {mode}");
        // Directory names have the process ids of the daemons' namespace.
        for directory in run.directories() {
            let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
            let pid: u32 = name.rsplit('-').nth(1).unwrap().parse().unwrap();
            assert!(pid > 10, "{name}");
        }
    }
}

/// A subreaper that waits for all its children does not wait for the daemons.
pub(crate) fn subreaper_waits_for_its_own_children_only() {
    let run = Run::new();
    let mut command = run.command("waits_for_all", &[]);
    // SAFETY: between fork and exec, the child makes one system call; `exec` keeps its effect.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_success(output.status, &output.stderr);
    assert_eq!(output.stdout, b"3\n");
    assert_eq!(run.trace().threads()[&1].len(), 20);

    let run = Run::new();
    let output = as_process_1(&run, "waits_for_all", &[]);
    assert_success(output.status, &output.stderr);
    assert_eq!(output.stdout, b"3\n");
    assert_eq!(run.trace().threads()[&1].len(), 20);
}

/// A container with this program and `usertrace`, and the volume `traces` of a directory.
struct Container {
    directory: tempfile::TempDir,
    docker: PathBuf,
}

impl Container {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = [
            ("/program".to_owned(), std::env::current_exe().unwrap()),
            (
                "/usr/bin/usertrace".to_owned(),
                PathBuf::from(env!("CARGO_BIN_EXE_usertrace")),
            ),
        ];
        let docker = containers::docker(directory.path(), &image, "/program");
        Self { directory, docker }
    }

    /// The host's directory of the volume.
    fn volume(&self) -> PathBuf {
        self.directory.path().join("traces")
    }

    /// Runs a command of the image, or the program. `variables` are those of `docker run -e`.
    fn run(&self, variables: &[&str], command: &[&str]) -> Output {
        let mut docker = Command::new(&self.docker);
        docker.args(["run", "-v"]);
        docker.arg(format!("{}:/traces", self.volume().display()));
        for variable in variables {
            docker.args(["-e", variable]);
        }
        docker.arg("image").args(command).output().unwrap()
    }
}

/// The fallback needs nothing but a directory to write to: the root is read-only, and has no
/// `/dev`, `/sys` or `/tmp`. Two containers have a process 1 each, and share the volume.
pub(crate) fn containers_write_to_a_volume() {
    let container = Container::new();
    let program = format!("{VARIABLE}=ten");
    for _ in 0..2 {
        let output = container.run(&["USERTRACE_OUTPUT=/traces", &program], &[]);
        assert_success(output.status, &output.stderr);
    }
    let directories = trace::directories(&container.volume());
    assert_eq!(directories.len(), 2, "{directories:?}");
    for directory in directories {
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name.rsplit('-').nth(1), Some("1"), "{name}");
        assert_eq!(events(&directory), 10);
    }
}

/// As process 1, `usertrace record` completes the trace of a program that is killed, before the
/// kernel kills the daemons.
pub(crate) fn recorder_as_process_1_completes_a_killed_programs_trace() {
    let container = Container::new();
    let program = format!("{VARIABLE}=killed");
    let record = [
        "usertrace",
        "record",
        "-q",
        "-o",
        "/traces/now",
        "--",
        "/program",
    ];
    let output = container.run(&[&program], &record);
    assert_eq!(
        output.status.code(),
        Some(128 + libc::SIGKILL),
        "{output:?}"
    );
    let directories = trace::directories(&container.volume().join("now"));
    assert_eq!(directories.len(), 1, "{directories:?}");
    assert_eq!(events(&directories[0]), 1000);
}

/// A seccomp profile may refuse the call by which the library discovers trace buffers. The fallback
/// records then, unless the environment chooses the kernel.
pub(crate) fn profile_that_refuses_the_discovery_leaves_the_fallback() {
    for (backend, is_traced) in [(None, true), (Some("auto"), true), (Some("kernel"), false)] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let run = Run::new();
            let mut command = run.command("report", &[]);
            command.env_remove("USERTRACE_BACKEND");
            command.envs(backend.map(|backend| ("USERTRACE_BACKEND", backend)));
            // SAFETY: between fork and exec, the child makes system calls only.
            unsafe {
                command.pre_exec(move || {
                    let refusal = libc::SECCOMP_RET_ERRNO | errno as u32;
                    filter::refuse([libc::SYS_prctl], refusal);
                    Ok(())
                });
            }
            let output = command.output().unwrap();
            assert_success(output.status, &output.stderr);
            let report = String::from_utf8(output.stdout).unwrap();
            assert_eq!(
                report.starts_with("attached, fast ("),
                is_traced,
                "{backend:?}: {report}"
            );
            run.wait();
        }
    }
}
