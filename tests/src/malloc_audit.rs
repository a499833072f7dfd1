//! Checks that the events of the malloc family add up.

use std::collections::{HashMap, HashSet};

use usertrace_testing::babeltrace::Printed;

/// The allocations of one process, by its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MallocAudit {
    /// Blocks that were allocated.
    pub allocated: u64,
    /// Blocks that were freed.
    pub freed: u64,
    /// Freed blocks whose allocation is not in the trace, because it came before the trace.
    pub from_before: u64,
}

impl MallocAudit {
    /// Adds up the events of one process, in their order. None may be missing. Events of other
    /// providers do not count.
    ///
    /// The event of a `realloc` that moves a block comes late: another thread may have got the old
    /// address before. So an address that is allocated twice needs a later `realloc` from it.
    ///
    /// # Panics
    /// If a block is allocated twice, or freed twice.
    #[must_use]
    pub fn of(events: &[Printed]) -> Self {
        let (mut audit, mut live, mut known) = (Self::default(), HashSet::new(), HashSet::new());
        let mut unexplained: HashMap<u64, i64> = HashMap::new();
        for event in events {
            let Some(name) = event.name.strip_prefix("libc:") else {
                continue;
            };
            let [mut before, mut after] = [0, 0];
            match name {
                "free" => before = event.address("ptr"),
                "realloc" => {
                    (before, after) = (event.address("in_ptr"), event.address("ptr"));
                    if after == 0 && event.field("size") != 0 {
                        // It failed, and the block stays.
                        before = 0;
                    }
                }
                _ => after = event.address("ptr"),
            }
            if before != 0 {
                audit.freed += 1;
                match unexplained.get_mut(&before) {
                    // Another thread has this address now.
                    Some(count) if name == "realloc" && *count > 0 && before != after => {
                        *count -= 1
                    }
                    _ if live.remove(&before) => {}
                    _ => {
                        assert!(!known.contains(&before), "freed twice: {event:?}");
                        audit.from_before += 1;
                    }
                }
            }
            if after != 0 {
                audit.allocated += 1;
                known.insert(after);
                if !live.insert(after) {
                    *unexplained.entry(after).or_default() += 1;
                }
            }
        }
        unexplained.retain(|_, count| *count != 0);
        assert!(unexplained.is_empty(), "allocated twice: {unexplained:x?}");
        audit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(list: &[(&str, u64, u64)]) -> Vec<Printed> {
        let list = list.iter().map(|(name, before, after)| Printed {
            time: 0,
            name: (*name).to_owned(),
            fields: match *name {
                "libc:free" => format!("{{ }}, {{ ptr = 0x{before:X} }}"),
                "libc:realloc" => {
                    format!("{{ }}, {{ in_ptr = 0x{before:X}, size = 8, ptr = 0x{after:X} }}")
                }
                _ => format!("{{ }}, {{ size = 8, ptr = 0x{after:X} }}"),
            },
        });
        list.collect()
    }

    #[test]
    fn freed_blocks_were_allocated() {
        let events = events(&[
            ("libc:free", 7, 0),
            ("libc:malloc", 0, 1),
            ("libc:realloc", 1, 2),
            ("pthread:create", 0, 2),
            ("libc:free", 2, 0),
            ("libc:free", 0, 0),
            ("libc:calloc", 0, 1),
            ("libc:realloc", 1, 0),
        ]);
        let audit = MallocAudit {
            allocated: 3,
            freed: 3,
            from_before: 1,
        };
        assert_eq!(MallocAudit::of(&events), audit);
    }

    #[test]
    fn realloc_may_report_a_move_late() {
        let audit = MallocAudit::of(&events(&[
            ("libc:malloc", 0, 1),
            ("libc:malloc", 0, 1),
            ("libc:free", 1, 0),
            ("libc:malloc", 0, 1),
            ("libc:realloc", 1, 2),
            ("libc:free", 1, 0),
            ("libc:free", 2, 0),
        ]));
        assert_eq!((audit.allocated, audit.freed), (4, 4));
    }

    #[test]
    #[should_panic = "allocated twice"]
    fn block_is_allocated_once() {
        let _ = MallocAudit::of(&events(&[
            ("libc:malloc", 0, 1),
            ("libc:memalign", 0, 1),
            ("libc:free", 1, 0),
        ]));
    }

    #[test]
    #[should_panic = "freed twice"]
    fn block_is_freed_once() {
        let _ = MallocAudit::of(&events(&[
            ("libc:malloc", 0, 1),
            ("libc:free", 1, 0),
            ("libc:free", 1, 0),
        ]));
    }
}
