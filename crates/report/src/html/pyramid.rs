//! Event counts over time: in bins of equal length, by lane and class of events.
//!
//! If there are too many bins, pairs of them are merged. So the duration of a trace need not be
//! known in advance, and no count is lost. The page computes the coarser levels.

use std::collections::HashMap;

/// Maximum number of bins.
const MAX_BINS: u64 = 1 << 15;
/// Maximum number of non-empty cells of all series.
const MAX_CELLS: usize = 1 << 20;

/// Counts of a class of events in a lane.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) lane: u32,
    pub(super) class: u32,
    /// Bins with their number of events, by time, without empty ones.
    pub(super) cells: Vec<(u32, u32)>,
}

/// A value of a process over time: for each bin the maximum and the last one.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) cells: Vec<(u32, u64, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Pyramid {
    /// The binary logarithm of a bin's length in ns.
    pub(super) shift: u32,
    pub(super) series: Vec<Series>,
    by_key: HashMap<(u32, u32), u32>,
    /// By process.
    pub(super) levels: HashMap<u32, Level>,
    cells: usize,
}

impl Pyramid {
    /// The bin of a time, in ns since the first event. Merges bins if necessary.
    fn bin(&mut self, time: u64) -> u32 {
        // With many series, leave each of them a few bins.
        while time >> self.shift >= MAX_BINS || self.cells > MAX_CELLS.max(4 * self.series.len()) {
            self.coarsen();
        }
        (time >> self.shift) as u32
    }

    /// The number of the series of a class in a lane.
    pub(super) fn series(&mut self, lane: u32, class: u32) -> u32 {
        let next = self.series.len() as u32;
        let place = *self.by_key.entry((lane, class)).or_insert(next);
        if place == next {
            let cells = Vec::new();
            self.series.push(Series { lane, class, cells });
        }
        place
    }

    /// Counts an event. Times never decrease.
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

    /// Sets a process's value from this time on.
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

    /// Merges pairs of bins.
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

/// Halves the numbers of bins, and merges cells with the same number, unless `add` refuses.
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

    /// With any number of cells, no count is lost, and the limits hold.
    #[test]
    fn counts_are_exact_when_bins_are_merged() {
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
