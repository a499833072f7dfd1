//! A library in Rust that has events, as a plug-in of a program is.

use usertrace::{Outcome, event};

usertrace::tracepoint! {
    mod called { provider: "plugin", name: "called", loglevel: Info, fields: { number: u32 } }
}

/// Writes an event, and says whether it was recorded.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_call(number: u32) -> bool {
    event!(called, number) == Outcome::Recorded
}
