//! Runs `babeltrace2`, which judges the traces of tests (F1).

use std::path::Path;
use std::process::Command;

use usertrace_ctf::is_module_event;

use crate::tools;

/// An event as `babeltrace2` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// Time in nanoseconds since 1970.
    pub time: u64,
    /// Name of the event, `PROVIDER:NAME`.
    pub name: String,
    /// The text of contexts and fields.
    pub fields: String,
}

impl Printed {
    /// The value of an integer field or context.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> u64 {
        self.after(name)
            .and_then(|text| {
                let end = text.find(|c: char| !c.is_ascii_digit());
                text[..end.unwrap_or(text.len())].parse().ok()
            })
            .unwrap_or_else(|| panic!("no number {name} in {}", self.fields))
    }

    /// The value of an integer field that is shown in hexadecimal.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn address(&self, name: &str) -> u64 {
        self.after(name)
            .and_then(|text| {
                let text = text.strip_prefix("0x")?;
                let end = text.find(|c: char| !c.is_ascii_hexdigit());
                u64::from_str_radix(&text[..end.unwrap_or(text.len())], 16).ok()
            })
            .unwrap_or_else(|| panic!("no address {name} in {}", self.fields))
    }

    /// The value of a text field without quotation marks in it.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.after(name)
            .and_then(|text| text.strip_prefix('"')?.split('"').next())
            .unwrap_or_else(|| panic!("no text {name} in {}", self.fields))
    }

    /// A value as it is printed, without spaces in it. None if there is no such field.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let text = self.after(name)?;
        let end = text.find([',', ' ', '}']);
        Some(&text[..end.unwrap_or(text.len())])
    }

    /// An element of an array or a sequence of numbers. None if it is too short.
    ///
    /// # Panics
    /// If there is no such field.
    #[must_use]
    pub fn element(&self, name: &str, index: usize) -> Option<&str> {
        let text = self.after(name).and_then(|text| text.strip_prefix('['));
        let text = text.unwrap_or_else(|| panic!("no elements {name} in {}", self.fields));
        let (elements, _) = text.split_once(" ]").unwrap_or((text, ""));
        let mut elements = elements.split(',').map(|element| element.split_once(" = "));
        elements.nth(index).flatten().map(|(_, value)| value)
    }

    /// The labels and the value of an enumeration.
    ///
    /// # Panics
    /// If there is no such field.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> (Vec<&str>, i64) {
        let parts = || {
            let (labels, rest) = self.after(name)?.split_once(" : container = ")?;
            let (value, _) = rest.split_once(' ')?;
            let labels = labels.split('"').skip(1).step_by(2);
            Some((labels.collect(), value.parse().ok()?))
        };
        parts().unwrap_or_else(|| panic!("no enumeration {name} in {}", self.fields))
    }

    /// The text after a field's name.
    fn after(&self, name: &str) -> Option<&str> {
        let wanted = format!("{name} = ");
        let mut matches = self.fields.match_indices(&wanted);
        let (at, _) = matches.find(|&(at, _)| self.fields[..at].ends_with([' ', '{']))?;
        Some(&self.fields[at + wanted.len()..])
    }

    /// Thread and number of a [`numbered_event!`](crate::numbered_event).
    ///
    /// # Panics
    /// If it is another event.
    #[must_use]
    pub fn numbered(&self) -> (u32, u64) {
        assert_eq!(self.name, "test:numbered");
        (self.field("thread") as u32, self.field("number"))
    }
}

/// The events of traces as `babeltrace2` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The events, in the order of the output.
    pub events: Vec<Printed>,
    /// Number of discarded events, according to the warnings.
    pub discarded: u64,
    /// Number of discarded packets, according to the warnings.
    pub discarded_packets: u64,
}

/// Like [`Read`], with each event as a line of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The lines.
    pub lines: Vec<String>,
    /// Number of discarded events.
    pub discarded: u64,
    /// Number of discarded packets.
    pub discarded_packets: u64,
}

/// Runs `babeltrace2` on a directory. Returns its standard output and standard error.
///
/// # Panics
/// If it fails.
fn run(options: &[&str], directory: &Path, zone: Option<&str>) -> (Vec<u8>, String) {
    let mut command = Command::new("babeltrace2");
    command.args(options).arg(directory);
    if let Some(zone) = zone {
        command.env("TZ", zone);
    }
    let output = command
        .output()
        .expect("babeltrace2 (Debian package babeltrace2) must be installed to run this test");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {stderr}", output.status);
    (output.stdout, stderr)
}

/// Sums up discarded events and packets in the warnings.
///
/// # Panics
/// If it warns of anything else.
fn discarded(stderr: &str) -> (u64, u64) {
    let (mut events, mut packets) = (0, 0);
    for line in stderr.lines().filter(|line| !line.is_empty()) {
        let counted = |what| {
            line.split_once("WARNING: Tracer discarded ")
                .and_then(|(_, rest)| rest.split_once(what))
                .and_then(|(count, _)| count.parse::<u64>().ok())
        };
        match (counted(" event"), counted(" packet")) {
            (Some(count), _) => events += count,
            (_, Some(count)) => packets += count,
            _ => panic!("babeltrace2 warns: {line}"),
        }
    }
    (events, packets)
}

/// Reads all traces below `directory`, merged by time. Events about modules are left out: see
/// [`modules`].
///
/// # Panics
/// If it fails, warns of anything but discarded events and packets, or prints times that step back.
#[must_use]
pub fn read(directory: &Path) -> Read {
    let mut read = read_all(directory);
    read.events.retain(|event| !is_module_event(&event.name));
    read
}

/// The events about the modules of processes, see `docs/reference/ctf.md`.
///
/// # Panics
/// Like [`read`].
#[must_use]
pub fn modules(directory: &Path) -> Vec<Printed> {
    let mut events = read_all(directory).events;
    events.retain(|event| is_module_event(&event.name));
    events
}

/// Reads all traces below `directory` with the filter that finds the symbols of `ip`: by the
/// system's `babeltrace2`, and by the newer one of the tests.
///
/// # Panics
/// If one of them fails.
#[must_use]
pub fn with_debug_info(directory: &Path) -> [Vec<Printed>; 2] {
    [Command::new("babeltrace2"), tools::babeltrace()].map(|mut command| {
        command.args(["--clock-seconds", "--no-delta", "--debug-info"]);
        let output = command.arg(directory).output().expect("babeltrace2 runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {stderr}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let events = stdout.lines().filter_map(parse);
        events
            .filter(|event| !is_module_event(&event.name))
            .collect()
    })
}

fn read_all(directory: &Path) -> Read {
    let (stdout, stderr) = run(&["--clock-seconds", "--no-delta"], directory, None);
    let (discarded, discarded_packets) = discarded(&stderr);
    let mut events: Vec<Printed> = Vec::new();
    for line in String::from_utf8_lossy(&stdout).lines() {
        let event = parse(line).unwrap_or_else(|| panic!("not an event: {line}"));
        let last = events.last().map_or(0, |event| event.time);
        assert!(event.time >= last, "{line} after {last}");
        events.push(event);
    }
    Read {
        events,
        discarded,
        discarded_packets,
    }
}

/// Reads all traces below `directory`, merged by time, without the events about modules. Without
/// any trace, the result is empty; `babeltrace2` would fail.
///
/// # Panics
/// If it fails, or warns of anything but discarded events and packets.
#[must_use]
pub fn lines(directory: &Path) -> Lines {
    if !has_trace(directory) {
        return Lines::default();
    }
    let (stdout, stderr) = run(&["--clock-seconds"], directory, None);
    let (discarded, discarded_packets) = discarded(&stderr);
    let stdout = String::from_utf8_lossy(&stdout);
    Lines {
        lines: program_events(&stdout).map(str::to_owned).collect(),
        discarded,
        discarded_packets,
    }
}

/// The lines about events of programs.
fn program_events(stdout: &str) -> impl Iterator<Item = &str> {
    stdout.lines().filter(|line| !is_about_modules(line))
}

/// Whether a line that `babeltrace2` printed is an event about modules.
pub(crate) fn is_about_modules(line: &str) -> bool {
    let name = line
        .split_once(": {")
        .and_then(|(head, _)| head.rsplit(' ').next());
    name.is_some_and(is_module_event)
}

/// Whether there is a trace in a directory or below.
pub fn has_trace(directory: &Path) -> bool {
    let entries = || std::fs::read_dir(directory).unwrap();
    directory.join("metadata").exists()
        || entries()
            .map(|entry| entry.unwrap().path())
            .any(|path| path.is_dir() && has_trace(&path))
}

/// The standard output, without events about modules, and standard error in this time zone. Only
/// control characters of two bytes are escaped.
///
/// # Panics
/// If it fails.
#[must_use]
pub fn printed(directory: &Path, zone: &str) -> (Vec<u8>, String) {
    let (stdout, stderr) = run(&[], directory, Some(zone));
    let lines = stdout.split_inclusive(|&byte| byte == b'\n');
    let kept = lines.filter(|line| {
        program_events(&String::from_utf8_lossy(line))
            .next()
            .is_some()
    });
    (
        escaped(&kept.flatten().copied().collect::<Vec<_>>()),
        stderr,
    )
}

/// Escapes control characters U+0080 to U+009F as `usertrace view` does. `babeltrace2` prints them,
/// and a terminal may obey them.
pub fn escaped(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match bytes.peek() {
            Some(second @ 0x80..=0x9f) if byte == 0xc2 => {
                escaped.extend(format!("\\xc2\\x{second:02x}").bytes());
                bytes.next();
            }
            _ => escaped.push(byte),
        }
    }
    escaped
}

/// Parses a line: `[TIME] [HOST ]NAME: FIELDS`.
fn parse(line: &str) -> Option<Printed> {
    let (time, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let (seconds, nanoseconds) = time.split_once('.')?;
    let (head, fields) = rest.split_once(": {")?;
    let name = head.rsplit(' ').next()?;
    Some(Printed {
        time: seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?,
        name: name.to_owned(),
        fields: format!("{{{fields}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let event =
            parse("[7.000000123] host test:numbered: { cpu_id = 1 }, { thread = 7, number = 42 }")
                .unwrap();
        assert_eq!((event.time, event.numbered()), (7_000_000_123, (7, 42)));
        assert_eq!(event.field("cpu_id"), 1);
        let event = parse("[0.1] a:b: { cpu_id = 0 }, { in_ptr = 0x0, ptr = 0xAb1, s = \"x y\" }");
        let event = event.unwrap();
        assert_eq!((event.address("ptr"), event.address("in_ptr")), (0xab1, 0));
        assert_eq!(event.text("s"), "x y");
        assert_eq!(parse("warning"), None);
    }
}
