//! Shares identical declarations between traces: thousands of processes mostly run the same few
//! programs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};

use crate::metadata::{Metadata, StreamClass};

/// The declarations in use, by a hash of their names.
#[derive(Debug, Default)]
pub(super) struct SharedClasses(HashMap<u64, Vec<Weak<Vec<StreamClass>>>>);

impl SharedClasses {
    /// Replaces the declarations by identical ones of other metadata, if there are any.
    pub(super) fn share(&mut self, metadata: &mut Metadata) {
        let known = self.0.entry(hash(&metadata.classes)).or_default();
        known.retain(|classes| classes.strong_count() > 0);
        let mut there = known.iter().filter_map(Weak::upgrade);
        match there.find(|classes| *classes == metadata.classes) {
            Some(classes) => metadata.classes = classes,
            None => known.push(Arc::downgrade(&metadata.classes)),
        }
    }
}

fn hash(classes: &[StreamClass]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for class in classes {
        class.id.hash(&mut hasher);
        for event in class.events() {
            (event.id, &event.name).hash(&mut hasher);
        }
    }
    hasher.finish()
}
