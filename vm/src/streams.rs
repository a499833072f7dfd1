//! The command's standard streams on the host's side.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::monitor::Event;

/// Where the command's streams lead.
#[derive(Debug)]
pub struct Streams {
    /// Whether the command reads this process's standard input. Otherwise its input is empty.
    pub stdin: bool,
    /// Whether its output goes to this process's output. Otherwise the run returns it.
    pub output: bool,
}

impl Streams {
    /// The command has this process's streams.
    #[must_use]
    pub fn inherit() -> Self {
        Self {
            stdin: true,
            output: true,
        }
    }

    /// The command has no input, and the run returns its output.
    #[must_use]
    pub fn capture() -> Self {
        Self {
            stdin: false,
            output: false,
        }
    }
}

/// Where one output stream goes.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    /// To an open file.
    File(Arc<File>),
    /// Into memory.
    Memory(Arc<Mutex<Vec<u8>>>),
}

impl Sink {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// The bytes that were collected in memory.
    pub(crate) fn take(&self) -> Vec<u8> {
        match self {
            Self::File(_) => Vec::new(),
            Self::Memory(bytes) => {
                std::mem::take(&mut bytes.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => (&**file).write_all(bytes),
            Self::Memory(all) => {
                all.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend_from_slice(bytes);
                Ok(())
            }
        }
    }
}

/// Carries one output stream of the guest, and counts its bytes.
#[derive(Debug)]
pub(crate) struct Output {
    count: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Output {
    /// Starts to carry.
    pub(crate) fn start(from: UnixStream, sink: Sink, events: Sender<Event>) -> io::Result<Self> {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let thread =
            std::thread::Builder::new().spawn(move || carry(from, &sink, &counted, &events))?;
        Ok(Self {
            count,
            thread: Some(thread),
        })
    }

    /// How many bytes have reached their sink.
    pub(crate) fn count(&self) -> u64 {
        // Acquire pairs with the Release in `carry`: a reader of the count finds the bytes in the
        // sink.
        self.count.load(Ordering::Acquire)
    }

    /// Waits until the guest's side is closed and all bytes have been carried.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(mut from: UnixStream, sink: &Sink, count: &AtomicU64, events: &Sender<Event>) {
    let mut buf = vec![0; 64 << 10];
    let mut broken = false;
    loop {
        match from.read(&mut buf) {
            Ok(0) => return,
            Ok(n) => {
                // A sink that is broken (a closed pipe) must not block the guest: the rest is read
                // and dropped.
                if !broken && let Err(e) = sink.put(&buf[..n]) {
                    broken = true;
                    let _ = events.send(Event::SinkBroken(e.to_string()));
                }
                // Release pairs with the Acquire in `count`.
                count.fetch_add(n as u64, Ordering::Release);
                let _ = events.send(Event::Moved);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Carries this process's standard input to the guest. Nobody joins the thread: it may wait for
/// input for ever.
pub(crate) fn start_input(mut to: UnixStream) -> io::Result<()> {
    std::thread::Builder::new().spawn(move || {
        let mut input = io::stdin().lock();
        let mut buf = vec![0; 16 << 10];
        loop {
            match input.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => {
                    if to.write_all(&buf[..n]).is_err() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // Only this half: QEMU treats a socket that is closed on both sides as hung up, and drops
        // what it has not read.
        let _ = to.shutdown(std::net::Shutdown::Write);
        let _ = to.read(&mut buf);
    })?;
    Ok(())
}
