//! Rings whose payloads begin with contexts (F7): the event path never writes to them.

use usertrace_sys::{Protocol, Scope};

use super::*;
use crate::writer::{Refusal, try_write_made, try_write_words, write_in_contexts, write_slowly};

static ID: AtomicU16 = AtomicU16::new(1);

/// Results of writing a record without contexts on each path; the slow ones begin a sub-buffer.
fn without(rings: &Rings) -> [bool; 4] {
    let (channel, id) = (&rings.channel, &ID);
    let fill = |cursor: &mut Cursor<'_>| cursor.append(&[0; 8]);
    let made = Payload::Made {
        len: 8,
        fill: &fill,
    };
    // SAFETY: `Rings` opened the channel as required; no reader parses the payload by a
    // description.
    unsafe {
        [
            write_slowly(
                rseq_of(rings),
                channel,
                id,
                Payload::Words(&[7]),
                Refusal::Again,
            )
            .is_ok(),
            write_slowly(rseq_of(rings), channel, id, made, Refusal::Again).is_ok(),
            try_write_words(rseq_of(rings), channel, id, &[7]).is_ok(),
            try_write_made(rseq_of(rings), channel, id, 8, &fill).is_ok(),
        ]
    }
}

fn rseq_of(rings: &Rings) -> Option<Rseq> {
    rseq().filter(|_| rings.geometry.protocol == Protocol::Rseq)
}

/// Requirements: F7
#[test]
fn records_without_contexts_are_rejected() {
    let kinds = [
        (Scope::Cpu, Protocol::Rseq),
        (Scope::MmCid, Protocol::Rseq),
        (Scope::Cpu, Protocol::Shared),
        (Scope::Thread, Protocol::Shared),
        (Scope::Global, Protocol::Shared),
    ];
    for (scope, protocol) in kinds {
        let of = |contexts| {
            Rings::with(4096, 4, |geometry| Geometry {
                scope,
                protocol,
                contexts,
                ..geometry
            })
        };
        let plain = of(false);
        assert!(plain.channel.in_contexts().is_none());
        assert_eq!(without(&plain), [true; 4], "{scope:?} {protocol:?}");
        let rings = of(true);
        assert_eq!(without(&rings), [false; 4], "{scope:?} {protocol:?}");
        assert_eq!((rings.written(), rings.lost()), (None, 0));
        let inside = rings.channel.in_contexts().unwrap();
        let payload = Payload::Words(&[7, 8]);
        // SAFETY: as in `without`.
        let done = unsafe { write_in_contexts(rseq_of(&rings), &inside, &ID, payload) };
        assert_eq!(done, Ok(()), "{scope:?} {protocol:?}");
        assert!(rings.written().is_some());
        rings.channel.close();
        assert!(rings.channel.in_contexts().is_none());
    }
}
