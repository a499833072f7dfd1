//! Tables have all that traces have, as the reader of another project reads them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::basic::Encoding;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field as Cell;
use proptest::prelude::*;
use usertrace_columns::{Columns, ColumnsError, Limits};
use usertrace_ctf::{StreamChannel, StreamOwner, StreamWriter, TraceWriter};
use usertrace_reader::{
    Enumeration, Event, Item, LossKind, Lost, Number, Reader, Selection, Trace, Value, Values,
};
use usertrace_sys::Scope;
use usertrace_testing::processes::{clock, contexts, event, info, processes, write};

/// A row: its directory, and its cells that are not null, with their types.
type Row = (String, BTreeMap<String, String>);

fn integer(bits: u64, len: u8, signed: bool) -> String {
    let shift = 64 - 8 * u32::from(len);
    match signed {
        true => format!("s{} {}", 8 * len, bits.cast_signed()),
        false => format!("u{} {}", 8 * len, bits << shift >> shift),
    }
}

fn number(number: Number) -> String {
    match number {
        Number::Integer(kind, bits) => integer(bits, kind.len, kind.signed),
        Number::Bool(byte) => format!("u8 {byte}"),
        Number::F32(number) => format!("f32 {:x}", number.to_bits()),
        Number::F64(number) => format!("f64 {:x}", number.to_bits()),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("bytes {digits}")
}

fn labels(of: &Enumeration<'_>) -> Option<String> {
    let names: Vec<_> = of.names().collect();
    (!names.is_empty()).then(|| format!("text {}", names.join(", ")))
}

/// The cells of a field.
fn field(row: &mut BTreeMap<String, String>, name: String, value: Value<'_>) {
    match value {
        Value::Scalar(value) => drop(row.insert(name, number(value))),
        Value::Text(text) => {
            if std::str::from_utf8(text).is_err() {
                row.insert(format!("{name}_bytes"), hex(text));
            }
            row.insert(name, format!("text {}", String::from_utf8_lossy(text)));
        }
        Value::Enum(of) => {
            if let Some(labels) = labels(&of) {
                row.insert(format!("{name}_label"), labels);
            }
            row.insert(name, integer(of.bits, of.kind.len, of.kind.signed));
        }
        Value::List(elements) => {
            let elements: Vec<_> = elements.map(number).collect();
            row.insert(name, format!("[{}]", elements.join(", ")));
        }
    }
}

fn directory(trace: &Trace, ns: i64, event: &str) -> String {
    let escaped = |text: &str| -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_- ".contains(c);
        let part = |c: char| match plain(c) {
            true => c.to_string(),
            false => format!("%{:02X}", u32::from(c)),
        };
        text.chars().map(part).collect()
    };
    let host = match trace.metadata().env_text("hostname") {
        None | Some("") => "__HIVE_DEFAULT_PARTITION__".to_owned(),
        Some(host) => escaped(host),
    };
    let ns_of_day = 86_400_000_000_000;
    let date = date_of(ns.div_euclid(ns_of_day));
    format!("host={host}/date={date}/event={}", escaped(event))
}

/// The date, found by counting years and months.
fn date_of(mut day: i64) -> String {
    let is_leap = |year: i64| year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
    let mut year = 1970;
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", day + 1)
}

fn origin(trace: &Trace, ns: i64) -> BTreeMap<String, String> {
    let mut row = BTreeMap::from([("time".to_owned(), format!("s64 {ns}"))]);
    let metadata = trace.metadata();
    for (column, name) in [("process", "procname"), ("trace", "trace_name")] {
        if let Some(value) = metadata.env_text(name) {
            row.insert(column.into(), format!("text {value}"));
        }
    }
    if let Some(pid) = metadata.pid() {
        row.insert("pid".into(), format!("s64 {pid}"));
    }
    row
}

fn of_event(event: &Event<'_>) -> Row {
    let mut row = origin(event.trace, event.ns);
    for (of, value) in Values::new(&event.stream.packet, event.packet) {
        let Value::Scalar(Number::Integer(_, value)) = value else {
            panic!("{value:?}");
        };
        match &of.name[..] {
            "cpu_id" => row.insert("cpu".into(), format!("u32 {value}")),
            "tid" if value == 0 => None,
            "tid" => row.insert("tid".into(), format!("s64 {value}")),
            other => row.insert(format!("packet_{other}"), format!("u32 {value}")),
        };
    }
    let contexts = event.stream.contexts.as_deref().unwrap_or_default();
    for (of, value) in Values::new(contexts, event.contexts) {
        field(&mut row, format!("ctx_{}", of.name), value);
    }
    for (of, value) in Values::new(&event.class.fields, event.payload) {
        field(&mut row, of.name.clone(), value);
    }
    let (provider, name) = event.class.name.split_once(':').unwrap();
    row.insert("provider".into(), format!("text {provider}"));
    row.insert("name".into(), format!("text {name}"));
    if let Some(loglevel) = event.class.loglevel {
        row.insert("loglevel".into(), format!("u32 {loglevel}"));
    }
    (directory(event.trace, event.ns, &event.class.name), row)
}

fn of_loss(lost: &Lost, trace: &Trace) -> Row {
    let mut row = origin(trace, lost.end);
    let (what, count) = match lost.kind {
        LossKind::Events(count) => ("events", count),
        LossKind::Packets(count) => ("packets", count),
    };
    let file = lost.path.file_name().unwrap().to_str().unwrap();
    for (column, value) in [
        ("name", "text lost".to_owned()),
        ("lost", format!("text {what}")),
        ("lost_count", format!("u64 {count}")),
        ("lost_since", format!("s64 {}", lost.begin)),
        ("lost_file", format!("text {file}")),
    ] {
        row.insert(column.into(), value);
    }
    if let Some(cpu) = lost.cpu {
        row.insert("cpu".into(), format!("u32 {cpu}"));
    }
    (directory(trace, lost.end, "lost"), row)
}

/// A cell as [`field`] shows it. A sequence of bytes is shown as a list of numbers.
fn cell(of: &Cell, is_text_bytes: bool) -> Option<String> {
    Some(match of {
        Cell::Null => return None,
        Cell::Byte(value) => format!("s8 {value}"),
        Cell::Short(value) => format!("s16 {value}"),
        Cell::Int(value) => format!("s32 {value}"),
        Cell::Long(value) => format!("s64 {value}"),
        Cell::UByte(value) => format!("u8 {value}"),
        Cell::UShort(value) => format!("u16 {value}"),
        Cell::UInt(value) => format!("u32 {value}"),
        Cell::ULong(value) => format!("u64 {value}"),
        Cell::Float(value) => format!("f32 {:x}", value.to_bits()),
        Cell::Double(value) => format!("f64 {:x}", value.to_bits()),
        Cell::Str(text) => format!("text {text}"),
        Cell::Bytes(bytes) if is_text_bytes => hex(bytes.data()),
        Cell::Bytes(bytes) => {
            let bytes: Vec<_> = bytes
                .data()
                .iter()
                .map(|byte| format!("u8 {byte}"))
                .collect();
            format!("[{}]", bytes.join(", "))
        }
        Cell::ListInternal(list) => {
            let elements = list.elements().iter();
            let elements: Vec<_> = elements.filter_map(|of| cell(of, false)).collect();
            format!("[{}]", elements.join(", "))
        }
        other => panic!("{other:?}"),
    })
}

/// The Parquet files in a directory, sorted.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// All rows of an export.
fn rows(root: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for path in files(root) {
        let directory = path.parent().unwrap().strip_prefix(root).unwrap();
        let file = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        for row in file.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let cells = row.get_column_iter().filter_map(|(name, of)| {
                let is_text_bytes = name.ends_with("_bytes");
                Some((name.clone(), cell(of, is_text_bytes)?))
            });
            rows.push((directory.to_str().unwrap().to_owned(), cells.collect()));
        }
    }
    rows
}

fn export(traces: &Path, to: &Path, limits: Limits) -> Result<Vec<Row>, ColumnsError> {
    let mut reader = Reader::open(&[traces.to_owned()], Selection::default()).unwrap();
    let mut columns = Columns::new(to, limits)?;
    let mut expected = Vec::new();
    while let Some(item) = reader.next() {
        match item {
            Item::Event(event) => {
                expected.push(of_event(&event));
                columns.event(&event)?;
            }
            Item::Lost(lost) => {
                let trace = &reader.traces()[lost.trace];
                expected.push(of_loss(&lost, trace));
                columns.lost(&lost, trace)?;
            }
            Item::Error(error) => panic!("{error}"),
        }
    }
    columns.finish()?;
    Ok(expected)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever programs write comes back, with small limits, too. Losses are rows.
    ///
    /// Requirements: E8
    #[test]
    fn rows_equal_events(
        processes in prop::collection::vec(processes(), 1..4),
        rows_of_group in 1usize..40,
        bytes in prop::sample::select(&[1, 20_000, 64 << 20]),
        open_files in 1usize..4,
        file_groups in 1usize..4,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
        fs::create_dir(&traces).unwrap();
        for (pid, process) in (1..).zip(&processes) {
            write(&traces, pid, process);
        }
        let limits = Limits { rows: rows_of_group, bytes, open_files, file_groups, ..Limits::default() };
        let (found, expected) = sorted(&traces, &to, limits);
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert_eq!(found, expected);
        }
        // Nothing else is left.
        prop_assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    }
}

/// Begins a trace with one stream of CPU 3.
fn trace(directory: &Path, hostname: &str, events: &[&str]) -> (TraceWriter, StreamWriter) {
    let info = info("prog", 7, Some(hostname));
    let mut trace = TraceWriter::create(directory, info, clock(1_000_000_000)).unwrap();
    trace.declare_class(Scope::Cpu).unwrap();
    for line in events {
        trace.declare(&event(line)).unwrap();
    }
    let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(3));
    (trace, stream.unwrap())
}

/// Names are those of fields as far as SQL can tell them apart.
#[test]
fn names_of_columns_are_unique() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    let line =
        "1 a/../b:e=% 6 u8 Time;u8 size;u8 SIZE;u8{one=1} kind;u8 kind_label;u8 host;u8 lost";
    let (_trace, mut stream) = trace(&traces, "h", &[line]);
    stream.event(1, 1_000_000, &[], &[1; 7]).unwrap();
    stream.finish().unwrap();
    export(&traces, &to, Limits::default()).unwrap();
    let [(directory, row)] = &rows(&to)[..] else {
        panic!("one row");
    };
    assert_eq!(
        directory,
        "host=h/date=2023-11-14/event=a%2F..%2Fb%3Ae%3D%25"
    );
    let of_fields = row.keys().filter(|name| {
        let fixed = ["time", "trace", "process", "pid", "cpu", "loglevel"];
        !fixed.contains(&&name[..])
    });
    assert_eq!(
        of_fields.collect::<Vec<_>>(),
        [
            "field_SIZE",
            "field_Time",
            "field_host",
            "field_lost",
            "kind",
            "kind_label",
            "kind_label_2",
            "name",
            "provider",
            "size"
        ]
    );
    assert_eq!(row["kind_label"], "u8 1");
    assert_eq!(row["kind_label_2"], "text one");
    assert_eq!(
        (&row["provider"][..], &row["name"][..]),
        ("text a/../b", "text e=%")
    );
}

/// The context with the thread's id is the column `tid`, too.
#[test]
fn threads_have_a_column() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    let mut trace =
        TraceWriter::create(&traces, info("prog", 7, None), clock(1_000_000_000)).unwrap();
    let contexts = contexts("@1 u32 vtid;c8[16] procname");
    trace.declare_contexts(Scope::Cpu, &contexts).unwrap();
    trace.declare(&event("1 t:e 6 u8 n")).unwrap();
    let mut channel = StreamChannel::new("main", 1);
    channel.set_contexts();
    let mut stream = trace.stream(&channel, StreamOwner::Cpu(0)).unwrap();
    let mut context = 51u32.to_ne_bytes().to_vec();
    context.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
    stream.event(1, 1_000_000, &context, &[1]).unwrap();
    stream.finish().unwrap();
    export(&traces, &to, Limits::default()).unwrap();
    let rows = rows(&to);
    let (_, row) = &rows[0];
    assert_eq!(
        [&row["tid"], &row["ctx_vtid"], &row["ctx_procname"]],
        ["s64 51", "u32 51", "text worker"]
    );
    assert!(!row.contains_key("provider_bytes"));
}

/// The encodings and the statistics of a column in a file: its least and greatest value in bytes.
fn described(path: &Path, name: &str) -> (Vec<Encoding>, [Option<Vec<u8>>; 2]) {
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let group = file.metadata().row_group(0);
    let column = group
        .columns()
        .iter()
        .find(|of| of.column_path().parts()[0] == name);
    let column = column.unwrap();
    let statistics = column.statistics().unwrap();
    let [least, most] = [statistics.min_bytes_opt(), statistics.max_bytes_opt()];
    (
        column.encodings().collect(),
        [least, most].map(|value| value.map(<[u8]>::to_vec)),
    )
}

/// Values come back in each encoding, and which one is chosen depends on them. Statistics are in
/// the order of the type.
///
/// Requirements: E8
#[test]
fn encodings_fit_the_values() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    let line = "1 t:e 6 x64 address;u64 high;s32 low;u16 near;f64 few;f32 nan;f64 zero;str once;\
        str often;u8[3] blob;s16[] list;u8{one=1,two=2,both=1..2} kind";
    let (_trace, mut stream) = trace(&traces, "h", &[line]);
    for n in 0..3000u64 {
        // Far from each other, in no order.
        let drawn = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut payload = Vec::new();
        payload.extend(
            (drawn >> 61)
                .wrapping_mul(0x1234_5678_9abc_def1)
                .to_ne_bytes(),
        );
        payload.extend((drawn | 1 << 63).to_ne_bytes());
        payload.extend(((drawn >> 32) as i32).to_ne_bytes());
        payload.extend((60_000 + (drawn >> 60) as u16).to_ne_bytes());
        payload.extend(((drawn >> 62) as f64 - 1.5).to_ne_bytes());
        let is_nan = n == 2000;
        payload.extend(if is_nan { f32::NAN } else { n as f32 }.to_ne_bytes());
        payload.extend(if n % 2 == 0 { 0.0 } else { -0.0f64 }.to_ne_bytes());
        payload.extend(format!("{drawn}\0").as_bytes());
        payload.extend(format!("item {}\0", drawn >> 60).as_bytes());
        payload.extend(&drawn.to_ne_bytes()[5..]);
        payload.extend((n as u32 % 4).to_ne_bytes());
        payload.extend((0..n % 4).flat_map(|at| (n as i16 - at as i16 * 999).to_ne_bytes()));
        payload.push((drawn >> 62) as u8);
        stream.event(1, 1_000_000 + n, &[], &payload).unwrap();
    }
    stream.finish().unwrap();
    let (found, expected) = sorted(&traces, &to, Limits::default());
    assert!(found == expected);
    let [path] = &files(&to)[..] else {
        panic!("one file");
    };
    let [dictionary, plain, delta] = [
        Encoding::RLE_DICTIONARY,
        Encoding::PLAIN,
        Encoding::DELTA_BINARY_PACKED,
    ];
    for (column, encoding) in [
        ("time", delta),
        ("address", dictionary),
        ("high", delta),
        ("near", delta),
        ("few", dictionary),
        ("nan", plain),
        ("once", plain),
        ("often", dictionary),
        ("blob", plain),
        ("kind_label", dictionary),
    ] {
        let (encodings, _) = described(path, column);
        assert!(encodings.contains(&encoding), "{column}: {encodings:?}");
        let has_others = encoding == plain && encodings.contains(&dictionary);
        assert!(!has_others, "{column}: {encodings:?}");
    }
    let statistics = |name| described(path, name).1;
    let [least, most] =
        statistics("high").map(|of| u64::from_le_bytes(of.unwrap()[..].try_into().unwrap()));
    assert!(1 << 63 <= least && least < most, "{least} {most}");
    let [least, most] =
        statistics("low").map(|of| i32::from_le_bytes(of.unwrap()[..].try_into().unwrap()));
    assert!(least < 0 && most > 0, "{least} {most}");
    let zeros = [-0.0f64, 0.0].map(|zero| Some(zero.to_le_bytes().to_vec()));
    assert_eq!(statistics("zero"), zeros);
    assert_eq!(statistics("nan"), [None, None]);
    let texts = [&b"item 0"[..], b"item 9"].map(|text| Some(text.to_vec()));
    assert_eq!(statistics("often"), texts);
}

/// Events whose columns are the same are in one file, however their programs store them.
///
/// Requirements: E8
#[test]
fn events_that_are_stored_differently_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    fs::create_dir(&traces).unwrap();
    let lines = [
        "1 t:e 6 u16 n;str s;u8[] bytes",
        "1 t:e 6 u16be n;c8[4] s;u8[2] bytes",
    ];
    for (pid, line) in (7..).zip(lines) {
        let path = traces.join(format!("prog-{pid}"));
        let of = info("prog", pid, Some("h"));
        let mut trace = TraceWriter::create(&path, of, clock(1_000_000_000)).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        trace.declare(&event(line)).unwrap();
        let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
        let mut stream = stream.unwrap();
        for n in 0..20u64 {
            let number = n as u16 * 300;
            let payload = match pid {
                7 => [
                    &number.to_ne_bytes()[..],
                    b"abc\0",
                    &2u32.to_ne_bytes(),
                    &[1, 2],
                ]
                .concat(),
                _ => [&number.to_be_bytes()[..], b"abc\0", &[1, 2]].concat(),
            };
            // In turns.
            let time = 1_000_000 + 2 * n + u64::from(pid) % 2;
            stream.event(1, time, &[], &payload).unwrap();
        }
        stream.finish().unwrap();
    }
    let (found, expected) = sorted(&traces, &to, Limits::default());
    assert_eq!(found, expected);
    assert_eq!(files(&to).len(), 1);
}

/// A name that is too long for a directory is cut there, and whole in the file.
#[test]
fn long_names_are_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    let names = ["x", "y"].map(|end| "=".repeat(100) + end);
    let lines = [1, 2].map(|id| format!("{id} p:{} 6 u8 n", names[id - 1]));
    let (_trace, mut stream) = trace(&traces, &"h".repeat(300), &[&lines[0], &lines[1]]);
    for id in [1, 2] {
        stream.event(id, 1_000_000, &[], &[0]).unwrap();
    }
    stream.finish().unwrap();
    export(&traces, &to, Limits::default()).unwrap();
    let rows = rows(&to);
    let mut found: Vec<_> = rows.iter().map(|(_, row)| &row["name"][..]).collect();
    found.sort_unstable();
    assert_eq!(found, names.each_ref().map(|name| format!("text {name}")));
    let paths = files(&to);
    assert_ne!(paths[0].parent(), paths[1].parent());
    let file = SerializedFileReader::new(fs::File::open(&paths[0]).unwrap()).unwrap();
    let metadata = file.metadata().file_metadata().key_value_metadata();
    let host = metadata
        .unwrap()
        .iter()
        .find(|of| of.key == "usertrace.host");
    assert_eq!(host.unwrap().value, Some("h".repeat(300)));
}

/// Exports traces. Returns the rows of the tables, and those that are expected, both sorted.
fn sorted(traces: &Path, to: &Path, limits: Limits) -> (Vec<Row>, Vec<Row>) {
    let mut expected = export(traces, to, limits).unwrap();
    let mut found = rows(to);
    expected.sort();
    found.sort();
    (found, expected)
}

/// Exports a trace of one event.
fn export_one(directory: &Path, to: &Path) -> Result<Vec<Row>, ColumnsError> {
    let traces = directory.join("traces");
    if !traces.exists() {
        let (_trace, mut stream) = trace(&traces, "h", &["1 t:e 6 u64 n"]);
        stream.event(1, 1_000_000, &[], &[1; 8]).unwrap();
        stream.finish().unwrap();
    }
    export(&traces, to, Limits::default())
}

/// An export replaces an earlier one and nothing else, and keeps the directory's mode and links.
#[test]
fn only_earlier_exports_are_replaced() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    let directory = tempfile::tempdir().unwrap();
    let (to, link) = (directory.path().join("to"), directory.path().join("link"));
    symlink("to", &link).unwrap();
    assert!(
        export_one(directory.path(), &link).is_err(),
        "a dangling link"
    );
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o750)).unwrap();
    for to in [&to, &link] {
        export_one(directory.path(), to).unwrap();
        assert_eq!(files(to).len(), 1);
        assert_eq!(fs::metadata(to).unwrap().mode() & 0o7777, 0o750);
    }
    assert!(link.is_symlink());
    // Something that no export wrote.
    fs::write(to.join("notes"), "mine").unwrap();
    let refused = export_one(directory.path(), &to).unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    assert_eq!(fs::read_to_string(to.join("notes")).unwrap(), "mine");
    fs::remove_file(to.join("notes")).unwrap();
    fs::remove_file(to.join("_usertrace.json")).unwrap();
    assert!(export_one(directory.path(), &to).is_err());
    assert_eq!(files(&to).len(), 1);
    assert!(export_one(directory.path(), &files(&to)[0]).is_err());
    assert!(export_one(directory.path(), Path::new("/nowhere/at/all")).is_err());
    // No temporary directory is left.
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
}

/// A trace without events becomes a directory without tables.
#[test]
fn nothing_becomes_an_empty_export() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    let (_trace, mut stream) = trace(&traces, "h", &["1 t:e 6 u64 n"]);
    stream.finish().unwrap();
    assert_eq!(export(&traces, &to, Limits::default()).unwrap(), []);
    let summary = fs::read_to_string(to.join("_usertrace.json")).unwrap();
    assert_eq!(
        summary,
        "{\"format\":1,\"events\":0,\"losses\":0,\"files\":0}\n"
    );
    assert_eq!(files(&to), Vec::<PathBuf>::new());
}

/// Writes events of so many kinds in turns.
fn many_kinds(directory: &Path, kinds: u16, turns: u64) {
    let lines: Vec<_> = (1..=kinds)
        .map(|id| format!("{id} t:e{id} 6 u64 n"))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let (_trace, mut stream) = trace(directory, "h", &lines);
    for turn in 0..turns {
        for id in 1..=kinds {
            let n = turn.to_ne_bytes();
            stream.event(id, 1_000_000 + turn, &[], &n).unwrap();
        }
    }
    stream.finish().unwrap();
}

/// The export tells events apart by their ids, low and high ones, in each trace.
///
/// Requirements: E8
#[test]
fn high_ids_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    fs::create_dir(&traces).unwrap();
    let ids = [1u16, 1023, 1024, 1025, 65_000];
    for pid in [7, 8] {
        let path = traces.join(format!("prog-{pid}"));
        let mut trace =
            TraceWriter::create(&path, info("prog", pid, Some("h")), clock(1_000_000_000)).unwrap();
        trace.declare_class(Scope::Cpu).unwrap();
        for id in ids {
            // Another event has the id in the other trace.
            let name = u32::from(id) + pid;
            trace
                .declare(&event(&format!("{id} t:e{name} 6 u64 n")))
                .unwrap();
        }
        let stream = trace.stream(&StreamChannel::new("main", 1), StreamOwner::Cpu(0));
        let mut stream = stream.unwrap();
        for n in 0..20u64 {
            let id = ids[n as usize % ids.len()];
            let payload = n.to_ne_bytes();
            stream.event(id, 1_000_000 + n, &[], &payload).unwrap();
        }
        stream.finish().unwrap();
    }
    let (found, expected) = sorted(&traces, &to, Limits::default());
    assert_eq!(found, expected);
}

/// However many kinds of events there are, few files are open, and each is complete.
#[test]
fn open_files_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    many_kinds(&traces, 60, 12);
    let limits = Limits {
        rows: 3,
        open_files: 8,
        ..Limits::default()
    };
    let open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        let files = links.filter(|file| file.extension().is_some_and(|end| end == "parquet"));
        files
            .filter(|file| file.starts_with(directory.path()))
            .count()
    };
    let mut reader = Reader::open(std::slice::from_ref(&traces), Selection::default()).unwrap();
    let mut columns = Columns::new(&to, limits).unwrap();
    let (mut most, mut count) = (0, 0);
    while let Some(Item::Event(event)) = reader.next() {
        columns.event(&event).unwrap();
        count += 1;
        if count % 10 == 0 {
            most = most.max(open());
        }
    }
    columns.finish().unwrap();
    assert!((1..=8).contains(&most), "{most}");
    let rows = rows(&to);
    assert_eq!(rows.len(), 720);
    let sum = |kind: &str| -> u64 {
        let of = rows
            .iter()
            .filter(|(directory, _)| directory.ends_with(kind));
        of.map(|(_, row)| row["n"][4..].parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!([sum("e1"), sum("e60")], [66, 66]);
}

/// An export that fails leaves nothing, and ends although its writer is busy.
#[test]
fn dropped_export_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (traces, to) = (directory.path().join("traces"), directory.path().join("to"));
    many_kinds(&traces, 30, 6);
    let mut reader = Reader::open(&[traces], Selection::default()).unwrap();
    let limits = Limits {
        rows: 2,
        ..Limits::default()
    };
    let mut columns = Columns::new(&to, limits).unwrap();
    while let Some(Item::Event(event)) = reader.next() {
        columns.event(&event).unwrap();
    }
    drop(columns);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

/// Exports below one directory do not disturb each other, and what killed ones left is removed.
#[test]
fn exports_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let begin = |name: &str| Columns::below(&root, Path::new(name), Limits::default());
    let Err(missing) = begin("chunk=1") else {
        panic!("there is no such directory");
    };
    assert!(
        missing.to_string().contains("root: No such file"),
        "{missing}"
    );
    fs::create_dir(&root).unwrap();
    fs::create_dir_all(root.join(".usertrace-dead/new")).unwrap();
    // Where somebody else's directory would be.
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, root.join(".usertrace-link")).unwrap();
    let first = begin("recording=a/chunk=1").unwrap();
    let second = begin("recording=a/chunk=2").unwrap();
    let names = || {
        let entries = fs::read_dir(&root).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name != ".usertrace-link");
        names.sort();
        names
    };
    // The first one is in use, and the dead one is gone.
    assert_eq!(names().len(), 2);
    first.finish().unwrap();
    drop(second);
    assert_eq!(names(), ["recording=a"]);
    assert!(usertrace_columns::is_export(
        &root.join("recording=a/chunk=1")
    ));
    assert!(!root.join("recording=a/chunk=2").exists());
    assert!(other.exists() && root.join(".usertrace-link").is_symlink());
}
