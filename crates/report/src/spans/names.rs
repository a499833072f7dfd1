//! Numbers of all spans with the same name.

use std::collections::HashMap;

use crate::durations::Durations;

/// Most names, and most names of children of an open span and of a name. Further ones are one name
/// together.
const MAX_NAMES: usize = 4096;
const MAX_OPEN_CHILDREN: usize = 64;
const MAX_CHILDREN: usize = 256;
/// What further ones are called.
const OTHERS: &str = "(others)";

/// Spans with the same name.
#[derive(Debug)]
pub struct Name {
    /// The name, as `PROVIDER:NAME`.
    pub name: String,
    pub(crate) durations: Durations,
    /// Sum of the durations, in ns.
    pub total: u128,
    /// Sum of the times while a thread was in them.
    pub busy: u128,
    /// Sum of the times while a direct child was open.
    pub in_children: u128,
    /// Spans without an end, which no other number here counts.
    pub unended: u64,
    /// The direct children by name, those with the longest total time first.
    pub children: Vec<Child>,
}

/// Direct children with the same name, of spans with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Index of the children's name.
    pub name: usize,
    /// How many there are.
    pub count: u64,
    /// Sum of their durations as far as their parents were open. Children at the same time count
    /// each.
    pub total: u128,
}

impl Name {
    /// Number of spans that have ended.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.durations.count
    }

    /// The duration that `percent` of them do not exceed, in ns. Its error is 1/32 at most.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> u64 {
        self.durations.percentile(percent)
    }

    /// The longest duration.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.durations.max
    }

    /// The shortest duration.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.durations.min
    }
}

/// Children of one open span, with the same name.
#[derive(Clone, Copy, Debug)]
struct OpenChild {
    name: usize,
    count: u64,
    total: i64,
    /// How many are open, and the sum of their begins.
    open: u32,
    begins: i128,
}

/// The direct children of a span that is open.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenChildren {
    by_name: Vec<OpenChild>,
    /// How many are open, since when there is one, and how long there was one before.
    open: u32,
    since: i64,
    before: i64,
}

impl OpenChildren {
    pub(super) fn begin(&mut self, name: usize, ns: i64) {
        if self.open == 0 {
            self.since = ns;
        }
        self.open += 1;
        let known = self.by_name.iter().position(|child| child.name == name);
        let at = known.unwrap_or_else(|| {
            if self.by_name.len() == MAX_OPEN_CHILDREN {
                return MAX_OPEN_CHILDREN - 1;
            }
            self.by_name.push(OpenChild {
                name,
                count: 0,
                total: 0,
                open: 0,
                begins: 0,
            });
            self.by_name.len() - 1
        });
        let child = &mut self.by_name[at];
        child.count += 1;
        child.open += 1;
        child.begins += i128::from(ns);
    }

    /// A child that `begin` was told of ends.
    pub(super) fn end(&mut self, name: usize, begin: i64, ns: i64) {
        self.before = self.in_children(ns);
        self.since = ns;
        self.open = self.open.saturating_sub(1);
        let known = self.by_name.iter().position(|child| child.name == name);
        let last = self.by_name.len().saturating_sub(1);
        if let Some(child) = self.by_name.get_mut(known.unwrap_or(last)) {
            child.open = child.open.saturating_sub(1);
            child.begins -= i128::from(begin);
            child.total = child.total.saturating_add(ns.saturating_sub(begin));
        }
    }

    /// How long at least one was open, until now.
    pub(super) fn in_children(&self, now: i64) -> i64 {
        match self.open {
            0 => self.before,
            _ => self.before.saturating_add(now.saturating_sub(self.since)),
        }
    }
}

/// Numbers of all names.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) all: Vec<Name>,
    by_name: HashMap<String, usize>,
    /// For each name, the indices of its children.
    children: HashMap<(usize, usize), usize>,
}

/// A span that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended<'a> {
    pub(super) duration: i64,
    pub(super) busy: i64,
    pub(super) now: i64,
    pub(super) children: &'a OpenChildren,
}

impl Names {
    /// The index of a name.
    pub(super) fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.by_name.get(name) {
            return number;
        }
        if self.all.len() >= MAX_NAMES && name != OTHERS {
            return self.number(OTHERS);
        }
        self.all.push(Name {
            name: name.to_owned(),
            durations: Durations::default(),
            total: 0,
            busy: 0,
            in_children: 0,
            unended: 0,
            children: Vec::new(),
        });
        self.by_name.insert(name.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }

    pub(super) fn add(&mut self, number: usize, ended: Ended<'_>) {
        let positive = |ns: i64| u128::from(ns.max(0).cast_unsigned());
        let name = &mut self.all[number];
        name.durations.add(ended.duration.max(0).cast_unsigned());
        name.total += positive(ended.duration);
        name.busy += positive(ended.busy);
        name.in_children += positive(ended.children.in_children(ended.now));
        for child in &ended.children.by_name {
            let of_open = i128::from(child.open) * i128::from(ended.now) - child.begins;
            let total = positive(child.total) + of_open.max(0).cast_unsigned();
            let known = self.children.get(&(number, child.name)).copied();
            let at = known.unwrap_or(name.children.len().min(MAX_CHILDREN - 1));
            if at == name.children.len() {
                self.children.insert((number, child.name), at);
                name.children.push(Child {
                    name: child.name,
                    count: 0,
                    total: 0,
                });
            }
            name.children[at].count += child.count;
            name.children[at].total += total;
        }
    }

    /// The names, those with the longest total time first.
    pub(super) fn finish(self) -> Vec<Name> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|&n| {
            let name = &self.all[n];
            (std::cmp::Reverse(name.total), name.name.clone())
        });
        let mut places = vec![0; order.len()];
        for (place, &n) in order.iter().enumerate() {
            places[n] = place;
        }
        let mut all: Vec<Option<Name>> = self.all.into_iter().map(Some).collect();
        let mut sorted: Vec<Name> = order.iter().filter_map(|&n| all[n].take()).collect();
        for name in &mut sorted {
            for child in &mut name.children {
                child.name = places[child.name];
            }
            name.children
                .sort_by_key(|child| (std::cmp::Reverse(child.total), child.name));
        }
        sorted
    }
}
