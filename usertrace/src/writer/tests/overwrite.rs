//! Rings that keep the newest records (D3).

use std::sync::atomic::fence;

use usertrace_sys::Mode;

use super::*;

fn overwriting(subbuf_size: u64, subbuf_count: u64) -> Rings {
    Rings::with(subbuf_size, subbuf_count, |geometry| Geometry {
        mode: Mode::Overwrite,
        ..geometry
    })
}

/// After any number of laps, what is not claimed is the newest records, without a gap.
#[test]
fn the_newest_are_there() {
    let rings = overwriting(4096, 4);
    on_one_ring(|cpu| {
        let mut written = 0;
        for count in [1, 50, 600, 601, 5000] {
            for _ in 0..count {
                put(&rings, 1, &[written, !written]).unwrap();
                written += 1;
            }
            let control = rings.control(cpu);
            let head = control.head.load(Ordering::Acquire);
            let claimed = control.claimed.load(Ordering::Relaxed);
            assert_eq!(claimed % 4096, 0);
            // All sub-buffers but the one that was begun last are whole, and there are as many as
            // there are places.
            assert_eq!(
                claimed,
                head.next_multiple_of(4096).saturating_sub(4 * 4096)
            );
            let numbers: Vec<u64> = rings
                .decode_range(cpu, claimed, head, |_| 2)
                .records
                .iter()
                .map(|record| {
                    assert_eq!(record.payload[0], !record.payload[1]);
                    record.payload[0]
                })
                .collect();
            assert!(
                numbers
                    .iter()
                    .copied()
                    .eq(written - numbers.len() as u64..written)
            );
        }
        assert_eq!(rings.lost(), 0);
    });
}

/// The numbers in a sub-buffer that a reader has after it checked whether it was overtaken.
fn numbers(copy: &[u64], position: u64) -> Vec<u64> {
    assert_eq!(copy[0], position);
    let (mut numbers, mut at) = (Vec::new(), size_of::<LttSubbuf>() / 8);
    while at < copy.len() && copy[at] as u16 != LTT_ID_PAD {
        assert_eq!((copy[at] as u16, copy[at + 1]), (1, !copy[at + 2]), "torn");
        numbers.push(copy[at + 1]);
        at += 3;
    }
    assert!(numbers.is_sorted());
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A reader that is overtaken between any two words finds that out; what it takes for good is
    /// good.
    #[test]
    fn a_reader_that_is_overtaken(
        reads in prop::collection::vec((0u64..4, 0usize..512, 0u64..900), 1..40)
    ) {
        let rings = overwriting(4096, 4);
        try_on_one_ring(|cpu| {
            let mut written = 0;
            let mut write = |count: u64| {
                for _ in 0..count {
                    put(&rings, 1, &[written, !written]).unwrap();
                    written += 1;
                }
            };
            write(1000);
            let control = rings.control(cpu);
            for (back, at, count) in reads {
                let head = control.head.load(Ordering::Acquire);
                let position = (head & !4095) - back * 4096;
                let mut copy = Vec::new();
                for n in 0..512 {
                    if n == at {
                        write(count);
                    }
                    copy.push(rings.word(cpu, position + 8 * n as u64));
                }
                let head = control.head.load(Ordering::Acquire);
                let overtaken = control.claimed.load(Ordering::Relaxed) > position;
                // Told if, and only if, the place has another sub-buffer now.
                prop_assert_eq!(overtaken, position + 4 * 4096 < head);
                if !overtaken && position + 4096 <= head && at == 0 {
                    prop_assert_eq!(numbers(&copy, position).len(), (4096 - 64) / 24);
                }
            }
            Ok(())
        })?;
    }
}

/// The same with a reader on another CPU, who is as fast as the machine likes.
#[test]
fn a_reader_beside_the_writer() {
    let events = counts(100_000, 1_000_000);
    let rings = overwriting(4096, 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..events {
                put(&rings, 1, &[n, !n]).unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            for cpu in 0..rings.geometry.nr_rings {
                let control = rings.control(cpu);
                let head = control.head.load(Ordering::Acquire);
                let Some(position) = (head & !4095).checked_sub(2 * 4096) else {
                    continue;
                };
                let copy: Vec<u64> = (0..512)
                    .map(|n| rings.word(cpu, position + 8 * n))
                    .collect();
                // Pairs with the writer's fence after its claim.
                fence(Ordering::Acquire);
                if control.claimed.load(Ordering::Relaxed) <= position {
                    assert_eq!(numbers(&copy, position).len(), (4096 - 64) / 24);
                }
            }
        }
    });
    assert_eq!(rings.lost(), 0);
}

/// A process that is killed at any instruction leaves its newest records.
///
/// Requirements: A10
#[test]
fn killed_anywhere() {
    let rounds = counts(20, 60);
    for round in 0..rounds {
        let rings = overwriting(4096, 4);
        let witness = shared(4096).cast::<AtomicU64>();
        // SAFETY: as in `in_child`; the parent kills the child that it made.
        unsafe {
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                pin();
                for n in 0u64.. {
                    put(&rings, 1, &[n, !n]).unwrap();
                    witness.as_ref().store(n + 1, Ordering::Release);
                }
            }
            while witness.as_ref().load(Ordering::Acquire) < round * 5820 / rounds {
                std::hint::spin_loop();
            }
            libc::kill(pid, libc::SIGKILL);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        }
        let numbers: Vec<u64> = (0..rings.geometry.nr_rings)
            .flat_map(|cpu| {
                let control = rings.control(cpu);
                let head = control.head.load(Ordering::Acquire);
                let claimed = control.claimed.load(Ordering::Relaxed);
                rings
                    .decode_range(cpu, claimed.min(head), head, |_| 2)
                    .records
            })
            .map(|record| {
                assert_eq!(record.payload[0], !record.payload[1]);
                record.payload[0]
            })
            .collect();
        // SAFETY: the child is gone; mapped above.
        let witness_value = unsafe {
            let value = witness.as_ref().load(Ordering::Acquire);
            libc::munmap(witness.as_ptr().cast(), 4096);
            value
        };
        let last = numbers.last().map_or(0, |last| last + 1);
        assert!(last == witness_value || last == witness_value + 1);
        assert!(numbers.is_sorted());
        // At least two sub-buffers that are whole are never claimed.
        assert!(numbers.len() as u64 >= last.min(2 * 168));
        let first = numbers.first().copied().unwrap_or(0);
        assert_eq!(numbers.len() as u64, last - first, "a gap");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All records that are neither claimed nor consumed remain, up to the newest one. Neither the
    /// previous modes nor the position of the reader matter.
    ///
    /// Requirements: E3
    #[test]
    fn only_claimed_or_consumed_records_are_overwritten(
        steps in prop::collection::vec((0..3usize, 0u64..900, 0u64..8), 1..30)
    ) {
        const SIZE: u64 = 4 * 4096;
        let rings = overwriting(4096, 4);
        try_on_one_ring(|cpu| {
            let control = rings.control(cpu);
            let mut accepted: Vec<u64> = Vec::new();
            let mut n = 0;
            for (mode, count, read) in steps {
                let mode = [Mode::Discard, Mode::Overwrite, Mode::Block][mode];
                rings.channel.set_mode(mode);
                let lost = rings.lost();
                for _ in 0..count {
                    let consumed = control.consumed.load(Ordering::Relaxed);
                    let end = control.head.load(Ordering::Relaxed).next_multiple_of(4096);
                    if put(&rings, 1, &[n, !n]).is_ok() {
                        accepted.push(n);
                    } else {
                        // Only where there is no room for one sub-buffer more.
                        prop_assert!(mode != Mode::Overwrite && end + 4096 - consumed > SIZE);
                    }
                    n += 1;
                }
                prop_assert!(mode != Mode::Overwrite || rings.lost() == lost);
                let head = control.head.load(Ordering::Relaxed);
                let claimed = control.claimed.load(Ordering::Relaxed);
                let consumed = control.consumed.load(Ordering::Relaxed);
                // Of a sub-buffer that was consumed in part the rest is there, if it was not
                // claimed.
                let from = claimed.max(consumed & !4095);
                prop_assert!(head.next_multiple_of(4096).saturating_sub(SIZE) <= from);
                let records = rings.decode_range(cpu, from, head, |_| 2).records;
                let numbers: Vec<u64> = records.iter().map(|record| record.payload[0]).collect();
                prop_assert!(accepted.ends_with(&numbers));
                prop_assert!(records.iter().all(|record| record.payload[1] == !record.payload[0]));
                // A reader goes on from what it found claimed.
                let to = (consumed.max(claimed) + read * 1000 / 8 * 8).min(head);
                if read != 0 {
                    control.consumed.store(to, Ordering::Release);
                }
            }
            prop_assert_eq!(rings.lost() + accepted.len() as u64, n);
            Ok(())
        })?;
    }
}
