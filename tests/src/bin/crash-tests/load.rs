//! A guest that is busy with traces, and checks of its memory at any instant (C7, A10).

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use usertrace_crash::{Dump, ExtractOptions, Extraction, PhysicalMemory, extract};
use usertrace_reader::{Item, Reader, Selection};
use usertrace_testing::wait;
use usertrace_tests::instants::{HANDLER, READ, SCOPES, TAG, THREADS};
use usertrace_tests::{event, program};
use usertrace_vm::{Guest, KernelConfig};

const PAGE: usize = 4096;
/// The limit of dead processes' buffers, in bytes: each image contains them.
const LIMIT_DEAD: u64 = 4 << 20;

/// The memory of a guest, which can be read while the guest runs or is stopped.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Keeps the memory file alive.
    _file: OwnedFd,
    path: PathBuf,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let file = memfd_create("guest", MFdFlags::MFD_CLOEXEC).expect("memory");
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Self {
            path: path.into(),
            _file: file,
        }
    }

    /// A path by which other processes can open it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The memory as a dump, while the guest is stopped.
    pub(crate) fn dump(&self) -> Dump {
        Dump::open_raw(&self.path).expect("its memory")
    }

    /// Zeroes a page.
    pub(crate) fn clear(&self, page: u64) {
        let file = OpenOptions::new().write(true).open(&self.path);
        let file = file.expect("its memory");
        file.write_all_at(&[0; PAGE], page).expect("a page");
    }
}

/// A guest that is busy until the file `stop` is in the directory, which is its `/out`.
pub(crate) fn guest(directory: &Path) -> Guest {
    guest_that_first("", directory)
}

/// Like [`guest`], but runs a script first.
pub(crate) fn guest_that_first(script: &str, directory: &Path) -> Guest {
    let traces = SCOPES.map(|scope| {
        format!(
            "mkdir {scope}; echo {scope} > {scope}/main/scope; echo 1 > {scope}/main/flight
             echo 4096 > {scope}/main/subbuf_size; echo 1 > {scope}/start"
        )
    });
    let read = READ.map(|mode| {
        format!(
            "mkdir {mode}; echo {mode} > {mode}/main/mode
             echo 4096 > {mode}/main/subbuf_size; echo 1 > {mode}/start"
        )
    });
    let script = format!(
        "set -e; cd /sys/kernel/ltt; {script}
         echo {LIMIT_DEAD} > limit_dead; {}; {}; exec \"$1\" /out",
        traces.join("; "),
        read.join("; ")
    );
    let mut command = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
    command.push(program::path("busy").into_os_string());
    Guest::new(KernelConfig::Release)
        .expect("a kernel")
        .smp(THREADS + 1)
        // A stopped guest sends no heartbeats.
        .timeout(Duration::from_secs(3600))
        .silence(Duration::from_secs(600))
        .out(directory)
        .command(command)
}

/// Waits until it is busy, or over.
pub(crate) fn wait_until_busy<T>(directory: &Path, run: &std::thread::JoinHandle<T>) {
    let is_ready = || directory.join("ready").exists() || run.is_finished();
    wait::until("the guest is busy", is_ready);
}

/// A summary of all images of a guest.
#[derive(Debug, Default)]
pub(crate) struct ImageSummary {
    /// The addresses of the root page and of the program's page, which do not change.
    places: Option<(u64, u64)>,
    events: usize,
    /// Processes that had buffers, the busy one and the brief ones.
    processes: usize,
    /// Events that were committed, but not yet counted by their writers.
    pub(crate) in_flight: usize,
    /// Records that were reserved, but not committed.
    unfinished: u64,
    /// Events of the traces that have a reader, whether they are consumed or not.
    of_read: usize,
    /// How often the first events of a thread were gone, because they were consumed.
    pub(crate) turned: usize,
}

impl ImageSummary {
    /// Extracts an image of so much memory, called `what`, to a new directory, and checks it.
    pub(crate) fn check(&mut self, dump: &Dump, memory_mib: u64, traces: &Path, what: &str) {
        let (root, page) = *self
            .places
            .get_or_insert_with(|| (root(dump), page(dump, memory_mib)));
        self.check_traces(dump, root, &counts(dump, page), traces, what);
    }

    /// Like [`check`](Self::check), with the address of the root page, and the counts of events of
    /// each thread and of the handler.
    pub(crate) fn check_traces(
        &mut self,
        dump: &Dump,
        root: u64,
        counts: &[u64],
        traces: &Path,
        what: &str,
    ) {
        std::fs::create_dir(traces).expect("a directory");
        let extraction = extract(dump, root, &ExtractOptions::default(), traces);
        let extraction = extraction.expect("traces");
        self.is_whole(&extraction, what);
        for scope in SCOPES {
            let threads = numbers(&traces.join(scope));
            for thread in 0..=HANDLER {
                let what = format!("{what}: {scope}, thread {thread}");
                let Some(numbers) = threads.get(&thread) else {
                    // Others may have overwritten all events of this thread, or of the handler,
                    // since it last ran.
                    let may_miss = scope == "global" || thread == HANDLER;
                    assert!(may_miss, "{what}: no event");
                    continue;
                };
                self.events += numbers.len();
                let next = |pair: &[u64]| pair[0] + 1 == pair[1];
                assert!(numbers.windows(2).all(next), "{what}: {numbers:?}");
                let recorded = counts[thread as usize];
                let found = numbers.last().map_or(0, |last| last + 1);
                // The current event may be there, and the one before must be.
                assert!(
                    found == recorded || found == recorded + 1,
                    "{what}: {found} in the dump, {recorded} recorded"
                );
                self.in_flight += usize::from(found > recorded);
            }
        }
        for mode in READ {
            for (thread, numbers) in numbers(&traces.join(mode)) {
                let what = format!("{what}: {mode}, thread {thread}");
                self.of_read += numbers.len();
                self.turned += usize::from(numbers.first().is_some_and(|&first| first > 0));
                if thread <= HANDLER {
                    let recorded = counts[thread as usize];
                    assert!(numbers.iter().all(|&number| number <= recorded), "{what}");
                    assert!(numbers.is_sorted_by(|a, b| a < b), "{what}: {numbers:?}");
                }
            }
        }
    }

    /// Checks that nothing is damaged.
    fn is_whole(&mut self, extraction: &Extraction, what: &str) {
        let problems = &extraction.problems;
        assert!(problems.is_empty(), "{what}: {problems:?}");
        for process in extraction.traces.iter().flat_map(|trace| &trace.processes) {
            self.processes += 1;
            self.unfinished += process.unfinished;
            let bad = (process.damaged, process.corrupted, process.holes);
            assert_eq!(bad, (0, 0, 0), "{what}: {process:?}");
            // Each thread, and the handler, has at most one unfinished event.
            assert!(process.unfinished <= u64::from(THREADS) + 1, "{process:?}");
        }
    }
}

/// The address of the root page.
pub(crate) fn root(dump: &Dump) -> u64 {
    let search = dump.find_roots();
    assert_eq!(search.candidates, 1, "{search:x?}");
    search.root().expect("a root page").address
}

/// The address of the page with the program's progress.
pub(crate) fn page(dump: &Dump, memory_mib: u64) -> u64 {
    let is_it = |&page: &u64| word(dump, page, 0) == TAG && word(dump, page, 1) == !TAG;
    let mut pages = (0..memory_mib << 20).step_by(PAGE);
    pages
        .find(is_it)
        .expect("the page of the program is in the image")
}

/// The counts of events of each thread and of the handler, from the program's page.
pub(crate) fn counts(dump: &Dump, page: u64) -> Vec<u64> {
    let of = |thread| word(dump, page, 2 + thread);
    (0..=HANDLER as usize).map(of).collect()
}

/// A word of the program's page.
pub(crate) fn word(dump: &Dump, page: u64, index: usize) -> u64 {
    let mut bytes = [0; 8];
    // Missing memory reads as zeros.
    let _ = dump.read(page + 8 * index as u64, &mut bytes);
    u64::from_le_bytes(bytes)
}

/// The numbers of each thread's events, in the order in which they are read.
pub(crate) fn numbers(trace: &Path) -> BTreeMap<u32, Vec<u64>> {
    let mut reader = Reader::open(&[trace.to_owned()], Selection::default()).expect("a trace");
    let mut threads: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => {
                let (thread, number) = event::read(event.payload);
                threads.entry(thread).or_default().push(number);
            }
            Item::Lost(_) => {}
            Item::Error(error) => panic!("{error}"),
        }
    }
    threads
}
