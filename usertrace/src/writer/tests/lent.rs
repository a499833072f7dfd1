//! `vfork`: a child on its parent's thread block (F2).

use std::sync::atomic::AtomicU32;

use super::*;
use crate::writer::thread::is_lent;

unsafe extern "C" {
    /// Whatever a program's call comes to. (The `libc` crate's declaration is of the same
    /// function.)
    #[link_name = "vfork"]
    safe fn vfork() -> libc::pid_t;
}

/// Calls `body` in a `vfork` child, which then exits, and says how that ended.
#[inline(never)]
fn in_vfork_child(body: &dyn Fn()) -> libc::c_int {
    // The child shares the memory, and so can tell what it found; it comes back only to exit.
    let pid = vfork();
    assert!(pid >= 0);
    // SAFETY: the child exits, and the parent waits for the child that it made.
    unsafe {
        if pid == 0 {
            body();
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    }
}

/// Events of a `vfork` child are counted as lost, no record is torn, and the parent goes on.
#[test]
fn a_child_that_traces_corrupts_nothing() {
    const CHILDREN: u64 = 100;
    const EVENTS: u64 = 200;
    let rings = Rings::new(1 << 16, 512);
    let stop = AtomicBool::new(false);
    let wrong = AtomicU64::new(0);
    let counts: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        // Others are in the rings of all CPUs meanwhile.
        for (thread, count) in counts.iter().enumerate() {
            let (rings, stop) = (&rings, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && count.load(Ordering::Relaxed) < 200_000 {
                    let n = count.fetch_add(1, Ordering::Relaxed);
                    put(rings, 1, &[thread as u64, n, !n]).unwrap();
                }
            });
        }
        for n in 0..CHILDREN {
            put(&rings, 1, &[9, n, !n]).unwrap();
            let status = in_vfork_child(&|| {
                for _ in 0..EVENTS {
                    let lost = put(&rings, 2, &[1, 2, 3]) == Err(Dropped::Lost)
                        && put_made(&rings, 7, 1000, &|_| {}) == Err(Dropped::Lost);
                    wrong.fetch_add(u64::from(!lost), Ordering::Relaxed);
                }
            });
            assert_eq!(libc::WEXITSTATUS(status), 7);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        wrong.load(Ordering::Relaxed),
        0,
        "a child wrote into the rings"
    );
    assert_eq!(rings.lost(), 2 * CHILDREN * EVENTS);
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for decoded in rings.decode_all(|_| 3) {
        for record in decoded.records {
            assert_eq!((record.id, record.payload[1]), (1, !record.payload[2]));
            seen.entry(record.payload[0])
                .or_default()
                .push(record.payload[1]);
        }
    }
    for (thread, numbers) in &mut seen {
        numbers.sort_unstable();
        let count = match *thread {
            9 => CHILDREN,
            thread => counts[thread as usize].load(Ordering::Relaxed),
        };
        assert!(numbers.iter().copied().eq(0..count));
    }
}

/// However a child ends, the parent's block is its own again; a child of a child leaves the child's
/// lent.
#[test]
fn the_block_is_lent_as_long_as_the_child_has_it() {
    let lent = AtomicU32::new(0);
    let note = |bit: u32, condition: bool| {
        lent.fetch_or(u32::from(condition) << bit, Ordering::Relaxed);
    };
    assert!(!is_lent());
    let exited = in_vfork_child(&|| note(0, is_lent()));
    assert_eq!(libc::WEXITSTATUS(exited), 7);
    assert!(!is_lent());
    let killed = in_vfork_child(&|| {
        note(1, is_lent());
        // SAFETY: no memory is involved.
        unsafe { libc::raise(libc::SIGKILL) };
    });
    assert_eq!(libc::WTERMSIG(killed), libc::SIGKILL);
    assert!(!is_lent());
    let executed = in_vfork_child(&|| {
        note(2, is_lent());
        let arguments = [c"/bin/false".as_ptr(), std::ptr::null()];
        // SAFETY: a list of arguments that ends with NULL.
        unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
    });
    assert_eq!(libc::WEXITSTATUS(executed), 1);
    assert!(!is_lent());
    let nested = in_vfork_child(&|| {
        let inner = in_vfork_child(&|| note(3, is_lent()));
        note(4, libc::WEXITSTATUS(inner) == 7);
        note(5, is_lent());
    });
    assert_eq!(libc::WEXITSTATUS(nested), 7);
    assert!(!is_lent());
    assert_eq!(lent.load(Ordering::Relaxed), 0b11_1111);
}

/// Where there can be no child, `errno` says why.
#[test]
fn failed_vfork_sets_errno() {
    // In a child that is not root, so that the limit of processes holds.
    let status = in_child(|| {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the child's own limits and user; the `vfork` child, if there is one, exits.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const none), 0);
            let _ = libc::setgid(65534);
            let _ = libc::setuid(65534);
            *libc::__errno_location() = 0;
            let pid = vfork();
            if pid == 0 {
                libc::_exit(1);
            }
            assert_eq!((pid, *libc::__errno_location()), (-1, libc::EAGAIN));
        }
        assert!(!is_lent());
    });
    assert_eq!(status, 0);
}
