//! The fallback: the back end for kernels without trace buffers (D, F3).
//!
//! - Rings, control blocks and the info area lie in the pool (`pool.rs`, `layout.rs`), shared
//!   memory that is mapped before `main`. A child of a traced process inherits the mapping, and
//!   takes a free slot in it.
//! - Two daemons are forked before `main` (`spawn.rs`) and share the memory. The worker
//!   (`worker.rs`) reads the rings and writes the traces (`output.rs`). The watchdog
//!   (`watchdog.rs`) sees processes end. If either dies, the other one replaces it, and it goes on
//!   from the journal (`journal.rs`).
//! - The program gets no descriptor, no child and no thread by that. It shares state with the
//!   daemons in memory only (`header.rs`).
//!
//! Committed events are lost only if the program and both daemons are killed at the same moment, as
//! their memory is freed then. If only the daemons die, the program goes on, and a last process
//! writes the events when it exits.

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
use self::layout::{CHANNELS, Layout, Rings, Tables};
use self::pool::Pool;
use self::state::ProcessState;
pub(super) use self::state::{Fallback, LEN};
use super::env;
use super::kernel::Kernel;
use super::shared::shared;
use super::status::NoFallback;
use crate::os::signal::SignalMaskGuard;
use crate::os::{fork_private, futex, process, thread};
use crate::writer::{Prefault, ReaderWakeup};

/// The generation of the only trace.
const GENERATION: u64 = 1;
/// Rings of a channel with a ring for each thread. Further threads share rings.
const THREAD_RINGS: u32 = 64;
/// The pool takes at most one part in so many of the address space that `RLIMIT_AS` permits.
const SHARE: u64 = 8;
/// How long a child waits for a slot while processes have ended whose slots are not free yet.
const SLOT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a process waits at its end until the daemons have written its events. A busy disk can
/// take seconds.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// The same if the daemons end with the process, and in `block` mode.
const LAST_PATIENCE: Duration = Duration::from_secs(30);
/// How long to sleep before checking again whether the daemons still run.
const LOOK: Duration = Duration::from_millis(20);

/// Starts the fallback as the program's environment says, unless that was done.
pub(super) fn start(settings: &env::Fast, rseq: bool) -> Result<&'static Fallback, NoFallback> {
    let place = &shared().fast;
    // SAFETY: NULL, or a `Fallback` that this function leaked, in this copy of the crate or in
    // another one with the same layout. Acquire: pairs with the store below.
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

/// The output directory, as an absolute path: daemons have another working directory.
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

/// Sizes and properties of the control channel and the main channel.
fn channels(settings: &env::Fast, rseq: bool) -> [Rings; CHANNELS] {
    // SAFETY: the call accesses no memory of this program.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.clamp(1, 8192) as u32;
    // Tables belong to CPUs, and a process that uses them has rings of CPUs, too.
    let per_cpu = rseq && (settings.rings == env::Rings::Cpu || !settings.count.is_empty());
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
    // Room for descriptions of some 20,000 events. Unused pages cost address space only.
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

/// Maps the pool, and starts the daemons.
fn set_up(settings: &env::Fast, rseq: bool, output: Output) -> Result<Fallback, NoFallback> {
    let mut filter = filter::filter(settings)?;
    let cell_sizes = filter::cell_sizes(settings, &mut filter)?;
    let channels = channels(settings, rseq);
    let tables = Tables::new(channels[LTT_CHANNEL_MAIN].nr_rings, cell_sizes);
    if tables.count() > 0 && !rseq {
        return Err(NoFallback::CountWithoutRseq);
    }
    let asked = Layout::new(channels, tables, PROCESSES).ok_or(NoFallback::Sizes)?;
    let (pool, limited) = map(&asked)?;
    let channels = pool.layout().channels;
    // SAFETY: zeros are the state of a process without a slot.
    let own =
        unsafe { fork_private::map::<ProcessState>() }.ok_or(NoFallback::Memory(Errno::ENOMEM));
    // SAFETY: no other code has the pool yet.
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
    // SAFETY: just mapped; it is never unmapped.
    unsafe { own.as_ref() }.slot.store(1, Ordering::Release);
    let task = Task {
        pool,
        output,
        clock,
    };
    let directory = task.output.directory();
    let detach = &pool.header().detach;
    let started = spawn::detached(directory, detach, |opened| watchdog::start(&task, opened));
    if let Err(errno) = started {
        // SAFETY: no daemon runs, and this process has no references into the pool.
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

/// Maps a pool with a layout, or a smaller one if there is not enough address space. Then its
/// length comes back, too.
fn map(asked: &Layout) -> Result<(Pool, Option<u64>), NoFallback> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel writes to `limit` alone.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    let mut share = usize::MAX;
    if limit.rlim_cur != libc::RLIM_INFINITY {
        share = usize::try_from(limit.rlim_cur / SHARE).unwrap_or(share);
    }
    loop {
        let layout = asked
            .within(share)
            .ok_or(NoFallback::Memory(Errno::ENOMEM))?;
        let len = layout.len();
        match Pool::map(layout) {
            Ok(pool) => return Ok((pool, (len < asked.len()).then_some(len as u64))),
            Err(_) => share = len / 2,
        }
    }
}

impl Fallback {
    /// State of this process alone.
    fn process(&self) -> &ProcessState {
        // SAFETY: mapped by `set_up` and never unmapped; all atomic.
        unsafe { self.process.as_ref() }
    }

    /// This process's slot, which it takes now if it has none.
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

    /// Takes a slot, unless another thread is doing so.
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

    /// Claims a free slot.
    ///
    /// If there is none, this waits until the watchdog has looked which processes have ended, and
    /// then as long as the worker is about to free their slots.
    fn claim(&self, pid: u32) -> Option<usize> {
        let header = self.pool.header();
        let namespace = self.namespace.load(Ordering::Relaxed);
        let begun = crate::clock::monotonic();
        let patience = self.patience(SLOT_PATIENCE);
        let mut wanted = None;
        loop {
            let freed = header.freed.load(Ordering::SeqCst);
            // Loaded before the search for a free entry: an entry whose process had ended by then
            // is free, or still marked. SeqCst includes the acquire that pairs with the watchdog's
            // store.
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

    /// Takes a slot for this process, and detaches it from its parent's.
    fn take(&self) -> Result<usize, Errno> {
        let header = self.pool.header();
        let pid = process::id();
        self.look_for_namespace();
        let slot = self.claim(pid).ok_or(Errno::ENOSPC)?;
        let entry = &header.entries[slot];
        // SeqCst: either this sees that the daemons end, or they see the entry.
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

    /// Stores this process's PID namespace, if it has entered another one. Its children inherit
    /// that.
    fn look_for_namespace(&self) {
        if namespace::is_entered() {
            self.namespace.store(namespace::own(), Ordering::Relaxed);
        }
    }

    /// Whether a slot's rings have events that were not consumed.
    fn has_unread(&self, slot: usize) -> bool {
        self.any_ring(slot, |head, consumed| head != consumed)
    }

    /// Whether an event was ever written to a slot's rings.
    fn has_written(&self, slot: usize) -> bool {
        self.any_ring(slot, |head, _| head != 0)
    }

    /// Whether a condition holds for `head` and `consumed` of any ring or table of a slot. Those of
    /// a table differ as soon as anything was counted.
    fn any_ring(&self, slot: usize, is_so: impl Fn(u64, u64) -> bool) -> bool {
        let layout = self.pool.layout();
        let is_so = |channel: usize, ring: u32| {
            let control = self.pool.ring_control(slot, channel, ring);
            let head = control.head().load(Ordering::Relaxed);
            is_so(head, control.consumed().load(Ordering::Relaxed))
        };
        (LTT_CHANNEL_MAIN..layout.nr_channels()).any(|channel| {
            let mut rings = 0..layout.rings(channel).nr_rings;
            rings.any(|ring| is_so(channel, ring))
        })
    }

    /// Asks the worker to write all events of this process to its trace, and waits for that.
    ///
    /// So a script that waited for the process then finds a complete trace. And if this is the
    /// first process of its PID namespace, the kernel kills the daemons with it.
    fn wait_until_written(&self) {
        let header = self.pool.header();
        let slot = match self.process().slot.load(Ordering::Acquire) {
            0 => return,
            slot => slot as usize - 1,
        };
        let entry = &header.entries[slot];
        // The daemons end with process 1 of their own namespace. The entry tells without a system
        // call, for which a filter may kill the program.
        let is_last = matches!(entry.process(), Some((1, _))) && entry.namespace() == 0;
        let wants = is_last || !header.detach.is_awaited();
        // If the daemons cannot complete the trace later, they must do it now, even if all is
        // written.
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

    /// Reports an error of the traces on the program's standard error.
    fn complain(&self) {
        let (Some(errno), Some(directory)) = (self.error(), self.directory()) else {
            return;
        };
        // `usertrace record`, which waits for the daemons, reports it itself.
        if self.quiet || self.pool.header().detach.is_awaited() {
            return;
        }
        let error = std::io::Error::from_raw_os_error(errno.into_raw());
        super::complaint::report_output_error(directory, &error);
    }

    /// Address space of the rings, if that is less than the settings require.
    pub(super) fn limited(&self) -> Option<u64> {
        (self.limited != 0).then_some(self.limited)
    }

    /// Adds the rules of the trace to a filter.
    pub(super) fn copy_rules(&self, filter: &mut Filter) {
        self.pool.copy_rules(filter);
    }

    /// The directory of the traces; none if they go nowhere.
    pub(super) fn directory(&self) -> Option<&'static std::path::Path> {
        self.task.output.directory()
    }

    /// Process ids of the daemons.
    pub(super) fn daemons(&self) -> [u32; 2] {
        let words = &self.pool.header().worker_wakeup.readers;
        words.each_ref().map(|word| {
            let word = word.load(Ordering::Relaxed);
            // The kernel marked the word when the daemon died.
            if word & libc::FUTEX_OWNER_DIED != 0 {
                0
            } else {
                word
            }
        })
    }

    /// The error because of which the traces cannot be written at present.
    pub(super) fn error(&self) -> Option<Errno> {
        let error = self.pool.header().error.load(Ordering::Relaxed);
        (error != 0).then(|| Errno::new(error))
    }
}

// SAFETY: the areas are laid out as in `linux/ltt.h`, and are never unmapped; a child of `fork`
// gets others. All methods but `at_exit` only use atomics and raw system calls.
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
        // A process that wrote nothing gets no trace (D6).
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
        // The child takes a slot before it writes anything, so that the daemons wait for it if its
        // parent ends now.
        let _ = self.slot();
        self.pool.header().forks.fetch_sub(1, Ordering::SeqCst);
    }

    /// Starts new daemons if both died, and waits for the traces. This happens only here, as an
    /// event is no place to fork.
    fn at_exit(&self) {
        let header = self.pool.header();
        if header.worker_wakeup.has_no_reader() && header.rescued.swap(1, Ordering::SeqCst) == 0 {
            header.worker_wakeup.gone.store(1, Ordering::SeqCst);
            let directory = self.task.output.directory();
            // The child reads this process's slot, and must not take one.
            self.untraced.store(1, Ordering::Relaxed);
            spawn::rescue(directory, |opened| watchdog::start(&self.task, opened));
            self.untraced.store(0, Ordering::Relaxed);
        }
        self.wait_until_written();
        self.complain();
    }
}
