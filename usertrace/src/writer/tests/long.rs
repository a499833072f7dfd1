//! Records that are put together in the ring.

use usertrace_sys::Mode;

use super::*;

/// A pattern that says where it should be.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|n| (seed.wrapping_mul(31).wrapping_add(n) % 251) as u8 + 1)
        .collect()
}

fn payload_of(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect()
}

fn busy(rings: &Rings, cpu: u32, position: u64) -> u32 {
    let subbuf = rings
        .channel
        .ring_at(cpu)
        .unwrap()
        .at::<LttSubbuf>(position);
    // SAFETY: inside the ring.
    unsafe { (&raw const (*subbuf).busy).read_volatile() }
}

#[test]
fn a_record_of_each_length_up_to_a_sub_buffer() {
    let rings = Rings::new(4096, 32);
    on_one_ring(|cpu| {
        const MOST: usize = 4096 - size_of::<LttSubbuf>() - 16;
        let mut expected = Vec::new();
        for (n, len) in [0, 1, 7, 8, 9, 600, 2048, 4000, MOST - 9, MOST - 1, MOST]
            .into_iter()
            .enumerate()
        {
            let bytes = pattern(n as u64, len);
            put_made(&rings, 7, len, &|cursor| {
                let (first, second) = bytes.split_at(len / 3);
                cursor.append(first);
                cursor.append(second);
            })
            .unwrap();
            expected.push(payload_of(&bytes));
            put(&rings, 1, &[n as u64]).unwrap();
            expected.push(vec![n as u64]);
        }
        // Missing bytes are zeros, and surplus bytes are left out.
        put_made(&rings, 7, 16, &|cursor| cursor.append(&[0xff; 3])).unwrap();
        expected.push(vec![0xff_ffff, 0]);
        put_made(&rings, 7, 16, &|cursor| cursor.append(&[0xff; 30])).unwrap();
        expected.push(vec![u64::MAX; 2]);

        let decoded = rings.decode(cpu, |_| 1);
        let payloads: Vec<_> = decoded
            .records
            .into_iter()
            .map(|record| record.payload)
            .collect();
        assert_eq!(payloads, expected);
        assert_eq!((decoded.busy, rings.lost()), (0, 0));

        let before = rings.control(cpu).head.load(Ordering::Relaxed);
        for len in [MOST + 1, 1 << 20, usize::MAX / 2] {
            let never = |_: &mut Cursor<'_>| panic!("there is no room");
            assert_eq!(put_made(&rings, 7, len, &never), Err(Dropped::Lost));
        }
        assert_eq!(rings.lost(), 3);
        assert_eq!(rings.control(cpu).head.load(Ordering::Relaxed), before);
        assert!(rings.channel.is_quiescent());
    });
}

/// A writer that is killed in the middle of a record leaves one of which only the length is known.
///
/// Requirements: A10
#[test]
fn killed_in_the_middle() {
    let rings = Rings::new(4096, 4);
    let status = in_child(|| {
        pin();
        put(&rings, 1, &[1]).unwrap();
        let _ = put_made(&rings, 7, 1000, &|cursor| {
            cursor.append(&[0xff; 500]);
            // A signal handler would be in the middle of it, too.
            put(&rings, 1, &[2]).unwrap();
            // SAFETY: that is what is tested.
            unsafe { libc::raise(libc::SIGKILL) };
        });
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    let cpu = rings.written().unwrap();
    let decoded = rings.decode(cpu, |_| 1);
    let payloads: Vec<_> = decoded
        .records
        .iter()
        .map(|record| record.payload[0])
        .collect();
    assert_eq!(payloads, [1, 2]);
    assert_eq!(decoded.busy, 1);
    assert_eq!(busy(&rings, cpu, 0), 1);
}

/// A process that is killed at any instruction leaves a prefix of its records, and at most one
/// record of unknown contents.
///
/// Requirements: A10
#[test]
fn killed_anywhere() {
    const LENS: [usize; 3] = [600, 1504, 3000];
    let mut torn = 0;
    let rounds = counts(20, 60);
    for round in 0..rounds {
        let rings = Rings::new(1 << 16, 64);
        let witness = shared(4096).cast::<AtomicU64>();
        // SAFETY: as in `in_child`; the parent kills the child that it made.
        unsafe {
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                for n in 0u64.. {
                    let len = LENS[(n % 3) as usize];
                    let fill = |cursor: &mut Cursor<'_>| {
                        for _ in 0..len / 8 {
                            cursor.append(&n.to_ne_bytes());
                        }
                    };
                    if put_made(&rings, 7, len, &fill).is_err() {
                        loop {
                            libc::pause();
                        }
                    }
                    witness.as_ref().store(n + 1, Ordering::Release);
                }
            }
            while witness.as_ref().load(Ordering::Acquire) < round * 780 / rounds {
                std::hint::spin_loop();
            }
            libc::kill(pid, libc::SIGKILL);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        }
        let mut numbers = Vec::new();
        let mut busy = 0;
        for decoded in rings.decode_all(|_| 0) {
            busy += decoded.busy;
            for record in decoded.records {
                let n = record.payload[0];
                assert_eq!(record.payload, vec![n; LENS[(n % 3) as usize] / 8]);
                numbers.push(n);
            }
        }
        assert!(busy <= 1);
        torn += busy;
        numbers.sort_unstable();
        assert!(
            numbers.iter().copied().eq(0..numbers.len() as u64),
            "not a prefix"
        );
        // SAFETY: the child is gone; mapped above.
        unsafe {
            assert!(numbers.len() as u64 >= witness.as_ref().load(Ordering::Acquire));
            libc::munmap(witness.as_ptr().cast(), 4096);
        }
    }
    assert!(torn > 0, "no record was ever in the making");
}

/// A writer that comes back after laps of others finds its place as it left it, in each mode.
#[test]
fn a_place_that_is_not_left_is_passed_over() {
    for mode in [Mode::Discard, Mode::Overwrite] {
        let rings = Rings::with(4096, 4, |geometry| Geometry { mode, ..geometry });
        on_one_ring(|cpu| {
            let bytes = pattern(5, 1000);
            let (mut written, mut read) = (Vec::new(), Vec::new());
            let mut passed_over = 0;
            // Each place in turn is the one that is not left.
            for round in 0..5u64 {
                let control = rings.control(cpu);
                let head = control.head.load(Ordering::Relaxed);
                let reads = std::cell::RefCell::new((Vec::new(), Vec::new(), 0));
                put_made(&rings, 7, bytes.len(), &|cursor| {
                    cursor.append(&bytes[..600]);
                    let (written, read, passed_over) = &mut *reads.borrow_mut();
                    let mine = control.head.load(Ordering::Relaxed) - 16 - 1000;
                    let mut consumed = control.head.load(Ordering::Relaxed);
                    // Three laps and a bit.
                    for n in 0..1000 {
                        put(&rings, 1, &[round, n, !n, 0, 0]).unwrap();
                        written.push(vec![round, n, !n, 0, 0]);
                        let head = control.head.load(Ordering::Acquire);
                        // As a reader that gave up waiting for the record: it consumes what is
                        // committed behind it.
                        if head / 4096 > consumed / 4096 || n == 999 {
                            let decoded = rings.decode_range(cpu, consumed, head, |_| 5);
                            read.extend(decoded.records.into_iter().map(|record| record.payload));
                            *passed_over += decoded.passed_over;
                            consumed = head;
                            control.consumed.store(head, Ordering::Release);
                        }
                    }
                    assert_eq!(rings.word(cpu, mine) as u16, LTT_ID_LONG);
                    assert_eq!(busy(&rings, cpu, mine & !4095), 1);
                    cursor.append(&bytes[600..]);
                })
                .unwrap();
                let (new_written, new_read, new_passed_over) = reads.into_inner();
                written.extend(new_written);
                read.extend(new_read);
                passed_over += new_passed_over;
                // It was not written to by others meanwhile: it is in its place still.
                let mine = if head.is_multiple_of(4096) || head % 4096 + 1016 > 4096 {
                    head.next_multiple_of(4096) + 64
                } else {
                    head
                };
                let words: Vec<u64> = (0..125)
                    .map(|n| rings.word(cpu, mine + 16 + 8 * n))
                    .collect();
                assert_eq!(words, payload_of(&bytes));
                assert_ne!(rings.word(cpu, mine + 8) & LTT_LONG_DONE, 0);
                assert_eq!(busy(&rings, cpu, mine & !4095), 0);
            }
            assert_eq!(read, written, "{mode:?}");
            assert!(passed_over >= 10, "{passed_over}");
            assert_eq!(rings.lost(), 0);
        });
    }
}

/// Where writers are everywhere, there is no place; it is counted, and over when one leaves.
#[test]
fn no_place_at_all() {
    let rings = Rings::with(4096, 2, |geometry| Geometry {
        mode: Mode::Overwrite,
        ..geometry
    });
    on_one_ring(|_| {
        put_made(&rings, 7, 3000, &|_| {
            put_made(&rings, 7, 3000, &|_| {
                assert_eq!(put_made(&rings, 7, 3000, &|_| {}), Err(Dropped::Lost));
            })
            .unwrap();
        })
        .unwrap();
        assert_eq!(rings.lost(), 1);
        put_made(&rings, 7, 3000, &|_| {}).unwrap();
    });
}

/// The thread that closes a channel learns that a writer is still inside, and when it has left.
///
/// Requirements: A9
#[test]
fn a_closed_channel_becomes_quiescent_later() {
    let rings = Rings::new(4096, 4);
    pin();
    assert!(rings.channel.is_quiescent());
    put_made(&rings, 7, 1000, &|_| {
        assert!(!rings.channel.is_quiescent());
        rings.channel.close();
        assert!(!rings.channel.is_quiescent());
        assert_eq!(put_made(&rings, 7, 1000, &|_| {}), Err(Dropped::Closed));
        assert!(!rings.channel.is_quiescent());
    })
    .unwrap();
    assert!(rings.channel.is_quiescent());
}

/// Several threads on all CPUs, with laps, a reader, and records of both kinds: each is whole.
#[test]
fn threads_mix_long_and_short_records() {
    const THREADS: u64 = 4;
    let events = counts(4_000, 20_000);
    let rings = Rings::new(1 << 16, 512);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let rings = &rings;
            scope.spawn(move || {
                for n in 0..events {
                    if n % 4 == 0 {
                        let len = 520 + (n % 1000) as usize;
                        let bytes = pattern(thread << 32 | n, len);
                        put_made(rings, 7, len + 16, &|cursor| {
                            cursor.append(&thread.to_ne_bytes());
                            cursor.append(&n.to_ne_bytes());
                            cursor.append(&bytes);
                        })
                        .unwrap();
                    } else {
                        put(rings, 1, &[thread, n]).unwrap();
                    }
                }
            });
        }
    });
    assert!(rings.channel.is_quiescent());
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for decoded in rings.decode_all(|_| 2) {
        assert!(decoded.records.iter().map(|record| record.time).is_sorted());
        assert_eq!(decoded.busy, 0);
        for record in decoded.records {
            let (thread, n) = (record.payload[0], record.payload[1]);
            if record.id == 7 {
                let bytes = pattern(thread << 32 | n, 520 + (n % 1000) as usize);
                assert_eq!(record.payload[2..], payload_of(&bytes));
            }
            seen.entry(thread).or_default().push(n);
        }
    }
    assert_eq!(seen.len(), THREADS as usize);
    for numbers in seen.values_mut() {
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..events));
    }
}
