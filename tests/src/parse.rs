//! A parser of rings that shares nothing with the library's: the header file says what it has to look for.

use usertrace_sys::uapi::{
    LTT_ID_MAX, LTT_ID_MIN, LTT_ID_PAD, LTT_ID_TIME, LTT_SUBBUF_MAGIC, LttInfoChannel, LttSubbuf,
};
use zerocopy::FromBytes;

use crate::consumer::{Consumer, View};
use crate::event::{self, RECORD_LEN};

/// What a ring has of [`event::numbered`], and nothing but that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingEvents {
    /// Thread and number of each event, in the ring's order.
    pub events: Vec<(u32, u64)>,
    /// Events that were dropped.
    pub lost: u64,
}

/// Reads all rings of a consumer file of the main channel, of which nothing was consumed and nothing overwritten.
///
/// # Panics
/// If there is anything in them that should not be there.
#[must_use]
pub fn rings(consumer: &Consumer) -> Vec<RingEvents> {
    let channel = consumer.info().channel;
    let view = consumer.map();
    consumer
        .positions()
        .iter()
        .enumerate()
        .map(|(ring, at)| RingEvents {
            events: events(&view, &channel, ring, at.head as usize),
            lost: at.lost,
        })
        .collect()
}

fn events(view: &View, channel: &LttInfoChannel, ring: usize, head: usize) -> Vec<(u32, u64)> {
    let subbuf_size = channel.subbuf_size as usize;
    let ring_size = subbuf_size * channel.subbuf_count as usize;
    assert!(head <= ring_size, "nothing was overwritten");
    let mut events = Vec::new();
    let mut last_time = 0;
    for start in (0..head).step_by(subbuf_size) {
        let bytes = view.copy(ring * ring_size + start, subbuf_size.min(head - start));
        let (header, mut rest) = LttSubbuf::read_from_prefix(&bytes).expect("a header");
        assert_eq!(header.position, start as u64);
        assert_eq!(header.magic, LTT_SUBBUF_MAGIC);
        assert_eq!(header.cpu as usize, ring);
        assert!(header.time >= last_time);
        last_time = header.time;
        while !rest.is_empty() {
            let word = u64::from_ne_bytes(rest[..8].try_into().expect("a word"));
            let len = match word as u16 {
                LTT_ID_PAD => break,
                LTT_ID_TIME => 16,
                LTT_ID_MIN..=LTT_ID_MAX => {
                    events.push(event::read(&rest[8..]));
                    RECORD_LEN
                }
                id => panic!("id {id:#x} in ring {ring}, sub-buffer {start:#x}, head {head:#x}"),
            };
            // The low 48 bits suffice: no test runs for days.
            let time = word >> 16;
            assert!(time >= last_time & (u64::MAX >> 16), "time goes on");
            last_time = last_time & !(u64::MAX >> 16) | time;
            rest = &rest[len..];
        }
    }
    events
}
