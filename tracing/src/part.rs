//! The parts of a callsite of `tracing`: each is an event of its own.

/// What happens at a callsite: an event, or something to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Event,
    New,
    Record,
    Follows,
    Enter,
    Exit,
    Close,
}

impl Part {
    /// How many there are.
    pub(crate) const COUNT: usize = Part::Close as usize + 1;

    /// What comes behind the callsite's own name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Part::Event => "",
            Part::New => ".new",
            Part::Record => ".record",
            Part::Follows => ".follows",
            Part::Enter => ".enter",
            Part::Exit => ".exit",
            Part::Close => ".close",
        }
    }

    /// Names of the spans whose ids come before the fields.
    pub(crate) fn spans(self) -> &'static [&'static str] {
        match self {
            Part::Event | Part::Record | Part::Enter | Part::Exit | Part::Close => &["span"],
            Part::New => &["span", "parent"],
            Part::Follows => &["span", "follows"],
        }
    }
}
