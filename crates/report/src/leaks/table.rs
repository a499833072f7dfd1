//! Memory in use, by the call stacks that allocated it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use usertrace_reader::Trace;

use crate::heap::{Heap, InUse, StackUse};
use crate::stacks::{Code, Frame, Frames, StackTable, culprit};

/// When memory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At the end of the trace of each process.
    End,
    /// When each process had the most bytes in use.
    Peak,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its host, if the trace says it.
    pub host: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its id.
    pub pid: Option<i64>,
}

/// What the allocations by one call stack have in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The process.
    pub owner: Owner,
    /// Number of bytes, as the program asked for.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The call stack, from the innermost function. Empty if it is unknown.
    pub stack: Vec<Frame>,
    /// The function to blame, as an index into the stack.
    pub culprit: usize,
}

/// What is in use, by call stack, from the most bytes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeakTable {
    /// Each call stack of each process.
    pub leaks: Vec<Leak>,
    /// The sum of all.
    pub bytes: u64,
    /// The sum of all.
    pub blocks: u64,
}

impl Owner {
    pub(super) fn of(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        Self {
            host: metadata.env_text("hostname").map(str::to_owned),
            name: metadata.owner_name().map(str::to_owned),
            pid: metadata.pid(),
        }
    }
}

/// `NAME (PID)`
impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("unknown process"))?;
        match self.pid {
            Some(pid) => write!(f, " ({pid})"),
            None => Ok(()),
        }
    }
}

impl Leak {
    /// The function to blame. None if the call stack is unknown.
    #[must_use]
    pub fn to_blame(&self) -> Option<&Frame> {
        self.stack.get(self.culprit)
    }
}

impl LeakTable {
    pub(super) fn new(
        heap: &Heap,
        stacks: &StackTable,
        code: &mut Code,
        owners: &BTreeMap<u32, Owner>,
        moment: Moment,
    ) -> Self {
        let used: Vec<_> = match moment {
            Moment::End => heap.live().collect(),
            Moment::Peak => heap.at_peak().collect(),
        };
        let frames = Frames::resolve(stacks, code);
        let mut table = Self::default();
        for ((process, stack), sum) in rows(stacks, &frames, used.into_iter()) {
            table.bytes = table.bytes.saturating_add(sum.bytes);
            table.blocks += sum.blocks;
            table.leaks.push(Leak {
                owner: owners.get(&process).cloned().unwrap_or_default(),
                bytes: sum.bytes,
                blocks: sum.blocks,
                culprit: culprit(stack.iter().copied()),
                stack: stack.into_iter().cloned().collect(),
            });
        }
        table
    }
}

/// Adds up what stacks have in use that people see as one, from the most bytes on. The key is the
/// process, and the frames from the innermost.
pub(crate) fn rows<'a>(
    stacks: &'a StackTable,
    frames: &'a Frames,
    used: impl Iterator<Item = StackUse>,
) -> Vec<((u32, Vec<&'a Frame>), InUse)> {
    // Several places of one line, as those of an unrolled loop, are one for people.
    let mut sums: HashMap<(u32, Vec<&Frame>), InUse> = HashMap::new();
    for used in used {
        let stack = frames.of(stacks, used.stack).collect();
        let sum = sums.entry((used.process, stack)).or_default();
        sum.blocks += used.in_use.blocks;
        sum.bytes = sum.bytes.saturating_add(used.in_use.bytes);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(
        |((process, stack), sum), ((other, other_stack), other_sum)| {
            let key = |sum: &InUse| (Reverse(sum.bytes), Reverse(sum.blocks));
            let by_size = key(sum).cmp(&key(other_sum));
            let functions = stack.iter().map(|frame| &frame.function);
            let others = other_stack.iter().map(|frame| &frame.function);
            by_size
                .then(process.cmp(other))
                .then_with(|| functions.cmp(others))
        },
    );
    rows
}
