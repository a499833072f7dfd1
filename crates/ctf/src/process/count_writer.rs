//! Writes the states of counters as events.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

use usertrace_ring::schema::{Counting, Event, EventTable, FieldType, Scalar};
use usertrace_ring::{CountCell, CountGaps, CountKey, RingMemory};

use super::event_channel::{CountChannel, EventRing};
use super::lazy_stream::StreamTarget;
use crate::count::{COUNT_ID, CountState};

/// Writes the state of one table.
pub(super) struct CountWriter<'a> {
    pub(super) channel: &'a CountChannel,
    pub(super) counting: Option<&'a Counting>,
    pub(super) events: &'a EventTable,
    pub(super) target: StreamTarget<'a>,
    pub(super) cpu: u32,
    pub(super) time: u64,
    /// The process describes no further event.
    pub(super) ended: bool,
}

impl CountWriter<'_> {
    /// Writes an event for each counter of a table.
    pub(super) fn write(
        &self,
        ring: &mut EventRing,
        memory: &mut impl RingMemory,
    ) -> io::Result<()> {
        let (cells, gaps) = self.cells(memory);
        for cell in &cells {
            let payload = self.state(cell).payload();
            let stream = ring.stream.get(self.target)?;
            stream.event(COUNT_ID, self.time, &[], &payload)?;
            ring.before.events += 1;
            let (first, _) = ring.span.unwrap_or((self.time, self.time));
            ring.span = Some((first, self.time.max(first)));
        }
        // The table is written several times, and each gap is counted once.
        let counts = &mut ring.before;
        let (lost, damaged) = (gaps.lost, gaps.damaged + gaps.busy);
        let more = lost.saturating_sub(counts.holes) + damaged.saturating_sub(counts.damaged);
        counts.holes = counts.holes.max(lost);
        counts.damaged = counts.damaged.max(damaged);
        if more > 0 {
            ring.stream.get(self.target)?.discard(more);
        }
        Ok(())
    }

    /// The counters of a table: each event and key once, although several libraries in the process
    /// may have placed it differently.
    fn cells(&self, memory: &mut impl RingMemory) -> (Vec<CountCell>, CountGaps) {
        let mut cells: BTreeMap<(Option<u16>, CountKey), CountCell> = BTreeMap::new();
        let mut unknown = 0;
        let Ok(mut gaps) = self.channel.table.read(memory, |cell| {
            if cell.id.is_some_and(|id| self.events.get(id).is_none()) {
                unknown += 1;
                return Ok::<_, std::convert::Infallible>(());
            }
            match cells.entry((cell.id, cell.key.clone())) {
                Entry::Vacant(entry) => {
                    entry.insert(cell);
                }
                Entry::Occupied(mut entry) => {
                    let signed = self.is_signed(cell.id, self.value_name());
                    let sum = entry.get_mut();
                    sum.count = sum.count.saturating_add(cell.count);
                    if let (Some(values), Some(more)) = (&mut sum.values, &cell.values) {
                        values.add(more, signed);
                    }
                }
            }
            Ok(())
        });
        if self.ended {
            // A running process may have described them since.
            gaps.damaged += unknown;
        }
        (cells.into_values().collect(), gaps)
    }

    fn value_name(&self) -> &str {
        let name = self.counting.and_then(|counting| counting.value.as_deref());
        name.unwrap_or_default()
    }

    fn state<'a>(&'a self, cell: &'a CountCell) -> CountState<'a> {
        let event = cell.id.and_then(|id| self.events.get(id));
        let key_name = self.counting.and_then(|counting| counting.key.as_deref());
        let (key_name, value_name) = (key_name.unwrap_or_default(), self.value_name());
        CountState {
            event: event.map_or("", |event| &event.name),
            channel: &self.channel.name,
            cpu: self.cpu,
            key_name,
            key_is_signed: self.is_signed(cell.id, key_name),
            value_name,
            value_is_signed: self.is_signed(cell.id, value_name),
            cell,
        }
    }

    /// Whether a field of the event is a signed integer. Events that found no cell may have
    /// different fields: they count as signed if any event of the process has such a field.
    fn is_signed(&self, id: Option<u16>, field: &str) -> bool {
        match id {
            Some(id) => self
                .events
                .get(id)
                .is_some_and(|event| has_signed(event, field)),
            None => self.events.iter().any(|event| has_signed(event, field)),
        }
    }
}

fn has_signed(event: &Event, name: &str) -> bool {
    let mut fields = event.fields.iter();
    fields.any(|field| {
        field.name == name
            && match &field.kind {
                FieldType::Scalar(Scalar::Integer(kind)) | FieldType::Enum(kind, _) => kind.signed,
                _ => false,
            }
    })
}
