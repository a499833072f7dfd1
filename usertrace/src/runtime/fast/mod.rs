//! The fallback: what the kernel would do, done by two more processes (D, F3).
//!
//! - Rings, control blocks and the info area lie in the pool (`pool.rs`, `layout.rs`), shared memory that is mapped
//!   before `main`. A process that is forked from a traced one has the mapping, and takes a free slot in it.
//! - Two daemons are forked before `main` (`spawn.rs`) and share the memory, too. The worker (`worker.rs`) reads the
//!   rings and writes the traces (`output.rs`); the guardian (`guardian.rs`) sees processes end. Either replaces the
//!   other one if it dies, and goes on where the desk says (`desk.rs`).
//! - The program has no descriptor, no child and no thread more than without; what it and the daemons have to tell
//!   each other is in shared memory (`header.rs`).
//!
//! What was committed is lost only if the program and both daemons are killed at the same moment: the memory is gone
//! then. If only the daemons are, the program goes on, and when it exits, a last process writes what there is.

mod aside;
mod clock;
mod desk;
mod filter;
mod guardian;
mod header;
mod layout;
mod output;
mod pool;
mod spawn;
mod summary;
mod worker;

#[cfg(feature = "tools")]
pub(crate) use self::clock::sync as clock_sync;
#[cfg(feature = "tools")]
pub(crate) use self::spawn::NAME as DAEMON;
pub use self::spawn::RUNNING;
pub use self::summary::parse_summary;

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use syscalls::Errno;
use usertrace_sys::Update;
use usertrace_sys::uapi::{
    LTT_CHANNEL_MAIN, LTT_COMM_LEN, LTT_MODE_BLOCK, LTT_MODE_DISCARD, LTT_MODE_OVERWRITE,
    LTT_PROTOCOL_RSEQ, LTT_PROTOCOL_SHARED, LTT_SCOPE_CPU, LTT_SCOPE_GLOBAL, LTT_SCOPE_THREAD,
    LttInfoTrace, LttTracebuf,
};

use self::clock::TraceClock;
use self::header::PROCESSES;
use self::layout::{Layout, Rings};
use self::output::Output;
use self::pool::Pool;
use self::worker::Task;
use super::env;
use super::kernel::Kernel;
use super::shared::shared;
use super::signals::HeldBack;
use super::status::NoFallback;
use super::wiped;
use crate::ctf::Version;
use crate::writer::{Doorbell, Prefault};

/// Generation of the only trace.
const GENERATION: u64 = 1;
/// Rings of a channel with rings for threads. Threads beyond that share.
const THREAD_RINGS: u32 = 64;
/// How many slots to ask for; fewer where address space is limited.
const SLOTS: [usize; 3] = [PROCESSES, 8, 1];

/// The fallback, as the runtime sees it.
#[derive(Debug)]
pub(super) struct Fast {
    pool: Pool,
    /// What is true of one process and not of its children.
    own: NonNull<Own>,
    /// Number of the slot that is open in this address space. A child of `fork` inherits it with the mapping, and
    /// learns from it what it has to leave.
    open: AtomicU32,
    /// One bit for each slot that something else is mapped over by now.
    left: AtomicU64,
    /// Not 0: this is not a traced process any more, or about to fork one that is not.
    apart: AtomicU32,
    prefault: Prefault,
    task: Task,
}

// SAFETY: all that it points to is atomic and stays.
unsafe impl Send for Fast {}
// SAFETY: likewise.
unsafe impl Sync for Fast {}

/// In memory that `fork` wipes in the child.
#[derive(Debug)]
#[repr(C)]
struct Own {
    /// Number of this process's slot, plus 1.
    slot: AtomicU32,
    /// Not 0: somebody is about to take a slot.
    busy: AtomicU32,
    /// Not 0: it was told of the trace.
    told: AtomicU32,
}

/// As part of what copies of this crate share.
pub(super) const LEN: usize = size_of::<Fast>();

/// What the program's environment asks for.
pub(super) fn start(settings: &env::Fast, rseq: bool) -> Result<&'static Fast, NoFallback> {
    let place = &shared().fast;
    // SAFETY: only this function stores there, in this copy of the crate or in another one that is laid out like it: what
    // it stores stays. Pairs with that store.
    if let Some(fast) = unsafe { place.load(Ordering::Acquire).cast::<Fast>().as_ref() } {
        return Ok(fast);
    }
    // What is forked from a process of several threads finds locks that nobody gives back.
    if spawn::threads().is_some_and(|threads| threads > 1) {
        return Err(NoFallback::Threads);
    }
    let output = output(settings)?;
    let fast = Box::leak(Box::new(set_up(settings, rseq, output)?));
    // Pairs with the load above.
    place.store(
        std::ptr::from_ref(fast).cast_mut().cast(),
        Ordering::Release,
    );
    Ok(fast)
}

/// Where to write, seen from wherever the daemons are.
fn output(settings: &env::Fast) -> Result<Output, NoFallback> {
    use std::os::unix::ffi::OsStrExt;
    let version = match settings.ctf {
        env::Ctf::V1_8 => Version::V1_8,
        env::Ctf::V2 => Version::V2,
    };
    match settings.output {
        Some(b"null") => Ok(Output::Null),
        other => {
            let name = other.unwrap_or(b"usertrace-traces");
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(name));
            std::path::absolute(path)
                .map(|path| Output::Directory(path, version))
                .map_err(|_| NoFallback::Directory)
        }
    }
}

fn channels(settings: &env::Fast, rseq: bool) -> [Rings; layout::CHANNELS] {
    // SAFETY: no memory is involved.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.clamp(1, 8192) as u32;
    let per_cpu = rseq && settings.rings == env::Rings::Cpu;
    let mode = match settings.mode {
        env::Mode::Discard => LTT_MODE_DISCARD,
        env::Mode::Overwrite => LTT_MODE_OVERWRITE,
        env::Mode::Block => LTT_MODE_BLOCK,
    };
    let protocol = if per_cpu {
        LTT_PROTOCOL_RSEQ
    } else {
        LTT_PROTOCOL_SHARED
    };
    let (main_scope, main_rings, control_scope, control_rings) = if per_cpu {
        (LTT_SCOPE_CPU, cpus, LTT_SCOPE_CPU, cpus)
    } else {
        (LTT_SCOPE_THREAD, THREAD_RINGS, LTT_SCOPE_GLOBAL, 1)
    };
    // Room for the metadata of some 20,000 events: what is not used is address space only.
    let control = Rings {
        subbuf_size: 65536,
        subbuf_count: 32,
        nr_rings: control_rings,
        scope: control_scope,
        mode: LTT_MODE_DISCARD,
        protocol,
    };
    let main = Rings {
        subbuf_size: settings.subbuf_size,
        subbuf_count: settings.subbuf_count,
        nr_rings: main_rings,
        scope: main_scope,
        mode,
        protocol,
    };
    [control, main]
}

fn set_up(settings: &env::Fast, rseq: bool, output: Output) -> Result<Fast, NoFallback> {
    let filter = filter::filter(settings)?;
    let channels = channels(settings, rseq);
    let mut pool = Err(NoFallback::Sizes);
    for slots in SLOTS {
        let layout = Layout::new(channels, slots).ok_or(NoFallback::Sizes)?;
        pool = Pool::map(layout).map_err(NoFallback::Memory);
        if pool.is_ok() {
            break;
        }
    }
    let pool = pool?;
    // SAFETY: zeros are those of a process that has no slot.
    let own = unsafe { wiped::map::<Own>() }.ok_or(NoFallback::Memory(Errno::ENOMEM));
    let own = own.inspect_err(|_| pool.unmap())?;

    let clock = TraceClock::start();
    let mut trace = LttInfoTrace {
        generation: GENERATION,
        clock: clock.source().number(),
        clock_freq: clock.source().frequency(),
        ..LttInfoTrace::default()
    };
    trace.name[..4].copy_from_slice(b"fast");
    pool.write_info(&trace, channels[LTT_CHANNEL_MAIN].nr_rings, &filter);
    let entry = &pool.header().entries[0];
    let pid = std::process::id();
    entry.claim(pid);
    entry.publish(pid, clock.first().realtime, comm());
    // SAFETY: just mapped, and stays from here on, other than when the daemons cannot be started.
    unsafe { own.as_ref() }.slot.store(1, Ordering::Release);
    let task = Task {
        pool,
        output,
        clock,
    };
    let directory = task.output.directory();
    // SAFETY: this process has one thread: `start` has looked.
    let started = unsafe { spawn::detached(directory, |program| guardian::start(&task, program)) };
    if let Err(errno) = started {
        pool.unmap();
        return Err(NoFallback::Process(errno));
    }
    pool.restrict();
    Ok(Fast {
        pool,
        own,
        open: AtomicU32::new(0),
        left: AtomicU64::new(0),
        apart: AtomicU32::new(0),
        prefault: settings.prefault,
        task,
    })
}

/// Name of this process.
fn comm() -> [u8; LTT_COMM_LEN] {
    let mut comm = [0; LTT_COMM_LEN];
    // SAFETY: the kernel writes 16 bytes.
    unsafe {
        syscalls::raw::syscall2(
            syscalls::Sysno::prctl as usize,
            libc::PR_GET_NAME as usize,
            comm.as_mut_ptr() as usize,
        );
    }
    comm
}

impl Fast {
    fn own(&self) -> &Own {
        // SAFETY: mapped for ever, and all atomic.
        unsafe { self.own.as_ref() }
    }

    /// This process's slot, taken now if it has none.
    fn slot(&self) -> Result<usize, Errno> {
        // Pairs with the store in `take_slot`: the slot is open.
        match self.own().slot.load(Ordering::Acquire) {
            0 => {
                let _held = HeldBack::new();
                self.take_slot()
            }
            slot => Ok(slot as usize - 1),
        }
    }

    fn take_slot(&self) -> Result<usize, Errno> {
        if self.apart.load(Ordering::Relaxed) != 0 {
            return Err(Errno::ESRCH);
        }
        if self.own().busy.swap(1, Ordering::Acquire) != 0 {
            return Err(Errno::EAGAIN);
        }
        let taken = self.take();
        if let Ok(slot) = taken {
            self.own().slot.store(slot as u32 + 1, Ordering::Release);
        }
        self.own().busy.store(0, Ordering::Release);
        taken
    }

    fn take(&self) -> Result<usize, Errno> {
        let header = self.pool.header();
        // SAFETY: no memory is involved.
        let pid = unsafe { libc::getpid() } as u32;
        let left = self.left.load(Ordering::Relaxed);
        let entries = header.entries[..self.pool.layout().slots].iter();
        let mut entries = entries
            .enumerate()
            .filter(|(slot, _)| left & (1 << slot) == 0);
        let Some((slot, entry)) = entries.find(|(_, entry)| entry.claim(pid)) else {
            header.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        };
        // SeqCst: either this sees that the daemons leave, or they see the entry.
        if header.closed.load(Ordering::SeqCst) != 0 {
            entry.free();
            return Err(Errno::ESRCH);
        }
        if let Err(errno) = self.pool.open_slot(slot) {
            entry.free();
            return Err(errno);
        }
        let before = self.open.swap(slot as u32, Ordering::Relaxed) as usize;
        if before != slot {
            self.pool.leave_slot(before);
            self.left.fetch_or(1 << before, Ordering::Relaxed);
        }
        entry.publish(pid, clock::realtime(), comm());
        header.doorbell.ring();
        Ok(slot)
    }

    /// Where the traces go; nothing if nowhere.
    pub(super) fn directory(&self) -> Option<&std::path::Path> {
        self.task.output.directory()
    }

    /// Process ids of the daemons.
    pub(super) fn daemons(&self) -> [u32; 2] {
        let words = &self.pool.header().doorbell.readers;
        words.each_ref().map(|word| {
            let word = word.load(Ordering::Relaxed);
            // What the kernel marked has died.
            if word & libc::FUTEX_OWNER_DIED != 0 {
                0
            } else {
                word
            }
        })
    }

    /// Why the traces cannot be written at present.
    pub(super) fn error(&self) -> Option<Errno> {
        let error = self.pool.header().error.load(Ordering::Relaxed);
        (error != 0).then(|| Errno::new(error))
    }
}

// SAFETY: the areas are as the header says, and stay; a child of `fork` gets others. All of it is atomic access and raw
// system calls.
unsafe impl Kernel for Fast {
    fn alloc_tracebuf(&self, signo: u32) -> Result<LttTracebuf, Errno> {
        let slot = self.slot()?;
        let layout = self.pool.layout();
        let address = |pointer: *mut u8| pointer.expose_provenance() as u64;
        Ok(LttTracebuf {
            buffers: address(self.pool.buffers(slot)),
            buffers_len: layout.buffers_len() as u64,
            control: address(self.pool.control(slot)),
            control_len: layout.control_len() as u64,
            info: address(self.pool.info()),
            info_len: layout.info_len() as u64,
            signo,
            buffers_stride: layout.buffers_len() as u64,
            control_stride: layout.control_len() as u64,
            nr_slots: 1,
            ..LttTracebuf::default()
        })
    }

    fn update(&self, buffer: &mut Option<NonNull<u8>>) -> Result<Update, Errno> {
        let slot = self.slot()?;
        let own = NonNull::new(self.pool.buffers(slot));
        if buffer.is_none() {
            if self.own().told.swap(1, Ordering::Relaxed) != 0 {
                return Ok(Update::default());
            }
            *buffer = own;
        }
        if *buffer != own {
            return Err(Errno::EINVAL);
        }
        Ok(Update {
            active: true,
            filter: u32::MAX,
        })
    }

    fn switch(&self, _buffer: NonNull<u8>) -> Result<(), Errno> {
        let slot = self.slot()?;
        let main = &self.pool.layout().channels[LTT_CHANNEL_MAIN];
        let unread = (0..main.nr_rings).any(|ring| {
            let control = self.pool.ring_control(slot, LTT_CHANNEL_MAIN, ring);
            let head = control.head().load(Ordering::Relaxed);
            head != control.consumed().load(Ordering::Relaxed)
        });
        // Nothing is made for a process that wrote nothing (D6).
        if unread {
            let header = self.pool.header();
            header.entries[slot].asked.fetch_add(1, Ordering::SeqCst);
            header.doorbell.ring();
        }
        Ok(())
    }

    fn removes_traces(&self) -> bool {
        false
    }

    fn needs_rseq(&self) -> bool {
        self.pool.layout().channels[LTT_CHANNEL_MAIN].protocol == LTT_PROTOCOL_RSEQ
    }

    fn doorbell(&self) -> *const Doorbell {
        &raw const self.pool.header().doorbell
    }

    fn prefault(&self) -> Prefault {
        self.prefault
    }

    fn leaves_room(&self) -> bool {
        true
    }

    fn before_fork(&self) {
        self.pool.header().forks.fetch_add(1, Ordering::SeqCst);
    }

    fn after_fork(&self) {
        // The child is known before it writes anything, so that the daemons wait for it if its parent ends now.
        let _ = self.slot();
        self.pool.header().forks.fetch_sub(1, Ordering::SeqCst);
    }

    /// If both daemons died, others read the rest. Not before: in the middle of an event is no place to fork.
    fn at_exit(&self) {
        let header = self.pool.header();
        if header.doorbell.is_deserted() && header.rescued.swap(1, Ordering::SeqCst) == 0 {
            header.doorbell.gone.store(1, Ordering::SeqCst);
            let directory = self.task.output.directory();
            // The child is to read this process's slot, not to take one.
            self.apart.store(1, Ordering::Relaxed);
            spawn::rescue(directory, |program| guardian::start(&self.task, program));
            self.apart.store(0, Ordering::Relaxed);
        }
    }
}
