//! Puts all hosts on the time line of one of them.

use std::collections::HashMap;

use super::fit::{Fit, Messages};
use crate::correction::Correction;

/// Most rounds in which hosts are fitted to all others again.
const ROUNDS: usize = 20;

/// A host on the common time line.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) correction: Correction,
    /// The host whose messages it was placed by. None for the reference.
    pub(super) neighbour: Option<usize>,
    /// Largest error in ns relative to the reference. None if it is unknown.
    pub(super) error: Option<f64>,
    /// Messages limit the relation to the neighbour from both sides.
    pub(super) is_accurate: bool,
}

/// Two hosts whose messages contradict each other, or the corrections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contradiction {
    pub(super) hosts: (usize, usize),
    /// A message is received this many ns too early.
    pub(super) by: f64,
    /// No correction is possible, and these messages were not used.
    pub(super) is_unused: bool,
}

/// All hosts on the time line of the reference.
#[derive(Debug)]
pub(super) struct Placement {
    /// None for hosts that cannot be placed.
    pub(super) hosts: Vec<Option<Placed>>,
    pub(super) contradictions: Vec<Contradiction>,
}

/// Messages by pairs of hosts. The lower one's times are on the x axis.
pub(super) type Pairs = HashMap<(usize, usize), Messages>;

struct Placing<'a> {
    pairs: &'a Pairs,
    /// The fit of each pair in both directions, with the first host's times on the x axis.
    fits: HashMap<(usize, usize), Fit>,
    spans: &'a [(i64, i64)],
    hosts: Vec<Option<Placed>>,
}

/// Places the hosts, as far as messages connect them. `spans`: first and last time of each host.
pub(super) fn place(pairs: &Pairs, spans: &[(i64, i64)]) -> Placement {
    let mut placing = Placing {
        pairs,
        fits: HashMap::new(),
        spans,
        hosts: vec![None; spans.len()],
    };
    let mut contradictions = Vec::new();
    let mut keys: Vec<(usize, usize)> = pairs.keys().copied().collect();
    keys.sort_unstable();
    for &(a, b) in &keys {
        let there = placing.joint(b, &[(a, Correction::default())]);
        let back = placing.joint(a, &[(b, Correction::default())]);
        let (Some(there), Some(back)) = (there.fit(), back.fit()) else {
            continue;
        };
        if let Some(by) = there.contradiction() {
            contradictions.push(Contradiction {
                hosts: (a, b),
                by,
                is_unused: true,
            });
            continue;
        }
        placing.fits.insert((a, b), there);
        placing.fits.insert((b, a), back);
    }
    let reference = placing.reference();
    placing.hosts[reference] = Some(Placed {
        correction: Correction::default(),
        neighbour: None,
        error: None,
        is_accurate: true,
    });
    while placing.place_next() {}
    placing.settle(reference);
    placing.find_errors();
    for &(a, b) in &keys {
        if placing.fits.contains_key(&(a, b))
            && let Some(by) = placing.too_early(a, b).filter(|&by| by > 0)
        {
            contradictions.push(Contradiction {
                hosts: (a, b),
                by: by as f64,
                is_unused: false,
            });
        }
    }
    Placement {
        hosts: placing.hosts,
        contradictions,
    }
}

impl Placing<'_> {
    /// The host with most messages that can be used; of several, the first one.
    fn reference(&self) -> usize {
        let mut counts = vec![0u64; self.spans.len()];
        for &(a, b) in self.fits.keys().filter(|(a, b)| a < b) {
            let count = self.pairs[&(a, b)].count();
            counts[a] = counts[a].saturating_add(count);
            counts[b] = counts[b].saturating_add(count);
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        counts.iter().position(|&count| count == most).unwrap_or(0)
    }

    /// The messages between a host and others, with the others' corrected times on the x axis.
    fn joint(&self, host: usize, others: &[(usize, Correction)]) -> Messages {
        let mut joint = Messages::default();
        for &(other, correction) in others {
            let Some(messages) = self.pairs.get(&(host.min(other), host.max(other))) else {
                continue;
            };
            for (x, y, is_from_x) in messages.limits() {
                if other < host {
                    joint.add(correction.apply(x), y, is_from_x);
                } else {
                    joint.add(correction.apply(y), x, !is_from_x);
                }
            }
        }
        joint.reduce();
        joint
    }

    /// Other hosts that were placed and whose messages with this one are consistent.
    fn neighbours(&self, host: usize) -> Vec<(usize, Correction)> {
        let placed = self.hosts.iter().enumerate();
        let placed = placed.filter_map(|(other, placed)| Some((other, placed.as_ref()?)));
        placed
            .filter(|(other, _)| self.fits.contains_key(&(*other, host)))
            .map(|(other, placed)| (other, placed.correction))
            .collect()
    }

    /// The largest error of a host relative to the reference, with this correction and neighbour.
    fn error(&self, host: usize, correction: &Correction, neighbour: usize) -> Option<f64> {
        let (mut host, mut correction, mut neighbour) = (host, correction, neighbour);
        let (mut begin, mut end) = self.spans[host];
        let mut sum = 0.0;
        loop {
            let placed = self.hosts.get(neighbour)?.as_ref()?;
            let x = |y: i64| placed.correction.invert(correction.apply(y));
            let y = |x: i64| correction.invert(placed.correction.apply(x));
            (begin, end) = (x(begin), x(end));
            let error = self.fits.get(&(neighbour, host))?.error((begin, end), y)?;
            sum += error * (1.0 + placed.correction.drift());
            let Some(next) = placed.neighbour else {
                return Some(sum);
            };
            // By the neighbour's clock, the true times may be as much earlier or later.
            begin = begin.saturating_sub(error.ceil() as i64);
            end = end.saturating_add(error.ceil() as i64);
            (host, correction, neighbour) = (neighbour, &placed.correction, next);
        }
    }

    /// Places the host of which most is known. Returns whether there was one.
    fn place_next(&mut self) -> bool {
        let mut best: Option<(bool, f64, usize, usize)> = None;
        for (&(from, to), fit) in &self.fits {
            let (Some(placed), None) = (&self.hosts[from], &self.hosts[to]) else {
                continue;
            };
            let correction = composed(&fit.correction(), &placed.correction);
            let error = self.error(to, &correction, from);
            let key = (error.is_none(), error.unwrap_or(0.0), from, to);
            // Hash maps have no order; this one does.
            if best.is_none_or(|best| key < best) {
                best = Some(key);
            }
        }
        let Some((_, _, from, host)) = best else {
            return false;
        };
        let fit = self.fits[&(from, host)];
        let Some(placed) = &self.hosts[from] else {
            return false;
        };
        let alone = self.joint(host, &[(from, placed.correction)]).fit();
        let all = self.joint(host, &self.neighbours(host)).fit();
        let usable = |fit: &Fit| fit.contradiction().is_none();
        let correction = match all.filter(usable).or(alone.filter(usable)) {
            Some(fit) => fit.correction(),
            None => composed(&fit.correction(), &placed.correction),
        };
        self.hosts[host] = Some(Placed {
            error: None,
            correction,
            neighbour: Some(from),
            is_accurate: fit.is_accurate(),
        });
        true
    }

    /// Finds the errors of all hosts.
    fn find_errors(&mut self) {
        for host in 0..self.hosts.len() {
            let error = self.hosts[host].as_ref().and_then(|placed| {
                let Some(neighbour) = placed.neighbour else {
                    return Some(0.0);
                };
                self.error(host, &placed.correction, neighbour)
            });
            if let Some(placed) = &mut self.hosts[host] {
                placed.error = error;
            }
        }
    }

    /// If a message between two hosts is received too early, fits hosts to all their neighbours
    /// again until none is, or nothing helps.
    fn settle(&mut self, reference: usize) {
        let keys: Vec<_> = self.fits.keys().copied().filter(|(a, b)| a < b).collect();
        let is_late = |this: &Self| keys.iter().all(|&(a, b)| this.too_early(a, b) <= Some(0));
        for _ in 0..ROUNDS {
            if is_late(self) {
                break;
            }
            for host in (0..self.hosts.len()).filter(|&host| host != reference) {
                let fit = self.joint(host, &self.neighbours(host)).fit();
                let usable = fit.filter(|fit| fit.contradiction().is_none());
                if let (Some(placed), Some(fit)) = (&mut self.hosts[host], usable) {
                    placed.correction = fit.correction();
                }
            }
        }
    }

    /// The longest time in ns by which a message between two hosts is received too early. Not above
    /// 0 if none is. None if a host was not placed.
    fn too_early(&self, a: usize, b: usize) -> Option<i64> {
        let correction = |host: usize| Some(self.hosts.get(host)?.as_ref()?.correction);
        let (of_a, of_b) = (correction(a)?, correction(b)?);
        let limits = self.pairs.get(&(a, b))?.limits();
        let early = limits.map(|(x, y, is_from_a)| {
            let (x, y) = (of_a.apply(x), of_b.apply(y));
            let (sent, received) = if is_from_a { (x, y) } else { (y, x) };
            // At the same time is too early, too: then the order is that of the traces' ids.
            sent.saturating_sub(received).saturating_add(1)
        });
        early.max()
    }
}

/// Corrects by the first one, and then by the second one.
fn composed(first: &Correction, second: &Correction) -> Correction {
    let (from, middle) = first.anchor();
    let drift = (1.0 + first.drift()) * (1.0 + second.drift()) - 1.0;
    Correction::new(from, second.apply(middle), drift)
}
