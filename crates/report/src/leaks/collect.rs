//! Reads which memory was allocated and freed, and by whom.

use std::collections::{BTreeMap, HashMap};

use usertrace_reader::{Event, LossKind, Lost, value};
use usertrace_symbols::Options;

use super::table::{LeakTable, Moment, Owner};
use crate::heap::{Heap, HeapUse};
use crate::stacks::{Code, NO_STACK, StackTable};

/// Maximum number of blocks that are tracked: about 1 GiB.
const MAX_BLOCKS: usize = 16 << 20;

/// Follows the memory blocks of all processes, with the call stacks that allocated them.
#[derive(Debug)]
pub struct Leaks {
    code: Code,
    stacks: StackTable,
    heap: Heap,
    /// By trace, class of streams, and event id.
    uses: HashMap<(usize, u32, u16), Option<HeapUse>, ahash::RandomState>,
    processes: BTreeMap<u32, Owner>,
    allocations: u64,
    /// Number of allocations without a call stack.
    stackless: u64,
    events: u64,
    lost_events: u64,
    lost_packets: u64,
}

impl Leaks {
    /// Nothing is allocated yet. Symbols are looked for as `options` say.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            code: Code::new(Some(options)),
            stacks: StackTable::default(),
            heap: Heap::new(MAX_BLOCKS),
            uses: HashMap::default(),
            processes: BTreeMap::new(),
            allocations: 0,
            stackless: 0,
            events: 0,
            lost_events: 0,
            lost_packets: 0,
        }
    }

    /// Takes notice of an event.
    pub fn event(&mut self, event: &Event<'_>) {
        if self.code.note(&mut self.stacks, event) {
            return;
        }
        let place = (event.trace.number(), event.stream.id, event.class.id);
        let used = self.uses.entry(place);
        let used = used.or_insert_with(|| HeapUse::of(&event.class.name, &event.class.fields));
        let Some(used) = *used else {
            return;
        };
        self.events += 1;
        let process = event.trace.process() as u32;
        self.processes
            .entry(process)
            .or_insert_with(|| Owner::of(event.trace));
        let field =
            |index: Option<usize>| value::integer(&event.class.fields, index?, event.payload);
        let stack = match used.allocated(field) {
            Some(_) => {
                let stack = self.code.stack(&mut self.stacks, event);
                self.allocations += 1;
                self.stackless += u64::from(stack == NO_STACK);
                stack
            }
            None => NO_STACK,
        };
        let time = u64::try_from(event.ns).unwrap_or(0);
        let is_related = self.code.is_related(process);
        self.heap
            .note(&used, process, time, stack, field, is_related);
    }

    /// Takes notice of a loss.
    pub fn lost(&mut self, lost: &Lost) {
        match lost.kind {
            LossKind::Events(count) => self.lost_events += count,
            LossKind::Packets(count) => self.lost_packets += count,
        }
    }

    /// Number of events of an allocator.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether no allocation has a call stack, although there are some.
    #[must_use]
    pub fn is_without_stacks(&self) -> bool {
        self.allocations > 0 && self.stackless == self.allocations
    }

    /// What may be wrong with the result: a line each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let lost = match (self.lost_events, self.lost_packets) {
            (0, 0) => None,
            (events, 0) => Some(format!("{events} events were lost")),
            (0, packets) => Some(format!("{packets} packets of events were lost")),
            (events, packets) => Some(format!("{events} events and {packets} packets were lost")),
        };
        if let Some(lost) = lost {
            doubts.push(format!(
                "the result may be wrong: {lost}, so blocks may be missing, or seem to be in use that were freed"
            ));
        }
        let unknown = self.heap.unknown_frees();
        if unknown > 0 {
            let blocks = if unknown == 1 {
                "block was"
            } else {
                "blocks were"
            };
            doubts.push(format!(
                "{unknown} {blocks} freed whose allocation is not in the trace: of a parent process, from before the trace began, or overwritten"
            ));
        }
        let replaced = self.heap.replaced();
        if replaced > 0 {
            let blocks = if replaced == 1 { "block" } else { "blocks" };
            doubts.push(format!(
                "the trace lacks that {replaced} {blocks} were freed, whose addresses were allocated again"
            ));
        }
        let truncated = self.stacks.truncated();
        if truncated > 0 {
            doubts.push(format!(
                "{truncated} call stacks lack their inner functions: there are too many"
            ));
        }
        let untracked = self.heap.untracked();
        if untracked > 0 {
            doubts.push(format!(
                "the result is incomplete: {untracked} blocks beyond {MAX_BLOCKS} at the same time were not followed"
            ));
        }
        doubts
    }

    /// What is in use at the end or at the peak of each process. Resolves the call stacks.
    #[must_use]
    pub fn table(&mut self, moment: Moment) -> LeakTable {
        LeakTable::new(
            &self.heap,
            &self.stacks,
            &mut self.code,
            &self.processes,
            moment,
        )
    }

    /// Takes what is to be said of files without symbols: a line each.
    pub fn take_messages(&mut self) -> Vec<String> {
        self.code.take_messages()
    }
}
