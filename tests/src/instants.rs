//! The memory layout that `busy`, `stepped` and `stepped-writer` share with the crash tests, which
//! read it from outside.

/// Threads of `busy` that write all the time.
pub const THREADS: u32 = 3;

/// The thread number of events of a signal handler in one of them.
pub const HANDLER: u32 = THREADS;

/// The first word of the page in which a program keeps its progress. The second word is its
/// complement, and others follow: in `busy`, how many events each thread and the handler recorded.
pub const TAG: u64 = 0x7573_6572_7472_6163;

/// Words of the page of `stepped`.
pub mod words {
    /// How many events the program has recorded itself.
    pub const RECORDED: usize = 2;
    /// The state of the brief trace: 0 if unknown, [`EXISTS`], or [`GONE`].
    pub const BRIEF: usize = 3;
    /// The process id of its child.
    pub const CHILD: usize = 4;
    /// How many events the child has recorded.
    pub const CHILD_RECORDED: usize = 5;
    /// How many rounds are done.
    pub const TURNS: usize = 6;

    /// The trace exists, with events of each process that has recorded any.
    pub const EXISTS: u64 = 1;
    /// The trace does not exist.
    pub const GONE: u64 = 2;
}

/// Words of the page of `stepped-writer`.
pub mod writers {
    /// The address of the function that writes the events which are stepped through.
    pub const STEPPED_FUNCTION: usize = 2;
    /// The address of its signal handler.
    pub const ON_TRAP: usize = 3;
    /// The index of its current plan.
    pub const PLAN: usize = 4;
    /// The [`Kind`](super::Kind) of event that is stepped through; 0 at the end.
    pub const KIND: usize = 5;
    /// How many events of its thread the trace has.
    pub const RECORDED: usize = 6;
    /// How many events were lost.
    pub const LOST: usize = 7;
    /// How many events of its signal handler the trace has.
    pub const HANDLED: usize = 8;
    /// The first event that cannot have been overwritten.
    pub const OLDEST: usize = 9;
}

/// Kinds of events of `stepped-writer` that are stepped through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Kind {
    /// The first event.
    First = 1,
    /// An event with nothing special.
    Ordinary,
    /// A long event.
    Long,
    /// An event that begins a sub-buffer.
    AtEnd,
    /// A long event that begins a sub-buffer.
    LongAtEnd,
    /// An event that finds the ring full.
    Full,
    /// The event after one that found the ring full.
    AfterFull,
    /// An event that a signal interrupts.
    Interrupted,
    /// An event that begins a sub-buffer, and that a signal interrupts.
    InterruptedAtEnd,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::First,
        Self::Ordinary,
        Self::Long,
        Self::AtEnd,
        Self::LongAtEnd,
        Self::Full,
        Self::AfterFull,
        Self::Interrupted,
        Self::InterruptedAtEnd,
    ];

    /// The kind with a number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == number)
    }
}

/// How many sub-buffers the rings of `stepped-writer` have.
pub const SUBBUF_COUNT: u64 = 4;

/// How many events each child of `stepped` writes: one sub-buffer, and a part of the next.
pub const CHILD_EVENTS: u64 = 200;
/// The size of those sub-buffers.
pub const SUBBUF_SIZE: u64 = 4096;

/// Traces that exist all the time, in mode `overwrite`, named by the scope of their rings.
pub const SCOPES: [&str; 3] = ["cpu", "thread", "global"];

/// Traces of `busy` that are read all the time, named by their mode.
pub const READ: [&str; 2] = ["discard", "block"];
