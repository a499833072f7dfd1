//! A guest with one processor that runs a program under a debugger. While it is stopped, its memory
//! can be extracted.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use usertrace_crash::{Dump, ExtractOptions, Extraction, PhysicalMemory, Presence, extract};
use usertrace_tests::program;
use usertrace_vm::{Debugger, Guest, KernelConfig, Outcome, Run, Streams, kernel_image};

use crate::load::{self, Memory};

const PAGE: usize = 4096;
/// The start of the kernel's code.
pub(crate) const KERNEL: u64 = 0xffff_ffff_8000_0000;

/// The numbers of each thread's events.
pub(crate) type Threads = BTreeMap<u32, Vec<u64>>;

/// The kernel with its symbols.
pub(crate) fn vmlinux() -> PathBuf {
    let image = kernel_image(KernelConfig::Release).expect("a kernel");
    image.with_file_name("vmlinux")
}

/// A guest with one processor under a debugger.
pub(crate) struct StoppedGuest {
    pub(crate) debugger: Debugger,
    run: JoinHandle<Run>,
    directory: TempDir,
    dump: Dump,
    /// The address of the root page.
    root: u64,
    /// The address of the page with the program's progress.
    page: u64,
    _memory: Memory,
    /// Traces that were read before: most extractions yield the same.
    read: HashMap<Vec<u8>, Threads>,
    /// The last extraction.
    last: Option<Rc<Extracted>>,
}

/// An extraction. Its traces exist as long as this does.
pub(crate) struct Extracted {
    pub(crate) extraction: Extraction,
    _traces: TempDir,
    /// The contents of the pages that the extraction read.
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Memory that records which pages are read.
struct RecordingMemory<'a> {
    dump: &'a Dump,
    pages: RefCell<BTreeMap<u64, Vec<u8>>>,
}

fn page(dump: &Dump, address: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    // Missing memory reads as zeros.
    let _ = dump.read(address, &mut page);
    page
}

impl PhysicalMemory for RecordingMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        let first = address - address % PAGE as u64;
        let mut pages = self.pages.borrow_mut();
        for address in (first..address + buffer.len() as u64).step_by(PAGE) {
            let _ = pages
                .entry(address)
                .or_insert_with(|| page(self.dump, address));
        }
        self.dump.read(address, buffer)
    }
}

impl StoppedGuest {
    /// Boots a guest, which runs these lines of a shell in the tracer's directory, and then the
    /// program. The program gets a directory before these arguments, creates the file `ready`
    /// there, and ends when the file `stop` is there.
    pub(crate) fn boot(memory_mib: u64, setup: &str, name: &str, arguments: &[String]) -> Self {
        // Extractions are small and short-lived.
        let shared = Some(Path::new("/dev/shm")).filter(|path| path.is_dir());
        let directory = shared.map_or_else(tempfile::tempdir, tempfile::tempdir_in);
        let directory = directory.expect("a directory");
        let memory = Memory::new();
        let script = format!("set -e; cd /sys/kernel/ltt\n{setup}\nexec \"$@\"");
        let mut command = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
        command.push(program::path(name).into_os_string());
        command.push("/out".into());
        command.extend(arguments.iter().map(Into::into));
        let (give, debugger) = channel();
        let guest = Guest::new(KernelConfig::Release)
            .expect("a kernel")
            .memory_mib(memory_mib)
            .memory_file(memory.path())
            .smp(1)
            // Without KASLR, the kernel is where its symbols say.
            .append("nokaslr")
            // A stopped guest sends no heartbeats.
            .timeout(Duration::from_secs(7200))
            .silence(Duration::from_secs(3600))
            .give_debugger(give)
            .out(directory.path())
            .command(command);
        let run = std::thread::spawn(move || guest.run(Streams::capture()).expect("a guest"));
        let mut debugger: Debugger = debugger.recv().expect("a debugger");
        debugger.start().expect("it boots");
        load::wait_until_busy(directory.path(), &run);
        debugger.interrupt().expect("it stops");
        let dump = memory.dump();
        let root = load::root(&dump);
        let page = load::page(&dump, memory_mib);
        Self {
            debugger,
            run,
            directory,
            dump,
            root,
            page,
            _memory: memory,
            read: HashMap::new(),
            last: None,
        }
    }

    /// A word of the program's page.
    pub(crate) fn word(&self, index: usize) -> u64 {
        load::word(&self.dump, self.page, index)
    }

    /// Creates a file in the program's directory.
    pub(crate) fn tell(&self, file: &str) {
        fs::write(self.directory.path().join(file), "").expect("a file");
    }

    /// Lets the guest run to its end.
    pub(crate) fn end(self) {
        self.tell("stop");
        self.debugger.detach().expect("it goes on");
        let run = self.run.join().expect("a guest");
        assert_eq!(run.outcome, Outcome::Passed, "{}", run.explain());
    }

    /// Extracts the traces from the guest's memory. If no page that the last extraction read has
    /// changed, returns that one.
    pub(crate) fn extract(&mut self) -> Rc<Extracted> {
        let is_as_before = |last: &&Rc<Extracted>| {
            let mut pages = last.pages.iter();
            pages.all(|(address, before)| page(&self.dump, *address) == *before)
        };
        if let Some(last) = self.last.as_ref().filter(is_as_before) {
            return last.clone();
        }
        let traces = tempfile::tempdir_in(self.directory.path()).expect("a directory");
        let noted = RecordingMemory {
            dump: &self.dump,
            pages: RefCell::default(),
        };
        let options = ExtractOptions::default();
        let extraction = extract(&noted, self.root, &options, traces.path());
        let extracted = Rc::new(Extracted {
            extraction: extraction.expect("traces"),
            _traces: traces,
            pages: noted.pages.into_inner(),
        });
        self.last.insert(extracted).clone()
    }

    /// The numbers of each thread's events in a process's trace.
    pub(crate) fn numbers(&mut self, trace: &Path) -> Threads {
        let mut files: Vec<_> = fs::read_dir(trace)
            .expect("a trace")
            .map(|file| file.expect("a file").path())
            .collect();
        files.sort();
        let bytes = files.iter().map(|file| fs::read(file).expect("a file"));
        let bytes: Vec<_> = bytes.flatten().collect();
        self.read
            .entry(bytes)
            .or_insert_with(|| load::numbers(trace))
            .clone()
    }
}
