//! The context `callstack` has the callers of the program's call, whatever code they are.

use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use usertrace_testing::babeltrace::{Printed, Read};
use usertrace_tests_preload::{Libraries, Traces, compile_with};

/// A program in which each function calls the next one. It prints the addresses of sections, each
/// with one function.
const NESTED: &str = r#"
#define _GNU_SOURCE
#include <alloca.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define LEVEL __attribute__((noinline, noclone))
#define IN(name) __attribute__((section(#name))) LEVEL
#define SECTIONS(with) with(in_inner) with(in_middle) with(in_outer) with(in_deep) with(in_main)
#define DECLARE(name) extern char __start_##name[], __stop_##name[];
SECTIONS(DECLARE)
#define PRINT(name) printf("%lx %lx ", (long)__start_##name, (long)__stop_##name);

static void *volatile kept;
static volatile int depth;
void _start(void);

IN(in_inner) void inner(size_t size) { kept = malloc(size); free(kept); depth++; }
IN(in_middle) void middle(size_t size) { inner(size); depth++; }
IN(in_outer) void outer(size_t size) { middle(size); depth++; }
IN(in_deep) void deep(int level) { if (level) deep(level - 1); else outer(1300); depth++; }

/* Frames of other kinds than most. */
LEVEL void aligned(size_t size) { char room[100] __attribute__((aligned(128))); kept = room; outer(size); depth++; }
LEVEL void dynamic(size_t size) { kept = memset(alloca(size), 0, size); outer(size); depth++; }
LEVEL void both(size_t size)
{
	char room[100] __attribute__((aligned(64)));

	kept = room; kept = memset(alloca(size), 0, size); outer(size); depth++;
}
LEVEL void far(size_t size) { kept = memset(alloca(2 << 20), 0, 2 << 20); outer(size); depth++; }
LEVEL void large(size_t size) { char room[200000]; kept = room; room[size] = 1; outer(size); depth++; }

static void handler(int signo) { (void)signo; outer(1400); }
static void *routine(void *arg) { outer(1200); return arg; }

static ucontext_t back, other;
static void coroutine(void) { outer(1500); swapcontext(&other, &back); }

#ifdef __x86_64__
/* Code that is made at run time: with frame pointers, and without. */
static const unsigned char with_frame[] = {
	0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3 };
static const unsigned char without[] = {
	0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x18, 0xc3 };

static void made(const void *code, size_t len, size_t size)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, code, len);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	((void (*)(void (*)(size_t), size_t))page)(outer, size);
	munmap(page, 4096);
}

/* As code without frame pointers may leave them. */
IN(in_inner) void hostile(unsigned long frame)
{
	__asm__ volatile("push %%rbp; mov %0, %%rbp; mov $1600, %%edi; sub $64, %%rsp; mov %%rsp, %%rbx; and $-16, %%rsp; call malloc; mov %%rax, %%rdi; call free; mov %%rbx, %%rsp; add $64, %%rsp; pop %%rbp"
		     : : "r"(frame) : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}
#else
static void hostile(unsigned long frame) { (void)frame; }
#endif

IN(in_main) int main(void)
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
	aligned(1700); dynamic(1710); both(1720); large(1730); far(1740);
#ifdef __x86_64__
	made(with_frame, sizeof with_frame, 1800);
	made(without, sizeof without, 1810);
#endif
	for (int round = 0; round < 100; round++)
		for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) hostile(bad[n]);
	SECTIONS(PRINT)
	printf("%lx\n", (long)_start);
	return 0;
}
"#;

/// The sections of `NESTED` by index.
const INNER: Option<usize> = Some(0);
const MIDDLE: Option<usize> = Some(1);
const OUTER: Option<usize> = Some(2);
const DEEP: Option<usize> = Some(3);
const MAIN: Option<usize> = Some(4);

/// What a program wrote.
struct Run {
    read: Read,
    sections: Vec<Range<u64>>,
    /// What the program printed behind the sections.
    printed: Vec<u64>,
}

impl Run {
    /// Runs a program that prints the ranges of `count` sections.
    fn new(program: &Path, count: usize) -> Self {
        let traces = Traces::new();
        let (libraries, mut command) = (Libraries::all(), Command::new(program));
        let command = libraries
            .of(&mut command)
            .env("USERTRACE_CONTEXTS", "vtid ip callstack:20");
        let output = traces.of(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let words = text.split_whitespace();
        let words: Vec<_> = words
            .map(|word| u64::from_str_radix(word, 16).unwrap())
            .collect();
        let (sections, printed) = words.split_at(2 * count);
        let sections = sections.as_chunks().0.iter();
        Self {
            read: traces.read(),
            sections: sections.map(|[start, stop]| *start..*stop).collect(),
            printed: printed.to_vec(),
        }
    }

    /// The call stacks of `malloc` with a size.
    fn stacks(&self, size: u64) -> Vec<Vec<u64>> {
        let events = self.read.events.iter();
        let mallocs =
            events.filter(|event| event.name == "libc:malloc" && event.field("size") == size);
        mallocs.map(frames).collect()
    }

    /// The only call stack of `malloc` with a size, and the sections of its frames.
    fn stack(&self, size: u64) -> (Vec<u64>, Vec<Option<usize>>) {
        let mut stacks = self.stacks(size);
        assert_eq!(stacks.len(), 1, "malloc({size})");
        let frames = stacks.remove(0);
        let found = frames.iter().map(|&frame| self.section(frame)).collect();
        (frames, found)
    }

    fn section(&self, address: u64) -> Option<usize> {
        // A return address may be behind the function.
        let holds = |range: &Range<u64>| range.contains(&(address - 1));
        self.sections.iter().position(holds)
    }
}

/// The call stack of an event. The first address is that of the context `ip`.
fn frames(event: &Printed) -> Vec<u64> {
    let frames: Vec<u64> = (0..64)
        .map_while(|n| event.element("callstack", n))
        .map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap())
        .collect();
    assert_eq!(frames[0], event.address("ip"));
    frames
}

const CALLS: [&str; 3] = ["-pthread", "-fno-optimize-sibling-calls", "-O2"];

fn nested(more: &[&str]) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let options = [&CALLS, more].concat();
    Run::new(
        &compile_with(directory.path(), "program", NESTED, &options),
        5,
    )
}

/// Whether the C library has the function that finds unwind tables.
fn has_tables() -> bool {
    // SAFETY: a name that ends with NUL.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) }.is_null()
}

fn check_callers(run: &Run) {
    for size in [1100, 1200, 1400, 1500] {
        let (frames, found) = run.stack(size);
        assert_eq!(found[..3], [INNER, MIDDLE, OUTER], "{size}: {frames:x?}");
    }
    // The rest of a deep stack is left out.
    let (frames, found) = run.stack(1300);
    let deep = [&[INNER, MIDDLE, OUTER][..], &[DEEP; 17]].concat();
    assert_eq!(found, deep, "{frames:x?}");
    let expected = if cfg!(target_arch = "x86_64") {
        1500
    } else {
        0
    };
    // Frame pointers that are none.
    assert_eq!(run.stacks(1600).len(), expected);
}

/// Requirements: F7
#[test]
fn callstacks_are_those_of_the_callers() {
    check_callers(&nested(&["-fno-omit-frame-pointer"]));
}

/// Unwind tables lead through code without frame pointers, through signals and frames of any kind,
/// to the start of the program or thread.
///
/// Requirements: F7
#[test]
fn callstacks_need_no_frame_pointers() {
    if !has_tables() {
        eprintln!("skipped: the C library cannot find unwind tables without a lock");
        return;
    }
    for more in [
        &["-fomit-frame-pointer"][..],
        &["-fno-omit-frame-pointer"],
        &["-fomit-frame-pointer", "-O1", "-march=haswell"],
        &["-O0"],
    ] {
        if cfg!(not(target_arch = "x86_64")) && more.contains(&"-march=haswell") {
            continue;
        }
        let run = nested(more);
        check_callers(&run);
        let start = run.printed[0]..run.printed[0] + 64;
        let is_whole = |size| {
            let (frames, found) = run.stack(size);
            assert_eq!(
                found[..3],
                [INNER, MIDDLE, OUTER],
                "{more:?} {size}: {frames:x?}"
            );
            let mains = found.iter().filter(|&&found| found == MAIN).count();
            assert_eq!(mains, 1, "{more:?} {size}: {frames:x?}");
            let last = *frames.last().unwrap();
            assert!(start.contains(&last), "{more:?} {size}: {frames:x?}");
        };
        let (_, found) = run.stack(1100);
        assert_eq!(found[3], MAIN, "{more:?}");
        // The second one is in a signal handler on a stack of its own.
        for size in [1100, 1400, 1700, 1710, 1720, 1730, 1740] {
            is_whole(size);
        }
        if cfg!(target_arch = "x86_64") {
            // Code that is made at run time, with frame pointers.
            is_whole(1800);
            assert_eq!(run.stack(1810).1[..3], [INNER, MIDDLE, OUTER]);
        }
        // The start of the thread ends its stack, and that of the coroutine has nothing above it.
        for size in [1200, 1500] {
            let (frames, found) = run.stack(size);
            assert!(
                (4..12).contains(&frames.len()),
                "{more:?} {size}: {frames:x?}"
            );
            assert!(!found.contains(&MAIN), "{more:?} {size}: {frames:x?}");
        }
    }
}

/// Events that take something back have the caller alone: a stack says who has something. Their
/// stacks can be asked for.
///
/// Requirements: F7
#[test]
fn releases_have_their_caller_alone_unless_stacks_of_all_are_wanted() {
    const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *volatile kept;

__attribute__((noinline)) int main(void)
{
	kept = malloc(1234);
	free(kept);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	return 0;
}
"#;
    let directory = tempfile::tempdir().unwrap();
    let options = ["-pthread", "-fno-omit-frame-pointer"];
    let program = compile_with(directory.path(), "program", PROGRAM, &options);
    for (value, is_all) in [(None, false), (Some("all"), true), (Some("some"), false)] {
        let traces = Traces::new();
        let (libraries, mut command) = (Libraries::all(), Command::new(&program));
        let command = libraries
            .of(&mut command)
            .env("USERTRACE_CONTEXTS", "ip callstack");
        value.map(|value| command.env("USERTRACE_STACKS", value));
        let output = traces.of(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let complaint = r#"cannot use USERTRACE_STACKS "some": it is not all"#;
        assert_eq!(said.contains(complaint), value == Some("some"), "{said}");
        let read = traces.read();
        let events = read.events.iter();
        let lens = |name: &str| -> Vec<usize> {
            let named = events.clone().filter(|event| event.name == name);
            named.map(|event| frames(event).len()).collect()
        };
        for name in [
            "libc:malloc",
            "pthread:mutex_lock_req",
            "pthread:mutex_lock_acq",
        ] {
            let lens = lens(name);
            assert!(
                !lens.is_empty() && lens.iter().all(|&len| len > 1),
                "{name} {lens:?}"
            );
        }
        for name in ["libc:free", "pthread:mutex_unlock"] {
            let lens = lens(name);
            let is_right = |&len: &usize| if is_all { len > 1 } else { len == 1 };
            assert!(
                !lens.is_empty() && lens.iter().all(is_right),
                "{value:?} {name} {lens:?}"
            );
        }
    }
}

/// A library whose function calls another one.
const LIBRARY: &str = r#"
#include <stddef.h>
#include <string.h>

static void *volatile kept;

void pass(void (*function)(size_t), size_t size)
{
	char room[ROOM];

	kept = memset(room, 0, sizeof room);
	function(size);
	kept = NULL;
}
"#;

/// A program that loads libraries at run time: each argument in turn, `rounds` times. It prints how
/// many of them were where the last one had been.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define IN(name) __attribute__((section(#name), noinline, noclone))
extern char __start_in_main[], __stop_in_main[], __start_in_inner[], __stop_in_inner[];
static void *volatile kept;
static atomic_int stopped;

IN(in_inner) void inner(size_t size) { kept = malloc(size); free(kept); kept = NULL; }

/* Leaves addresses of libraries on the stack. */
static void *others(void *arg)
{
	while (!stopped) { void *mine = malloc(3333); free(mine); }
	return arg;
}

IN(in_main) int main(int argc, char **argv)
{
	int rounds = atoi(getenv("ROUNDS")), same = 0;
	void *before = NULL;
	pthread_t thread;

	if (pthread_create(&thread, NULL, others, NULL)) return 1;
	for (int round = 0; round < rounds; round++) {
		for (int n = 1; n < argc; n++) {
			void *handle = dlopen(argv[n], RTLD_NOW);
			void (*pass)(void (*)(size_t), size_t);

			if (!handle) { fprintf(stderr, "%s\n", dlerror()); return 1; }
			*(void **)&pass = dlsym(handle, "pass");
			same += (void *)pass == before;
			before = (void *)pass;
			pass(inner, 2000 + n);
			dlclose(handle);
		}
	}
	stopped = 1;
	pthread_join(thread, NULL);
	printf("%lx %lx %lx %lx %x\n", (long)__start_in_inner, (long)__stop_in_inner,
	       (long)__start_in_main, (long)__stop_in_main, same);
	return 0;
}
"#;

fn library(directory: &Path, name: &str, room: usize) -> std::path::PathBuf {
    let room = format!("-DROOM={room}");
    let options = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", &room];
    compile_with(directory, name, LIBRARY, &options)
}

/// A library that takes the place of one that was unloaded is walked by its own tables.
///
/// Requirements: F7
#[test]
fn unloaded_libraries_leave_no_rules() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // A round trip of both in turn, at the same address.
    let libraries = [
        library(directory, "a.so", 16),
        library(directory, "b.so", 3000),
    ];
    let options = [&CALLS[..], &["-fomit-frame-pointer"]].concat();
    let program = compile_with(directory, "program", LOADER, &options);
    let script = directory.join("run");
    let words: Vec<_> = libraries
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect();
    let text = format!(
        "#!/bin/sh\nROUNDS=10 exec {} {}\n",
        program.display(),
        words.join(" ")
    );
    write_script(&script, &text);
    let run = Run::new(&script, 2);
    assert!(
        run.printed[0] > 0,
        "no library was where another one had been"
    );
    for size in [2001, 2002] {
        let stacks = run.stacks(size);
        assert_eq!(stacks.len(), 10);
        for frames in stacks.iter().filter(|_| has_tables()) {
            let found: Vec<_> = frames.iter().map(|&frame| run.section(frame)).collect();
            assert_eq!(found[..3], [Some(0), None, Some(1)], "{frames:x?}");
        }
    }
}

fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Tables with any contents do no harm.
///
/// Requirements: F7
#[test]
fn hostile_unwind_tables_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let good = library(directory, "good.so", 100);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut libraries = Vec::new();
    for number in 0..24 {
        let bad = directory.join(format!("bad{number}.so"));
        let mut command = Command::new("objcopy");
        for (section, kinds) in [(".eh_frame", 1), (".eh_frame_hdr", 2)] {
            if (number % 3 + 1) & kinds == 0 {
                continue;
            }
            let contents = directory.join("contents");
            let mut dump = Command::new("objcopy");
            dump.arg("--dump-section")
                .arg(format!("{section}={}", contents.display()));
            let status = dump.arg(&good).arg(directory.join("copy")).status();
            assert!(status.expect("objcopy").success());
            let mut bytes = std::fs::read(&contents).unwrap();
            for byte in &mut bytes {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Few bytes, or all.
                if number >= 12 || random >> 60 == 0 {
                    *byte = (random >> 8) as u8;
                }
            }
            let changed = directory.join(format!("changed{number}{section}"));
            std::fs::write(&changed, bytes).unwrap();
            command
                .arg("--update-section")
                .arg(format!("{section}={}", changed.display()));
        }
        let done = command.arg(&good).arg(&bad).stderr(Stdio::null()).status();
        assert!(done.expect("objcopy").success());
        libraries.push(bad);
    }
    let options = [&CALLS[..], &["-fomit-frame-pointer"]].concat();
    let program = compile_with(directory, "program", LOADER, &options);
    let words: Vec<_> = libraries
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect();
    let script = directory.join("run");
    let text = format!(
        "#!/bin/sh\nROUNDS=3 exec {} {}\n",
        program.display(),
        words.join(" ")
    );
    write_script(&script, &text);
    let run = Run::new(&script, 2);
    for (number, _) in libraries.iter().enumerate() {
        let stacks = run.stacks(2001 + number as u64);
        assert_eq!(stacks.len(), 3);
        for frames in stacks {
            assert_eq!(run.section(frames[0]), Some(0));
        }
    }
}
