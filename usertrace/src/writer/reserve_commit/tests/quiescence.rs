//! Tests of how the thread that closes a channel of the shared protocol learns when the channel is
//! quiescent (A9).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use usertrace_sys::{Mode, Scope};

use super::mapped::Rings;
use crate::os::{fork_private, membarrier};
use crate::writer::channel::Geometry;
use crate::writer::tests::{AtEnd, fork, wait_for};
use crate::writer::{Channel, Cursor, Dropped, QuiescenceSlot, Readers, reserve_commit};
use usertrace_testing::counts::counts;

/// A table like that of the runtime, in memory that is wiped in children of `fork`.
fn readers() -> NonNull<Readers> {
    // SAFETY: a `Readers` of zeros is valid: all slots are free.
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
    // SAFETY: `Rings::with` opened the channel with the geometry of its memory. These tests accept
    // any id.
    unsafe { reserve_commit::write_made(channel, &AtomicU16::new(7), 16, fill) }
}

/// A closed channel is quiescent as soon as its last writer has left, and not before. Writers
/// inside other channels do not matter.
///
/// Requirements: A9
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
            // Like a signal handler, a nested writer announces itself, and withdraws when it is
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

/// A child that is forked in the middle of an event is not inside the channel, although its parent
/// is.
///
/// Requirements: A5
#[test]
fn forked_child_is_not_inside_the_channel() {
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

/// A channel becomes quiescent although a thread has ended inside. New threads can take its slot.
#[test]
fn thread_that_ended_inside_is_not_waited_for() {
    let readers = readers();
    let rings = rings(1, Scope::Global, 0, readers);
    let channel = rings.channel();
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // Leak the guard, like a thread that ends inside.
                std::mem::forget(channel.guard().unwrap());
                assert!(!channel.is_quiescent());
            })
            .join()
            .unwrap();
    });
    // The kernel removes a thread only a moment after `join` returns.
    let begun = std::time::Instant::now();
    while !channel.is_quiescent() {
        assert!(
            begun.elapsed().as_secs() < 60,
            "the channel still waits for the ended thread"
        );
        std::thread::yield_now();
    }
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| rings.put(1, &[1]).unwrap()).join().unwrap();
        });
    }
    assert!(channel.is_quiescent());
}

/// If more threads are inside than there are slots, the channel counts the others.
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
    // All slots belong to ended threads, so this thread can take one.
    put_made(channel, &|_| assert!(!channel.is_quiescent())).unwrap();
    assert!(channel.is_quiescent());
}

/// No writer stores into the rings of a closed and quiescent channel.
///
/// Requirements: A9
#[test]
fn no_writer_stores_into_a_closed_quiescent_channel() {
    membarrier::register().unwrap();
    let readers = readers();
    for (nr_rings, scope) in [(1, Scope::Global), (8, Scope::Thread)] {
        let rings = rings(nr_rings, scope, 0, readers);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Stops the threads also if an assertion fails.
            let _stopped = AtEnd(|| stop.store(true, Ordering::Relaxed));
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = rings.put(1, &[1, 2, 3]);
                        // A slow writer.
                        let _ = put_made(rings.channel(), &|cursor| {
                            (0..100).for_each(|_| std::hint::spin_loop());
                            cursor.append(&[1; 16]);
                        });
                    }
                });
            }
            for _ in 0..counts(100, 500) {
                // At least one writer has written since the channel was reopened.
                while rings.channel().positions().all(|(head, _)| head == 0) {
                    std::thread::yield_now();
                }
                rings.channel().close();
                membarrier::barrier().unwrap();
                while !rings.channel().is_quiescent() {
                    std::thread::yield_now();
                }
                let memory = rings.memory();
                // SAFETY: the channel is closed and quiescent, so no writer accesses the memory,
                // which is what this test checks.
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
