//! The parts of a call site of `tracing`, each of which is a separate event.

/// What a call site reports: an event, or a change of a span.
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
    /// Number of parts.
    pub(crate) const COUNT: usize = Part::Close as usize + 1;

    /// Suffix to the call site's name.
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
