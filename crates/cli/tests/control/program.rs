//! Who runs the program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use usertrace_control::Client;

use super::backend::{self, Trace};

/// The program, as it runs.
pub(crate) struct Program {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The program, which nobody has started yet.
pub(crate) fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = backend::program();
    command
        .env_remove("USERTRACE_CONTROL")
        .env("USERTRACE_BACKEND", "off")
        .envs(variables.iter().copied());
    command
}

impl Program {
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let mut child = command(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self {
            child,
            input,
            output,
        };
        assert_eq!(program.line(), "ready");
        program
    }

    /// One that is traced, and controlled in this way.
    pub(crate) fn traced(mode: &str, trace: &Trace) -> Self {
        let variables = trace.variables();
        Self::start(&[&variables[..], &[("USERTRACE_CONTROL", mode)]].concat())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self) -> Client {
        client(self.pid())
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        if self.output.read_line(&mut line).unwrap() == 0 {
            panic!("the program ended: {:?}", self.child.wait());
        }
        line.trim_end().to_owned()
    }

    /// Has it do something, and gives what it says.
    pub(crate) fn tell(&mut self, what: &str) -> String {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{what}\n").as_bytes()).unwrap();
        self.line()
    }

    pub(crate) fn end(mut self) -> ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

pub(crate) fn client(pid: u32) -> Client {
    Client::connect(pid, Duration::from_secs(120)).unwrap()
}

/// What went wrong, with all that led to it.
pub(crate) fn error<T: std::fmt::Debug>(result: anyhow::Result<T>) -> String {
    format!("{:#}", result.unwrap_err())
}
