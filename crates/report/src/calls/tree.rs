//! All calls of a trace as a tree: how often a function was called from the same callers, and how
//! long it took.

use std::collections::HashMap;
use std::rc::Rc;

use usertrace_reader::Event;
use usertrace_symbols::Resolver;

use super::call_events::Calls;
use super::stack::Call;

/// Most nodes. Further calls are only counted.
const MAX_NODES: usize = 1 << 17;
/// The node of a call that has no room.
const NO_NODE: u32 = u32::MAX;

/// Calls of a function from the same callers, in all threads of a process.
#[derive(Clone, Debug)]
pub struct CallNode {
    /// Index of the caller. That of a process is its own.
    pub parent: u32,
    /// Number of the process.
    pub process: usize,
    /// The function, or nothing for the process.
    pub name: Rc<str>,
    /// How many calls have returned or were left.
    pub calls: u64,
    /// How many of them had no exit: an exception or `longjmp` left them, or it was lost, or they
    /// had not returned at the end.
    pub without_exit: u64,
    /// Sum of their durations, in ns. Recursive calls count each.
    pub total: u64,
    /// Sum of their durations without those of the calls in them.
    pub own: u64,
}

/// The calls of all processes.
#[derive(Debug, Default)]
pub struct CallTree {
    calls: Calls,
    /// Parents come before their children.
    nodes: Vec<CallNode>,
    by_name: HashMap<(u32, Rc<str>), u32>,
    processes: HashMap<usize, (u32, i64)>,
    /// Calls that had no room.
    left_out: u64,
    /// Exits of functions whose entries are unknown.
    unbegun: u64,
    mixes_threads: bool,
}

impl CallTree {
    /// Takes an event. Returns whether it was about a call.
    pub fn event(&mut self, event: &Event<'_>, resolver: Option<&mut Resolver>) -> bool {
        let Some(step) = self.calls.event(event, resolver) else {
            return false;
        };
        let process = event.trace.process();
        let root = self.root(process, event.ns);
        self.mixes_threads |= step.thread.is_none();
        for call in &step.left {
            self.add(call, event.ns, false);
        }
        if step.is_entry {
            let stack = self.calls.stack(process, step.thread);
            let calls = stack.as_ref().map_or(&[][..], |stack| stack.calls());
            let parent = match calls {
                [.., around, _] => around.node,
                _ => root,
            };
            let node = self.node(parent, process, step.name);
            if let Some(stack) = self.calls.stack(process, step.thread) {
                stack.set_node(node);
            }
        } else if let Some(call) = &step.ended {
            self.add(call, event.ns, true);
        } else {
            self.unbegun += 1;
        }
        true
    }

    /// Forgets names: modules were loaded or unloaded.
    pub fn forget_names(&mut self) {
        self.calls.names.clear();
    }

    /// Ends all calls with the last events of their processes.
    pub fn finish(&mut self) {
        let processes = &self.processes;
        let last = |process| processes.get(&process).map_or(0, |(_, last)| *last);
        for (process, calls) in self.calls.end(last) {
            let end = self.processes.get(&process).map_or(0, |(_, last)| *last);
            for call in calls {
                self.add(&call, end, false);
            }
        }
    }

    /// The nodes: a process first, then the functions that its threads began with, and so on.
    /// Parents come before their children.
    #[must_use]
    pub fn nodes(&self) -> &[CallNode] {
        &self.nodes
    }

    /// Calls that had no room, and exits without an entry.
    #[must_use]
    pub fn left_out(&self) -> (u64, u64) {
        (self.left_out, self.unbegun)
    }

    /// Whether calls of several threads may be mixed, as the trace does not tell them apart.
    #[must_use]
    pub fn mixes_threads(&self) -> bool {
        self.mixes_threads
    }

    fn root(&mut self, process: usize, ns: i64) -> u32 {
        if let Some((root, last)) = self.processes.get_mut(&process) {
            *last = (*last).max(ns);
            return *root;
        }
        let root = self.nodes.len() as u32;
        self.nodes.push(CallNode {
            parent: root,
            process,
            name: Rc::from(""),
            calls: 0,
            without_exit: 0,
            total: 0,
            own: 0,
        });
        self.processes.insert(process, (root, ns));
        root
    }

    fn node(&mut self, parent: u32, process: usize, name: Rc<str>) -> u32 {
        if let Some(&node) = self.by_name.get(&(parent, Rc::clone(&name))) {
            return node;
        }
        if self.nodes.len() >= MAX_NODES {
            self.left_out += 1;
            return NO_NODE;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(CallNode {
            parent,
            process,
            name: Rc::clone(&name),
            calls: 0,
            without_exit: 0,
            total: 0,
            own: 0,
        });
        self.by_name.insert((parent, name), node);
        node
    }

    fn add(&mut self, call: &Call, end: i64, has_exit: bool) {
        let Some(node) = self.nodes.get_mut(call.node as usize) else {
            return;
        };
        let duration = end.saturating_sub(call.begin).max(0);
        let own = duration.saturating_sub(call.below).max(0);
        node.calls += 1;
        node.without_exit += u64::from(!has_exit);
        node.total = node.total.saturating_add(duration.cast_unsigned());
        node.own = node.own.saturating_add(own.cast_unsigned());
    }
}
