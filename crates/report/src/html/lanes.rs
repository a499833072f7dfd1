//! Lanes: threads, as far as the trace tells them apart, and CPUs.

use std::collections::HashMap;

/// Most lanes of threads. What further ones do is in one lane for each process.
const MAX: usize = 4096;

/// Whose lane it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    /// The thread of this id, of a process.
    Thread(u32, u64),
    /// The thread that events name by this address.
    Handle(u32, u64),
    /// Whatever threads a process has: nothing tells which one it was.
    Process(u32),
    /// Threads of a process beyond the number of lanes that there can be.
    Rest(u32),
    /// A CPU of a machine.
    Cpu(u32, u32),
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) of: Of,
    /// The thread's name, as it was last.
    pub(super) name: Vec<u8>,
    pub(super) events: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) all: Vec<Lane>,
    by_whom: HashMap<Of, u32>,
    threads: usize,
    last: Option<(Of, u32)>,
}

impl Lanes {
    pub(super) fn get(&mut self, of: Of) -> u32 {
        if let Some((last, lane)) = self.last
            && last == of
        {
            return lane;
        }
        let lane = self.find(of);
        self.last = Some((of, lane));
        lane
    }

    fn find(&mut self, mut of: Of) -> u32 {
        if let Some(&lane) = self.by_whom.get(&of) {
            return lane;
        }
        if let Of::Thread(process, _) | Of::Handle(process, _) = of {
            if self.threads == MAX {
                of = Of::Rest(process);
                if let Some(&lane) = self.by_whom.get(&of) {
                    return lane;
                }
            } else {
                self.threads += 1;
            }
        }
        let lane = self.all.len() as u32;
        self.by_whom.insert(of, lane);
        self.all.push(Lane {
            of,
            name: Vec::new(),
            events: 0,
        });
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_limit_share_a_lane() {
        let mut lanes = Lanes::default();
        for tid in 0..2 * MAX as u64 {
            let lane = lanes.get(Of::Thread(1, tid));
            assert_eq!(lane as u64, tid.min(MAX as u64));
        }
        assert_eq!(lanes.get(Of::Thread(1, 7)), 7);
        assert_eq!(lanes.get(Of::Cpu(0, 0)) as usize, MAX + 1);
        assert_eq!(lanes.get(Of::Thread(2, 7)) as usize, MAX + 2);
        assert_eq!(lanes.all[MAX + 2].of, Of::Rest(2));
    }
}
