//! A parser of rings that shares no code with the library's: it follows the header file alone.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use usertrace_sys::uapi::{
    LTT_FILE_DEAD, LTT_ID_LOST, LTT_ID_MAX, LTT_ID_MIN, LTT_ID_PAD, LTT_ID_TIME, LTT_LOST_WORD,
    LTT_SUBBUF_MAGIC, LttInfoChannel, LttRingPositions, LttSubbuf,
};
use zerocopy::FromBytes;

use crate::consumer::{Consumer, View};
use crate::control::Trace;
use crate::event::{self, RECORD_LEN, by_thread};
use usertrace_testing::wait;

const PAGE: usize = 4096;

/// The events [`event::numbered`] of a ring. There may be no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingEvents {
    /// Thread and number of each event, in the ring's order.
    pub events: Vec<(u32, u64)>,
    /// Events that were dropped.
    pub lost: u64,
    /// Sub-buffers in which a page had no memory.
    pub missing: u64,
}

/// Reads the unconsumed part of all rings of a consumer file of the main channel. Nothing of it may
/// have been overwritten.
///
/// # Panics
/// If a ring has anything that should not be there.
#[must_use]
pub fn rings(consumer: &Consumer) -> Vec<RingEvents> {
    let channel = consumer.info().channel;
    let view = consumer.map();
    consumer
        .positions()
        .iter()
        .enumerate()
        .map(|(ring, at)| {
            let mut events = RingEvents {
                lost: at.lost,
                ..RingEvents::default()
            };
            read(&view, &channel, ring, at, &mut events);
            events
        })
        .collect()
}

/// Whether a page that had no memory begins within these bytes. `from` is their offset in the ring.
fn is_missing(bytes: &[u8], from: usize) -> bool {
    (from.next_multiple_of(PAGE)..from + bytes.len())
        .step_by(PAGE)
        .chain([from])
        .any(|at| bytes[at - from..].starts_with(&LTT_LOST_WORD.to_ne_bytes()))
}

fn read(
    view: &View,
    channel: &LttInfoChannel,
    ring: usize,
    at: &LttRingPositions,
    found: &mut RingEvents,
) {
    let subbuf_size = channel.subbuf_size as usize;
    let ring_size = subbuf_size * channel.subbuf_count as usize;
    let (head, consumed) = (at.head as usize, at.consumed as usize);
    assert!(head - consumed <= ring_size, "nothing was overwritten");
    let mut last_time = 0;
    for start in (consumed / subbuf_size * subbuf_size..head).step_by(subbuf_size) {
        let bytes = view.copy(
            ring * ring_size + start % ring_size,
            subbuf_size.min(head - start),
        );
        if is_missing(&bytes[..size_of::<LttSubbuf>()], start) {
            found.missing += 1;
            continue;
        }
        let (header, mut rest) = LttSubbuf::read_from_prefix(&bytes).expect("a header");
        assert_eq!(header.position, start as u64);
        assert_eq!(header.magic, LTT_SUBBUF_MAGIC);
        assert_eq!(header.cpu as usize, ring);
        assert!(header.time >= last_time);
        last_time = header.time;
        while !rest.is_empty() {
            let word = u64::from_ne_bytes(rest[..8].try_into().expect("a word"));
            let position = start + bytes.len() - rest.len();
            let len = match word as u16 {
                LTT_ID_PAD => break,
                LTT_ID_TIME => 16,
                LTT_ID_MIN..=LTT_ID_MAX => RECORD_LEN,
                LTT_ID_LOST => 8,
                id => panic!("id {id:#x} in ring {ring}, sub-buffer {start:#x}, head {head:#x}"),
            };
            if is_missing(&rest[..len], position) {
                found.missing += 1;
                break;
            }
            // The low 48 bits suffice: no test runs for days.
            let time = word >> 16;
            assert!(time >= last_time & (u64::MAX >> 16), "time goes on");
            last_time = last_time & !(u64::MAX >> 16) | time;
            if len == RECORD_LEN && position >= consumed {
                found.events.push(event::read(&rest[8..]));
            }
            rest = &rest[len..];
        }
    }
}

/// The consumer file of the only process of a trace, after its death.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn of_the_dead(trace: &Trace) -> Consumer {
    let file = wait::until_some("there is a file", || trace.consumer_files("main").pop());
    let consumer = Consumer::open(&file);
    wait::until("it is dead", || consumer.info().flags & LTT_FILE_DEAD != 0);
    consumer
}

/// The numbers of each thread in a consumer file, of all CPUs, sorted.
///
/// # Panics
/// If an event was lost, or a ring is not in order.
#[must_use]
pub fn threads(consumer: &Consumer) -> BTreeMap<u32, Vec<u64>> {
    let rings = rings(consumer);
    assert!(rings.iter().all(|ring| ring.lost == 0), "none was lost");
    for ring in &rings {
        let threads: BTreeMap<_, Vec<_>> =
            ring.events
                .iter()
                .fold(BTreeMap::new(), |mut threads, &(thread, number)| {
                    threads.entry(thread).or_insert_with(Vec::new).push(number);
                    threads
                });
        assert!(
            threads.values().all(|numbers| numbers.is_sorted()),
            "each ring is in order"
        );
    }
    by_thread(rings.into_iter().flat_map(|ring| ring.events))
}

/// Calls [`threads`] for the files of all processes of a trace. The keys are the files' names.
///
/// # Panics
/// If the processes do not end.
#[must_use]
pub fn processes(trace: &Trace) -> BTreeMap<String, BTreeMap<u32, Vec<u64>>> {
    wait::until("all are dead", || {
        let processes = trace.stats().processes;
        processes.iter().all(|process| process.state != "alive")
    });
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    trace
        .consumer_files("main")
        .iter()
        .filter_map(|path| match Consumer::try_open(path) {
            Ok(consumer) => Some((name(path).expect("a name"), threads(&consumer))),
            // The process had recorded nothing: the kernel created a file, and removed it as there
            // was nothing to read.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{}: {error}", path.display()),
        })
        .collect()
}

/// The numbers of thread 0 of a trace's only process. Empty if it had not begun.
///
/// # Panics
/// If there are several processes.
#[must_use]
pub fn numbers(trace: &Trace) -> Vec<u64> {
    let processes = processes(trace);
    assert!(processes.len() <= 1, "{:?}", processes.keys());
    let threads = processes.into_values().next();
    threads
        .and_then(|mut threads| threads.remove(&0))
        .unwrap_or_default()
}
