//! Whether the events of the malloc family add up.

use std::collections::{HashMap, HashSet};

use usertrace_testing::babeltrace::Printed;

/// What the events of one process say of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Blocks that were given.
    pub given: u64,
    /// Blocks that were taken back.
    pub taken: u64,
    /// Blocks that were taken back and that no event had ever given: they are from before the
    /// trace.
    pub from_before: u64,
}

impl Balance {
    /// Adds up the events of one process, none of which is missing, in their order. Other events
    /// are passed over.
    ///
    /// A `realloc` tells only when it is done where its block went: by then the old place may be
    /// somebody else's. So a block that is given twice waits for the `realloc` that explains it.
    ///
    /// # Panics
    /// If a block is given twice, or taken back twice.
    #[must_use]
    pub fn of(events: &[Printed]) -> Self {
        let (mut balance, mut live, mut known) = (Self::default(), HashSet::new(), HashSet::new());
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
                        // It failed: the block stays.
                        before = 0;
                    }
                }
                _ => after = event.address("ptr"),
            }
            if before != 0 {
                balance.taken += 1;
                match unexplained.get_mut(&before) {
                    // It is another's now.
                    Some(count) if name == "realloc" && *count > 0 && before != after => {
                        *count -= 1
                    }
                    _ if live.remove(&before) => {}
                    _ => {
                        assert!(!known.contains(&before), "taken back twice: {event:?}");
                        balance.from_before += 1;
                    }
                }
            }
            if after != 0 {
                balance.given += 1;
                known.insert(after);
                if !live.insert(after) {
                    *unexplained.entry(after).or_default() += 1;
                }
            }
        }
        unexplained.retain(|_, count| *count != 0);
        assert!(unexplained.is_empty(), "given twice: {unexplained:x?}");
        balance
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
    fn what_was_given_is_taken_back() {
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
        let balance = Balance {
            given: 3,
            taken: 3,
            from_before: 1,
        };
        assert_eq!(Balance::of(&events), balance);
    }

    #[test]
    fn a_move_may_be_told_late() {
        let balance = Balance::of(&events(&[
            ("libc:malloc", 0, 1),
            ("libc:malloc", 0, 1),
            ("libc:free", 1, 0),
            ("libc:malloc", 0, 1),
            ("libc:realloc", 1, 2),
            ("libc:free", 1, 0),
            ("libc:free", 2, 0),
        ]));
        assert_eq!((balance.given, balance.taken), (4, 4));
    }

    #[test]
    #[should_panic = "given twice"]
    fn a_block_is_given_once() {
        let _ = Balance::of(&events(&[
            ("libc:malloc", 0, 1),
            ("libc:memalign", 0, 1),
            ("libc:free", 1, 0),
        ]));
    }

    #[test]
    #[should_panic = "taken back twice"]
    fn a_block_is_taken_back_once() {
        let _ = Balance::of(&events(&[
            ("libc:malloc", 0, 1),
            ("libc:free", 1, 0),
            ("libc:free", 1, 0),
        ]));
    }
}
