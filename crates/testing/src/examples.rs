//! Runs the examples of the manual, as they stand there.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The commands with a manual page.
pub const COMMANDS: [&str; 33] = [
    "record",
    "ctl",
    "start",
    "stop",
    "destroy",
    "filter",
    "trigger",
    "trigger add",
    "trigger list",
    "trigger remove",
    "wait",
    "save",
    "load",
    "status",
    "snapshot",
    "extract",
    "view",
    "report",
    "spans",
    "leaks",
    "export",
    "send",
    "list",
    "top",
    "stat",
    "service",
    "service enable",
    "service disable",
    "service status",
    "service list",
    "doctor",
    "generate",
    "generate man",
];

/// The examples of a command.
pub fn of(usertrace: &Path, command: &str) -> Vec<String> {
    let help = Command::new(usertrace)
        .args(command.split(' '))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = examples.take_while(|line| !line.is_empty());
    let lines = lines
        .map(str::trim_start)
        .filter(|line| !line.starts_with('#'));
    // Join lines that end with a backslash, as a shell does.
    let examples = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "");
    examples.lines().map(str::to_owned).collect()
}

/// Whether the example needs a machine that crashed or was reset; the crash tests have those.
pub fn needs_crash(line: &str) -> bool {
    ["vmcore", "--previous-boot"]
        .iter()
        .any(|word| line.contains(word))
}

/// Whether the example sends something to a relay.
pub fn needs_relay(line: &str) -> bool {
    line.contains("tcp://")
}

/// Puts the address of a relay in place of the example's.
pub fn with_relay(line: &str, address: &str) -> String {
    let words = line.split(' ').map(|word| match needs_relay(word) {
        true => address,
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the example is about running programs that the fallback traces to the directory
/// `traces`.
pub fn is_of_fallback(command: &str, line: &str) -> bool {
    let is_one = ["filter", "start", "stop", "snapshot"].contains(&command);
    is_one
        && line
            .split(' ')
            .any(|word| ["4711", "traces"].contains(&word))
}

/// Whether an example reads traces that must have been recorded before.
pub fn reads_traces(command: &str, line: &str) -> bool {
    let is_reader = ["view", "report", "spans", "leaks", "export", "send"].contains(&command);
    is_reader && !line.contains("record") || line == "usertrace stat traces"
}

/// Makes what the examples that read traces name.
pub fn prepare_traces(command: &str) -> String {
    let options = match (needs_preload(command, ""), command) {
        (true, _) => " --malloc --context callstack",
        // Of call stacks, too.
        (_, "export") => " --context callstack",
        _ => "",
    };
    format!(
        "mkdir symbols && usertrace record -q{options} -o traces -- ./server 3 && \
         cp -r traces usertrace-20261122T150347Z"
    )
}

/// Whether the example needs the libraries to preload.
pub fn needs_preload(command: &str, line: &str) -> bool {
    let options = ["--malloc", "--pthread"];
    command == "leaks"
        || is_of_services(command)
        || options.iter().any(|option| line.contains(option))
}

/// Whether the example is about services of systemd.
pub fn is_of_services(command: &str) -> bool {
    command.starts_with("service")
}

/// Makes an example about services change those of a directory, which it prepares.
pub fn with_services(line: &str) -> String {
    let is_enabled = !line.contains("service enable");
    let enable = "usertrace service enable --malloc redis-server --root units";
    format!(
        "mkdir -p units/usr/lib/systemd/system && for unit in redis-server openvpn@; do \
         printf '[Service]\\nExecStart=/bin/sh\\n' >units/usr/lib/systemd/system/$unit.service; done && {}{line} --root units",
        if is_enabled {
            format!("{enable} && ")
        } else {
            String::new()
        },
    )
}

/// Starts such a program before the example, which gets its process id. The program opens its
/// control channel after its start, and its trace comes with its events. The directory may be that
/// of an earlier example, so only a command that finds the program in it says that it is there.
pub fn beside_program(line: &str) -> String {
    format!(
        "USERTRACE_CONTROL=thread USERTRACE_BACKEND=fast USERTRACE_OUTPUT=traces USERTRACE_SUBBUF_SIZE=4k ./server & \
         until usertrace ctl $! list >/dev/null 2>&1 && usertrace start traces >/dev/null 2>&1; do sleep 0.1; done; {}",
        line.replace("4711", "$!")
    )
}

/// Whether the example runs until a signal stops it.
fn runs_until_stopped(line: &str) -> bool {
    let parts = [
        "-- ./server",
        "record ./server",
        "record -p ",
        "--trace mine -o",
        " watch",
        "usertrace top",
    ];
    // With a number, the server ends by itself after some seconds.
    !line.contains("./server 3") && parts.iter().any(|part| line.contains(part))
}

/// The valid exit statuses of an example. `list --events` returns 3 if some programs cannot be
/// asked, `doctor` 1 if something is missing, and `spans` 1 if nothing is found.
pub fn statuses(command: &str, line: &str) -> &'static [i32] {
    match (
        runs_until_stopped(line),
        line.contains("list --events"),
        command,
    ) {
        (true, _, _) => &[124],
        (_, true, _) => &[0, 3],
        (_, _, "doctor") => &[0, 1],
        // The traced program has no spans.
        (_, _, "spans") if line.contains("--find") => &[0, 1],
        _ => &[0],
    }
}

/// Replaces `sleep 1` in the example by a wait for the program: a busy machine may need longer.
fn with_wait(line: &str) -> String {
    let ready = match line.contains("usertrace ctl $!") {
        true => "usertrace ctl $! list >/dev/null 2>&1",
        false => "[ -d traces ]",
    };
    line.replace("sleep 1;", &format!("until {ready}; do sleep 0.1; done;"))
}

/// Run time of an example that does not end by itself, and the status that stands for its stop, as
/// of `timeout`.
const RUN_TIME: Duration = Duration::from_millis(1500);
const STOPPED: i32 = 124;
/// Time limit of other examples.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Runs the line in a shell, in a directory with the programs. If it does not end by itself, it is
/// stopped after a moment, with status 124. Returns the status, and the output; the status is
/// `None` if it did not end.
pub fn run(line: &str, directory: &Path, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    run_as(line, directory, variables, None)
}

/// Like [`run`], as another user.
pub fn run_as(
    line: &str,
    directory: &Path,
    variables: &[(&str, &str)],
    user: Option<u32>,
) -> (Option<i32>, String) {
    let bin = directory.join("bin");
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        bin.display()
    );
    // Use a file: a process left in the background would keep a pipe open.
    let output = directory.join(".output");
    let file = || {
        File::options()
            .create(true)
            .append(true)
            .open(&output)
            .unwrap()
    };
    let _ = fs::remove_file(&output);
    let mut command = Command::new("sh");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    // The process group includes processes left in the background.
    let mut child = command
        .args(["-c", &with_wait(line)])
        .process_group(0)
        .env("PATH", path)
        .envs(variables.iter().copied())
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(file())
        .stderr(file())
        .spawn()
        .unwrap();
    let group = -child.id().cast_signed();
    // SAFETY: the group belongs to a child that was not waited for, so its number is not reused.
    let signal = |signal| unsafe { libc::kill(group, signal) };
    let status = match runs_until_stopped(line) {
        false => wait_for(&mut child, &|elapsed| elapsed > TIME_LIMIT),
        true => {
            let is_time = |elapsed| elapsed > RUN_TIME && has_recorded(line, directory);
            let stop = |elapsed| is_time(elapsed) || elapsed > TIME_LIMIT;
            wait_for(&mut child, &stop).or_else(|| {
                signal(libc::SIGTERM);
                wait_for(&mut child, &|elapsed| elapsed > TIME_LIMIT).map(|_| STOPPED)
            })
        }
    };
    signal(libc::SIGKILL);
    child.wait().unwrap();
    (status, fs::read_to_string(output).unwrap())
}

/// Waits for the end of a child, and returns its status. `None`: `stop` came first.
fn wait_for(child: &mut Child, stop: &dyn Fn(Duration) -> bool) -> Option<i32> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().or(Some(128 + status.signal().unwrap_or(0)));
        }
        if stop(begun.elapsed()) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the recording that a line makes has a trace, if it records a program to a directory. A
/// busy machine may need a while to start a program, and the next line reads the directory.
fn has_recorded(line: &str, directory: &Path) -> bool {
    let output = line
        .split_once(" -o ")
        .filter(|_| line.contains("./server"));
    let Some((_, rest)) = output.filter(|_| line.contains("usertrace record")) else {
        return true;
    };
    let name = rest.split(' ').next().unwrap_or_default();
    // In a container, the volume has the name of a directory here.
    let inside = name.trim_start_matches('/');
    // With chunks, traces are one directory deeper.
    has_trace(&directory.join(name), 2) || has_trace(&directory.join(inside), 2)
}

fn has_trace(directory: &Path, depth: u32) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| path.join("metadata").exists() || depth > 1 && has_trace(&path, depth - 1))
}
