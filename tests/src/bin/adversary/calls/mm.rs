//! All ways to map, move, split, share and advise about the areas.

use syscalls::Sysno;
use usertrace_tests::random::Random;

use crate::actor::{Actor, CallResult};
use crate::calls::ltt;
use crate::kinds::{ADVICE, Kind};
use crate::plan::pick;
use crate::scene::{PAGE, Range, SCENE, SPARE};

const READ: usize = libc::PROT_READ as usize;
const WRITE: usize = libc::PROT_WRITE as usize;
const EXEC: usize = libc::PROT_EXEC as usize;
const ANONYMOUS: usize = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;

/// Judges a call that must fail while the areas are as the kernel mapped them.
pub(crate) fn must_fail(
    actor: &Actor,
    kind: Kind,
    at: Range,
    result: CallResult,
    was_intact: bool,
) {
    let areas = SCENE.areas();
    let is_inside = areas.iter().flatten().any(|area| {
        (area.start..area.start + area.len).contains(&at.start)
            && at.start + at.len <= area.start + area.len
    });
    if result.is_ok() && was_intact && is_inside {
        actor.find(&format!("{} succeeds on an area, {at:x?}", kind.name()));
    }
}

/// Unmaps an area.
pub(crate) fn unmap(actor: &Actor, random: &mut Random) {
    let Some(areas) = SCENE.areas() else {
        return;
    };
    let Range { start, len } = areas[random.below(3) as usize];
    SCENE.meddle();
    let _ = actor.call(Kind::Unmap, Sysno::munmap, [start, len]);
}

/// Unmaps all areas, one after the other.
pub(crate) fn unmap_all(actor: &Actor) {
    for area in SCENE.areas().iter().flatten() {
        SCENE.meddle();
        let _ = actor.call(Kind::Unmap, Sysno::munmap, [area.start, area.len]);
    }
}

/// Unmaps an area or a part of one.
pub(crate) fn unmap_part(actor: &Actor, random: &mut Random) {
    let Some((part, is_whole)) = SCENE.part(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let done = actor.call(Kind::UnmapPart, Sysno::munmap, [part.start, part.len]);
    if !is_whole && !ends_an_area(part) {
        must_fail(actor, Kind::UnmapPart, part, done, was_intact);
    }
    if done.is_ok() {
        SCENE.meddle();
    }
}

/// Whether this part is a whole area, or more.
fn ends_an_area(part: Range) -> bool {
    let areas = SCENE.areas();
    areas
        .iter()
        .flatten()
        .any(|area| part.start <= area.start && area.start + area.len <= part.start + part.len)
}

/// Finding 1 of the series' review: the process's state ends while one of its mappings is mapped
/// again.
pub(crate) fn unmap_two_and_map_again(actor: &Actor, random: &mut Random) {
    ltt::alloc(actor, random);
    ltt::update_next(actor, random);
    for _ in 0..random.below(24) {
        ltt::write(actor, random);
    }
    let Some(areas) = SCENE.areas() else {
        return;
    };
    let kept = if random.below(4) == 0 {
        random.below(3) as usize
    } else {
        2
    };
    SCENE.meddle();
    for (at, area) in areas.iter().enumerate() {
        if at != kept {
            let _ = actor.call(Kind::UnmapTwo, Sysno::munmap, [area.start, area.len]);
        }
    }
    let page = match random.below(8) {
        0 => random.below(1 << 20) as usize,
        _ => areas[..kept].iter().map(|area| area.len / PAGE).sum(),
    };
    let Range { start, len } = areas[kept];
    let _ = actor.call(
        Kind::RemapPagesAfter,
        Sysno::remap_file_pages,
        [start, len, 0, page, 0],
    );
    // Before the end of the process is worked off, and after it.
    for page in SCENE.touched().take(8) {
        ltt::write_at(actor, page + 8 * random.below(512) as usize);
    }
    if random.below(2) == 0 {
        crate::actor::nap(1 + random.below(8));
    }
    ltt::check(actor, random);
    if random.below(2) == 0 {
        let _ = actor.call(Kind::Unmap, Sysno::munmap, [start, len]);
    }
}

/// Moves, grows, shrinks.
pub(crate) fn remap(actor: &Actor, random: &mut Random) {
    let Some((part, _)) = SCENE.part(random) else {
        return;
    };
    let Range { start, len } = part;
    let was_intact = SCENE.is_intact();
    let new = match random.below(4) {
        0 | 1 => len,
        2 => len + PAGE,
        _ => ((len / 2) & !(PAGE - 1)).max(PAGE),
    };
    let maymove = libc::MREMAP_MAYMOVE as usize;
    let fixed = maymove | libc::MREMAP_FIXED as usize;
    // Free addresses, or memory of this program that is not needed.
    let target = 0x2000_0000_0000 + (random.below(1 << 16) as usize) * (16 << 20);
    let (kind, arguments) = match random.below(4) {
        0 => (Kind::RemapSame, [start, len, new, 0, 0]),
        1 => (Kind::RemapMove, [start, len, new, maymove, 0]),
        2 => (Kind::RemapFixed, [start, len, new, fixed, target]),
        _ => {
            let keep = maymove | libc::MREMAP_DONTUNMAP as usize;
            (Kind::RemapKeep, [start, len, new, keep, target])
        }
    };
    // Length 0 once doubled shared mappings.
    let mut arguments = arguments;
    if random.below(8) == 0 {
        arguments[1] = 0;
    }
    let done = actor.call(kind, Sysno::mremap, arguments);
    match done {
        // The call was a no-op.
        Ok(at) if at == start && arguments[1] == arguments[2] => {}
        _ => must_fail(actor, kind, part, done, was_intact),
    }
    if done.is_ok_and(|at| at != start) {
        SCENE.meddle();
    }
}

/// Moves other memory onto an area.
pub(crate) fn remap_onto(actor: &Actor, random: &mut Random) {
    let Some((part, is_whole)) = SCENE.part(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let len = part.len.min(1 << 20);
    let Ok(from) = crate::actor::call(
        Sysno::mmap,
        [0, len, READ | WRITE, ANONYMOUS, usize::MAX, 0],
    ) else {
        return;
    };
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    if is_whole {
        SCENE.meddle();
    }
    let done = actor.call(
        Kind::RemapOnto,
        Sysno::mremap,
        [from, len, len, flags, part.start],
    );
    let onto = Range { len, ..part };
    if !ends_an_area(onto) {
        must_fail(actor, Kind::RemapOnto, onto, done, was_intact);
    }
    if done.is_ok() {
        SCENE.meddle();
    } else {
        let _ = crate::actor::call(Sysno::munmap, [from, len]);
    }
}

/// `remap_file_pages()`, of which the kernel makes a new mapping of the same file.
pub(crate) fn remap_pages(actor: &Actor, random: &mut Random) {
    let Some((part, _)) = SCENE.part(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let page = match random.below(3) {
        0 => 0,
        1 => part.len / PAGE,
        _ => random.below(1 << 24) as usize,
    };
    // The kernel unmaps first, and asks then.
    SCENE.meddle();
    let done = actor.call(
        Kind::RemapPages,
        Sysno::remap_file_pages,
        [part.start, part.len, 0, page, 0],
    );
    must_fail(actor, Kind::RemapPages, part, done, was_intact);
}

/// Maps other memory over an area.
pub(crate) fn fixed(actor: &Actor, random: &mut Random) {
    let Some((part, is_whole)) = SCENE.part(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let mut flags = ANONYMOUS | libc::MAP_NORESERVE as usize;
    let kind = if random.below(4) == 0 {
        flags |= libc::MAP_FIXED_NOREPLACE as usize;
        Kind::FixedNoReplace
    } else {
        flags |= libc::MAP_FIXED as usize;
        if is_whole {
            Kind::FixedArea
        } else {
            Kind::FixedPart
        }
    };
    let rights = pick(random, &[0, READ, READ | WRITE]);
    if is_whole {
        SCENE.meddle();
    }
    let done = actor.call(
        kind,
        Sysno::mmap,
        [part.start, part.len, rights, flags, usize::MAX, 0],
    );
    if kind == Kind::FixedNoReplace || !ends_an_area(part) {
        must_fail(actor, kind, part, done, was_intact);
    }
    if done.is_ok() {
        SCENE.meddle();
    }
}

/// Tries to change the protection.
pub(crate) fn protect(actor: &Actor, random: &mut Random) {
    let Some(areas) = SCENE.areas() else {
        return;
    };
    let Some((part, _)) = SCENE.part(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let all = [
        0,
        READ,
        WRITE,
        READ | WRITE,
        READ | EXEC,
        READ | WRITE | EXEC,
    ];
    let rights = pick(random, &all);
    match random.below(4) {
        0 => {
            let at = random.below(3) as usize;
            let rights = if at == 0 { READ } else { READ | WRITE };
            let Range { start, len } = areas[at];
            let _ = actor.call(Kind::Protect, Sysno::mprotect, [start, len, rights]);
        }
        1 => {
            let key = crate::actor::call(Sysno::pkey_alloc, [0, 0]).unwrap_or(usize::MAX);
            let done = actor.call(
                Kind::ProtectKey,
                Sysno::pkey_mprotect,
                [part.start, part.len, READ | WRITE, key],
            );
            if done.is_ok() {
                // Each thread has rights of its own to a key, which would stay with the mapping:
                // all have them to key 0.
                SCENE.meddle();
                let _ = crate::actor::call(
                    Sysno::pkey_mprotect,
                    [part.start, part.len, READ | WRITE, 0],
                );
            }
            let _ = crate::actor::call(Sysno::pkey_free, [key]);
        }
        _ => {
            let done = actor.call(
                Kind::ProtectOther,
                Sysno::mprotect,
                [part.start, part.len, rights],
            );
            let is_info = (areas[0].start..areas[0].start + areas[0].len).contains(&part.start);
            let now = if is_info { READ } else { READ | WRITE };
            if rights != now {
                must_fail(actor, Kind::ProtectOther, part, done, was_intact);
            }
        }
    }
}

/// Locks, syncs, seals and names.
pub(crate) fn others(actor: &Actor, random: &mut Random) {
    let Some((part, _)) = SCENE.part(random) else {
        return;
    };
    let Range { start, len } = part;
    // Some of these go page by page.
    let short = len.min(SPARE * 64);
    let _ = match random.below(40) {
        0..8 => actor.call(
            Kind::Lock,
            Sysno::mlock2,
            [start, short, random.below(2) as usize],
        ),
        8..15 => actor.call(Kind::Unlock, Sysno::munlock, [start, len]),
        15..19 => {
            let done = actor.call(
                Kind::LockAll,
                Sysno::mlockall,
                [1 + random.below(7) as usize],
            );
            let _ = crate::actor::call(Sysno::munlockall, []);
            done
        }
        19..26 => actor.call(
            Kind::InCore,
            Sysno::mincore,
            [start, short.min(SPARE * PAGE), SCENE.scratch()],
        ),
        26..32 => actor.call(
            Kind::Sync,
            Sysno::msync,
            [start, len, pick(random, &[1, 2, 4, 6])],
        ),
        32..38 => {
            const PR_SET_VMA: usize = 0x5356_4d41;
            let name = c"adversary".as_ptr() as usize;
            actor.call(
                Kind::NameArea,
                Sysno::prctl,
                [PR_SET_VMA, 0, start, len, name],
            )
        }
        38 => actor.call(Kind::Seal, Sysno::mseal, [start, len, 0]),
        _ => return,
    };
}

/// Advice that the kernel must refuse for an area: it would free, copy, dump or touch pages that
/// are not the program's.
const REFUSED_ADVICE: &[Kind] = &[
    Kind::AdviseCollapse,
    Kind::AdviseDoDump,
    Kind::AdviseDoFork,
    Kind::AdviseDontNeed,
    Kind::AdviseDontNeedLocked,
    Kind::AdviseFree,
    Kind::AdviseGuardInstall,
    Kind::AdvisePopulateRead,
    Kind::AdvisePopulateWrite,
    Kind::AdviseRemove,
    Kind::AdviseWipeOnFork,
];

/// `madvise()`.
pub(crate) fn advise(actor: &Actor, random: &mut Random) {
    let Some((part, _)) = SCENE.part(random) else {
        return;
    };
    let (kind, advice) = pick(random, ADVICE);
    // Not gigabytes: populating them would test limits instead.
    let len = match kind {
        Kind::AdvisePopulateRead | Kind::AdvisePopulateWrite => part.len.min(64 * PAGE),
        _ => part.len,
    };
    let was_intact = SCENE.is_intact();
    let done = actor.call(kind, Sysno::madvise, [part.start, len, advice as usize]);
    if REFUSED_ADVICE.contains(&kind) {
        must_fail(actor, kind, Range { len, ..part }, done, was_intact);
    }
}

/// `process_madvise()` of this program by itself.
pub(crate) fn process_advise(actor: &Actor, random: &mut Random) {
    let Some((part, _)) = SCENE.part(random) else {
        return;
    };
    let pid = std::process::id() as usize;
    let Ok(pidfd) = crate::actor::call(Sysno::pidfd_open, [pid, 0]) else {
        return;
    };
    let (_, advice) = pick(random, ADVICE);
    let advice = match advice {
        22 | 23 => 21,
        other => other,
    };
    let vector = [part.start, part.len];
    let _ = actor.call(
        Kind::ProcessAdvise,
        Sysno::process_madvise,
        [pidfd, vector.as_ptr() as usize, 1, advice as usize, 0],
    );
    let _ = crate::actor::call(Sysno::close, [pidfd]);
}
