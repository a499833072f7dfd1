//! State of a ring's reader and stream, as checkpoints hold it.

use usertrace_ring::Counts;

use crate::StreamState;

/// Words of [`Counts`].
const COUNTS: usize = size_of::<Counts>() / size_of::<u64>();

/// What was counted of a ring, by all who read it one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// What readers have seen.
    pub counts: Counts,
    /// Times of the first and last event.
    pub span: Option<(u64, u64)>,
}

impl RingCounts {
    /// How many words it is.
    pub const WORDS: usize = COUNTS + 3;

    /// As words, to be noted.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let counts: [u64; COUNTS] = zerocopy::transmute!(self.counts);
        let (first, last) = self.span.unwrap_or_default();
        let mut words = [0; Self::WORDS];
        words[..COUNTS].copy_from_slice(&counts);
        words[COUNTS..].copy_from_slice(&[self.span.is_some().into(), first, last]);
        words
    }

    /// What was noted so.
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

/// What was written of a ring: what another writer needs to go on with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingState {
    /// Of its stream, if that was begun.
    pub stream: Option<StreamState>,
    /// Lost records that the stream was told of.
    pub lost: u64,
    /// The thread whose stream it is, if each thread has its own. 0: not known yet.
    pub tid: u32,
    /// When the first sub-buffer of that stream was begun.
    pub begin: u64,
}

impl RingState {
    /// How many words it is.
    pub const WORDS: usize = 10;

    /// The same in a chunk. In another one than that of the stream, this is begun anew.
    #[must_use]
    pub fn in_chunk(self, is_same: bool) -> Self {
        Self {
            stream: self.stream.filter(|_| is_same),
            ..self
        }
    }

    /// As words, to be noted.
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

    /// What was noted so.
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
