//! The examples of the manual, each as it stands there.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The commands that have a page.
pub const COMMANDS: [&str; 17] = [
    "record",
    "ctl",
    "start",
    "stop",
    "destroy",
    "filter",
    "status",
    "snapshot",
    "extract",
    "view",
    "report",
    "export",
    "list",
    "top",
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
    // As a shell reads them: a line that ends with a backslash goes on.
    let examples = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "");
    examples.lines().map(str::to_owned).collect()
}

/// Does it take a machine that has crashed, or was reset? The crash tests have those.
pub fn needs_crash(line: &str) -> bool {
    ["vmcore", "--previous-boot"]
        .iter()
        .any(|word| line.contains(word))
}

/// Is it about programs that run, and that the fallback traces to the directory `traces`?
pub fn is_of_fallback(command: &str, line: &str) -> bool {
    let is_one = ["filter", "start", "stop", "snapshot"].contains(&command);
    is_one
        && line
            .split(' ')
            .any(|word| ["4711", "traces"].contains(&word))
}

/// The example, beside such a program, which it names by its process id. The program opens its
/// control channel after it has begun, and its trace comes with its events.
pub fn beside_program(line: &str) -> String {
    format!(
        "USERTRACE_CONTROL=thread USERTRACE_BACKEND=fast USERTRACE_OUTPUT=traces USERTRACE_SUBBUF_SIZE=4k ./server & \
         until usertrace ctl $! list >/dev/null 2>&1 && [ -d traces ]; do sleep 0.1; done; {}",
        line.replace("4711", "$!")
    )
}

/// Does it go on until somebody stops it?
fn goes_on(line: &str) -> bool {
    let parts = [
        "-- ./server",
        "record ./server",
        "record -p ",
        "--trace mine -o",
        " watch",
        "usertrace top",
    ];
    // A number is how many seconds the server is there.
    !line.contains("./server 3") && parts.iter().any(|part| line.contains(part))
}

/// The statuses with which an example of a command may end. That some programs cannot be asked is
/// what `list --events` says by 3; as for `doctor`, not all is there.
pub fn statuses(command: &str, line: &str) -> &'static [i32] {
    match (goes_on(line), line.contains("list --events"), command) {
        (true, _, _) => &[124],
        (_, true, _) => &[0, 3],
        (_, _, "doctor") => &[0, 1],
        _ => &[0],
    }
}

/// The example, with a wait for the program in place of `sleep 1`: a busy machine may need longer.
fn patient(line: &str) -> String {
    let ready = match line.contains("usertrace ctl $!") {
        true => "usertrace ctl $! list >/dev/null 2>&1",
        false => "[ -d traces ]",
    };
    line.replace("sleep 1;", &format!("until {ready}; do sleep 0.1; done;"))
}

/// How long what goes on is left alone, and the status that says so, as that of `timeout` does.
const MOMENT: Duration = Duration::from_millis(1500);
const STOPPED: i32 = 124;
/// How long what ends by itself may take.
const LONG: Duration = Duration::from_secs(300);

/// Has a shell run it in a directory, which has the programs, and stops what goes on after a
/// moment, as it says by the status
/// 124. Gives the status, nothing for what did not end, and what was said.
pub fn run(line: &str, directory: &Path, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    run_as(line, directory, variables, None)
}

/// Likewise, as another user.
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
    // Not a pipe, whose end somebody who is left in the background would keep back.
    let said = directory.join("said");
    let file = || {
        File::options()
            .create(true)
            .append(true)
            .open(&said)
            .unwrap()
    };
    let _ = fs::remove_file(&said);
    let mut command = Command::new("sh");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    // A process group of its own, which has who is left in the background.
    let mut child = command
        .args(["-c", &patient(line)])
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
    // SAFETY: no memory is involved; the group is this function's.
    let signal = |signal| unsafe { libc::kill(group, signal) };
    let status = match goes_on(line) {
        false => wait_for(&mut child, &|elapsed| elapsed > LONG),
        true => {
            let is_time = |elapsed| elapsed > MOMENT && has_recorded(line, directory);
            let stop = |elapsed| is_time(elapsed) || elapsed > LONG;
            wait_for(&mut child, &stop).or_else(|| {
                signal(libc::SIGTERM);
                wait_for(&mut child, &|elapsed| elapsed > LONG).map(|_| STOPPED)
            })
        }
    };
    signal(libc::SIGKILL);
    child.wait().unwrap();
    (status, fs::read_to_string(said).unwrap())
}

/// Waits for the end of a child, and gives its status; nothing if it is stopped before, or ended by
/// a signal.
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

/// Whether what a line records is there, if it records a program to a directory: a busy machine may
/// need a while to start one, and the next line reads the directory.
fn has_recorded(line: &str, directory: &Path) -> bool {
    let output = line
        .split_once(" -o ")
        .filter(|_| line.contains("./server"));
    let Some((_, rest)) = output.filter(|_| line.contains("usertrace record")) else {
        return true;
    };
    let name = rest.split(' ').next().unwrap_or_default();
    // In chunks, traces are a directory further down.
    has_trace(&directory.join(name), 2)
}

fn has_trace(directory: &Path, depth: u32) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| path.join("metadata").exists() || depth > 1 && has_trace(&path, depth - 1))
}
