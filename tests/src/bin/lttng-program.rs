//! `c/tests/lttng/providers/program.c`, which is instrumented for LTTng-UST, linked with the
//! library.

use std::ffi::c_int;
use std::process::ExitCode;

use usertrace_c as _;

unsafe extern "C" {
    fn lttng_program() -> c_int;
}

fn main() -> ExitCode {
    // SAFETY: called once, as `main` is.
    let status = unsafe { lttng_program() };
    ExitCode::from(status as u8)
}
