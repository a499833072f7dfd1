//! The items and counters do not depend on the window size in which the reader copies (F4).

use proptest::prelude::*;
use usertrace_ring::{Counts, Format, Frozen, Geometry, Positions, RingReader, WaitPolicy};
use usertrace_sys::Protocol;

use usertrace_testing::{RingWriter, events, read_each};

const PAGE: u64 = 4096;
const SUBBUF: u64 = 8 * PAGE;
const COUNT: u64 = 2;
/// Contents of a lost page.
const LOST: u64 = 0x4c54_544c_4f53_fffb;

fn format() -> Format {
    Format {
        geometry: Geometry::new(SUBBUF as u32, COUNT as u32).unwrap(),
        protocol: Protocol::Rseq,
    }
}

/// Returns the items, the counters and the reader's position.
fn read(ring: &RingWriter, window: u64, policy: WaitPolicy) -> (Vec<String>, Counts, u64) {
    let mut reader = RingReader::live(format(), 0, u64::MAX);
    reader.set_window(window);
    let positions = Positions {
        head: ring.head,
        claimed: 0,
    };
    let mut memory = Frozen::new(&ring.bytes, positions);
    let mut items = Vec::new();
    read_each(
        &mut reader,
        &mut memory,
        ring.head,
        policy,
        events(),
        |item| {
            items.push(format!("{item:?}"));
        },
    );
    (items, reader.counts(), reader.position())
}

proptest! {
    /// Requirements: F4
    #[test]
    fn items_do_not_depend_on_the_window(
        // Some records are longer than a window, some longer than two.
        records in prop::collection::vec((0usize..3, 0usize..9000, any::<bool>()), 0..60),
        small in 0usize..2000,
        changes in prop::collection::vec(
            (0..SUBBUF * COUNT, prop_oneof![any::<u64>(), 0u64..4, Just(0xffff), Just(LOST), Just(2 | 1 << 62)]),
            0..4,
        ),
        lost_page in prop::option::of(0..COUNT * SUBBUF / PAGE),
        last: bool,
    ) {
        let mut ring = RingWriter::new(SUBBUF, COUNT, 3);
        let short = (0..small).map(|n| (n % 3, n % 90, n % 7 == 0));
        for (time, (kind, len, long)) in (1..).zip(records.into_iter().chain(short)) {
            let (id, payload) = match kind {
                0 => (1, vec![]),
                1 => (2, vec![7; 8]),
                _ => (3, format!("{}\0", "x".repeat(len)).into()),
            };
            if long {
                ring.long(id, time, &payload, 62);
            } else {
                ring.event(id, time, &payload);
            }
        }
        for (at, word) in changes {
            ring.store(at & !7, word);
        }
        if let Some(page) = lost_page {
            for word in 0..PAGE / 8 {
                ring.store(page * PAGE + word * 8, LOST);
            }
        }
        let policy = if last { WaitPolicy::Last } else { WaitPolicy::Wait };
        let whole = read(&ring, u64::MAX, policy);
        for window in [PAGE, 3 * PAGE] {
            prop_assert_eq!(&read(&ring, window, policy), &whole, "{}", window);
        }
    }
}

/// The word that lost pages consist of may stand at the end of a page with records. There, it ends
/// the sub-buffer, too, wherever a window begins. (The property above found this.)
#[test]
fn the_word_of_lost_pages_ends_a_page_with_records() {
    // Up to three words. A window may begin at each.
    for (at, shift) in (1..6).flat_map(|page| [8, 16, 24].map(|n| (page * PAGE - n, n / 8 % 2))) {
        for count in [300, 700, 1200] {
            let mut ring = RingWriter::new(SUBBUF, COUNT, 3);
            for _ in 0..shift {
                assert!(ring.event(1, 1, &[]));
            }
            for time in 2..=count {
                assert!(ring.event(2, time, &[7; 8]));
            }
            (at..at.next_multiple_of(PAGE))
                .step_by(8)
                .for_each(|at| ring.store(at, LOST));
            let whole = read(&ring, u64::MAX, WaitPolicy::Wait);
            for window in [PAGE, 3 * PAGE] {
                let windowed = read(&ring, window, WaitPolicy::Wait);
                assert_eq!(windowed, whole, "{at} {count} {window}");
            }
        }
    }
}
