//! Running programs that the command controls: snapshots, filters, start and stop.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::programs::write;
use super::run::Run;
use usertrace::fake::process::child;
use usertrace_testing::wait::until;

/// A running program that writes an event on request.
struct ControlledProgram<'a> {
    run: &'a Run,
    child: Child,
}

impl<'a> ControlledProgram<'a> {
    fn start(run: &'a Run, variables: &[(&str, &str)]) -> Self {
        let child = run.start("controlled", variables);
        Self { run, child }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Makes it write an event, and returns its answer.
    fn write(&mut self) -> char {
        self.child.stdin.as_mut().unwrap().write_all(b"e").unwrap();
        let mut answer = [0];
        let answers = self.child.stdout.as_mut().unwrap();
        answers.read_exact(&mut answer).unwrap();
        char::from(answer[0])
    }

    /// Runs the command in the run's directory.
    fn usertrace(&self, arguments: &[&str]) -> Output {
        usertrace(self.run.path(), arguments)
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn usertrace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_usertrace"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn success(output: &Output) -> String {
    super::run::assert_success(output.status, &output.stderr);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The error message of a failed command, which has one line.
fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Snapshots copy the contents of the rings, and the programs go on.
pub(crate) fn snapshot_copies_the_rings_of_running_programs() {
    for mode in ["discard", "overwrite"] {
        let run = Run::new();
        let mut program = ControlledProgram::start(&run, &[("USERTRACE_MODE", mode)]);
        let mut other = ControlledProgram::start(&run, &[("USERTRACE_MODE", mode)]);
        let events = |name: &str| {
            success(&usertrace(run.path(), &["view", name]))
                .lines()
                .count()
        };
        for _ in 0..5 {
            assert_eq!(program.write(), 'r');
        }
        assert_eq!(other.write(), 'r');
        let pid = program.pid();
        success(&program.usertrace(&["snapshot", &pid, "-o", "one"]));
        assert_eq!(events("one"), 5);
        for _ in 0..3 {
            assert_eq!(program.write(), 'r');
        }
        // The other program has no trace yet.
        let text = success(&program.usertrace(&["snapshot", ".", "--json", "-o", "both"]));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["processes"].as_array().unwrap().len(), 2, "{text}");
        assert_eq!(events("both"), 9);
        // Later events do not change a snapshot.
        assert_eq!(program.write(), 'r');
        assert_eq!(events("one"), 5);
        for name in ["one", "both"] {
            fs::remove_dir_all(run.path().join(name)).unwrap();
        }
        program.end();
        other.end();
        run.wait();
        assert_eq!(events("."), 10);
        assert!(!run.path().join("usertrace.log").exists());
    }
}

/// A program that forks a child for each byte of its input. Each child writes an event, says so,
/// and lives as long as the program.
pub(crate) fn growing() {
    while std::io::stdin().read(&mut [0]).unwrap() == 1 {
        child(|| {
            // SAFETY: the call takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            assert_eq!(write(1, 0..1), 0);
            print!("r");
            std::io::stdout().flush().unwrap();
            loop {
                std::thread::park();
            }
        });
    }
}

/// A process that has just written its first event has no trace yet. A snapshot has its event, also
/// if the same daemon has told before that other traces are written.
pub(crate) fn snapshot_has_each_process_that_has_written() {
    let run = Run::new();
    let child = run.start("growing", &[]);
    let mut program = ControlledProgram { run: &run, child };
    for count in 1..=12 {
        assert_eq!(program.write(), 'r');
        let text = success(&program.usertrace(&["snapshot", ".", "--json", "-o", "now"]));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["processes"].as_array().unwrap().len(), count, "{text}");
        fs::remove_dir_all(run.path().join("now")).unwrap();
    }
    program.end();
    run.wait();
}

/// Commands that take a process id also take the name of a single process.
pub(crate) fn running_programs_are_found_by_name() {
    let run = Run::new();
    let elsewhere = tempfile::tempdir().unwrap();
    // No other process has this name.
    let name = format!("named{}", std::process::id());
    let path = elsewhere.path().join(&name);
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &path).unwrap();
    let start = || {
        let mut command = Command::new(&path);
        let of_run = run.command("controlled", &[("USERTRACE_CONTROL", "thread")]);
        let variables = of_run
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        let child = command
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.unwrap();
        ControlledProgram { run: &run, child }
    };
    let mut program = start();
    assert_eq!(program.write(), 'r');
    success(&program.usertrace(&["snapshot", &name, "-q", "-o", "now"]));
    let lines = success(&program.usertrace(&["view", "now"]));
    assert_eq!(lines.lines().count(), 1);
    success(&program.usertrace(&["stop", &name]));
    assert_eq!(program.write(), 'o');
    let said = success(&program.usertrace(&["filter", &name]));
    assert!(said.starts_with(&format!("{}: ", program.pid())), "{said}");
    // Other processes are not asked; otherwise, those that cannot answer would be listed.
    let listed = success(&program.usertrace(&["list", "--events", "--pid", &name]));
    assert!(listed.starts_with("1 program with events\n"), "{listed}");
    let this = format!("{name} ({})", program.pid());
    assert!(
        listed.contains(&this) && !listed.contains(" ! "),
        "{listed}"
    );
    let other = start();
    let said = error(&program.usertrace(&["stop", &name]));
    let expected = format!("cannot tell which process \"{name}\" is: ");
    assert!(
        said.contains(&expected) && said.contains(&other.pid()),
        "{said}"
    );
    other.end();
    program.end();
}

/// Commands name what they cannot ask.
pub(crate) fn commands_name_programs_that_they_cannot_reach() {
    let run = Run::new();
    let said = error(&usertrace(run.path(), &["snapshot", ".", "-o", "none"]));
    assert!(
        said.contains("no program is being traced to \".\""),
        "{said}"
    );
    let own = std::process::id().to_string();
    let said = error(&usertrace(run.path(), &["snapshot", &own, "-o", "none"]));
    let expected = format!("process {own} is not traced by the fallback");
    assert!(said.contains(&expected), "{said}");
    assert!(!run.path().join("none").exists());
    let said = error(&usertrace(run.path(), &["stop", "."]));
    assert!(said.contains("no program is being traced to ."), "{said}");
    // A running program without events.
    let program = ControlledProgram::start(&run, &[]);
    until("it has daemons", || {
        usertrace(run.path(), &["snapshot", &program.pid(), "-o", "empty"])
            .status
            .success()
    });
    assert_eq!(fs::read_dir(run.path().join("empty")).unwrap().count(), 0);
    program.end();
}

/// Over the control channel, a program stops, goes on, and changes its filter.
pub(crate) fn running_programs_are_controlled() {
    for mode in ["thread", "signal"] {
        let run = Run::new();
        let mut program = ControlledProgram::start(&run, &[("USERTRACE_CONTROL", mode)]);
        assert_eq!(program.write(), 'r');
        success(&program.usertrace(&["snapshot", ".", "-q", "-o", "now"]));
        for whom in [program.pid(), ".".to_owned()] {
            success(&program.usertrace(&["stop", &whom]));
            assert_eq!(program.write(), 'o');
            success(&program.usertrace(&["start", &whom]));
            assert_eq!(program.write(), 'r');
            success(&program.usertrace(&["filter", &whom, "other:*"]));
            assert_eq!(program.write(), 'o');
            let shown = success(&program.usertrace(&["filter", &whom]));
            assert_eq!(shown, format!("{}: other:*\n", program.pid()));
            success(&program.usertrace(&["filter", "--add", &whom, "test:num*"]));
            assert_eq!(program.write(), 'r');
            success(&program.usertrace(&["filter", &whom, "!numbered"]));
            assert_eq!(program.write(), 'o');
            let said = error(&program.usertrace(&["filter", &whom, "a/b"]));
            assert!(said.contains("no pattern of events"), "{said}");
            assert_eq!(program.write(), 'o');
            success(&program.usertrace(&["filter", &whom, "1"]));
            assert_eq!(program.write(), 'r');
        }
        let said = error(&program.usertrace(&["start", ".", "--flight"]));
        assert!(said.contains("usertrace filter"), "{said}");
        program.end();
    }
    let run = Run::new();
    let mut program = ControlledProgram::start(&run, &[]);
    assert_eq!(program.write(), 'r');
    let said = error(&program.usertrace(&["stop", &program.pid()]));
    assert!(
        said.contains("USERTRACE_CONTROL=signal or =thread"),
        "{said}"
    );
    program.end();
}
