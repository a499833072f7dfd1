//! B1: fields of any type, with any values, and what `babeltrace2` reads of them.

use crate::fields::{encode, types};
use crate::support::babeltrace;
use proptest::prelude::*;
use usertrace::ctf::{Clock, StreamChannel, StreamOf, TraceInfo, TraceOf, TraceWriter};
use usertrace::metadata::EventTable;
use usertrace::ring::PayloadLengths;
use usertrace::writer::Scope;
use usertrace_sys::uapi::LttClockSync;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Two events of one kind: what is read is what was written.
    ///
    /// Requirements: B1
    #[test]
    fn b1_fields_are_read_as_they_were_written(
        types in prop::collection::vec(types(), 1..6),
        seeds in prop::collection::vec(any::<u64>(), 16),
        format in prop::option::of("(\\*/|/\\*|\\PC|\"|\\\\|\n){1,6}"),
    ) {
        let mut fields: Vec<_> = format.iter().map(|text| format!("fmt {}", encode(text))).collect();
        for (n, kind) in types.iter().enumerate() {
            fields.push(format!("{} f{n}", kind.describe()));
        }
        let line = format!("7 p:n 6 {}", fields.join(";"));
        let mut events = EventTable::default();
        let event = events.describe(line.as_bytes()).unwrap().unwrap().clone();
        prop_assert_eq!(event.line(), line);
        prop_assert_eq!(&event.format, &format);

        let directory = tempfile::tempdir().unwrap();
        let info = TraceInfo {
            trace_name: "t".into(),
            of: TraceOf::Process { name: "p".into(), pid: 1, process: 1 },
            hostname: None,
        };
        let clock = Clock::new(&LttClockSync { freq: 1_000_000_000, ..LttClockSync::default() }, &[]);
        let mut trace = TraceWriter::create(&directory.path().join("trace"), info, clock).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        trace.declare(&event).unwrap();
        let mut stream = trace.stream(&StreamChannel::new("main", 1), StreamOf::Cpu(0)).unwrap();
        let mut expected = Vec::new();
        for (time, seeds) in (1..).zip(seeds.chunks(8)) {
            let (mut payload, mut shown) = (Vec::new(), Vec::new());
            for (n, kind) in types.iter().enumerate() {
                let mut seeds = seeds.to_vec();
                seeds.rotate_left(n);
                let (bytes, text) = kind.value(&format!("f{n}"), &seeds);
                payload.extend(bytes);
                shown.push(text);
            }
            let long = [&payload[..], &[0xff; 9]].concat();
            prop_assert_eq!(events.payload_len(7, &long), Some(payload.len()));
            prop_assert_eq!(events.payload_len(7, &payload[..payload.len() - 1]), None);
            stream.event(7, time, &[], &payload).unwrap();
            expected.push(format!("{{ {} }}", shown.join(", ")));
        }
        stream.finish().unwrap();
        let read = babeltrace::read(directory.path());
        prop_assert_eq!(read.lines.len(), expected.len());
        for (line, expected) in read.lines.iter().zip(&expected) {
            prop_assert!(line.ends_with(expected.as_str()), "{} is not {}", line, expected);
        }
    }
}
