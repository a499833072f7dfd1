//! Writes events that carry their thread and their number, and prints how many were recorded and
//! lost.

use std::ffi::{CString, c_void};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use clap::Parser;
use usertrace::{Outcome, Status};
use usertrace_tests::{cpu, event};

/// Writes numbered events. Standard output has one line: `recorded N lost N`.
#[derive(Debug, Parser)]
struct Args {
    /// Events of each thread
    #[arg(long, default_value_t = 1000)]
    events: u64,
    /// Threads, each on the CPU of its number
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Let the threads take turns, event by event
    #[arg(long)]
    in_turn: bool,
    /// Stay, after the last event, until standard input ends
    #[arg(long)]
    stay: bool,
    /// Panic the kernel right after the last event of the last thread
    #[arg(long)]
    panic: bool,
    /// Panic the kernel right after the last event of thread 0, while the others go on writing for
    /// ever
    #[arg(long)]
    panic_meanwhile: bool,
    /// After all else, load the library of the malloc family's events, and have it give and take
    /// memory once
    #[arg(long)]
    library: Option<CString>,
}

/// Loads the library, and calls its `malloc` and `free` instead of this program's.
fn give_and_take(library: &CString) -> Option<()> {
    // SAFETY: the functions are what C has by these names.
    unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        let [malloc, free] = [c"malloc", c"free"]
            .map(|name| (!library.is_null()).then(|| libc::dlsym(library, name.as_ptr())));
        let malloc = malloc.filter(|malloc| !malloc.is_null())?;
        let free = free.filter(|free| !free.is_null())?;
        let malloc: extern "C" fn(usize) -> *mut c_void = std::mem::transmute(malloc);
        let free: extern "C" fn(*mut c_void) = std::mem::transmute(free);
        free(malloc(100));
    }
    Some(())
}

/// An open `/proc/sysrq-trigger`, with which one system call panics the kernel.
struct Trigger(std::fs::File);

impl Trigger {
    fn open() -> std::io::Result<Self> {
        OpenOptions::new()
            .write(true)
            .open("/proc/sysrq-trigger")
            .map(Self)
    }

    /// Panics the kernel.
    fn pull(&self) {
        // SAFETY: one byte of a constant is read.
        unsafe { libc::write(self.0.as_raw_fd(), c"c".as_ptr().cast(), 1) };
    }
}

/// Writes the events of a thread, and returns how many were recorded and lost. `turn` counts the
/// events of all threads, if these take turns.
fn write_events(args: &Args, thread: u32, turn: &AtomicU64) -> (u64, u64) {
    let (mut recorded, mut lost, mut number) = (0u64, 0u64, 0u64);
    let for_ever = args.panic_meanwhile && thread > 0;
    loop {
        if number >= args.events && !for_ever {
            break;
        }
        if args.in_turn {
            let own = number * u64::from(args.threads) + u64::from(thread);
            while turn.load(Ordering::Acquire) != own {
                std::hint::spin_loop();
            }
        }
        match event::write(thread, number) {
            Outcome::Recorded => recorded += 1,
            Outcome::Lost => lost += 1,
            Outcome::Off => {}
        }
        number += 1;
        // The release after the event makes it earlier than the next thread's.
        if args.in_turn {
            turn.fetch_add(1, Ordering::AcqRel);
        }
    }
    (recorded, lost)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let status = usertrace::init();
    if status != Status::Attached {
        eprintln!("numbered: {status}");
        return ExitCode::FAILURE;
    }
    let trigger = match (args.panic || args.panic_meanwhile)
        .then(Trigger::open)
        .transpose()
    {
        Ok(trigger) => trigger,
        Err(e) => {
            eprintln!("numbered: /proc/sysrq-trigger: {e}");
            return ExitCode::FAILURE;
        }
    };
    let (recorded, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    let turn = AtomicU64::new(0);
    let (begun, left) = (AtomicUsize::new(0), AtomicUsize::new(args.threads as usize));
    std::thread::scope(|scope| {
        for thread in 0..args.threads {
            let (args, trigger) = (&args, trigger.as_ref());
            let (recorded, lost, begun, left) = (&recorded, &lost, &begun, &left);
            let turn = &turn;
            scope.spawn(move || {
                cpu::pin(thread as usize);
                // All at once, so that they do it side by side.
                begun.fetch_add(1, Ordering::AcqRel);
                while begun.load(Ordering::Acquire) < args.threads as usize {
                    std::hint::spin_loop();
                }
                let (own_recorded, own_lost) = write_events(args, thread, turn);
                if let Some(trigger) = trigger
                    && (args.panic_meanwhile || left.fetch_sub(1, Ordering::AcqRel) == 1)
                {
                    trigger.pull();
                }
                recorded.fetch_add(own_recorded, Ordering::Relaxed);
                lost.fetch_add(own_lost, Ordering::Relaxed);
            });
        }
    });
    if let Some(library) = &args.library
        && give_and_take(library).is_none()
    {
        eprintln!("numbered: {library:?} cannot be loaded");
        return ExitCode::FAILURE;
    }
    println!(
        "recorded {} lost {}",
        recorded.into_inner(),
        lost.into_inner()
    );
    if args.stay {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    }
    ExitCode::SUCCESS
}
