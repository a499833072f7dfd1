//! Ids of spans that are unique in all traces, unlike those of `tracing`, which are reused.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use usertrace_reader::Metadata;

/// The ids of a span, and of the tree that it belongs to. OTLP has the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The trace, in the word's meaning for OpenTelemetry: a root span and all below it.
    pub trace_id: u128,
    /// The span.
    pub span_id: u64,
}

impl fmt::Display for Ids {
    /// The span's id, with 16 digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.span_id)
    }
}

/// Makes ids for the spans of a process: hashes, so that each export has the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdMaker {
    seed: u64,
}

impl IdMaker {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        let mut hasher = DefaultHasher::new();
        for name in ["hostname", "trace_name"] {
            metadata.env_text(name).hash(&mut hasher);
        }
        metadata.pid().hash(&mut hasher);
        Self {
            seed: hasher.finish(),
        }
    }

    /// The ids of a new span, which belongs to the trace of its parent.
    pub(crate) fn ids(&self, of: impl Hash, parent: Option<Ids>) -> Ids {
        let hash = |part: u8| {
            let mut hasher = DefaultHasher::new();
            (self.seed, part, &of).hash(&mut hasher);
            // 0 is no id.
            hasher.finish().max(1)
        };
        let own_trace = || u128::from(hash(1)) << 64 | u128::from(hash(2));
        Ids {
            trace_id: parent.map_or_else(own_trace, |parent| parent.trace_id),
            span_id: hash(0),
        }
    }

    /// The ids of a span of `tracing`, from the name of its event, its id and its begin.
    pub(crate) fn of_span(&self, name: &str, id: u64, ns: i64, parent: Option<Ids>) -> Ids {
        let (scope, name) = name.split_once(':').unwrap_or(("", name));
        self.ids((scope, name, id, ns), parent)
    }
}
