//! The graphs of `docs/architecture.md`, as Mermaid draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::imports::{Modules, Name};

/// A graph with arrows from each node to those that it uses, without implied ones.
fn graph(edges: &BTreeSet<(String, String)>) -> String {
    let mut text = "```mermaid\ngraph TD\n".to_owned();
    for (from, to) in edges {
        let is_implied = edges
            .iter()
            .any(|(one, other)| one == from && other != to && leads(edges, other, to));
        if !is_implied {
            writeln!(text, "  {from} --> {to}").unwrap();
        }
    }
    text + "```\n"
}

fn leads(edges: &BTreeSet<(String, String)>, from: &str, to: &str) -> bool {
    from == to
        || edges
            .iter()
            .any(|(one, other)| one == from && leads(edges, other, to))
}

/// The crates, and which of ours each uses.
pub(crate) fn crates(uses: &BTreeMap<String, BTreeSet<String>>) -> String {
    let edges = uses
        .iter()
        .flat_map(|(name, used)| used.iter().map(move |used| (name.clone(), used.clone())));
    graph(&edges.collect())
}

/// The modules of a crate, by floors: each imports only from floors below its own.
pub(crate) fn modules(modules: &Modules) -> String {
    let edges = modules.edges();
    let mut floors: BTreeMap<Name, usize> = BTreeMap::new();
    for module in modules.sources.keys().filter(|module| !module.is_empty()) {
        floor(module, &edges, &mut floors);
    }
    let mut named: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (module, floor) in floors {
        named
            .entry(floor)
            .or_default()
            .push(format!("`{}`", module.join("::")));
    }
    let mut text = "| floor | modules |\n|---|---|\n".to_owned();
    for (floor, modules) in named.iter().rev() {
        writeln!(text, "| {floor} | {} |", modules.join(", ")).unwrap();
    }
    text
}

/// The floor of a module: above all that it imports. There must be no circle.
fn floor(
    module: &Name,
    edges: &BTreeSet<(Name, Name)>,
    floors: &mut BTreeMap<Name, usize>,
) -> usize {
    if let Some(&known) = floors.get(module) {
        return known;
    }
    let used = edges.iter().filter(|(from, _)| from == module);
    let below = used.filter(|(_, to)| !to.is_empty());
    let highest = below.map(|(_, to)| floor(to, edges, floors) + 1).max();
    let own = highest.unwrap_or(0);
    floors.insert(module.clone(), own);
    own
}
