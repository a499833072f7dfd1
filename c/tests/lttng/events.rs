//! Events as `babeltrace2` shows them, without what differs from run to run.

use std::path::Path;
use std::process::Command;

use crate::installed::succeed;

/// The events of a trace that are not LTTng-UST's own: level, name, and fields.
pub(crate) fn events(trace: &Path) -> Vec<String> {
    let output = Command::new("babeltrace2")
        .args(["--fields=loglevel"])
        .arg(trace)
        .output()
        .unwrap();
    let text = succeed(&output);
    let events = text.lines().map(event);
    events
        .filter(|event| !event.contains(" lttng_ust_statedump:"))
        .collect()
}

/// `[TIME] (+DELTA) LEVEL (NUMBER) NAME: { cpu_id = 0 }, { FIELDS }`
fn event(line: &str) -> String {
    let (before, fields) = line.split_once(" { cpu_id = ").expect(line);
    let (_, fields) = fields.split_once("}, ").expect(line);
    let (before, name) = before.rsplit_once(' ').expect(line);
    let (_, level) = before.rsplit_once('(').expect(line);
    format!("({level} {name} {fields}")
}
