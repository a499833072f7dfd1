//! What the kernel does for traced programs and for whoever controls their traces, beside what it
//! does anyway: page faults (F2), system calls with nothing to do (A1, A2), and starts of a trace
//! (A4).
//!
//! All of it is done by hand, without the library. Each part has a process of its own, with areas
//! that nobody used.

use std::ffi::c_int;
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write, pipe};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use syscalls::{Sysno, raw};
use usertrace::clock::cycles;
use usertrace_bench::{Faults, IdleCalls, PROCESSES, Starts, median};
use usertrace_sys::Calls;
use usertrace_sys::uapi::{LTT_CHANNEL_MAIN, LttInfo, LttInfoChannel, LttTracebuf};

use crate::control::{Trace, write};
use crate::{counts, last_error, mean, no, turn};

/// Pages of the ring, and of the file it is compared with.
const PAGES: usize = 1024;
const PAGE: usize = 4096;
/// Pages that are counted together: more than one fault may bring, and as many as the kernel counts
/// for a control group before it writes that down. The median of these groups is taken, as a timer
/// that comes meanwhile is no cost of theirs.
const GROUP: usize = 32;
/// So many sub-buffers make a ring of that size.
const SUBBUFS: u32 = 64;

/// Starts that are counted, of which the median is taken: now and then one needs memory that others
/// left.
const STARTS: usize = 15;

/// How long anything may take that is waited for.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `body` in a process of its own, and returns the numbers that it found.
pub(crate) fn apart<const COUNT: usize>(
    body: impl FnOnce() -> Result<[f64; COUNT]>,
) -> Result<[f64; COUNT]> {
    let (mut from, mut to) = pipe()?;
    let child = fork(|| {
        let numbers = body()?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        Ok(to.write_all(&bytes)?)
    })?;
    drop(to);
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    child.join()?;
    let mut numbers = bytes.chunks_exact(8);
    Ok(std::array::from_fn(|_| {
        let bytes = numbers.next().and_then(|bytes| bytes.try_into().ok());
        f64::from_ne_bytes(bytes.expect("as many as were written"))
    }))
}

/// A child, which is killed when this is dropped.
struct Process(libc::pid_t);

/// A child that does this, and then ends.
fn fork(body: impl FnOnce() -> Result<()>) -> Result<Process> {
    // SAFETY: this program has one thread, so the child can do all that its parent can.
    match unsafe { libc::fork() } {
        -1 => bail!("fork: {}", last_error()),
        0 => {
            let status = match body() {
                Ok(()) => 0,
                Err(e) => {
                    eprintln!("guest-bench: {e:#}");
                    1
                }
            };
            // SAFETY: what the parent has to do at exit is not for the child.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(Process(pid)),
    }
}

impl Process {
    /// Waits for its good end.
    fn join(self) -> Result<()> {
        let mut status = 0;
        // SAFETY: the status is its own.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        std::mem::forget(self);
        ensure!(pid > 0, "waitpid: {}", last_error());
        ensure!(status == 0, "a part failed (status {status:#x})");
        Ok(())
    }

    /// Whether it sleeps, as opposed to being about to.
    fn sleeps(&self) -> Result<bool> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // The name before it can have any character.
        let state = stat.rsplit_once(") ").context("a state")?.1;
        ensure!(!state.starts_with('Z'), "a process ended that was to sleep");
        Ok(state.starts_with('S'))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: it is a child that nobody waited for, so the number is still its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, null_mut(), 0);
        }
    }
}

/// This process's areas, and its buffer of the trace that there is.
struct Traced {
    calls: Calls,
    areas: LttTracebuf,
    buffer: NonNull<u8>,
}

impl Traced {
    fn new() -> Result<Self> {
        let (calls, areas) = register(0)?;
        let mut buffer = None;
        calls.update(&mut buffer).map_err(no)?;
        let buffer = buffer.context("the trace has no buffer for us")?;
        Ok(Self {
            calls,
            areas,
            buffer,
        })
    }

    /// Where ring 0 of `main` is.
    fn ring(&self) -> *mut u8 {
        let slot_len = self.areas.buffers_stride as usize;
        let slot = (self.buffer.addr().get() - self.areas.buffers as usize) / slot_len;
        let info = self.areas.info as usize;
        // SAFETY: within the info area, which stays mapped. Where it has what, and what the trace's
        // channels are like, does not change.
        let offset = unsafe {
            let told = |offset: usize| ((info + offset) as *const u32).read_volatile() as usize;
            let channel = info
                + told(offset_of!(LttInfo, trace_offset))
                + slot * told(offset_of!(LttInfo, trace_stride))
                + told(offset_of!(LttInfo, channel_offset))
                + LTT_CHANNEL_MAIN * told(offset_of!(LttInfo, channel_stride));
            ((channel + offset_of!(LttInfoChannel, buffers_offset)) as *const u64).read_volatile()
        };
        self.buffer.as_ptr().wrapping_add(offset as usize)
    }
}

/// Maps the areas, as a program does that wants to be told of updates by this signal.
fn register(signo: u32) -> Result<(Calls, LttTracebuf)> {
    let calls = Calls::discover()?;
    let areas = calls.alloc_tracebuf(signo).map_err(no)?;
    Ok((calls, areas))
}

/// First writes to pages: of a file that is in memory, and of a ring.
pub(crate) fn faults() -> Result<Faults> {
    let [memfd, memfd_in_order] = apart(|| {
        let alone = first_touch(memfd()?, backwards())?;
        Ok([alone.count, first_touch(memfd()?, 0..PAGES)?.count])
    })?;
    let [alone] = apart(|| {
        let _trace = Trace::started_with("faults", (PAGES * PAGE) as u32 / SUBBUFS, SUBBUFS)?;
        let touched = first_touch(Traced::new()?.ring(), backwards())?;
        ensure!(
            touched.faults == PAGES,
            "{} faults brought {PAGES} pages, not one each",
            touched.faults
        );
        Ok([touched.count])
    })?;
    let [in_order] = apart(|| {
        let _trace = Trace::started_with("faults", (PAGES * PAGE) as u32 / SUBBUFS, SUBBUFS)?;
        Ok([first_touch(Traced::new()?.ring(), 0..PAGES)?.count])
    })?;
    Ok(Faults {
        memfd,
        memfd_in_order,
        alone,
        in_order,
    })
}

/// Pages that a fault finds present behind the one that it brings. So it brings no others.
fn backwards() -> impl Iterator<Item = usize> + Clone {
    (0..PAGES).rev()
}

/// What first writes to pages take.
struct Touched {
    /// Instructions, by page.
    count: f64,
    /// Page faults.
    faults: usize,
}

fn first_touch(at: *mut u8, pages: impl Iterator<Item = usize>) -> Result<Touched> {
    let pages: Vec<usize> = pages.collect();
    let touch = |counts: &mut [f64]| {
        for (group, count) in pages.chunks(GROUP).zip(counts) {
            let begin = cycles();
            for page in group {
                // SAFETY: within the mapping, where no Rust object lies.
                unsafe { at.add(page * PAGE).cast::<u64>().write_volatile(1) };
            }
            *count = (cycles() - begin) as f64;
        }
    };
    // Not zeros, of which the first write would be a fault, too.
    let [mut first, mut second] = [(); 2].map(|()| vec![1.0; PAGES / GROUP]);
    let before = minor_faults()?;
    touch(&mut first);
    let faults = minor_faults()? - before;
    touch(&mut second);
    Ok(Touched {
        // Without what the loop takes.
        count: (median(&first) - median(&second)) / GROUP as f64,
        faults,
    })
}

/// Page faults of this process that no file had to be read for.
fn minor_faults() -> Result<usize> {
    // Not from /proc: reading that may fault.
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: it fills the structure, if it does not fail.
    let usage = unsafe {
        let ret = libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        ensure!(ret == 0, "getrusage: {}", last_error());
        usage.assume_init()
    };
    Ok(usage.ru_minflt.try_into()?)
}

/// A new file in memory, mapped and shared.
fn memfd() -> Result<*mut u8> {
    // SAFETY: the name is a string; the mapping is a new one, and stays to this process's end.
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

/// System calls with nothing to do.
pub(crate) fn idle_calls() -> Result<IdleCalls> {
    let [getppid, update, switch] = apart(|| {
        let _trace = Trace::started_with("calls", 65536, SUBBUFS)?;
        let traced = Traced::new()?;
        let abi = *traced.calls.abi();
        // As a program calls that has something to show.
        traced.calls.switch(traced.buffer).map_err(no)?;
        let turn = turn()?;

        // SAFETY: it has no arguments.
        let getppid = idle(|| unsafe { raw::syscall0(Sysno::getppid as usize) })?;
        let (mut none, mut active, mut filter) = (0usize, 0u32, 0u32);
        let args = [
            &raw mut none as usize,
            (&raw mut active).addr(),
            (&raw mut filter).addr(),
        ];
        // SAFETY: it is `ltt_update`, which writes a pointer and two integers, where they may be
        // written.
        let update = idle(|| unsafe {
            raw::syscall3(abi.nr_ltt_update as usize, args[0], args[1], args[2])
        })?;
        ensure!(none == 0, "there was a second trace");
        // SAFETY: it is `ltt_switch`, which only compares the address.
        let switch = idle(|| unsafe {
            raw::syscall1(abi.nr_ltt_switch as usize, traced.buffer.addr().get())
        })?;
        Ok([getppid - turn, update - turn, switch - turn])
    })?;
    Ok(IdleCalls {
        getppid,
        update,
        switch,
    })
}

/// Instructions of a system call that does not fail.
fn idle(call: impl Fn() -> usize) -> Result<f64> {
    Ok(mean(&counts(|n| {
        black_box(n);
        let ret = call().cast_signed();
        ensure!(ret >= 0, "error {} of a system call", -ret);
        Ok(())
    })?))
}

/// Starts of a trace while so many processes sleep that asked for buffers.
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

/// Processes that asked for buffers, and sleep.
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

    /// Instructions of the `write()` that starts a trace while there are so many of them.
    fn start(&mut self, count: usize) -> Result<f64> {
        while self.processes.len() < count {
            self.processes.push(sleeper(self.signo)?);
        }
        // The first one makes the info area real, if nobody did before, and brings what all need.
        let starts: Vec<f64> = (0..=STARTS)
            .map(|_| {
                // First: what it takes to look at all of them must not lie between what is prepared
                // and what is counted.
                self.all_sleep()?;
                let trace = Trace::create("starts")?;
                let path = trace.start_file();
                let mut file = OpenOptions::new().write(true).open(&path)?;
                let before_others = Priority::raise()?;
                let begin = cycles();
                let written = file.write(b"1\n");
                let end = cycles();
                drop(before_others);
                ensure!(written? == 2, "1 > {}", path.display());
                write(&path, "0")?;
                Ok((end - begin) as f64)
            })
            .collect::<Result<_>>()?;
        Ok(median(&starts[1..]))
    }

    fn all_sleep(&self) -> Result<()> {
        let begun = Instant::now();
        for process in &self.processes {
            while !process.sleeps()? {
                ensure!(begun.elapsed() < LIMIT, "a process does not sleep");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// A process that asked for buffers, and is about to sleep for good, but for the signal.
fn sleeper(signo: u32) -> Result<Process> {
    let (mut from, mut to) = pipe()?;
    let process = fork(|| {
        if signo != 0 {
            // SAFETY: the handler does nothing.
            let before = unsafe { libc::signal(signo.cast_signed(), handler()) };
            ensure!(before != libc::SIG_ERR, "signal: {}", last_error());
        }
        register(signo)?;
        to.write_all(&[1])?;
        loop {
            // SAFETY: it has no arguments.
            unsafe { libc::pause() };
        }
    })?;
    drop(to);
    from.read_exact(&mut [0])
        .context("a process cannot ask for buffers")?;
    Ok(process)
}

fn handler() -> libc::sighandler_t {
    extern "C" fn nothing(_signal: c_int) {}
    let nothing: extern "C" fn(c_int) = nothing;
    nothing as libc::sighandler_t
}

/// While there is one, this process runs before all others that want to: those that it wakes wait.
struct Priority;

impl Priority {
    fn raise() -> Result<Self> {
        Self::set(libc::SCHED_FIFO, 1)?;
        Ok(Self)
    }

    fn set(policy: c_int, priority: c_int) -> Result<()> {
        let param = libc::sched_param {
            sched_priority: priority,
        };
        // SAFETY: it only reads the structure.
        let ret = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
        ensure!(ret == 0, "sched_setscheduler: {}", last_error());
        Ok(())
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        // To the policy that every process has, which is always allowed.
        let _ = Self::set(libc::SCHED_OTHER, 0);
    }
}
