//! A list that only grows, and that nobody locks.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What is in it stays for ever, in the order in which it came.
///
/// Signal handlers and children of `fork` may use it at any time: there is no moment at which
/// somebody has to wait.
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
        // Acquire: pairs with the exchange in `push`, so the node is seen as it was made.
        let node = self.0.load(Ordering::Acquire);
        // SAFETY: NULL, or a node that `push` leaked, which nobody changes but for the atomic in
        // it.
        unsafe { node.as_ref() }
    }

    /// The first.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&'static T> {
        self.node().map(|node| &node.value)
    }

    /// All of it.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        let mut next = self.node();
        std::iter::from_fn(move || {
            let node = next?;
            next = node.rest.node();
            Some(&node.value)
        })
    }

    /// Appends it, unless somebody was faster with one that is the `same`: the one that is in the
    /// list comes back.
    pub(crate) fn push(&self, value: T, same: impl Fn(&T, &T) -> bool) -> &'static T {
        let new = Box::into_raw(Box::new(Node {
            value,
            rest: List::new(),
        }));
        let mut end = self;
        loop {
            // Release: the node was made before. Acquire: as in `node`.
            let (success, failure) = (Ordering::Release, Ordering::Acquire);
            match end
                .0
                .compare_exchange(ptr::null_mut(), new, success, failure)
            {
                // SAFETY: it is in the list now, and so stays.
                Ok(_) => return unsafe { &(*new).value },
                Err(there) => {
                    // SAFETY: a node of the list; and ours, which nobody else knows.
                    let (node, ours) = unsafe { (&*there, &*new) };
                    if same(&node.value, &ours.value) {
                        // SAFETY: made by a box above, and not in the list.
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
    fn what_is_pushed_is_there_in_order_and_once() {
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
