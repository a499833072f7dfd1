//! Lanes: threads, as far as the trace distinguishes them, and CPUs.

use std::collections::HashMap;

/// Maximum number of thread lanes. Further threads share one lane for each process.
const MAX: usize = 4096;

/// What a lane belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneOwner {
    /// A thread of a process, by its id.
    Thread(u32, u64),
    /// A thread of a process, by the handle in its events.
    Handle(u32, u64),
    /// A process whose threads the trace does not distinguish.
    Process(u32),
    /// The threads of a process beyond the maximum.
    Rest(u32),
    /// A CPU of a host.
    Cpu(u32, u32),
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) owner: LaneOwner,
    /// The most recent name of the thread.
    pub(crate) name: Vec<u8>,
    pub(crate) events: u64,
}

impl Lane {
    /// The name and the number of its thread.
    pub(crate) fn text(&self) -> String {
        let id = match self.owner {
            LaneOwner::Thread(_, tid) => tid.to_string(),
            LaneOwner::Handle(_, thread) => format!("0x{thread:X}"),
            LaneOwner::Process(_) => return "all threads".to_owned(),
            LaneOwner::Rest(_) => return "further threads".to_owned(),
            LaneOwner::Cpu(_, cpu) => return format!("CPU {cpu}"),
        };
        match &self.name[..] {
            [] => format!("thread {id}"),
            name => format!("{} {id}", String::from_utf8_lossy(name)),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) all: Vec<Lane>,
    by_owner: HashMap<LaneOwner, u32>,
    threads: usize,
    last: Option<(LaneOwner, u32)>,
}

impl Lanes {
    pub(crate) fn get(&mut self, owner: LaneOwner) -> u32 {
        if let Some((last, lane)) = self.last
            && last == owner
        {
            return lane;
        }
        let lane = self.find(owner);
        self.last = Some((owner, lane));
        lane
    }

    /// Counts an event of a lane, and updates the name of its thread.
    pub(crate) fn count(&mut self, lane: u32, name: Option<&[u8]>) {
        let lane = &mut self.all[lane as usize];
        lane.events += 1;
        if let Some(name) = name
            && name != lane.name
        {
            name.clone_into(&mut lane.name);
        }
    }

    fn find(&mut self, mut owner: LaneOwner) -> u32 {
        if let Some(&lane) = self.by_owner.get(&owner) {
            return lane;
        }
        if let LaneOwner::Thread(process, _) | LaneOwner::Handle(process, _) = owner {
            if self.threads == MAX {
                owner = LaneOwner::Rest(process);
                if let Some(&lane) = self.by_owner.get(&owner) {
                    return lane;
                }
            } else {
                self.threads += 1;
            }
        }
        let lane = self.all.len() as u32;
        self.by_owner.insert(owner, lane);
        self.all.push(Lane {
            owner,
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
            let lane = lanes.get(LaneOwner::Thread(1, tid));
            assert_eq!(lane as u64, tid.min(MAX as u64));
        }
        assert_eq!(lanes.get(LaneOwner::Thread(1, 7)), 7);
        assert_eq!(lanes.get(LaneOwner::Cpu(0, 0)) as usize, MAX + 1);
        assert_eq!(lanes.get(LaneOwner::Thread(2, 7)) as usize, MAX + 2);
        assert_eq!(lanes.all[MAX + 2].owner, LaneOwner::Rest(2));
    }
}
