//! State of a ring's reader and stream, as checkpoints hold it.

use usertrace_ring::Counts;

use crate::StreamState;

/// Number of words in [`Counts`].
const COUNTS: usize = size_of::<Counts>() / size_of::<u64>();

/// Counters of a ring, by all of its readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Counters of the readers.
    pub counts: Counts,
    /// Times of the first and last event.
    pub span: Option<(u64, u64)>,
}

impl RingCounts {
    /// Number of words.
    pub const WORDS: usize = COUNTS + 3;

    /// Converts to words, for a checkpoint.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let counts: [u64; COUNTS] = zerocopy::transmute!(self.counts);
        let (first, last) = self.span.unwrap_or_default();
        let mut words = [0; Self::WORDS];
        words[..COUNTS].copy_from_slice(&counts);
        words[COUNTS..].copy_from_slice(&[self.span.is_some().into(), first, last]);
        words
    }

    /// Converts from the words of a checkpoint.
    #[must_use]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let mut counts = [0; COUNTS];
        counts.copy_from_slice(&words[..COUNTS]);
        let [.., has_span, first, last] = *words;
        Self {
            counts: zerocopy::transmute!(counts),
            span: (has_span != 0).then_some((first, last)),
        }
    }
}

/// State of a ring's stream: what another writer needs to resume it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingState {
    /// State of its stream file, if there is one.
    pub stream: Option<StreamState>,
    /// Lost records that the stream has counted.
    pub lost: u64,
    /// The owner thread of the stream, if each thread has its own; 0 if unknown.
    pub tid: u32,
    /// Start time of the first sub-buffer of the stream.
    pub begin: u64,
}

impl RingState {
    /// Number of words.
    pub const WORDS: usize = 10;

    /// The state for a chunk. In another chunk than before, the stream starts anew.
    #[must_use]
    pub fn in_chunk(self, is_same: bool) -> Self {
        Self {
            stream: self.stream.filter(|_| is_same),
            ..self
        }
    }

    /// Converts to words, for a checkpoint.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let stream = self.stream.unwrap_or_default();
        [
            self.lost,
            self.stream.is_some().into(),
            stream.written,
            stream.packets,
            stream.discarded_written,
            stream.discarded,
            stream.time,
            stream.gap.into(),
            self.tid.into(),
            self.begin,
        ]
    }

    /// Converts from the words of a checkpoint.
    #[must_use]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [
            lost,
            begun,
            written,
            packets,
            discarded_written,
            discarded,
            time,
            gap,
            tid,
            begin,
        ] = *words;
        Self {
            stream: (begun != 0).then_some(StreamState {
                written,
                packets,
                discarded_written,
                discarded,
                time,
                gap: gap != 0,
            }),
            lost,
            tid: tid as u32,
            begin,
        }
    }
}
