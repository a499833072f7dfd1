//! The triggers of a trace: its control files `triggers` and `fired`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use usertrace_sys::filter::{Trigger, TriggerAction};

use super::control_fs::{ControlFsError, TraceDir, write};

/// The control file with the triggers of a trace.
const TRIGGERS: &str = "triggers";
/// The control file with what they have done.
const FIRED: &str = "fired";

/// The longest text of `fired` that is read. The kernel's has some lines.
const MAX_TEXT: usize = 64 << 10;

/// A trigger of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceTrigger {
    /// Its number, which no other trigger of the system has.
    pub number: u32,
    /// `PATTERN [if EXPR] then ACTION [once|every N]`.
    pub text: String,
}

impl TraceTrigger {
    /// What it does. `None` for an action that this program does not know.
    #[must_use]
    pub fn action(&self) -> Option<TriggerAction> {
        action_of(&self.text)
    }

    /// Parses a line of the file `triggers`.
    fn from_line(line: &str) -> Option<Self> {
        let (number, text) = line.split_once(' ')?;
        Some(Self {
            number: number.parse().ok()?,
            text: text.trim().to_owned(),
        })
    }
}

/// The action of a trigger's text. `None` if it is no trigger.
pub(super) fn action_of(text: &str) -> Option<TriggerAction> {
    Trigger::parse(text).ok().map(|trigger| trigger.action)
}

/// The text of a trigger in a line of the file `triggers`, which has a number before it.
pub(super) fn without_number(line: &str) -> String {
    TraceTrigger::from_line(line).map_or_else(|| line.to_owned(), |trigger| trigger.text)
}

/// What a trigger has done, as the file `fired` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FiredTrigger {
    /// Its number.
    pub number: u32,
    /// Events that matched it.
    pub matched: u64,
    /// How often it did its action.
    pub fired: u64,
    /// How often it did not, as it had done so ten times within a second.
    pub suppressed: u64,
    /// The process of the last matching event, in the initial PID namespace. 0 before the first.
    pub pid: u32,
    /// When that was, in nanoseconds since 1970. 0 before the first.
    pub time: u64,
    /// It was to fire once, and has.
    pub spent: bool,
}

impl FiredTrigger {
    /// Parses a line: `N matched M fired F suppressed S last PID TIME [spent]`. Words of later
    /// kernels are skipped. `None` for a line that is none.
    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut trigger = Self {
            number: words.next()?.parse().ok()?,
            ..Self::default()
        };
        let mut is_counted = false;
        while let Some(word) = words.next() {
            match word {
                "matched" => trigger.matched = words.next()?.parse().ok()?,
                "fired" => {
                    trigger.fired = words.next()?.parse().ok()?;
                    is_counted = true;
                }
                "suppressed" => trigger.suppressed = words.next()?.parse().ok()?,
                "last" => {
                    trigger.pid = words.next()?.parse().ok()?;
                    trigger.time = words.next()?.parse().ok()?;
                }
                "spent" => trigger.spent = true,
                _ => {}
            }
        }
        is_counted.then_some(trigger)
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ControlFsError {
    move |source| ControlFsError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

impl TraceDir {
    /// Its triggers, by the order in which they were added.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn triggers(&self) -> Result<Vec<TraceTrigger>, ControlFsError> {
        let path = self.path().join(TRIGGERS);
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        Ok(text.lines().filter_map(TraceTrigger::from_line).collect())
    }

    /// Adds a trigger, and returns it with its number.
    ///
    /// # Errors
    /// Those of the kernel, which then has changed nothing.
    pub fn add_trigger(&self, text: &str) -> Result<TraceTrigger, ControlFsError> {
        let before: BTreeSet<u32> = self.triggers()?.iter().map(|of| of.number).collect();
        write(&self.path().join(TRIGGERS), text)?;
        let mut new = self.triggers()?;
        new.retain(|trigger| !before.contains(&trigger.number));
        // Another program may add one at the same time.
        let at = new.iter().position(|trigger| trigger.text == text);
        match at.or(new.len().checked_sub(1)) {
            Some(at) => Ok(new.swap_remove(at)),
            // It was removed again.
            None => Ok(TraceTrigger {
                number: 0,
                text: text.to_owned(),
            }),
        }
    }

    /// Replaces its triggers. Those before are removed with their counts.
    ///
    /// # Errors
    /// Those of the kernel, about the first line that it refuses. Lines before that are added.
    pub fn set_triggers(&self, texts: &[String]) -> Result<(), ControlFsError> {
        self.remove_triggers()?;
        let path = self.path().join(TRIGGERS);
        texts.iter().try_for_each(|text| write(&path, text))
    }

    /// Removes the trigger of this number.
    ///
    /// # Errors
    /// Those of the kernel: it has no such trigger.
    pub fn remove_trigger(&self, number: u32) -> Result<(), ControlFsError> {
        write(&self.path().join(TRIGGERS), &format!("remove {number}"))
    }

    /// Removes all triggers.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn remove_triggers(&self) -> Result<(), ControlFsError> {
        write(&self.path().join(TRIGGERS), "0")
    }

    /// Allocates the trace, so that programs get its buffers, and can fire its triggers. Its
    /// channels are fixed then. Returns whether that was to be done.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn allocate(&self) -> Result<bool, ControlFsError> {
        let path = self.path().join("allocate");
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        if text.trim() == "1" {
            return Ok(false);
        }
        write(&path, "1").map(|()| true)
    }
}

/// Why waiting for triggers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// A trigger may have fired since the last [read](FiredFile::read).
    Fired,
    /// The time limit is over.
    TimedOut,
    /// The trace was removed.
    Removed,
}

/// The file `fired` of a trace, open.
#[derive(Debug)]
pub struct FiredFile {
    file: File,
    path: PathBuf,
}

impl FiredFile {
    /// Opens the file of a trace.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(trace: &TraceDir) -> Result<Self, ControlFsError> {
        let path = trace.path().join(FIRED);
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(io_error("open", &path)(error)),
        }
    }

    /// What the triggers have done so far. `None` if the trace was removed.
    ///
    /// The kernel wakes [`wait`](Self::wait) for whatever fires after the start of this call.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self) -> Result<Option<Vec<FiredTrigger>>, ControlFsError> {
        match self.read_text() {
            Ok(text) => Ok(Some(parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(_) if self.is_removed() => Ok(None),
            Err(error) => Err(io_error("read", &self.path)(error)),
        }
    }

    fn read_text(&self) -> io::Result<String> {
        let (mut bytes, mut len) = (vec![0; 4096], 0);
        loop {
            match self.file.read_at(&mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if len == bytes.len() {
                if len == MAX_TEXT {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                bytes.resize(2 * len, 0);
            }
        }
        Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }

    /// Whether the trace was removed. One of the same name may be there.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let inode = |file: io::Result<fs::Metadata>| file.map(|file| (file.dev(), file.ino()));
        match (inode(self.file.metadata()), inode(fs::metadata(&self.path))) {
            (Ok(open), Ok(there)) => open != there,
            (Err(_), _) => true,
            (_, Err(error)) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Waits until a trigger fires after the last [read](Self::read), or the trace is removed.
    ///
    /// # Errors
    /// If waiting fails.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<WaitOutcome> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, poll_timeout(left)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            match revents(&fds[0]) {
                Some(outcome) => return Ok(outcome),
                None if self.is_removed() => return Ok(WaitOutcome::Removed),
                None if left.is_some_and(|left| left.is_zero()) => {
                    return Ok(WaitOutcome::TimedOut);
                }
                None => {}
            }
        }
    }
}

/// How often to look whether the trace is still there, besides what the kernel reports.
const LOOK: Duration = Duration::from_secs(60);

/// The time limit of one `poll`: rounded up, so that nothing polls in a circle at the end.
fn poll_timeout(left: Option<Duration>) -> PollTimeout {
    let ms = left
        .map_or(LOOK, |left| left.min(LOOK))
        .as_nanos()
        .div_ceil(1_000_000);
    u16::try_from(ms).map_or(PollTimeout::MAX, PollTimeout::from)
}

/// What `poll` says of an open file `fired`. `None` if nothing fired.
pub(super) fn revents(fd: &PollFd<'_>) -> Option<WaitOutcome> {
    let revents = fd.revents()?;
    let ends = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    if revents.intersects(ends) {
        Some(WaitOutcome::Removed)
    } else if revents.contains(PollFlags::POLLIN) {
        Some(WaitOutcome::Fired)
    } else {
        None
    }
}

impl AsFd for FiredFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn parse(text: &str) -> Vec<FiredTrigger> {
    text.lines().filter_map(FiredTrigger::from_line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ControlFs;
    use super::*;

    fn trace() -> (tempfile::TempDir, TraceDir) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("abi"), "version 2\n").unwrap();
        for (file, text) in [(TRIGGERS, ""), (FIRED, ""), ("allocate", "0\n")] {
            fs::create_dir_all(directory.path().join("t")).unwrap();
            fs::write(directory.path().join("t").join(file), text).unwrap();
        }
        let trace = ControlFs::open(directory.path()).unwrap().trace("t");
        (directory, trace.unwrap())
    }

    #[test]
    fn lines_of_fired_are_parsed() {
        let all = FiredTrigger {
            number: 3,
            matched: 12,
            fired: 5,
            suppressed: 7,
            pid: 4711,
            time: 1_795_762_605_416_403_206,
            spent: true,
        };
        let text = "3 matched 12 fired 5 suppressed 7 last 4711 1795762605416403206 spent\n";
        assert_eq!(parse(text), std::slice::from_ref(&all));
        let fresh = FiredTrigger {
            number: 255,
            ..FiredTrigger::default()
        };
        let text = "255 matched 0 fired 0 suppressed 0 last 0 0\n";
        assert_eq!(parse(text), [fresh]);
        // A word of a later kernel.
        let text = "3 matched 12 fired 5 suppressed 7 last 4711 1795762605416403206 missed 8 spent";
        assert_eq!(parse(text), [all]);
    }

    /// Requirements: E4
    #[test]
    fn lines_that_are_none_are_skipped() {
        for bad in [
            "",
            "x",
            "3",
            "3 matched",
            "3 matched 1",
            "-1 matched 1 fired 1 suppressed 0 last 0 0",
            "3 matched 1 fired -1 suppressed 0 last 0 0",
            "3 matched 1 fired 1 suppressed 0 last 1",
            "3 matched 99999999999999999999 fired 1 suppressed 0 last 0 0",
            "\u{1b}[2J",
        ] {
            assert!(parse(bad).is_empty(), "{bad:?}");
        }
        let good = "4 matched 1 fired 1 suppressed 0 last 7 8";
        assert_eq!(parse(&format!("what\n{good}\n3 fired\n")).len(), 1);
    }

    #[test]
    fn triggers_are_written_and_read() {
        let (directory, trace) = trace();
        let file = directory.path().join("t").join(TRIGGERS);
        fs::write(
            &file,
            "3 a then stop\n200 b if x == \"then\" then notify every 5\nwhat\n",
        )
        .unwrap();
        let triggers = trace.triggers().unwrap();
        let shown: Vec<_> = triggers
            .iter()
            .map(|of| (of.number, &of.text[..]))
            .collect();
        let second = "b if x == \"then\" then notify every 5";
        assert_eq!(shown, [(3, "a then stop"), (200, second)]);
        assert_eq!(triggers[1].action(), Some(TriggerAction::Notify));
        type Write = fn(&TraceDir) -> Result<(), ControlFsError>;
        let writes: [(Write, &str); 2] = [
            (|trace| trace.remove_trigger(3), "remove 3"),
            (TraceDir::remove_triggers, "0"),
        ];
        for (write, written) in writes {
            fs::write(&file, "").unwrap();
            write(&trace).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), written);
        }
        assert!(trace.allocate().unwrap());
        assert!(!trace.allocate().unwrap());
        fs::remove_file(&file).unwrap();
        assert!(trace.add_trigger("a then stop").is_err());
    }

    #[test]
    fn numbers_are_no_part_of_a_trigger() {
        for (line, text) in [
            ("3 a then stop", "a then stop"),
            ("3 4 then stop once ", "4 then stop once"),
            // An action of a later kernel.
            ("200 a if 3 then panic", "a if 3 then panic"),
        ] {
            assert_eq!(without_number(line), text);
        }
    }

    #[test]
    fn removed_trace_ends_waiting() {
        let (directory, trace) = trace();
        let file = FiredFile::open(&trace).unwrap();
        assert!(!file.is_removed());
        assert_eq!(file.read().unwrap(), Some(vec![]));
        // A plain file is always readable.
        assert_eq!(file.wait(None).unwrap(), WaitOutcome::Fired);
        fs::remove_dir_all(directory.path().join("t")).unwrap();
        assert!(file.is_removed());
        fs::create_dir(directory.path().join("t")).unwrap();
        fs::write(directory.path().join("t").join(FIRED), "").unwrap();
        assert!(file.is_removed(), "another trace of the same name");
    }

    #[test]
    fn large_text_is_no_text_of_the_kernel() {
        let (directory, trace) = trace();
        let line = "4 matched 1 fired 1 suppressed 0 last 7 8\n";
        let path = directory.path().join("t").join(FIRED);
        fs::write(&path, line.repeat(256)).unwrap();
        let file = FiredFile::open(&trace).unwrap();
        assert_eq!(file.read().unwrap().unwrap().len(), 256);
        fs::write(&path, line.repeat(4096)).unwrap();
        file.read().unwrap_err();
    }
}
