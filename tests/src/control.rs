//! The control file system, used with file operations as a person would.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use usertrace_testing::wait;

/// The mount point.
pub const ROOT: &str = "/sys/kernel/ltt";

/// A trace, which is destroyed when this is dropped.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
}

impl Trace {
    /// `mkdir`
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_create(name: &str) -> io::Result<Self> {
        let path = Path::new(ROOT).join(name);
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    /// `mkdir`
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn create(name: &str) -> Self {
        Self::try_create(name).unwrap_or_else(|e| panic!("mkdir {name}: {e}"))
    }

    /// `mkdir` and `echo 1 > start`
    #[must_use]
    pub fn started(name: &str) -> Self {
        let trace = Self::create(name);
        trace.start();
        trace
    }

    /// `mkdir`, these sub-buffers in `main`, and `echo 1 > start`
    #[must_use]
    pub fn started_with(name: &str, subbuf_size: u32, subbuf_count: u32) -> Self {
        let trace = Self::create(name);
        trace.set_geometry("main", subbuf_size, subbuf_count);
        trace.start();
        trace
    }

    /// `mkdir`, rings of this scope and these sub-buffers in `main`, and `echo 1 > start`
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn started_of(name: &str, scope: &str, subbuf_size: u32, subbuf_count: u32) -> Self {
        let trace = Self::create(name);
        trace
            .write("main/scope", &format!("{scope}\n"))
            .unwrap_or_else(|e| panic!("{scope} > main/scope: {e}"));
        trace.set_geometry("main", subbuf_size, subbuf_count);
        trace.start();
        trace
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name.
    ///
    /// # Panics
    /// Never: it was made from a name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name")
    }

    /// Writes to one of its files.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.path.join(file), text)
    }

    /// Reads one of its files.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// `echo 1 > start`
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn start(&self) {
        self.write("start", "1\n").expect("it can be started");
    }

    /// `echo 0 > start`
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn stop(&self) {
        self.write("start", "0\n").expect("it can be stopped");
    }

    /// Sets the size and count of a channel's sub-buffers. The size is minimal in between, so that
    /// no intermediate product is too large.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn set_geometry(&self, channel: &str, subbuf_size: u32, subbuf_count: u32) {
        for (file, value) in [
            ("subbuf_size", 4096),
            ("subbuf_count", subbuf_count),
            ("subbuf_size", subbuf_size),
        ] {
            self.write(&format!("{channel}/{file}"), &format!("{value}\n"))
                .unwrap_or_else(|e| panic!("{value} > {channel}/{file}: {e}"));
        }
    }

    /// The contents of `stats`.
    ///
    /// # Panics
    /// If it is not what it should be.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::parse(&self.read("stats"))
    }

    /// The line of a process in `stats`, if it has buffers here.
    ///
    /// # Panics
    /// If it is not what it should be.
    #[must_use]
    pub fn process(&self, process: Pid) -> Option<ProcessStats> {
        let prefix = format!("{process}.");
        let mut processes = self.stats().processes.into_iter();
        processes.find(|process| process.name.starts_with(&prefix))
    }

    /// Waits until a running process has buffers here. A process that gets the update signal while
    /// it returns from that signal's handler gets it again a moment later.
    ///
    /// # Panics
    /// If it gets none.
    pub fn wait_for(&self, process: Pid) {
        wait::until("the process has buffers", || {
            self.process(process).is_some()
        });
    }

    /// The consumer files of a channel.
    ///
    /// # Panics
    /// If there is no such channel.
    #[must_use]
    pub fn consumer_files(&self, channel: &str) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.path.join(channel))
            .expect("the channel has a directory")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some())
            .collect();
        files.sort();
        files
    }

    /// `rmdir`
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_remove(&self) -> io::Result<()> {
        fs::remove_dir(&self.path)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // The test may have destroyed it.
        let _ = self.try_remove();
    }
}

/// Writes to a file of the control file system, in one call.
///
/// # Errors
/// The kernel's.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    // Neither O_CREAT nor O_TRUNC: users cannot create or truncate these files.
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Destroys the traces that a failed test left behind.
///
/// # Panics
/// If the control file system is not mounted.
pub fn remove_all() {
    for entry in fs::read_dir(ROOT).expect("the control file system is mounted") {
        let entry = entry.expect("an entry");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The contents of a trace's `stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The trace's number.
    pub generation: u64,
    /// Its slot.
    pub slot: usize,
    /// Writes that found no memory, of all processes, including those that are gone.
    pub sunk: u64,
    /// Buffers of dead processes that were dropped, and how many unread bytes they had.
    pub dropped: (u64, u64),
    /// The clock of its events, and whether it has become invalid.
    pub clock: String,
    /// Processes that did not get the trace, because its rings do not fit into their slots.
    pub limited: Vec<String>,
    /// Its processes.
    pub processes: Vec<ProcessStats>,
    /// Their rings that are not empty.
    pub rings: Vec<RingStats>,
}

/// A process in a trace's `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    /// Its consumer files' name.
    pub name: String,
    /// `alive`, `dead`, or `read`.
    pub state: String,
    /// Pages that are allocated for it.
    pub pages: u64,
    /// Its writes that found no memory.
    pub sunk: u64,
}

/// A ring in a trace's `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingStats {
    /// Its process's consumer files' name.
    pub name: String,
    /// Its channel.
    pub channel: String,
    /// Its number in the channel.
    pub ring: u32,
    /// Everything below is committed.
    pub head: u64,
    /// Everything below may be overwritten.
    pub consumed: u64,
    /// Dropped records.
    pub lost: u64,
}

impl Stats {
    fn parse(text: &str) -> Self {
        let mut stats = Self::default();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| -> u64 {
                words[at]
                    .parse()
                    .unwrap_or_else(|_| panic!("no number {at} in: {line}"))
            };
            match words[..] {
                ["version", _] => assert_eq!(number(1), 1, "the version of stats"),
                ["generation", _] => stats.generation = number(1),
                ["slot", _] => stats.slot = number(1) as usize,
                ["sunk", _] => stats.sunk = number(1),
                ["clock", ..] => stats.clock = line["clock ".len()..].into(),
                ["limited", name, "slot", _, "rings", _] => stats.limited.push(name.into()),
                ["dropped", _, "bytes", _] => stats.dropped = (number(1), number(3)),
                ["process", name, state, "pages", _, "sunk", _] => {
                    stats.processes.push(ProcessStats {
                        name: name.into(),
                        state: state.into(),
                        pages: number(4),
                        sunk: number(6),
                    })
                }
                [
                    "ring",
                    name,
                    channel,
                    _,
                    "head",
                    _,
                    "consumed",
                    _,
                    "lost",
                    _,
                ] => stats.rings.push(RingStats {
                    name: name.into(),
                    channel: channel.into(),
                    ring: number(3) as u32,
                    head: number(5),
                    consumed: number(7),
                    lost: number(9),
                }),
                _ => panic!("a line of stats that was not expected: {line}"),
            }
        }
        stats
    }

    /// Pages of all processes.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.processes.iter().map(|process| process.pages).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_are_read() {
        let stats = Stats::parse(
            "version 1\ngeneration 7\nslot 2\nclock tsc\nsunk 9\ndropped 3 bytes 70\n\
             limited 46.4 slot 8192 rings 9216\nprocess 45.3 alive pages 12 sunk 8\n\
             ring 45.3 main 1 head 4096 consumed 32 lost 5\n",
        );
        assert_eq!((stats.generation, stats.slot, stats.pages()), (7, 2, 12));
        assert_eq!(stats.processes[0].state, "alive");
        assert_eq!(stats.clock, "tsc");
        assert_eq!(stats.limited, ["46.4"]);
        assert_eq!((stats.sunk, stats.processes[0].sunk), (9, 8));
        assert_eq!(stats.dropped, (3, 70));
        let ring = &stats.rings[0];
        assert_eq!(
            (ring.ring, ring.head, ring.consumed, ring.lost),
            (1, 4096, 32, 5)
        );
    }
}

/// The contents of the file `memory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that buffers hold.
    pub total: u64,
    /// Unread bytes of dead processes among them.
    pub dead: u64,
    /// Bytes of each user, by user id.
    pub users: Vec<(u32, u64)>,
}

/// Reads the file `memory`.
///
/// # Panics
/// If it cannot be read, or says something else.
#[must_use]
pub fn memory() -> Memory {
    let text = fs::read_to_string(Path::new(ROOT).join("memory")).expect("memory");
    let mut memory = Memory {
        total: u64::MAX,
        dead: u64::MAX,
        users: Vec::new(),
    };
    for line in text.lines() {
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("in memory: {line}"));
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["total", bytes] => memory.total = number(bytes),
            ["dead", bytes] => memory.dead = number(bytes),
            ["user", uid, bytes] => memory.users.push((number(uid) as u32, number(bytes))),
            _ => panic!("in memory: {line}"),
        }
    }
    for sum in [memory.total, memory.dead] {
        assert_ne!(sum, u64::MAX, "memory says no total: {text}");
    }
    memory
}

/// A limit on memory. Dropping this restores the limit's value.
#[derive(Debug)]
pub struct Limit {
    path: PathBuf,
    before: String,
}

impl Limit {
    /// `limit_total`, `limit_user` or `limit_process`.
    ///
    /// # Panics
    /// If there is no such limit.
    #[must_use]
    pub fn new(file: &str) -> Self {
        let path = Path::new(ROOT).join(file);
        let before = fs::read_to_string(&path).expect("a limit");
        Self { path, before }
    }

    /// Sets the limit: bytes, or `max`.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn set(&self, text: &str) {
        write(&self.path, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }

    /// Sets the limit to this many bytes more than all buffers hold now.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn allow_more(&self, bytes: u64) {
        self.set(&(memory().total + bytes).to_string());
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.set(&self.before);
    }
}
