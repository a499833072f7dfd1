//! A process traced with a simulated kernel, and its events as text.

use std::fmt::Write;

use tracing_subscriber::prelude::*;
use usertrace::__private::init_with;
use usertrace::Status;
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace_ring::schema::{FieldType, Scalar};

pub(crate) struct Traced {
    fake: &'static Fake,
    slot: usize,
}

impl Traced {
    /// Makes one trace, not started, and installs the layer for the whole program.
    pub(crate) fn new() -> Self {
        let traced = Self::without_layer();
        let subscriber = tracing_subscriber::registry().with(usertrace_tracing::Layer::new());
        tracing::subscriber::set_global_default(subscriber).unwrap();
        traced
    }

    pub(crate) fn without_layer() -> Self {
        let fake = Fake::new(Sizes {
            subbuf_size: [65536, 65536],
            subbuf_count: [4, 16],
        });
        assert_eq!(init_with(|| Ok(fake)), Status::Attached);
        let slot = fake.create().unwrap();
        Self { fake, slot }
    }

    pub(crate) fn started() -> Self {
        let traced = Self::new();
        traced.start();
        traced
    }

    pub(crate) fn start(&self) {
        self.fake.start(self.slot);
        update();
    }

    pub(crate) fn stop(&self) {
        self.fake.stop(self.slot);
        update();
    }

    /// Limits the trace to events with these log levels.
    pub(crate) fn want_levels(&self, mask: u32) {
        self.fake.set_filter(self.slot, 0, mask);
        update();
    }

    /// The events of a process, in order.
    pub(crate) fn seen(&self, process: usize) -> Vec<Seen> {
        assert_eq!(self.fake.lost(process, self.slot), 0);
        let mut seen = self.fake.events(process, self.slot);
        seen.sort_by_key(|seen| seen.time);
        seen
    }

    /// The events of this process, as text.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen(0).iter().map(line).collect()
    }

    /// The number of described events of this name.
    pub(crate) fn described(&self, name: &str) -> usize {
        let table = self.fake.metadata(0, self.slot);
        let events = (0..=u16::MAX).filter_map(|id| table.get(id));
        events.filter(|event| event.name == name).count()
    }
}

fn update() {
    // SAFETY: the runtime has installed a handler of this signal. It runs before this returns.
    assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
}

/// An event as `NAME LEVEL FIELD=VALUE…`.
pub(crate) fn line(seen: &Seen) -> String {
    let mut text = format!("{} {}", seen.event.name, seen.event.loglevel);
    for (name, value) in fields(seen) {
        write!(text, " {name}={value}").unwrap();
    }
    text
}

/// Names and values of fields, formatted by type.
pub(crate) fn fields(seen: &Seen) -> Vec<(&str, String)> {
    let mut rest = &seen.payload[..];
    let mut take = |kind: &FieldType| {
        let len = match kind {
            FieldType::Scalar(Scalar::Bool) => 1,
            FieldType::Str => rest.iter().position(|byte| *byte == 0).unwrap() + 1,
            _ => 8,
        };
        let (taken, left) = rest.split_at(len);
        rest = left;
        taken
    };
    let eight = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let fields = seen.event.fields.iter().map(|field| {
        let bytes = take(&field.kind);
        let value = match &field.kind {
            FieldType::Scalar(Scalar::Integer(integer)) => match integer.signed {
                false => format!("{}", eight(bytes)),
                true => format!("{:+}", eight(bytes).cast_signed()),
            },
            FieldType::Scalar(Scalar::Float { .. }) => {
                format!("{:?}", f64::from_bits(eight(bytes)))
            }
            FieldType::Scalar(Scalar::Bool) => format!("{}", bytes == [1]),
            FieldType::Str => format!("{:?}", str::from_utf8(&bytes[..bytes.len() - 1]).unwrap()),
            other => panic!("{other:?}"),
        };
        (field.name.as_str(), value)
    });
    let fields = fields.collect();
    assert!(rest.is_empty());
    fields
}

/// The value of a field.
pub(crate) fn field(seen: &Seen, name: &str) -> String {
    let mut fields = fields(seen).into_iter();
    let found = fields.find(|(field, _)| *field == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {}", line(seen)))
        .1
}
