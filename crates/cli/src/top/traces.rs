//! Counts the events of all processes of traces.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use usertrace_reader::{Binding, Condition};

use std::cell::RefCell;
use std::rc::Rc;

use usertrace_symbols::Options;

use super::places::{Code, SharedCode};
use super::{Counted, Counter, ProcessCounter};
use usertrace_consumer::{
    CONTROL, ControlFs, ControlFsError, KernelFile, consumer_files, describe, event_channels,
};

/// Time between two scans for new processes.
const SCAN: Duration = Duration::from_millis(100);

/// Time for which ended processes stay in the result.
const LINGER: Duration = Duration::from_secs(10);

/// Counts the events of all processes of some traces, or of all.
#[derive(Debug)]
pub struct Traces {
    control_fs: ControlFs,
    /// `None` selects all traces.
    names: Option<Vec<String>>,
    /// `None` selects all events.
    condition: Option<Condition>,
    traces: BTreeMap<String, Trace>,
    scanned: Option<Instant>,
    problems: Vec<String>,
    /// Problems of listing that were reported.
    reported: BTreeSet<String>,
    /// Index of the process that the next step begins with.
    turn: usize,
    /// If places are counted.
    code: Option<SharedCode>,
}

#[derive(Debug, Default)]
struct Trace {
    /// Processes by the names of their files.
    processes: BTreeMap<String, Process>,
    condition: Option<Condition>,
    code: Option<SharedCode>,
    /// The trace was scanned before, so processes found now are new.
    is_known: bool,
}

#[derive(Debug)]
struct Process {
    counter: ProcessCounter<KernelFile>,
    /// Time at which its end was seen.
    ended: Option<Instant>,
    /// Its files could not be read.
    failed: bool,
}

impl Traces {
    /// Counts events of the traces with these names, or of all present and future traces. With a
    /// condition, only events that fulfil it count. With `places`, the events of each place count
    /// apart; it says where symbols are. Events that are in the rings already do not count.
    ///
    /// # Errors
    /// When a named trace does not exist.
    pub fn new(
        control_fs: ControlFs,
        names: Option<Vec<String>>,
        condition: Option<Condition>,
        places: Option<Options>,
    ) -> Result<Self, ControlFsError> {
        for name in names.iter().flatten() {
            control_fs.trace(name)?;
        }
        let mut traces = Self {
            control_fs,
            names,
            condition,
            traces: BTreeMap::new(),
            scanned: None,
            problems: Vec::new(),
            reported: BTreeSet::new(),
            turn: 0,
            code: places.map(|options| Rc::new(RefCell::new(Code::new(options)))),
        };
        traces.scan();
        Ok(traces)
    }

    /// Finds traces and processes.
    fn scan(&mut self) {
        let is_first = self.scanned.is_none();
        self.scanned = Some(Instant::now());
        let names = match &self.names {
            Some(names) => names.clone(),
            None => {
                let paths = self.control_fs.traces().unwrap_or_else(|error| {
                    report_once(&mut self.reported, &mut self.problems, describe(&error));
                    Vec::new()
                });
                let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
                names.map(str::to_owned).collect()
            }
        };
        for trace in self.traces.values_mut() {
            trace.is_known |= !is_first;
        }
        for name in &names {
            let directory = match self.control_fs.trace(name) {
                Ok(directory) => directory,
                Err(ControlFsError::NoTrace(_)) => continue,
                Err(error) => {
                    report_once(&mut self.reported, &mut self.problems, describe(&error));
                    continue;
                }
            };
            let trace = self.traces.entry(name.clone());
            let trace = trace.or_insert_with(|| Trace {
                is_known: !is_first,
                condition: self.condition.clone(),
                code: self.code.clone(),
                ..Trace::default()
            });
            let mut denied = Vec::new();
            trace.scan(name, directory.path(), &mut self.problems, &mut denied);
            for problem in denied {
                report_once(&mut self.reported, &mut self.problems, problem);
            }
        }
        for (name, trace) in &mut self.traces {
            if !names.contains(name) || self.control_fs.trace(name).is_err() {
                // The kernel has removed the rest of its events.
                trace.processes.values_mut().for_each(Process::end);
            }
            let lingers = |ended: Option<Instant>| ended.is_none_or(|at| at.elapsed() < LINGER);
            trace.processes.retain(|_, process| lingers(process.ended));
        }
    }
}

/// Reports a problem that each scan finds again only once.
fn report_once(reported: &mut BTreeSet<String>, problems: &mut Vec<String>, problem: String) {
    if reported.insert(problem.clone()) {
        problems.push(problem);
    }
}

impl Process {
    fn end(&mut self) {
        if self.ended.is_none() {
            self.counter.close();
            self.ended = Some(Instant::now());
        }
    }
}

impl Trace {
    /// Finds the trace's processes. `denied` gets a message for each list that cannot be read.
    fn scan(
        &mut self,
        name: &str,
        directory: &Path,
        problems: &mut Vec<String>,
        denied: &mut Vec<String>,
    ) {
        let mut unless_gone = |path: &Path, listed: io::Result<Vec<String>>| {
            listed.unwrap_or_else(|error| {
                if error.kind() != io::ErrorKind::NotFound {
                    denied.push(format!(
                        "cannot list {:?}: {error}",
                        path.display().to_string()
                    ));
                }
                Vec::new()
            })
        };
        // Control files come last: they describe all events of channels that were opened before.
        let channels = unless_gone(directory, event_channels(directory));
        let channels = channels.iter().map(String::as_str);
        let mut listed = BTreeSet::new();
        for channel in channels.chain([CONTROL]) {
            let path = directory.join(channel);
            for file in unless_gone(&path, consumer_files(&path)) {
                listed.insert(file.clone());
                let process = self.processes.entry(file.clone());
                let process = process.or_insert_with(|| Process {
                    counter: ProcessCounter::new(name, &file)
                        .with_condition(self.condition.clone())
                        .with_code(self.code.clone()),
                    ended: None,
                    failed: false,
                });
                if process.failed || process.counter.has(channel) {
                    continue;
                }
                if let Err(error) = open(process, channel, &path.join(&file), !self.is_known) {
                    process.failed = true;
                    problems.push(format!("{name}/{channel}/{file}: {error}"));
                }
            }
        }
        // A process whose files vanished before they were opened cannot report its own end.
        for (file, process) in &mut self.processes {
            if !listed.contains(file) && !process.counter.reads_events() {
                process.end();
            }
        }
    }
}

fn open(process: &mut Process, channel: &str, path: &Path, from_now: bool) -> io::Result<()> {
    match KernelFile::open(path) {
        Ok(file) => process.counter.add(channel, file, from_now),
        // The process has ended, and a recorder has read everything.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the process ended before anybody looked.
fn is_empty(counted: &Counted) -> bool {
    counted.fill.is_none() && counted.events.is_empty() && counted.lost == 0
}

impl Counter for Traces {
    fn step(&mut self, until: Instant) -> Duration {
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN) {
            self.scan();
        }
        let mut wait = SCAN;
        let traces = self.traces.values_mut();
        let mut processes: Vec<_> = traces
            .flat_map(|trace| trace.processes.values_mut())
            .collect();
        let count = processes.len();
        if count > 0 {
            // Rotate, so that each process gets time now and then.
            self.turn = (self.turn + 1) % count;
            processes.rotate_left(self.turn);
        }
        for process in processes {
            if process.ended.is_some() || process.failed {
                continue;
            }
            match process.counter.step(until) {
                Ok(soon) => wait = wait.min(soon),
                Err(error) => {
                    process.failed = true;
                    let counted = process.counter.counted();
                    self.problems.push(format!("{}: {error}", counted.key));
                }
            }
            if process.counter.has_ended() {
                process.end();
            }
        }
        wait
    }

    fn counted(&mut self) -> Vec<Counted> {
        let traces = self.traces.values_mut();
        let processes = traces.flat_map(|trace| trace.processes.values_mut());
        let counted = processes.map(|process| process.counter.counted());
        let counted = counted.filter(|counted| !is_empty(counted)).collect();
        if let Some(code) = &self.code {
            let mut code = code.borrow_mut();
            self.problems.extend(code.resolver.symbols.take_messages());
        }
        counted
    }

    fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    fn bindings(&self, condition: &Condition) -> Vec<Binding> {
        let traces = self.traces.values();
        let processes = traces.flat_map(|trace| trace.processes.values());
        processes
            .flat_map(|process| process.counter.bindings(condition))
            .collect()
    }

    fn has_ended(&self) -> bool {
        let Some(names) = &self.names else {
            return false;
        };
        names
            .iter()
            .all(|name| self.control_fs.trace(name).is_err())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A process whose files are listed, but gone when they are opened, has no row in `top` and is
    /// not kept forever.
    ///
    /// Requirements: E7
    #[test]
    fn process_that_ends_during_scan_is_not_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("main/7.1");
        std::fs::create_dir(directory.path().join("main")).expect("a directory");
        symlink(directory.path().join("nothing"), &file).expect("a link");
        let mut trace = Trace::default();
        let mut problems = Vec::new();
        trace.scan("mine", directory.path(), &mut problems, &mut Vec::new());
        let shown = |trace: &mut Trace| {
            let counted = trace.processes.values_mut().map(|p| p.counter.counted());
            counted.filter(|counted| !is_empty(counted)).count()
        };
        assert_eq!((trace.processes.len(), shown(&mut trace)), (1, 0));
        std::fs::remove_file(&file).expect("removed");
        trace.scan("mine", directory.path(), &mut problems, &mut Vec::new());
        assert!(trace.processes.values().all(|p| p.ended.is_some()));
        assert_eq!(problems, [""; 0]);
    }
}
