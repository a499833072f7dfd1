//! The fallback: what the kernel would do, done by two more processes (D, F3).
//!
//! - Rings, control blocks and the info area lie in the pool (`pool.rs`, `layout.rs`), shared
//!   memory that is mapped before `main`. A process that is forked from a traced one has the
//!   mapping, and takes a free slot in it.
//! - Two daemons are forked before `main` (`spawn.rs`) and share the memory, too. The worker
//!   (`worker.rs`) reads the rings and writes the traces (`output.rs`); the watchdog
//!   (`watchdog.rs`) sees processes end. Either replaces the other one if it dies, and goes on
//!   where the journal says (`journal.rs`).
//! - The program has no descriptor, no child and no thread more than without; what it and the
//!   daemons have to tell each other is in shared memory (`header.rs`).
//!
//! What was committed is lost only if the program and both daemons are killed at the same moment:
//! the memory is gone then. If only the daemons are, the program goes on, and when it exits, a last
//! process writes what there is.

mod clock;
mod cpu_avoidance;
mod daemon;
mod destination;
mod filter;
mod header;
mod journal;
mod layout;
mod namespace;
mod output;
mod place;
mod pool;
mod spawn;
mod state;
mod watchdog;
mod worker;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syscalls::Errno;
use usertrace_ctf::Version;
use usertrace_sys::Update;
use usertrace_sys::filter::Filter;
use usertrace_sys::uapi::{
    LTT_CHANNEL_MAIN, LTT_MODE_BLOCK, LTT_MODE_DISCARD, LTT_MODE_OVERWRITE, LTT_PROTOCOL_RSEQ,
    LTT_PROTOCOL_SHARED, LTT_SCOPE_CPU, LTT_SCOPE_GLOBAL, LTT_SCOPE_THREAD, LttInfoTrace,
    LttTracebuf,
};

use self::clock::TraceClock;
use self::daemon::Task;
use self::destination::Output;
use self::header::{Entry, PROCESSES};
use self::layout::{Layout, Rings};
use self::pool::Pool;
use self::state::ProcessState;
pub(super) use self::state::{Fallback, LEN};
use super::env;
use super::kernel::Kernel;
use super::shared::shared;
use super::status::NoFallback;
use crate::os::fork_private;
use crate::os::signal::SignalMaskGuard;
use crate::os::{futex, process, thread};
use crate::writer::{Prefault, ReaderWakeup};

/// Generation of the only trace.
const GENERATION: u64 = 1;
/// Rings of a channel with rings for threads. Threads beyond that share.
const THREAD_RINGS: u32 = 64;
/// Which part of the address space that a process may have the pool takes at most.
const SHARE: u64 = 8;
/// How long a child waits for a slot while there are processes that have ended and have theirs
/// still.
const SLOT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a process waits at its end until the daemons have written what it wrote. A disk that is
/// busy with others can take seconds.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// The same where nobody writes it after its end, and in a trace that blocks.
const LAST_PATIENCE: Duration = Duration::from_secs(30);
/// How long to sleep before looking again whether there is still somebody to wait for.
const LOOK: Duration = Duration::from_millis(20);

/// What the program's environment asks for.
pub(super) fn start(settings: &env::Fast, rseq: bool) -> Result<&'static Fallback, NoFallback> {
    let place = &shared().fast;
    // SAFETY: only this function stores there, in this copy of the crate or in another one that is
    // laid out like it: what it stores stays. Pairs with that store.
    if let Some(fast) = unsafe { place.load(Ordering::Acquire).cast::<Fallback>().as_ref() } {
        return Ok(fast);
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
    let version = match settings.ctf {
        env::Ctf::V1_8 => Version::V1_8,
        env::Ctf::V2 => Version::V2,
    };
    match settings.directory() {
        None => Ok(Output::NULL),
        Some(path) => std::path::absolute(path)
            .map(|path| Output::below(path, version))
            .map_err(|_| NoFallback::Directory),
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
        subbuf_count: settings
            .subbuf_count
            .unwrap_or_else(|| env::default_subbuf_count(main_rings)),
        nr_rings: main_rings,
        scope: main_scope,
        mode,
        protocol,
    };
    [control, main]
}

fn set_up(settings: &env::Fast, rseq: bool, output: Output) -> Result<Fallback, NoFallback> {
    let filter = filter::filter(settings)?;
    let channels = channels(settings, rseq);
    let asked = Layout::new(channels, PROCESSES).ok_or(NoFallback::Sizes)?;
    let (pool, limited) = map(&asked)?;
    let channels = pool.layout().channels;
    // SAFETY: zeros are those of a process that has no slot.
    let own =
        unsafe { fork_private::map::<ProcessState>() }.ok_or(NoFallback::Memory(Errno::ENOMEM));
    // SAFETY: nobody was told of it yet.
    let own = own.inspect_err(|_| unsafe { pool.unmap() })?;

    let clock = TraceClock::start(settings.clock);
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
    entry.claim(pid, 0);
    entry.publish(pid, 0, clock.first().realtime, thread::name());
    // SAFETY: just mapped, and stays from here on, other than when the daemons cannot be started.
    unsafe { own.as_ref() }.slot.store(1, Ordering::Release);
    let task = Task {
        pool,
        output,
        clock,
    };
    let directory = task.output.directory();
    let detach = &pool.header().detach;
    let started = spawn::detached(directory, detach, |program| watchdog::start(&task, program));
    if let Err(errno) = started {
        // SAFETY: no daemon runs, and this process has nothing of it.
        unsafe { pool.unmap() };
        return Err(NoFallback::Process(errno));
    }
    pool.restrict();
    Ok(Fallback {
        pool,
        process: own,
        open: AtomicU32::new(0),
        detached_slots: AtomicU64::new(0),
        untraced: AtomicU32::new(0),
        namespace: AtomicU64::new(0),
        limited: limited.unwrap_or(0),
        quiet: env::is_quiet(),
        prefault: settings.prefault,
        task,
    })
}

/// Maps a pool like the one that is asked for. It is smaller where the process may not have as much
/// address space, or not have it mapped: then its length is told, too.
fn map(asked: &Layout) -> Result<(Pool, Option<u64>), NoFallback> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel writes to `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    let mut share = usize::MAX;
    if limit.rlim_cur != libc::RLIM_INFINITY {
        share = usize::try_from(limit.rlim_cur / SHARE).unwrap_or(share);
    }
    loop {
        let layout = Layout::within(asked.channels, asked.slots, share)
            .ok_or(NoFallback::Memory(Errno::ENOMEM))?;
        let len = layout.len();
        match Pool::map(layout) {
            Ok(pool) => return Ok((pool, (len < asked.len()).then_some(len as u64))),
            Err(_) => share = len / 2,
        }
    }
}

impl Fallback {
    fn process(&self) -> &ProcessState {
        // SAFETY: mapped for ever, and all atomic.
        unsafe { self.process.as_ref() }
    }

    /// This process's slot, taken now if it has none.
    fn slot(&self) -> Result<usize, Errno> {
        // Pairs with the store in `take_slot`: the slot is open.
        match self.process().slot.load(Ordering::Acquire) {
            0 => {
                let _held = SignalMaskGuard::new();
                self.take_slot()
            }
            slot => Ok(slot as usize - 1),
        }
    }

    fn take_slot(&self) -> Result<usize, Errno> {
        if self.untraced.load(Ordering::Relaxed) != 0 {
            return Err(Errno::ESRCH);
        }
        if self.process().busy.swap(1, Ordering::Acquire) != 0 {
            return Err(Errno::EAGAIN);
        }
        let taken = self.take();
        if let Ok(slot) = taken {
            self.process()
                .slot
                .store(slot as u32 + 1, Ordering::Release);
        }
        self.process().busy.store(0, Ordering::Release);
        taken
    }

    /// How long to wait for the daemons: in a trace that blocks, nothing is to be lost.
    fn patience(&self, otherwise: Duration) -> Duration {
        match self.pool.layout().channels[LTT_CHANNEL_MAIN].mode {
            LTT_MODE_BLOCK => LAST_PATIENCE,
            _ => otherwise,
        }
    }

    /// Claims a free slot. If there is none, it waits until the watchdog has looked who has ended,
    /// and as long as such processes have slots that the worker is about to free.
    fn claim(&self, pid: u32) -> Option<usize> {
        let header = self.pool.header();
        let namespace = self.namespace.load(Ordering::Relaxed);
        let begun = crate::clock::monotonic();
        let patience = self.patience(SLOT_PATIENCE);
        let mut wanted = None;
        loop {
            let freed = header.freed.load(Ordering::SeqCst);
            // Before it is looked for a free entry: one that was left by then is free, or left
            // still. Acquire, by SeqCst: pairs with the watchdog's store after it has looked.
            let looked = header.looked.load(Ordering::SeqCst);
            let is_known =
                wanted.is_some_and(|wanted| looked.wrapping_sub(wanted).cast_signed() >= 0);
            let waits = !is_known || header.entries.iter().any(Entry::has_ended);
            let detached = self.detached_slots.load(Ordering::Relaxed);
            let entries = header.entries[..self.pool.layout().slots].iter();
            let mut entries = entries
                .enumerate()
                .filter(|(slot, _)| detached & (1 << slot) == 0);
            if let Some((slot, _)) = entries.find(|(_, entry)| entry.claim(pid, namespace)) {
                return Some(slot);
            }
            if self.process().refused.load(Ordering::Relaxed) != 0 {
                return None;
            }
            let waited = Duration::from_nanos(crate::clock::monotonic().saturating_sub(begun));
            if !waits || waited >= patience || !header.worker_wakeup.can_make_room() {
                self.process().refused.store(1, Ordering::Relaxed);
                header.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            wanted.get_or_insert_with(|| {
                header.wanted.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
            });
            header.worker_wakeup.notify();
            futex::wait(&header.freed, freed, Some(LOOK));
        }
    }

    fn take(&self) -> Result<usize, Errno> {
        let header = self.pool.header();
        let pid = process::id();
        self.look_for_namespace();
        let slot = self.claim(pid).ok_or(Errno::ENOSPC)?;
        let entry = &header.entries[slot];
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
            self.pool.detach_slot(before);
            self.detached_slots.fetch_or(1 << before, Ordering::Relaxed);
        }
        let namespace = self.namespace.load(Ordering::Relaxed);
        entry.publish(pid, namespace, crate::clock::realtime(), thread::name());
        header.worker_wakeup.notify();
        Ok(slot)
    }

    /// Notes whether this process lies in a PID namespace of its own. Its children inherit the
    /// note.
    fn look_for_namespace(&self) {
        if namespace::is_entered() {
            self.namespace.store(namespace::own(), Ordering::Relaxed);
        }
    }

    /// Something of a slot's rings is not consumed.
    fn has_unread(&self, slot: usize) -> bool {
        self.any_ring(slot, |head, consumed| head != consumed)
    }

    /// An event was written to a slot's rings.
    fn has_written(&self, slot: usize) -> bool {
        self.any_ring(slot, |head, _| head != 0)
    }

    /// Whether this is so for the `head` and the `consumed` of one of a slot's rings.
    fn any_ring(&self, slot: usize, is_so: impl Fn(u64, u64) -> bool) -> bool {
        let main = &self.pool.layout().channels[LTT_CHANNEL_MAIN];
        (0..main.nr_rings).any(|ring| {
            let control = self.pool.ring_control(slot, LTT_CHANNEL_MAIN, ring);
            let head = control.head().load(Ordering::Relaxed);
            is_so(head, control.consumed().load(Ordering::Relaxed))
        })
    }

    /// Asks for everything that this process wrote to be written to its trace, and waits for that.
    ///
    /// What somebody does next who waited for this process finds a trace that is whole. And where
    /// this is the first process of its PID namespace, the kernel kills the daemons with it.
    fn wait_until_written(&self) {
        let header = self.pool.header();
        let slot = match self.process().slot.load(Ordering::Acquire) {
            0 => return,
            slot => slot as usize - 1,
        };
        let entry = &header.entries[slot];
        // The daemons end with process 1 of their own namespace. Asked without a system call, which
        // a filter may kill the program for.
        let is_last = matches!(entry.process(), Some((1, _))) && entry.namespace() == 0;
        let wants = is_last || !header.detach.is_awaited();
        // A trace that is written so far is to be completed, too, if nobody can do that later.
        let has_some = self.has_unread(slot)
            || header.entries.iter().any(Entry::has_ended)
            || is_last && self.has_written(slot);
        if !wants || !has_some || self.task.output.directory().is_none() {
            return;
        }
        entry.ends.store(is_last.into(), Ordering::Relaxed);
        // Release: pairs with the worker's load, which then sees `ends`.
        entry.asked.fetch_add(1, Ordering::SeqCst);
        let asked = header.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        header.worker_wakeup.notify();
        let patience = match is_last {
            true => LAST_PATIENCE,
            false => self.patience(END_PATIENCE),
        };
        let begun = Instant::now();
        loop {
            // Acquire: pairs with the worker's store.
            let answered = header.answered.load(Ordering::Acquire);
            let missing = asked.wrapping_sub(answered).cast_signed() > 0;
            if !missing || header.worker_wakeup.has_no_reader() || begun.elapsed() >= patience {
                return;
            }
            futex::wait(&header.answered, answered, Some(LOOK));
        }
    }

    /// Says what went wrong with the traces where the program's user sees it.
    fn complain(&self) {
        let (Some(errno), Some(directory)) = (self.error(), self.directory()) else {
            return;
        };
        // Nobody is told twice: who waits for the daemons tells it.
        if self.quiet || self.pool.header().detach.is_awaited() {
            return;
        }
        let error = std::io::Error::from_raw_os_error(errno.into_raw());
        super::complaint::report_output_error(directory, &error);
    }

    /// How much address space the rings have, if that is less than was asked for.
    pub(super) fn limited(&self) -> Option<u64> {
        (self.limited != 0).then_some(self.limited)
    }

    /// Adds the rules of the trace to a filter.
    pub(super) fn copy_rules(&self, filter: &mut Filter) {
        self.pool.copy_rules(filter);
    }

    /// Where the traces go; nothing if nowhere.
    pub(super) fn directory(&self) -> Option<&'static std::path::Path> {
        self.task.output.directory()
    }

    /// Process ids of the daemons.
    pub(super) fn daemons(&self) -> [u32; 2] {
        let words = &self.pool.header().worker_wakeup.readers;
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

// SAFETY: the areas are as the header says, and stay; a child of `fork` gets others. All of it is
// atomic access and raw system calls.
unsafe impl Kernel for Fallback {
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
            if self.process().told.swap(1, Ordering::Relaxed) != 0 {
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
        // Nothing is made for a process that wrote nothing (D6).
        if self.has_unread(slot) {
            let header = self.pool.header();
            header.entries[slot].asked.fetch_add(1, Ordering::SeqCst);
            header.worker_wakeup.notify();
        }
        Ok(())
    }

    fn removes_traces(&self) -> bool {
        false
    }

    fn needs_rseq(&self) -> bool {
        self.pool.layout().channels[LTT_CHANNEL_MAIN].protocol == LTT_PROTOCOL_RSEQ
    }

    fn reader_wakeup(&self) -> *const ReaderWakeup {
        &raw const self.pool.header().worker_wakeup
    }

    fn prefault(&self) -> Prefault {
        self.prefault
    }

    fn leaves_room(&self) -> bool {
        true
    }

    fn before_fork(&self) {
        self.look_for_namespace();
        self.pool.header().forks.fetch_add(1, Ordering::SeqCst);
    }

    fn after_fork(&self) {
        // The child is known before it writes anything, so that the daemons wait for it if its
        // parent ends now.
        let _ = self.slot();
        self.pool.header().forks.fetch_sub(1, Ordering::SeqCst);
    }

    /// If both daemons died, others read the rest. Not before: in the middle of an event is no
    /// place to fork.
    fn at_exit(&self) {
        let header = self.pool.header();
        if header.worker_wakeup.has_no_reader() && header.rescued.swap(1, Ordering::SeqCst) == 0 {
            header.worker_wakeup.gone.store(1, Ordering::SeqCst);
            let directory = self.task.output.directory();
            // The child is to read this process's slot, not to take one.
            self.untraced.store(1, Ordering::Relaxed);
            spawn::rescue(directory, |program| watchdog::start(&self.task, program));
            self.untraced.store(0, Ordering::Relaxed);
        }
        self.wait_until_written();
        self.complain();
    }
}
