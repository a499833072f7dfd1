//! The program that is controlled: it executes the lines of its input.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use usertrace::__private::{Entry, declare, register, unregister};
use usertrace::Callsite;
use usertrace::Outcome;
use usertrace::control::{self, Mode};
use usertrace::probe::{self, Record};
use usertrace_control::Client;

/// How often the program's probe was called, and the sum of the numbers that it got.
static CALLS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

extern "C" fn count(record: &Record<'_>, _: *mut c_void) {
    let n = record
        .payload()
        .first_chunk()
        .map_or(0, |&n| u64::from_le_bytes(n));
    CALLS[0].fetch_add(1, Ordering::Relaxed);
    CALLS[1].fetch_add(n, Ordering::Relaxed);
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Executes each line of standard input, and prints an answer to each. `record` writes the event
/// `test:numbered`, which the program declares.
pub fn run(record: fn(u64) -> Outcome) {
    // Ends a program whose test waits for an answer in vain. A test that succeeds is faster.
    // SAFETY: no memory is involved.
    unsafe { libc::alarm(120) };
    // SAFETY: a function of this program.
    unsafe { probe::register("count", count, std::ptr::null_mut()) }.unwrap();
    println!("ready");
    let mut library = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let is_known = write_events(word, rest, record)
            || change_events(word, rest, &mut library)
            || change_channel(word, rest)
            || change_process(word, rest);
        assert!(is_known, "unknown command {line:?}");
    }
}

/// Executes a command that writes events. Returns whether it is one.
fn write_events(word: &str, rest: &str, record: fn(u64) -> Outcome) -> bool {
    match word {
        "event" => println!("{:?}", record(rest.parse().unwrap())),
        // The thread may be in a probe for long.
        "spawn" => {
            let n = rest.parse().unwrap();
            std::thread::spawn(move || println!("{:?}", record(n)));
        }
        "flood" => {
            let lost = (0..1_000_000).find(|&n| record(n) == Outcome::Lost);
            println!("{}", lost.is_some());
        }
        "calls" => {
            let [calls, sum] = CALLS.each_ref().map(|n| n.load(Ordering::Relaxed));
            println!("{calls} {sum}");
        }
        _ => return false,
    }
    true
}

/// Executes a command that declares or removes events. Returns whether it is one. `library` has the
/// events of a library while they are registered.
fn change_events(word: &str, rest: &str, library: &mut Option<Range<*const Entry>>) -> bool {
    match word {
        // In one section, as the events of a library are.
        "declare" => {
            let entries: Vec<_> = (0..rest.parse::<u32>().unwrap()).map(entry).collect();
            let entries = Vec::leak(entries).as_ptr_range();
            // SAFETY: the entries are leaked.
            let invalid = unsafe { register(entries.start, entries.end) };
            println!("{invalid}");
        }
        // One by one.
        "each" => {
            for n in 0..rest.parse::<u32>().unwrap() {
                declare(&format!("each:event_{n} 6")).unwrap();
            }
            println!("declared");
        }
        "come" => {
            let callsite: &'static Callsite = Box::leak(Box::new(Callsite::new(
                "library",
                "one",
                "library:one 6 u8 n",
            )));
            let entries: &'static [Entry] = Box::leak(Box::new([Entry::new(callsite)]));
            *library = Some(entries.as_ptr_range());
            let entries = entries.as_ptr_range();
            // SAFETY: the entries are leaked.
            let invalid = unsafe { register(entries.start, entries.end) };
            println!("{invalid}");
        }
        "go" => {
            let entries = library.take().unwrap();
            unregister(entries.start, entries.end);
            println!("gone");
        }
        _ => return false,
    }
    true
}

/// Executes a command that opens, serves or closes the control channel. Returns whether it is one.
fn change_channel(word: &str, rest: &str) -> bool {
    match word {
        "close" => println!("{:?}", control::close()),
        "open" => {
            let mode = match rest {
                "thread" => Mode::Thread,
                number => Mode::Signal(number.parse().unwrap()),
            };
            println!("{:?}", control::start(mode));
        }
        "serve" => {
            control::serve();
            println!("served");
        }
        "handle" => {
            // SAFETY: a handler that counts.
            unsafe { libc::signal(libc::SIGIO, on_signal as extern "C" fn(_) as usize) };
            println!("{:?}", control::start(Mode::Signal(libc::SIGIO)));
        }
        _ => return false,
    }
    true
}

/// Executes a command about the process itself. Returns whether it is one.
fn change_process(word: &str, rest: &str) -> bool {
    match word {
        "surroundings" => println!("{}", surroundings()),
        "raise" => {
            // SAFETY: it is handled.
            unsafe { libc::raise(libc::SIGIO) };
            println!("{}", SIGNALS.load(Ordering::Relaxed));
        }
        "fork" => {
            // SAFETY: this program has no lock that the child needs.
            let child = unsafe { libc::fork() };
            if child == 0 {
                loop {
                    // SAFETY: no memory is involved.
                    unsafe { libc::pause() };
                }
            }
            println!("{child}");
        }
        "stranger" => {
            // SAFETY: no memory is involved.
            assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
            let asked = Client::connect(rest.parse().unwrap(), Duration::from_secs(120))
                .and_then(|client| client.ask("list 0"));
            println!(
                "{asked:?}",
                asked = asked.map_err(|error| error.to_string())
            );
        }
        _ => return false,
    }
    true
}

/// An entry of a section that `declare` registers.
fn entry(n: u32) -> Entry {
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let name = leak(format!("event_{n}"));
    let description = leak(format!("many:{name} 6 u64 first;str second"));
    Entry::new(Box::leak(Box::new(Callsite::new(
        "many",
        name,
        description,
    ))))
}

/// The number of threads, and the targets of the open descriptors.
fn surroundings() -> String {
    let entries = |directory: &str| {
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let target = std::fs::read_link(&path).unwrap_or_default();
                let target = target.to_string_lossy().into_owned();
                // Numbers of inodes differ from run to run.
                target.split(':').next().unwrap_or_default().to_owned()
            })
            .collect();
        names.retain(|name| !name.starts_with("/proc"));
        names.sort();
        names
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    format!("{threads} {:?}", entries("/proc/self/fd"))
}
