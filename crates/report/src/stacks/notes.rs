//! Tells what a profile lacks.

/// What a profile lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackNotes {
    /// Number of events without a call stack, and of all events.
    pub stackless: [u64; 2],
    /// Number of stacks that lack inner frames, and of events and spans that lack their stack,
    /// because there were too many.
    pub truncated: u64,
    /// See `truncated`.
    pub folded: u64,
    /// Number of memory blocks that were not tracked, because too many were in use.
    pub untracked: u64,
    /// Number of lost events and packets.
    pub lost: u64,
}

impl StackNotes {
    /// What to say of it: a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = |count: u64, text: &dyn Fn() -> String| {
            if count > 0 {
                lines.push(text());
            }
        };
        let [stackless, events] = self.stackless;
        line(stackless, &|| {
            format!("{stackless} of {events} events have no call stack")
        });
        line(self.truncated, &|| {
            let stacks = self.truncated;
            format!("{stacks} call stacks lack their inner frames: there are too many")
        });
        line(self.folded, &|| {
            let folded = self.folded;
            format!("{folded} events and spans lack their call stack: there are too many")
        });
        line(self.untracked, &|| {
            let blocks = self.untracked;
            format!("{blocks} memory blocks are left out: too many are in use")
        });
        line(self.lost, &|| {
            let lost = self.lost;
            format!(
                "{lost} events or packets were lost: weights may be too small, and live or peak bytes too large"
            )
        });
        lines
    }
}
