//! Where events come from, and what they are called: columns of which many rows in a row have the
//! same values.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use usertrace_reader::Trace;

use crate::schema::Fixed;

/// Memory of an origin, besides its texts, about.
const ORIGIN: usize = 256;

/// The columns whose values are those of the origin.
const OF_ORIGIN: [Fixed; 6] = [
    Fixed::Trace,
    Fixed::Process,
    Fixed::Pid,
    Fixed::Provider,
    Fixed::Name,
    Fixed::Loglevel,
];

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Constant {
    I32(i32),
    I64(i64),
    Text(Box<str>),
}

/// Where an event comes from, and what it is called. None: not known.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin([Option<Constant>; OF_ORIGIN.len()]);

impl Origin {
    pub(crate) fn of(trace: &Trace, event: &str, loglevel: Option<u32>) -> Self {
        let metadata = trace.metadata();
        let (provider, name) = match event.split_once(':') {
            Some((provider, name)) => (Some(provider), name),
            None => (None, event),
        };
        let text = |text: &str| Constant::Text(text.into());
        Self([
            metadata.env_text("trace_name").map(text),
            metadata.owner_name().map(text),
            metadata.pid().map(Constant::I64),
            provider.map(text),
            Some(text(name)),
            loglevel.map(|level| Constant::I32(level.cast_signed())),
        ])
    }

    fn bytes(&self) -> usize {
        let texts = self.0.iter().map(|value| match value {
            Some(Constant::Text(text)) => text.len(),
            _ => 0,
        });
        ORIGIN + texts.sum::<usize>()
    }
}

/// So many rows in a row with one value, which is at this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) index: u32,
    pub(crate) rows: u32,
}

/// The origins of rows.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    different: Vec<Arc<Origin>>,
    indices: HashMap<Arc<Origin>, u32, RandomState>,
    runs: Vec<Run>,
}

/// The different values of a column, and which of them rows have. No value has the index `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Constants<'a> {
    pub(crate) values: Vec<&'a Constant>,
    pub(crate) runs: Vec<(Option<u32>, u32)>,
}

impl Origins {
    /// Adds the origin of a row. Returns how much memory that takes.
    pub(crate) fn push(&mut self, origin: &Arc<Origin>) -> usize {
        if let Some(last) = self.runs.last_mut()
            && Arc::ptr_eq(&self.different[last.index as usize], origin)
            && last.rows < u32::MAX
        {
            last.rows += 1;
            return 0;
        }
        let (index, bytes) = match self.indices.get(origin) {
            Some(&index) => (index, 0),
            None => {
                self.different.push(Arc::clone(origin));
                let index = self.different.len() as u32 - 1;
                self.indices.insert(Arc::clone(origin), index);
                (index, origin.bytes())
            }
        };
        self.runs.push(Run { index, rows: 1 });
        bytes + size_of::<Run>()
    }

    /// The values of a column. None: they are not those of the origins.
    pub(crate) fn column(&self, column: usize) -> Option<Constants<'_>> {
        let which = OF_ORIGIN
            .iter()
            .position(|&fixed| fixed as usize == column)?;
        let (mut constants, mut known) = (Constants::default(), HashMap::new());
        let of_origins: Vec<_> = (self.different.iter())
            .map(|origin| {
                let value = origin.0[which].as_ref()?;
                Some(*known.entry(value).or_insert_with(|| {
                    constants.values.push(value);
                    constants.values.len() as u32 - 1
                }))
            })
            .collect();
        for run in &self.runs {
            let index = of_origins[run.index as usize];
            match constants.runs.last_mut() {
                Some((last, rows)) if *last == index => *rows += run.rows,
                _ => constants.runs.push((index, run.rows)),
            }
        }
        Some(constants)
    }
}
