//! The process's state and statistics.

use std::ffi::{c_char, c_int};

use usertrace::Status;

/// Calls `usertrace::init`. Returns 0 if this process can be traced.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_init() -> c_int {
    c_int::from(usertrace::init() != Status::Attached)
}

/// Writes `usertrace::report` as text, and returns its whole length.
///
/// # Safety
/// `text` must have room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_status(text: *mut c_char, room: usize) -> usize {
    let status = usertrace::report().to_string();
    if let Some(last) = room.checked_sub(1) {
        let is_end = |&len: &usize| status.is_char_boundary(len);
        let len = (0..=last.min(status.len())).rfind(is_end).unwrap_or(0);
        // SAFETY: the header requires that there is room for it.
        unsafe {
            text.copy_from_nonoverlapping(status.as_ptr().cast(), len);
            text.add(len).write(0);
        }
    }
    status.len()
}

/// Calls `usertrace::flush`. Returns 0, or the negated `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_switch() -> c_int {
    match usertrace::flush() {
        Ok(()) => 0,
        Err(errno) => -errno.into_raw(),
    }
}

/// `struct usertrace_stats`
#[repr(C)]
#[derive(Default)]
pub struct Stats {
    traces: u32,
    undescribed: u32,
    bytes: u64,
    lost: u64,
}

/// Sums up what this process wrote into its traces.
///
/// # Safety
/// `stats` must point to memory for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_stats(stats: *mut Stats) {
    let sum = usertrace::stats().fold(Stats::default(), |sum, trace| Stats {
        traces: sum.traces + 1,
        undescribed: sum.undescribed + trace.undescribed,
        bytes: sum.bytes + trace.bytes,
        lost: sum.lost + trace.lost,
    });
    // SAFETY: the header requires that there is room for it.
    unsafe { stats.write(sum) };
}
