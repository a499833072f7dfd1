//! The library that the fuzz targets share.
//!
//! A target panics to report an error, and libFuzzer keeps the input. libFuzzer also limits the
//! time and memory of each input.

use std::collections::BTreeMap;

use tempfile::TempDir;
use usertrace_crash::{PhysicalMemory, Presence};

use usertrace_testing::dump::{Machine, PAGE, Process, SYNC, Trace, machine};

/// The separator of a trace's files in an input.
pub const BETWEEN: &[u8] = b"\n--------\n";

/// The pages of a memory, by address.
pub struct Memory(pub BTreeMap<u64, Vec<u8>>);

impl PhysicalMemory for Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence {
        let mut presence = Presence::Whole;
        let mut done = 0;
        while done < buffer.len() {
            let at = address.wrapping_add(done as u64);
            let (start, within) = (at - at % PAGE, (at % PAGE) as usize);
            let len = (buffer.len() - done).min(PAGE as usize - within);
            let to = &mut buffer[done..done + len];
            if let Some(page) = self.0.get(&start) {
                to.copy_from_slice(&page[within..within + len]);
            } else {
                to.fill(0);
                presence = Presence::Missing;
            }
            done += len;
        }
        presence
    }
}

/// A directory in memory, for one input.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in memory")
}

/// A process with `events` events in the rings of two CPUs, in one of which a writer died.
fn process(number: u64, events: u64) -> Process {
    let at = |n: u64| SYNC[0] + 20 * n;
    let mut process = Process::new(number, 100 + number as u32, &format!("prog{number}"), 2);
    process.control[0].meta(at(0), "1 t:number 6 u64 n");
    process.control[1].meta(at(1), "2 t:text 6 str s;u64 n");
    process.control[0].meta(at(2), "@1 u32 vtid");
    for n in 0..events {
        let ring = &mut process.main[(n % 2) as usize];
        let vtid = (number as u32).to_le_bytes();
        if n % 5 == 0 {
            ring.event(
                2,
                at(n),
                &[&vtid, &b"hello\0"[..], &n.to_le_bytes()].concat(),
            );
        } else {
            ring.event(1, at(n), &[&vtid[..], &n.to_le_bytes()].concat());
        }
    }
    process.main[0].long(1, at(events), &[0; 12], 63);
    process.main[1].lost = 3;
    process
}

/// The trace with this generation and so many processes.
fn trace(generation: u64, processes: u64) -> Trace {
    Trace {
        generation,
        name: format!("trace{generation}"),
        processes: (0..processes)
            .map(|n| process(2 * generation + n, 150 + 60 * n))
            .collect(),
    }
}

/// A machine with so many traces. The first one is always the same.
pub fn traced(traces: u64) -> Machine {
    let traces: Vec<_> = (1..=traces).map(|n| trace(n, 3 - n.min(2))).collect();
    machine(&traces)
}
