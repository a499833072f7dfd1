//! `plain`, with an event in it.

usertrace::tracepoint! {
    mod numbers { provider: "bench", name: "numbers", loglevel: Info, fields: { a: u64, b: u64, c: u64, d: u64 } }
}

/// The place of an event in a program, as `tests/code.rs` reads it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn usertrace_bench_place(n: u64) {
    usertrace::event!(numbers, n, n, n, n);
}

fn main() {
    // The library was initialised before `main`.
    usertrace_bench::report_start();
    usertrace_bench_place(usertrace_bench::wait());
}
