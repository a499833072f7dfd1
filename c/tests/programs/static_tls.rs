//! The library uses little static thread-local storage, so that other libraries can be loaded (F2).
//!
//! C libraries have a small reserve of it for libraries that are loaded by `dlopen`. If it is used
//! up, loading a library fails: "cannot allocate memory in static TLS block".

use std::fs;
use std::process::Command;

use usertrace_testing::c_library::succeed;

use crate::INSTALLED;
use crate::build::build;

pub(crate) const ALL: &[(&str, fn())] = &[(
    "library_loads_with_little_static_tls_left",
    load_with_little_left,
)];

/// Limit of the library's thread-local storage, in bytes: 128 are the block of
/// `usertrace/src/writer/thread/mod.rs`, the rest is the Rust standard library's.
const MOST: usize = 208;

/// Source of a library that takes one unit of the reserve.
const GREEDY: &str = r#"
__attribute__((tls_model("initial-exec"), aligned(64))) __thread char taken[64];
char *first(void) { return taken; }
"#;
const UNIT: usize = 64;
/// More libraries than any C library's reserve has units.
const COPIES: usize = 100;

/// Loads copies until one cannot be loaded, or as many as requested are. Prints their number. In
/// the second case, it also loads the tracing library, and prints the size of its thread-local
/// storage.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_tls(struct dl_phdr_info *info, size_t size, void *name)
{
	(void)size;
	if (!strcmp(info->dlpi_name, name))
		for (int n = 0; n < info->dlpi_phnum; n++)
			if (info->dlpi_phdr[n].p_type == PT_TLS)
				printf(" %zu", (size_t)info->dlpi_phdr[n].p_memsz);
	return 0;
}

int main(int argc, char **argv)
{
	int most = argc > 1 ? atoi(argv[1]) : 0, loaded = 0;
	char *library = argv[argc - 1];

	while (loaded < most && dlopen(argv[2 + loaded], RTLD_NOW | RTLD_LOCAL))
		loaded++;
	printf("%d", loaded);
	if (most < argc - 3) {
		if (!dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		dl_iterate_phdr(print_tls, library);
	}
	puts("");
	return 0;
}
"#;

fn load_with_little_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("program.c"), PROGRAM).unwrap();
    fs::write(path("greedy.c"), GREEDY).unwrap();
    build(&["gcc"], &[&path("program.c")], &path("program"));
    build(
        &["gcc", "-shared", "-fPIC"],
        &[&path("greedy.c")],
        &path("greedy.so"),
    );
    let copies: Vec<_> = (0..COPIES)
        .map(|n| path(&format!("greedy{n}.so")))
        .collect();
    for copy in &copies {
        fs::copy(path("greedy.so"), copy).unwrap();
    }
    let load = |greedy: usize| {
        let mut program = Command::new(path("program"));
        program.arg(greedy.to_string()).args(&copies);
        program.arg(INSTALLED.prefix().join("lib/libusertrace.so.1"));
        let printed = succeed(&program.output().unwrap());
        let numbers = printed.split_whitespace().map(|word| word.parse().unwrap());
        numbers.collect::<Vec<usize>>()
    };
    let all = load(COPIES)[0];
    assert!(all < COPIES, "the C library's reserve has no end");
    // Leave as much as the library needs.
    let greedy = all.checked_sub(MOST.div_ceil(UNIT)).expect("a reserve");
    let loaded = load(greedy);
    assert_eq!(loaded[0], greedy);
    assert!(loaded[1] <= MOST, "{} bytes", loaded[1]);
}
