//! Fresh pages, several at a time.
//!
//! The first store to each page of a ring costs a fault. To ask for the pages of a whole stretch in one call costs a
//! third of that, where the reader made them in time: then a ring's first lap takes at most half as long again as the
//! later ones. Where it did not, the kernel makes them now, and that is what most of the time goes to, either way.
//!
//! What is asked for is to read them: shared memory is made by that as well, and pages that are there already are mapped
//! many at a time, and so that they may be written.

/// How much of a ring is asked for at once, if its sub-buffers are not larger.
const STRETCH: u64 = 256 << 10;

/// Asks for the pages of the sub-buffer that is to be begun at `position`, and of the following ones, unless it was done
/// before. Nothing becomes of it if the kernel cannot do that (before Linux 5.14).
///
/// Async-signal-safe; leaves `errno` alone.
pub(super) fn prefault(buffer: *mut u8, ring_size: u64, subbuf_size: u64, position: u64) {
    let stretch = STRETCH.max(subbuf_size).min(ring_size);
    // All are powers of two. After the first lap, the pages are there.
    if position >= ring_size || !position.is_multiple_of(stretch) {
        return;
    }
    const PAGE: usize = 4096;
    let start = buffer.addr() + position as usize;
    let end = (start + stretch as usize).next_multiple_of(PAGE);
    let start = start / PAGE * PAGE;
    // SAFETY: changes nothing that is in the memory.
    unsafe {
        syscalls::raw::syscall3(
            syscalls::Sysno::madvise as usize,
            start,
            end - start,
            libc::MADV_POPULATE_READ as usize,
        );
    }
}
