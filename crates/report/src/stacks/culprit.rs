//! Finds the function of a call stack that a person looks for, which is not the library's.

use usertrace_symbols::Frame;

/// Starts of functions that allocate or lock on behalf of their callers, without the type that they
/// return. Paths of Rust are also known with `<` before them.
const LIBRARY: &[&str] = &[
    // C and C++
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "strdup",
    "strndup",
    "__libc_",
    "__strdup",
    "__strndup",
    "asprintf",
    "vasprintf",
    "getdelim",
    "getline",
    "g_malloc",
    "g_calloc",
    "g_realloc",
    "g_slice_alloc",
    "g_strdup",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xstrdup",
    "operator new",
    "std::",
    "__gnu_cxx::",
    "__gthread_",
    "pthread_",
    "__pthread_",
    // Rust
    "alloc::",
    "core::",
    "hashbrown::",
    "parking_lot",
    "__rust_",
    "__rustc::",
    "__rdl_",
    "__rg_",
];

/// Parts of paths of the libraries' sources, parts of which are compiled into programs.
const SOURCES: &[&str] = &[
    "/include/c++/",
    "/library/alloc/src/",
    "/library/core/src/",
    "/library/std/src/",
];

/// Modules whose functions without names are of the library.
const MODULES: &[&str] = &[
    "libc.so",
    "libc-",
    "libpthread",
    "libstdc++",
    "libc++",
    "ld-linux",
    "ld-musl",
    "libusertrace",
];

/// The index of the innermost frame that is of the program, and not of an allocator, a container or
/// a lock. If there is none, the innermost frame. `frames` begin with the innermost one.
#[must_use]
pub fn culprit<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> usize {
    let mut frames = frames.into_iter();
    frames.position(|frame| !is_of_library(frame)).unwrap_or(0)
}

fn is_of_library(frame: &Frame) -> bool {
    let function = &frame.function[..];
    let file = frame.file.as_deref().unwrap_or_default();
    if SOURCES.iter().any(|source| file.contains(source)) {
        return true;
    }
    if frame.is_unknown {
        return MODULES.iter().any(|module| function.starts_with(module));
    }
    let name = without_return_type(function).trim_start_matches(['<', '&', '*']);
    LIBRARY.iter().any(|start| match name.strip_prefix(start) {
        None => false,
        // A whole word, or the start of a path or of a family of functions.
        Some(rest) => {
            start.ends_with([':', '_', ' '])
                || !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        }
    })
}

/// Demangled names of templates in C++ begin with the type that they return: `void std::f<int>()`.
fn without_return_type(function: &str) -> &str {
    let mut depth = 0;
    let mut begin = 0;
    for (at, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' => break,
            // `operator new` is one word.
            ' ' if depth == 0 && !function[..at].ends_with("operator") => begin = at + 1,
            _ => {}
        }
    }
    match function[begin..].is_empty() || depth != 0 {
        true => function,
        false => &function[begin..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str) -> Frame {
        Frame {
            function: function.to_owned(),
            is_unknown: function.contains("+0x"),
            ..Frame::default()
        }
    }

    fn found(functions: &[&str]) -> String {
        let frames: Vec<Frame> = functions.iter().map(|function| frame(function)).collect();
        frames[culprit(&frames)].function.clone()
    }

    /// Programs implement traits of libraries, and libraries their own traits for any type.
    #[test]
    fn sources_tell_libraries_from_programs() {
        let frame = |function: &str, file: &str| Frame {
            function: function.to_owned(),
            file: Some(file.to_owned()),
            ..Frame::default()
        };
        let library = "/rustc/0123/library/alloc/src/vec/mod.rs";
        let frames = [
            frame(
                "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
                library,
            ),
            frame("make<int>(int)", "/usr/include/c++/14/bits/new_allocator.h"),
            frame("<u8 as shop::Sold>::sell", "/src/shop.rs"),
        ];
        assert_eq!(culprit(&frames), 2);
    }

    #[test]
    fn functions_of_libraries_are_passed_over() {
        for (stack, expected) in [
            (&["make_leak", "main"][..], "make_leak"),
            (
                &["operator new(unsigned long)", "Cache::add(int)", "main"],
                "Cache::add(int)",
            ),
            (
                &[
                    "libstdc++.so.6+0xb0",
                    "std::__new_allocator<int>::allocate(unsigned long, void const*)",
                    "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int&&)",
                    "std::map<int, std::string> shop::orders(int)",
                ],
                "std::map<int, std::string> shop::orders(int)",
            ),
            (
                &[
                    "alloc::alloc::alloc",
                    "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
                    "<std::collections::HashMap<K, V>>::insert",
                    "<shop::Order as core::clone::Clone>::clone",
                ],
                "<shop::Order as core::clone::Clone>::clone",
            ),
            (&["std::mutex::lock()", "Queue::push()"], "Queue::push()"),
            (&["malloc", "strdup"], "malloc"),
            (&["__libc_malloc", "main"], "main"),
            // Not of the library, though their names begin like it.
            (&["malloc_pool", "main"], "malloc_pool"),
            (&["stdio_read", "main"], "stdio_read"),
            (&["core_loop", "main"], "core_loop"),
            (&["app+0x123", "main"], "app+0x123"),
            (&["malloc", "libc.so.6+0x12"], "malloc"),
        ] {
            assert_eq!(found(stack), expected, "{stack:?}");
        }
        assert_eq!(culprit([]), 0);
    }
}
