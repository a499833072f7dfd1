//! Recording the kernel's events, in a thread of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use usertrace_ctf::{Clock, TraceInfo, TraceOf, Version};
use usertrace_sys::filter::Patterns;

use super::FtraceError;
use super::cpu::Cpu;
use super::ring::Ring;
use super::summary::KernelSummary;
use super::tracefs::{Instance, Tracefs};
use super::worker::{Shared, Worker, begin, clock};

/// What the trace's directory is called.
const DIRECTORY: &str = "kernel";

/// Which events of the kernel's are to be recorded.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Patterns of `SYSTEM:NAME`, as in filters of traces.
    pub events: Vec<String>,
    /// KiB of each CPU's ring; None: as many as the kernel gives.
    pub buffer_kib: Option<u32>,
}

/// The trace that they are to be.
#[derive(Clone, Copy, Debug)]
pub struct KernelTrace<'a> {
    /// Its name.
    pub name: &'a str,
    /// These processes and their children only, if there are some.
    pub pids: &'a [u32],
    /// Below which directory it is written.
    pub output: &'a Path,
    /// The machine.
    pub hostname: Option<&'a str>,
    /// In which version of CTF.
    pub version: Version,
    /// The clock of the traces beside it is `CLOCK_MONOTONIC`.
    pub is_monotonic: bool,
}

/// The kernel's events, while they are recorded. They are no longer when it is dropped.
#[derive(Debug)]
pub struct KernelEvents {
    thread: Option<JoinHandle<KernelSummary>>,
    shared: Arc<Shared>,
    instance: Instance,
    directory: PathBuf,
    /// That of the traces, if it was told.
    clock: Option<Clock>,
}

impl KernelEvents {
    /// Makes all ready. Where a recording of the trace was killed, it goes on with that one's
    /// events.
    ///
    /// # Errors
    /// When tracefs cannot be used, or there is no such event, or nothing can be written.
    pub fn new(options: &KernelOptions, to: &KernelTrace<'_>) -> Result<Self, FtraceError> {
        let tracefs = Tracefs::find()?;
        let patterns = Patterns::new(&options.events)?;
        let mut events = tracefs.events()?;
        events.retain(|event| patterns.accept(event));
        if events.is_empty() {
            return Err(FtraceError::NoEvent {
                patterns: options.events.join(","),
                list: tracefs.path().join("available_events"),
            });
        }
        let directory = to.output.join(DIRECTORY);
        let instance = tracefs.instance(to.name, directory.exists(), to.is_monotonic)?;
        if instance.is_old {
            // Those that it has enabled are what its files have.
            events = instance.enabled()?;
        } else {
            prepare(&instance, options, to.pids, &events)?;
        }
        let formats = events.iter().map(|event| instance.format(event));
        let formats = formats.collect::<Result<Vec<_>, _>>()?;
        let writing = |source| FtraceError::Write {
            path: directory.clone(),
            source,
        };
        let start = instance.clock.sync();
        let info = TraceInfo {
            trace_name: to.name.to_owned(),
            of: TraceOf::Kernel {
                release: proc("osrelease"),
                version: proc("version"),
            },
            hostname: to.hostname.map(str::to_owned),
        };
        let clock_now = clock(instance.clock, &start);
        let begun = begin(&directory, info, clock_now, to.version, &formats);
        let (trace, streams) = begun.map_err(writing)?;
        let mut cpus = Vec::new();
        for (cpu, path) in instance.cpus()? {
            let ring = Ring::open(&path).map_err(|source| FtraceError::File { path, source })?;
            cpus.push(Cpu::new(cpu, ring, &streams));
        }
        let shared = Arc::<Shared>::default();
        let worker = Worker {
            trace,
            clock: instance.clock,
            start,
            is_dated: false,
            formats: formats
                .into_iter()
                .map(|format| (format.event.id, format))
                .collect(),
            cpus,
            shared: Arc::clone(&shared),
            problems: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("kernel-events".to_owned())
            .spawn(move || worker.run());
        let thread = thread.map_err(|source| FtraceError::File {
            path: instance.path().to_owned(),
            source,
        })?;
        Ok(Self {
            thread: Some(thread),
            shared,
            instance,
            directory,
            clock: None,
        })
    }

    /// From now on events are recorded.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&self) -> Result<(), FtraceError> {
        self.instance.set("tracing_on", "1")
    }

    /// The clock of the traces beside this one: what has the same time there is to have it here.
    /// What was told last counts, as the frequency may be known better by then.
    pub fn set_clock(&mut self, clock: Clock) {
        if self.clock == Some(clock) {
            return;
        }
        self.clock = Some(clock);
        let mut of_others = self
            .shared
            .clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *of_others = Some(clock);
    }

    /// From now on events are not recorded; what there was before will be, by
    /// [`KernelEvents::finish`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&self) -> Result<(), FtraceError> {
        self.instance.set("tracing_on", "0")
    }

    /// Writes what is left, and gives all back to the kernel.
    #[must_use]
    pub fn finish(mut self) -> KernelSummary {
        self.join().unwrap_or_default()
    }

    /// Ends, and leaves to a recording that goes on with this one what could not be written.
    pub fn keep(mut self) {
        self.instance.stays = true;
        self.join();
    }

    fn join(&mut self) -> Option<KernelSummary> {
        let thread = self.thread.take()?;
        // Pairs with the thread's acquiring load: it sees that the instance was stopped.
        self.shared.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        let panicked = |_| KernelSummary {
            problems: vec!["the thread that records the kernel's events panicked".to_owned()],
            ..KernelSummary::default()
        };
        Some(thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for KernelEvents {
    fn drop(&mut self) {
        // The thread has the rings' files open, and the instance cannot be removed before it ends.
        let _ = self.stop();
        let unfinished = self.join();
        if unfinished.is_some_and(|summary| summary.events == 0) && !self.instance.is_old {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Sets an instance up that is new.
fn prepare(
    instance: &Instance,
    options: &KernelOptions,
    pids: &[u32],
    events: &[String],
) -> Result<(), FtraceError> {
    if let Some(kib) = options.buffer_kib {
        instance.set("buffer_size_kb", &kib.to_string())?;
    }
    if !pids.is_empty() {
        // For the kernel, threads have ids, and those that are yet to come count as children.
        let threads: Vec<_> = pids.iter().flat_map(|&pid| threads(pid)).collect();
        instance.set("options/event-fork", "1")?;
        instance.set("set_event_pid", &threads.join(" "))?;
    }
    events.iter().try_for_each(|event| instance.enable(event))
}

/// Ids of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
    names.collect()
}

/// Something that the kernel says of itself.
fn proc(file: &str) -> String {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(file));
    text.unwrap_or_default().trim_end().to_owned()
}
