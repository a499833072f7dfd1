//! `numbers usertrace|lttng COUNT [small]`: writes so many events of 32 bytes, or of 4, by the one
//! or the other. It says on standard output when it began, in nanoseconds of `CLOCK_MONOTONIC`, and
//! at its end how much time of a processor it took, in nanoseconds.

use std::process::ExitCode;

use usertrace_bench::lttng::Lttng;

usertrace::tracepoint! {
    mod numbers { provider: "bench", name: "numbers", loglevel: Info, fields: { a: u64, b: u64, c: u64, d: u64 } }
}

usertrace::tracepoint! {
    mod number { provider: "bench", name: "number", loglevel: Info, fields: { n: u32 } }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (who, count, small) = match &args[..] {
        [who, count] => (&who[..], count.parse(), false),
        [who, count, small] if small == "small" => (&who[..], count.parse(), true),
        _ => ("", "".parse(), false),
    };
    let Ok(count) = count else {
        eprintln!("usage: numbers usertrace|lttng COUNT [small]");
        return ExitCode::from(2);
    };
    match who {
        "usertrace" => {
            usertrace_bench::report_start();
            if small {
                (0..count).for_each(|n: u64| {
                    usertrace::event!(number, n as u32);
                });
            } else {
                for n in 0..count {
                    let n = std::hint::black_box(n);
                    usertrace::event!(numbers, n, n, n, n);
                }
            }
            usertrace_bench::report_processor();
            let lost: u64 = usertrace::stats().map(|trace| trace.lost).sum();
            // A writer that waits for room loses nothing.
            ExitCode::from(u8::from(lost > 0))
        }
        "lttng" => {
            let lttng = Lttng::load().expect("the provider");
            let events = lttng.events(if small { "number" } else { "numbers" });
            usertrace_bench::report_start();
            events(count);
            usertrace_bench::report_processor();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("numbers: {who} is neither usertrace nor lttng");
            ExitCode::from(2)
        }
    }
}
