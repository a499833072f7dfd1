//! The relation of two clocks, as messages between their hosts limit it.
//!
//! A message is received after it was sent. With times of one clock on the x axis and those of the
//! other clock on the y axis, the true relation is a line below all points of messages in one
//! direction, and above those in the other direction (Duda et al., "Estimating global time in
//! distributed systems", 1987). The slopes and heights of all such lines are a convex region. The
//! fit is the line in its middle, and the error is how far any other one of them is away.
//!
//! Trace Compass does the same (Poirier, Roy, Dagenais, "Accurate offline synchronization of
//! distributed traces using kernel-level events", 2010). There, the steepest and the flattest line
//! must both touch a point of each direction. Here, the clocks of computers limit the slope as
//! well: so a single message in each direction is enough for an error that is finite.

use super::hull::{Hull, Point};
use crate::correction::Correction;

/// Largest difference in speed of two clocks, unless the messages show a larger one. Crystals
/// differ by some 100 ppm, and a kernel may be wrong about a frequency by as much again.
const DRIFT: f64 = 1e-3;
/// The largest difference that a message can show.
const MAX_DRIFT: f64 = 0.45;
/// Time in ns from a message's sending to its receiving that a fit tries to keep. After rounding,
/// at least a nanosecond is left of it.
pub(super) const MARGIN: f64 = 4.0;
/// Largest distance from the first point, about 36 years.
const MAX_DISTANCE: i64 = 1 << 60;

/// Messages between two hosts.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    /// Time and difference of the first point.
    base: Option<(i64, i128)>,
    /// Messages from the host of the x axis, and to it.
    from: Hull,
    to: Hull,
    pub(super) nr_from: u64,
    pub(super) nr_to: u64,
    /// Messages that are too far from the first one.
    pub(super) too_far: u64,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            base: None,
            from: Hull::above(),
            to: Hull::below(),
            nr_from: 0,
            nr_to: 0,
            too_far: 0,
        }
    }
}

impl Messages {
    /// Adds a message. `x` and `y` are the times of both clocks when it was sent and received.
    pub(super) fn add(&mut self, x: i64, y: i64, is_from_x: bool) {
        let difference = i128::from(y) - i128::from(x);
        let base = *self.base.get_or_insert((x, difference));
        let near = |number: i128| {
            let number = i64::try_from(number).ok()?;
            (-MAX_DISTANCE..=MAX_DISTANCE)
                .contains(&number)
                .then_some(number)
        };
        let time = near(i128::from(x) - i128::from(base.0));
        let Some(point) = time.zip(near(difference - base.1)) else {
            self.too_far += 1;
            return;
        };
        if is_from_x {
            self.nr_from += 1;
            self.from.add(point);
        } else {
            self.nr_to += 1;
            self.to.add(point);
        }
    }

    /// Number of messages.
    pub(super) fn count(&self) -> u64 {
        self.nr_from + self.nr_to
    }

    /// Drops the points that limit nothing.
    pub(super) fn reduce(&mut self) {
        self.from.reduce();
        self.to.reduce();
    }

    /// Times `x` and `y` of the messages that limit the relation, and their direction.
    pub(super) fn limits(&self) -> impl Iterator<Item = (i64, i64, bool)> {
        let (x0, difference0) = self.base.unwrap_or_default();
        let absolute = move |&(time, difference): &Point| {
            // These are the times that were added.
            let x = i128::from(x0) + i128::from(time);
            (x as i64, (x + difference0 + i128::from(difference)) as i64)
        };
        let from = self.from.points().iter().map(absolute);
        let to = self.to.points().iter().map(absolute);
        from.map(|(x, y)| (x, y, true))
            .chain(to.map(|(x, y)| (x, y, false)))
    }

    /// Finds the relation of the clocks. None without any message.
    pub(super) fn fit(&self) -> Option<Fit> {
        let base = self.base?;
        let (from, to) = (self.from.points(), self.to.points());
        let times = from.iter().chain(to).map(|point| point.0 as f64);
        let ends = times.fold((f64::MAX, f64::MIN), |(a, b), time| {
            (a.min(time), b.max(time))
        });
        let fit = |kind| Fit { base, ends, kind };
        if from.is_empty() || to.is_empty() {
            return Some(fit(Kind::Approximate(self.smallest_offset(base.1))));
        }
        let kind = region(from, to, DRIFT).or_else(|_| region(from, to, MAX_DRIFT));
        Some(fit(match kind {
            Ok(region) => Kind::Accurate(region),
            Err(best) => Kind::Contradictory(best),
        }))
    }

    /// With messages in one direction: the difference nearest to none with which each message is
    /// received after it was sent. It is relative to `base`.
    fn smallest_offset(&self, base: i128) -> f64 {
        let none = -(base as f64);
        let heights = |hull: &Hull| -> Vec<f64> {
            hull.points().iter().map(|point| point.1 as f64).collect()
        };
        let from = heights(&self.from).into_iter().reduce(f64::min);
        let to = heights(&self.to).into_iter().reduce(f64::max);
        match (from, to) {
            (Some(most), _) => none.min(most - MARGIN),
            (None, Some(least)) => none.max(least + MARGIN),
            (None, None) => none,
        }
    }
}

/// The height of the highest line of this slope that is below all points, at time 0.
fn below(points: &[Point], slope: f64) -> f64 {
    let heights = points
        .iter()
        .map(|&(time, difference)| difference as f64 - slope * time as f64);
    heights.fold(f64::INFINITY, f64::min)
}

/// The height of the lowest line of this slope that is above all points, at time 0.
fn above(points: &[Point], slope: f64) -> f64 {
    let heights = points
        .iter()
        .map(|&(time, difference)| difference as f64 - slope * time as f64);
    heights.fold(f64::NEG_INFINITY, f64::max)
}

/// Finds the possible slopes, up to `most`, and heights. If there are none, returns the best one,
/// with which all messages are nearly possible.
fn region(from: &[Point], to: &[Point], most: f64) -> Result<Region, Corner> {
    // A concave function: positive where lines of this slope are possible.
    let room = |slope: f64| below(from, slope) - above(to, slope);
    let (mut low, mut high) = (-most, most);
    for _ in 0..130 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if room(a) < room(b) {
            low = a;
        } else {
            high = b;
        }
    }
    let best = (low + high) / 2.0;
    let corner = |slope| Corner {
        slope,
        most: below(from, slope),
        least: above(to, slope),
    };
    if room(best) < 0.0 {
        return Err(corner(best));
    }
    // The last slope with room towards `end`, and a little more.
    let last = |end: f64| {
        if room(end) >= 0.0 {
            return end;
        }
        let (mut with, mut without) = (best, end);
        for _ in 0..100 {
            let middle = (with + without) / 2.0;
            if room(middle) >= 0.0 {
                with = middle;
            } else {
                without = middle;
            }
        }
        without
    };
    let (flattest, steepest) = (corner(last(-most)), corner(last(most)));
    let mut chosen = corner((flattest.slope + steepest.slope) / 2.0);
    if chosen.most - chosen.least < 2.0 * MARGIN * (1.0 + chosen.slope) {
        chosen = corner(best);
    }
    let margin = MARGIN * (1.0 + chosen.slope);
    let mean = (flattest.most + flattest.least + steepest.most + steepest.least) / 4.0;
    let height = if chosen.most - chosen.least >= 2.0 * margin {
        mean.clamp(chosen.least + margin, chosen.most - margin)
    } else {
        chosen.middle()
    };
    Ok(Region {
        flattest,
        steepest,
        slope: chosen.slope,
        height,
    })
}

/// Heights at time 0 that are possible with a slope.
#[derive(Clone, Copy, Debug)]
struct Corner {
    slope: f64,
    most: f64,
    least: f64,
}

impl Corner {
    fn middle(&self) -> f64 {
        f64::midpoint(self.most, self.least)
    }
}

/// All possible lines, and one in their middle.
#[derive(Clone, Copy, Debug)]
struct Region {
    flattest: Corner,
    steepest: Corner,
    slope: f64,
    height: f64,
}

/// How well two clocks' relation is known.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Messages limit it from both sides.
    Accurate(Region),
    /// There are messages in one direction only. This difference is chosen.
    Approximate(f64),
    /// No relation fits. This is the best one: its least height is above its largest one.
    Contradictory(Corner),
}

/// The relation of two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    base: (i64, i128),
    /// First and last time of a message.
    ends: (f64, f64),
    kind: Kind,
}

impl Fit {
    /// Whether messages limit it from both sides.
    pub(super) fn is_accurate(&self) -> bool {
        matches!(self.kind, Kind::Accurate(_))
    }

    /// If no relation fits: the sum of the times in ns by which a message of each direction is
    /// received too early.
    pub(super) fn contradiction(&self) -> Option<f64> {
        match self.kind {
            Kind::Contradictory(best) => Some(best.least - best.most),
            _ => None,
        }
    }

    /// Converts the other clock's times to those of the clock of the x axis.
    pub(super) fn correction(&self) -> Correction {
        let (slope, height) = match self.kind {
            Kind::Accurate(region) => (region.slope, region.height),
            Kind::Approximate(height) => (0.0, height),
            Kind::Contradictory(best) => (best.slope, best.middle()),
        };
        let from = i128::from(self.base.0) + self.base.1 + height.round() as i128;
        let from = from.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Correction::new(from, self.base.0, -slope / (1.0 + slope))
    }

    /// Largest difference in ns between a relation and any possible one, in a period of the x axis
    /// and of all messages. `y` gives the relation. None if it is unknown.
    pub(super) fn error(&self, (begin, end): (i64, i64), y: impl Fn(i64) -> i64) -> Option<f64> {
        let Kind::Accurate(region) = self.kind else {
            return None;
        };
        let relative = |x: i64| (i128::from(x) - i128::from(self.base.0)) as f64;
        // The difference is convex in time, so it is largest at the ends.
        let first = relative(begin).min(self.ends.0);
        let last = relative(end).max(self.ends.1);
        let (flattest, steepest) = (region.flattest, region.steepest);
        let off = |time: f64, highest: (f64, f64), lowest: (f64, f64)| {
            let x = i128::from(self.base.0) + time as i128;
            let x = x.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            let here = (i128::from(y(x)) - i128::from(x) - self.base.1) as f64;
            let at = |(slope, height): (f64, f64)| slope * time + height;
            (at(highest) - here).max(here - at(lowest))
        };
        let before = off(
            first,
            (flattest.slope, flattest.most),
            (steepest.slope, steepest.least),
        );
        let after = off(
            last,
            (steepest.slope, steepest.most),
            (flattest.slope, flattest.least),
        );
        // Times are rounded by a nanosecond on each side.
        Some(before.max(after).max(0.0) / (1.0 + region.flattest.slope) + 2.0)
    }
}
