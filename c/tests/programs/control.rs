//! The control channel of programs in C (B2 to B5, F7).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use usertrace_control::{Client, ProcessEnd, Report};
use usertrace_tests_preload::Traces;

use crate::build::build;
use crate::events::source;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("c_program_opens_and_closes_its_channel", || {
        // `SIGIO`; a thread.
        ["29", "0"].iter().for_each(|how| opened(how));
    }),
    (
        "probes_of_a_c_program_are_connected_over_the_channel",
        probes,
    ),
    ("c_program_loads_libraries_when_it_serves", served),
    ("c_program_reports_events_and_full_buffers", reports),
    ("end_of_a_killed_c_program_is_reported", killed),
];

/// A running `controlled.c`.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
}

impl Program {
    fn start(environment: &dyn Fn(&mut Command)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("controlled");
        build(
            &["gcc", "-O2"],
            &[&source("controlled.c"), Path::new("-ldl")],
            &program,
        );
        let mut command = Command::new(program);
        command
            .env_remove("USERTRACE_CONTROL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        environment(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            output,
            directory,
        }
    }

    fn untraced() -> Self {
        Self::start(&|command| {
            command.env("USERTRACE_BACKEND", "off");
        })
    }

    /// Sends a request to the program, and returns its answer.
    fn request(&mut self, what: &str) -> String {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{what}\n").as_bytes()).unwrap();
        let mut line = String::new();
        if self.output.read_line(&mut line).unwrap() == 0 {
            panic!("the program ended: {:?}", self.child.wait());
        }
        line.trim_end().to_owned()
    }

    fn client(&self) -> Client {
        Client::connect(self.child.id(), Duration::from_secs(120)).unwrap()
    }

    /// Builds a shared library from source text.
    fn library(&self, code: &str) -> PathBuf {
        let (from, to) = (
            self.directory.path().join("library.c"),
            self.directory.path().join("library.so"),
        );
        std::fs::write(&from, code).unwrap();
        build(&["gcc", "-shared", "-fPIC"], &[&from], &to);
        to
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requirements: B3, F7
fn opened(how: &str) {
    let mut program = Program::untraced();
    let none = || Client::connect(program.child.id(), Duration::from_secs(1)).is_err();
    assert!(none());
    assert_eq!(program.request("close"), "1");
    assert_eq!(program.request("start -1"), "1");
    assert_eq!(program.request(&format!("start {how}")), "0");
    assert_eq!(program.request("start 0"), "1");
    let client = program.client();
    let events = client.events().unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].description, "test:numbered 6 u64 n");
    client.ask("watch").unwrap();
    assert_eq!(program.request("close"), "0");
    assert_eq!(client.report().unwrap(), Report::Closing);
    assert_eq!(client.report().unwrap(), Report::Closed);
    assert_eq!(program.request("close"), "1");
    assert!(Client::connect(program.child.id(), Duration::from_secs(1)).is_err());
}

/// Requirements: B2, B3, F7
fn probes() {
    let mut program = Program::untraced();
    assert_eq!(program.request("start 0"), "0");
    let client = program.client();
    assert_eq!(client.ask("connect test:* count").unwrap(), "1");
    assert_eq!(program.request("event 1"), "0");
    assert_eq!(program.request("calls"), "0");
    assert_eq!(client.ask("activate test:* count").unwrap(), "1");
    assert_eq!(program.request("event 2"), "0");
    assert_eq!(client.ask("deactivate test:* count").unwrap(), "1");
    assert_eq!(program.request("event 3"), "0");
    assert_eq!(program.request("calls"), "1");
}

/// A signal handler leaves libraries to `usertrace_control_serve`.
///
/// Requirements: B2, B3, F7
fn served() {
    let mut program = Program::untraced();
    let library = program.library(
        "#include <usertrace/probe.h>\n\
         static void look(const struct usertrace_record *record, void *data)\n\
         { *(int *)data += record->len; }\n\
         static int sum;\n\
         const struct usertrace_probe usertrace_probes[] = { { \"look\", look, &sum }, { 0, 0, 0 } };\n",
    );
    assert_eq!(program.request("start 29"), "0");
    let client = program.client();
    for request in ["load", "unload", "load"] {
        let request = format!("{request} {}", library.display());
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| client.ask(&request));
            while !asking.is_finished() {
                assert_eq!(program.request("serve"), "0");
            }
            assert_eq!(asking.join().unwrap().unwrap(), "1");
        });
    }
    assert_eq!(client.ask("connect test:* look").unwrap(), "1");
}

/// Requirements: B4, F7
fn reports() {
    let traces = Traces::new();
    let mut program = Program::start(&|command| {
        let small = [
            ("USERTRACE_SUBBUF_SIZE", "4096"),
            ("USERTRACE_SUBBUF_COUNT", "2"),
        ];
        traces.of(command).envs(small);
    });
    let library =
        program.library("#include <usertrace.h>\nUSERTRACE_EVENT(library, one, INFO, (u8, n));\n");
    assert_eq!(program.request("start 29"), "0");
    let client = program.client();
    assert!(client.ask("watch").unwrap().starts_with("fast /"));
    assert_eq!(program.request(&format!("open {}", library.display())), "0");
    let one = vec!["library:one".to_owned()];
    assert_eq!(client.report().unwrap(), Report::Appeared(one.clone()));
    assert_eq!(program.request("shut"), "0");
    assert_eq!(client.report().unwrap(), Report::Disappeared(one));
    assert_eq!(program.request("flood"), "1");
    let report = client.report().unwrap();
    assert!(
        matches!(report, Report::Full { lost: 1.., .. }),
        "{report:?}"
    );
}

/// Requirements: B5, F7
fn killed() {
    let traces = Traces::new();
    let mut program = Program::start(&|command| {
        traces.of(command);
    });
    assert_eq!(program.request("start 0"), "0");
    let client = program.client();
    client.ask("watch").unwrap();
    for n in 0..10 {
        assert_eq!(program.request(&format!("event {n}")), "1");
    }
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert_eq!(client.report().unwrap(), Report::Closed);
    // Kernels before 6.15 do not report the exit status.
    let ending = client.ending();
    assert!(
        [ProcessEnd::Killed(9), ProcessEnd::Unknown].contains(&ending),
        "{ending:?}"
    );
    assert_eq!(traces.read().events.len(), 10);
}
