//! A lock-free list that only grows.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A list whose elements stay forever, in the order in which they were added.
///
/// Signal handlers and children of `fork` may use it at any time: no operation waits.
#[derive(Debug)]
pub(crate) struct List<T: 'static>(AtomicPtr<Node<T>>);

#[derive(Debug)]
struct Node<T: 'static> {
    value: T,
    rest: List<T>,
}

impl<T: Sync> List<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    fn node(&self) -> Option<&'static Node<T>> {
        // Acquire: pairs with the exchange in `push`, so the node's initial values are visible.
        let node = self.0.load(Ordering::Acquire);
        // SAFETY: this is NULL, or a node that `push` leaked; only its atomic pointer changes.
        unsafe { node.as_ref() }
    }

    /// The first element.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&'static T> {
        self.node().map(|node| &node.value)
    }

    /// All elements, in order.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        let mut next = self.node();
        std::iter::from_fn(move || {
            let node = next?;
            next = node.rest.node();
            Some(&node.value)
        })
    }

    /// Appends a value, unless the list has the `same` one. Returns the one in the list.
    pub(crate) fn push(&self, value: T, same: impl Fn(&T, &T) -> bool) -> &'static T {
        let new = Box::into_raw(Box::new(Node {
            value,
            rest: List::new(),
        }));
        let mut end = self;
        loop {
            // Release: publishes the node. Acquire: as in `node`.
            let (success, failure) = (Ordering::Release, Ordering::Acquire);
            match end
                .0
                .compare_exchange(ptr::null_mut(), new, success, failure)
            {
                // SAFETY: the node is in the list now, so it is never freed.
                Ok(_) => return unsafe { &(*new).value },
                Err(there) => {
                    // SAFETY: nodes of the list are never freed, and no other thread has ours.
                    let (node, ours) = unsafe { (&*there, &*new) };
                    if same(&node.value, &ours.value) {
                        // SAFETY: `Box::into_raw` returned it above, and it is not in the list.
                        drop(unsafe { Box::from_raw(new) });
                        return &node.value;
                    }
                    end = &node.rest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_in_order_and_once() {
        let list: &'static List<u32> = Box::leak(Box::new(List::new()));
        assert_eq!(list.first(), None);
        for value in [3, 1, 2, 1, 3] {
            assert_eq!(*list.push(value, u32::eq), value);
        }
        assert_eq!(list.first(), Some(&3));
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), [3, 1, 2]);
    }

    #[test]
    fn several_threads_push_the_same() {
        let list: &'static List<u32> = Box::leak(Box::new(List::new()));
        let all = || (0..500).map(|n| ptr::from_ref(list.push(n, u32::eq)).addr());
        let places: Vec<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| all().collect())).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(list.iter().count(), 500);
        assert!(places.iter().all(|of_one| *of_one == places[0]));
    }
}
