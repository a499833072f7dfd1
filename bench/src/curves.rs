//! A picture of small charts, with a curve for each number of processors.

use std::fmt::Write;

/// A small chart: its title, its unit, and its lines, which have a name and points.
pub(crate) struct Chart {
    pub title: String,
    pub unit: &'static str,
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

const COLUMNS: usize = 3;
const WIDTH: f64 = 290.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 26.0;
const HEADER: f64 = 64.0;

/// Draws the charts below a title. The horizontal scale is logarithmic, the vertical one begins
/// at 0: a flat curve is a cost that does not grow.
pub(crate) fn curves(title: &str, charts: &[Chart]) -> String {
    let mut body = String::new();
    for (number, chart) in charts.iter().enumerate() {
        let x = (number % COLUMNS) as f64 * WIDTH;
        let y = HEADER + (number / COLUMNS) as f64 * HEIGHT;
        draw(&mut body, chart, x, y);
    }
    let names = charts.first().map_or(&[][..], |chart| &chart.lines[..]);
    for (number, (name, _)) in names.iter().enumerate() {
        let x = 16.0 + 90.0 * number as f64;
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            r#"<circle class="line{number}" cx="{x}" cy="46" r="4"/><text x="{}" y="50">{name}</text>"#,
            x + 8.0
        );
    }
    let width = WIDTH * COLUMNS as f64;
    let height = HEADER + HEIGHT * charts.len().div_ceil(COLUMNS) as f64 + 8.0;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">
<style>
.ground {{ fill: #ffffff; }}
text {{ font: 12px system-ui, sans-serif; fill: #24292f; }}
.title {{ font-size: 17px; font-weight: 600; }}
.name {{ font-weight: 600; }}
.tick {{ font-size: 10px; }}
.middle {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
.grid {{ stroke: #d0d7de; }}
polyline {{ fill: none; stroke-width: 2; }}
.line0 {{ stroke: #1a7f37; }} circle.line0 {{ fill: #1a7f37; }}
.line1 {{ stroke: #0969da; }} circle.line1 {{ fill: #0969da; }}
.line2 {{ stroke: #bf5b04; }} circle.line2 {{ fill: #bf5b04; }}
@media (prefers-color-scheme: dark) {{
.ground {{ fill: #0d1117; }}
text {{ fill: #e6edf3; }}
.grid {{ stroke: #30363d; }}
.line0 {{ stroke: #3fb950; }} circle.line0 {{ fill: #3fb950; }}
.line1 {{ stroke: #58a6ff; }} circle.line1 {{ fill: #58a6ff; }}
.line2 {{ stroke: #db8b3a; }} circle.line2 {{ fill: #db8b3a; }}
}}
</style>
<path class="ground" d="M0 0h{width}v{height}H0z"/>
<text class="title" x="16" y="28">{title}</text>
{body}</svg>
"#
    )
}

fn draw(body: &mut String, chart: &Chart, left: f64, top: f64) {
    let points = || chart.lines.iter().flat_map(|(_, points)| points);
    let most = points()
        .map(|point| point.1)
        .fold(f64::MIN_POSITIVE, f64::max);
    let end = round_up(most);
    let last = points().map(|point| point.0).fold(10.0, f64::max);
    let x =
        |value: f64| left + LEFT + value.max(1.0).log10() / last.log10() * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| top + HEIGHT - BOTTOM - value / end * (HEIGHT - TOP - BOTTOM);
    let _ = writeln!(
        body,
        r#"<text class="name" x="{0}" y="{1}">{2}</text><text class="tick" x="{0}" y="{3}">{4}</text>"#,
        left + 16.0,
        top + 20.0,
        chart.title,
        top + 34.0,
        chart.unit
    );
    for value in [0.0, end / 2.0, end] {
        let _ = writeln!(
            body,
            r#"<line class="grid" x1="{:.1}" x2="{:.1}" y1="{2:.1}" y2="{2:.1}"/><text class="tick end" x="{3:.1}" y="{4:.1}">{value}</text>"#,
            left + LEFT,
            left + WIDTH - RIGHT,
            y(value),
            left + LEFT - 5.0,
            y(value) + 3.5
        );
    }
    let mut counts: Vec<f64> = points().map(|point| point.0).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    for count in counts {
        let _ = writeln!(
            body,
            r#"<text class="tick middle" x="{:.1}" y="{:.1}">{count}</text>"#,
            x(count),
            top + HEIGHT - BOTTOM + 14.0
        );
    }
    for (number, (_, points)) in chart.lines.iter().enumerate() {
        let mut path = String::new();
        for point in points {
            let (x, y) = (x(point.0), y(point.1));
            let _ = write!(path, "{x:.1},{y:.1} ");
            let _ = writeln!(
                body,
                r#"<circle class="line{number}" cx="{x:.1}" cy="{y:.1}" r="3"/>"#
            );
        }
        let _ = writeln!(
            body,
            r#"<polyline class="line{number}" points="{}"/>"#,
            path.trim_end()
        );
    }
}

/// The next number with one digit, or 1.5 or 2.5 of that size, that is not smaller.
fn round_up(value: f64) -> f64 {
    let size = 10f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|factor| factor * size)
        .find(|&end| end >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_cost_is_a_flat_curve() {
        let chart = Chart {
            title: "start".into(),
            unit: "instructions",
            lines: vec![(
                "1 CPUs".into(),
                vec![(1.0, 80.0), (100.0, 80.0), (10_000.0, 40.0)],
            )],
        };
        let picture = curves("costs", &[chart]);
        let points = picture.split_once(r#"points=""#).expect("a curve").1;
        let points = points.split_once('"').expect("its end").0;
        let ys: Vec<_> = points
            .split(' ')
            .filter_map(|point| point.split_once(','))
            .collect();
        // 80 of 80 at the top, half of it in the middle; four decades from left to right.
        assert_eq!(ys[0], ("56.0", "110.0"));
        assert_eq!(ys[1].1, "110.0");
        assert_eq!(ys[2], ("276.0", "169.0"));
    }

    #[test]
    fn scales_end_at_round_numbers() {
        for (value, end) in [
            (0.7, 0.8),
            (1.0, 1.0),
            (66.0, 80.0),
            (1201.0, 1500.0),
            (9.1e5, 1e6),
        ] {
            assert!((round_up(value) - end).abs() < end / 1e6, "{value}");
        }
    }
}
