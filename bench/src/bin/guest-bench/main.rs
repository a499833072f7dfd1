//! Counts the instructions of an event, in user space and in the kernel, and compares them with the
//! kernel's own ways to record events of user space (B6). Counts the kernel's other work for
//! tracing as well. Runs as root in a guest whose time-stamp counter counts instructions:
//!
//! ```sh
//! scripts/guest --smp 1 --icount -- target/release/guest-bench
//! ```
//!
//! Prints the counts as JSON. The exit status is 1 on an error, or if a count exceeds its target.
//! With `growth NUMBER...`, it measures how costs grow with the number of processes instead.

mod control;
mod growth;
mod kernel;
mod process;
#[cfg(feature = "recorder")]
mod volume;

use std::arch::{asm, global_asm};
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use usertrace::clock::cycles;
use usertrace::{Status, event};
use usertrace_bench::{Counts, median};
use usertrace_sys::files;
use usertrace_sys::uapi::LttRingPositions;

use crate::control::{Trace, write};

usertrace::tracepoint! {
    mod numbers { provider: "bench", name: "numbers", loglevel: Info, fields: { a: u64, b: u64, c: u64, d: u64 } }
}

/// Events that are measured together.
const BATCH: u64 = 50;
/// Batches. The result is their mean, because the kernel's occasional work is part of the cost of
/// an event.
const BATCHES: usize = 1000;

const TRACEFS: &str = "/sys/kernel/tracing";

/// The variable that chooses the back end of a program.
const BACKEND: &str = "USERTRACE_BACKEND";

/// Restarts this program without a back end. It has events, so the library would attach it before
/// `main`, and each change of a trace would send it a signal.
fn begin_without_buffers() -> Result<()> {
    if std::env::var_os(BACKEND).is_none() {
        let mut this = Command::new("/proc/self/exe");
        let error = this
            .args(std::env::args_os().skip(1))
            .env(BACKEND, "off")
            .exec();
        return Err(error).context("cannot execute /proc/self/exe");
    }
    // SAFETY: there are no other threads yet.
    unsafe { std::env::remove_var(BACKEND) };
    Ok(())
}

fn main() -> ExitCode {
    match begin_without_buffers().and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("guest-bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Requirements: B6
fn run() -> Result<()> {
    ensure!(
        std::env::var_os("USERTRACE_GUEST").is_some(),
        "guest-bench changes the traces of the running kernel; run it in a guest"
    );
    // 1000 more instructions must add 1000 to the counter.
    let few = median(&counts(|_| {
        nops::<1>();
        Ok(())
    })?);
    let many = median(&counts(|_| {
        nops::<1001>();
        Ok(())
    })?);
    ensure!(
        many - few == 1000.0,
        "the time-stamp counter does not count instructions: {} for 1000",
        many - few
    );

    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, numbers @ ..] = &args[..] {
        ensure!(mode == "growth", "usage: guest-bench [growth NUMBER...]");
        let numbers: Vec<usize> = numbers
            .iter()
            .map(|text| {
                text.parse()
                    .with_context(|| format!("{text:?} is no number"))
            })
            .collect::<Result<_>>()?;
        let growth = growth::growth(&numbers)?;
        println!("{}", serde_json::to_string_pretty(&growth)?);
        return Ok(());
    }

    // These fork, so they come before the library maps areas, which children do not inherit.
    let faults = kernel::faults()?;
    let idle_calls = kernel::idle_calls()?;
    let starts = kernel::starts()?;
    #[cfg(feature = "recorder")]
    let volume = Some(volume::volume()?);
    #[cfg(not(feature = "recorder"))]
    let volume = None;

    let mut ring = vec![1u64; 1 << 16];
    let mut head = 0;
    let turn = turn()?;
    let floor = mean(&counts(|n| {
        floor(&mut ring, &mut head, n);
        Ok(())
    })?);
    // The kernel still frees the memory of ended processes, which adds to the cost of allocations.
    std::thread::sleep(std::time::Duration::from_secs(3));
    // Slightly larger than the records of all batches.
    let trace = Trace::started_with("bench", (65536, 32), None)?;
    let [ours_fresh, ours] = ours(&trace)?;
    drop(trace);
    let trace = Trace::started_with("contexts", (65536, 64), Some("vtid"))?;
    let [_, with_vtid] = self::ours(&trace)?;
    drop(trace);
    mount_tracefs()?;
    // Subtract the cost of the loop from each.
    let counts = Counts {
        floor: floor - turn,
        ours: ours - turn,
        ours_fresh: ours_fresh - turn,
        with_vtid: Some(with_vtid - turn),
        user_events: user_events()? - turn,
        uprobe: uprobe("emulated", usertrace_bench_emulated)? - turn,
        uprobe_stepped: uprobe("stepped", usertrace_bench_stepped)? - turn,
        faults: Some(faults),
        idle_calls: Some(idle_calls),
        starts: Some(starts),
        volume,
    };
    println!("{}", serde_json::to_string_pretty(&counts)?);

    let mut missed = 0;
    for target in counts.targets() {
        eprintln!("guest-bench: {target}");
        missed += usize::from(!target.met);
    }
    ensure!(missed == 0, "{missed} targets missed");
    Ok(())
}

/// Instructions of one iteration of the empty loop.
fn turn() -> Result<f64> {
    Ok(mean(&counts(|n| {
        black_box(n);
        Ok(())
    })?))
}

/// The mean number of instructions of an event, for each batch.
fn counts(mut event: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    (0..BATCHES)
        .map(|_| {
            let begin = cycles();
            for n in 0..BATCH {
                event(n)?;
            }
            Ok((cycles() - begin) as f64 / BATCH as f64)
        })
        .collect()
}

/// Executes `COUNT` instructions that do nothing.
#[inline(always)]
fn nops<const COUNT: usize>() {
    // SAFETY: `nop` has no effect.
    unsafe { asm!(".rept {}", "nop", ".endr", const COUNT, options(nomem, nostack)) };
}

/// Does the least that any tracer must do: reads the time stamp and stores a record.
#[inline(always)]
fn floor(ring: &mut [u64], head: &mut usize, n: u64) {
    let at = if *head + 5 <= ring.len() { *head } else { 0 };
    let words = [cycles() << 16 | 1, black_box(n), n, n, n];
    for (to, word) in ring[at..at + 5].iter_mut().zip(words) {
        // SAFETY: `to` is a reference, so it may be written.
        unsafe { std::ptr::from_mut(to).write_volatile(word) };
    }
    *head = at + 5;
}

/// Laps of the ring that are measured, after the first two.
const LAPS: usize = 4;

/// Instructions of an event of this project: in untouched pages, and in pages that a reader has
/// freed. Both include the switches of sub-buffers, and the kernel's part of them.
fn ours(trace: &Trace) -> Result<[f64; 2]> {
    let status = usertrace::init();
    ensure!(status == Status::Attached, "{status}");
    let lap = || {
        let counts = counts(|n| {
            let n = black_box(n);
            event!(numbers, n, n, n, n);
            Ok(())
        })?;
        consume(&trace.channel())?;
        Ok(mean(&counts))
    };
    let fresh = lap()?;
    // Touches the remaining pages.
    lap()?;
    let later: Vec<f64> = (0..LAPS).map(|_| lap()).collect::<Result<_>>()?;
    let lost: u64 = usertrace::stats().map(|trace| trace.lost).sum();
    ensure!(lost == 0, "{lost} events were lost");
    Ok([fresh, mean(&later)])
}

/// Marks all of this process's events in the channel as consumed, as a consumer does after reading.
fn consume(channel: &Path) -> Result<()> {
    usertrace::flush().map_err(no)?;
    let this = std::process::id().to_string();
    let mut files = fs::read_dir(channel)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some() && path.file_stem() == Some(this.as_ref()));
    let path = files.next().context("no consumer file")?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    let mut rings = vec![LttRingPositions::default(); 64];
    let found = files::positions(file.as_fd(), &mut rings).map_err(no)?;
    for (ring, at) in rings[..found.rings].iter().enumerate() {
        files::consume(file.as_fd(), ring as u32, at.head).map_err(no)?;
    }
    Ok(())
}

fn no(errno: usertrace::Errno) -> anyhow::Error {
    anyhow::anyhow!("{errno}")
}

fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn mount_tracefs() -> Result<()> {
    if Path::new(TRACEFS).join("trace").exists() {
        return Ok(());
    }
    let (name, at) = (c"tracefs", c"/sys/kernel/tracing");
    // SAFETY: three C strings; the other pointers may be null.
    let ret = unsafe {
        libc::mount(
            name.as_ptr(),
            at.as_ptr(),
            name.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    ensure!(ret == 0, "tracefs: {}", last_error());
    Ok(())
}

/// `struct user_reg` of the header `linux/user_events.h`.
#[repr(C, packed)]
struct UserReg {
    size: u32,
    enable_bit: u8,
    enable_size: u8,
    flags: u16,
    enable_addr: u64,
    name_args: u64,
    write_index: u32,
}

/// `DIAG_IOCSREG`
const REGISTER: u64 = 3 << 30 | 8 << 16 | 0x2a << 8;

/// Instructions of an enabled user event, which takes one `write()`.
fn user_events() -> Result<f64> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(Path::new(TRACEFS).join("user_events_data"))
        .context("user_events_data")?;
    let enabled = Box::new(0u32);
    let name = c"usertrace_bench u64 a;u64 b;u64 c;u64 d";
    let mut register = UserReg {
        size: size_of::<UserReg>() as u32,
        enable_bit: 0,
        enable_size: 4,
        flags: 0,
        enable_addr: (&raw const *enabled).expose_provenance() as u64,
        name_args: name.as_ptr().expose_provenance() as u64,
        write_index: 0,
    };
    // SAFETY: the structure has the layout of the call. The kernel writes to `enabled` until the
    // file is closed, and `enabled` outlives the file.
    let ret = unsafe { libc::ioctl(file.as_raw_fd(), REGISTER, &raw mut register) };
    ensure!(ret == 0, "registering a user event: {}", last_error());
    let event = Event::enable("user_events/usertrace_bench")?;
    // SAFETY: `enabled` is alive; the read is volatile because the kernel writes it.
    let word = unsafe { (&raw const *enabled).read_volatile() };
    ensure!(word == 1, "the user event is not enabled");
    let index = register.write_index;
    let fd = file.as_raw_fd();
    let counts = counts(|n| {
        let mut record = [0u8; 36];
        record[..4].copy_from_slice(&index.to_ne_bytes());
        for at in 0..4 {
            record[4 + 8 * at..][..8].copy_from_slice(&n.to_ne_bytes());
        }
        // SAFETY: the pointer and the length are those of `record`.
        let ret = unsafe { libc::write(fd, record.as_ptr().cast(), record.len()) };
        if ret != record.len() as isize {
            bail!("writing a user event: {}", last_error());
        }
        Ok(())
    })?;
    event.check()?;
    drop(file);
    Ok(mean(&counts))
}

// Functions for uprobes. The kernel emulates the first instruction of one, and single-steps that of
// the other.
global_asm!(
    ".globl usertrace_bench_emulated, usertrace_bench_stepped",
    ".hidden usertrace_bench_emulated, usertrace_bench_stepped",
    ".balign 64",
    "usertrace_bench_emulated:",
    "push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    "usertrace_bench_stepped:",
    "mov eax, edi",
    "ret",
);

type Probed = unsafe extern "sysv64" fn(u64, u64, u64, u64);

unsafe extern "sysv64" {
    fn usertrace_bench_emulated(a: u64, b: u64, c: u64, d: u64);
    fn usertrace_bench_stepped(a: u64, b: u64, c: u64, d: u64);
}

/// Instructions of a hit of a uprobe that records four registers.
fn uprobe(name: &str, function: Probed) -> Result<f64> {
    let offset = in_file(function as usize)?;
    let events = Path::new(TRACEFS).join("uprobe_events");
    // The path of this program may contain a space, which would end the path here.
    let text = format!(
        "p:usertrace/{name} /proc/self/exe:{offset:#x} a=%di:u64 b=%si:u64 c=%dx:u64 d=%cx:u64"
    );
    write(&events, &text).with_context(|| text.clone())?;
    let name = format!("usertrace/{name}");
    let event = Event::enable(&name)?;
    let counts = counts(|n| {
        // SAFETY: both functions only return.
        unsafe { function(n, n, n, n) };
        Ok(())
    })?;
    event.check()?;
    Ok(mean(&counts))
}

/// The offset in this program's file of an address in it.
fn in_file(address: usize) -> Result<usize> {
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        // The path comes last, and may contain spaces.
        let mut words = line.split_whitespace();
        let (Some(range), Some(_), Some(offset)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (start, end) = range.split_once('-').context("a range")?;
        let number = |text| usize::from_str_radix(text, 16);
        if (number(start)?..number(end)?).contains(&address) {
            return Ok(address - number(start)? + number(offset)?);
        }
    }
    bail!("no mapping has the address {address:#x}")
}

/// A kernel event, which is disabled on drop.
struct Event<'a> {
    name: &'a str,
    before: u64,
}

impl<'a> Event<'a> {
    fn enable(name: &'a str) -> Result<Self> {
        write(&Self::file(name), "1").with_context(|| format!("enabling {name}"))?;
        Ok(Self {
            name,
            before: entries()?,
        })
    }

    fn file(name: &str) -> std::path::PathBuf {
        Path::new(TRACEFS).join("events").join(name).join("enable")
    }

    /// Checks that the kernel recorded as many events as were measured.
    fn check(self) -> Result<()> {
        let recorded = entries()? - self.before;
        ensure!(
            recorded == BATCH * BATCHES as u64,
            "the kernel recorded {recorded} events of {}",
            self.name
        );
        Ok(())
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // A failure does no harm: the guest ends soon.
        let _ = write(&Self::file(self.name), "0");
    }
}

/// Events in the kernel's buffer, including overwritten ones.
fn entries() -> Result<u64> {
    let stats = fs::read_to_string(Path::new(TRACEFS).join("per_cpu/cpu0/stats"))?;
    let of = |key| -> Result<u64> {
        let line = stats.lines().find_map(|line| line.strip_prefix(key));
        Ok(line.context("stats")?.trim().parse()?)
    };
    Ok(of("entries:")? + of("overrun:")?)
}
