//! A minimal io_uring: one entry at a time.

use std::sync::atomic::{AtomicU32, Ordering};

use syscalls::Sysno;

use crate::actor::{CallResult, call};
use crate::scene::PAGE;

/// The length of `io_uring_setup()`'s parameters in words of 32 bits: sizes, flags, and offsets in
/// both rings.
const PARAMS: usize = 30;

/// A ring of one entry.
pub(crate) struct IoRing {
    fd: usize,
    rings: usize,
    entries: usize,
    params: [u32; PARAMS],
}

/// `struct io_uring_sqe`, as far as it is used.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    rw_flags: u32,
    user_data: u64,
    buf_index: u16,
    rest: [u16; 11],
}

const OP_READ: u8 = 22;
const OP_WRITE: u8 = 23;
const REGISTER_BUFFERS: usize = 0;
/// The mmap offsets of the ring's parts.
const SQ_RING: usize = 0;
const SQES: usize = 0x1000_0000;

impl IoRing {
    /// Sets up a ring.
    pub(crate) fn new() -> Result<Self, i32> {
        let mut params = [0_u32; PARAMS];
        let fd = call(Sysno::io_uring_setup, [1, params.as_mut_ptr() as usize])?;
        let params = std::hint::black_box(params);
        let map = |offset| {
            let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
            call(
                Sysno::mmap,
                [0, PAGE, rights, libc::MAP_SHARED as usize, fd, offset],
            )
        };
        let rings = map(SQ_RING);
        let entries = map(SQES);
        match (rings, entries) {
            (Ok(rings), Ok(entries)) => Ok(Self {
                fd,
                rings,
                entries,
                params,
            }),
            (first, second) => {
                for at in [first, second].into_iter().flatten() {
                    let _ = call(Sysno::munmap, [at, PAGE]);
                }
                let _ = call(Sysno::close, [fd]);
                Err(libc::ENOMEM)
            }
        }
    }

    /// A word of the rings.
    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: The kernel said that the word is there, in the page that is mapped as long as
        // this lives.
        unsafe { AtomicU32::from_ptr((self.rings + offset as usize) as *mut u32) }
    }

    /// Reads from a file into memory, or writes from there, and waits for that.
    pub(crate) fn transfer(&self, fd: usize, at: usize, len: usize, writes: bool) -> CallResult {
        let entry = Entry {
            opcode: if writes { OP_WRITE } else { OP_READ },
            fd: fd as i32,
            address: at as u64,
            len: len as u32,
            ..Entry::default()
        };
        // SAFETY: The entry is in the page that is mapped for entries, and the kernel reads it when
        // it is submitted.
        unsafe { (self.entries as *mut Entry).write_volatile(entry) };
        // Where the words are, see struct io_sqring_offsets and io_cqring_offsets.
        let [sq_tail, sq_array] = [self.params[11], self.params[16]];
        let [cq_head, cq_tail, cqes] = [self.params[20], self.params[21], self.params[25]];
        self.word(sq_array).store(0, Ordering::Relaxed);
        self.word(sq_tail).fetch_add(1, Ordering::Release);
        const GETEVENTS: usize = 1;
        call(Sysno::io_uring_enter, [self.fd, 1, 1, GETEVENTS, 0, 0])?;
        let head = self.word(cq_head).load(Ordering::Relaxed);
        if self.word(cq_tail).load(Ordering::Acquire) == head {
            return Err(libc::EAGAIN);
        }
        // Of two entries of 16 bytes; the result is behind the user's word.
        let result = self
            .word(cqes + 16 * (head & 1) + 8)
            .load(Ordering::Relaxed)
            .cast_signed();
        self.word(cq_head)
            .store(head.wrapping_add(1), Ordering::Release);
        usize::try_from(result).map_err(|_| -result)
    }

    /// Registers memory, which the kernel then pins.
    pub(crate) fn register(&self, at: usize, len: usize) -> CallResult {
        let vector = [at, len];
        call(
            Sysno::io_uring_register,
            [self.fd, REGISTER_BUFFERS, vector.as_ptr() as usize, 1],
        )
    }
}

impl Drop for IoRing {
    fn drop(&mut self) {
        let _ = call(Sysno::munmap, [self.rings, PAGE]);
        let _ = call(Sysno::munmap, [self.entries, PAGE]);
        let _ = call(Sysno::close, [self.fd]);
    }
}
