//! The context `ip` is an address in the program, even if preloaded libraries interpose the
//! function.

use std::collections::BTreeSet;
use std::process::Command;

use usertrace_tests_preload::{Libraries, Traces, compile_with};

/// A program whose calls are in a section of their own; it prints the section's addresses.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS __attribute__((section("calls"), noinline, no_instrument_function))
extern char __start_calls[], __stop_calls[];
void __cyg_profile_func_enter(void *function, void *call_site);
void __cyg_profile_func_exit(void *function, void *call_site);
void *reallocarray(void *ptr, size_t nmemb, size_t size);

static void *volatile kept;

CALLS static void memory(void)
{
    void *other;

    kept = malloc(10);
    kept = realloc(kept, 20);
    free(kept);
    kept = calloc(3, 5);
    kept = reallocarray(kept, 5, 10);
    free(kept);
    if (!posix_memalign(&other, 64, 10)) free(other);
    kept = aligned_alloc(64, 128); free(kept);
    kept = memalign(64, 10); free(kept);
    kept = valloc(10); free(kept);
    kept = pvalloc(10); free(kept);
}

CALLS static void *routine(void *arg) { return arg; }

CALLS static void threads(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_t thread;

    pthread_mutex_lock(&mutex);
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
    if (!pthread_mutex_trylock(&mutex)) pthread_mutex_unlock(&mutex);
    if (!pthread_create(&thread, NULL, routine, NULL)) pthread_join(thread, NULL);
}

CALLS static void libraries(void)
{
    void *handle = dlopen("libm.so.6", RTLD_NOW);

    if (handle) dlclose(handle);
}

CALLS static void functions(void)
{
    __cyg_profile_func_enter((void *)functions, NULL);
    __cyg_profile_func_exit((void *)functions, NULL);
}

int main(void)
{
    memory(); threads(); libraries(); functions();
    printf("%lx %lx\n", (unsigned long)__start_calls, (unsigned long)__stop_calls);
    return 0;
}
"#;

const EVENTS: [&str; 25] = [
    "libc:malloc",
    "libc:calloc",
    "libc:realloc",
    "libc:free",
    "libc:posix_memalign",
    "libc:aligned_alloc",
    "libc:memalign",
    "libc:valloc",
    "libc:pvalloc",
    "pthread:mutex_lock_req",
    "pthread:mutex_lock_acq",
    "pthread:mutex_trylock",
    "pthread:mutex_unlock",
    "pthread:cond_signal",
    "pthread:create",
    "pthread:start",
    "pthread:end",
    "pthread:join_req",
    "pthread:join_done",
    "dl:dlopen_req",
    "dl:dlopen",
    "dl:dlclose_req",
    "dl:dlclose",
    "function:entry",
    "function:exit",
];

/// Requirements: F7
#[test]
fn ip_is_the_callers() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_with(directory.path(), "program", PROGRAM, &["-pthread"]);
    let traces = Traces::new();
    let (libraries, mut command) = (Libraries::all(), Command::new(program));
    let command = libraries.of(&mut command).env("USERTRACE_CONTEXTS", "ip");
    let output = traces.of(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let calls: Vec<_> = text
        .split_whitespace()
        .map(|word| u64::from_str_radix(word, 16).unwrap())
        .collect();
    let read = traces.read();
    let of_calls = read.events.iter().filter(|event| {
        let ip = event.address("ip");
        (calls[0]..calls[1]).contains(&ip)
    });
    let found: Vec<_> = of_calls.map(|event| event.name.as_str()).collect();
    let names: BTreeSet<_> = found.iter().copied().collect();
    assert_eq!(names, BTreeSet::from(EVENTS));
    // `reallocarray` makes one of them.
    let count = |name: &str| found.iter().filter(|&&found| found == name).count();
    assert_eq!(count("libc:realloc"), 2);
}
