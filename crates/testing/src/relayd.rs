//! LTTng's relay daemon, for tests.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use socket2::{Domain, Socket, Type};

use crate::babeltrace::is_about_modules;
use crate::relay_log;
use crate::wait::{LIMIT, until, within};

/// Reserves a port of the loopback device: the system gives it to nobody else, but a program that
/// asks for it by number can listen there, if it sets `SO_REUSEADDR`, as the relay daemon does.
fn reserve() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket
        .bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())
        .unwrap();
    socket
}

/// A running relay daemon with an output directory of its own.
pub struct Relayd {
    directory: tempfile::TempDir,
    host: String,
    /// The network namespace in which it runs, if that is another one.
    namespace: Option<String>,
    /// Ports for control, for data, and for live viewers.
    ports: [u16; 3],
    /// Sockets that keep others from taking these ports.
    _reserved: Vec<Socket>,
    child: Option<Child>,
}

impl Relayd {
    /// Starts a relay daemon on the loopback device.
    ///
    /// # Panics
    /// If `lttng-relayd` is not installed, or does not listen.
    pub fn start() -> Self {
        let mut relayd = Self::stopped();
        relayd.restart();
        relayd
    }

    /// A relay daemon that does not run yet.
    ///
    /// # Panics
    /// If there are no free ports.
    pub fn stopped() -> Self {
        let reserved = [(); 3].map(|()| reserve());
        let port = |of: &Socket| of.local_addr().unwrap().as_socket_ipv4().unwrap().port();
        Self {
            directory: tempfile::tempdir().unwrap(),
            host: Ipv4Addr::LOCALHOST.to_string(),
            namespace: None,
            ports: reserved.each_ref().map(port),
            _reserved: reserved.into(),
            child: None,
        }
    }

    /// Starts a relay daemon in a network namespace, on one of its addresses.
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_in(namespace: &str, host: &str) -> Self {
        let mut relayd = Self {
            directory: tempfile::tempdir().unwrap(),
            host: host.to_owned(),
            namespace: Some(namespace.to_owned()),
            ports: [5342, 5343, 5344],
            _reserved: Vec::new(),
            child: None,
        };
        relayd.restart();
        relayd
    }

    /// A command in the namespace of the relay daemon.
    pub fn command(&self, program: &str) -> Command {
        match &self.namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, program]);
                command
            }
        }
    }

    /// The address for senders.
    pub fn address(&self) -> String {
        format!("tcp://{}:{}:{}", self.host, self.ports[0], self.ports[1])
    }

    /// The directory with what it received.
    pub fn output(&self) -> PathBuf {
        self.directory.path().join("output")
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Starts it, again if it was killed.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let path = self.directory.path();
        let log = File::create(path.join("log")).unwrap();
        let mut command = self.command("lttng-relayd");
        command.arg("-v").arg("--output").arg(self.output());
        for (option, port) in ["-C", "-D", "-L"].into_iter().zip(self.ports) {
            command.args([option, &format!("tcp://{}:{port}", self.host)]);
        }
        // Its files must not be those of others.
        command.env("LTTNG_HOME", path).env("HOME", path);
        command.env("LTTNG_RELAYD_HEALTH", path.join("health"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap());
        let child = command.stderr(log).spawn();
        let child = child.expect("lttng-relayd (Debian package lttng-tools) must be installed");
        self.child = Some(child);
        until("the relay listens", || {
            if let Some(status) = self.child.as_mut().and_then(|of| of.try_wait().unwrap()) {
                self.child = None;
                panic!("lttng-relayd ended: {status}\n{}", self.log());
            }
            self.listens()
        });
    }

    fn listens(&self) -> bool {
        if self.namespace.is_none() {
            let listens = |port| TcpStream::connect((&self.host[..], port)).is_ok();
            return self.ports.into_iter().all(listens);
        }
        let output = self.command("ss").args(["-H", "-l", "-t", "-n"]).output();
        let output = output.expect("ss (Debian package iproute2) must be installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let listens = |port| text.contains(&format!("{}:{port} ", self.host));
        self.ports.into_iter().all(listens)
    }

    /// Its process id; `None` if it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills it.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a running relay");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops it, or lets it go on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pause(&self, is_paused: bool) {
        let child = self.child.as_ref().expect("a running relay");
        let signal = match is_paused {
            true => libc::SIGSTOP,
            false => libc::SIGCONT,
        };
        // SAFETY: the signal goes to a child that was not waited for, so the id is its own.
        let sent = unsafe { libc::kill(child.id().cast_signed(), signal) };
        assert_eq!(sent, 0);
    }
}

impl Drop for Relayd {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// `babeltrace2` that reads a live session.
pub struct LiveViewer {
    /// The host and the trace that it reads.
    session: [String; 2],
    child: Child,
    reader: JoinHandle<()>,
    lines: Arc<Mutex<Vec<String>>>,
    /// What it says on its standard error.
    errors: tempfile::NamedTempFile,
}

impl LiveViewer {
    /// Starts to read the session of a trace on a host.
    ///
    /// # Panics
    /// If there is no `babeltrace2`.
    pub fn start(relay: &Relayd, host: &str, trace: &str) -> Self {
        let (address, port) = (&relay.host, relay.ports[2]);
        let session = format!("net://{address}:{port}/host/{host}/{trace}");
        let mut command = relay.command("babeltrace2");
        command.args(["--clock-seconds", "-i", "lttng-live", &session]);
        // It must not wait until somebody reads its warnings.
        let errors = tempfile::NamedTempFile::new().unwrap();
        command.stderr(errors.reopen().unwrap());
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("babeltrace2 must be installed");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let shared = lines.clone();
        let reader = thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                if !is_about_modules(&line) {
                    shared.lock().unwrap().push(line);
                }
            }
        });
        Self {
            session: [host, trace].map(str::to_owned),
            child,
            reader,
            lines,
            errors,
        }
    }

    /// Number of events so far.
    ///
    /// # Panics
    /// If the viewer has failed.
    fn count(&mut self) -> usize {
        if let Some(status) = self.child.try_wait().unwrap() {
            assert!(status.success(), "{status}: {}", self.said());
        }
        self.lines.lock().unwrap().len()
    }

    /// Waits until it has printed a number of events.
    ///
    /// # Panics
    /// If it fails, or does not print them in time. Then the message says what the relay knows of
    /// the session, and what the viewer has read and asks.
    pub fn wait_for_events(&mut self, relay: &Relayd, events: usize) {
        if within(LIMIT, || (self.count() >= events).then_some(())).is_none() {
            let printed = self.count();
            let [host, trace] = &self.session;
            panic!(
                "the viewer of {host}/{trace} printed {printed} of {events} events: {:?}\n{}",
                self.said(),
                relay_log::describe(&relay.log(), host, trace)
            );
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.errors.path()).unwrap_or_default()
    }

    /// Waits for the end of the session, and returns the events, one a line.
    ///
    /// # Panics
    /// If the viewer fails, or does not end in time.
    pub fn end(mut self) -> Vec<String> {
        let status = within(LIMIT, || self.child.try_wait().unwrap());
        let Some(status) = status else {
            let [host, trace] = &self.session;
            panic!("the viewer of {host}/{trace} does not end: {}", self.said());
        };
        assert!(status.success(), "{status}: {}", self.said());
        self.reader.join().unwrap();
        self.lines.lock().unwrap().clone()
    }
}

/// Whether a directory has no entries, or is gone.
pub fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}
