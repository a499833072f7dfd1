//! Starts and stops the recording of the kernel's events.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use usertrace_ctf::{Clock, TraceInfo, TraceOrigin, Version};
use usertrace_sys::filter::Patterns;

use super::FtraceError;
use super::cpu::Cpu;
use super::ring::Ring;
use super::summary::KernelSummary;
use super::tracefs::{Instance, Tracefs};
use super::worker::{Shared, Worker, begin, clock};

/// The name of the trace's directory.
const DIRECTORY: &str = "kernel";

/// Which kernel events to record.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Patterns of `SYSTEM:NAME`, in the syntax of trace filters.
    pub events: Vec<String>,
    /// Size of each CPU's ring in KiB; `None` for the kernel's default.
    pub buffer_kib: Option<u32>,
}

/// The trace of the kernel's events.
#[derive(Clone, Copy, Debug)]
pub struct KernelTrace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Limits the trace to these processes and their children, unless empty.
    pub pids: &'a [u32],
    /// The output directory, in which the trace is created.
    pub output: &'a Path,
    /// The host name.
    pub hostname: Option<&'a str>,
    /// The CTF version.
    pub version: Version,
    /// The clock of the programs' traces is `CLOCK_MONOTONIC`.
    pub is_monotonic: bool,
}

/// A running recording of the kernel's events, which ends when this is dropped.
#[derive(Debug)]
pub struct KernelEvents {
    thread: Option<JoinHandle<KernelSummary>>,
    shared: Arc<Shared>,
    instance: Instance,
    directory: PathBuf,
    /// The clock of the programs' traces, if known.
    clock: Option<Clock>,
}

impl KernelEvents {
    /// Prepares the recording. If the recorder of this trace was killed, continues with its events.
    ///
    /// # Errors
    /// If tracefs cannot be used, no event matches, or the trace cannot be written.
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
            // Record the events that the files describe, which are the enabled ones.
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
            origin: TraceOrigin::Kernel {
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

    /// Starts to record events.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn start(&self) -> Result<(), FtraceError> {
        self.instance.set("tracing_on", "1")
    }

    /// Sets the clock of the programs' traces, so that equal times mean the same in all traces. The
    /// last call counts, as the frequency may be refined.
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

    /// Stops to record events. [`KernelEvents::finish`] still writes earlier ones.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop(&self) -> Result<(), FtraceError> {
        self.instance.set("tracing_on", "0")
    }

    /// Writes the remaining events, and removes the instance.
    #[must_use]
    pub fn finish(mut self) -> KernelSummary {
        self.join().unwrap_or_default()
    }

    /// Ends, and leaves unwritten events to a recording that continues this one.
    pub fn keep(mut self) {
        self.instance.stays = true;
        self.join();
    }

    fn join(&mut self) -> Option<KernelSummary> {
        let thread = self.thread.take()?;
        // Pairs with the thread's acquire load: the thread sees that the instance was stopped.
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
        // The thread has the rings' files open, which prevents the removal of the instance.
        let _ = self.stop();
        let unfinished = self.join();
        if unfinished.is_some_and(|summary| summary.events == 0) && !self.instance.is_old {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Configures a new instance.
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
        // The kernel filters by thread, and counts later threads as children.
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

/// Reads a fact about the kernel from `/proc/sys/kernel`.
fn proc(file: &str) -> String {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(file));
    text.unwrap_or_default().trim_end().to_owned()
}
