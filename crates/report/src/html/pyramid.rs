//! How much there was, when: counts in bins of equal length, per lane and class of events.
//!
//! The bins are as short as memory allows: when there are too many, pairs of them become one. So
//! the time that a trace lasts need not be known before, and no count is lost. The page makes the
//! coarser levels above them.

use std::collections::HashMap;

/// Most bins of a report.
const MAX_BINS: u64 = 1 << 15;
/// Cells that are not empty, of all series.
const MAX_CELLS: usize = 1 << 20;

/// Counts of a class of events in a lane.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) lane: u32,
    pub(super) class: u32,
    /// Bins, and how many events are in each: by time, those without any are left out.
    pub(super) cells: Vec<(u32, u32)>,
}

/// A value that changes, of a process: the highest that it was in each bin, and the last one.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) cells: Vec<(u32, u64, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Pyramid {
    /// A bin has 2 to the power of it nanoseconds.
    pub(super) shift: u32,
    pub(super) series: Vec<Series>,
    by_key: HashMap<(u32, u32), u32>,
    /// By process.
    pub(super) levels: HashMap<u32, Level>,
    cells: usize,
}

impl Pyramid {
    /// The bin of a time, in ns since the first event.
    fn bin(&mut self, time: u64) -> u32 {
        // Where series are many, each has a few bins at least.
        while time >> self.shift >= MAX_BINS || self.cells > MAX_CELLS.max(4 * self.series.len()) {
            self.coarsen();
        }
        (time >> self.shift) as u32
    }

    /// The series of a class in a lane.
    pub(super) fn series(&mut self, lane: u32, class: u32) -> u32 {
        let next = self.series.len() as u32;
        let place = *self.by_key.entry((lane, class)).or_insert(next);
        if place == next {
            let cells = Vec::new();
            self.series.push(Series { lane, class, cells });
        }
        place
    }

    /// An event. Times never go back.
    pub(super) fn count(&mut self, series: u32, time: u64) {
        let bin = self.bin(time);
        let cells = &mut self.series[series as usize].cells;
        match cells.last_mut() {
            Some((last, count)) if *last == bin && *count < u32::MAX => *count += 1,
            _ => {
                cells.push((bin, 1));
                self.cells += 1;
            }
        }
    }

    /// A value of a process is another one since this time.
    pub(super) fn set_level(&mut self, process: u32, time: u64, value: u64) {
        let bin = self.bin(time);
        let cells = &mut self.levels.entry(process).or_default().cells;
        match cells.last_mut() {
            Some((at, highest, last)) if *at == bin => {
                (*highest, *last) = (value.max(*highest), value);
            }
            _ => {
                cells.push((bin, value, value));
                self.cells += 1;
            }
        }
    }

    /// Makes one bin of two.
    fn coarsen(&mut self) {
        self.shift += 1;
        let mut cells = 0;
        for series in &mut self.series {
            merge(&mut series.cells, |into, cell| {
                into.1.checked_add(cell.1).map(|sum| into.1 = sum).is_some()
            });
            cells += series.cells.len();
        }
        for level in self.levels.values_mut() {
            merge(&mut level.cells, |into, cell| {
                (into.1, into.2) = (into.1.max(cell.1), cell.2);
                true
            });
            cells += level.cells.len();
        }
        self.cells = cells;
    }
}

trait Cell: Copy {
    fn bin(&mut self) -> &mut u32;
}

impl Cell for (u32, u32) {
    fn bin(&mut self) -> &mut u32 {
        &mut self.0
    }
}

impl Cell for (u32, u64, u64) {
    fn bin(&mut self) -> &mut u32 {
        &mut self.0
    }
}

/// Halves the bins' numbers, and puts together what is in one then, if that can be.
fn merge<C: Cell>(cells: &mut Vec<C>, mut add: impl FnMut(&mut C, C) -> bool) {
    let mut kept = 0;
    for at in 0..cells.len() {
        let mut cell = cells[at];
        *cell.bin() /= 2;
        if let Some(last) = cells[..kept].last_mut()
            && last.bin() == cell.bin()
            && add(last, cell)
        {
            continue;
        }
        cells[kept] = cell;
        kept += 1;
    }
    cells.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many cells there were, no count is lost, and there are never more than fit.
    #[test]
    fn counts_are_exact_when_bins_are_put_together() {
        let mut pyramid = Pyramid::default();
        let series: Vec<u32> = (0..64).map(|lane| pyramid.series(lane, lane % 3)).collect();
        let mut time = 0;
        for n in 0..3_000_000u64 {
            time += n % 1000;
            pyramid.count(series[n as usize % 64], time);
        }
        let bins = pyramid.series.iter().flat_map(|series| &series.cells);
        assert_eq!(
            bins.map(|&(_, count)| u64::from(count)).sum::<u64>(),
            3_000_000
        );
        assert!(time >> pyramid.shift < MAX_BINS && time >> pyramid.shift > MAX_BINS / 16);
        for series in &pyramid.series {
            assert!(series.cells.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        let cells: usize = pyramid.series.iter().map(|series| series.cells.len()).sum();
        assert!(cells <= MAX_CELLS && cells == pyramid.cells, "{cells}");
    }

    #[test]
    fn a_level_keeps_its_highest_and_its_last_value() {
        let mut pyramid = Pyramid::default();
        for (time, value) in [(0, 5), (1, 9), (2, 3), (1 << 20, 4)] {
            pyramid.set_level(7, time, value);
        }
        let cells = &pyramid.levels[&7].cells;
        assert_eq!(cells[0], (0, 9, 3));
        assert_eq!((cells[1].1, cells[1].2, cells.len()), (4, 4, 2));
    }
}
