//! `--parquet` of commands that record: each finished chunk is converted to tables.
//!
//! A thread converts chunks, one after the other, so that the recorder never waits. The tables of a
//! chunk are a directory below the user's, which appears as a whole and is named after the
//! recording and the chunk: a chunk that a killed recorder left is converted by the next one, and
//! none is there twice.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{SigSet, SigmaskHow};
use usertrace_consumer::finished_chunks;

use crate::limits::HEADING;
#[cfg(feature = "parquet")]
use {
    usertrace_columns::{Columns, ColumnsError, Limits, directory, is_export},
    usertrace_os::procfs,
    usertrace_reader::{Item, ReadError, Reader, Selection},
    usertrace_symbols::Resolver,
};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TableOptions {
    /// Also write finished chunks as tables of Parquet files, below DIR, where recordings of other
    /// traces and machines may be, too
    #[arg(long, value_name = "DIR", conflicts_with = "relay", help_heading = HEADING)]
    pub(crate) parquet: Option<PathBuf>,
}

/// How long to wait before a chunk is tried again, for example after a full disk.
const RETRY: Duration = Duration::from_secs(60);

/// A report about a chunk.
pub(crate) enum Message {
    /// The chunk was converted.
    Done(String),
    /// The chunk was not converted, or not all of it.
    Trouble(String),
}

/// Converts chunks.
pub(crate) struct Tables {
    chunks: Option<Sender<PathBuf>>,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

/// The end of a conversion.
enum Converted {
    /// There are tables, in this directory.
    Tables(PathBuf),
    /// There were tables already.
    Before,
    /// The chunk was removed before that.
    Removed,
    /// The recorder ends.
    Ended,
}

impl Tables {
    /// Starts the thread, which writes below `root` and reports what it does.
    ///
    /// # Errors
    /// There can be no such directory, or no thread.
    pub(crate) fn start(
        root: &Path,
        report: impl FnMut(Message) + Send + 'static,
    ) -> anyhow::Result<Self> {
        if !cfg!(feature = "parquet") {
            bail!("this usertrace was built without --parquet (feature \"parquet\")");
        }
        std::fs::create_dir_all(root)
            .with_context(|| format!("cannot write {}", root.display()))?;
        let (chunks, received) = channel();
        let is_ended = Arc::new(AtomicBool::new(false));
        let mut converter = Converter {
            root: root.to_owned(),
            received,
            is_ended: Arc::clone(&is_ended),
            pending: VecDeque::new(),
            report,
        };
        // Signals are for the recorder: the thread inherits the mask.
        let mut before = SigSet::empty();
        let all = SigSet::all();
        nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut before))?;
        let thread = thread::Builder::new().name("tables".to_owned());
        let thread = thread.spawn(move || converter.run());
        before.thread_set_mask()?;
        Ok(Self {
            chunks: Some(chunks),
            is_ended,
            thread: Some(thread.context("cannot start the thread that writes tables")?),
        })
    }

    /// Converts a chunk, unless it is converted already.
    pub(crate) fn add(&self, chunk: &Path) {
        if let Some(chunks) = &self.chunks {
            // Without the thread there are no tables; `end` says so.
            let _ = chunks.send(chunk.to_owned());
        }
    }

    /// Converts what earlier recorders left in this directory of a recording.
    pub(crate) fn add_left(&self, recording: &Path) {
        for chunk in finished_chunks(recording).unwrap_or_default() {
            self.add(&chunk);
        }
    }

    /// Waits until all chunks are converted. Returns whether they are.
    pub(crate) fn end(mut self) -> bool {
        self.join()
    }

    fn join(&mut self) -> bool {
        self.chunks = None;
        self.thread
            .take()
            .is_none_or(|thread| thread.join().unwrap_or(false))
    }
}

impl Drop for Tables {
    /// Leaves the chunks to the next recorder.
    fn drop(&mut self) {
        // Relaxed: nothing is read that was written before.
        self.is_ended.store(true, Ordering::Relaxed);
        self.join();
    }
}

/// A chunk that waits.
struct Pending {
    chunk: PathBuf,
    /// The reason that was reported, if the chunk could not be converted.
    reported: Option<String>,
}

impl From<PathBuf> for Pending {
    fn from(chunk: PathBuf) -> Self {
        let reported = None;
        Self { chunk, reported }
    }
}

/// The state of the thread.
struct Converter<Report> {
    root: PathBuf,
    received: Receiver<PathBuf>,
    is_ended: Arc<AtomicBool>,
    pending: VecDeque<Pending>,
    report: Report,
}

impl<Report: FnMut(Message)> Converter<Report> {
    /// Returns whether all chunks are converted.
    fn run(&mut self) -> bool {
        loop {
            let received = match self.pending.is_empty() {
                true => self.received.recv().map_err(RecvTimeoutError::from),
                false => self.received.recv_timeout(RETRY),
            };
            match received {
                Ok(chunk) => self.pending.push_back(chunk.into()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.convert_pending();
                    return self.pending.is_empty();
                }
            }
            self.pending
                .extend(self.received.try_iter().map(Pending::from));
            self.convert_pending();
        }
    }

    /// Converts the chunks that wait. A chunk that cannot be read does not delay the others; after
    /// an error of the tables' disk, all of them wait.
    fn convert_pending(&mut self) {
        let mut unreadable = VecDeque::new();
        // Relaxed: nothing is read that was written before.
        while !self.is_ended.load(Ordering::Relaxed)
            && let Some(mut pending) = self.pending.pop_front()
        {
            let shown = pending.chunk.display();
            let (converted, mut troubles) = convert(&self.root, &pending.chunk, &self.is_ended);
            let failure = converted.as_ref().err().map(is_of_tables);
            match converted {
                Ok(Converted::Before | Converted::Ended) => {}
                Ok(Converted::Tables(tables)) => {
                    let text = format!("{shown}: tables in {}", tables.display());
                    (self.report)(Message::Done(text));
                }
                Ok(Converted::Removed) => {
                    troubles = vec![format!("{shown} was removed before it became tables")];
                }
                Err(error) => {
                    let text = format!("{shown} is not in the tables yet: {error:#}");
                    // Once, however often it is tried.
                    let is_new = pending.reported.as_ref() != Some(&text);
                    troubles = is_new.then(|| text.clone()).into_iter().collect();
                    pending.reported = Some(text);
                }
            }
            for trouble in troubles {
                (self.report)(Message::Trouble(trouble));
            }
            match failure {
                None => {}
                Some(true) => {
                    self.pending.push_front(pending);
                    break;
                }
                Some(false) => unreadable.push_back(pending),
            }
        }
        self.pending.append(&mut unreadable);
    }
}

/// Whether an error is about the tables, and not about the chunk.
#[cfg(feature = "parquet")]
fn is_of_tables(error: &anyhow::Error) -> bool {
    error.is::<ColumnsError>()
}

#[cfg(not(feature = "parquet"))]
fn is_of_tables(_: &anyhow::Error) -> bool {
    false
}

/// Converts a chunk. Returns also what could not be read of it.
#[cfg(feature = "parquet")]
fn convert(
    root: &Path,
    chunk: &Path,
    is_ended: &AtomicBool,
) -> (anyhow::Result<Converted>, Vec<String>) {
    let mut troubles = Vec::new();
    let mut converted = try_convert(root, chunk, is_ended, &mut troubles);
    // Then this is the reason, whatever the error was.
    if converted.is_err() && chunk.symlink_metadata().is_err() {
        converted = Ok(Converted::Removed);
    }
    (converted, troubles)
}

#[cfg(feature = "parquet")]
fn try_convert(
    root: &Path,
    chunk: &Path,
    is_ended: &AtomicBool,
    troubles: &mut Vec<String>,
) -> anyhow::Result<Converted> {
    let name = name(chunk)?;
    let tables = root.join(&name);
    if is_export(&tables) {
        return Ok(Converted::Before);
    }
    let mut reader = Reader::open(&[chunk.to_owned()], Selection::default())?;
    let mut columns = Columns::below(root, &name, Limits::default())?;
    fill(&mut columns, &mut reader, None, is_ended, &mut |error| {
        troubles.push(error.to_string());
    })?;
    // Relaxed: nothing is read that was written before.
    if is_ended.load(Ordering::Relaxed) {
        return Ok(Converted::Ended);
    }
    // A chunk that was removed meanwhile was not read to its end.
    if chunk.symlink_metadata().is_err() {
        return Ok(Converted::Removed);
    }
    columns.finish()?;
    Ok(Converted::Tables(tables))
}

/// The directory of a chunk's tables, below the user's.
#[cfg(feature = "parquet")]
fn name(chunk: &Path) -> io::Result<PathBuf> {
    let recording = chunk.parent().unwrap_or(Path::new(".")).canonicalize()?;
    let host = procfs::hostname().unwrap_or_default();
    let recording = format!("{host}:{}", recording.display());
    let chunk = chunk.file_name().unwrap_or_default().to_string_lossy();
    let recording = PathBuf::from(directory("recording", Some(&recording)));
    Ok(recording.join(directory("chunk", Some(&chunk))))
}

/// Writes all events and losses to tables, with the functions at code addresses if there is a
/// resolver.
#[cfg(feature = "parquet")]
pub(crate) fn fill(
    columns: &mut Columns,
    reader: &mut Reader,
    mut resolver: Option<&mut Resolver>,
    is_ended: &AtomicBool,
    say: &mut dyn FnMut(ReadError),
) -> anyhow::Result<()> {
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => match resolver.as_deref_mut() {
                None => columns.event(&event)?,
                Some(resolver) => {
                    if !resolver.note(&event) {
                        columns.named_event(&event, &resolver.name_fields(&event))?;
                    }
                }
            },
            Item::Lost(lost) => {
                if let Some(trace) = reader.traces().get(lost.trace) {
                    columns.lost(&lost, trace)?;
                }
            }
            Item::Error(error) => say(error),
        }
        // Relaxed: nothing is read that was written before.
        if is_ended.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

#[cfg(not(feature = "parquet"))]
fn convert(_: &Path, _: &Path, _: &AtomicBool) -> (anyhow::Result<Converted>, Vec<String>) {
    (Ok(Converted::Ended), Vec::new())
}
