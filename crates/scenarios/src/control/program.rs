//! Starts the program, and talks to it by its input and its output.

use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use usertrace_control::Client;

use super::{Backend, Trace as _};

/// A running program. Back end `B` says what its executable is.
pub struct Program<B> {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    backend: PhantomData<B>,
}

/// The program, before it is started. It is neither traced nor controlled unless a variable says
/// so.
pub fn command<B: Backend>(variables: &[(&str, &str)]) -> Command {
    let mut command = B::program();
    command
        .env_remove("USERTRACE_CONTROL")
        .env("USERTRACE_BACKEND", "off")
        .envs(variables.iter().copied());
    command
}

impl<B: Backend> Program<B> {
    pub fn start(variables: &[(&str, &str)]) -> Self {
        let mut child = command::<B>(variables)
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
            backend: PhantomData,
        };
        assert_eq!(program.line(), "ready");
        program
    }

    /// Starts a program that is traced. `mode` is its `USERTRACE_CONTROL`.
    pub fn traced(mode: &str, trace: &B::Trace) -> Self {
        let variables = trace.variables();
        Self::start(&[&variables[..], &[("USERTRACE_CONTROL", mode)]].concat())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.pid(), Duration::from_secs(120)).unwrap()
    }

    /// The next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        if self.output.read_line(&mut line).unwrap() == 0 {
            panic!("the program ended: {:?}", self.child.wait());
        }
        line.trim_end().to_owned()
    }

    /// Writes a line to the program's input, and returns its answer.
    pub fn request(&mut self, line: &str) -> String {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.line()
    }

    pub fn end(mut self) -> ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The text of an error, with its causes.
pub fn error<T: std::fmt::Debug>(result: anyhow::Result<T>) -> String {
    format!("{:#}", result.unwrap_err())
}
