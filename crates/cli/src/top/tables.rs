//! Counts the events of a channel that counts, from its tables.

use std::collections::BTreeMap;

use usertrace_consumer::{ConsumerFile, ConsumerSource};
use usertrace_ring::CountTable;

/// Number of events by id; `None` has those that found no room in a table.
type Counts = BTreeMap<Option<u16>, u64>;

/// Reads the tables of a channel, one for each CPU.
#[derive(Debug)]
pub(super) struct Tables {
    table: CountTable,
    /// What was counted before anybody looked.
    before: Counts,
}

impl Tables {
    /// The tables of a channel; `None` if it has rings. `from_now`: what they have already does not
    /// count.
    pub(super) fn new<F: ConsumerFile>(source: &ConsumerSource<F>, from_now: bool) -> Option<Self> {
        let mut tables = Self {
            table: source.channel.table()?,
            before: Counts::new(),
        };
        if from_now {
            tables.before = tables.read(source);
        }
        Some(tables)
    }

    /// What was counted since.
    pub(super) fn counts<F: ConsumerFile>(&self, source: &ConsumerSource<F>) -> Counts {
        let mut counts = self.read(source);
        for (id, count) in &mut counts {
            let before = self.before.get(id).copied().unwrap_or_default();
            *count = count.saturating_sub(before);
        }
        counts.retain(|_, count| *count > 0);
        counts
    }

    fn read<F: ConsumerFile>(&self, source: &ConsumerSource<F>) -> Counts {
        let mut counts = Counts::new();
        for cpu in 0..source.positions.len() {
            // Who records or shows the counters themselves reports cells that cannot be read.
            let Ok(_) = self.table.read(&mut source.ring(cpu), |cell| {
                let count = counts.entry(cell.id).or_default();
                *count = count.saturating_add(cell.count);
                Ok::<_, std::convert::Infallible>(())
            });
        }
        counts
    }
}
