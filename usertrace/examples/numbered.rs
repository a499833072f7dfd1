//! Writes numbered events, and prints their outcomes.
//!
//! ```text
//! numbered COUNT [THREADS]
//! ```
//!
//! Without an active trace, all events are `off`. Exit status: 0 if no event was lost, 1 if one
//! was, 2 if this process cannot be traced.

use std::process::ExitCode;

use usertrace::{Outcome, Status, event};

usertrace::tracepoint! {
    /// A numbered event.
    mod numbered {
        provider: "example",
        name: "numbered",
        loglevel: Info,
        fields: { thread: u32, n: u64 },
    }
}

/// Numbers of events by outcome.
#[derive(Default)]
struct Counts {
    off: u64,
    recorded: u64,
    lost: u64,
}

fn write(thread: u32, count: u64) -> Counts {
    let mut counts = Counts::default();
    for n in 0..count {
        match event!(numbered, thread, n) {
            Outcome::Off => counts.off += 1,
            Outcome::Recorded => counts.recorded += 1,
            Outcome::Lost => counts.lost += 1,
        }
    }
    counts
}

fn main() -> ExitCode {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<u64>());
    let (Some(Ok(count)), threads) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: numbered COUNT [THREADS]");
        return ExitCode::from(64);
    };
    let threads = threads.and_then(Result::ok).unwrap_or(1) as u32;
    let status = usertrace::init();
    println!("status: {status}");
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || write(thread, count)))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .fold(Counts::default(), |sum, counts| Counts {
                off: sum.off + counts.off,
                recorded: sum.recorded + counts.recorded,
                lost: sum.lost + counts.lost,
            })
    });
    println!(
        "recorded {} lost {} off {}",
        counts.recorded, counts.lost, counts.off
    );
    for trace in usertrace::stats() {
        println!(
            "trace in slot {}: generation {} active {} bytes {} lost {} undescribed {}",
            trace.slot, trace.generation, trace.active, trace.bytes, trace.lost, trace.undescribed
        );
    }
    match status {
        Status::Attached if counts.lost == 0 => ExitCode::SUCCESS,
        Status::Attached => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    }
}
