//! Memory that a child of `fork` finds wiped: state of one process that its children must not
//! inherit (A5).

use std::ptr::NonNull;

use super::memory;

/// Maps a `T` of zeros that a child of `fork` finds zeroed again. It is never unmapped.
///
/// None if there is no memory, or the kernel cannot wipe it (before Linux 4.14). Async-signal-safe;
/// leaves `errno` alone.
///
/// # Safety
/// Zeros must be a valid `T`, at any time: the child finds zeros, whatever this process stored.
pub(crate) unsafe fn map<T>() -> Option<NonNull<T>> {
    let memory = map_kept::<T>()?;
    let (start, len) = (memory.as_ptr().cast(), size_of::<T>());
    // SAFETY: a new mapping, which no other code has the address of; zeros are valid, as this
    // function's caller promises.
    unsafe {
        if memory::wipe_on_fork(start, len, true).is_err() {
            memory::unmap(start, len);
            return None;
        }
    }
    Some(memory)
}

/// Chooses whether a child of the next `fork` finds `value` wiped, as at first, or as it is.
///
/// Nothing happens if a filter forbids the call. Async-signal-safe; leaves `errno` alone.
///
/// # Safety
/// `value` must come from [`map`].
pub(crate) unsafe fn set_wiped<T>(value: &T, wiped: bool) {
    let start = std::ptr::from_ref(value).cast_mut().cast();
    // SAFETY: the mapping of `value`, for which zeros are valid, as `map`'s caller promised.
    let _ = unsafe { memory::wipe_on_fork(start, size_of::<T>(), wiped) };
}

/// Maps zeros that a child of `fork` gets a copy of. They are never unmapped.
///
/// None if there is no memory. Async-signal-safe; leaves `errno` alone.
pub(crate) fn map_kept<T>() -> Option<NonNull<T>> {
    let memory = memory::map_zeros(size_of::<T>()).ok()?;
    NonNull::new(memory.cast())
}
