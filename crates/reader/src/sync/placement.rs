//! Puts all hosts on the time line of one of them.

use std::collections::HashMap;

use super::fit::{Fit, MARGIN, Messages};
use crate::correction::Correction;

/// Most rounds in which hosts are fitted to all others again.
const ROUNDS: usize = 20;
/// Most steps of a projection.
const PROJECTIONS: usize = 300_000;
/// How far a step goes: 1 is just far enough for one message.
const RELAXATION: f64 = 1.6;

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

/// A message: the hosts that send and receive it, and their corrected times.
type Limit = [(usize, i64); 2];

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

    /// Makes each message be received after it was sent, as far as that is possible.
    fn settle(&mut self, reference: usize) {
        let before = self.hosts.clone();
        for _ in 0..ROUNDS {
            if self.is_settled() {
                return;
            }
            for host in (0..self.hosts.len()).filter(|&host| host != reference) {
                // If nothing fits this host, the best one may make others fit.
                let fit = self.joint(host, &self.neighbours(host)).fit();
                if let (Some(placed), Some(fit)) = (&mut self.hosts[host], fit) {
                    placed.correction = fit.correction();
                }
            }
        }
        // Hosts that are fitted one after the other may block each other.
        self.project(reference);
        if !self.is_settled() {
            self.hosts = before;
        }
    }

    /// The pairs of hosts whose messages are used.
    fn used(&self) -> impl Iterator<Item = (usize, usize)> {
        self.fits.keys().copied().filter(|(a, b)| a < b)
    }

    fn is_settled(&self) -> bool {
        self.used().all(|(a, b)| self.too_early(a, b) <= Some(0))
    }

    /// Messages of hosts that were placed, by corrected times.
    fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        let mut pairs: Vec<_> = self.used().collect();
        pairs.sort_unstable();
        for (a, b) in pairs {
            let (Some(of_a), Some(of_b)) = (&self.hosts[a], &self.hosts[b]) else {
                continue;
            };
            limits.extend(self.pairs[&(a, b)].limits().map(|(x, y, is_from_a)| {
                let here = (a, of_a.correction.apply(x));
                let there = (b, of_b.correction.apply(y));
                match is_from_a {
                    true => [here, there],
                    false => [there, here],
                }
            }));
        }
        limits
    }

    /// Moves all hosts but the reference until each message is received after it was sent, by the
    /// relaxation method for linear inequalities (Agmon; Motzkin and Schoenberg, 1954).
    fn project(&mut self, reference: usize) {
        let limits = self.limits();
        let times = || limits.iter().flatten().map(|(_, time)| *time);
        let (Some(begin), Some(end)) = (times().min(), times().max()) else {
            return;
        };
        let middle = i64::midpoint(begin, end);
        let half = (i128::from(end) - i128::from(begin)).max(2) as f64 / 2.0;
        let place = |time: i64| (i128::from(time) - i128::from(middle)) as f64 / half;
        // Of each host: what is added to its times in the middle, and besides that at the end.
        let mut moved = vec![[0.0f64; 2]; self.hosts.len()];
        for _ in 0..PROJECTIONS / limits.len() {
            let mut is_done = true;
            for &[(from, sent), (to, received)] in &limits {
                let [at, then] = [place(sent), place(received)];
                let shift = |host: usize, place: f64| moved[host][0] + moved[host][1] * place;
                let taken = (i128::from(received) - i128::from(sent)) as f64;
                let missing = MARGIN - (taken + shift(to, then) - shift(from, at));
                // A tenth is kept for rounding.
                if missing <= MARGIN / 10.0 {
                    continue;
                }
                is_done = false;
                let ends = [(from, at, -1.0), (to, then, 1.0)];
                let movable = || ends.iter().filter(|(host, ..)| *host != reference);
                let norm: f64 = movable().map(|(_, place, _)| 1.0 + place * place).sum();
                for &(host, place, sign) in movable() {
                    let by = sign * RELAXATION * missing / norm;
                    moved[host][0] += by;
                    moved[host][1] += by * place;
                }
            }
            if is_done {
                break;
            }
        }
        for (placed, [offset, change]) in self.hosts.iter_mut().zip(moved) {
            if let Some(placed) = placed {
                let to = middle.saturating_add(offset.round() as i64);
                let moving = Correction::new(middle, to, change / half);
                placed.correction = composed(&placed.correction, &moving);
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
