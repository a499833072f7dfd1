//! Counters as OpenMetrics text (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::fmt::Write as _;

use usertrace_reader::Counter;
use usertrace_sys::count::highest_of_bucket;

/// Name and help of a metric, and its value.
type Gauge = (&'static str, &'static str, fn(&Counter) -> i64);

/// Formats counters, and the number of events that were not counted.
pub(super) fn text(counters: &[Counter], lost: u64) -> String {
    let mut text = String::new();
    let (overflow, known): (Vec<&Counter>, Vec<_>) =
        counters.iter().partition(|counter| counter.is_overflow());
    let with_values = || known.iter().filter(|counter| counter.values > 0);
    begin(&mut text, "usertrace_events", "counter", "Events.");
    for counter in &known {
        let labels = labels(counter);
        let _ = writeln!(text, "usertrace_events_total{{{labels}}} {}", counter.count);
    }
    if with_values().next().is_some() {
        begin(
            &mut text,
            "usertrace_value",
            "histogram",
            "Values of a field of events.",
        );
        with_values().for_each(|counter| histogram(&mut text, counter));
        let gauges: [Gauge; 2] = [
            ("usertrace_value_min", "Lowest value of a field.", |of| {
                of.min
            }),
            ("usertrace_value_max", "Highest value of a field.", |of| {
                of.max
            }),
        ];
        for (name, help, value) in gauges {
            begin(&mut text, name, "gauge", help);
            for counter in with_values() {
                let _ = writeln!(text, "{name}{{{}}} {}", labels(counter), value(counter));
            }
        }
    }
    if !overflow.is_empty() {
        let name = "usertrace_overflow_events";
        begin(
            &mut text,
            name,
            "counter",
            "Events without room in a table.",
        );
        for counter in overflow {
            let _ = writeln!(
                text,
                "{name}_total{{{}}} {}",
                labels(counter),
                counter.count
            );
        }
    }
    let name = "usertrace_uncounted_events";
    begin(&mut text, name, "counter", "Events that were not counted.");
    let _ = writeln!(text, "{name}_total {lost}");
    text + "# EOF\n"
}

/// Begins a family of metrics.
fn begin(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
}

/// The labels of a counter. No two counters have the same.
fn labels(counter: &Counter) -> String {
    let labels = [
        ("event", &counter.event),
        ("key_name", &counter.key_name),
        ("key", &counter.key),
        ("value_name", &counter.value_name),
        ("channel", &counter.channel),
    ];
    let used = labels.iter().filter(|(_, value)| !value.is_empty());
    let labels: Vec<_> = used
        .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
        .collect();
    labels.join(",")
}

/// A histogram. The limit of a bucket is the highest integer in it.
fn histogram(text: &mut String, counter: &Counter) {
    let (name, labels) = ("usertrace_value", labels(counter));
    let mut sum = 0u64;
    for (n, bucket) in counter.histogram.iter().enumerate() {
        let Some(highest) = highest_of_bucket(n) else {
            break;
        };
        sum = sum.saturating_add(*bucket);
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{highest}.0\"}} {sum}");
    }
    let _ = writeln!(
        text,
        "{name}_bucket{{{labels},le=\"+Inf\"}} {}",
        counter.values
    );
    // With negative values, the sum would not be a counter. The two go together.
    if counter.min >= 0 {
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", counter.values);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", counter.sum);
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
