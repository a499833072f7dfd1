//! The recorder that the tests kill, and the processes that it records.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use usertrace_consumer::{Session, SessionError};
use usertrace_ctf::ProcessSummary;
use usertrace_ctf::recording::RecordingNote;

use crate::kernel::{COUNT, Channel, File, Process, START, SUBBUF, Words, names};
use usertrace_testing::RingWriter;

/// Environment variable with the recorder's directory; it makes this process a recorder.
pub(crate) const DIRECTORY: &str = "USERTRACE_TEST_RESTART";

/// Number of stages: in each, the processes write, and the recorder reads.
const STAGES: u64 = 6;

/// Index of the word that counts stages.
const STAGE: usize = 0;
/// Index of the word that counts finished chunks.
const ROTATED: usize = 120;

/// Environment variable that turns chunks on.
pub(crate) const ROTATES: &str = "USERTRACE_TEST_ROTATES";

/// The recorder ends a chunk before each of these stages.
const ROTATIONS: [u64; 3] = [1, 3, 4];

fn ring(cpu: u32) -> RingWriter {
    RingWriter::new(SUBBUF, COUNT, cpu)
}

/// The state of two processes before each stage. Earlier events were consumed by then.
fn stages() -> Vec<Vec<Process>> {
    let channel = |name, scope, cpus: std::ops::Range<u32>| Channel {
        name,
        scope,
        rings: cpus.map(ring).collect(),
    };
    let process = |pid| Process {
        pid,
        channels: vec![
            channel("control", 0, 0..1),
            channel("main", 0, 0..2),
            channel("over", 2, 0..1),
            channel("threads", 1, 70..71),
        ],
        dead: false,
    };
    let mut processes = vec![process(1), process(2)];
    let mut n = 0;
    let mut stages = Vec::new();
    for stage in 0..STAGES {
        for process in &mut processes {
            if process.pid == 2 && stage > 2 {
                continue;
            }
            write(process, stage, &mut n);
            // One process ends in the middle, the other at the end.
            process.dead = process.pid == 2 && stage == 2 || stage == STAGES - 1;
        }
        stages.push(processes.clone());
        for ring in processes
            .iter_mut()
            .flat_map(|process| &mut process.channels[1..])
            .flat_map(|channel| &mut channel.rings)
        {
            ring.consumed = ring.head;
        }
    }
    stages
}

/// Writes the events of a process before a stage, each number once.
fn write(process: &mut Process, stage: u64, n: &mut u64) {
    let mut event_with = |ring: &mut RingWriter, id, has_contexts: bool| {
        *n += 1;
        // The context is padded to 8 bytes.
        let contexts = u64::from(*n as u32).to_le_bytes();
        let contexts = if has_contexts { &contexts[..] } else { &[] };
        let payload = [contexts, &n.to_le_bytes()].concat();
        ring.event(id, START + 10 * *n, &payload);
    };
    let id = stage as u16 / 2 + 1;
    if stage == 0 {
        process.channels[0].rings[0].meta(START, "@3 u32 vtid");
        process.channels[0].rings[0].meta(START, "$ prog%20-x");
        process.channels[0].rings[0].meta(START, "+400000 1000 0 ab - - %2Fprog");
    }
    if stage == 3 {
        let line = "+7f0000000000 2000 1 - - - %2Flib.so";
        process.channels[0].rings[0].meta(START + 20_000, line);
    }
    if stage.is_multiple_of(2) {
        process.channels[0].rings[0].meta(START, &format!("{id} t:e{id} 6 u64 n"));
    }
    let [_, main, over, threads] = &mut process.channels[..] else {
        unreachable!();
    };
    // Few events at a time, so that stages begin in the middle of sub-buffers.
    for ring in &mut main.rings {
        for _ in 0..150 + 20 * stage {
            event_with(ring, id, false);
        }
    }
    // The second ring becomes full.
    if stage == 1 {
        for _ in 0..1200 {
            event_with(&mut main.rings[1], id, false);
        }
    }
    // Invalid bytes up to the end of the sub-buffer.
    if stage == 3 {
        main.rings[0].head += 64;
        let start = main.rings[0].head - 64;
        (0..8).for_each(|word| main.rings[0].store(start + word * 8, 0x77));
    }
    for thread in 0..2 {
        let ring = &mut threads.rings[0];
        ring.cpu = 70 + (stage as u32 + thread) % 3;
        ring.store(ring.head, 0xffff | ring.time << 16);
        ring.head = ring.head.next_multiple_of(SUBBUF);
        for _ in 0..40 {
            event_with(ring, id, true);
        }
    }
    // This ring is full at the end: only its count reports the last losses.
    if process.pid == 2 && stage == 2 || stage == STAGES - 1 {
        for _ in 0..1200 {
            event_with(&mut threads.rings[0], id, true);
        }
    }
    // More events than the ring has room for.
    over.rings[0].overwrites = true;
    for _ in 0..[30, 400, 1500, 20, 700, 5000][stage as usize] {
        event_with(&mut over.rings[0], id, false);
    }
}

/// Repeats `body` until the disk has room.
fn until_there_is_room<T>(mut body: impl FnMut() -> Result<T, SessionError>) -> T {
    loop {
        match body() {
            Err(SessionError::Write(error)) if error.raw_os_error() == Some(libc::ENOSPC) => {}
            done => return done.unwrap(),
        }
    }
}

/// Records, from where the previous recorder was killed.
pub(crate) fn run(directory: &Path) {
    let words = Rc::new(Words::open(&directory.join("words")));
    let recorded = RecordingNote {
        name: "tr".into(),
        generation: 7,
        boot: "this".into(),
        created: false,
    };
    let output = directory.join("out");
    let rotates = std::env::var_os(ROTATES).is_some();
    let mut session = until_there_is_room(|| {
        Ok(match rotates {
            true => Session::open_in_chunks(&output, &recorded, None)?,
            false => Session::open(&output, &recorded, None)?,
        })
    });
    let mut processes: Vec<Rc<RefCell<Process>>> = Vec::new();
    for stage in stages().into_iter().skip(words.get(STAGE) as usize) {
        if processes.is_empty() {
            let mut channels = names(&stage[0]).skip(1);
            session.set_channels(channels.by_ref().map(|(_, name)| name.to_owned()).collect());
            drop(channels);
            for process in stage {
                let is_gone = File::is_gone(&process, &words);
                let names: Vec<_> = names(&process).collect();
                let name = format!("{}.3", process.pid);
                let process = Rc::new(RefCell::new(process));
                processes.push(process.clone());
                if is_gone {
                    continue;
                }
                for (channel, of) in names {
                    until_there_is_room(|| {
                        let (process, words) = (process.clone(), words.clone());
                        let file = File {
                            process,
                            channel,
                            words,
                            asked: Cell::new(false),
                        };
                        session.add(of, &name, file)
                    });
                }
            }
        } else {
            for (process, now) in processes.iter().zip(stage) {
                process.replace(now);
            }
        }
        // A killed recorder may have ended a chunk without counting it; the next chunk is empty
        // then.
        let due = ROTATIONS.iter().filter(|&&at| at <= words.get(STAGE));
        let due = due.count() as u64;
        while rotates && words.get(ROTATED) < due {
            until_there_is_room(|| session.rotate());
            words.set(ROTATED, words.get(ROTATED) + 1);
        }
        until_there_is_room(|| session.drain(false, Instant::now()));
        words.set(STAGE, words.get(STAGE) + 1);
    }
    assert!(!session.is_live());
    let summary = until_there_is_room(|| session.finish());
    assert_eq!(summary.problems, [""; 0]);
    let mut counted: Vec<_> = summary.processes.iter().map(counts).collect();
    counted.sort();
    let path = directory.join("counts");
    until_there_is_room(|| Ok(std::fs::write(&path, counted.concat())?));
}

/// The counts of a process, as text.
fn counts(process: &ProcessSummary) -> String {
    let mut counted = serde_json::to_value(process).unwrap();
    // Metadata may be written more often, and the size of what came before the full disk is
    // unknown.
    for differs in ["directory", "bytes"] {
        counted.as_object_mut().unwrap().remove(differs);
    }
    format!("{counted}\n")
}
