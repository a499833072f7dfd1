//! Accesses to the areas' pages by other means than loads and stores.

use std::fs;

use syscalls::Sysno;
use usertrace_tests::random::Random;

use crate::actor::{Actor, call};
use crate::calls::mm::must_fail;
use crate::calls::ring::IoRing;
use crate::files;
use crate::kinds::Kind;
use crate::plan::pick;
use crate::scene::{PAGE, Range, SCENE};

/// Some words of a ring, within a page, or a part of an area.
fn words(random: &mut Random) -> Option<Range> {
    if random.below(4) != 0 {
        let start = SCENE.address(random)?;
        let most = (PAGE - start % PAGE) / 8;
        return Some(Range {
            start,
            len: 8 * (1 + random.below(most as u64) as usize),
        });
    }
    let (part, _) = SCENE.part(random)?;
    Some(Range {
        len: part.len.min(4 * PAGE),
        ..part
    })
}

/// Whole pages of a ring.
fn pages(random: &mut Random) -> Option<Range> {
    let start = SCENE.address(random)? & !(PAGE - 1);
    Some(Range {
        start,
        len: PAGE * (1 + random.below(4) as usize),
    })
}

/// `userfaultfd` on areas.
pub(crate) fn userfault(actor: &Actor, random: &mut Random) {
    const USER_MODE_ONLY: usize = 1;
    const API: usize = 0xc018_aa3f;
    const REGISTER: usize = 0xc020_aa00;
    const COPY: usize = 0xc028_aa03;
    const ZEROPAGE: usize = 0xc020_aa04;
    let Some(part) = pages(random) else {
        return;
    };
    let flags = USER_MODE_ONLY | (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    let Ok(fd) = actor.call(Kind::UserFault, Sysno::userfaultfd, [flags]) else {
        return;
    };
    let mut api = [0xaa_u64, 0, 0];
    let _ = call(Sysno::ioctl, [fd, API, api.as_mut_ptr() as usize]);
    let was_intact = SCENE.is_intact();
    let areas = SCENE.areas();
    let at = match areas {
        Some(areas) if random.below(2) == 0 => areas[random.below(3) as usize],
        _ => part,
    };
    let mut register = [
        at.start as u64,
        at.len as u64,
        pick(random, &[1, 2, 3, 4, 7]),
        0,
    ];
    let done = actor.call(
        Kind::UserFaultRegister,
        Sysno::ioctl,
        [fd, REGISTER, register.as_mut_ptr() as usize],
    );
    must_fail(actor, Kind::UserFaultRegister, at, done, was_intact);
    let mut copy = [part.start as u64, SCENE.spare() as u64, PAGE as u64, 0, 0];
    let request = pick(random, &[COPY, ZEROPAGE]);
    if request == ZEROPAGE {
        copy = [part.start as u64, PAGE as u64, 0, 0, 0];
    }
    let done = actor.call(
        Kind::UserFaultCopy,
        Sysno::ioctl,
        [fd, request, copy.as_mut_ptr() as usize],
    );
    must_fail(actor, Kind::UserFaultCopy, part, done, was_intact);
    let _ = std::hint::black_box((api, register, copy));
    let _ = call(Sysno::close, [fd]);
}

/// `/proc/self/map_files`
pub(crate) fn map_files(actor: &Actor, random: &mut Random) {
    let Some(areas) = SCENE.areas() else {
        return;
    };
    let Range { start, len } = areas[random.below(3) as usize];
    let path = format!("/proc/self/map_files/{start:x}-{:x}\0", start + len);
    let flags = pick(random, &[libc::O_RDONLY, libc::O_RDWR, libc::O_PATH]) as usize;
    let cwd = libc::AT_FDCWD as usize;
    let done = actor.call(
        Kind::MapFiles,
        Sysno::openat,
        [cwd, path.as_ptr() as usize, flags, 0],
    );
    if let Ok(fd) = done {
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let again = call(
            Sysno::mmap,
            [0, len, rights, libc::MAP_SHARED as usize, fd, 0],
        );
        if again.is_ok() {
            actor.find("the file of an area can be mapped by /proc/self/map_files");
        }
        let _ = call(Sysno::close, [fd]);
    }
}

/// `/proc/self/mem`
pub(crate) fn mem(actor: &Actor, random: &mut Random) {
    let Some(at) = words(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let cwd = libc::AT_FDCWD as usize;
    let path = c"/proc/self/mem".as_ptr() as usize;
    let Ok(fd) = call(Sysno::openat, [cwd, path, libc::O_RDWR as usize, 0]) else {
        return;
    };
    let len = at.len.min(4 * PAGE);
    let (kind, name, own) = match random.below(2) {
        0 => (Kind::MemRead, Sysno::pread64, SCENE.scratch()),
        _ => (Kind::MemWrite, Sysno::pwrite64, SCENE.spare()),
    };
    let done = actor.call(kind, name, [fd, own, len, at.start]);
    must_fail(actor, kind, at, done, was_intact);
    let _ = call(Sysno::close, [fd]);
}

/// `process_vm_readv()` and `process_vm_writev()`
pub(crate) fn vm(actor: &Actor, random: &mut Random) {
    let Some(at) = words(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let pid = std::process::id() as usize;
    let len = at.len.min(4 * PAGE);
    let (kind, name, own) = match random.below(2) {
        0 => (Kind::VmRead, Sysno::process_vm_readv, SCENE.scratch()),
        _ => (Kind::VmWrite, Sysno::process_vm_writev, SCENE.spare()),
    };
    let local = [own, len];
    let remote = [at.start, len];
    // The areas are the remote side, which is the one that is taken by reference.
    let done = actor.call(
        kind,
        name,
        [
            pid,
            local.as_ptr() as usize,
            1,
            remote.as_ptr() as usize,
            1,
            0,
        ],
    );
    must_fail(actor, kind, at, done, was_intact);
}

/// `read(2)` and `write(2)`, which copy.
pub(crate) fn copy(actor: &Actor, random: &mut Random) {
    let Some(at) = words(random) else {
        return;
    };
    let len = at.len.min(4 * PAGE);
    let Ok(fd) = files::own(SCENE.spare()) else {
        return;
    };
    if random.below(2) == 0 {
        if actor
            .call(Kind::ReadInto, Sysno::pread64, [fd, at.start, len, 0])
            .is_ok()
        {
            SCENE.touch(at.start);
        }
    } else {
        let _ = actor.call(
            Kind::WriteFrom,
            Sysno::pwrite64,
            [fd, at.start, len, 8 * PAGE],
        );
    }
    let _ = call(Sysno::close, [fd]);
}

/// O_DIRECT, which takes pages by reference.
pub(crate) fn direct(actor: &Actor, random: &mut Random) {
    let Some(at) = pages(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let fd = files::DISK_FD as usize;
    let (kind, name) = match random.below(2) {
        0 => (Kind::DirectRead, Sysno::pread64),
        _ => (Kind::DirectWrite, Sysno::pwrite64),
    };
    let done = actor.call(
        kind,
        name,
        [fd, at.start, at.len, PAGE * random.below(64) as usize],
    );
    must_fail(actor, kind, at, done, was_intact);
}

/// `vmsplice()`, which takes pages by reference, and a futex.
pub(crate) fn splice(actor: &Actor, random: &mut Random) {
    if random.below(4) == 0 {
        let Some(address) = SCENE.address(random) else {
            return;
        };
        let time = [0_i64, 1000];
        let operation = pick(random, &[0_usize, 1, 128, 129]);
        let _ = actor.call(
            Kind::Futex,
            Sysno::futex,
            [address, operation, 0, time.as_ptr() as usize, 0, 0],
        );
        return;
    }
    let Some(at) = pages(random) else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let mut pipe = [0_i32; 2];
    let flags = (libc::O_NONBLOCK | libc::O_CLOEXEC) as usize;
    if call(Sysno::pipe2, [pipe.as_mut_ptr() as usize, flags]).is_err() {
        return;
    }
    let [read, write] = std::hint::black_box(pipe).map(|fd| fd as usize);
    let vector = [at.start, at.len];
    // SPLICE_F_GIFT or not.
    let flags = pick(random, &[2_usize, 10]);
    let done = actor.call(
        Kind::Splice,
        Sysno::vmsplice,
        [write, vector.as_ptr() as usize, 1, flags],
    );
    must_fail(actor, Kind::Splice, at, done, was_intact);
    for fd in [read, write] {
        let _ = call(Sysno::close, [fd]);
    }
}

/// io_uring: copies, and memory that the kernel holds.
pub(crate) fn io_uring(actor: &Actor, random: &mut Random) {
    let Some(at) = words(random) else {
        return;
    };
    let Some(whole) = pages(random) else {
        return;
    };
    let mut ring = None;
    let _ = actor.around(Kind::RingSetup, || {
        ring = Some(IoRing::new()?);
        Ok(0)
    });
    let Some(ring) = ring else {
        return;
    };
    let was_intact = SCENE.is_intact();
    let done = actor.around(Kind::RingRegister, || ring.register(whole.start, whole.len));
    must_fail(actor, Kind::RingRegister, whole, done, was_intact);
    if let Ok(fd) = files::own(SCENE.spare()) {
        let writes = random.below(3) == 0;
        let done = actor.around(Kind::RingRead, || {
            ring.transfer(fd, at.start, at.len.min(4 * PAGE), writes)
        });
        if done.is_ok() && !writes {
            SCENE.touch(at.start);
        }
        let _ = call(Sysno::close, [fd]);
    }
}

/// `pidfd_getfd()` of descriptors that could belong to an area.
pub(crate) fn getfd(actor: &Actor, random: &mut Random) {
    let pid = std::process::id() as usize;
    let Ok(pidfd) = call(Sysno::pidfd_open, [pid, 0]) else {
        return;
    };
    let fd = random.below(256) as usize;
    if let Ok(got) = actor.call(Kind::PidfdGetfd, Sysno::pidfd_getfd, [pidfd, fd, 0]) {
        let name = fs::read_link(format!("/proc/self/fd/{got}")).unwrap_or_default();
        if name.to_string_lossy().contains("[ltt]") {
            actor.find("the file of an area has a descriptor");
        }
        let _ = call(Sysno::close, [got]);
    }
    let _ = call(Sysno::close, [pidfd]);
}
