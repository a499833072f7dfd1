//! A9: who closes a channel whose rings no sequence writes learns who is still inside.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use usertrace_sys::{Mode, Scope};

use super::mapped::Rings;
use crate::os::{fork_private, membarrier};
use crate::writer::channel::Geometry;
use crate::writer::tests::{AtEnd, fork, wait_for};
use crate::writer::{Channel, Cursor, Dropped, QuiescenceSlot, Readers, reserve_commit};
use usertrace_testing::counts::counts;

/// As the runtime has them: in memory that children of `fork` find wiped.
fn readers() -> NonNull<Readers> {
    // SAFETY: zeros are places that are free.
    unsafe { fork_private::map() }.unwrap()
}

/// Rings that can be closed while others write.
fn rings(nr_rings: u32, scope: Scope, slot: u32, readers: NonNull<Readers>) -> Rings {
    let quiescence = Some(QuiescenceSlot { readers, slot });
    Rings::with(4096, 4, nr_rings, scope, Mode::Discard, |geometry| {
        Geometry {
            quiescence,
            ..geometry
        }
    })
}

fn put_made(channel: &Channel, fill: &dyn Fn(&mut Cursor<'_>)) -> Result<(), Dropped> {
    // SAFETY: the geometry is that of the memory; ids mean nothing here.
    unsafe { reserve_commit::write_made(channel, &AtomicU16::new(7), 16, fill) }
}

#[test]
fn a_closed_channel_becomes_quiescent_later() {
    let readers = readers();
    for (nr_rings, scope) in [(1, Scope::Global), (4, Scope::Thread)] {
        let rings = rings(nr_rings, scope, 3, readers);
        let other = self::rings(nr_rings, scope, 4, readers);
        let (channel, other) = (rings.channel(), other.channel());
        assert!(channel.is_quiescent());
        put_made(channel, &|_| {
            assert!(!channel.is_quiescent());
            assert!(other.is_quiescent());
            // As a signal handler would: it says where it is, and that is no longer so when it is
            // done.
            put_made(other, &|_| {
                assert!(!other.is_quiescent() && !channel.is_quiescent())
            })
            .unwrap();
            assert!(other.is_quiescent());
            channel.close();
            assert_eq!(put_made(channel, &|_| {}), Err(Dropped::Closed));
            assert!(!channel.is_quiescent());
        })
        .unwrap();
        assert!(channel.is_quiescent());
    }
}

/// A5: the child of a handler's `fork` leaves nothing behind where its parent was inside.
#[test]
fn a_child_of_a_handler_is_not_inside() {
    let rings = rings(1, Scope::Global, 0, readers());
    let channel = rings.channel();
    put_made(channel, &|_| {
        let child = fork(|| {
            assert!(channel.is_quiescent());
            rings.open_in_child();
            rings.put(1, &[1]).unwrap();
            assert!(channel.is_quiescent());
        });
        assert_eq!(wait_for(child), 0);
        assert!(!channel.is_quiescent());
    })
    .unwrap();
    assert!(channel.is_quiescent());
}

/// A thread that ended inside is not waited for, and a new one in its place starts anew.
#[test]
fn a_thread_that_ended_inside_is_not_waited_for() {
    let readers = readers();
    let rings = rings(1, Scope::Global, 0, readers);
    let channel = rings.channel();
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: no memory is involved; nobody drops what says that this thread is inside.
                std::mem::forget(channel.guard().unwrap());
                assert!(!channel.is_quiescent());
            })
            .join()
            .unwrap();
    });
    // To the kernel, a thread is one for a moment longer than to those who wait for its end.
    let begun = std::time::Instant::now();
    while !channel.is_quiescent() {
        assert!(begun.elapsed().as_secs() < 60, "it is waited for");
        std::thread::yield_now();
    }
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| rings.put(1, &[1]).unwrap()).join().unwrap();
        });
    }
    assert!(channel.is_quiescent());
}

/// More threads at a time than there are places: the rest counts itself.
#[test]
fn more_threads_than_slots_are_waited_for() {
    const THREADS: usize = 1100;
    let rings = rings(1, Scope::Global, 0, readers());
    let channel = rings.channel();
    let (come, go) = (
        std::sync::Barrier::new(THREADS + 1),
        std::sync::Barrier::new(THREADS + 1),
    );
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let inside = || {
                let guard = channel.guard().unwrap();
                come.wait();
                go.wait();
                drop(guard);
            };
            let thread = std::thread::Builder::new().stack_size(1 << 16);
            threads.push(thread.spawn_scoped(scope, inside).unwrap());
        }
        come.wait();
        assert!(!channel.is_quiescent());
        go.wait();
    });
    assert!(channel.is_quiescent());
    // All places have owners, which are gone: they are there for others.
    put_made(channel, &|_| assert!(!channel.is_quiescent())).unwrap();
    assert!(channel.is_quiescent());
}

/// Once a channel is closed and left, nobody stores into its rings any more.
#[test]
fn no_writer_stores_into_a_closed_quiescent_channel() {
    membarrier::register().unwrap();
    let readers = readers();
    for (nr_rings, scope) in [(1, Scope::Global), (8, Scope::Thread)] {
        let rings = rings(nr_rings, scope, 0, readers);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Also if this fails.
            let _stopped = AtEnd(|| stop.store(true, Ordering::Relaxed));
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = rings.put(1, &[1, 2, 3]);
                        // This one takes its time.
                        let _ = put_made(rings.channel(), &|cursor| {
                            (0..100).for_each(|_| std::hint::spin_loop());
                            cursor.append(&[1; 16]);
                        });
                    }
                });
            }
            for _ in 0..counts(100, 500) {
                // Somebody is at it, and has two more events to write.
                while rings.channel().positions().all(|(head, _)| head == 0) {
                    std::thread::yield_now();
                }
                rings.channel().close();
                membarrier::barrier().unwrap();
                while !rings.channel().is_quiescent() {
                    std::thread::yield_now();
                }
                let memory = rings.memory();
                // SAFETY: that nobody writes to it is what is tested.
                unsafe {
                    memory.cast::<u64>().write_bytes(0, memory.len());
                    for _ in 0..1000 {
                        std::hint::spin_loop();
                    }
                    assert!(memory.as_ref().iter().all(|&word| word == 0));
                    rings.reopen();
                }
            }
        });
    }
}
