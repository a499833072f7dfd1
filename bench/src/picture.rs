//! The picture: what an event of 32 bytes costs, on logarithmic scales.

use std::fmt::Write;

use crate::targets::{LAYER, PAYLOAD, PER_CPU, SHARED, TRACING_PAYLOAD};
use crate::{Counts, Event, EventWriter, Results};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 270.0;
const RIGHT: f64 = 70.0;
const ROW: f64 = 23.0;
const FALLBACK: &str = "per-CPU ring, fallback";

/// A way to write an event, and what it costs.
struct Row {
    class: &'static str,
    name: String,
    value: f64,
    /// Between which half of the measurements are, if there were several.
    quartiles: Option<[f64; 2]>,
}

/// `docs/bench/results.svg`: nanoseconds of an event of one thread, and instructions.
///
/// It has a ground of its own, so that it is legible on any. A reader who prefers a dark one gets
/// that.
#[must_use]
pub fn picture(results: &Results) -> String {
    let mut body = String::new();
    let mut y = 76.0;
    let native = native(results);
    y = chart(&mut body, y, "Nanoseconds, natively", &native, "ns");
    if let Some(counts) = &results.instructions {
        y = chart(
            &mut body,
            y + 22.0,
            "Instructions, with the kernel's, counted in a guest",
            &counted(counts),
            "instructions",
        );
    }
    for line in notes(results) {
        y += 18.0;
        let _ = writeln!(
            body,
            r#"<text class="note" x="16" y="{y:.0}">{line}</text>"#
        );
    }
    let height = y + 16.0;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="Nanoseconds and instructions of one event of 32 bytes">
<style>
.ground {{ fill: #ffffff; }}
text {{ font: 13px system-ui, sans-serif; fill: #24292f; }}
.title {{ font-size: 17px; font-weight: 600; }}
.unit {{ font-weight: 600; }}
.note, .tick {{ font-size: 11px; }}
.name {{ text-anchor: end; }}
.tick {{ text-anchor: middle; }}
.grid {{ stroke: #d0d7de; }}
line {{ stroke-width: 1; }}
.spread {{ stroke-width: 5; stroke-opacity: 0.45; }}
.floor {{ fill: #6e7781; stroke: #6e7781; }}
.usertrace {{ fill: #1a7f37; stroke: #1a7f37; }}
.lttng {{ fill: #bf5b04; stroke: #bf5b04; }}
.other {{ fill: #0969da; stroke: #0969da; }}
@media (prefers-color-scheme: dark) {{
.ground {{ fill: #0d1117; }}
text {{ fill: #e6edf3; }}
.grid {{ stroke: #30363d; }}
.floor {{ fill: #8c959f; stroke: #8c959f; }}
.usertrace {{ fill: #3fb950; stroke: #3fb950; }}
.lttng {{ fill: #db8b3a; stroke: #db8b3a; }}
.other {{ fill: #58a6ff; stroke: #58a6ff; }}
}}
</style>
<path class="ground" d="M0 0h{WIDTH}v{height:.0}H0z"/>
<text class="title" x="16" y="28">One event of 32 bytes, one thread (logarithmic scales)</text>
<text x="16" y="48">{}, {}</text>
{body}</svg>
"#,
        escaped(&results.machine.processor),
        results.date
    )
}

/// The rows of one native run.
fn native(results: &Results) -> Vec<Row> {
    let rows = &results.events.events;
    let find = |who, how: &str, payload: &str| {
        let is_it = |event: &&Event| {
            event.who == who && event.how == how && event.payload == payload && event.threads == 1
        };
        rows.iter().find(is_it)
    };
    let mut found: Vec<_> = [
        (
            "floor",
            "floor: time stamp and stores",
            find(EventWriter::Floor, "", PAYLOAD),
        ),
        (
            "usertrace",
            "usertrace",
            find(EventWriter::Usertrace, PER_CPU, PAYLOAD),
        ),
        (
            "usertrace",
            "usertrace, fallback",
            find(EventWriter::Usertrace, FALLBACK, PAYLOAD),
        ),
        (
            "usertrace",
            "usertrace, fallback, shared ring",
            find(EventWriter::Usertrace, SHARED, PAYLOAD),
        ),
    ]
    .into_iter()
    .filter_map(|(class, name, event)| Some(row(class, name.to_owned(), event?)))
    .collect();
    let lttng = rows.iter().filter(|event| {
        let is_usual = event.payload == PAYLOAD && event.threads == 1;
        event.who == EventWriter::Lttng && is_usual && !event.how.contains("sessions")
    });
    found.extend(lttng.map(|event| row("lttng", format!("LTTng-UST, {}", event.how), event)));
    let layer = find(EventWriter::Usertrace, LAYER, TRACING_PAYLOAD);
    found.extend(layer.map(|event| row("usertrace", format!("usertrace, {LAYER} *"), event)));
    let tracing = rows
        .iter()
        .find(|event| event.who == EventWriter::Tracing && event.threads == 1);
    found.extend(tracing.map(|event| row("other", format!("`tracing`, {} *", event.how), event)));
    found
}

fn row(class: &'static str, name: String, event: &Event) -> Row {
    Row {
        class,
        name,
        value: event.ns,
        quartiles: Some(event.quartiles),
    }
}

/// The rows of the instruction counts of the guest.
fn counted(counts: &Counts) -> Vec<Row> {
    [
        ("floor", "floor: time stamp and stores", counts.floor),
        ("usertrace", "usertrace, kernel's buffers", counts.ours),
        ("other", "user_events, one write()", counts.user_events),
        ("other", "uprobe", counts.uprobe),
    ]
    .into_iter()
    .map(|(class, name, value)| Row {
        class,
        name: name.to_owned(),
        value,
        quartiles: None,
    })
    .collect()
}

/// The notes below the picture.
fn notes(results: &Results) -> Vec<&'static str> {
    let mut notes = vec![
        "Dots are medians, bars go from the first to the third quartile. A stand-in takes the kernel's place natively.",
        "* With a payload of 8 bytes and a text of 20.",
    ];
    notes.push(match &results.instructions {
        Some(_) => {
            "user_events and uprobes have counts only: the guest is emulated, and times in it mean nothing."
        }
        None => "user_events and uprobes were not measured.",
    });
    notes
}

/// Draws rows below each other, and gives where they end.
fn chart(body: &mut String, top: f64, title: &str, rows: &[Row], unit: &str) -> f64 {
    let ends = |row: &Row| row.quartiles.unwrap_or([row.value; 2]);
    let least = rows.iter().map(|row| ends(row)[0]).fold(f64::MAX, f64::min);
    let most = rows.iter().map(|row| ends(row)[1]).fold(1.0, f64::max);
    // Whole powers of ten.
    let low = least.max(1.0).log10().floor();
    let high = most.log10().ceil().max(low + 1.0);
    let x =
        |value: f64| LEFT + (value.max(1.0).log10() - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        r#"<text class="unit" x="16" y="{top:.0}">{title}</text>"#
    );
    let bottom = top + 14.0 + ROW * rows.len() as f64;
    let mut power = low;
    while power <= high {
        let value = 10f64.powf(power);
        let _ = writeln!(
            body,
            r#"<line class="grid" x1="{0:.1}" x2="{0:.1}" y1="{1:.0}" y2="{2:.0}"/><text class="tick" x="{0:.1}" y="{3:.0}">{value:.0}</text>"#,
            x(value),
            top + 10.0,
            bottom,
            bottom + 14.0
        );
        power += 1.0;
    }
    let digits = usize::from(unit == "ns");
    for (number, row) in rows.iter().enumerate() {
        let y = top + 14.0 + ROW * (number as f64 + 0.5);
        let [from, to] = ends(row).map(x);
        let _ = writeln!(
            body,
            r#"<text class="name" x="{:.0}" y="{:.1}">{}</text>"#,
            LEFT - 10.0,
            y + 4.5,
            escaped(&row.name)
        );
        if row.quartiles.is_some() {
            let _ = writeln!(
                body,
                r#"<line class="spread {}" x1="{from:.1}" x2="{to:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
                row.class
            );
        }
        let _ = writeln!(
            body,
            r#"<circle class="{}" cx="{:.1}" cy="{y:.1}" r="4"/><text class="value" x="{:.1}" y="{:.1}">{:.digits$}</text>"#,
            row.class,
            x(row.value),
            to + 10.0,
            y + 4.5,
            row.value
        );
    }
    bottom + 18.0
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
            wrapped: None,
            redis: None,
            readers: None,
        }
    }

    #[test]
    fn each_has_a_dot_on_a_logarithmic_scale() {
        let picture = picture(&some());
        assert_eq!(picture.matches("<circle ").count(), 4);
        assert_eq!(picture.matches(r#"class="spread "#).count(), 4);
        // From 1 to 1000 ns: 11 are a bit more than a third.
        let full = WIDTH - LEFT - RIGHT;
        let expected = LEFT + 11f64.log10() / 3.0 * full;
        assert!(
            picture.contains(&format!(r#"cx="{expected:.1}""#)),
            "{picture}"
        );
        assert!(picture.contains("a &lt; b"));
        assert!(picture.contains("uprobes were not measured"));
    }
}
