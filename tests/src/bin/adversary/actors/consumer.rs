//! An unprivileged reader of the tracing group. It does all that a program can do to consumer
//! files.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use syscalls::Sysno;
use usertrace_sys::uapi::{LttFileInfo, LttPositions, LttRingPositions};
use usertrace_tests::control::ROOT;
use usertrace_tests::random::Random;

use crate::actor::{Actor, CallResult, call, exit, reap};
use crate::actors::{Weighted, choose};
use crate::calls::ring::IoRing;
use crate::files;
use crate::kinds::{ADVICE, Kind};
use crate::oracle;
use crate::plan::{one_in, pick};
use crate::probe;
use crate::scene::{PAGE, SCENE, name_at};

/// Files that are open at a time, and mappings of them.
const OPEN: usize = 12;
const MAPPED: usize = 16;

const READ: usize = libc::PROT_READ as usize;
const WRITE: usize = libc::PROT_WRITE as usize;
const EXEC: usize = libc::PROT_EXEC as usize;
const SHARED: usize = libc::MAP_SHARED as usize;

const INFO: usize = ioctl(2, 0x20, size_of::<LttFileInfo>());
const POSITIONS: usize = ioctl(3, 0x21, size_of::<LttPositions>());
const CONSUME: usize = ioctl(1, 0x22, 16);
const END_SUBBUF: usize = ioctl(1, 0x23, 8);

/// `_IOC(direction, 'L', number, size)`
const fn ioctl(direction: usize, number: usize, size: usize) -> usize {
    direction << 30 | size << 16 | (b'L' as usize) << 8 | number
}

/// An open file.
#[derive(Clone, Copy)]
struct OpenFile {
    fd: usize,
    pid: u32,
    rings: usize,
    /// All rings together.
    len: usize,
}

/// A mapping of an open file.
#[derive(Clone, Copy)]
struct Mapping {
    at: usize,
    len: usize,
    pid: u32,
}

#[derive(Default)]
struct Reader {
    files: Vec<PathBuf>,
    open: Vec<OpenFile>,
    mapped: Vec<Mapping>,
}

type Step = fn(&mut Reader, &Actor, &mut Random);

const STEPS: &[Weighted<Step>] = &[
    (10, Reader::list),
    (40, Reader::open),
    (6, Reader::reopen),
    (40, Reader::positions),
    (40, Reader::consume),
    (20, Reader::end_subbuf),
    (16, Reader::wrong),
    (10, Reader::wait),
    (4, Reader::watch),
    (40, Reader::map),
    (30, Reader::map_any),
    (16, Reader::map_refused),
    (80, Reader::read),
    (20, Reader::protect),
    (20, Reader::remap),
    (16, Reader::unmap),
    (20, Reader::other),
    (4, Reader::fork),
    (10, Reader::transfer),
    (10, Reader::pass),
    (16, Reader::close),
    (3, Reader::trace),
];

/// The path, as a C string.
fn c_path(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    bytes.push(0);
    bytes
}

impl Reader {
    fn any_open(&self, random: &mut Random) -> Option<OpenFile> {
        let at = random.below(self.open.len().max(1) as u64) as usize;
        self.open.get(at).copied()
    }

    fn any_mapped(&self, random: &mut Random) -> Option<Mapping> {
        let at = random.below(self.mapped.len().max(1) as u64) as usize;
        self.mapped.get(at).copied()
    }

    /// Lists the consumer files.
    fn list(&mut self, actor: &Actor, _random: &mut Random) {
        let mut files = Vec::new();
        let directories = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        for trace in directories(Path::new(ROOT)) {
            for channel in directories(&trace) {
                let of_processes = directories(&channel);
                files.extend(
                    of_processes
                        .into_iter()
                        .filter(|path| path.extension().is_some()),
                );
            }
        }
        // The last ones are the newest of the last trace.
        files.truncate(512);
        let found = files.len();
        let _ = actor.around(Kind::List, || {
            if found == 0 {
                return Err(libc::ENOENT);
            }
            Ok(found)
        });
        self.files = files;
    }

    fn open(&mut self, actor: &Actor, random: &mut Random) {
        if self.files.is_empty() {
            self.list(actor, random);
        }
        let Some(path) = self
            .files
            .get(random.below(self.files.len().max(1) as u64) as usize)
        else {
            return;
        };
        let path = c_path(path);
        let cwd = libc::AT_FDCWD as usize;
        // Only what is open for writing can consume.
        let (kind, access) = pick(
            random,
            &[
                (Kind::Open, libc::O_RDONLY),
                (Kind::OpenWrite, libc::O_RDWR),
                (Kind::OpenWrite, libc::O_RDWR),
                (Kind::OpenWrite, libc::O_WRONLY),
            ],
        );
        let flags = (access | libc::O_CLOEXEC) as usize;
        let done = actor.call(kind, Sysno::openat, [cwd, path.as_ptr() as usize, flags, 0]);
        match done {
            Ok(fd) => self.add(actor, fd),
            Err(_) if one_in(random, 4) => self.list(actor, random),
            Err(_) => {}
        }
    }

    /// Asks what a file is, and keeps it.
    fn add(&mut self, actor: &Actor, fd: usize) {
        let mut info = LttFileInfo::default();
        let done = actor.call(
            Kind::IocInfo,
            Sysno::ioctl,
            [fd, INFO, &raw mut info as usize],
        );
        if done.is_err() || self.open.len() >= OPEN {
            let _ = call(Sysno::close, [fd]);
            return;
        }
        let info = std::hint::black_box(info);
        let rings = info.channel.nr_rings as usize;
        let ring = info.channel.subbuf_size as usize * info.channel.subbuf_count as usize;
        self.open.push(OpenFile {
            fd,
            pid: info.pid,
            rings,
            len: rings * ring,
        });
    }

    fn reopen(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let path = format!("/proc/self/fd/{}\0", open.fd);
        let cwd = libc::AT_FDCWD as usize;
        let flags = pick(random, &[libc::O_RDONLY, libc::O_RDWR, libc::O_PATH]) as usize;
        let done = actor.call(
            Kind::Reopen,
            Sysno::openat,
            [cwd, path.as_ptr() as usize, flags, 0],
        );
        if let Ok(fd) = done {
            self.add(actor, fd);
        }
    }

    fn positions(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let mut rings = [LttRingPositions::default(); 64];
        let room = match random.below(4) {
            0 => random.below(64) as u32,
            _ => 64,
        };
        let stride = size_of::<LttRingPositions>() as u64;
        let mut arguments = [rings.as_mut_ptr() as u64, u64::from(room), stride];
        let _ = actor.call(
            Kind::IocPositions,
            Sysno::ioctl,
            [open.fd, POSITIONS, arguments.as_mut_ptr() as usize],
        );
        let _ = std::hint::black_box((rings, arguments));
    }

    /// Consumes up to the head that the program published, or to any other position.
    fn consume(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let mut rings = [LttRingPositions::default(); 64];
        let stride = size_of::<LttRingPositions>() as u64;
        let mut arguments = [rings.as_mut_ptr() as u64, 64, stride];
        let _ = call(
            Sysno::ioctl,
            [open.fd, POSITIONS, arguments.as_mut_ptr() as usize],
        );
        let rings = std::hint::black_box(rings);
        let _ = std::hint::black_box(&mut arguments);
        let ring = random.below(open.rings.max(1) as u64) as usize % 64;
        let position = match random.below(8) {
            0 => random.word(),
            1 => rings[ring].head.wrapping_add(8),
            2 => rings[ring].consumed,
            _ => rings[ring].head,
        };
        let ring = if one_in(random, 16) {
            u64::from(u32::MAX)
        } else {
            ring as u64
        };
        let consume = [ring, position];
        let _ = actor.call(
            Kind::IocConsume,
            Sysno::ioctl,
            [open.fd, CONSUME, consume.as_ptr() as usize],
        );
    }

    fn end_subbuf(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let ring = match random.below(3) {
            0 => u64::from(u32::MAX),
            _ => random.below(open.rings.max(1) as u64),
        };
        let _ = actor.call(
            Kind::IocEnd,
            Sysno::ioctl,
            [open.fd, END_SUBBUF, &raw const ring as usize],
        );
    }

    fn wrong(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let size = random.below(1 << 14) as usize;
        let request = match random.below(4) {
            // Another size.
            0 => ioctl(3, 0x20 + random.below(4) as usize, size | 1),
            1 => ioctl(3, 0x24 + random.below(0x1c) as usize, 16),
            2 => random.word() as usize & 0xffff_0000 | 0x7a00,
            _ => {
                let consume = [1 << 32, 0_u64];
                let _ = actor.call(
                    Kind::IocWrong,
                    Sysno::ioctl,
                    [open.fd, CONSUME, consume.as_ptr() as usize],
                );
                return;
            }
        };
        let to = pick(random, &[SCENE.scratch(), 0, usize::MAX - 4095]);
        let _ = actor.call(Kind::IocWrong, Sysno::ioctl, [open.fd, request, to]);
    }

    fn wait(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        if one_in(random, 2) {
            let mut poll = [open.fd as u64 | 0xffff << 32];
            let _ = actor.call(
                Kind::Poll,
                Sysno::poll,
                [poll.as_mut_ptr() as usize, 1, random.below(20) as usize],
            );
            let _ = std::hint::black_box(poll);
            return;
        }
        let Ok(epoll) = call(Sysno::epoll_create1, [libc::EPOLL_CLOEXEC as usize]) else {
            return;
        };
        // Packed: events, and the user's word.
        let mut event = [
            (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLET).cast_unsigned(),
            0,
            0,
            0,
        ];
        let at = event.as_mut_ptr() as usize;
        let done = actor.call(
            Kind::Epoll,
            Sysno::epoll_ctl,
            [epoll, libc::EPOLL_CTL_ADD as usize, open.fd, at],
        );
        if done.is_ok() {
            let _ = call(Sysno::epoll_wait, [epoll, at, 1, random.below(10) as usize]);
        }
        let _ = std::hint::black_box(event);
        let _ = call(Sysno::close, [epoll]);
    }

    fn watch(&mut self, actor: &Actor, random: &mut Random) {
        let at = random.below(self.files.len().max(1) as u64) as usize;
        let path = match self.files.get(at) {
            Some(file) if one_in(random, 2) => file.clone(),
            _ => PathBuf::from(ROOT),
        };
        let path = c_path(&path);
        let Ok(fd) = call(Sysno::inotify_init1, [libc::IN_NONBLOCK as usize]) else {
            return;
        };
        let _ = actor.call(
            Kind::Watch,
            Sysno::inotify_add_watch,
            [fd, path.as_ptr() as usize, 0xfff],
        );
        let _ = call(Sysno::read, [fd, SCENE.scratch(), PAGE]);
        let _ = call(Sysno::close, [fd]);
    }

    fn keep(&mut self, done: CallResult, len: usize, pid: u32) {
        let Ok(at) = done else {
            return;
        };
        if self.mapped.len() >= MAPPED {
            let _ = call(Sysno::munmap, [at, len]);
            return;
        }
        self.mapped.push(Mapping { at, len, pid });
    }

    fn map(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let done = actor.call(
            Kind::Map,
            Sysno::mmap,
            [0, open.len, READ, SHARED, open.fd, 0],
        );
        self.keep(done, open.len, open.pid);
    }

    fn map_any(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let pages = open.len / PAGE;
        let length = match random.below(5) {
            0 => 1 + random.below(PAGE as u64 * 4) as usize,
            1 => open.len + PAGE,
            2 => 1 << (12 + random.below(40)),
            _ => PAGE * (1 + random.below(pages.max(1) as u64) as usize),
        };
        let offset = match random.below(5) {
            0 => usize::MAX - PAGE + 1,
            1 => open.len,
            2 => PAGE << random.below(48),
            _ => PAGE * random.below(pages.max(1) as u64) as usize,
        };
        let rights = pick(random, &[0, READ]);
        let flags = SHARED | pick(random, &[0, libc::MAP_POPULATE, libc::MAP_LOCKED]) as usize;
        let done = actor.call(
            Kind::MapAny,
            Sysno::mmap,
            [0, length, rights, flags, open.fd, offset],
        );
        if done.is_ok()
            && offset.saturating_add(length.next_multiple_of(PAGE))
                > open.len.next_multiple_of(PAGE)
        {
            actor.find(&format!(
                "a consumer maps beyond the end: {length:#x} bytes at {offset:#x} of {:#x}",
                open.len
            ));
        }
        self.keep(done, length.next_multiple_of(PAGE), open.pid);
    }

    fn map_refused(&mut self, actor: &Actor, random: &mut Random) {
        let Some(open) = self.any_open(random) else {
            return;
        };
        let private = libc::MAP_PRIVATE as usize;
        let (kind, rights, flags) = match random.below(3) {
            0 => (Kind::MapWrite, READ | WRITE, SHARED),
            1 => (
                Kind::MapPrivate,
                pick(random, &[READ, READ | WRITE]),
                private,
            ),
            _ => (Kind::MapExec, READ | EXEC, SHARED),
        };
        let done = actor.call(kind, Sysno::mmap, [0, PAGE, rights, flags, open.fd, 0]);
        if let Ok(at) = done {
            let _ = call(Sysno::munmap, [at, PAGE]);
        }
    }

    /// Reads words: each must belong to the file's process.
    fn read(&mut self, actor: &Actor, random: &mut Random) {
        let Some(mapped) = self.any_mapped(random) else {
            return;
        };
        let pages = (mapped.len / PAGE) as u64;
        let first = match random.below(3) {
            0 => random.below(pages),
            _ => random.below(pages.min(20)),
        };
        let mut last = Ok(0);
        let _ = actor.around(Kind::MapRead, || {
            for page in first..pages.min(first + 8) {
                for word in [0, 8 * random.below(512) as usize, PAGE - 8] {
                    let offset = page as usize * PAGE + word;
                    match probe::read(mapped.at + offset) {
                        Ok(word) => oracle::judge_consumed(actor, mapped.pid, offset, word),
                        Err(fault) => last = Err(fault),
                    }
                }
            }
            last.map_err(|_| libc::EFAULT)
        });
    }

    fn protect(&mut self, actor: &Actor, random: &mut Random) {
        let Some(Mapping { at, len, .. }) = self.any_mapped(random) else {
            return;
        };
        if one_in(random, 2) {
            let rights = pick(random, &[0, READ]);
            let _ = actor.call(Kind::MapProtectLess, Sysno::mprotect, [at, len, rights]);
            return;
        }
        let rights = pick(
            random,
            &[READ | WRITE, READ | EXEC, WRITE, READ | WRITE | EXEC],
        );
        let _ = actor.call(Kind::MapProtect, Sysno::mprotect, [at, len, rights]);
    }

    fn remap(&mut self, actor: &Actor, random: &mut Random) {
        let index = random.below(self.mapped.len().max(1) as u64) as usize;
        let Some(&Mapping { at, len, .. }) = self.mapped.get(index) else {
            return;
        };
        let maymove = libc::MREMAP_MAYMOVE as usize;
        let flags = pick(
            random,
            &[
                0,
                maymove,
                maymove | libc::MREMAP_FIXED as usize,
                maymove | libc::MREMAP_DONTUNMAP as usize,
            ],
        );
        let new = pick(random, &[len, len + PAGE, PAGE]);
        let old = if one_in(random, 6) { 0 } else { len };
        let target = 0x2800_0000_0000 + (random.below(1 << 12) as usize) * (1 << 30);
        if one_in(random, 2) {
            let page = random.below(64) as usize;
            let done = actor.call(
                Kind::MapRemapPages,
                Sysno::remap_file_pages,
                [at, pick(random, &[len, PAGE]), 0, page, 0],
            );
            if done.is_err() {
                // It unmaps what is there before it asks the file, and where that refuses, another
                // file may be mapped next.
                let _ = call(Sysno::munmap, [at, len]);
                self.mapped.swap_remove(index);
            }
            return;
        }
        let done = actor.call(Kind::MapRemap, Sysno::mremap, [at, old, new, flags, target]);
        if let Ok(moved) = done
            && (moved != at || new != old)
        {
            actor.find(&format!(
                "mremap of a consumer's mapping succeeds: {at:#x} {old:#x} {new:#x} {flags:#x} gives {moved:#x}"
            ));
        }
    }

    fn unmap(&mut self, actor: &Actor, random: &mut Random) {
        let at = random.below(self.mapped.len().max(1) as u64) as usize;
        let Some(&Mapping { at: start, len, .. }) = self.mapped.get(at) else {
            return;
        };
        if one_in(random, 3) && len > PAGE {
            let pages = (len / PAGE - 1) as u64;
            let part = PAGE * (1 + random.below(pages) as usize);
            let done = actor.call(Kind::MapUnmapPart, Sysno::munmap, [start, part]);
            if done.is_ok() {
                actor.find("a part of a consumer's mapping can be unmapped");
            }
            return;
        }
        let _ = actor.call(Kind::MapUnmap, Sysno::munmap, [start, len]);
        self.mapped.swap_remove(at);
    }

    /// Other ways to the pages of a mapping.
    fn other(&mut self, actor: &Actor, random: &mut Random) {
        let Some(Mapping { at, len, pid }) = self.any_mapped(random) else {
            return;
        };
        let some = len.min(4 * PAGE);
        let is_consumer =
            name_at(at).is_some_and(|name| name.contains("/ltt") || name.contains("/"));
        let must_fail = |what: &str, done: CallResult| {
            if done.is_ok() && is_consumer {
                actor.find(&format!("{what} of a consumer's mapping succeeds"));
            }
        };
        match random.below(6) {
            0 => {
                let (_, advice) = pick(random, ADVICE);
                let _ = actor.call(
                    Kind::MapAdvise,
                    Sysno::madvise,
                    [at, pick(random, &[len, PAGE]), advice as usize],
                );
            }
            1 => {
                let _ = actor.call(Kind::MapLock, Sysno::mlock, [at, some]);
                let _ = call(Sysno::munlock, [at, some]);
            }
            2 => {
                if let Ok(ring) = IoRing::new() {
                    let done = actor.around(Kind::MapRegister, || ring.register(at, some));
                    must_fail("io_uring's registration", done);
                }
            }
            3 => {
                let own = std::process::id() as usize;
                let local = [SCENE.scratch(), some];
                let remote = [at, some];
                let done = actor.call(
                    Kind::MapVmRead,
                    Sysno::process_vm_readv,
                    [
                        own,
                        local.as_ptr() as usize,
                        1,
                        remote.as_ptr() as usize,
                        1,
                        0,
                    ],
                );
                must_fail("process_vm_readv", done);
            }
            _ => {
                let Ok(fd) = files::own(SCENE.spare()) else {
                    return;
                };
                let _ = actor.call(Kind::MapWriteFrom, Sysno::pwrite64, [fd, at, some, 0]);
                // The copied words must be readable ones.
                if call(Sysno::pread64, [fd, SCENE.scratch(), some, 0]) == Ok(some) {
                    for offset in (0..some).step_by(512) {
                        if let Ok(word) = probe::read(SCENE.scratch() + offset)
                            && is_consumer
                        {
                            self.judge_copied(actor, pid, at, offset, word);
                        }
                    }
                }
                let _ = call(Sysno::close, [fd]);
            }
        }
    }

    /// A word that a system call copied from a mapping: the copy may have ended before it.
    fn judge_copied(&self, actor: &Actor, pid: u32, at: usize, offset: usize, word: u64) {
        let own = SCENE.family();
        if crate::pattern::foreign(word, Some(own)).is_none() {
            return;
        }
        if probe::read(at + offset) == Ok(word) {
            oracle::judge_consumed(actor, pid, offset, word);
        }
    }

    /// Forks. The child has the files, but not the mappings.
    fn fork(&mut self, actor: &Actor, random: &mut Random) {
        let mapped = self.any_mapped(random);
        let open = self.any_open(random);
        let _ = actor.around(Kind::MapFork, || {
            // SAFETY: This process has one thread.
            match unsafe { libc::fork() } {
                -1 => Err(libc::EAGAIN),
                0 => {
                    let child = Actor {
                        is_child: true,
                        ..*actor
                    };
                    if let Some(Mapping { at, .. }) = mapped
                        && probe::read(at).is_ok()
                    {
                        child.find("a consumer's mapping is in a child of fork()");
                    }
                    if let Some(open) = open {
                        let done = call(Sysno::mmap, [0, PAGE, READ, SHARED, open.fd, 0]);
                        if let Ok(at) = done
                            && let Ok(word) = probe::read(at)
                        {
                            oracle::judge_consumed(&child, open.pid, 0, word);
                        }
                    }
                    exit(0);
                }
                pid => reap(pid as usize),
            }
        });
    }

    /// Calls that consumer files do not support.
    fn transfer(&mut self, actor: &Actor, random: &mut Random) {
        let Some(OpenFile { fd, .. }) = self.any_open(random) else {
            return;
        };
        let scratch = SCENE.scratch();
        let _ = match random.below(8) {
            0 => actor.call(Kind::Transfer, Sysno::pread64, [fd, scratch, PAGE, 0]),
            1 => actor.call(Kind::Transfer, Sysno::pwrite64, [fd, scratch, PAGE, 0]),
            2 => actor.call(Kind::Transfer, Sysno::ftruncate, [fd, 0]),
            3 => actor.call(Kind::Transfer, Sysno::fallocate, [fd, 0, 0, PAGE]),
            4 => actor.call(Kind::Transfer, Sysno::lseek, [fd, PAGE, 0]),
            5 => actor.call(Kind::Transfer, Sysno::sendfile, [1, fd, 0, PAGE]),
            6 => actor.call(
                Kind::Transfer,
                Sysno::fcntl,
                [fd, 1024, random.below(3) as usize],
            ),
            _ => actor.call(Kind::Transfer, Sysno::fsync, [fd]),
        };
    }

    fn pass(&mut self, actor: &Actor, random: &mut Random) {
        if let Some(open) = self.any_open(random) {
            files::pass(actor, open.fd, open.pid);
        }
    }

    fn close(&mut self, actor: &Actor, random: &mut Random) {
        let at = random.below(self.open.len().max(1) as u64) as usize;
        if at < self.open.len() {
            let open = self.open.swap_remove(at);
            let _ = actor.call(Kind::Close, Sysno::close, [open.fd]);
        }
    }

    /// Creates a trace of the group.
    fn trace(&mut self, actor: &Actor, random: &mut Random) {
        let path = Path::new(ROOT).join(format!("group{}", actor.who.actor));
        let path = c_path(&path);
        let at = path.as_ptr() as usize;
        if one_in(random, 2) {
            let _ = actor.call(Kind::GroupMkdir, Sysno::mkdir, [at, 0o700]);
        } else {
            let _ = actor.call(Kind::GroupRmdir, Sysno::rmdir, [at]);
        }
    }
}

/// Runs the reader until its end.
pub(crate) fn run(actor: &Actor) {
    let pid = std::process::id();
    actor.run.join_family(pid.cast_signed(), pid);
    SCENE.begin(pid);
    let mut reader = Reader::default();
    let mut random = actor.stream(u64::MAX);
    for number in 0..200 + random.below(1500) {
        if !actor.begin_step() {
            break;
        }
        let mut random = actor.stream(number);
        let (which, step) = choose(&mut random, STEPS);
        step(&mut reader, actor, &mut random);
        actor.end_step(number, which);
    }
    let _ = actor.wait_for_turn();
    // Half of the time, the exit closes everything.
    if one_in(&mut random, 2) {
        for open in &reader.open {
            let _ = actor.call(Kind::Close, Sysno::close, [open.fd]);
        }
    }
    exit(0);
}
