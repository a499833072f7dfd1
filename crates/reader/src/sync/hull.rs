//! Convex hulls of limits: those that can touch a line.

/// Points beyond the hull that are kept before they are reduced to the hull again.
const FRESH: usize = 1024;
/// Most points of a hull. Only made up times have more.
const MAX_POINTS: usize = 1 << 14;

/// A point: a time, and the difference of the two clocks. Both are relative to a point of the same
/// pair of hosts, and at most 2^61, so that no product overflows.
pub(super) type Point = (i64, i64);

/// Limits to a line from one side.
#[derive(Clone, Debug)]
pub(super) struct Hull {
    /// The line is below the points.
    is_above: bool,
    points: Vec<Point>,
    /// Number of points at which they are reduced to the hull.
    reduce_at: usize,
}

impl Hull {
    pub(super) fn above() -> Self {
        Self {
            is_above: true,
            points: Vec::new(),
            reduce_at: FRESH,
        }
    }

    pub(super) fn below() -> Self {
        Self {
            is_above: false,
            ..Self::above()
        }
    }

    /// The points that limit the line, and perhaps some that do not.
    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    pub(super) fn add(&mut self, point: Point) {
        self.points.push(point);
        if self.points.len() >= self.reduce_at {
            self.reduce();
        }
    }

    /// Drops the points that limit no line.
    pub(super) fn reduce(&mut self) {
        let side = |(time, difference): Point| match self.is_above {
            true => (time, difference),
            false => (time, -difference),
        };
        let mut points: Vec<Point> = self.points.iter().copied().map(side).collect();
        points.sort_unstable();
        // Of the points at one time, the lowest one counts.
        points.dedup_by_key(|point| point.0);
        let mut hull: Vec<Point> = Vec::new();
        for point in points {
            while let [.., a, b] = hull[..]
                && is_idle(a, b, point)
            {
                hull.pop();
            }
            hull.push(point);
        }
        while hull.len() > MAX_POINTS {
            // Keeps both ends.
            let last = hull.len() - 1;
            let mut index = 0;
            hull.retain(|_| {
                index += 1;
                index % 2 == 1 || index > last
            });
        }
        self.points = hull.into_iter().map(side).collect();
        self.reduce_at = self.points.len() + FRESH.max(self.points.len());
    }
}

/// Whether `b` is on the line from `a` to `c`, or above it.
fn is_idle(a: Point, b: Point, c: Point) -> bool {
    let across = |p: Point, q: Point| {
        let (time, difference) = (i128::from(q.0) - i128::from(p.0), i128::from(q.1));
        (time, difference - i128::from(p.1))
    };
    let ((tb, db), (tc, dc)) = (across(a, b), across(a, c));
    db * tc >= dc * tb
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lowest value of a line's height at 0, over all points.
    fn limit(points: &[Point], slope: i128) -> i128 {
        let heights = points
            .iter()
            .map(|&(time, difference)| i128::from(difference) * 1000 - slope * i128::from(time));
        heights.min().unwrap()
    }

    proptest! {
        /// A hull limits lines of each slope as all its points do.
        #[test]
        fn hull_limits_as_all_points_do(
            points in prop::collection::vec((-1000..1000i64, -1000..1000i64), 1..200),
            slopes in prop::collection::vec(-5000..5000i128, 1..20),
        ) {
            let (mut above, mut below) = (Hull::above(), Hull::below());
            for &point in &points {
                above.add(point);
                below.add(point);
            }
            above.reduce();
            below.reduce();
            let mirrored = |points: &[Point]| -> Vec<Point> {
                points.iter().map(|&(time, difference)| (time, -difference)).collect()
            };
            for slope in slopes {
                prop_assert_eq!(limit(above.points(), slope), limit(&points, slope));
                let (hull, all) = (mirrored(below.points()), mirrored(&points));
                prop_assert_eq!(limit(&hull, slope), limit(&all, slope));
            }
        }
    }

    /// A million points on a curve, which are all on their hull, cost little memory.
    #[test]
    fn hull_is_bounded() {
        let mut hull = Hull::above();
        for n in 0..1_000_000i64 {
            hull.add((n, n * n));
        }
        assert!(hull.points.capacity() <= 8 * MAX_POINTS);
        hull.reduce();
        assert!(hull.points.len() <= MAX_POINTS);
        assert_eq!(hull.points.first(), Some(&(0, 0)));
        assert_eq!(hull.points.last(), Some(&(999_999, 999_999 * 999_999)));
        let limit = 1i64 << 61;
        let mut hull = Hull::below();
        for point in [(-limit, limit), (limit, -limit), (0, limit), (limit, limit)] {
            hull.add(point);
        }
        hull.reduce();
        assert_eq!(hull.points.len(), 2);
    }
}
