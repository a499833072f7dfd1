//! The calls of functions for the page, as a tree.

use std::collections::HashMap;

use serde::Serialize;

use crate::calls::CallTree;

/// How many nodes the page has at most: those with the longest total time.
const MAX_NODES: usize = 20_000;

/// What the page has, as `page/calls.js` reads it.
#[derive(Debug, Serialize)]
pub(super) struct CallRows<'a> {
    names: Vec<&'a str>,
    /// Parent, process, name, calls, those without an exit, total and own time in ns. A process has
    /// itself as its parent. Parents come first.
    nodes: Vec<(usize, usize, usize, u64, u64, u64, u64)>,
    /// Nodes that are not here.
    further: usize,
    /// Calls that had no room when the trace was read, and exits without an entry.
    left_out: u64,
    unbegun: u64,
    mixes_threads: bool,
}

impl<'a> CallRows<'a> {
    /// `None` if there are no calls.
    pub(super) fn new(tree: &'a CallTree) -> Option<Self> {
        let all = tree.nodes();
        if all.is_empty() {
            return None;
        }
        let is_kept = kept(tree);
        let mut names: Vec<&str> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let mut places = vec![0; all.len()];
        let mut nodes = Vec::new();
        for (index, node) in all.iter().enumerate().filter(|(index, _)| is_kept[*index]) {
            places[index] = nodes.len();
            let name = *by_name.entry(&node.name).or_insert_with(|| {
                names.push(&node.name);
                names.len() - 1
            });
            nodes.push((
                places[node.parent as usize],
                node.process,
                name,
                node.calls,
                node.without_exit,
                node.total,
                node.own,
            ));
        }
        let (left_out, unbegun) = tree.left_out();
        Some(Self {
            further: all.len() - nodes.len(),
            names,
            nodes,
            left_out,
            unbegun,
            mixes_threads: tree.mixes_threads(),
        })
    }
}

/// Which nodes the page has: the largest, and those above them.
fn kept(tree: &CallTree) -> Vec<bool> {
    let all = tree.nodes();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(all[index].total));
    let mut is_kept = vec![false; all.len()];
    for index in order.into_iter().take(MAX_NODES) {
        let mut at = index;
        while !is_kept[at] {
            is_kept[at] = true;
            at = all[at].parent as usize;
        }
    }
    is_kept
}
