//! Whether this process can be traced, and what was written.

use std::ffi::{c_char, c_int};

use usertrace::Status;

/// `usertrace::init`; 0 if this process can be traced.
#[unsafe(no_mangle)]
pub extern "C" fn usertrace_init() -> c_int {
    c_int::from(usertrace::init() != Status::Attached)
}

/// `usertrace::report`, as text.
///
/// # Safety
/// There must be room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_status(text: *mut c_char, room: usize) -> usize {
    let status = usertrace::report().to_string();
    if let Some(last) = room.checked_sub(1) {
        let is_end = |&len: &usize| status.is_char_boundary(len);
        let len = (0..=last.min(status.len())).rfind(is_end).unwrap_or(0);
        // SAFETY: there is room for it, as the header asks for.
        unsafe {
            text.copy_from_nonoverlapping(status.as_ptr().cast(), len);
            text.add(len).write(0);
        }
    }
    status.len()
}

/// `usertrace::flush`; 0, or the negated `errno`.
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

/// What this process wrote into all of its traces.
///
/// # Safety
/// There must be one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_stats(stats: *mut Stats) {
    let sum = usertrace::stats().fold(Stats::default(), |sum, trace| Stats {
        traces: sum.traces + 1,
        undescribed: sum.undescribed + trace.undescribed,
        bytes: sum.bytes + trace.bytes,
        lost: sum.lost + trace.lost,
    });
    // SAFETY: there is room for it, as the header asks for.
    unsafe { stats.write(sum) };
}
