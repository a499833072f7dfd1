//! What the writers of all formats need.

use crate::activity::Activity;
use crate::process_text::process_text;
use crate::stacks::{Frames, Owners, Profile, Tree, Weight};

/// A process, as profiles name it.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) pid: Option<i64>,
}

impl Process {
    /// Its name and its number.
    pub(super) fn text(&self) -> String {
        process_text(&self.name, self.pid)
    }
}

/// A complete profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) by: Weight,
    pub(super) with_threads: bool,
    pub(super) activity: &'a Activity,
    pub(super) profile: &'a Profile,
    /// By their numbers.
    pub(super) processes: &'a [Process],
    pub(super) frames: &'a Frames,
}

impl Source<'_> {
    /// All stacks as a tree.
    pub(super) fn tree(&self) -> Tree {
        let processes: Vec<String> = self.processes.iter().map(Process::text).collect();
        let owners = Owners {
            processes: &processes,
            with_threads: self.with_threads,
        };
        Tree::new(self.profile, self.activity, self.frames, owners)
    }
}
