//! Consumer files: when they appear and disappear, and their operations (C4, C5, C9, A10, A11).

use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nix::poll::{PollFlags, PollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use syscalls::Errno;
use usertrace_sys::files;
use usertrace_sys::uapi::{
    LTT_FILE_DEAD, LTT_FILE_REMOVED, LTT_FILE_STOPPED, LTT_IOC_CONSUME, LTT_IOC_INFO,
    LTT_IOC_POSITIONS, LttConsume, LttFileInfo, LttPositions, LttRingPositions, LttSubbuf,
};
use usertrace_testing::wait;
use usertrace_tests::areas::{Areas, Slot, head_after};
use usertrace_tests::child::{self, Child, Link};
use usertrace_tests::consumer::{Consumer, sleeper};
use usertrace_tests::control::Trace;
use usertrace_tests::raw::{KERNEL_ADDRESS, Pages};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    first_switch_creates_the_files,
    exit_before_a_switch_creates_the_files,
    process_without_events_leaves_no_files,
    file_info_names_process_trace_and_channel,
    one_call_returns_positions_of_all_rings,
    bad_ioctls_fail_and_change_nothing,
    consumed_position_moves_forward_only,
    control_channel_cannot_be_consumed,
    rings_are_mapped_read_only,
    only_rings_can_be_mapped,
    poll_reports_records_and_process_end,
    switch_wakes_a_polling_reader,
    buffers_outlive_a_killed_process,
    last_close_frees_consumed_buffers,
    open_file_outlives_its_trace,
    forged_positions_harm_no_other_process,
];

/// A traced process, and its consumer files.
struct Traced {
    trace: Trace,
    child: Child,
}

impl Traced {
    /// Starts a process that has buffers, calls `prepare`, makes its files by a switch, and waits.
    fn new(name: &str, prepare: impl FnOnce(&Slot)) -> Self {
        Self::with(name, |slot, link| {
            prepare(&slot);
            slot.switch().expect("its files");
            link.send(0);
            while link.try_receive().is_some() {}
        })
    }

    /// Starts a process that has buffers and runs `body`, which sends a number when it is ready.
    fn with(name: &str, body: impl FnOnce(Slot, &mut Link)) -> Self {
        let trace = Trace::started(name);
        let mut child = Child::spawn(|link| body(Areas::map(0).must_next(), link));
        child.link.receive();
        Self { trace, child }
    }

    fn open(&self, channel: &str) -> Consumer {
        let files = self.trace.consumer_files(channel);
        assert_eq!(files.len(), 1, "{files:?}");
        Consumer::open(&files[0])
    }

    fn kill(&mut self) {
        self.child.signal(Signal::SIGKILL);
        self.child.wait();
    }
}

fn watch(trace: &Trace, channel: &str) -> Inotify {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).expect("inotify");
    inotify
        .add_watch(&trace.path().join(channel), AddWatchFlags::IN_CREATE)
        .expect("a watch");
    inotify
}

/// The files that were created since the last call.
fn created(inotify: &Inotify) -> Vec<String> {
    match inotify.read_events() {
        Ok(events) => events
            .iter()
            .map(|event| {
                assert_eq!(event.mask, AddWatchFlags::IN_CREATE);
                event
                    .name
                    .as_ref()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned()
            })
            .collect(),
        Err(nix::errno::Errno::EAGAIN) => Vec::new(),
        Err(e) => panic!("inotify: {e}"),
    }
}

/// Requirements: A2, C4
fn first_switch_creates_the_files() {
    child::run(|| {
        let trace = Trace::started("switch");
        let watches = ["control", "main"].map(|channel| watch(&trace, channel));
        let slot = Areas::map(0).must_next();
        slot.ring(1, 0).write_records(1);
        for (watch, channel) in watches.iter().zip(["control", "main"]) {
            assert!(created(watch).is_empty());
            assert!(trace.consumer_files(channel).is_empty());
        }
        slot.switch().expect("files");
        let name = &trace.stats().processes[0].name;
        assert!(name.starts_with(&format!("{}.", std::process::id())));
        for (watch, channel) in watches.iter().zip(["control", "main"]) {
            assert_eq!(created(watch), [name.as_str()]);
            let files = trace.consumer_files(channel);
            assert_eq!(files, [trace.path().join(channel).join(name)]);
        }
        // Further switches create nothing.
        slot.switch().expect("as well");
        assert!(watches.iter().all(|watch| created(watch).is_empty()));
        assert_eq!(trace.consumer_files("main").len(), 1);
    });
}

/// Requirements: C4
fn exit_before_a_switch_creates_the_files() {
    let trace = Trace::started("exit");
    let watch = watch(&trace, "main");
    child::run(|| Areas::map(0).must_next().ring(1, 0).write_records(1));
    let made = wait::until_some("there is a file", || created(&watch).pop());
    assert_eq!(made, trace.stats().processes[0].name);
    let consumer = Consumer::open(&trace.path().join("main").join(made));
    assert_eq!(consumer.positions()[0].head, head_after(1));
    let _control = Consumer::open(&trace.consumer_files("control")[0]);
}

/// Requirements: C4
fn process_without_events_leaves_no_files() {
    let trace = Trace::started("nothing");
    for _ in 0..10 {
        child::run(|| {
            let _ = Areas::map(0).must_next();
        });
    }
    wait::until("nothing is left", || trace.stats().processes.is_empty());
    for channel in ["control", "main"] {
        assert!(trace.consumer_files(channel).is_empty());
    }
}

fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&b| b == 0).expect("a NUL");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Requirements: C5
fn file_info_names_process_trace_and_channel() {
    let mut traced = Traced::new("whose", |slot| slot.ring(1, 0).write_records(1));
    let stats = traced.trace.stats();
    let number: u64 = stats.processes[0]
        .name
        .split_once('.')
        .and_then(|(_, number)| number.parse().ok())
        .expect("PID.NUMBER");
    let comm = fs::read_to_string("/proc/self/comm").expect("a name");
    for (index, channel) in ["control", "main"].into_iter().enumerate() {
        let consumer = traced.open(channel);
        let info = consumer.info();
        assert_eq!(info.size as usize, size_of::<LttFileInfo>());
        assert_eq!(info.flags, 0);
        assert_eq!(info.pid, traced.child.pid().as_raw() as u32);
        assert_eq!(info.uid, 0);
        assert_eq!(info.process, number);
        assert_eq!(info.trace_generation, stats.generation);
        assert_eq!(text(&info.comm), comm.trim());
        assert_eq!(text(&info.trace), "whose");
        assert_eq!(info.channel_index as usize, index);
        assert_eq!(text(&info.channel.name), channel);
        assert_eq!(
            info.channel,
            Areas::map(0).info(stats.slot).1.channel[index]
        );
        // The clock runs, and both points show that it agrees with the kernel's.
        assert!(info.start_time > 0);
        assert!(info.now.cycles > info.start.cycles);
        assert!(info.now.monotonic > info.start.monotonic);
        assert!(info.now.realtime > info.start.realtime);
        let later = consumer.info();
        assert_eq!(later.start, info.start);
        assert!(later.now.cycles > info.now.cycles);
    }
    traced.trace.stop();
    let consumer = traced.open("main");
    assert_eq!(consumer.info().flags, LTT_FILE_STOPPED);
    traced.kill();
    wait::until("it is known to be dead", || {
        consumer.info().flags == LTT_FILE_STOPPED | LTT_FILE_DEAD
    });
    drop(traced);
    assert_eq!(
        consumer.info().flags,
        LTT_FILE_STOPPED | LTT_FILE_DEAD | LTT_FILE_REMOVED
    );
}

/// Requirements: C5
fn one_call_returns_positions_of_all_rings() {
    let traced = Traced::new("positions", |slot| {
        slot.ring(1, 0).write_records(1);
        slot.ring(1, 1).write_records(2);
        slot.ring(1, 1).lost().store(7, Ordering::Relaxed);
    });
    let consumer = traced.open("main");
    let expected = [(head_after(1), 0, 0), (head_after(2), 7, 0)].map(|(head, lost, consumed)| {
        LttRingPositions {
            head,
            lost,
            claimed: 0,
            consumed,
        }
    });
    assert_eq!(consumer.positions(), expected);
    // With less room, as many as fit, and how many there are.
    for room in 0..2 {
        let mut rings = vec![LttRingPositions::default(); room];
        let found = files::positions(consumer.file().as_fd(), &mut rings).expect("positions");
        assert_eq!((found.rings, found.flags), (2, 0));
        assert_eq!(rings, expected[..room]);
    }
}

/// Requirements: C5
fn bad_ioctls_fail_and_change_nothing() {
    let traced = Traced::new("bad-ioctls", |slot| slot.ring(1, 0).write_records(4));
    let consumer = traced.open("main");
    files::consume(consumer.file().as_fd(), 0, head_after(2)).expect("two records");
    let before = (consumer.positions(), traced.trace.stats());
    let page = Pages::new(2, libc::PROT_READ | libc::PROT_WRITE);
    let good = page.address();
    let check = |what: &str, request: u32, argument: usize, errno: i32| {
        // SAFETY: what may be written is in `page`.
        let error = unsafe { consumer.ioctl(request, argument) }.expect_err(what);
        assert_eq!(error.raw_os_error(), Some(errno), "{what}");
        assert_eq!(
            (consumer.positions(), traced.trace.stats()),
            before,
            "{what}"
        );
    };

    // Numbers: another type, another number, another direction's size.
    for request in [
        LTT_IOC_INFO & !0xff00 | 0x4d00,
        LTT_IOC_INFO & !0xff | 0x1f,
        LTT_IOC_INFO & !0xff | 0x24,
        LTT_IOC_INFO | 1 << 30,
        LTT_IOC_POSITIONS & !(1 << 30),
        LTT_IOC_CONSUME | 1 << 31,
        libc::TCGETS as u32,
        0,
        u32::MAX,
    ] {
        check(&format!("{request:#x}"), request, good, libc::ENOTTY);
    }
    // Sizes: less than in the first version.
    for request in [LTT_IOC_INFO, LTT_IOC_POSITIONS, LTT_IOC_CONSUME] {
        let smaller = request - (8 << 16);
        check(&format!("{smaller:#x}"), smaller, good, libc::EINVAL);
    }
    try_bad_addresses(good, &check);
    try_bad_positions(good, &check);
    assert_eq!(
        files::consume(consumer.file().as_fd(), 0, head_after(4)),
        Ok(())
    );
}

/// Bad addresses of the ioctls' structures. `good` is a page for valid ones; `check` makes the
/// ioctl, which must fail.
fn try_bad_addresses(good: usize, check: &dyn Fn(&str, u32, usize, i32)) {
    let read_only = Pages::new(1, libc::PROT_READ);
    for (what, address) in [
        ("NULL", 0),
        ("a kernel address", KERNEL_ADDRESS),
        ("the last address", usize::MAX - 7),
    ] {
        for request in [LTT_IOC_INFO, LTT_IOC_POSITIONS, LTT_IOC_CONSUME] {
            check(what, request, address, libc::EFAULT);
        }
    }
    check(
        "read-only memory",
        LTT_IOC_INFO,
        read_only.address(),
        libc::EFAULT,
    );
    for rings in [
        0,
        KERNEL_ADDRESS as u64,
        read_only.address() as u64,
        u64::MAX - 7,
    ] {
        let positions = LttPositions {
            rings,
            nr_rings: 2,
            stride: size_of::<LttRingPositions>() as u32,
            ..LttPositions::default()
        };
        // SAFETY: within the page.
        unsafe { (good as *mut LttPositions).write_volatile(positions) };
        check("rings", LTT_IOC_POSITIONS, good, libc::EFAULT);
    }
}

/// Bad positions to consume up to. Two records of four are consumed.
fn try_bad_positions(good: usize, check: &dyn Fn(&str, u32, usize, i32)) {
    for (what, ring, reserved, position) in [
        ("a ring too many", 2, 0, head_after(4)),
        ("the last ring", u32::MAX, 0, head_after(4)),
        ("reserved", 0, 1, head_after(4)),
        ("backwards", 0, 0, head_after(1)),
        ("to the start", 0, 0, 0),
        ("beyond the head", 0, 0, head_after(4) + 8),
        ("far beyond", 0, 0, !7),
        ("in a word", 0, 0, head_after(2) + 1),
        ("an empty ring", 1, 0, 8),
    ] {
        let consume = LttConsume {
            ring,
            reserved,
            position,
        };
        // SAFETY: within the page.
        unsafe { (good as *mut LttConsume).write_volatile(consume) };
        check(what, LTT_IOC_CONSUME, good, libc::EINVAL);
    }
}

/// Requirements: C5
fn consumed_position_moves_forward_only() {
    let mut traced = Traced::with("consume", |slot, link| {
        let ring = slot.ring(1, 0);
        ring.write_records(4);
        slot.switch().expect("its files");
        link.send(0);
        while let Some(order) = link.try_receive() {
            if order == 1 {
                ring.consumed().store(12345, Ordering::Relaxed);
            }
            link.send(ring.consumed().load(Ordering::Acquire));
        }
    });
    let consumer = traced.open("main");
    let mut program = |order| {
        traced.child.link.send(order);
        traced.child.link.receive()
    };
    assert_eq!(program(0), 0);
    for position in [head_after(1), head_after(1), head_after(3)] {
        files::consume(consumer.file().as_fd(), 0, position).expect("forward");
        assert_eq!(consumer.positions()[0].consumed, position);
        assert_eq!(program(0), position, "the program is told");
    }
    // The kernel does not trust the program's copy.
    assert_eq!(program(1), 12345);
    assert_eq!(consumer.positions()[0].consumed, head_after(3));
    assert_eq!(
        files::consume(consumer.file().as_fd(), 0, head_after(2) + 8),
        Err(Errno::EINVAL)
    );
    files::consume(consumer.file().as_fd(), 0, head_after(4)).expect("forward");
    assert_eq!(program(0), head_after(4));
    // Another open file of the same rings continues there.
    assert_eq!(traced.open("main").positions()[0].consumed, head_after(4));
}

/// Requirements: C5
fn control_channel_cannot_be_consumed() {
    let traced = Traced::new("described", |slot| slot.ring(0, 0).write_records(2));
    let consumer = traced.open("control");
    assert_eq!(consumer.positions()[0].head, head_after(2));
    for position in [0, head_after(1), head_after(2)] {
        assert_eq!(
            files::consume(consumer.file().as_fd(), 0, position),
            Err(Errno::EPERM)
        );
    }
    assert_eq!(consumer.positions()[0].consumed, 0);
    assert_eq!(traced.open("main").positions()[0].head, 0);
}

/// Requirements: C9
fn rings_are_mapped_read_only() {
    let traced = Traced::new("mapped", |slot| {
        slot.ring(1, 0).write_records(3);
        slot.ring(1, 1).write_records(1);
        slot.ring(0, 0).write_records(2);
    });
    let pages = traced.trace.stats().pages();
    let (main, control) = (traced.open("main"), traced.open("control"));
    let (view, descriptions) = (main.map(), control.map());
    let ring = view.len / main.positions().len();
    let records = |view: &usertrace_tests::consumer::View, at| -> Vec<u64> {
        view.copy(at + size_of::<LttSubbuf>(), 48)
            .chunks(16)
            .map(|record| u64::from_ne_bytes(record[8..].try_into().expect("8 bytes")))
            .collect()
    };
    assert_eq!(records(&view, 0), [0, 1, 2]);
    assert_eq!(records(&view, ring), [0, 0, 0]);
    assert_eq!(view.read(ring + 28), 0x53, "the second ring's magic");
    assert_eq!(records(&descriptions, 0), [0, 1, 0]);
    // Unwritten pages read as zeros, and none is allocated.
    for offset in (4096..ring).step_by(4096) {
        assert_eq!(view.read(offset), 0);
    }
    assert_eq!(traced.trace.stats().pages(), pages);
    for rights in [
        libc::PROT_READ | libc::PROT_WRITE,
        libc::PROT_READ | libc::PROT_EXEC,
    ] {
        // SAFETY: rights to the view, to which no reference is held.
        let ret = unsafe { libc::mprotect(view.address as *mut libc::c_void, view.len, rights) };
        assert_eq!(ret, -1);
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    }
    child::run_to_death(Signal::SIGSEGV, || {
        let view = main.map();
        // SAFETY: this process is meant to die.
        unsafe { usertrace_tests::areas::poke(view.address, 1) };
    });
    assert_eq!(view.read(0), 0);
}

/// Requirements: C5, C9
fn only_rings_can_be_mapped() {
    let traced = Traced::new("limits", |slot| slot.ring(1, 0).write_records(1));
    let consumer = traced.open("main");
    let len = consumer.map().len;
    let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
    let (shared, private) = (libc::MAP_SHARED, libc::MAP_PRIVATE);
    for (what, offset, len, rights, flags, errno) in [
        ("writable", 0, len, read | write, shared, libc::EACCES),
        ("only writable", 0, len, write, shared, libc::EACCES),
        // The file system is mounted with noexec.
        (
            "executable",
            0,
            len,
            read | libc::PROT_EXEC,
            shared,
            libc::EPERM,
        ),
        ("private", 0, len, read, private, libc::EINVAL),
        ("too much", 0, len + 4096, read, shared, libc::EINVAL),
        ("behind the end", len, 4096, read, shared, libc::EINVAL),
        (
            "across the end",
            len - 4096,
            8192,
            read,
            shared,
            libc::EINVAL,
        ),
        (
            "far behind the end",
            1 << 44,
            4096,
            read,
            shared,
            libc::EINVAL,
        ),
    ] {
        let error = consumer
            .try_map(offset, len, rights, flags)
            .expect_err(what);
        assert_eq!(error.raw_os_error(), Some(errno), "{what}");
    }
    // A part is fine.
    let part = consumer.try_map(4096, 4096, read, shared).expect("a page");
    assert_eq!(part.read(0), 0);
    let second = consumer
        .try_map(len / 2, len / 2, read, shared)
        .expect("a ring");
    assert_eq!(second.read(0), 0);
}

/// Requirements: C5
fn poll_reports_records_and_process_end() {
    let mut traced = Traced::with("poll", |slot, link| {
        slot.switch().expect("its files");
        link.send(0);
        link.receive();
        slot.ring(1, 1).write_records(1);
        link.send(0);
        link.receive();
    });
    let consumer = traced.open("main");
    let nothing = PollFlags::empty();
    assert_eq!(consumer.ready(), nothing);
    traced.child.link.send(0);
    traced.child.link.receive();
    assert_eq!(consumer.ready(), PollFlags::POLLIN);
    consumer.consume_all();
    assert_eq!(consumer.ready(), nothing);
    // The end of the process wakes the reader.
    traced.child.link.send(0);
    let ready = consumer.poll(PollTimeout::from(60_000u16));
    assert_eq!(ready, PollFlags::POLLHUP);
}

/// Requirements: C5
fn switch_wakes_a_polling_reader() {
    let traced = Traced::with("wake", |slot, link| {
        slot.switch().expect("its files");
        link.send(0);
        link.receive();
        slot.ring(1, 0).write_records(1);
        slot.switch().expect("a reader is told");
        link.send(0);
        link.receive();
    });
    let Traced { trace, mut child } = traced;
    let file = trace.consumer_files("main").remove(0);
    let reader = sleeper(&file);
    child.link.send(0);
    child.link.receive();
    reader.join();
    child.link.send(0);
    child.join();
}

/// Requirements: A10
fn buffers_outlive_a_killed_process() {
    let mut traced = Traced::with("killed", |slot, link| {
        slot.ring(1, 0).write_records(100);
        link.send(0);
        // It dies here, or in any instruction of this.
        loop {
            slot.ring(1, 1).write(4096 * 3, 1);
        }
    });
    assert!(
        traced.trace.consumer_files("main").is_empty(),
        "it never switched"
    );
    let slot = traced.trace.stats().slot;
    traced.kill();
    wait::until("there is a file", || {
        !traced.trace.consumer_files("main").is_empty()
    });
    let consumer = traced.open("main");
    assert_eq!(consumer.info().flags & LTT_FILE_DEAD, LTT_FILE_DEAD);
    let view = consumer.map();
    let head = consumer.positions()[0].head as usize;
    assert_eq!(head, size_of::<LttSubbuf>() + 16 * 100);
    for (number, record) in view
        .copy(size_of::<LttSubbuf>(), head - size_of::<LttSubbuf>())
        .chunks(16)
        .enumerate()
    {
        assert_eq!(record[8..], (number as u64).to_ne_bytes());
    }
    assert_eq!(traced.trace.stats().slot, slot);
    assert_eq!(traced.trace.stats().processes[0].state, "dead");
}

/// Requirements: A10
fn last_close_frees_consumed_buffers() {
    let mut traced = Traced::new("freed", |slot| slot.ring(1, 0).write_records(1));
    traced.kill();
    let (first, second) = (traced.open("main"), traced.open("main"));
    let control = traced.open("control");
    wait::until("it is dead", || first.info().flags & LTT_FILE_DEAD != 0);
    // An unread file stays, whoever closes it.
    drop(first);
    assert_eq!(traced.trace.stats().processes[0].state, "dead");
    second.consume_all();
    assert_eq!(traced.trace.stats().processes[0].state, "read");
    assert!(traced.trace.stats().pages() > 0);
    drop(second);
    // Descriptions may still be read.
    assert_eq!(traced.trace.stats().processes.len(), 1);
    assert_eq!(control.info().flags & LTT_FILE_DEAD, LTT_FILE_DEAD);
    drop(control);
    wait::until("the buffers are gone", || {
        traced.trace.stats().processes.is_empty()
    });
    for channel in ["control", "main"] {
        wait::until("the files are gone", || {
            traced.trace.consumer_files(channel).is_empty()
        });
    }
}

/// Requirements: A9
fn open_file_outlives_its_trace() {
    let traced = Traced::new("outlived", |slot| slot.ring(1, 0).write_records(3));
    let consumer = traced.open("main");
    let early = consumer.map();
    traced.trace.try_remove().expect("rmdir with an open file");
    assert!(!traced.trace.path().exists());
    // Mappings from before and after have the events, until the file is closed.
    let late = consumer.map();
    for view in [&early, &late] {
        assert_eq!(view.read(head_after(2) as usize + 8), 2);
    }
    assert_eq!(consumer.positions()[0].head, head_after(3));
    assert_eq!(consumer.info().flags & LTT_FILE_REMOVED, LTT_FILE_REMOVED);
    drop(traced);
    for view in [&early, &late] {
        assert_eq!(view.read(head_after(2) as usize + 8), 2);
    }
    drop(consumer);
    assert_eq!(
        early.read(head_after(2) as usize + 8),
        2,
        "a mapping holds it, too"
    );
}

/// Requirements: A11
fn forged_positions_harm_no_other_process() {
    let trace = Trace::started("forged");
    let honest = |link: &mut Link| {
        let slot = Areas::map(0).must_next();
        slot.ring(1, 0).write_records(2);
        slot.switch().expect("its files");
        link.send(0);
        while link.try_receive().is_some() {}
    };
    let liar = |link: &mut Link| {
        let slot = Areas::map(0).must_next();
        let areas = slot.areas;
        slot.switch().expect("its files");
        // The program can write to its control blocks and its rings.
        let words = areas.at.control_len / 16 / 8;
        for fill in [u64::MAX, 1 << 63, 1, 0x5555_5555_5555_5555] {
            let block = areas.at.control as usize + slot.index * areas.at.control_len as usize / 16;
            for word in 0..words as usize {
                // SAFETY: within the slot of the control area; the kernel accesses it atomically as
                // well.
                let word = unsafe {
                    std::sync::atomic::AtomicU64::from_ptr((block + 8 * word) as *mut u64)
                };
                word.store(fill, Ordering::Relaxed);
            }
            slot.ring(1, 0).write(0, fill as u8);
            link.send(fill);
            link.receive();
        }
    };
    let mut children = [Child::spawn(honest), Child::spawn(liar)];
    children[0].link.receive();
    while let Some(fill) = children[1].link.try_receive() {
        let name = format!("{}.", children[1].pid());
        let file = trace
            .consumer_files("main")
            .into_iter()
            .find(|path| {
                path.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with(&name))
            })
            .expect("the liar's file");
        let consumer = Consumer::open(&file);
        let positions = consumer.positions();
        assert_eq!((positions[0].head, positions[0].lost), (fill, fill));
        // The program may forge its positions, and the reader what it consumed. Nothing else
        // changes.
        for position in [0, 8, fill & !7] {
            let _ = files::consume(consumer.file().as_fd(), 1, position);
        }
        let _ = consumer.ready();
        let _ = trace.stats();
        let view = consumer.map();
        let _ = view.copy(0, 4096);
        drop(view);
        children[1].link.send(0);
    }
    let name = format!("{}.", children[0].pid());
    let stats = trace.stats();
    let ring = stats
        .rings
        .iter()
        .find(|ring| ring.name.starts_with(&name))
        .expect("the honest");
    assert_eq!((ring.head, ring.consumed, ring.lost), (head_after(2), 0, 0));
    let [_honest, liar] = children;
    liar.join();
}
