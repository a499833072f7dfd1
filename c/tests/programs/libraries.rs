//! Events of libraries that are loaded and unloaded while they are traced (B1).

use std::path::Path;
use std::process::Command;

use usertrace_testing::c_library::succeed;
use usertrace_tests::guest::from_env;
use usertrace_tests_preload::Traces;

use crate::build::build;

pub(crate) const ALL: &[(&str, fn())] = &[(
    "libraries_in_c_can_be_loaded_and_unloaded",
    libraries_come_and_go,
)];

/// Environment variable with the number of rounds: 1,000 rounds take minutes.
const ROUNDS: &str = "USERTRACE_TEST_ROUNDS";
const LIBRARIES: usize = 50;
/// Number of different libraries. The others are copies, with events of the same names.
const DIFFERENT: usize = 5;
const EVENTS: usize = 200;

/// Source of a library with events, and a function that writes each once.
fn library(library: usize) -> String {
    let mut code = String::from("#include <usertrace.h>\n");
    let mut body = String::new();
    for n in 0..EVENTS {
        code +=
            &format!("USERTRACE_EVENT(library{library}, event_{n}, INFO, (u32, a), (u64, b));\n");
        body += &format!(
            "\twritten += usertrace(library{library}, event_{n}, round, {n}) == USERTRACE_RECORDED;\n"
        );
    }
    code += "int write_all(unsigned int round)\n{\n\tint written = 0;\n\n";
    code + &body + "\treturn written;\n}\n"
}

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <usertrace.h>

USERTRACE_EVENT(program, round, INFO, (u32, n));

static int done;

/* Writes events and makes updates constantly. */
static void *busy(void *unused)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED))
		usertrace_init();
	return unused;
}

/* Resident private pages. */
static long memory(void)
{
	long size, resident, shared;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%ld %ld %ld", &size, &resident, &shared) != 3)
		exit(1);
	fclose(file);
	/* Exclude files and rings, whose pages may be touched at any time. */
	return resident - shared;
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? atoi(argv[1]) : 1, written = 0;
	long after_some = 0;
	struct usertrace_stats stats;
	static void *handles[100];
	pthread_t thread;

	if (pthread_create(&thread, NULL, busy, NULL))
		return 1;
	for (unsigned int n = 0; n < rounds; n++) {
		usertrace(program, round, n);
		for (int i = 2; i < argc; i++) {
			int (*write_all)(unsigned int);

			handles[i] = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
			if (!handles[i]) {
				puts(dlerror());
				return 1;
			}
			*(void **)&write_all = dlsym(handles[i], "write_all");
			written += write_all(n);
		}
		/* Not in the order of loading. */
		for (int i = 2; i < argc; i++)
			if (dlclose(handles[(i * 7) % (argc - 2) + 2]))
				return 1;
		if (n == rounds / 2)
			after_some = memory();
	}
	__atomic_store_n(&done, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	usertrace_stats(&stats);
	printf("%u %u %u\n", written, stats.undescribed, (unsigned int)stats.lost);
	printf("%ld\n", memory() - after_some);
	return 0;
}
"#;

/// 10,000 events of 50 libraries, built with the address sanitizer, are described once each,
/// however often the libraries are loaded. The tracer accesses no unloaded library.
///
/// Requirements: B1
fn libraries_come_and_go() {
    let rounds = usize::try_from(from_env(ROUNDS, 5)).unwrap();
    assert!(rounds > 0, "{ROUNDS} is 0: nothing would be tested");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("program.c"), PROGRAM).unwrap();
    let sanitizer = "-fsanitize=address";
    let gcc = |more: &[&str], from: &Path, to: &Path| {
        build(&[&["gcc", "-O1", sanitizer], more].concat(), &[from], to);
    };
    gcc(&[], &path("program.c"), &path("program"));
    let libraries: Vec<_> = (0..LIBRARIES)
        .map(|n| path(&format!("library{n}.so")))
        .collect();
    for (n, to) in libraries.iter().enumerate() {
        if n < DIFFERENT {
            std::fs::write(path("library.c"), library(n)).unwrap();
            gcc(&["-shared", "-fPIC"], &path("library.c"), to);
        } else {
            std::fs::copy(&libraries[n % DIFFERENT], to).unwrap();
        }
    }
    // The output, and the growth in pages in the second half.
    let run = |command: &mut Command| {
        command.arg(rounds.to_string()).args(&libraries);
        // Without this, the sanitizer keeps up to 256 MiB of freed memory.
        command.env("ASAN_OPTIONS", "quarantine_size_mb=1");
        let printed = succeed(&command.output().unwrap());
        let (counts, grown) = printed.trim().split_once('\n').unwrap();
        (counts.to_owned(), grown.parse::<i64>().unwrap())
    };
    let mut untraced = Command::new(path("program"));
    let (counts, usual) = run(untraced.env("USERTRACE_BACKEND", "off"));
    assert_eq!(counts, "0 0 0");
    let traces = Traces::new();
    let mut traced = Command::new(path("program"));
    // The reader is another process, which may come late.
    let (counts, grown) = run(traces.of(&mut traced).env("USERTRACE_MODE", "block"));
    let events = LIBRARIES * EVENTS;
    assert_eq!(counts, format!("{} 0 0", rounds * events));
    // The sanitizer and the dynamic linker keep some memory for each library themselves.
    assert!(
        grown < usual + usual / 4 + 100,
        "{grown} pages, else {usual}"
    );
    let read = traces.read();
    assert_eq!(read.events.len(), rounds * (events + 1));
    for n in 0..DIFFERENT {
        let last = format!("library{n}:event_{}", EVENTS - 1);
        let count = read
            .events
            .iter()
            .filter(|event| event.name == last)
            .count();
        assert_eq!(count, rounds * LIBRARIES / DIFFERENT);
    }
}
