//! The tree of all call stacks: processes, perhaps threads, functions, and what happened there.

use std::collections::HashMap;

use serde::Serialize;

use super::frames::Frames;
use super::profile::Profile;
use super::samples::{Key, Label};
use super::table::{NO_STACK, Space};
use super::weight::{self, Weights};
use crate::activity::Activity;

/// What a node of the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NodeKind {
    Process,
    Thread,
    Function,
    /// A function that the compiler put into its caller.
    Inlined,
    /// Code without a name.
    Unknown,
    /// An event, or what a pair of events began and ended.
    Event,
}

/// The name of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeName {
    pub(crate) kind: NodeKind,
    pub(crate) text: String,
    /// The number of its module.
    pub(crate) module: Option<u32>,
}

/// A node. Its parent comes before it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: u32,
    pub(crate) parent: u32,
    /// What happened here, and not further inside.
    pub(crate) own: Weights,
}

/// The root, which is its own parent and has no name.
pub(crate) const ROOT: u32 = 0;

/// Call stacks as a tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) names: Vec<NodeName>,
    /// A source line of each name, if any is known.
    pub(crate) places: Vec<Option<String>>,
    pub(crate) nodes: Vec<Node>,
    by_name: HashMap<NodeName, u32, ahash::RandomState>,
    children: HashMap<(u32, u32), u32, ahash::RandomState>,
}

/// Whose nodes the tree has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners<'a> {
    /// The names of processes, by their numbers.
    pub(crate) processes: &'a [String],
    /// Threads have nodes of their own.
    pub(crate) with_threads: bool,
}

impl Default for Tree {
    /// The root alone.
    fn default() -> Self {
        Self {
            names: Vec::new(),
            places: Vec::new(),
            nodes: vec![Node {
                name: u32::MAX,
                parent: ROOT,
                own: Weights::default(),
            }],
            by_name: HashMap::default(),
            children: HashMap::default(),
        }
    }
}

impl Tree {
    /// Makes the tree of a profile.
    pub(crate) fn new(
        profile: &Profile,
        activity: &Activity,
        frames: &Frames,
        owners: Owners<'_>,
    ) -> Self {
        let mut tree = Self::default();
        let by_location = tree.name_locations(profile, frames);
        for (key, weights) in profile.weights(activity) {
            let mut node = tree.owner(key, activity, owners);
            let mut locations: Vec<u32> = profile.table.frames(key.stack).collect();
            while let Some(location) = locations.pop() {
                for &name in &by_location[location as usize] {
                    node = tree.child(node, name);
                }
            }
            if let Some(text) = label(key.label, activity) {
                let name = tree.name(NodeKind::Event, text, None);
                node = tree.child(node, name);
            }
            weight::add(&mut tree.nodes[node as usize].own, &weights);
        }
        tree
    }

    /// The names of the functions at each location, from the outermost.
    fn name_locations(&mut self, profile: &Profile, frames: &Frames) -> Vec<Vec<u32>> {
        let locations = (0..).zip(profile.table.locations());
        let mut all = Vec::new();
        for (number, location) in locations {
            let module = match location.space {
                Space::Module(module) => Some(module),
                Space::Process(_) => None,
            };
            let mut names = Vec::new();
            for frame in frames.of_location(number).iter().rev() {
                let kind = match (frame.is_unknown, frame.is_inlined) {
                    (true, _) => NodeKind::Unknown,
                    (_, true) => NodeKind::Inlined,
                    _ => NodeKind::Function,
                };
                let name = self.name(kind, frame.function.clone(), module);
                let place = &mut self.places[name as usize];
                if place.is_none() {
                    *place = frame.place();
                }
                names.push(name);
            }
            all.push(names);
        }
        all
    }

    /// The node of a key's process or thread.
    fn owner(&mut self, key: Key, activity: &Activity, owners: Owners<'_>) -> u32 {
        let process = owners.processes.get(key.process as usize);
        let text = process.map_or("process", |name| name).to_owned();
        let name = self.name(NodeKind::Process, text, None);
        let mut node = self.child(ROOT, name);
        if owners.with_threads
            && let Some(lane) = key.lane()
        {
            let text = activity.lanes.all[lane as usize].text();
            let name = self.name(NodeKind::Thread, text, None);
            node = self.child(node, name);
        }
        if key.stack == NO_STACK {
            let name = self.name(NodeKind::Unknown, "[no call stack]".to_owned(), None);
            node = self.child(node, name);
        }
        node
    }

    fn name(&mut self, kind: NodeKind, text: String, module: Option<u32>) -> u32 {
        let name = NodeName { kind, text, module };
        let next = self.names.len() as u32;
        *self.by_name.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.places.push(None);
            next
        })
    }

    /// The child of a node with this name.
    pub(crate) fn child(&mut self, parent: u32, name: u32) -> u32 {
        let next = self.nodes.len() as u32;
        *self.children.entry((parent, name)).or_insert_with(|| {
            self.nodes.push(Node {
                name,
                parent,
                own: Weights::default(),
            });
            next
        })
    }

    /// What happened in each node and further inside.
    pub(crate) fn totals(&self) -> Vec<Weights> {
        let mut totals: Vec<Weights> = self.nodes.iter().map(|node| node.own).collect();
        for (n, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let inside = totals[n];
            weight::add(&mut totals[node.parent as usize], &inside);
        }
        totals
    }

    /// The children of each node, by their names.
    pub(crate) fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (n, node) in (0..).zip(&self.nodes).skip(1) {
            children[node.parent as usize].push(n);
        }
        for all in &mut children {
            all.sort_by_cached_key(|&n: &u32| {
                let name = &self.names[self.nodes[n as usize].name as usize];
                (name.text.clone(), name.kind, name.module)
            });
        }
        children
    }
}

/// The text of a label: the name of an event, or of what a pair began and ended.
pub(crate) fn label(label: Label, activity: &Activity) -> Option<String> {
    match label {
        Label::Any => None,
        Label::Event(class) => Some(activity.classes()[class as usize].name.clone()),
        Label::Span(pair) => Some(activity.pairs.text(pair)),
    }
}
