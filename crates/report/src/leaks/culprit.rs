//! Which function of a call stack to blame for an allocation.

use crate::stacks::Frame;

/// Functions that allocate for their caller.
const ALLOCATORS: [&str; 34] = [
    "__libc_calloc",
    "__libc_malloc",
    "__libc_memalign",
    "__libc_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__strdup",
    "__strndup",
    "aligned_alloc",
    "asprintf",
    "calloc",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_realloc",
    "g_strdup",
    "malloc",
    "memalign",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "strdup",
    "strndup",
    "valloc",
    "vasprintf",
    "xcalloc",
    "xmalloc",
    "xrealloc",
    "xstrdup",
];

/// Starts of names in the libraries of C++ and Rust.
const LIBRARIES: [&str; 8] = [
    "__gnu_cxx::",
    "__rustc::",
    "alloc::",
    "core::",
    "hashbrown::",
    "operator new",
    "std::",
    "void* std::",
];

/// The index of the first frame that does not belong to an allocator or a container: who wanted the
/// memory. 0 if all do. `frames` begins with the innermost one.
#[must_use]
pub fn culprit<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> usize {
    let mut frames = frames.into_iter();
    frames
        .position(|frame| !is_allocator(&frame.function))
        .unwrap_or(0)
}

fn is_allocator(function: &str) -> bool {
    // `<alloc::vec::Vec<T> as core::iter::FromIterator<T>>::from_iter`
    let path = function.trim_start_matches(['<', '&', '*']);
    // A template has the type of its result in front, unless that was left out.
    LIBRARIES.iter().any(|library| path.starts_with(library))
        || ALLOCATORS.binary_search(&function).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(functions: &[&str]) -> usize {
        let frames: Vec<Frame> = functions
            .iter()
            .map(|function| Frame {
                function: (*function).to_owned(),
                ..Frame::default()
            })
            .collect();
        culprit(&frames)
    }

    #[test]
    fn allocators_are_not_to_blame() {
        assert!(ALLOCATORS.is_sorted());
        assert_eq!(named(&["work", "main"]), 0);
        assert_eq!(
            named(&["operator new(unsigned long)", "shop::Cart::add()", "main"]),
            1
        );
        assert_eq!(
            named(&[
                "operator new(unsigned long)",
                "std::__new_allocator<int>::allocate(unsigned long, void const*)",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                "shop::Cart::add()",
            ]),
            3
        );
        assert_eq!(
            named(&[
                "__rustc::__rust_alloc",
                "alloc::raw_vec::RawVecInner<A>::try_allocate_in",
                "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
                "<shop::Cart as core::clone::Clone>::clone",
            ]),
            3
        );
        // A name that only begins alike.
        assert_eq!(named(&["strdup", "malloc_stats", "main"]), 1);
        assert_eq!(named(&["malloc", "strdup"]), 0);
        assert_eq!(named(&[]), 0);
    }
}
