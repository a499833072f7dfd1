//! Does one thing with traces after the other, so that a crash test can step through each
//! instruction. A page of memory has the program's progress. The program ends when the file `stop`
//! is in its directory.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use usertrace::Outcome;
use usertrace_tests::instants::{CHILD_EVENTS, SUBBUF_SIZE, TAG, words};
use usertrace_tests::shared::Shared;
use usertrace_tests::{child, event};

/// Rounds before the program is ready: enough that the kernel drops buffers of dead processes.
const WARM_UP: u64 = 6;

#[derive(Debug, Parser)]
struct Args {
    /// Where the file `ready` is made, and `stop` is looked for
    directory: PathBuf,
}

fn page() -> &'static [AtomicU64] {
    let page = Box::leak(Box::new(Shared::new())).words();
    page[1].store(!TAG, Ordering::Relaxed);
    // Release: a reader that finds the tag finds the rest, too.
    page[0].store(TAG, Ordering::Release);
    page
}

/// Writes the events of a child.
fn write(recorded: &AtomicU64) {
    for number in 0..CHILD_EVENTS {
        assert_eq!(event::write(1, number), Outcome::Recorded);
        // Release: a memory image that has the count has the event, too.
        recorded.store(number + 1, Ordering::Release);
    }
}

fn main() {
    let args = Args::parse();
    event::attach();
    let page = page();
    let set = |word: usize, value: u64| page[word].store(value, Ordering::Release);
    let brief = PathBuf::from(usertrace_consumer::CONTROL_FS).join("brief");
    let tell = |file: &str, text: &str| fs::write(brief.join(file), text).expect("it is told");
    let mut number = 0;
    let mut write_some = || {
        for _ in 0..CHILD_EVENTS {
            assert_eq!(event::write(0, number), Outcome::Recorded);
            number += 1;
            set(words::RECORDED, number);
        }
    };
    write_some();
    for turn in 0.. {
        set(words::TURNS, turn);
        if turn == WARM_UP {
            fs::write(args.directory.join("ready"), "").expect("a file");
        }
        if args.directory.join("stop").exists() {
            return;
        }
        // The child of the turn before has written nothing to the trace of this one.
        set(words::CHILD, 0);
        set(words::CHILD_RECORDED, 0);
        set(words::BRIEF, 0);
        fs::create_dir(&brief).expect("a trace is made");
        tell("main/subbuf_size", &SUBBUF_SIZE.to_string());
        tell("start", "1");
        set(words::BRIEF, words::EXISTS);
        write_some();
        child::run(|| {
            set(words::CHILD, std::process::id().into());
            write(&page[words::CHILD_RECORDED]);
        });
        tell("start", "0");
        set(words::BRIEF, 0);
        fs::remove_dir(&brief).expect("a trace is removed");
        set(words::BRIEF, words::GONE);
    }
}
