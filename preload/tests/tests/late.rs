//! A program with its own events that loads the library while it runs (E6).

use std::ffi::{CString, c_void};
use std::process::{Command, ExitCode};

use usertrace::{Outcome, event};
use usertrace_tests_preload::Traces;

usertrace_testing::numbered_event!(n);

/// Environment variable with the library's path; it makes this process the program.
const VARIABLE: &str = "USERTRACE_LATE";

fn program(library: String) -> ExitCode {
    assert_eq!(event!(numbered, 1), Outcome::Recorded);
    let name = CString::new(library).unwrap();
    // SAFETY: the symbols are C functions of these types.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        let [malloc, free] = [c"malloc", c"free"].map(|name| {
            let function = libc::dlsym(library, name.as_ptr());
            assert!(!function.is_null());
            function
        });
        let malloc: extern "C" fn(usize) -> *mut c_void = std::mem::transmute(malloc);
        let free: extern "C" fn(*mut c_void) = std::mem::transmute(free);
        free(malloc(100));
    }
    assert_eq!(event!(numbered, 2), Outcome::Recorded);
    ExitCode::SUCCESS
}

/// The library's copy has a trace of its own: it shares only what it finds before `main`.
fn main() -> ExitCode {
    if let Ok(library) = std::env::var(VARIABLE) {
        return program(library);
    }
    let own = std::env::current_exe().unwrap();
    let library = own.parent().unwrap().join("libusertrace_malloc.so");
    let traces = Traces::new();
    let output = traces
        .of(Command::new(own).env(VARIABLE, library))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = traces.read();
    let count = |name: &str| {
        let events = read.events.iter();
        events.filter(|event| event.name == name).count()
    };
    assert_eq!(count("test:numbered"), 2);
    assert!(count("libc:malloc") > 0 && count("libc:free") > 0);
    ExitCode::SUCCESS
}
