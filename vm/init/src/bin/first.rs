//! A traced first process. It writes events before anything is mounted or anything else runs, and
//! then becomes the guest's init.
//!
//! `tests/src/bin/boot-tests.rs` checks its events (F8).

use std::ffi::CString;

use nix::unistd::execv;

usertrace::tracepoint! {
    mod numbered {
        provider: "first",
        name: "numbered",
        loglevel: Info,
        fields: { thread: u32, number: u64 },
    }
}

fn main() {
    for number in 0..10 {
        usertrace::event!(numbered, std::process::id(), number);
    }
    let init = CString::from(c"/init");
    // If this fails, the tests notice.
    let _ = execv(&init, &[&init]);
}
