//! `c/tests/programs/fields.c`, linked with the library that C programs use.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use usertrace_c as _;

unsafe extern "C" {
    fn c_program(argc: c_int, argv: *const *const c_char) -> c_int;
}

fn main() -> ExitCode {
    let arguments: Vec<CString> = std::env::args_os()
        .map(|argument| CString::new(argument.into_vec()).expect("arguments have no NUL"))
        .collect();
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the arguments are as those of `main`.
    let status = unsafe { c_program(arguments.len() as c_int, pointers.as_ptr()) };
    ExitCode::from(status as u8)
}
