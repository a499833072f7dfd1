//! What `babeltrace2` reads about the modules of processes, and finds by it (F1).

use std::path::Path;

use usertrace_ctf::{Clock, ProcessWriter, StreamState, Version};
use usertrace_ring::{RingReader, WaitPolicy};
use usertrace_testing::{RingWriter, babeltrace, babeltrace::Printed};

use super::ctf::{START, at, channel, frozen, identity, ring, write, writer_of};

const PROGRAM: &str = "+400000 1000 0 ab01 - - %2Fbin%2Fa%20b";
const LIBRARY: &str = "+7f0000000000 2000 1 - 1f x.debug %2Flib%2Fx.so";

/// Names and fields, without the contexts.
fn described(events: &[Printed]) -> Vec<String> {
    let text = |event: &Printed| {
        let fields = event
            .fields
            .rsplit_once(" }, ")
            .map_or("", |(_, fields)| fields);
        format!("{} {fields}", event.name)
    };
    events.iter().map(text).collect()
}

fn control(lines: &[(u64, &str)]) -> RingWriter {
    let mut ring = ring(0);
    for (time, line) in lines {
        assert!(ring.meta(at(*time), line));
    }
    ring
}

fn event_at(times: &[u64]) -> RingWriter {
    let mut main = ring(0);
    for &time in times {
        assert!(main.event(1, at(time), b""));
    }
    main
}

/// A trace begins with the modules at its first event; later changes follow.
///
/// Requirements: E6, F1
#[test]
fn modules_and_their_changes_are_events() {
    let control = control(&[
        (1, "1 a:b 6"),
        (10, LIBRARY),
        (11, PROGRAM),
        (12, "+5000 1000 1 - - - %2Fgone.so"),
        (13, "-5000"),
        // Another copy of the library describes the same.
        (14, PROGRAM),
        (5000, "-7f0000000000"),
        (5001, "-7f0000000000"),
        (6000, "+7f0000000000 3000 1 cd - - %2Flib%2Fy.so"),
        // The kernel gave the address to another one, and nobody noticed.
        (7000, "+7f0000000000 1000 1 - - - -"),
        (8000, "+0 0 1 - - - -"),
    ]);
    let directory = tempfile::tempdir().unwrap();
    let main = event_at(&[2000, 9000]);
    let summary = write(directory.path(), identity("p", 42), &control, &[main]);
    assert_eq!((summary.events, summary.damaged), (2, 1));
    let events = babeltrace::modules(directory.path());
    let expected = [
        "lttng_ust_statedump:start { }",
        "lttng_ust_statedump:bin_info { baddr = 0x400000, memsz = 4096, path = \"/bin/a b\", is_pic = 0, has_build_id = 1, has_debug_link = 0 }",
        "lttng_ust_statedump:build_id { baddr = 0x400000, _build_id_length = 2, build_id = [ [0] = 0xAB, [1] = 0x1 ] }",
        "lttng_ust_statedump:bin_info { baddr = 0x7F0000000000, memsz = 8192, path = \"/lib/x.so\", is_pic = 1, has_build_id = 0, has_debug_link = 1 }",
        "lttng_ust_statedump:debug_link { baddr = 0x7F0000000000, crc = 0x1F, filename = \"x.debug\" }",
        "lttng_ust_statedump:end { }",
        "lttng_ust_lib:unload { baddr = 0x7F0000000000 }",
        "lttng_ust_lib:load { baddr = 0x7F0000000000, memsz = 12288, path = \"/lib/y.so\", has_build_id = 1, has_debug_link = 0 }",
        "lttng_ust_lib:build_id { baddr = 0x7F0000000000, _build_id_length = 1, build_id = [ [0] = 0xCD ] }",
        "lttng_ust_lib:unload { baddr = 0x7F0000000000 }",
        "lttng_ust_lib:load { baddr = 0x7F0000000000, memsz = 4096, path = \"\", has_build_id = 0, has_debug_link = 0 }",
    ];
    assert_eq!(described(&events), expected);
    let first = START.realtime + 2000;
    assert!(events.iter().all(|event| event.field("vpid") == 42));
    assert!(
        events[..6]
            .iter()
            .all(|of| (first - 1000..first).contains(&of.time)),
        "{events:?}"
    );
    let times: Vec<_> = events[6..]
        .iter()
        .map(|of| of.time - START.realtime)
        .collect();
    assert_eq!(times, [5000, 6000, 6000, 7000, 7000]);
}

/// Without an event there is no address to look up, and without modules nothing to tell.
///
/// Requirements: F1
#[test]
fn traces_without_events_or_modules_have_no_stream() {
    for (lines, times) in [
        (&[(1, "1 a:b 6"), (2, PROGRAM)][..], &[][..]),
        (&[(1, "1 a:b 6")], &[9]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(
            directory.path(),
            identity("p", 1),
            &control(lines),
            &[event_at(times)],
        );
        assert!(!directory.path().join("p-1-1/modules").exists());
    }
}

/// The recorded process may have another id in its namespace, and readers look modules up by the id
/// that events have.
///
/// Requirements: F1, F7
#[test]
fn modules_have_the_process_id_of_events() {
    let control = control(&[(1, "1 a:b 6"), (2, "@1 u8[] x;s32 vpid"), (3, PROGRAM)]);
    let mut main = ring(0);
    let payload = [&1u32.to_le_bytes()[..], &[9], &7u32.to_le_bytes(), &[0; 7]].concat();
    assert!(main.event(1, at(100), &payload));
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), identity("p", 42), &control, &[main]);
    let events = babeltrace::modules(directory.path());
    assert!(
        events.iter().all(|event| event.field("vpid") == 7),
        "{events:?}"
    );
    assert_eq!(events.len(), 4);
}

fn resumed(directory: &Path, control: &RingWriter, main: &RingWriter) -> ProcessWriter {
    let clock = Clock::new(&START, &[]);
    let channel = channel(1);
    let mut writer =
        ProcessWriter::resume(directory, identity("p", 1), clock, [7; 16], Vec::new()).unwrap();
    let reader = |from| RingReader::live(channel.format(), from, clock.max_time());
    writer.set_control(vec![reader(0)]);
    let readers = vec![reader(main.consumed)];
    let states = StreamState::of_file(&directory.join("main_0")).unwrap();
    let state = usertrace_ctf::RingState {
        stream: states.map(|(_, state)| state),
        ..usertrace_ctf::RingState::default()
    };
    writer
        .add_channel("main", 1, &channel, readers, &[state])
        .unwrap();
    round(&mut writer, control, main);
    writer
}

fn round(writer: &mut ProcessWriter, control: &RingWriter, main: &RingWriter) {
    let (mut memory, mut events) = (frozen(control), frozen(main));
    writer
        .read_control(0, &mut memory, control.head, WaitPolicy::Wait)
        .unwrap();
    writer
        .read(0, 0, &mut events, main.head, WaitPolicy::Wait)
        .unwrap();
    writer.write_modules().unwrap();
}

/// A chunk begins with what is loaded then, and a writer that follows a killed one goes on.
///
/// Requirements: A10, F1
#[test]
fn chunks_and_later_writers_know_the_modules() {
    let parent = tempfile::tempdir().unwrap();
    let mut control = control(&[(1, "1 a:b 6"), (10, LIBRARY)]);
    let mut main = event_at(&[2000]);
    let first = parent.path().join("first");
    let mut writer = resumed(&first, &control, &main);
    control.meta(at(3000), PROGRAM);
    main.event(1, at(4000), b"");
    round(&mut writer, &control, &main);
    // The writer is killed, and the next one reads the control channel again.
    drop(writer);
    main.consumed = main.head;
    control.meta(at(5000), "-7f0000000000");
    main.event(1, at(6000), b"");
    resumed(&first, &control, &main).finish(None).unwrap();
    let names = |directory: &Path| -> Vec<String> {
        let events = babeltrace::modules(directory);
        events
            .iter()
            .map(|event| event.name.replace("lttng_ust_", ""))
            .collect()
    };
    assert_eq!(
        names(&first),
        [
            "statedump:start",
            "statedump:bin_info",
            "statedump:debug_link",
            "statedump:end",
            "lib:load",
            "lib:build_id",
            // The other writer.
            "statedump:start",
            "statedump:bin_info",
            "statedump:build_id",
            "statedump:bin_info",
            "statedump:debug_link",
            "statedump:end",
            "lib:unload",
        ]
    );
    main.consumed = main.head;
    main.event(1, at(7000), b"");
    let second = parent.path().join("second");
    resumed(&second, &control, &main).finish(None).unwrap();
    assert_eq!(
        names(&second),
        [
            "statedump:start",
            "statedump:bin_info",
            "statedump:build_id",
            "statedump:end"
        ]
    );
}

/// Its debug-info filter finds the function of an address in this program.
///
/// Requirements: F1, F7
#[test]
fn babeltrace_names_functions() {
    let program = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_program = || {
        maps.lines()
            .filter(|line| line.ends_with(program.to_str().unwrap()))
    };
    let range = |line: &str| {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        [begin, end].map(|text| u64::from_str_radix(text, 16).unwrap())
    };
    let base = of_program().map(|line| range(line)[0]).min().unwrap();
    let end = of_program().map(|line| range(line)[1]).max().unwrap();
    let path: String = program
        .to_str()
        .unwrap()
        .bytes()
        .map(
            |byte| match byte.is_ascii_alphanumeric() || b"_.-".contains(&byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            },
        )
        .collect();
    let line = format!("+{base:x} {:x} 1 - - - {path}", end - base);
    let lines = [(1, "1 a:b 6"), (2, "@1 s32 vpid;x64 ip"), (3, &line)];
    let mut main = ring(0);
    let ip = babeltrace_names_functions as fn() as usize as u64 + 8;
    let payload = [&1u32.to_le_bytes()[..], &ip.to_le_bytes(), &[0; 4]].concat();
    assert!(main.event(1, at(100), &payload));
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        identity("p", 1),
        &control(&lines),
        &[main],
    );
    for events in babeltrace::with_debug_info(directory.path()) {
        assert_eq!(events.len(), 1);
        let fields = &events[0].fields;
        assert!(fields.contains("babeltrace_names_functions"), "{fields}");
    }
}

/// CTF 2 has the same events, as the reader of this repository has them.
///
/// Requirements: F1
#[test]
fn ctf_2_has_the_same_events() {
    let directory = tempfile::tempdir().unwrap();
    let control = control(&[(1, "1 a:b 6"), (2, PROGRAM), (200, LIBRARY)]);
    let main = event_at(&[100]);
    let clock = Clock::new(&START, &[]);
    for version in [Version::V1_8, Version::V2] {
        let parent = directory.path().join(format!("{version:?}"));
        std::fs::create_dir(&parent).unwrap();
        let mut writer = writer_of(&parent, clock, &channel(1));
        writer.set_version(version);
        round(&mut writer, &control, &main);
        writer.finish(None).unwrap();
    }
    let read = |version: Version| {
        let bytes = std::fs::read(directory.path().join(format!("{version:?}/p-1-1/modules")));
        // Without the UUID.
        let mut bytes = bytes.unwrap();
        bytes[4..20].fill(0);
        bytes
    };
    assert_eq!(read(Version::V1_8), read(Version::V2));
    let metadata = std::fs::read_to_string(directory.path().join("V2/p-1-1/metadata")).unwrap();
    let declared = metadata.matches("\"data-stream-class-id\":9,").count();
    // And one that never occurs.
    assert_eq!(declared, 10, "{metadata}");
}
