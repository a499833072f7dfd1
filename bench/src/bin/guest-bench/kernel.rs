//! The kernel's work for traced programs and for controllers of traces, compared with its usual
//! work: page faults (F2), system calls with nothing to do (A1, A2), and starts of a trace (A4).
//!
//! Each part calls the kernel directly, without the library, and runs in its own process, with
//! areas that were not used before.

use std::ffi::c_int;
use std::hint::black_box;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use syscalls::{Sysno, raw};
use usertrace::clock::cycles;
use usertrace_bench::{Faults, IdleCalls, PROCESSES, Starts, median};
use usertrace_sys::Calls;
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LttInfo, LttInfoChannel, LttTracebuf};

use crate::control::{Trace, counted_write, write};
use crate::process::{Process, all_sleep, apart, until_ready};
use crate::{counts, last_error, mean, no, turn};

/// Pages of the ring, and of the file that it is compared with.
const PAGES: usize = 1024;
const PAGE: usize = 4096;
/// Pages that are measured together. A group is larger than the largest number of pages that a
/// fault maps. The kernel batches the charges of a control group by the same number of pages. The
/// result is the median over the groups, which excludes timer interrupts.
const GROUP: usize = 32;
/// Sub-buffers of the ring with these pages.
const SUBBUFS: u32 = 64;
/// Sub-buffers of a ring with the pages: their size and number.
const GEOMETRY: (u32, u32) = ((PAGES * PAGE) as u32 / SUBBUFS, SUBBUFS);

/// Starts that are measured. The result is their median, because an occasional start has to
/// allocate memory.
const STARTS: usize = 15;

/// Timeout of each wait.
const LIMIT: Duration = Duration::from_secs(120);

/// This process's areas, and its buffer of the only trace.
pub(crate) struct Traced {
    calls: Calls,
    areas: LttTracebuf,
    buffer: NonNull<u8>,
}

impl Traced {
    pub(crate) fn new() -> Result<Self> {
        let (calls, areas) = register(0)?;
        let mut buffer = None;
        calls.update(&mut buffer).map_err(no)?;
        let buffer = buffer.context("the trace has no buffer for this process")?;
        Ok(Self {
            calls,
            areas,
            buffer,
        })
    }

    /// The address of ring 0 of `main`.
    pub(crate) fn ring(&self) -> *mut u8 {
        ring(&self.areas, self.buffer)
    }
}

/// The address of ring 0 of `main` in a buffer.
pub(crate) fn ring(areas: &LttTracebuf, buffer: NonNull<u8>) -> *mut u8 {
    let slot_len = areas.buffers_stride as usize;
    let slot = (buffer.addr().get() - areas.buffers as usize) / slot_len;
    let info = areas.info as usize;
    // SAFETY: these addresses are within the info area, which stays mapped. Its layout and the
    // geometry of the channels of a started trace do not change.
    let offset = unsafe {
        let field = |offset: usize| ((info + offset) as *const u32).read_volatile() as usize;
        let channel = info
            + field(offset_of!(LttInfo, trace_offset))
            + slot * field(offset_of!(LttInfo, trace_stride))
            + field(offset_of!(LttInfo, channel_offset))
            + LTT_CHANNEL_MAIN * field(offset_of!(LttInfo, channel_stride));
        ((channel + offset_of!(LttInfoChannel, buffers_offset)) as *const u64).read_volatile()
    };
    buffer.as_ptr().wrapping_add(offset as usize)
}

/// Maps the areas, and requests this signal for updates; 0: none.
pub(crate) fn register(signo: u32) -> Result<(Calls, LttTracebuf)> {
    let calls = Calls::discover()?;
    let areas = calls.alloc_tracebuf(signo).map_err(no)?;
    Ok((calls, areas))
}

/// Measures the first writes to pages of a memfd and of a ring.
pub(crate) fn faults() -> Result<Faults> {
    let [memfd, memfd_in_order] = apart(|| {
        let alone = first_touch(memfd()?, backwards())?;
        Ok([alone.count, first_touch(memfd()?, 0..PAGES)?.count])
    })?;
    let [alone] = apart(|| {
        let _trace = Trace::started_with("faults", GEOMETRY, None)?;
        let touched = first_touch(Traced::new()?.ring(), backwards())?;
        ensure!(
            touched.faults == PAGES,
            "{} faults for {PAGES} pages, expected one for each page",
            touched.faults
        );
        Ok([touched.count])
    })?;
    let [in_order] = apart(|| {
        let _trace = Trace::started_with("faults", GEOMETRY, None)?;
        Ok([first_touch(Traced::new()?.ring(), 0..PAGES)?.count])
    })?;
    Ok(Faults {
        memfd,
        memfd_in_order,
        alone,
        in_order,
    })
}

/// All pages, from the last to the first. The page behind the faulting one is always present, so a
/// fault maps no other pages.
fn backwards() -> impl Iterator<Item = usize> + Clone {
    (0..PAGES).rev()
}

/// The cost of first writes to pages.
pub(crate) struct Touched {
    /// Instructions per page.
    pub(crate) count: f64,
    /// Page faults.
    faults: usize,
}

pub(crate) fn first_touch(at: *mut u8, pages: impl Iterator<Item = usize>) -> Result<Touched> {
    let pages: Vec<usize> = pages.collect();
    let touch = |counts: &mut [f64]| {
        for (group, count) in pages.chunks(GROUP).zip(counts) {
            let begin = cycles();
            for page in group {
                // SAFETY: the page is within the mapping, which contains no Rust object.
                unsafe { at.add(page * PAGE).cast::<u64>().write_volatile(1) };
            }
            *count = (cycles() - begin) as f64;
        }
    };
    // Ones, because pages of zeros would fault at their first write, too.
    let [mut first, mut second] = [(); 2].map(|()| vec![1.0; pages.len() / GROUP]);
    let before = minor_faults()?;
    touch(&mut first);
    let faults = minor_faults()? - before;
    touch(&mut second);
    Ok(Touched {
        // The second pass has only the cost of the loop.
        count: (median(&first) - median(&second)) / GROUP as f64,
        faults,
    })
}

/// Minor page faults of this process.
fn minor_faults() -> Result<usize> {
    // Reading /proc could cause page faults itself.
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `getrusage` fills the structure unless it fails.
    let usage = unsafe {
        let ret = libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        ensure!(ret == 0, "getrusage: {}", last_error());
        usage.assume_init()
    };
    Ok(usage.ru_minflt.try_into()?)
}

/// Maps a new memfd, shared.
fn memfd() -> Result<*mut u8> {
    // SAFETY: the name is a C string. The new mapping stays until this process ends.
    unsafe {
        let fd = libc::memfd_create(c"guest-bench".as_ptr(), libc::MFD_CLOEXEC);
        ensure!(fd >= 0, "memfd_create: {}", last_error());
        ensure!(
            libc::ftruncate(fd, (PAGES * PAGE) as libc::off_t) == 0,
            "ftruncate: {}",
            last_error()
        );
        let at = libc::mmap(
            null_mut(),
            PAGES * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        );
        ensure!(at != libc::MAP_FAILED, "mmap: {}", last_error());
        Ok(at.cast())
    }
}

/// Measures system calls that have nothing to do.
pub(crate) fn idle_calls() -> Result<IdleCalls> {
    let [getppid, update, switch] = apart(|| {
        let _trace = Trace::started_with("calls", (65536, SUBBUFS), None)?;
        idle_counts(&Traced::new()?)
    })?;
    Ok(IdleCalls {
        getppid,
        update,
        switch,
    })
}

/// Instructions of `getppid`, of `ltt_update` without a second trace, and of `ltt_switch`.
pub(crate) fn idle_counts(traced: &Traced) -> Result<[f64; 3]> {
    let abi = *traced.calls.abi();
    // The first switch creates the consumer files, so later ones have nothing to do.
    traced.calls.switch(traced.buffer).map_err(no)?;
    let turn = turn()?;

    // SAFETY: `getppid` has no arguments.
    let getppid = idle(|| unsafe { raw::syscall0(Sysno::getppid as usize) })?;
    let (mut none, mut active, mut filter) = (0usize, 0u32, 0u32);
    let args = [
        &raw mut none as usize,
        (&raw mut active).addr(),
        (&raw mut filter).addr(),
    ];
    // SAFETY: `ltt_update` writes a pointer and two integers to these variables.
    let update =
        idle(|| unsafe { raw::syscall3(abi.nr_ltt_update as usize, args[0], args[1], args[2]) })?;
    ensure!(none == 0, "there is a second trace");
    // SAFETY: `ltt_switch` only compares the address.
    let switch =
        idle(|| unsafe { raw::syscall1(abi.nr_ltt_switch as usize, traced.buffer.addr().get()) })?;
    Ok([getppid - turn, update - turn, switch - turn])
}

/// Instructions of a system call, which must succeed.
fn idle(call: impl Fn() -> usize) -> Result<f64> {
    Ok(mean(&counts(|n| {
        black_box(n);
        let ret = call().cast_signed();
        ensure!(ret >= 0, "the system call failed with error {}", -ret);
        Ok(())
    })?))
}

/// Measures starts of a trace while processes with buffers sleep: one, and [`PROCESSES`].
pub(crate) fn starts() -> Result<Starts> {
    let [one, many] = apart(|| {
        let mut sleepers = Sleepers::new(0);
        Ok([sleepers.start(1)?, sleepers.start(PROCESSES)?])
    })?;
    let [one_by_signal, half_by_signal, many_by_signal] = apart(|| {
        let mut sleepers = Sleepers::new(libc::SIGUSR1.cast_unsigned());
        Ok([
            sleepers.start(1)?,
            sleepers.start(PROCESSES / 2)?,
            sleepers.start(PROCESSES)?,
        ])
    })?;
    Ok(Starts {
        one,
        many,
        one_by_signal,
        half_by_signal,
        many_by_signal,
    })
}

/// Sleeping processes that have requested buffers.
struct Sleepers {
    processes: Vec<Process>,
    signo: u32,
}

impl Sleepers {
    fn new(signo: u32) -> Self {
        Self {
            processes: Vec::new(),
            signo,
        }
    }

    /// Instructions of the `write()` that starts a trace while `count` processes sleep.
    fn start(&mut self, count: usize) -> Result<f64> {
        while self.processes.len() < count {
            self.processes.push(sleeper(self.signo)?);
        }
        // The first start is not counted: it may allocate the info area, and fills caches.
        let starts: Vec<f64> = (0..=STARTS)
            .map(|_| {
                // This reads a file for each process, so it comes before the preparation of what is
                // measured.
                all_sleep(&self.processes, LIMIT)?;
                let trace = Trace::create("starts")?;
                let instructions = counted_write(&trace.start_file(), "1")?;
                write(&trace.start_file(), "0")?;
                Ok(instructions as f64)
            })
            .collect::<Result<_>>()?;
        Ok(median(&starts[1..]))
    }
}

/// Starts a process that requests buffers, and then only sleeps and handles the signal.
fn sleeper(signo: u32) -> Result<Process> {
    until_ready(|ready| {
        if signo != 0 {
            handle(signo.cast_signed())?;
        }
        register(signo)?;
        ready()?;
        loop {
            // SAFETY: `pause` has no arguments.
            unsafe { libc::pause() };
        }
    })
}

/// Handles a signal by doing nothing. `alloc_tracebuf` refuses signals that would end the process.
pub(crate) fn handle(signo: c_int) -> Result<()> {
    extern "C" fn nothing(_signal: c_int) {}
    let nothing: extern "C" fn(c_int) = nothing;
    // SAFETY: the handler does nothing.
    let before = unsafe { libc::signal(signo, nothing as libc::sighandler_t) };
    ensure!(before != libc::SIG_ERR, "signal: {}", last_error());
    Ok(())
}
