//! A program that writes garbage harms only itself, and unprivileged programs reach nothing of
//! others (A11, F4, F5).

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid, setgid, setgroups, setuid};
use syscalls::{Errno, Sysno};
use usertrace_consumer::{CONTROL, KernelFile, MAIN, Session, SessionSummary, consumer_files};
use usertrace_ctf::recording::RecordingNote;
use usertrace_sys::files;
use usertrace_sys::uapi::{LTT_RING_ALL, LTT_SUBBUF_MAGIC, LttSubbuf};
use usertrace_testing::wait;
use usertrace_tests::accounting::resident_pages;
use usertrace_tests::areas::{Areas, Slot};
use usertrace_tests::bystander::Bystander;
use usertrace_tests::child::{self, Child};
use usertrace_tests::consumer::Consumer;
use usertrace_tests::control::{self, Trace};
use usertrace_tests::event::{attach, check_prefix};
use usertrace_tests::guest::scaled;
use usertrace_tests::random::Random;
use usertrace_tests::shared::Shared;
use usertrace_tests::{maps, parse, raw};

use crate::lifecycle::Numbers;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    garbage_in_all_buffers_harms_no_other_process,
    unprivileged_user_reads_and_changes_nothing,
];

/// A word that may mislead readers: random, or almost valid.
fn lie(random: &mut Random, slot: &Slot, position: u64) -> u64 {
    let channel = slot.channel(1);
    let ring = u64::from(channel.subbuf_size) * u64::from(channel.subbuf_count);
    match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(ring) & !7,
        3 => (ring + random.below(ring)) & !7,
        4 => position,
        5 => u64::from(LTT_SUBBUF_MAGIC) << 32 | random.below(2),
        // A record of some known id, now.
        6 => random.word() << 16 | random.below(8),
        7 => (random.word() << 16) | (0xfff0 + random.below(16)),
        8 => random.below(4096),
        _ => random.word(),
    }
}

/// Fills rings and control blocks of a trace with misleading words until `stop` is set.
fn write_garbage(slot: &Slot, stop: &AtomicU64) {
    let mut random = Random::new();
    let areas = slot.areas.at;
    let block_len = areas.control_len as usize / 16;
    let block = areas.control as usize + slot.index * block_len;
    let store = |address: usize, word: u64| {
        // SAFETY: within the slot's parts of the areas, where no Rust object lies; others access it
        // atomically as well.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(word, Ordering::Relaxed);
    };
    while stop.load(Ordering::Relaxed) == 0 {
        for index in 0..2 {
            let channel = slot.channel(index);
            for number in 0..channel.nr_rings as usize {
                let ring = slot.ring(index, number);
                // A valid header, so that readers continue.
                let subbuf = random.below(u64::from(channel.subbuf_count).min(8)) as usize
                    * ring.subbuf_size;
                store(ring.address + subbuf, subbuf as u64);
                store(
                    ring.address + subbuf + 24,
                    u64::from(LTT_SUBBUF_MAGIC) << 32 | number as u64,
                );
                for _ in 0..64 {
                    let offset = random.below(ring.subbuf_size as u64 - 64) as usize;
                    let at = (size_of::<LttSubbuf>() + offset) & !7;
                    store(
                        ring.address + subbuf + at,
                        lie(&mut random, slot, (subbuf + at) as u64),
                    );
                }
                let head = subbuf as u64 + (random.below(ring.subbuf_size as u64) & !7);
                ring.head().store(head, Ordering::Release);
            }
        }
        for _ in 0..64 {
            let at = random.below(block_len as u64) as usize & !7;
            store(block + at, lie(&mut random, slot, at as u64));
        }
        let start = random.below(areas.buffers_len / 16) as usize & !7;
        // Anywhere else in the slot, too, whether or not there is anything.
        store(slot.address + start, random.word());
        // Calls with invalid arguments.
        let bad = slot.address.wrapping_add(random.word() as usize);
        let _ = raw::switch(
            &slot.areas.calls,
            if random.below(2) == 0 {
                bad
            } else {
                slot.address
            },
        );
    }
}

/// Overwrites all rings with random words, once.
fn write_over_all(slot: &Slot) {
    let mut random = Random::new();
    for index in 0..2 {
        for number in 0..slot.channel(index).nr_rings as usize {
            let ring = slot.ring(index, number);
            for at in (0..ring.len).step_by(8) {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr((ring.address + at) as *mut u64) }
                    .store(random.word(), Ordering::Relaxed);
            }
        }
    }
}

/// Starts a process whose threads write garbage to all its buffers.
fn garbage(stop: &Shared) -> Child {
    const THREADS: usize = 3;
    let mut child = Child::spawn(|link| {
        let areas = Areas::map(0);
        let slots: Vec<_> = std::iter::from_fn(|| areas.next())
            .map(|(slot, _)| slot)
            .collect();
        assert!(slots.len() > 1);
        for slot in &slots {
            write_over_all(slot);
            slot.switch().expect("its files");
        }
        link.send(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let slot = &slots[thread % slots.len()];
                scope.spawn(move || write_garbage(slot, stop.get()));
            }
        });
    });
    child.link.receive();
    child
}

/// Adds all new files of a trace to the session.
fn take_files(session: &mut Session<KernelFile>, trace: &Trace) {
    for channel in [CONTROL, MAIN] {
        let directory = trace.path().join(channel);
        for name in consumer_files(&directory).expect("a directory") {
            if session.wants(channel, &name) {
                match KernelFile::open_to_consume(&directory.join(&name)) {
                    Ok(file) => session
                        .add(channel, &name, file)
                        .expect("its trace can be written"),
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }
}

/// Calls all ioctls of a consumer file, with random positions.
fn ask_about(path: &Path, random: &mut Random) {
    let Ok(consumer) = Consumer::try_open(path) else {
        return;
    };
    let _ = consumer.info();
    let _ = consumer.ready();
    for (ring, at) in consumer.positions().iter().enumerate() {
        for position in [at.head, at.head & !7, random.word() & !7, 0] {
            let _ = files::consume(consumer.file().as_fd(), ring as u32, position);
        }
    }
    let _ = files::end_subbuf(consumer.file().as_fd(), LTT_RING_ALL);
    let _ = consumer.map().copy(random.below(4096) as usize, 64);
}

/// Checks that the recording has all events of the bystander, and damage of other processes.
fn check_summary(summary: &SessionSummary, prefix: &str, written: u64) {
    let pid: u32 = prefix.trim_end_matches('.').parse().expect("a number");
    let honest = summary
        .processes
        .iter()
        .find(|process| process.pid == pid)
        .expect("the bystander");
    assert_eq!(
        (honest.events, honest.lost, honest.damaged, honest.holes),
        (written, 0, 0, 0)
    );
    let liars = summary
        .processes
        .iter()
        .filter(|process| process.pid != pid);
    assert!(
        liars.map(|process| process.damaged).sum::<u64>() > 0,
        "the garbage was looked at: {summary:?}"
    );
}

/// Requirements: A11, F4
fn garbage_in_all_buffers_harms_no_other_process() {
    let mut random = Random::new();
    // This test reads one trace at the end, and the recorder reads the other meanwhile.
    let kept = Bystander::trace("kept");
    // With room for all that the bystander writes, however slow the recorder is.
    let read = Trace::started_with("read", 32768, 512);
    let stop = Shared::new();
    let bystander = Bystander::start();
    let prefix = bystander.prefix();
    let garbage = garbage(&stop);
    let liar = format!("{}.", garbage.pid());
    let directory = tempfile::tempdir().expect("a directory");
    let mut session =
        Session::open(directory.path(), &RecordingNote::default(), None).expect("a directory");
    let resident = resident_pages();
    for round in 0..scaled(40) {
        take_files(&mut session, &read);
        session
            .drain(false, Instant::now())
            .expect("the trace can be written");
        // Traces are created, changed and removed meanwhile, and all kinds of requests are made.
        let other = Trace::started_with("other", 4096, 4);
        for trace in [&kept, &read, &other] {
            let _ = trace.stats();
        }
        if round % 4 == 0 {
            for channel in ["control", "main"] {
                for path in kept.consumer_files(channel) {
                    let name = path
                        .file_name()
                        .expect("a file")
                        .to_string_lossy()
                        .into_owned();
                    if name.starts_with(&liar) {
                        ask_about(&path, &mut random);
                    }
                }
            }
        }
        other.stop();
        other.start();
        other.try_remove().expect("rmdir");
    }
    let grown = resident_pages().saturating_sub(resident);
    assert!(
        grown < 16384,
        "{grown} pages: what garbage says is no reason to need so much memory"
    );
    let written = bystander.check(&kept);
    // The bystander is dead before its last events are read. The other process writes on.
    wait::until("the recorder has all of the bystander", || {
        take_files(&mut session, &read);
        session
            .drain(false, Instant::now())
            .expect("the trace can be written");
        let processes = read.stats().processes;
        processes
            .iter()
            .all(|process| !process.name.starts_with(&prefix) || process.state == "read")
    });
    stop.get().store(1, Ordering::Relaxed);
    garbage.join();
    let summary = session.finish().expect("the trace can be written");
    check_summary(&summary, &prefix, written);
    drop((kept, read));
    // The machine is whole.
    let after = Trace::started("after");
    child::run(|| {
        attach();
        Numbers::default().write(1000);
    });
    assert_eq!(check_prefix(&parse::numbers(&after)), 1000);
}

const ATTACKER: u32 = 1000;
const FSCONFIG_CMD_CREATE: usize = 6;

/// Drops all privileges.
pub(crate) fn become_user(user: u32) {
    setgroups(&[]).expect("setgroups");
    setgid(Gid::from_raw(user)).expect("setgid");
    setuid(Uid::from_raw(user)).expect("setuid");
    // As a program that the user began: nothing is refused only because its rights were given up.
    nix::sys::prctl::set_dumpable(true).expect("prctl");
}

/// How many update signals a traced process got.
static UPDATES: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    UPDATES.fetch_add(1, Ordering::Relaxed);
}

/// Starts a traced process of a user. It sends the addresses of its areas, and at its end how many
/// update signals it got.
fn victim(user: u32) -> (Child, Vec<usize>) {
    let mut child = Child::spawn(|link| {
        if user != 0 {
            become_user(user);
        }
        // SAFETY: the handler counts.
        unsafe {
            nix::sys::signal::signal(
                Signal::SIGUSR1,
                nix::sys::signal::SigHandler::Handler(count),
            )
        }
        .expect("a handler");
        let slot = Areas::map(Signal::SIGUSR1 as u32).must_next();
        slot.ring(1, 0).write_records(3);
        slot.switch().expect("its files");
        for area in maps::areas() {
            link.send(area.start as u64);
        }
        link.receive();
        link.send(u64::from(UPDATES.load(Ordering::Relaxed)));
    });
    let areas = [(); 3].map(|()| child.link.receive() as usize);
    (child, areas.to_vec())
}

fn refused<T>(what: &str, result: io::Result<T>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} is allowed"));
    assert!(
        matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)),
        "{what}: {error}"
    );
}

fn refused_call<const N: usize>(what: &str, number: Sysno, arguments: [usize; N]) {
    // SAFETY: what may be written is this process's, and for that.
    let ret = unsafe { raw::call(number, arguments) };
    refused(
        what,
        ret.map_err(|errno: Errno| io::Error::from_raw_os_error(errno.into_raw())),
    );
}

/// Tries all ways to another user's events.
fn attack(trace: &Path, files: &[PathBuf], victim: Pid, areas: &[usize], recorder: Pid) {
    attack_control_files(trace, files);
    attack_process(victim, areas);
    // The process that has the files open may read them, but others cannot get them from it.
    refused(
        "the recorder's files",
        fs::read_dir(format!("/proc/{recorder}/fd")),
    );
    attack_machine();
}

/// Tries the files of the control file system.
fn attack_control_files(trace: &Path, files: &[PathBuf]) {
    let open_to_write = |path: &Path| fs::OpenOptions::new().write(true).open(path);
    for path in files {
        refused("a consumer file", fs::File::open(path));
        refused(
            "its metadata's change",
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)),
        );
    }
    for name in ["stats", "start", "main/subbuf_size", "main/subbuf_count"] {
        refused(name, fs::read(trace.join(name)));
        refused(name, open_to_write(&trace.join(name)));
    }
    for directory in [trace, &trace.join("main"), &trace.join("control")] {
        refused("a directory", fs::read_dir(directory));
        refused("a watch of a directory", inotify(directory));
    }
    refused(
        "mkdir",
        fs::create_dir(Path::new(control::ROOT).join("mine")),
    );
    refused("rmdir", fs::remove_dir(trace));
    refused(
        "rename",
        fs::rename(trace, Path::new(control::ROOT).join("mine")),
    );
    refused(
        "chmod",
        fs::set_permissions(trace, fs::Permissions::from_mode(0o777)),
    );
    refused(
        "chmod",
        fs::set_permissions(control::ROOT, fs::Permissions::from_mode(0o777)),
    );
    for name in ["limit_total", "limit_user", "limit_process"] {
        let path = Path::new(control::ROOT).join(name);
        if path.exists() {
            refused(name, open_to_write(&path));
        }
    }
}

/// Tries to reach a process and its areas.
fn attack_process(victim: Pid, areas: &[usize]) {
    let pid = victim.as_raw() as usize;
    refused_call(
        "ptrace",
        Sysno::ptrace,
        [libc::PTRACE_ATTACH as usize, pid, 0, 0],
    );
    refused_call(
        "ptrace",
        Sysno::ptrace,
        [libc::PTRACE_SEIZE as usize, pid, 0, 0],
    );
    for name in ["mem", "maps", "smaps", "pagemap", "environ"] {
        let path = format!("/proc/{victim}/{name}");
        refused(&path, fs::read(&path));
    }
    for &start in areas {
        let mut word = 0u64;
        let (local, remote) = ([&raw mut word as usize, 8], [start, 8]);
        let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
        refused_call(
            "readv",
            Sysno::process_vm_readv,
            [pid, local, 1, remote, 1, 0],
        );
        refused_call(
            "writev",
            Sysno::process_vm_writev,
            [pid, local, 1, remote, 1, 0],
        );
        assert_eq!(word, 0);
    }
    for name in ["fd", "map_files"] {
        refused(name, fs::read_dir(format!("/proc/{victim}/{name}")));
    }
    refused_call("kill", Sysno::kill, [pid, libc::SIGUSR1 as usize]);
}

/// Tries the machine's memory, and other mounts of the control file system.
fn attack_machine() {
    refused("kcore", fs::File::open("/proc/kcore"));
    refused_call(
        "mount",
        Sysno::mount,
        [
            c"ltt".as_ptr() as usize,
            c"/tmp".as_ptr() as usize,
            c"ltt".as_ptr() as usize,
            0,
            0,
        ],
    );
    // Root of a user namespace can do this, but no more.
    // SAFETY: no memory is changed.
    if let Ok(fd) = unsafe { raw::call(Sysno::fsopen, [c"ltt".as_ptr() as usize, 0]) } {
        refused_call(
            "fsconfig",
            Sysno::fsconfig,
            [fd, FSCONFIG_CMD_CREATE, 0, 0, 0],
        );
    }
}

fn inotify(path: &Path) -> io::Result<()> {
    let inotify = nix::sys::inotify::Inotify::init(nix::sys::inotify::InitFlags::empty())?;
    inotify.add_watch(path, nix::sys::inotify::AddWatchFlags::IN_CREATE)?;
    Ok(())
}

/// Requirements: F5
fn unprivileged_user_reads_and_changes_nothing() {
    let trace = Trace::started("private");
    // Of root, and of another user without rights.
    for user in [0, 2000] {
        let (mut victim, areas) = victim(user);
        let prefix = format!("{}.", victim.pid());
        let mut files = trace.consumer_files("main");
        files.extend(trace.consumer_files("control"));
        files.retain(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        });
        assert_eq!(files.len(), 2);
        let held = Consumer::open(&files[0]);
        let (own, pid) = (Pid::this(), victim.pid());
        let before = (trace.stats(), trace.read("start"));
        let try_all = || attack(trace.path(), &files, pid, &areas, own);
        child::run(|| {
            become_user(ATTACKER);
            try_all();
        });
        // As root of namespaces of one's own, too.
        child::run(|| {
            become_user(ATTACKER);
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).expect("namespaces");
            fs::write("/proc/self/setgroups", "deny").expect("setgroups");
            fs::write("/proc/self/uid_map", format!("0 {ATTACKER} 1")).expect("a map");
            fs::write("/proc/self/gid_map", format!("0 {ATTACKER} 1")).expect("a map");
            assert!(Uid::effective().is_root());
            try_all();
        });
        // A process with areas gets no others: neither the slot's pages nor another signal.
        child::run(|| {
            become_user(ATTACKER);
            let own = Areas::map(0).must_next();
            assert_eq!(
                own.ring(1, 0).read(28),
                0,
                "zeros, and not what the victim wrote"
            );
            for &start in &areas {
                let _ = raw::switch(&own.areas.calls, start);
            }
            assert!(
                fs::read_dir(trace.path()).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
            );
        });
        let now = (trace.stats(), trace.read("start"));
        let of_victim = |stats: &control::Stats| {
            let mut rings = stats.rings.clone();
            rings.retain(|ring| ring.name.starts_with(&prefix));
            rings
        };
        assert_eq!(of_victim(&now.0), of_victim(&before.0));
        assert_eq!(now.1, before.1);
        drop(held);
        victim.link.send(0);
        assert_eq!(victim.link.receive(), 0, "it was told of no update");
        victim.join();
    }
}
