//! Our events: the writer of the kernel case, instruction by instruction, on something that stands
//! for the kernel.

use std::hint::black_box;

use usertrace::__private::init_with;
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace::{Status, event};
use usertrace_sys::Scope;
use usertrace_sys::filter::{Filter, add_rule, written};
use usertrace_sys::uapi::{LTT_COUNT_CELL_PLAIN, LTT_COUNT_CELL_VALUE};

pub(crate) mod points {
    usertrace::tracepoint! {
        pub(crate) mod empty { provider: "bench", name: "empty", loglevel: Info, fields: {} }
    }
    usertrace::tracepoint! {
        pub(crate) mod number { provider: "bench", name: "number", loglevel: Info, fields: { n: u32 } }
    }
    usertrace::tracepoint! {
        pub(crate) mod numbers {
            provider: "bench",
            name: "numbers",
            loglevel: Info,
            fields: { a: u64, b: u64, c: u64, d: u64 },
        }
    }
    usertrace::tracepoint! {
        pub(crate) mod rejected {
            provider: "bench",
            name: "rejected",
            loglevel: Info,
            fields: { a: u64, b: u64, c: u64, d: u64 },
        }
    }
    usertrace::tracepoint! {
        pub(crate) mod block {
            provider: "bench",
            name: "block",
            loglevel: Info,
            fields: {
                a0: u64, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64, a6: u64, a7: u64,
                b0: u64, b1: u64, b2: u64, b3: u64, b4: u64, b5: u64, b6: u64, b7: u64,
                c0: u64, c1: u64, c2: u64, c3: u64, c4: u64, c5: u64, c6: u64, c7: u64,
                d0: u64, d1: u64, d2: u64, d3: u64, d4: u64, d5: u64, d6: u64, d7: u64,
            },
        }
    }
    usertrace::tracepoint! {
        pub(crate) mod text { provider: "bench", name: "text", loglevel: Info, fields: { n: u32, text: str } }
    }
    usertrace::tracepoint! {
        pub(crate) mod layer { provider: "bench", name: "layer", loglevel: Info, fields: { n: u64, text: str } }
    }
}

const SUBBUF_SIZE: u32 = 65536;
const SUBBUF_COUNT: u32 = 32;
/// Bytes in a ring of the main channel.
pub(crate) const RING_SIZE: usize = (SUBBUF_SIZE * SUBBUF_COUNT) as usize;

/// The cells of the channels that count, from the second channel on.
const TABLES: [u32; 3] = [
    LTT_COUNT_CELL_PLAIN,
    LTT_COUNT_CELL_VALUE,
    LTT_COUNT_CELL_VALUE,
];

/// The text of events. The compiler must not see it: it would compose the payload in advance.
pub(crate) const TEXT: &str = "twenty bytes of text";

/// Traces at most.
pub(crate) const TRACES: usize = 3;

/// The fake kernel, and the traces that were made.
pub(crate) struct Ours {
    fake: &'static Fake,
    slots: Vec<usize>,
}

impl Ours {
    /// Attaches to a fake kernel, in which so many traces are made.
    pub(crate) fn attach() -> Self {
        let sizes = Sizes {
            subbuf_size: [4096, SUBBUF_SIZE],
            subbuf_count: [4, SUBBUF_COUNT],
        };
        let fake = Fake::with_tables(sizes, &[Some(Scope::Cpu)], &TABLES);
        assert_eq!(init_with(|| Ok(fake)), Status::Attached);
        let slots = (0..TRACES)
            .map(|_| fake.create().expect("a free slot"))
            .collect();
        let ours = Self { fake, slots };
        ours.trace(TRACES);
        ours.trace(1);
        ours
    }

    /// Lets the first `count` traces be active, and no other.
    pub(crate) fn trace(&self, count: usize) {
        for (n, &slot) in self.slots.iter().enumerate() {
            if n < count {
                self.fake.start(slot);
            } else {
                self.fake.stop(slot);
            }
        }
        update();
    }

    /// Sets the filter of the first trace.
    pub(crate) fn filter(&self, text: &str) {
        let mut filter = Filter::new();
        for word in written(text.as_bytes(), |byte| byte.is_ascii_whitespace()) {
            add_rule(&mut filter, &word).expect("a rule");
        }
        self.fake.set_rule_bytes(self.slots[0], filter.rules());
        update();
    }

    /// Sets the rules of the first trace.
    pub(crate) fn set_rules(&self, rules: &[(u8, u8, &str)]) {
        self.fake.set_rules(self.slots[0], rules);
        update();
    }

    /// Adds an active trace with these rules, and returns its slot.
    pub(crate) fn add(&self, rules: &[(u8, u8, &str)]) -> usize {
        let slot = self.fake.create().expect("a free slot");
        self.fake.set_rules(slot, rules);
        self.fake.start(slot);
        update();
        slot
    }

    /// Removes such a trace.
    pub(crate) fn remove(&self, slot: usize) {
        self.fake.stop(slot);
        self.fake.destroy(slot);
        update();
    }

    /// Lets the rings of a slot be empty again.
    pub(crate) fn read_slot(&self, slot: usize) {
        self.fake.consume(0, slot);
    }

    /// The events of a slot.
    pub(crate) fn events(&self, slot: usize) -> Vec<Seen> {
        self.fake.events(0, slot)
    }

    /// Lets the rings be empty again.
    pub(crate) fn read(&self) {
        for &slot in &self.slots {
            self.fake.consume(0, slot);
        }
    }

    /// Events that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.slots.iter().map(|&slot| self.fake.lost(0, slot)).sum()
    }
}

fn update() {
    // SAFETY: the runtime's handler is installed. It runs before this returns.
    unsafe { libc::raise(libc::SIGRTMIN() + 3) };
}

#[inline(never)]
pub(crate) fn empty(count: u64) {
    use points::empty;
    for _ in 0..count {
        event!(empty);
    }
}

#[inline(never)]
pub(crate) fn number(count: u64) {
    use points::number;
    for n in 0..count {
        event!(number, black_box(n) as u32);
    }
}

#[inline(never)]
pub(crate) fn numbers(count: u64) {
    use points::numbers;
    for n in 0..count {
        let n = black_box(n);
        event!(numbers, n, n, n, n);
    }
}

/// Events that the condition of a filter rejects.
#[inline(never)]
pub(crate) fn rejected(count: u64) {
    use points::rejected;
    for n in 0..count {
        let n = black_box(n);
        event!(rejected, n, n, n, n);
    }
}

#[inline(never)]
pub(crate) fn block(count: u64) {
    use points::block;
    for n in 0..count {
        let n = black_box(n);
        event!(
            block, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n,
            n, n, n, n, n
        );
    }
}

#[inline(never)]
pub(crate) fn text(count: u64) {
    use points::text;
    for n in 0..count {
        event!(text, black_box(n) as u32, black_box(TEXT));
    }
}

/// What also goes through `tracing` (`layer.rs`).
#[inline(never)]
pub(crate) fn layer(count: u64) {
    use points::layer;
    for n in 0..count {
        event!(layer, black_box(n), black_box(TEXT));
    }
}
