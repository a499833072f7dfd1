//! Adds up what events say, by call stack.

use std::collections::HashMap;
use std::rc::Rc;

use usertrace_reader::Event;
use usertrace_symbols::Options;

use super::Frame;
use super::code::Code;
use super::culprit::culprit;
use super::notes::StackNotes;
use super::samples::{Key, Label, Samples, Sums};
use super::table::{NO_STACK, StackId, StackTable};
use super::timeline::Timeline;
use super::waits::{WaitPlace, Waits};
use super::weight::{Weight, Weights};
use crate::activity::{Activity, Ended, Step};

/// The weights of all call stacks.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) code: Code,
    pub(crate) table: StackTable,
    pub(crate) samples: Samples,
    pub(crate) waits: Waits,
    /// Each thread has weights of its own.
    pub(crate) is_by_thread: bool,
    /// When weights came, if that is wanted.
    pub(crate) timeline: Option<(Weight, Timeline)>,
    /// Number of events.
    pub(crate) events: u64,
    /// Number of those without a call stack.
    pub(crate) stackless: u64,
    /// Where events with a call stack are, as a text for people.
    places: HashMap<StackId, Rc<str>, ahash::RandomState>,
}

/// Maximum number of texts that are kept.
const MAX_PLACES: usize = 1 << 16;

impl Profile {
    /// An empty profile. Symbols are looked for as `options` say.
    pub(crate) fn new(options: Option<Options>) -> Self {
        Self {
            code: Code::new(options),
            ..Self::default()
        }
    }

    /// Takes notice of an event about modules. Returns whether it is one.
    pub(crate) fn note(&mut self, event: &Event<'_>) -> bool {
        self.code.note(&mut self.table, event)
    }

    /// The call stack of an event.
    pub(crate) fn stack(&mut self, event: &Event<'_>) -> StackId {
        self.code.stack(&mut self.table, event)
    }

    /// The function to name for an event with this call stack, with its file and line. Empty if it
    /// has no name.
    pub(crate) fn place(&mut self, stack: StackId) -> Rc<str> {
        if stack == NO_STACK {
            return Rc::default();
        }
        if let Some(known) = self.places.get(&stack) {
            return Rc::clone(known);
        }
        let locations = self.table.frames(stack);
        let locations = locations.map(|location| self.table.locations()[location as usize]);
        let locations: Vec<_> = locations.collect();
        let frames = locations.into_iter();
        let frames: Vec<_> = frames.map(|at| self.code.frames(at)).collect();
        let frames: Vec<&Frame> = frames.iter().flat_map(|frames| frames.iter()).collect();
        let place = frames
            .get(culprit(frames.iter().copied()))
            .filter(|frame| !frame.is_unknown);
        let place: Rc<str> = place
            .map(|frame| frame.to_string())
            .unwrap_or_default()
            .into();
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        self.places.insert(stack, Rc::clone(&place));
        place
    }

    /// Adds an event with this stack, and the spans that it ended.
    pub(crate) fn add(
        &mut self,
        process: u32,
        stack: StackId,
        step: &Step,
        ended: &[Ended],
        activity: &Activity,
    ) {
        self.events += 1;
        self.stackless += u64::from(stack == NO_STACK);
        let lane = self.is_by_thread.then_some(step.lane);
        let key = Key::new(process, lane, stack, Label::Event(step.class));
        let sums = Sums {
            events: 1,
            bytes: step.bytes,
            time: 0,
        };
        self.add_sums(step.time, key, &sums);
        for span in ended {
            let pair = &activity.pairs.all[span.pair as usize];
            if pair.is_nested {
                let label = Label::Span(span.pair);
                let key = Key::new(process, lane, span.stack, label);
                let sums = Sums {
                    time: span.own,
                    ..Sums::default()
                };
                self.add_sums(step.time, key, &sums);
            }
            if pair.is_lock_wait {
                let place = WaitPlace {
                    process,
                    stack: span.stack,
                    pair: span.pair,
                };
                self.waits.add(place, span.duration);
            }
        }
    }

    fn add_sums(&mut self, time: u64, key: Key, sums: &Sums) {
        let number = self.samples.add(key, sums);
        if let Some((weight, timeline)) = &mut self.timeline {
            let weight = match weight {
                Weight::Events => sums.events,
                Weight::Bytes => sums.bytes,
                Weight::Time => sums.time,
                Weight::Live | Weight::Peak => 0,
            };
            if weight > 0 {
                timeline.add(time, number, weight);
            }
        }
    }

    /// What it lacks, apart from lost events.
    pub(crate) fn notes(&self, activity: &Activity) -> StackNotes {
        StackNotes {
            stackless: [self.stackless, self.events],
            truncated: self.table.truncated(),
            folded: self.samples.folded(),
            untracked: activity.heap.untracked(),
            lost: 0,
        }
    }

    /// All weights, with those of memory: these have no thread and no label.
    pub(crate) fn weights(&self, activity: &Activity) -> Vec<(Key, Weights)> {
        let samples = self.samples.all().iter().map(|(key, sums)| {
            let Sums {
                events,
                bytes,
                time,
            } = *sums;
            (*key, [events, bytes, time, 0, 0])
        });
        let of = |process, stack| Key::new(process, None, stack, Label::Any);
        let heap = &activity.heap;
        let live = heap.live().map(|used| {
            let key = of(used.process, used.stack);
            (key, [0, 0, 0, used.in_use.bytes, 0])
        });
        let peak = heap.at_peak().map(|used| {
            let key = of(used.process, used.stack);
            (key, [0, 0, 0, 0, used.in_use.bytes])
        });
        samples.chain(live).chain(peak).collect()
    }
}
