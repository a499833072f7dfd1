//! Fills memory with forged root pages, directories and page tables, as an unprivileged program
//! can, and keeps them.
//!
//! The program does not know the physical addresses of its pages, so it guesses. If it has half of
//! the memory, half of its guesses lead to its own pages.

use std::process::ExitCode;

use clap::Parser;
use usertrace_sys::crash::{
    LTT_CRASH_BUFFER, LTT_CRASH_CHANNEL, LTT_CRASH_MAGIC, LTT_CRASH_PAGE_MAGIC, LTT_CRASH_PRESENT,
    LTT_CRASH_PROCESS, LTT_CRASH_TRACE, LTT_CRASH_VERSION, LttCrashBuffer, LttCrashChannel,
    LttCrashEntry, LttCrashPage, LttCrashProcess, LttCrashRoot, LttCrashTrace, LttCrashTree,
};
use usertrace_sys::uapi::{LttClockSync, LttInfoChannel};
use usertrace_tests::random::Random;
use zerocopy::{Immutable, IntoBytes};

const PAGE: usize = 4096;

/// A page of this program, aligned so that it is one page of physical memory.
#[derive(Clone)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// A user without privileges.
const NOBODY: u32 = 65534;

/// Fills memory with forged pages, and returns when that is done: a child has them.
#[derive(Debug, Parser)]
struct Args {
    /// MiB to fill
    mib: usize,
    /// MiB that the machine has
    of: u64,
}

/// The value's bytes, padded with zeros.
fn padded<const N: usize>(value: &(impl IntoBytes + Immutable)) -> [u8; N] {
    let mut bytes = [0; N];
    let value = value.as_bytes();
    bytes[..value.len()].copy_from_slice(value);
    bytes
}

fn name<const N: usize>(text: &str) -> [u8; N] {
    padded(text.as_bytes().first_chunk::<8>().unwrap_or(&[0; 8]))
}

/// A root page that leads to this directory.
fn root(directory: u64) -> [u8; PAGE] {
    let mut root = LttCrashRoot {
        magic: LTT_CRASH_MAGIC,
        version: LTT_CRASH_VERSION,
        page_size: PAGE as u32,
        entry_size: size_of::<LttCrashEntry>() as u32,
        clock: 1,
        sum: 0,
        directory,
        boot: sync(),
    };
    let words = root.as_bytes()[..24].chunks_exact(8);
    root.sum = words
        .filter_map(|word| word.first_chunk())
        .fold(0u64, |sum, word| {
            sum.wrapping_sub(u64::from_le_bytes(*word))
        });
    padded(&root)
}

fn sync() -> LttClockSync {
    LttClockSync {
        cycles: 1 << 30,
        monotonic: 1 << 30,
        realtime: 1_700_000_000_000_000_000,
        freq: 1_000_000_000,
    }
}

/// A page of a directory with a trace of one process. `next` is the directory's next page; the
/// trees have this root and depth.
fn directory(next: u64, tree: u64, depth: u32) -> [u8; PAGE] {
    let tree = |pages| LttCrashTree {
        root: tree,
        pages,
        depth,
        reserved: 0,
    };
    let channel = |index: u32| LttCrashChannel {
        trace: 1,
        index,
        reserved: 0,
        channel: LttInfoChannel {
            name: name("forged\0\0"),
            buffers_offset: u64::from(index) << 20,
            control_offset: u64::from(index) << 12,
            subbuf_size: 1 << 18,
            subbuf_count: 2,
            nr_rings: 2,
            control_stride: 128,
            protocol: 1,
            ..LttInfoChannel::default()
        },
    };
    let trace = LttCrashTrace {
        generation: 1,
        name: name("forged\0\0"),
        slot: 0,
        active: 1,
        start: sync(),
        ..LttCrashTrace::default()
    };
    let process = LttCrashProcess {
        process: 1,
        pid: 1,
        comm: name("forged\0\0"),
        ..LttCrashProcess::default()
    };
    let buffer = LttCrashBuffer {
        process: 1,
        trace: 1,
        buffers: tree(1 << 9),
        control: tree(1 << 9),
    };
    let header = LttCrashPage {
        magic: LTT_CRASH_PAGE_MAGIC,
        next,
        reserved: [0; 30],
    };
    let contents: [(u32, [u8; 240]); 5] = [
        (LTT_CRASH_TRACE, padded(&trace)),
        (LTT_CRASH_CHANNEL, padded(&channel(0))),
        (LTT_CRASH_CHANNEL, padded(&channel(1))),
        (LTT_CRASH_PROCESS, padded(&process)),
        (LTT_CRASH_BUFFER, padded(&buffer)),
    ];
    let mut page = padded::<PAGE>(&header);
    let entries = page[size_of::<LttCrashPage>()..].chunks_exact_mut(size_of::<LttCrashEntry>());
    for (serial, (entry, (kind, content))) in (1u64..).zip(entries.zip(contents)) {
        entry[..4].copy_from_slice(&kind.to_le_bytes());
        entry[8..16].copy_from_slice(&serial.to_le_bytes());
        entry[16..].copy_from_slice(&content);
    }
    page
}

/// The `n`th forged page: all kinds in turn.
fn forged(n: usize, random: &mut Random, memory_mib: u64) -> [u8; PAGE] {
    let guess = |random: &mut Random| random.below(memory_mib << 8) << 12;
    match n % 16 {
        0..=5 => root(guess(random)),
        6 => root(0),
        7 => root(1 << 45),
        // Valid pages, with trees that are empty or lead anywhere.
        8 | 9 => directory(0, 0, 1),
        10 | 11 => directory(0, guess(random) | LTT_CRASH_PRESENT, 1),
        // A chain of pages, perhaps a circle, or trees of the largest depth.
        12 => directory(guess(random), 0, 1),
        13 => directory(0, guess(random) | LTT_CRASH_PRESENT, 5),
        // A page table, or an inner node of a tree: each entry is present, and the kernel's.
        14 => {
            let mut page = [0; PAGE];
            for word in page.as_chunks_mut().0 {
                *word = (guess(random) | 0b11).to_le_bytes();
            }
            page
        }
        _ => {
            let note = format!(
                "VMCOREINFO\0\0OSRELEASE=7.3.4\nNUMBER(ltt_root)={:#x}\nNUMBER(ltt_crash_cycles)=1\n",
                guess(random)
            );
            let mut page = [0; PAGE];
            page[..note.len()].copy_from_slice(note.as_bytes());
            page
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // SAFETY: the calls change the process's privileges, and no memory.
    let is_dropped = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
            && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
            && libc::setresuid(0, 0, 0) != 0
    };
    if !is_dropped {
        eprintln!("forger: it is to be nobody, and is not");
        return ExitCode::FAILURE;
    }
    let (reader, writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => {
            eprintln!("forger: no pipe: {error}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: there is one thread.
    match unsafe { libc::fork() } {
        0 => {
            drop(reader);
            let mut random = Random::with(20);
            let mut pages = vec![Page([0; PAGE]); args.mib << 8];
            for (n, page) in pages.iter_mut().enumerate() {
                page.0 = forged(n, &mut random, args.of);
            }
            // The parent sees that the pipe is closed.
            if std::io::Write::write_all(&mut &writer, &[1]).is_err() {
                return ExitCode::FAILURE;
            }
            drop(writer);
            loop {
                std::thread::park();
                std::hint::black_box(&pages);
            }
        }
        child => {
            drop(writer);
            let mut done = [0];
            let is_done = std::io::Read::read_exact(&mut &reader, &mut done).is_ok();
            if child < 0 || !is_done {
                eprintln!("forger: memory was not filled");
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
    }
}
