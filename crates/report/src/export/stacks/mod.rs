//! Writes call stacks with weights: for `flamegraph.pl` and the like, pprof, and Firefox Profiler.
//!
//! Stacks are added up while events come, and written behind all of them.

mod firefox;
mod folded;
mod pprof;
mod source;

use usertrace_reader::{Event, LossKind, Lost};
use usertrace_symbols::Options;

use crate::activity::{Activity, Ended};
use crate::stacks::{Frames, Profile, StackNotes, Timeline, Weight};
use source::{Process, Source};

/// Maximum number of memory blocks in use that are tracked: about 1 GiB.
const BLOCKS: usize = 16 << 20;

/// A format for call stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFormat {
    /// A line for each stack: frames from the outermost with `;` between them, and the weight.
    Folded,
    /// A `profile.proto` of pprof, compressed by gzip.
    Pprof,
    /// Firefox Profiler's processed profile, compressed by gzip.
    Firefox,
}

/// Why there is nothing to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStacksError {
    /// No event has a call stack.
    Stackless,
    /// No event has the weight.
    Weightless(Weight),
}

impl std::error::Error for NoStacksError {}

impl std::fmt::Display for NoStacksError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stackless => {
                "no selected event has a call stack: record with --context callstack, or ip"
            }
            Self::Weightless(Weight::Events) => "no event is selected",
            Self::Weightless(Weight::Bytes) => {
                "no selected event is an allocation or has a field \"bytes\", \"size\" or \"len\" above 0: use another --by"
            }
            Self::Weightless(Weight::Time) => {
                "no selected events begin and end something in one thread: use another --by"
            }
            Self::Weightless(Weight::Live | Weight::Peak) => {
                "no selected event allocates memory: record with --malloc, or use another --by"
            }
        })
    }
}

/// Adds up call stacks, and writes them.
#[derive(Debug)]
pub struct StackExport {
    format: StackFormat,
    by: Weight,
    with_threads: bool,
    activity: Activity,
    profile: Profile,
    processes: Vec<Process>,
    ended: Vec<Ended>,
    lost: u64,
}

impl StackExport {
    /// Adds up what is `by`. With threads, each has a frame of its own in folded stacks.
    #[must_use]
    pub fn new(
        format: StackFormat,
        by: Weight,
        with_threads: bool,
        symbols: Option<Options>,
    ) -> Self {
        let mut profile = Profile::new(symbols);
        profile.is_by_thread = with_threads || format != StackFormat::Folded;
        if format == StackFormat::Firefox {
            profile.timeline = Some((by, Timeline::default()));
        }
        Self {
            format,
            by,
            with_threads,
            activity: Activity::new(BLOCKS),
            profile,
            processes: Vec::new(),
            ended: Vec::new(),
            lost: 0,
        }
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event<'_>) {
        if self.profile.note(event) {
            return;
        }
        let process = event.trace.process();
        if self.processes.len() <= process {
            self.processes.resize(process + 1, Process::default());
        }
        let known = &mut self.processes[process];
        if known.pid.is_none() && known.name.is_empty() {
            let metadata = event.trace.metadata();
            *known = Process {
                name: metadata.owner_name().unwrap_or_default().to_owned(),
                pid: metadata.pid(),
            };
        }
        let process = process as u32;
        let stack = self.profile.stack(event);
        let mut ended = std::mem::take(&mut self.ended);
        ended.clear();
        let is_related = self.profile.code.is_related(process);
        let step = self
            .activity
            .event(event, process, stack, is_related, &mut ended);
        self.profile
            .add(process, stack, &step, &ended, &self.activity);
        self.ended = ended;
    }

    /// Counts a loss.
    pub fn lost(&mut self, lost: &Lost) {
        let (LossKind::Events(count) | LossKind::Packets(count)) = lost.kind;
        self.lost = self.lost.saturating_add(count);
    }

    /// Takes what is to be said of files without symbols: a line each.
    pub fn take_messages(&mut self) -> Vec<String> {
        self.profile.code.take_messages()
    }

    /// Appends everything.
    ///
    /// # Errors
    /// If there is nothing to write.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<StackNotes, NoStacksError> {
        let profile = &mut self.profile;
        if profile.stackless == profile.events && profile.events > 0 {
            return Err(NoStacksError::Stackless);
        }
        let is_there = match self.by {
            // A program that releases everything has nothing in use.
            Weight::Live | Weight::Peak => (0..self.processes.len())
                .any(|process| self.activity.heap.in_use(process as u32).is_some()),
            by => profile
                .weights(&self.activity)
                .iter()
                .any(|(_, weights)| weights[by as usize] > 0),
        };
        if !is_there {
            return Err(NoStacksError::Weightless(self.by));
        }
        let frames = Frames::resolve(&profile.table, &mut profile.code);
        let source = Source {
            by: self.by,
            with_threads: self.with_threads,
            activity: &self.activity,
            profile: &self.profile,
            processes: &self.processes,
            frames: &frames,
        };
        match self.format {
            StackFormat::Folded => folded::write(out, &source),
            StackFormat::Pprof => pprof::write(out, &source),
            StackFormat::Firefox => firefox::write(out, &source),
        }
        let notes = self.profile.notes(&self.activity);
        Ok(StackNotes {
            lost: self.lost,
            ..notes
        })
    }
}
