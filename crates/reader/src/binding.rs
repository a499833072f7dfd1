//! Where events have the values that a condition refers to.

/// Where an event has the values that a condition refers to, in the order of the references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding(pub(crate) Box<[Option<Place>]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Member(Member),
    ProcessId,
    ProcessName,
    HostName,
}

/// A field, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) area: Area,
    pub(crate) index: usize,
    /// Its place, if that is the same in each event.
    pub(crate) at: Option<usize>,
    pub(crate) part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Packet,
    Contexts,
    Payload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// The number of a sequence's elements.
    Count,
    Element(usize),
}
