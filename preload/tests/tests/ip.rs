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

/// A program with frame pointers, in which each function calls the next.
const NESTED: &str = r#"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <ucontext.h>

#define LEVEL __attribute__((noinline, noclone))
#define IN(name) __attribute__((section(#name))) LEVEL

static void *volatile kept;
static volatile int depth;
extern char __start_in_inner[], __stop_in_inner[], __start_in_middle[], __stop_in_middle[],
            __start_in_outer[], __stop_in_outer[], __start_in_deep[], __stop_in_deep[];

IN(in_inner) void inner(size_t size) { kept = malloc(size); free(kept); depth++; }
IN(in_middle) void middle(size_t size) { inner(size); depth++; }
IN(in_outer) void outer(size_t size) { middle(size); depth++; }
IN(in_deep) void deep(int level) { if (level) deep(level - 1); else outer(1300); depth++; }

static void handler(int signo) { (void)signo; outer(1400); }
static void *routine(void *arg) { outer(1200); return arg; }

static ucontext_t back, other;
static void coroutine(void) { outer(1500); swapcontext(&other, &back); }

/* As code without frame pointers may leave them. */
IN(in_inner) void hostile(unsigned long frame)
{
#ifdef __x86_64__
    __asm__ volatile("push %%rbp; mov %0, %%rbp; mov $1600, %%edi; sub $64, %%rsp; mov %%rsp, %%rbx; and $-16, %%rsp; call malloc; mov %%rax, %%rdi; call free; mov %%rbx, %%rsp; add $64, %%rsp; pop %%rbp"
                     : : "r"(frame) : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
#else
    (void)frame;
#endif
}

int main(void)
{
    static char alternate[65536], stack[65536];
    stack_t ss = { .ss_sp = alternate, .ss_size = sizeof alternate };
    struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
    pthread_t thread;
    unsigned long here = (unsigned long)&here;
    unsigned long bad[] = { 0, 1, 8, here & ~7ul, (here & ~7ul) + 3, 1ul << 20, 1ul << 40, -8ul, -16ul, -1ul,
                            1ul << 63, (here & ~4095ul) - 8, (here | 0xffffff) + 1, (unsigned long)stack,
                            (unsigned long)main & ~7ul };

    outer(1100);
    if (!pthread_create(&thread, NULL, routine, NULL)) pthread_join(thread, NULL);
    deep(100);
    sigaltstack(&ss, NULL);
    sigaction(SIGUSR1, &sa, NULL);
    raise(SIGUSR1);
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = sizeof stack;
    other.uc_link = &back;
    makecontext(&other, coroutine, 0);
    swapcontext(&back, &other);
    for (int round = 0; round < 100; round++)
        for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) hostile(bad[n]);
    printf("%lx %lx %lx %lx %lx %lx %lx %lx\n", (long)__start_in_inner, (long)__stop_in_inner,
           (long)__start_in_middle, (long)__stop_in_middle, (long)__start_in_outer, (long)__stop_in_outer,
           (long)__start_in_deep, (long)__stop_in_deep);
    return 0;
}
"#;

/// Requirements: F7
#[test]
fn callstacks_are_those_of_the_callers() {
    let directory = tempfile::tempdir().unwrap();
    let options = [
        "-pthread",
        "-fno-omit-frame-pointer",
        "-fno-optimize-sibling-calls",
        "-O2",
    ];
    let program = compile_with(directory.path(), "program", NESTED, &options);
    let traces = Traces::new();
    let (libraries, mut command) = (Libraries::all(), Command::new(program));
    let command = libraries
        .of(&mut command)
        .env("USERTRACE_CONTEXTS", "vtid ip callstack:20");
    let output = traces.of(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let sections: Vec<_> = text
        .split_whitespace()
        .map(|word| u64::from_str_radix(word, 16).unwrap())
        .collect();
    let section = |address: u64| {
        let (ranges, _) = sections.as_chunks::<2>();
        ranges
            .iter()
            .position(|range| (range[0]..range[1]).contains(&address))
    };
    let read = traces.read();
    let callstack = |size: u64| {
        let mallocs = read
            .events
            .iter()
            .filter(|event| event.name == "libc:malloc");
        let event = mallocs
            .clone()
            .find(|event| event.field("size") == size)
            .unwrap_or_else(|| panic!("no malloc({size})"));
        let frames: Vec<u64> = (0..64)
            .map_while(|n| event.element("callstack", n))
            .map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap())
            .collect();
        assert_eq!(frames[0], event.address("ip"));
        frames
    };
    for size in [1100, 1200, 1400, 1500] {
        let frames = callstack(size);
        let found: Vec<_> = frames[..3].iter().map(|&frame| section(frame)).collect();
        assert_eq!(found, [Some(0), Some(1), Some(2)], "{size}: {frames:x?}");
    }
    // The rest of a deep stack is left out.
    let frames = callstack(1300);
    let found: Vec<_> = frames.iter().map(|&frame| section(frame)).collect();
    let deep = [&[Some(0), Some(1), Some(2)][..], &[Some(3); 17]].concat();
    assert_eq!(found, deep, "{frames:x?}");
    // Frame pointers that are none.
    let hostile = read
        .events
        .iter()
        .filter(|event| event.name == "libc:malloc" && event.field("size") == 1600);
    let expected = if cfg!(target_arch = "x86_64") {
        1500
    } else {
        0
    };
    assert_eq!(hostile.clone().count(), expected);
    for event in hostile {
        let first = event.element("callstack", 0).map(str::to_lowercase);
        assert_eq!(first, Some(format!("{:#x}", event.address("ip"))));
    }
}
