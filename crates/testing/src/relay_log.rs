//! Reads the log of `lttng-relayd -v`: which streams it has, and how far live viewers read them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// Requests of viewers, as the log names them.
const REQUESTS: [&str; 3] = [
    "Get new streams received",
    "Relay get metadata",
    "Viewer get next index",
];
/// Last lines of the log in which requests are counted: a viewer that asks in a loop fills them.
const LAST: usize = 10_000;

/// A stream that a sender has added to the relay.
#[derive(Debug, Default)]
struct Stream {
    /// Directory of its trace, and its name.
    path: String,
    /// The relay has told a viewer of it.
    is_known: bool,
    /// Packets that the relay has.
    packets: u64,
    /// Packets whose indexes the viewer got.
    read: u64,
    /// Bytes of metadata that the viewer got.
    metadata: u64,
}

/// Describes the streams of a session of a host, and what viewers ask.
pub(crate) fn describe(log: &str, host: &str, session: &str) -> String {
    let streams = streams(log, host, session);
    let mut text = format!("the relay has {} streams of it:", streams.len());
    for (id, of) in &streams {
        let path = &of.path;
        let is_known = match of.is_known {
            true => "known to the viewer",
            false => "unknown to the viewer",
        };
        let read = match path.ends_with("/metadata") {
            true => format!("{} bytes read", of.metadata),
            false => format!("{} of {} packets read", of.read, of.packets),
        };
        // A string takes everything.
        let _ = write!(text, "\n  {id} {path}: {is_known}, {read}");
    }
    let last: Vec<_> = log.lines().rev().take(LAST).collect();
    for request in REQUESTS {
        let count = last.iter().filter(|line| line.contains(request)).count();
        let _ = write!(text, "\n{count} times {request:?} in the last {LAST} lines");
    }
    text
}

/// The streams of a session, by their ids.
fn streams(log: &str, host: &str, session: &str) -> BTreeMap<u64, Stream> {
    let mut streams = BTreeMap::<u64, Stream>::new();
    let mut traces = HashMap::new();
    // By thread: one opens the file of a stream just before it adds that.
    let mut opened = HashMap::new();
    for line in log.lines() {
        let Some((head, text)) = line.split_once("]: ") else {
            continue;
        };
        let thread = head.rsplit('/').next().unwrap_or_default();
        let number = |key: &str| {
            let (_, rest) = text.split_once(key)?;
            let word = rest.split([' ', ':', ',']).next()?;
            word.parse::<u64>().ok()
        };
        let known = |key: &str| number(key).filter(|id| streams.contains_key(id));
        if text.starts_with("Created ctf_trace") {
            let is_its = text.contains(&format!("of session \"{session}\" from host \"{host}\""));
            let path = text.split_once("with path: ").map_or("", |(_, path)| path);
            let path = path.split(' ').next().unwrap_or_default();
            traces.insert(path, is_its);
        } else if let Some(rest) = text.strip_prefix("Opening trace chunk file \"") {
            opened.insert(thread, rest.split('"').next().unwrap_or_default());
        } else if text.starts_with("Relay new stream added") {
            let path = opened.get(thread).copied().unwrap_or_default();
            let trace = path.rsplit_once('/').map_or("", |(trace, _)| trace);
            if let (Some(id), Some(true)) = (number("with ID "), traces.get(trace)) {
                let stream = streams.entry(id).or_default();
                path.clone_into(&mut stream.path);
            }
        } else if let Some(id) = known("Sending stream ") {
            streams.entry(id).or_default().is_known = true;
        } else if let Some(id) = known("handle_index_data: stream ") {
            streams.entry(id).or_default().packets += 1;
        } else if let Some(id) = known("Sending viewer index for stream ") {
            streams.entry(id).or_default().read += 1;
        } else if let Some(id) = known("bytes of metadata for stream ") {
            streams.entry(id).or_default().metadata += number("Sent ").unwrap_or_default();
        }
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_session_are_described() {
        let lines = [
            "8]: Created ctf_trace 1 of session \"web\" from host \"host1\" with path: c/a (in x())",
            "8]: Created ctf_trace 2 of session \"db\" from host \"host1\" with path: c/b (in x())",
            "8]: Opening trace chunk file \"c/a/metadata\" (in x())",
            "8]: Relay new stream added metadata with ID 4 (in x())",
            "8]: Opening trace chunk file \"c/a/main_0\" (in x())",
            "9]: Opening trace chunk file \"c/b/main_0\" (in x())",
            "8]: Relay new stream added main_0 with ID 5 (in x())",
            "9]: Relay new stream added main_0 with ID 6 (in x())",
            "9]: Sending stream 4 to viewer (in x())",
            "9]: Sent 5142 bytes of metadata for stream 4 (in x())",
            "8]: handle_index_data: stream 5 net_seq_num 0 data offset 0 (in x())",
            "9]: Get new streams received (in x())",
        ];
        let lines = lines.map(|line| format!("DBG1 - 17:33:32.3 [1/{line}\n"));
        let text = describe(&lines.concat(), "host1", "web");
        let expected = "the relay has 2 streams of it:\n  \
            4 c/a/metadata: known to the viewer, 5142 bytes read\n  \
            5 c/a/main_0: unknown to the viewer, 0 of 1 packets read\n\
            1 times \"Get new streams received\" in the last 10000 lines\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
