//! Keeps the longest spans.

/// A period between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) lane: u32,
    pub(super) begin: u64,
    pub(super) duration: u64,
    pub(super) pair: u32,
    pub(super) depth: u32,
}

#[derive(Debug)]
pub(super) struct Spans {
    pub(super) all: Vec<Span>,
    /// All spans of at least this duration are kept.
    pub(super) threshold: u64,
    max: usize,
}

impl Spans {
    pub(super) fn new(max: usize) -> Self {
        Self {
            all: Vec::new(),
            threshold: 0,
            max,
        }
    }

    pub(super) fn add(&mut self, span: Span) {
        if span.duration < self.threshold {
            return;
        }
        self.all.push(span);
        if self.all.len() > self.max {
            let mut durations: Vec<u64> = self.all.iter().map(|span| span.duration).collect();
            let middle = durations.len() / 2;
            let (_, median, _) = durations.select_nth_unstable(middle);
            self.threshold = median.saturating_add(1);
            self.all.retain(|span| span.duration >= self.threshold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spans_above_the_threshold_are_kept() {
        let mut spans = Spans::new(1000);
        let duration = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for n in 0..100_000 {
            spans.add(Span {
                lane: 0,
                begin: n,
                duration: duration(n),
                pair: 0,
                depth: 0,
            });
        }
        let expected = (0..100_000)
            .filter(|&n| duration(n) >= spans.threshold)
            .count();
        assert_eq!(spans.all.len(), expected);
        assert!((250..=1000).contains(&expected), "{expected}");
    }
}
