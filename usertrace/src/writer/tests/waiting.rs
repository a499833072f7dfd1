//! Writers that wait for room (D7), and how readers are woken.

use usertrace_sys::{Mode, Scope};

use super::*;
use crate::os::futex;

fn with_wakeup(mode: Mode, wakeup: &ReaderWakeup) -> Rings {
    Rings::with(4096, 2, |geometry| Geometry {
        mode,
        wakeup: WakeupMethod::Futex(wakeup),
        ..geometry
    })
}

/// A slow reader makes fast writers wait, and nothing is lost.
#[test]
fn nothing_is_lost() {
    const THREADS: u64 = 3;
    const EVENTS: u64 = 20_000;
    let wakeup = ReaderWakeup::default();
    let rings = with_wakeup(Mode::Block, &wakeup);
    let done = AtomicU64::new(0);
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rings, done) = (&rings, &done);
            scope.spawn(move || {
                for n in 0..EVENTS {
                    if n % 100 == 0 {
                        put_made(rings, 7, 600, &|cursor| {
                            cursor.append(&thread.to_ne_bytes());
                            cursor.append(&n.to_ne_bytes());
                        })
                        .unwrap();
                    } else {
                        put(rings, 1, &[thread, n]).unwrap();
                    }
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        let mut consumed = vec![0; rings.geometry.nr_rings as usize];
        loop {
            let all = done.load(Ordering::Acquire) == THREADS;
            for cpu in 0..rings.geometry.nr_rings {
                let control = rings.control(cpu);
                let consumed = &mut consumed[cpu as usize];
                let head = control.head.load(Ordering::Acquire);
                let decoded = rings.decode_range(cpu, *consumed, head, |_| 2);
                if decoded.busy > 0 {
                    // The next round reads it.
                    continue;
                }
                for record in decoded.records {
                    seen.entry(record.payload[0])
                        .or_default()
                        .push(record.payload[1]);
                }
                *consumed = head;
                control.consumed.store(head, Ordering::SeqCst);
                if control.waiters.load(Ordering::SeqCst) != 0 {
                    futex::wake(control.consumed_low(), u32::MAX);
                }
            }
            if all {
                break;
            }
        }
    });
    assert_eq!(rings.lost(), 0);
    assert_eq!(seen.len(), THREADS as usize);
    for numbers in seen.values_mut() {
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..EVENTS));
    }
    for cpu in 0..rings.geometry.nr_rings {
        assert_eq!(rings.control(cpu).waiters.load(Ordering::Relaxed), 0);
    }
    assert!(wakeup.notifications.load(Ordering::Relaxed) > 0);
}

/// Writers do not wait where there is no reader.
#[test]
fn writers_do_not_wait_for_a_reader_that_is_gone() {
    let wakeup = ReaderWakeup::default();
    let rings = with_wakeup(Mode::Block, &wakeup);
    pin();
    let [first, second] = &wakeup.readers;
    for gone in [vec![&wakeup.gone], vec![first, second]] {
        let say = |what| {
            gone.iter()
                .for_each(|word| word.store(what, Ordering::Relaxed))
        };
        say(libc::FUTEX_OWNER_DIED);
        while put(&rings, 1, &[1, 2]).is_ok() {}
        say(0);
    }
    assert_eq!(rings.lost(), 2);
}

/// A waiting writer goes on when the reader dies.
#[test]
fn a_reader_dies_while_a_writer_waits() {
    let wakeup = ReaderWakeup::default();
    let rings = with_wakeup(Mode::Block, &wakeup);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            while put(&rings, 1, &[1, 2]).is_ok() {}
        });
        let waiting = || {
            (0..rings.geometry.nr_rings)
                .any(|cpu| rings.control(cpu).waiters.load(Ordering::Relaxed) != 0)
        };
        while !waiting() {
            std::thread::yield_now();
        }
        wakeup.gone.store(1, Ordering::Relaxed);
    });
    assert_eq!(rings.lost(), 1);
}

/// Rings with a reader, and without a futex.
fn with_readers() -> Rings {
    let rings = Rings::with(4096, 2, |geometry| Geometry {
        mode: Mode::Block,
        wakeup: WakeupMethod::Switch(NonNull::new(geometry.buffers).unwrap()),
        ..geometry
    });
    for ring in 0..rings.geometry.nr_rings {
        rings.control(ring).readers.store(1, Ordering::Relaxed);
    }
    rings
}

/// A writer within a long record does not wait: the reader would wait for that record.
#[test]
fn a_writer_does_not_wait_for_its_own_record() {
    let wakeup = ReaderWakeup::default();
    for rings in [with_wakeup(Mode::Block, &wakeup), with_readers()] {
        on_one_ring(|_| {
            put_made(&rings, 7, 1000, &|_| {
                while put(&rings, 1, &[1, 2]).is_ok() {}
            })
            .unwrap();
            assert_eq!(rings.lost(), 1);
        });
    }
}

/// A writer that is moved to another CPU while it waits writes to that CPU's ring.
#[test]
fn a_writer_that_moves_to_another_ring_stops_waiting() {
    let rings = with_readers();
    if rings.geometry.nr_rings < 2 || mm_cid::scope() != Scope::Cpu {
        return;
    }
    let cpu = pin();
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let rings = &rings;
        scope.spawn(move || {
            pin();
            // SAFETY: no memory is involved.
            send.send(unsafe { libc::gettid() }).unwrap();
            // More events than fit into one ring, and fewer than fit into two.
            (0..500).for_each(|n| put(rings, 1, &[n, n]).unwrap());
        });
        let thread = receive.recv().unwrap();
        // Until it is full, and a while longer.
        while rings.control(cpu).head.load(Ordering::Relaxed) < 2 * 4096 - 24 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        // SAFETY: a set of CPUs is plain data, and the call writes nothing.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET((cpu as usize + 1) % 2, &mut set);
            let done = libc::sched_setaffinity(thread, size_of_val(&set), &raw const set);
            assert_eq!(done, 0);
        }
    });
    assert_eq!(rings.lost(), 0);
}

/// The reader is notified of each sub-buffer that was filled.
#[test]
fn each_sub_buffer_notifies_the_reader() {
    for mode in [Mode::Discard, Mode::Overwrite] {
        let wakeup = ReaderWakeup::default();
        let rings = with_wakeup(mode, &wakeup);
        on_one_ring(|cpu| {
            for _ in 0..5000 {
                put(&rings, 1, &[1, 2]).unwrap();
                let head = rings.control(cpu).head.load(Ordering::Relaxed);
                rings.control(cpu).consumed.store(head, Ordering::Relaxed);
                assert_eq!(
                    u64::from(wakeup.notifications.load(Ordering::Relaxed)),
                    (head - 1) / 4096
                );
            }
        });
    }
}

/// The writer of a record that a reader found busy in a filled sub-buffer notifies the reader at
/// the end.
#[test]
fn a_completed_record_notifies_a_waiting_reader() {
    let wakeup = ReaderWakeup::default();
    let rings = with_wakeup(Mode::Discard, &wakeup);
    on_one_ring(|_| {
        let notified = || wakeup.notifications.load(Ordering::Relaxed);
        put_made(&rings, 7, 1000, &|_| {}).unwrap();
        assert_eq!(notified(), 0);
        put_made(&rings, 7, 1000, &|_| {
            put_made(&rings, 7, 3000, &|_| {}).unwrap();
            assert_eq!(notified(), 1);
        })
        .unwrap();
        assert_eq!(notified(), 2);
    });
}
