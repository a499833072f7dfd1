//! What `busy` and `stepped`, and who looks at their memory, know of each other.

/// Threads of `busy` that write all the time.
pub const THREADS: u32 = 3;

/// What the signal handler of one of them writes as.
pub const HANDLER: u32 = THREADS;

/// The first word of the page in which they say how far they are. Its complement is the second one,
/// and others follow: in `busy` the numbers of events that each thread has recorded, and its
/// handler.
pub const TAG: u64 = 0x7573_6572_7472_6163;

/// Words of the page of `stepped`.
pub mod words {
    /// How many events it has recorded itself.
    pub const RECORDED: usize = 2;
    /// What it knows of the brief trace: 0 if nothing, [`THERE`], or [`GONE`].
    pub const BRIEF: usize = 3;
    /// Its child.
    pub const CHILD: usize = 4;
    /// How many events that has recorded.
    pub const CHILD_RECORDED: usize = 5;
    /// How often all was done.
    pub const TURNS: usize = 6;

    /// The trace is there, and so are events of each process that has recorded any.
    pub const THERE: u64 = 1;
    /// It is not there.
    pub const GONE: u64 = 2;
}

/// Words of the page of `stepped-writer`.
pub mod writers {
    /// Where its function is that writes the events which are looked at.
    pub const LOOKED_AT: usize = 2;
    /// Where its signal handler is.
    pub const ON_TRAP: usize = 3;
    /// Which plan it is at.
    pub const PLAN: usize = 4;
    /// What [`Kind`](super::Kind) of event is looked at; 0 at the end.
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

/// What event of `stepped-writer` it is that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Kind {
    /// The first one that there is.
    First = 1,
    /// One like most.
    Ordinary,
    /// A long one.
    Long,
    /// One that begins a sub-buffer.
    AtEnd,
    /// Likewise, a long one.
    LongAtEnd,
    /// One that finds the ring full.
    Full,
    /// The one after that.
    AfterFull,
    /// One with a signal in its middle.
    Interrupted,
    /// Likewise, one that begins a sub-buffer.
    InterruptedAtEnd,
}

impl Kind {
    /// All of them.
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

    /// The one with a number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == number)
    }
}

/// How many sub-buffers the rings of `stepped-writer` have.
pub const SUBBUF_COUNT: u64 = 4;

/// How many events each child of `stepped` writes: a sub-buffer, and a part of the next.
pub const CHILD_EVENTS: u64 = 200;
/// How large those sub-buffers are.
pub const SUBBUF_SIZE: u64 = 4096;

/// The traces that are there all the time and overwrite, by who has their rings.
pub const SCOPES: [&str; 3] = ["cpu", "thread", "global"];

/// In `busy`, those that do not overwrite, by what they do instead. Somebody reads them all the
/// time.
pub const READ: [&str; 2] = ["discard", "block"];
