//! Registers an rseq area where the C library registers none.
//!
//! These are programs linked with musl or an old glibc, statically or not, and those that run with
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`. The area lies in the thread block. A thread registers it
//! with its first event, and unregisters it when it ends: its stack and block may be freed before
//! its last instruction, and the kernel must not write there any more.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use syscalls::Errno;

use super::area::{Rseq, RseqError, SIGNATURE};
use crate::os;
use crate::writer::ring_index::MM_CID;
use crate::writer::thread::{self, RSEQ_LEN, Thread};

/// Values of [`Thread::registration`]. Unknown: the thread has not tried.
const UNKNOWN: u16 = 0;
const REGISTERED: u16 = 1;
/// The kernel refused it, or the thread is about to end.
const NEVER: u16 = 2;

/// Length and alignment of the first version of `struct rseq`, which all kernels accept.
const FIRST_LEN: usize = 32;

/// For `getauxval`: how many bytes of `struct rseq` the kernel knows, and its alignment.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
const AT_RSEQ_ALIGN: libc::c_ulong = 28;

/// Length of `struct rseq` up to the end of `mm_cid`.
const MM_CID_LEN: usize = MM_CID as usize + 4;

/// The key whose destructor unregisters the area at a thread's end; none if all keys are used.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// The length to register with.
///
/// It is the length that the kernel knows, if the area has room for it. By that, Linux 7.3 knows a
/// program that follows the rules of its optimised mode, as this one does. Otherwise it is the
/// length of the first version.
fn area_len() -> usize {
    // SAFETY: constants of the process.
    let (len, align) = unsafe {
        (
            libc::getauxval(AT_RSEQ_FEATURE_SIZE) as usize,
            libc::getauxval(AT_RSEQ_ALIGN) as usize,
        )
    };
    if (FIRST_LEN..=RSEQ_LEN).contains(&len) && align <= align_of::<Thread>() {
        len
    } else {
        FIRST_LEN
    }
}

/// Whether the kernel stores `mm_cid` in areas, the C library's or this library's.
///
/// It does so in areas of all lengths that it accepts, as the field lies in the padding of the
/// first version. Kernels report the length that they know since they have that field. A kernel
/// without concurrency ids stores the CPU number there, which is as good.
pub(super) fn knows_mm_cid() -> bool {
    // SAFETY: a constant of the process.
    unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) as usize >= MM_CID_LEN }
}

/// Finds out whether the library can register areas, by registering that of the calling thread.
pub(super) fn begin() -> Result<Rseq, RseqError> {
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the destructor works in any thread that has a block, so in any.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0).then_some(key)
    });
    if key.is_none() {
        return Err(RseqError::Kernel);
    }
    match register() {
        Ok(()) => Rseq::of_block().ok_or(RseqError::Kernel),
        // Another area is registered already.
        Err(Errno::EINVAL) => Err(RseqError::Library),
        Err(_) => Err(RseqError::Kernel),
    }
}

/// Registers the calling thread's area, unless it is. Async-signal-safe.
pub(super) fn register() -> Result<(), Errno> {
    let Some(Some(key)) = KEY.get() else {
        return Err(Errno::ENOSYS);
    };
    if thread::is_lent() {
        // A `vfork` child must not register its parent's area for itself.
        return Err(Errno::EAGAIN);
    }
    thread::with(|thread| {
        // A signal handler that interrupts this does the same. The kernel returns EBUSY to the
        // second one, and another error if another area is registered.
        match thread.registration.load(Ordering::Relaxed) {
            UNKNOWN => {}
            REGISTERED => return Ok(()),
            _ => return Err(Errno::EPERM),
        }
        // The destructor comes first: a thread without one must not register. SAFETY: the
        // destructor ignores the value, which only must not be NULL. C libraries have room for the
        // first keys in the thread itself; a later key may cost an allocation, once in a thread.
        let noted = unsafe { libc::pthread_setspecific(*key, std::ptr::from_ref(thread).cast()) };
        if noted != 0 {
            thread.registration.store(NEVER, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        }
        // SAFETY: the area is atomic, and the calling thread's own. It stays valid until `end`,
        // which unregisters it. Only sequences store `rseq_cs`: addresses of their descriptors.
        let registered = unsafe { os::rseq::register(thread.rseq.as_ptr(), area_len(), SIGNATURE) };
        match registered {
            Ok(()) | Err(Errno::EBUSY) => {
                thread.registration.store(REGISTERED, Ordering::Relaxed);
                Ok(())
            }
            Err(errno) => {
                thread.registration.store(NEVER, Ordering::Relaxed);
                Err(errno)
            }
        }
    })
}

/// Unregisters a thread's area at its end, for good. Its later events are counted as lost.
unsafe extern "C" fn end(_: *mut c_void) {
    thread::with(|thread| {
        if thread.registration.swap(NEVER, Ordering::Relaxed) == REGISTERED {
            // The kernel itself resets the CPU number to that of an unregistered area.
            // SAFETY: as in `register`, with the same arguments.
            let _ = unsafe { os::rseq::unregister(thread.rseq.as_ptr(), area_len(), SIGNATURE) };
        }
    });
}
