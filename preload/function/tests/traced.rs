//! Events of functions, with a simulated kernel: this program calls what the compiler would.

use std::ffi::c_void;
use std::process::ExitCode;
use std::ptr::without_provenance_mut;

use usertrace::fake::Sizes;
use usertrace_tests_preload::{Traced, isolated};

// Links the library.
use usertrace_function as _;

unsafe extern "C" {
    safe fn __cyg_profile_func_enter(function: *mut c_void, call_site: *mut c_void);
    safe fn __cyg_profile_func_exit(function: *mut c_void, call_site: *mut c_void);
}

fn entries_and_exits() {
    let at = without_provenance_mut::<c_void>;
    __cyg_profile_func_enter(at(1), at(2));
    let traced = Traced::new(Sizes::default());
    __cyg_profile_func_enter(at(3), at(4));
    __cyg_profile_func_enter(at(5), at(6));
    __cyg_profile_func_exit(at(5), at(6));
    __cyg_profile_func_exit(at(3), at(4));
    let events = traced.stop().into_iter();
    let events: Vec<_> = events.map(|event| (event.name, event.numbers)).collect();
    let [entry, exit] = ["function:entry", "function:exit"].map(str::to_owned);
    let expected = [
        (entry.clone(), vec![3, 4]),
        (entry, vec![5, 6]),
        (exit.clone(), vec![5, 6]),
        (exit, vec![3, 4]),
    ];
    assert_eq!(events, expected);
}

static TESTS: [(&str, fn()); 1] = [("entries_and_exits", entries_and_exits)];

fn main() -> ExitCode {
    isolated(&TESTS)
}
