//! The picture: a bar for each way to write an event, by payload.

use std::fmt::Write;

use crate::targets::{LAYER, PER_CPU};
use crate::{Event, EventWriter, Results};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 16.0;
const GAP: f64 = 5.0;
const GROUP: f64 = 34.0;
const TOP: f64 = 64.0;

/// `docs/bench/results.svg`: nanoseconds of an event of one thread.
///
/// It has a ground of its own, so that it is legible on any; who prefers a dark one gets that.
#[must_use]
pub fn picture(results: &Results) -> String {
    let groups: Vec<(&str, Vec<&Event>)> = payloads(results)
        .into_iter()
        .map(|payload| (payload, bars(results, payload)))
        .collect();
    let longest = groups
        .iter()
        .flat_map(|(_, bars)| bars)
        .map(|event| event.ns)
        .fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / longest;
    let mut body = String::new();
    let mut y = TOP;
    // Writing to a String cannot fail.
    for (payload, bars) in &groups {
        let _ = writeln!(
            body,
            r#"<text class="payload" x="16" y="{:.0}">{}</text>"#,
            y + 13.0,
            escaped(payload)
        );
        y += BAR + GAP;
        for event in bars {
            let (class, name) = label(event);
            let width = (event.ns * scale).max(1.0);
            let _ = writeln!(
                body,
                r#"<text class="name" x="{:.0}" y="{:.0}">{}</text><rect class="{class}" x="{LEFT}" y="{y:.0}" width="{width:.1}" height="{BAR}"/><text class="value" x="{:.1}" y="{:.0}">{:.1}</text>"#,
                LEFT - 8.0,
                y + 12.5,
                escaped(&name),
                LEFT + width + 6.0,
                y + 12.5,
                event.ns
            );
            y += BAR + GAP;
        }
        y += GROUP - BAR - GAP;
    }
    let height = y + 8.0;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="Nanoseconds of one event">
<style>
.ground {{ fill: #ffffff; }}
text {{ font: 13px system-ui, sans-serif; fill: #24292f; }}
.title {{ font-size: 17px; font-weight: 600; }}
.payload {{ font-weight: 600; }}
.name {{ text-anchor: end; }}
.floor {{ fill: #8c959f; }}
.usertrace {{ fill: #1a7f37; }}
.lttng {{ fill: #bf5b04; }}
@media (prefers-color-scheme: dark) {{
.ground {{ fill: #0d1117; }}
text {{ fill: #e6edf3; }}
.usertrace {{ fill: #3fb950; }}
.lttng {{ fill: #db8b3a; }}
}}
</style>
<path class="ground" d="M0 0h{WIDTH}v{height:.0}H0z"/>
<text class="title" x="16" y="28">Nanoseconds of one event, one thread</text>
<text x="16" y="48">{}, {}</text>
{body}</svg>
"#,
        escaped(&results.machine.processor),
        results.date
    )
}

/// The payloads, in the order in which they were measured.
fn payloads(results: &Results) -> Vec<&str> {
    let mut payloads: Vec<&str> = Vec::new();
    for event in &results.events.events {
        if !payloads.contains(&event.payload.as_str()) {
            payloads.push(&event.payload);
        }
    }
    payloads
}

/// The floor, ours, and LTTng-UST in each of its configurations.
fn bars<'a>(results: &'a Results, payload: &str) -> Vec<&'a Event> {
    let rows = results.events.events.iter();
    let mut bars: Vec<&Event> = rows
        .filter(|event| event.payload == payload && event.threads == 1)
        .filter(|event| match event.who {
            EventWriter::Floor => true,
            EventWriter::Usertrace => event.how == PER_CPU || event.how == LAYER,
            EventWriter::Lttng => !event.how.contains("sessions"),
            // Its bars would leave no room for the others.
            EventWriter::Tracing | EventWriter::Branch => false,
        })
        .collect();
    bars.sort_by_key(|event| event.who);
    bars
}

fn label(event: &Event) -> (&'static str, String) {
    match event.who {
        EventWriter::Floor | EventWriter::Tracing | EventWriter::Branch => {
            ("floor", "floor".into())
        }
        EventWriter::Usertrace if event.how == LAYER => {
            ("usertrace", format!("usertrace, {LAYER}"))
        }
        EventWriter::Usertrace => ("usertrace", "usertrace".into()),
        EventWriter::Lttng => ("lttng", format!("LTTng-UST, {}", event.how)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Events, Machine};

    /// Some results.
    pub(crate) fn some() -> Results {
        let event = |who, how: &str, floors, ours| Event {
            who,
            how: how.into(),
            payload: "32 bytes".into(),
            threads: 1,
            ns: 10.0 * floors,
            quartiles: [9.0 * floors, 11.0 * floors],
            floors,
            ours,
        };
        Results {
            date: "2026-01-02".into(),
            machine: Machine {
                processor: "a < b".into(),
                processors: 2,
                virtualised: None,
                kernel: String::new(),
                libc: String::new(),
                rustc: String::new(),
                lttng: None,
            },
            events: Events {
                events: vec![
                    event(EventWriter::Floor, "", 1.0, 0.9),
                    event(EventWriter::Usertrace, PER_CPU, 1.1, 1.0),
                    event(EventWriter::Lttng, "discard", 9.9, 9.0),
                    event(EventWriter::Lttng, "overwrite", 11.0, 10.0),
                ],
                ..Events::default()
            },
            instructions: None,
            start_up: None,
            to_disk: None,
        }
    }

    #[test]
    fn each_has_a_bar_of_its_length() {
        let picture = picture(&some());
        assert_eq!(picture.matches("<rect ").count(), 4);
        let full = WIDTH - LEFT - RIGHT;
        assert!(
            picture.contains(&format!(r#"width="{full:.1}""#)),
            "{picture}"
        );
        assert!(
            picture.contains(&format!(r#"width="{:.1}""#, full / 11.0)),
            "{picture}"
        );
        assert!(picture.contains("a &lt; b"));
    }
}
