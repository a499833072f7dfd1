//! Encodes call stacks for the page: a tree of bounded size, and tables of the memory in use and of
//! waits for locks.

use std::collections::HashMap;

use serde::Serialize;

use super::Report;
use super::collect::Process;
use crate::heap::StackUse;
use crate::leaks;
use crate::stacks::{Frame, Frames, NodeKind, Owners, ROOT, Tree, Weight, Weights, culprit};

/// Maximum number of nodes of the tree. The smallest ones are left out.
const MAX_NODES: usize = 20_000;
/// Maximum number of rows of a table.
const MAX_ROWS: usize = 200;
/// Maximum length of a name in the page, in characters.
const MAX_NAME: usize = 500;

/// A name that may be cut. Those of templates have any length.
fn cut(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[derive(Serialize)]
struct Data {
    weights: [&'static str; Weight::ALL.len()],
    /// The highest share of a weight that a node has that is left out.
    left_out: f64,
    names: Vec<Name>,
    /// By node: the index of its name, or of none if it stands for those that are left out.
    name: Vec<Option<u32>>,
    parent: Vec<u32>,
    /// By weight, and by node: what happened there and not further inside.
    own: Vec<Vec<u64>>,
    frames: Vec<TableFrame>,
    leaks: Table<Leak>,
    peaks: Table<Leak>,
    waits: Table<Wait>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Name {
    kind: NodeKind,
    text: String,
    module: Option<String>,
    place: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct TableFrame {
    function: String,
    place: Option<String>,
    is_inlined: bool,
}

#[derive(Serialize)]
struct Table<Row> {
    rows: Vec<Row>,
    /// Number of rows that are left out.
    further: usize,
}

#[derive(Serialize)]
struct Leak {
    process: u32,
    bytes: u64,
    blocks: u64,
    #[serde(flatten)]
    stack: Stack,
}

#[derive(Serialize)]
struct Wait {
    process: u32,
    lock: String,
    count: u64,
    total: u64,
    longest: u64,
    #[serde(flatten)]
    stack: Stack,
}

#[derive(Serialize)]
struct Stack {
    /// Indices of frames, from the innermost.
    stack: Vec<usize>,
    /// The index in `stack` of the function that a person looks for.
    culprit: usize,
}

/// Frames of tables, each once.
#[derive(Default)]
struct Interned {
    all: Vec<TableFrame>,
    numbers: HashMap<TableFrame, usize>,
}

impl Interned {
    /// `all` begins with the innermost frame.
    fn stack(&mut self, all: &[&Frame]) -> Stack {
        let culprit = culprit(all.iter().copied());
        let numbers = all.iter().map(|frame| {
            let shown = TableFrame {
                function: cut(&frame.function),
                place: frame.place().as_deref().map(cut),
                is_inlined: frame.is_inlined,
            };
            let next = self.all.len();
            *self.numbers.entry(shown).or_insert_with_key(|shown| {
                self.all.push(shown.clone());
                next
            })
        });
        Stack {
            stack: numbers.collect(),
            culprit,
        }
    }
}

/// A tree without its smallest nodes.
struct Pruned {
    name: Vec<Option<u32>>,
    parent: Vec<u32>,
    own: Vec<Vec<u64>>,
    left_out: f64,
}

impl Report {
    /// The call stacks as JSON, or nothing if no event has any.
    pub(super) fn stacks(&self) -> Option<Vec<u8>> {
        let frames = self.frames.as_ref()?;
        let processes: Vec<String> = self.processes.iter().map(Process::text).collect();
        let owners = Owners {
            processes: &processes,
            with_threads: false,
        };
        let tree = Tree::new(&self.profile, &self.activity, frames, owners);
        let pruned = prune(&tree, MAX_NODES);
        let mut interned = Interned::default();
        let heap = &self.activity.heap;
        let leaks = self.leaks(frames, &mut interned, heap.live());
        let peaks = self.leaks(frames, &mut interned, heap.at_peak());
        let waits = self.waits(frames, &mut interned);
        let mut names = Vec::new();
        // Only those that are used.
        let mut numbers = HashMap::new();
        let name = pruned.name.iter().map(|name| {
            let name = (*name)?;
            let next = names.len() as u32;
            Some(*numbers.entry(name).or_insert_with(|| {
                let known = &tree.names[name as usize];
                let module = known
                    .module
                    .map(|module| cut(&frames.modules()[module as usize].name));
                names.push(Name {
                    kind: known.kind,
                    text: cut(&known.text),
                    module,
                    place: tree.places[name as usize].as_deref().map(cut),
                });
                next
            }))
        });
        let name = name.collect();
        let data = Data {
            weights: Weight::ALL.map(Weight::name),
            left_out: pruned.left_out,
            names,
            name,
            parent: pruned.parent,
            own: pruned.own,
            frames: interned.all,
            leaks,
            peaks,
            waits,
            notes: self.stack_notes(),
        };
        // Numbers, texts and lists of these have a representation in JSON.
        serde_json::to_vec(&data).ok()
    }

    fn leaks(
        &self,
        frames: &Frames,
        interned: &mut Interned,
        used: impl Iterator<Item = StackUse>,
    ) -> Table<Leak> {
        let all = leaks::rows(&self.profile.table, frames, used);
        table(&all, |((process, stack), in_use)| Leak {
            process: *process,
            bytes: in_use.bytes,
            blocks: in_use.blocks,
            stack: interned.stack(stack),
        })
    }

    fn waits(&self, frames: &Frames, interned: &mut Interned) -> Table<Wait> {
        table(&self.profile.waits.sorted(), |(place, wait)| Wait {
            process: place.process,
            lock: self.activity.pairs.text(place.pair),
            count: wait.count,
            total: wait.total,
            longest: wait.longest,
            stack: interned.stack(
                &frames
                    .of(&self.profile.table, place.stack)
                    .collect::<Vec<_>>(),
            ),
        })
    }

    fn stack_notes(&self) -> Vec<String> {
        self.profile.notes(&self.activity).lines()
    }
}

fn table<T, Row>(all: &[T], row: impl FnMut(&T) -> Row) -> Table<Row> {
    let rows = all.iter().take(MAX_ROWS).map(row).collect();
    let further = all.len().saturating_sub(MAX_ROWS);
    Table { rows, further }
}

/// Leaves out the nodes with the smallest shares of all weights, so that at most `max` are left.
/// What happened in them is added up in a node beside their siblings.
fn prune(tree: &Tree, max: usize) -> Pruned {
    let totals = tree.totals();
    let whole = totals[ROOT as usize];
    // A node has no larger share than its parent.
    let share = |weights: &Weights| {
        let shares = weights.iter().zip(&whole);
        let shares = shares.map(|(&part, &all)| part as f64 / all.max(1) as f64);
        shares.fold(0.0, f64::max)
    };
    let shares: Vec<f64> = totals.iter().map(share).collect();
    let mut left_out = -1.0;
    if shares.len() > max {
        let mut sorted = shares.clone();
        let (_, &mut limit, _) = sorted.select_nth_unstable_by(max, |a, b| b.total_cmp(a));
        left_out = limit;
    }
    let mut pruned = Pruned {
        name: Vec::new(),
        parent: Vec::new(),
        own: vec![Vec::new(); Weight::ALL.len()],
        left_out: left_out.max(0.0),
    };
    let add = |pruned: &mut Pruned, name: Option<u32>, parent: u32, own: &Weights| {
        let number = pruned.name.len() as u32;
        pruned.name.push(name);
        pruned.parent.push(parent);
        for (all, own) in pruned.own.iter_mut().zip(own) {
            all.push(*own);
        }
        number
    };
    let mut numbers = vec![None; tree.nodes.len()];
    // By parent: the sums of what is left out.
    let mut rests: HashMap<u32, Weights> = HashMap::new();
    for (n, node) in tree.nodes.iter().enumerate() {
        let parent = match n {
            0 => Some(ROOT),
            _ => numbers[node.parent as usize],
        };
        // The parent is left out, and with it this node.
        let Some(parent) = parent else { continue };
        if n == 0 || shares[n] > left_out {
            let name = (n > 0).then_some(node.name);
            numbers[n] = Some(add(&mut pruned, name, parent, &node.own));
        } else {
            crate::stacks::add(rests.entry(parent).or_default(), &totals[n]);
        }
    }
    let mut rests: Vec<_> = rests.into_iter().collect();
    rests.sort_unstable_by_key(|(parent, _)| *parent);
    for (parent, rest) in rests {
        add(&mut pruned, None, parent, &rest);
    }
    pruned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Nothing is lost from a pruned tree, each node is below its own parent, and the widest
        /// nodes are left.
        #[test]
        fn pruned_trees_have_the_same_sums(
            nodes in prop::collection::vec((any::<prop::sample::Index>(), 0u64..100, 0u64..100), 1..200),
            max in 1usize..50,
        ) {
            let mut tree = Tree::default();
            for (parent, events, bytes) in nodes {
                let parent = parent.index(tree.nodes.len()) as u32;
                // A name of its own for each node.
                let name = tree.nodes.len() as u32;
                let own = [events, bytes, 0, 0, 0];
                let node = tree.child(parent, name);
                tree.nodes[node as usize].own = own;
            }
            let totals = tree.totals();
            let pruned = prune(&tree, max);
            let kept: Vec<usize> = (1..pruned.name.len()).filter(|&n| pruned.name[n].is_some()).collect();
            prop_assert!(kept.len() <= max);
            for (weight, own) in pruned.own.iter().enumerate() {
                prop_assert_eq!(own.iter().sum::<u64>(), totals[0][weight]);
            }
            let mut sums = pruned.own.clone();
            for n in (1..pruned.name.len()).rev() {
                prop_assert!((pruned.parent[n] as usize) < n);
                for sum in &mut sums {
                    sum[pruned.parent[n] as usize] += sum[n];
                }
            }
            for &n in &kept {
                let name = pruned.name[n].unwrap();
                for (weight, sum) in sums.iter().enumerate() {
                    prop_assert_eq!(sum[n], totals[name as usize][weight]);
                }
                let parent = tree.nodes[name as usize].parent;
                let parent = (parent > 0).then_some(parent);
                prop_assert_eq!(pruned.name[pruned.parent[n] as usize], parent);
            }
            if tree.nodes.len() > max {
                let share = |name: usize| {
                    let [events, bytes, ..] = totals[name];
                    let all = totals[0].map(|all| all.max(1) as f64);
                    f64::max(events as f64 / all[0], bytes as f64 / all[1])
                };
                let names: Vec<usize> = kept.iter().map(|&n| pruned.name[n].unwrap() as usize).collect();
                for name in 1..tree.nodes.len() {
                    let is_wider = share(name) > pruned.left_out;
                    prop_assert_eq!(names.contains(&name), is_wider);
                }
            } else {
                prop_assert_eq!(kept.len(), tree.nodes.len() - 1);
            }
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = "é".repeat(MAX_NAME);
        assert_eq!(cut(&name), name);
        assert_eq!(cut(&format!("{name}é")), format!("{name}…"));
    }
}
