//! A server that is recorded by the fallback while clients send it requests at once.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts a server that prints its port and serves until its standard input ends. Its trace
    /// goes to a directory.
    pub fn start(command: &mut Command, traces: &Path) -> Self {
        let mut process = command
            .env("USERTRACE_BACKEND", "fast")
            .env("USERTRACE_OUTPUT", traces)
            .env("USERTRACE_CONTEXTS", "vtid,procname")
            // No event may be lost, however slow the machine is.
            .env("USERTRACE_MODE", "block")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { process, port }
    }

    /// Calls `request` with the port and an id: `each` times in each of the clients, with ids from
    /// 0 on.
    pub fn load(&self, clients: u64, each: u64, request: impl Fn(u16, u64) + Sync) {
        let (port, request) = (self.port, &request);
        thread::scope(|scope| {
            for client in 0..clients {
                scope.spawn(move || (0..each).for_each(|n| request(port, client * each + n)));
            }
        });
    }

    /// Ends it, and checks that it succeeded.
    pub fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

/// Sends a request with an id in the header `x-id`, and returns the answer.
pub fn get(port: u16, path: &str, id: u64) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let text =
        format!("GET {path} HTTP/1.1\r\nhost: test\r\nx-id: {id}\r\nconnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
