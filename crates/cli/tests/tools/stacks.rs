//! `usertrace export --folded`, `--pprof` and `--firefox`, and the call stacks of `usertrace
//! report`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use usertrace_ctf::{StreamWriter, TraceOrigin, TraceWriter};
use usertrace_testing::browser::Browser;
use usertrace_testing::exited;
use usertrace_testing::processes::{stream_with_contexts, trace_in_ns};
use usertrace_testing::tools::{firefox_profiler, pprof};

const US: u64 = 1000;
/// Where the program of the traces was loaded.
const BASE: u64 = 0x5500_0000_0000;

/// A program with functions of known names. `parse` is inlined into `handle`.
const SOURCE: &str = "\
#include <stdlib.h>
volatile int kept;
__attribute__((noinline)) void *allocate(int n)
{
	kept = n;
	return malloc(n);
}
static inline __attribute__((always_inline)) void *parse(int n)
{
	void *block = allocate(n + 1);
	__asm__ volatile(\".globl in_parse\\nin_parse:\\n\\tnop\");
	return block;
}
__attribute__((noinline)) void handle(int n)
{
	kept = parse(n) != 0;
	__asm__ volatile(\".globl in_handle\\nin_handle:\\n\\tnop\");
}
__attribute__((noinline)) void idle(int n)
{
	kept = n;
	__asm__ volatile(\".globl in_idle\\nin_idle:\\n\\tnop\");
}
int main(int argc, char **argv)
{
	handle(argc);
	idle(argc);
	__asm__ volatile(\".globl in_main\\nin_main:\\n\\tnop\");
	return argv == 0;
}
";

/// A compiled program, and its code addresses.
struct Program {
    path: PathBuf,
    build_id: Vec<u8>,
    symbols: BTreeMap<String, u64>,
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

impl Program {
    fn compile(directory: &Path) -> Self {
        fs::write(directory.join("shop.c"), SOURCE).unwrap();
        let path = directory.join("shop");
        let mut command = Command::new("gcc");
        command.current_dir(directory).args([
            "-O2",
            "-g",
            "-fPIE",
            "-pie",
            "-Wl,--build-id=sha1",
            "shop.c",
            "-o",
            "shop",
        ]);
        output(&mut command);
        let symbols = output(Command::new("nm").arg(&path));
        let symbols = symbols.lines().filter_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            Some((rest.split(' ').nth(1)?.to_owned(), address))
        });
        let notes = output(Command::new("readelf").arg("-n").arg(&path));
        let id = notes.split("Build ID: ").nth(1).unwrap();
        let id = id.split_whitespace().next().unwrap().as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(text(two), 16).unwrap();
        Self {
            symbols: symbols.collect(),
            build_id: id.chunks(2).map(byte).collect(),
            path,
        }
    }

    /// A return address: behind the `nop` at a label.
    fn at(&self, label: &str) -> u64 {
        BASE + self.symbols[label] + 1
    }

    /// A return address in `allocate`.
    fn in_allocate(&self) -> u64 {
        BASE + self.symbols["allocate"] + 1
    }
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
    command.args(arguments).current_dir(directory);
    command.env_remove("DEBUGINFOD_URLS").output().unwrap()
}

/// The events of a trace, in order of time.
struct Stream {
    _trace: TraceWriter,
    stream: StreamWriter,
    time: u64,
}

impl Stream {
    /// Begins a trace whose events have threads and call stacks.
    fn new(directory: &Path, pid: u32) -> Self {
        let of = TraceOrigin::Process {
            name: "shop".into(),
            pid,
            process: pid.into(),
        };
        fs::create_dir_all(directory).unwrap();
        let mut trace = trace_in_ns(&directory.join(format!("shop-{pid}")), "mine", of);
        let stream = stream_with_contexts(
            &mut trace,
            "@1 u32 vtid;c8[16] procname;x64[] callstack",
            &[
                "1 lttng_ust_statedump:bin_info 13 x64 baddr;u64 memsz;str path;u8 is_pic;u8 has_build_id;u8 has_debug_link",
                "2 lttng_ust_statedump:build_id 13 x64 baddr;x8[] build_id",
                "3 libc:malloc 14 u64 size;x64 ptr",
                "4 libc:free 14 x64 ptr",
                "5 t:work_entry 6",
                "6 t:work_exit 6",
                "7 t:sent 6 s64 bytes",
                "8 pthread:mutex_lock_req 14 x64 mutex;x64 thread",
                "9 pthread:mutex_lock_acq 14 x64 mutex;x64 thread;s32 result",
            ],
        );
        Self {
            _trace: trace,
            stream,
            time: 0,
        }
    }

    /// Writes an event, a microsecond after the last one.
    fn event(&mut self, id: u16, thread: u32, stack: &[u64], payload: &[u8]) {
        self.after(US, id, thread, stack, payload);
    }

    fn after(&mut self, ns: u64, id: u16, thread: u32, stack: &[u64], payload: &[u8]) {
        self.time += ns;
        let mut contexts = thread.to_ne_bytes().to_vec();
        contexts.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
        contexts.extend((stack.len() as u32).to_ne_bytes());
        contexts.extend(stack.iter().flat_map(|address| address.to_ne_bytes()));
        self.stream
            .event(id, self.time, &contexts, payload)
            .unwrap();
    }

    /// Says that the program is loaded.
    fn load(&mut self, program: &Program) {
        let path = program.path.to_str().unwrap();
        let size = 0x10_0000u64;
        let mut payload = [BASE.to_ne_bytes(), size.to_ne_bytes()].concat();
        payload.extend(path.as_bytes());
        payload.extend([0, 1, 1, 0]);
        self.event(1, 0, &[], &payload);
        let mut payload = BASE.to_ne_bytes().to_vec();
        payload.extend((program.build_id.len() as u32).to_ne_bytes());
        payload.extend(&program.build_id);
        self.event(2, 0, &[], &payload);
    }

    fn finish(mut self) {
        self.stream.finish().unwrap();
    }
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

/// Writes a trace of two threads: allocations below `parse`, which is inlined into `handle`, work
/// below `handle` and `idle`, and waits for a lock.
fn write(directory: &Path, program: &Program, pid: u32) {
    let mut stream = Stream::new(directory, pid);
    stream.load(program);
    let (main, idle) = (program.at("in_main"), program.at("in_idle"));
    let handle = program.at("in_handle");
    let allocate = [program.in_allocate(), program.at("in_parse"), main];
    let allocate = &allocate[..];
    for n in 0..10u64 {
        stream.event(3, pid, allocate, &numbers(&[100, 0x1000 + n]));
    }
    // All but two are released: 200 bytes stay, and 1000 were in use at the peak.
    for n in 0..8u64 {
        stream.event(4, pid, &[handle, main], &numbers(&[0x1000 + n]));
    }
    // 500 ns of `work` are those of the inner one.
    stream.event(5, pid, &[handle, main], &[]);
    stream.after(100, 5, pid, &[idle, main], &[]);
    stream.after(500, 6, pid, &[idle, main], &[]);
    stream.after(400, 6, pid, &[handle, main], &[]);
    // An error is no number of bytes.
    stream.event(7, pid + 1, &[idle, main], &numbers(&[4096]));
    stream.event(
        7,
        pid + 1,
        &[idle, main],
        &numbers(&[(-11i64).cast_unsigned()]),
    );
    let thread = 7u64;
    for waits in [3000, 5000] {
        stream.event(8, pid + 1, &[handle, main], &numbers(&[0xabc, thread]));
        let acquired = [numbers(&[0xabc, thread]), 0i32.to_ne_bytes().to_vec()].concat();
        stream.after(waits, 9, pid + 1, &[handle, main], &acquired);
    }
    // Code outside of all modules, and an event without a call stack.
    stream.event(7, pid + 1, &[0x1234, main], &numbers(&[1]));
    stream.event(7, pid + 1, &[], &numbers(&[1]));
    stream.finish();
}

fn folded(directory: &Path, arguments: &[&str]) -> Vec<String> {
    let output = run(
        directory,
        &[&["export", "--folded"], arguments, &["traces"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Each weight has the sums that the events say, with inlined functions, and nothing is lost.
///
/// Requirements: E8
#[test]
fn folded_stacks_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::compile(directory.path());
    write(&directory.path().join("traces"), &program, 40);
    let main = "shop (40);main";
    let of = |lines: &[(&str, u64)]| -> Vec<String> {
        lines
            .iter()
            .map(|(stack, weight)| format!("{stack} {weight}"))
            .collect()
    };
    let folded = |arguments: &[&str]| folded(directory.path(), arguments);
    let malloc = format!("{main};handle;parse;allocate;libc:malloc");
    let [acquired, request] =
        ["acq", "req"].map(|end| format!("{main};handle;pthread:mutex_lock_{end}"));
    assert_eq!(
        folded(&[]),
        of(&[
            ("shop (40);[no call stack];t:sent", 1),
            (&format!("{main};0x1234;t:sent"), 1),
            (&format!("{main};handle;libc:free"), 8),
            (&malloc, 10),
            (&acquired, 2),
            (&request, 2),
            (&format!("{main};handle;t:work_entry"), 1),
            (&format!("{main};handle;t:work_exit"), 1),
            (&format!("{main};idle;t:sent"), 2),
            (&format!("{main};idle;t:work_entry"), 1),
            (&format!("{main};idle;t:work_exit"), 1),
        ])
    );
    assert_eq!(
        folded(&["--by", "bytes"]),
        of(&[
            ("shop (40);[no call stack];t:sent", 1),
            (&format!("{main};0x1234;t:sent"), 1),
            (&malloc, 1000),
            (&format!("{main};idle;t:sent"), 4096),
        ])
    );
    assert_eq!(
        folded(&["--by", "time"]),
        of(&[
            (&format!("{main};handle;pthread:mutex_lock"), 8000),
            (&format!("{main};handle;t:work"), 500),
            (&format!("{main};idle;t:work"), 500),
        ])
    );
    let allocate = format!("{main};handle;parse;allocate");
    assert_eq!(folded(&["--by", "live"]), of(&[(&allocate, 200)]));
    assert_eq!(folded(&["--by", "peak"]), of(&[(&allocate, 1000)]));
    // Selected events, and threads.
    // The events about modules are of the program's stream here.
    let waits = "shop (40);worker 41;main;handle;pthread:mutex_lock 8000";
    assert_eq!(
        folded(&[
            "--by",
            "time",
            "-e",
            "pthread:*,lttng_ust_statedump:*",
            "--threads"
        ]),
        [waits]
    );
}

/// Without symbols, and without the program, frames are places in modules.
#[test]
fn nameless_code_is_a_place_in_its_module() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::compile(directory.path());
    write(&directory.path().join("traces"), &program, 40);
    let [main, allocate] = [program.at("in_main"), program.in_allocate()].map(|at| at - BASE);
    let parse = program.at("in_parse") - BASE;
    let expected = format!("shop (40);shop+{main:#x};shop+{parse:#x};shop+{allocate:#x} 200");
    let arguments = ["--by", "live", "--symbols", "never"];
    assert_eq!(
        folded(directory.path(), &arguments),
        std::slice::from_ref(&expected)
    );
    fs::remove_file(&program.path).unwrap();
    let output = run(
        directory.path(),
        &["export", "--folded", "--by", "live", "traces"],
    );
    assert_eq!(text(&output.stdout), format!("{expected}\n"));
    let said = text(&output.stderr);
    assert!(
        said.contains("shop") && said.contains("--debug-dir"),
        "{said}"
    );
}

/// What cannot be shown has a reason that says what to do.
#[test]
fn missing_weights_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let program = Program::compile(path);
    write(&path.join("traces"), &program, 40);
    for (arguments, status, reason) in [
        (
            &["--by", "live", "-e", "t:*"][..],
            1,
            "record with --malloc",
        ),
        (
            &["--by", "time", "-e", "libc:*"],
            1,
            "no selected events begin and end something",
        ),
        (&["--by", "bytes", "-e", "libc:free"], 1, "field \"bytes\""),
        (
            &["--where", "bytes == 1 && 1 == 2"],
            1,
            "no event is selected",
        ),
        (
            &["--by", "cycles"],
            2,
            "known: events, bytes, time, live, peak",
        ),
    ] {
        let output = run(
            path,
            &[&["export", "--folded"], arguments, &["traces"]].concat(),
        );
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    let output = run(path, &["export", "--json", "--by", "time", "traces"]);
    assert_eq!(output.status.code(), Some(2));
    // An output that is there stays.
    fs::write(path.join("out"), "before").unwrap();
    let output = run(
        path,
        &[
            "export", "--pprof", "--by", "live", "-e", "t:*", "-o", "out", "traces",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(path.join("out")).unwrap(), "before");
    // No event of the trace has a call stack.
    let mut stream = Stream::new(&path.join("without"), 50);
    stream.event(7, 50, &[], &numbers(&[1]));
    stream.finish();
    let output = run(path, &["export", "--folded", "without"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("record with --context callstack"), "{said}");
}

/// The page's flame graph: weights, search, zoom by mouse and keys, and its tables.
///
/// Requirements: E8
#[test]
fn page_shows_call_stacks() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::compile(directory.path());
    write(&directory.path().join("traces"), &program, 40);
    let mut browser = page(directory.path());
    assert_eq!(shown(&mut browser, "flame-status"), "30 events");
    assert_eq!(
        frame(&mut browser, "parse"),
        "parse: 10 events, 33.3 % of all"
    );
    assert_eq!(
        frame(&mut browser, "libc:free"),
        "libc:free: 8 events, 26.7 % of all"
    );
    let weights = browser.text(
        "[...document.querySelectorAll('#weights label')].map(label => label.textContent).join()",
    );
    assert_eq!(
        weights,
        "events,bytes,time,in use at the end,in use at the peak"
    );
    for (weight, status, name, text) in [
        ("bytes", "5.0 KiB", "idle", "idle: 4.0 KiB, 80.3 % of all"),
        ("time", "9 µs", "handle", "handle: 8.5 µs, 94.4 % of all"),
        (
            "live",
            "200 bytes",
            "allocate",
            "allocate: 200 bytes, 100 % of all",
        ),
        (
            "peak",
            "1000 bytes",
            "allocate",
            "allocate: 1000 bytes, 100 % of all",
        ),
    ] {
        browser.value(&format!(
            "document.querySelector('#weights [value={weight}]').click()"
        ));
        assert_eq!(shown(&mut browser, "flame-status"), status);
        assert_eq!(frame(&mut browser, name), text);
    }
    browser.value("document.querySelector('#weights [value=events]').click()");
    walk_by_keys(&mut browser);
    search_by_keys(&mut browser);
    // A click zooms, and the button shows all again.
    browser.value("document.querySelector('[aria-label^=\"idle:\"]').click()");
    assert_eq!(shown(&mut browser, "flame-status"), "4 events in idle");
    assert_eq!(
        frame(&mut browser, "t:sent"),
        "t:sent: 2 events, 6.67 % of all, 50 % of what is shown"
    );
    assert_eq!(frame(&mut browser, "parse"), "");
    browser.value("document.getElementById('flame-all').click()");
    assert_eq!(shown(&mut browser, "flame-status"), "30 events");
    tables(&mut browser);
    // Keys of the timeline still work, and those of the flame graph do not reach it.
    let before = browser.value("View.begin").as_f64().unwrap();
    browser.value("Timeline.box.focus()");
    browser.press("w");
    browser.wait(&format!("View.begin > {before}"));
    browser.screenshot(&directory.path().join("page.png"));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The description of the frame with this name, or nothing.
fn frame(browser: &mut Browser, name: &str) -> String {
    let label = browser.text(&format!(
        "document.querySelector('.frame[aria-label^=\"{name}:\"]')?.getAttribute('aria-label') ?? ''"
    ));
    label.replace('\u{202f}', "")
}

fn shown(browser: &mut Browser, id: &str) -> String {
    let text = browser.text(&format!("document.getElementById('{id}').textContent"));
    text.replace('\u{202f}', "")
}

/// The name of the frame that has the focus.
fn focused(browser: &mut Browser) -> String {
    let label = browser.text("document.activeElement.getAttribute('aria-label') ?? ''");
    label.split(": ").next().unwrap().to_owned()
}

/// Walks through frames and zooms by keys.
fn walk_by_keys(browser: &mut Browser) {
    browser.value("document.querySelector('.frame[tabindex=\"0\"]').focus()");
    let view = browser.value("View.begin");
    browser.press("Home");
    for (key, name) in [
        ("ArrowDown", "shop (40)"),
        ("ArrowDown", "main"),
        ("ArrowDown", "handle"),
        ("ArrowRight", "idle"),
        ("ArrowRight", "0x1234"),
        ("ArrowRight", "0x1234"),
        ("ArrowLeft", "idle"),
        ("ArrowLeft", "handle"),
        ("ArrowDown", "parse"),
        ("ArrowUp", "handle"),
    ] {
        browser.press(key);
        assert_eq!(focused(browser), name, "{key}");
    }
    assert!(shown(browser, "flame-focused").contains("handle: 24 events, 80 % of all"));
    assert!(shown(browser, "flame-focused").contains("shop.c:"));
    browser.press("Enter");
    assert_eq!(shown(browser, "flame-status"), "24 events in handle");
    assert_eq!(focused(browser), "handle");
    assert_eq!(frame(browser, "idle"), "");
    browser.press("Escape");
    assert_eq!(shown(browser, "flame-status"), "29 events in main");
    browser.press("0");
    assert_eq!(shown(browser, "flame-status"), "30 events");
    assert_eq!(
        browser.value("View.begin"),
        view,
        "the timeline moved as well"
    );
    assert_eq!(
        browser.text("document.querySelectorAll('.frame[tabindex=\"0\"]').length"),
        "1"
    );
}

/// Searches by keys: the share of what matches, each frame once.
fn search_by_keys(browser: &mut Browser) {
    browser.press("/");
    for key in "PARSE".chars() {
        browser.press(&key.to_string());
    }
    assert_eq!(
        shown(browser, "flame-status"),
        "30 events 33.3 % of it match “parse”"
    );
    assert_eq!(
        browser.text("document.querySelectorAll('.frame.found').length"),
        "1"
    );
    browser.press("Enter");
    assert_eq!(focused(browser), "all");
    browser.press("Escape");
    assert_eq!(shown(browser, "flame-status"), "30 events");
    // A file, in which functions call each other.
    browser.value("Stacks.flame.search('shop.c')");
    assert_eq!(
        shown(browser, "flame-status"),
        "30 events 96.7 % of it match “shop.c”"
    );
    browser.value("Stacks.flame.search('')");
}

/// The tables of memory and of waits, with the function that is to blame.
fn tables(browser: &mut Browser) {
    let cells = |browser: &mut Browser, table: &str| {
        let cells = browser.text(&format!(
            "[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.cells].map(cell => (cell.querySelector('summary') ?? cell).textContent).join('|')).join('#')"
        ));
        cells.replace('\u{202f}', "")
    };
    let leaks = cells(browser, "leaks");
    assert!(
        leaks.starts_with("allocate (") && leaks.ends_with("/shop.c:5)|200 bytes|2"),
        "{leaks}"
    );
    let peaks = cells(browser, "peaks");
    assert!(peaks.ends_with("|1000 bytes|10"), "{peaks}");
    let stack = browser.text("[...document.querySelectorAll('#leaks li')].map(line => line.textContent.replace(/ .*[/]/, ' ')).join()");
    assert_eq!(
        stack,
        "allocate shop.c:5),parse shop.c:11), inlined,handle shop.c:16),main shop.c:28)"
    );
    let waits = cells(browser, "waits");
    assert!(
        waits.ends_with("|pthread:mutex_lock|2|8 µs|4 µs|5 µs"),
        "{waits}"
    );
}

/// The page of the traces in a directory, in a browser.
fn page(directory: &Path) -> Browser {
    let output = run(directory, &["report", "-o", "page.html", "traces"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut browser = Browser::start(1280, 900);
    browser.open(&directory.join("page.html"));
    browser.wait("document.documentElement.dataset.ready");
    browser
}

/// Without call stacks, the page says how to record them.
#[test]
fn page_says_how_to_record_call_stacks() {
    let directory = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(&directory.path().join("traces"), 50);
    stream.event(7, 50, &[], &numbers(&[1]));
    stream.finish();
    let mut browser = page(directory.path());
    let is_shown = "document.getElementById('stackless').checkVisibility()";
    assert_eq!(browser.value(is_shown), true);
    let is_shown = "document.getElementById('stacks').checkVisibility()";
    assert_eq!(browser.value(is_shown), false);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Names of modules and functions are text in the page, whatever they are, and end no line of
/// folded stacks.
#[test]
fn names_of_code_never_become_markup() {
    let directory = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(&directory.path().join("traces"), 60);
    let path = b"/tmp/</script><img src=x onerror=alert(1)>;a b\nc\0\x01\0\0";
    let mut payload = numbers(&[BASE, 0x1000]);
    payload.extend(path);
    stream.event(1, 0, &[], &payload);
    for n in 0..3 {
        stream.event(
            3,
            60,
            &[BASE + 0x100, BASE + 0x200],
            &numbers(&[8, 0x1000 + n]),
        );
    }
    stream.finish();
    let mut browser = page(directory.path());
    assert_eq!(browser.text("document.querySelectorAll('img').length"), "0");
    let shown = browser.text("document.getElementById('leaks').textContent + document.getElementById('flame').textContent");
    assert!(
        shown
            .matches("script><img src=x onerror=alert(1)>;a b")
            .count()
            > 2,
        "{shown}"
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
    let lines = folded(directory.path(), &["--by", "live"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].split(';').count(), 3, "{lines:?}");
    assert!(lines[0].ends_with("+0x100 24"), "{lines:?}");
}

/// Writes an export, and returns its path.
fn export(directory: &Path, arguments: &[&str]) -> PathBuf {
    let output = run(
        directory,
        &[&["export", "-o", "out.gz"], arguments, &["traces"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    directory.join("out.gz")
}

/// pprof itself reads the profile: weights, functions, files, inlined frames, modules and labels.
///
/// Requirements: E8
#[test]
fn pprof_reads_the_profile() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::compile(directory.path());
    write(&directory.path().join("traces"), &program, 40);
    let profile = export(directory.path(), &["--pprof", "--by", "live"]);
    let raw = pprof(&profile, &["-raw"]);
    let types = "events/count bytes/bytes time/nanoseconds live_space/bytes[dflt] peak_space/bytes";
    assert!(raw.contains(types), "{raw}");
    let id: String = program
        .build_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mapping = format!("{} {id} [FN][FL][LN][IN]", program.path.display());
    assert!(raw.contains(&mapping), "{raw}");
    // The call in `parse`, and its caller.
    assert!(
        raw.contains(&format!("M=1 parse {}.c:11:0 s=0", program.path.display())),
        "{raw}"
    );
    // The default weight is that of --by.
    let top = pprof(&profile, &["-top"]);
    assert!(
        top.contains("Type: live_space")
            && top.contains("200B   100%   100%       200B   100%  allocate"),
        "{top}"
    );
    let stacks = pprof(&profile, &["-traces", "-sample_index=peak_space"]);
    let stack = "    1000B   allocate\n             parse (inline)\n             handle\n             main\n";
    assert!(stacks.contains(stack), "{stacks}");
    let waits = [
        "-top",
        "-sample_index=time",
        "-tagfocus=event=pthread:mutex_lock",
    ];
    let waits = pprof(&profile, &waits);
    assert!(
        waits.contains("8us 88.89% 88.89%        8us 88.89%  handle"),
        "{waits}"
    );
    let tags = pprof(&profile, &["-tags", "-sample_index=events"]);
    for line in [
        "10 (33.33%): libc:malloc",
        "30 (  100%): 40",
        "8 (26.67%): 41",
        "30 (  100%): worker",
    ] {
        assert!(tags.contains(line), "{line}: {tags}");
    }
}

/// Firefox Profiler's own code reads the profile: threads, stacks, weights, lines and modules.
///
/// Requirements: E8
#[test]
fn firefox_profiler_reads_the_profile() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::compile(directory.path());
    write(&directory.path().join("traces"), &program, 40);
    let read = |by: &str, commands: &[&[&str]]| {
        let profile = export(directory.path(), &["--firefox", "--by", by]);
        firefox_profiler(&profile, commands)
    };
    let tree = &["thread", "samples-top-down", "--thread"];
    let of = |thread| [&tree[..], &[thread]].concat();
    let contains = |output: &str, parts: &[&str]| {
        for part in parts {
            assert!(output.contains(part), "{part}: {output}");
        }
    };
    let function = ["function", "info", "f-0"];
    let commands: [&[&str]; 4] = [&["profile", "info"], &of("t-0"), &of("t-1"), &function];
    let output = read("events", &commands);
    contains(
        &output[0],
        &["2 threads across 1 processes", "t-1: worker 41 [tid 41]"],
    );
    let parts = [
        "f-0. shop!main [total: 100.0%, self: 0.0%]",
        "├─ f-1. shop!handle [total: 90.9%, self: 0.0%]",
        "│  ├─ f-2. shop!parse [total: 45.5%, self: 0.0%]",
        "│  │  f-4. libc:malloc [total: 45.5%, self: 45.5%]",
    ];
    contains(&output[1], &parts);
    contains(
        &output[2],
        &[
            "0x1234",
            "[no call stack]",
            "pthread:mutex_lock_req [total: 25.0%, self: 25.0%]",
        ],
    );
    let path = format!("Library path: {}", program.path.display());
    contains(&output[3], &["Full name: shop!main", "22  100.0%", &path]);
    let commands: [&[&str]; 2] = [&of("t-0"), &of("t-1")];
    let output = read("time", &commands);
    contains(&output[0], &["t:work [total: 50.0%, self: 50.0%]"]);
    contains(
        &output[1],
        &["pthread:mutex_lock [total: 100.0%, self: 100.0%]"],
    );
    let commands: [&[&str]; 1] = [&of("t-0")];
    let output = read("peak", &commands);
    contains(&output[0], &["allocate [total: 100.0%, self: 100.0%]"]);
}

/// Writes a trace of eight threads with a call stack of 16 frames at each event, of which there are
/// some 20,000 different ones. Half of the events allocate and free, half work.
fn write_many(directory: &Path, events: u64) {
    let mut stream = Stream::new(directory, 40);
    let path = b"/usr/bin/shop\0\x01\0\0";
    let mut payload = [BASE.to_ne_bytes(), 0x10_0000u64.to_ne_bytes()].concat();
    payload.extend(path);
    stream.event(1, 0, &[], &payload);
    let mut random = 1u64;
    let mut next = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
    let mut stack = [0; 16];
    for n in 0..events {
        let thread = 100 + (n / 64 % 8) as u32;
        if n % 4 == 0 {
            // Callers are shared, and the innermost frames differ.
            let place = next(20_000);
            for (depth, address) in (0u64..).zip(&mut stack) {
                *address = BASE + 0x1000 + (place >> depth) * 40 + depth * 0x8000;
            }
        }
        let pointer = 0x5500_0000_0000 + (n / 4 * 4 % 100_003) * 16;
        let (id, payload) = match n % 4 {
            0 => (5, vec![]),
            1 => (3, numbers(&[16 + next(1000), pointer])),
            2 => (4, numbers(&[pointer])),
            _ => (6, vec![]),
        };
        stream.event(id, thread, &stack, &payload);
    }
    stream.finish();
}

/// Call stacks of a large trace take bounded time and memory, in the page and in the exports.
/// docs/bench.md has the figures of `USERTRACE_TEST_EVENTS=10000000` in a release build, which this
/// prints.
///
/// Requirements: E8
#[test]
#[ignore = "full tier: a minute"]
fn many_call_stacks_take_bounded_time_and_memory() {
    let events = std::env::var("USERTRACE_TEST_EVENTS");
    let events: u64 = events.map_or(500_000, |events| events.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    write_many(&directory.path().join("traces"), events);
    for arguments in [
        &["report"][..],
        &["export", "--folded"],
        &["export", "--pprof", "--by", "peak"],
        &["export", "--firefox", "--by", "time"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usertrace"));
        let command = command.args(arguments).args(["-o", "out", "traces"]);
        let (exited, elapsed) = exited::run(command.current_dir(directory.path())).unwrap();
        assert!(exited.status.success(), "{}", exited.status);
        let (worked, rss) = (exited.processor.as_secs_f64(), exited.peak_kib >> 10);
        let len = fs::metadata(directory.path().join("out")).unwrap().len() >> 10;
        println!(
            "{events} events with stacks: {}: {elapsed:.1?} ({worked:.1} s of a processor), {rss} MiB, {len} KiB",
            arguments.join(" ")
        );
        assert!(rss < 500, "{rss} MiB");
        assert!(worked < 60.0, "{worked}");
    }
}
