//! A program that says when it began, and ends when its input does: what `instrumented` is compared
//! with.

fn main() {
    usertrace_bench::report_start();
    let _ = usertrace_bench::wait();
}
