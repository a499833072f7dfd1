//! The three calls, and the accesses that they are made for.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use usertrace_sys::uapi::{LttRingControl, LttTracebuf};
use usertrace_tests::areas::SLOTS;
use usertrace_tests::random::Random;
use usertrace_tests::raw::KERNEL_ADDRESS;

use crate::actor::{Actor, CallResult, system};
use crate::calls::{life, mm};
use crate::kinds::Kind;
use crate::oracle;
use crate::plan::{one_in, pick};
use crate::probe::{self, Fault};
use crate::scene::{PAGE, SCENE, calls, name_at};

/// `alloc_tracebuf` with these arguments, which may be wrong.
pub(crate) fn alloc_raw(args: usize, size: usize, flags: usize) -> CallResult {
    system(
        calls().abi().nr_alloc_tracebuf as usize,
        [args, size, flags],
    )
}

/// `ltt_update`, likewise.
pub(crate) fn update_raw(buffer: usize, active: usize, filter: usize) -> CallResult {
    system(
        calls().abi().nr_ltt_update as usize,
        [buffer, active, filter],
    )
}

/// `ltt_switch`, likewise.
pub(crate) fn switch_raw(buffer: usize) -> CallResult {
    system(calls().abi().nr_ltt_switch as usize, [buffer])
}

/// Signals that a program asks to be told by.
fn signo(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => 0,
        1 => libc::SIGUSR1 as u32,
        2 => 34 + random.below(31) as u32,
        _ => libc::SIGURG as u32,
    }
}

/// Asks for areas.
pub(crate) fn alloc(actor: &Actor, random: &mut Random) {
    let signo = signo(random);
    // Only a signal that has a handler can tell of updates.
    if signo != 0 && !one_in(random, 4) {
        life::handle_by_nothing(signo.cast_signed());
    }
    let mut args = LttTracebuf {
        signo,
        ..LttTracebuf::default()
    };
    let done = actor.around(Kind::Alloc, || {
        alloc_raw(&raw mut args as usize, size_of::<LttTracebuf>(), 0)
    });
    match done {
        Ok(_) => {
            SCENE.signo.store(signo, Ordering::Relaxed);
            SCENE.mapped(&args);
        }
        // Some are unmapped: there are no others before all are.
        Err(libc::EBUSY) if one_in(random, 2) => mm::unmap_all(actor),
        Err(_) => {}
    }
}

/// Asks for areas, in ways that must fail.
pub(crate) fn alloc_wrong(actor: &Actor, random: &mut Random) {
    let mut args = LttTracebuf::default();
    let at = &raw mut args as usize;
    let size = size_of::<LttTracebuf>();
    let [pointer, size, flags] = match random.below(7) {
        0 => [at, size - 1 - random.below(size as u64 - 1) as usize, 0],
        1 => [at, PAGE + 1 + random.below(1 << 20) as usize, 0],
        2 => [at, size, 1 << random.below(32)],
        3 => {
            args.signo = pick(random, &[9, 19, 65, 0x8000_0000, u32::MAX]);
            [at, size, 0]
        }
        4 => {
            args.flags = 1 << random.below(32);
            [at, size, 0]
        }
        5 => [pick(random, &[0, KERNEL_ADDRESS, usize::MAX - 7]), size, 0],
        // More than the kernel knows, and not zeros.
        _ => [SCENE.spare(), size + 8 * (1 + random.below(64) as usize), 0],
    };
    // The whole structure is in place before.
    let _ = std::hint::black_box(&mut args);
    let _ = actor.around(Kind::AllocWrong, || alloc_raw(pointer, size, flags));
}

/// Asks for the next buffer.
pub(crate) fn update_next(actor: &Actor, _random: &mut Random) {
    let mut words = [0_usize; 3];
    let at = words.as_mut_ptr() as usize;
    let done = actor.around(Kind::UpdateNext, || update_raw(at, at + 8, at + 16));
    let buffer = std::hint::black_box(words)[0];
    if let (Ok(_), Some([.., buffers])) = (done, SCENE.areas())
        && buffer != 0
    {
        let len = SCENE.stride(true).max(1);
        let offset = buffer.wrapping_sub(buffers.start);
        if offset.is_multiple_of(len) && offset / len < SLOTS {
            SCENE.buffers[offset / len].store(buffer, Ordering::Relaxed);
        } else if SCENE.is_intact() {
            actor.find(&format!(
                "ltt_update gives {buffer:#x}, which is no slot of {buffers:x?}"
            ));
        }
    }
}

/// Asks about a buffer.
pub(crate) fn update_of(actor: &Actor, random: &mut Random) {
    let slot = SCENE.slot(random);
    let mut words = [SCENE.buffers[slot].load(Ordering::Relaxed), 0, 0];
    let at = words.as_mut_ptr() as usize;
    let done = actor.around(Kind::UpdateOf, || update_raw(at, at + 8, at + 16));
    let _ = std::hint::black_box(words);
    if done == Err(libc::ENOENT) {
        SCENE.buffers[slot].store(0, Ordering::Relaxed);
    }
}

/// An address that is no slot, or hardly one.
fn no_slot(random: &mut Random) -> usize {
    let Some([info, control, buffers]) = SCENE.areas() else {
        return 1 + random.word() as usize % (1 << 47);
    };
    match random.below(6) {
        0 => buffers.start + 1 + random.below(1 << 30) as usize,
        1 => buffers.start + buffers.len,
        2 => info.start,
        3 => control.start + 1,
        4 => KERNEL_ADDRESS,
        _ => random.word() as usize | 1,
    }
}

/// Asks in ways that must fail.
pub(crate) fn update_wrong(actor: &Actor, random: &mut Random) {
    let mut words = [0_usize; 3];
    let at = words.as_mut_ptr() as usize;
    let bad = pick(random, &[0, 8, KERNEL_ADDRESS, usize::MAX - 3]);
    let _ = match random.below(4) {
        0 => actor.around(Kind::UpdateWrong, || update_raw(bad, at + 8, at + 16)),
        1 => actor.around(Kind::UpdateWrong, || update_raw(at, bad, at + 16)),
        2 => actor.around(Kind::UpdateWrong, || update_raw(at, at + 8, bad)),
        _ => {
            words[0] = no_slot(random) | 1;
            actor.around(Kind::UpdateWrong, || update_raw(at, at + 8, at + 16))
        }
    };
    let _ = std::hint::black_box(words);
}

/// Shows a buffer to consumers.
pub(crate) fn switch(actor: &Actor, random: &mut Random) {
    let slot = SCENE.slot(random);
    let buffer = SCENE.buffers[slot].load(Ordering::Relaxed);
    let _ = actor.around(Kind::Switch, || switch_raw(buffer));
}

/// Likewise, one that there is not.
pub(crate) fn switch_wrong(actor: &Actor, random: &mut Random) {
    let address = no_slot(random) | 1;
    let _ = actor.around(Kind::SwitchWrong, || switch_raw(address));
}

/// Counts an access, and judges its fault.
pub(crate) fn access<T>(
    actor: &Actor,
    kind: Kind,
    address: usize,
    access: impl FnOnce() -> Result<T, Fault>,
) -> Option<T> {
    let mut value = None;
    let was_intact = SCENE.is_intact();
    let _ = actor.with(kind, &[address], || match access() {
        Ok(found) => {
            value = Some(found);
            Ok(0)
        }
        Err(Fault::Segv) => Err(libc::EFAULT),
        Err(Fault::Bus) => Err(libc::EIO),
    });
    if value.is_none() && was_intact && SCENE.is_intact() {
        actor.find(&format!(
            "{}: a fault at {address:#x}, in an area, where there is {:?} now; areas {:x?}",
            kind.name(),
            name_at(address),
            SCENE.areas().unwrap_or_default()
        ));
    }
    value
}

/// Reads a word of a ring.
pub(crate) fn read(actor: &Actor, random: &mut Random) {
    let Some(address) = SCENE.address(random) else {
        return;
    };
    if let Some(word) = access(actor, Kind::Read, address, || probe::read(address)) {
        oracle::judge_own(actor, address, word);
    }
}

/// Writes a word of a ring.
pub(crate) fn write(actor: &Actor, random: &mut Random) {
    let Some(address) = SCENE.address(random) else {
        return;
    };
    write_at(actor, address);
}

/// Writes a word, and remembers that.
pub(crate) fn write_at(actor: &Actor, address: usize) {
    let word = SCENE.word();
    if access(actor, Kind::Write, address, || probe::write(address, word)).is_some() {
        SCENE.touch(address);
    }
}

/// Writes any word of a control block.
pub(crate) fn write_control(actor: &Actor, random: &mut Random) {
    let Some(ring) = SCENE.ring(random) else {
        return;
    };
    let address = ring.control + 8 * random.below(16) as usize;
    let word = match random.below(4) {
        0 => 0,
        1 => random.word(),
        2 => u64::MAX - random.below(64),
        _ => random.below(2 * ring.len as u64) & !7,
    };
    access(actor, Kind::WriteControl, address, || {
        probe::write(address, word)
    });
}

/// Writes some records as a program would, and says that they are there.
pub(crate) fn commit(actor: &Actor, random: &mut Random) {
    let Some(ring) = SCENE.ring(random) else {
        return;
    };
    let head = ring.control + offset_of!(LttRingControl, head);
    let count = 1 + random.below(40) as usize;
    access(actor, Kind::Commit, ring.start, || {
        let at = probe::read(head)? as usize;
        for word in 0..count {
            // It may be any number that was written there.
            let offset = (at.wrapping_add(8 * word) % ring.len) & !7;
            probe::write(ring.start + offset, SCENE.word())?;
        }
        probe::write(head, (at.wrapping_add(8 * count) & !7) as u64)
    });
    SCENE.touch(ring.start);
}

/// Reads the info area as programs do.
pub(crate) fn info(actor: &Actor, random: &mut Random) {
    let Some([info, ..]) = SCENE.areas() else {
        return;
    };
    let page = random.below(info.len as u64 / PAGE as u64) as usize;
    access(actor, Kind::Info, info.start, || {
        for word in 0..64 {
            probe::read(info.start + page * PAGE + 8 * word)?;
        }
        Ok(())
    });
}

/// Looks at pages that were written before.
pub(crate) fn check(actor: &Actor, random: &mut Random) {
    let every = one_in(random, 8);
    let _ = actor.around(Kind::Check, || {
        oracle::check_touched(actor, random, every);
        Ok(0)
    });
}
