//! Keeps a machine busy with traces until the file `stop` is in its directory:
//!
//! - threads write all the time, one of them also from a signal handler, and count their events in
//!   a page of memory;
//! - a reader keeps up with them;
//! - traces are created and removed; processes start, fork, write, and end;
//! - one process allocates most of the memory, again and again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SigHandler, Signal, signal};
use usertrace::{Outcome, Status};
use usertrace_consumer::{CONTROL_FS, consumer_files};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::instants::{HANDLER, READ, TAG, THREADS};
use usertrace_tests::shared::Shared;
use usertrace_tests::{child, cpu, event};

/// The thread number of events of brief processes.
const BRIEF: u32 = HANDLER + 1;

#[derive(Debug, Parser)]
struct Args {
    /// Only write some events, and end
    #[arg(long)]
    briefly: bool,
    /// Only take most of the memory that there is, and give it back, for ever
    #[arg(long)]
    press: bool,
    /// Where the file `ready` is made, and `stop` is looked for
    directory: PathBuf,
}

/// How many events each thread has recorded, and last the signal handler.
static RECORDED: OnceLock<&[AtomicU64]> = OnceLock::new();

/// The page with the tag and the counts of events.
fn page() -> &'static [AtomicU64] {
    let words = Box::leak(Box::new(Shared::new())).words();
    words[1].store(!TAG, Ordering::Relaxed);
    // Release: a reader that finds the tag finds its complement, too.
    words[0].store(TAG, Ordering::Release);
    words
}

/// Writes an event, and counts it. Traces that overwrite have it, whatever the others dropped.
fn write(thread: u32) {
    let Some(words) = RECORDED.get() else { return };
    let recorded = &words[thread as usize];
    let number = recorded.load(Ordering::Relaxed);
    if event::write(thread, number) != Outcome::Off {
        // Release: a memory image that has the count has the event, too.
        recorded.store(number + 1, Ordering::Release);
    }
}

/// Only one thread has this signal.
extern "C" fn on_signal(_: libc::c_int) {
    write(HANDLER);
}

/// Sends signals to a thread, for ever.
fn interrupt(thread: Pthread) -> ! {
    loop {
        std::thread::sleep(Duration::from_micros(300));
        pthread_kill(thread, Signal::SIGUSR1).expect("a signal");
    }
}

/// Consumes this process's events of a trace, for ever.
fn consume(trace: &str) -> ! {
    let channel = Path::new(CONTROL_FS).join(trace).join("main");
    let names = consumer_files(&channel).expect("files");
    let own = format!("{}.", std::process::id());
    let files: Vec<_> = names
        .iter()
        .filter(|name| name.starts_with(&own))
        .map(|name| Consumer::open(&channel.join(name)))
        .collect();
    assert!(!files.is_empty(), "no file of {own}: {names:?}");
    loop {
        files.iter().for_each(Consumer::consume_all);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Allocates most of the memory, and frees it, for ever.
fn press() -> ! {
    loop {
        let said = fs::read_to_string("/proc/meminfo").expect("it says how much there is");
        let available = said.lines().find_map(|line| {
            let rest = line.strip_prefix("MemAvailable:")?;
            rest.split_whitespace().next()?.parse::<usize>().ok()
        });
        let kib = available.expect("a number") / 4 * 3;
        std::hint::black_box(vec![1u8; kib << 10]);
    }
}

/// Creates and removes traces while processes start and end.
fn come_and_go(directory: &Path) {
    let program = std::env::current_exe().expect("its own path");
    let root = Path::new(CONTROL_FS);
    for turn in 0u64.. {
        if directory.join("stop").exists() {
            return;
        }
        let trace = root.join(format!("brief-{}", turn % 3));
        if turn >= 3 {
            fs::remove_dir(&trace).expect("a trace is removed");
        }
        fs::create_dir(&trace).expect("a trace is made");
        fs::write(trace.join("main/flight"), "1").expect("it overwrites");
        fs::write(trace.join("main/subbuf_size"), "4096").expect("its size");
        fs::write(trace.join("start"), "1").expect("it is started");
        let status = Command::new(&program)
            .arg("--briefly")
            .arg(directory)
            .status()
            .expect("a process");
        assert!(status.success());
    }
}

fn write_briefly() {
    for number in 0..100 {
        event::write(BRIEF, number);
    }
}

/// Ends the program if a thread panics: the test would miss that thread's work.
fn end_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panicked| {
        say(panicked);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    end_on_panic();
    let args = Args::parse();
    if args.press {
        press();
    }
    let status = usertrace::init();
    if status != Status::Attached {
        eprintln!("busy: {status}");
        return ExitCode::FAILURE;
    }
    if args.briefly {
        write_briefly();
        child::run(write_briefly);
        return ExitCode::SUCCESS;
    }
    let page = page();
    RECORDED.set(&page[2..]).expect("it is set once");
    // SAFETY: the handler writes an event, which handlers may, and uses atomics.
    unsafe { signal(Signal::SIGUSR1, SigHandler::Handler(on_signal)) }.expect("a handler");
    for trace in READ {
        std::thread::spawn(|| consume(trace));
    }
    for thread in 0..THREADS {
        std::thread::spawn(move || {
            cpu::pin(thread as usize);
            if thread == 0 {
                let this = pthread_self();
                std::thread::spawn(move || interrupt(this));
            }
            loop {
                write(thread);
            }
        });
    }
    let recorded = |thread: u32| page[2 + thread as usize].load(Ordering::Relaxed);
    while (0..THREADS).any(|thread| recorded(thread) < 1000) || recorded(HANDLER) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let program = std::env::current_exe().expect("its own path");
    let mut pressing = Command::new(program)
        .args(["--press", "."])
        .spawn()
        .expect("a process");
    fs::write(args.directory.join("ready"), "").expect("a file");
    come_and_go(&args.directory);
    pressing.kill().expect("it is there");
    pressing.wait().expect("it is there");
    ExitCode::SUCCESS
}
