//! The guest's console: each byte goes to the log at once, and then to the listener.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::monitor::Event;
use crate::splat::{Finding, Scanner};

/// The listener of the console, besides the log.
#[derive(Debug)]
pub(crate) enum Listener {
    /// Nobody.
    Nobody,
    /// A thread that waits for a text.
    Expect(Sender<Vec<u8>>),
    /// The person at this terminal.
    Terminal,
}

/// The console of a running guest.
#[derive(Debug)]
pub(crate) struct Console {
    log: PathBuf,
    listener: Arc<Mutex<Listener>>,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Starts to read the console into the log.
    pub(crate) fn start(
        from: UnixStream,
        log: &Path,
        scanner: Scanner,
        events: Sender<Event>,
    ) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let listener = Arc::new(Mutex::new(Listener::Nobody));
        let told = Arc::clone(&listener);
        let thread = std::thread::Builder::new()
            .name("console".into())
            .spawn(move || read(from, file, scanner, &told, &events))?;
        Ok(Self {
            log: log.into(),
            listener,
            thread: Some(thread),
        })
    }

    /// A handle that sets the listener.
    pub(crate) fn listener(&self) -> Arc<Mutex<Listener>> {
        Arc::clone(&self.listener)
    }

    /// Waits until the guest's side is closed and all bytes are logged.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// The last lines of the log.
    pub(crate) fn end(&self, lines: usize) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut last = VecDeque::new();
        for line in text.lines() {
            if last.len() == lines {
                last.pop_front();
            }
            // Control characters could clear the reader's terminal.
            last.push_back(
                line.chars()
                    .filter(|c| !c.is_control() || *c == '\t')
                    .collect::<String>(),
            );
        }
        last.into_iter().map(|line| line + "\n").collect()
    }
}

fn read(
    mut from: UnixStream,
    mut log: File,
    mut scanner: Scanner,
    listener: &Mutex<Listener>,
    events: &Sender<Event>,
) {
    let mut buf = vec![0; 16 << 10];
    loop {
        let n = match from.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let bytes = &buf[..n];
        if let Err(e) = log.write_all(bytes) {
            let _ = events.send(Event::SinkBroken(format!("console log: {e}")));
        }
        match &*listener.lock().unwrap_or_else(PoisonError::into_inner) {
            Listener::Nobody => {}
            Listener::Expect(to) => drop(to.send(bytes.to_vec())),
            Listener::Terminal => {
                let mut out = io::stdout().lock();
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
        }
        let _ = events.send(Event::ConsoleBytes);
        for finding in scanner.feed(bytes) {
            let _ = events.send(finding.into());
        }
    }
    if let Some(finding) = scanner.finish() {
        let _ = events.send(finding.into());
    }
    let _ = events.send(Event::ConsoleClosed);
}

impl From<Finding> for Event {
    fn from(finding: Finding) -> Self {
        match finding {
            Finding::Panic(why) => Self::Panic(why),
            Finding::Splat(text) => Self::Splat(text),
        }
    }
}

/// The console's bytes as a reader for rexpect.
#[derive(Debug)]
pub(crate) struct ConsoleReader {
    from: Receiver<Vec<u8>>,
    rest: VecDeque<u8>,
}

impl ConsoleReader {
    pub(crate) fn new(from: Receiver<Vec<u8>>) -> Self {
        Self {
            from,
            rest: VecDeque::new(),
        }
    }
}

impl Read for ConsoleReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.from.recv() {
                Ok(bytes) => self.rest.extend(bytes),
                Err(_) => return Ok(0),
            }
        }
        self.rest.read(buf)
    }
}
