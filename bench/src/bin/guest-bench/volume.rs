//! The cost of writing a trace to a file, compared with other ways to write as many bytes (C5):
//! `cat` of a pipe, the mapped reader of ftrace's ring buffer, and bare copies.
//!
//! Everything runs in one process on one processor. Only the reading side is measured. All files
//! are new and in memory.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use usertrace::clock::cycles;
use usertrace::{Status, event};
use usertrace_bench::{Volume, median};
use usertrace_consumer::{
    CONTROL, CONTROL_FS, ControlFs, KernelFile, MAIN, Session, TraceSetup, consumer_files,
};

use crate::control::write;
use crate::process::apart;
use crate::{TRACEFS, last_error, mount_tracefs};

usertrace::tracepoint! {
    mod volume { provider: "bench", name: "volume", loglevel: Info, fields: { a: u64, b: u64, c: u64, d: u64 } }
}

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
/// The size of a read by `cat` (GNU coreutils 9, `io_blksize`).
const BLOCK: usize = 128 << 10;
/// The size of a record: its header and four words.
const RECORD: usize = 40;
/// How often each way is measured. The result is the median.
const TURNS: usize = 7;
/// The directory of the files.
const OUTPUT: &str = "/tmp/guest-bench-volume";

pub(crate) fn volume() -> Result<Volume> {
    fs::create_dir(OUTPUT).context(OUTPUT)?;
    let [ours, copied, pipe, ftrace, spliced] = apart(|| {
        let (ours, copied) = ours()?;
        let pipe = turns(through_pipe)?;
        Ok([ours, copied, pipe, ftrace()?, turns(spliced)?])
    })?;
    fs::remove_dir_all(OUTPUT)?;
    Ok(Volume {
        ours,
        copied,
        pipe,
        ftrace,
        spliced,
    })
}

/// The median of several measurements.
fn turns(mut turn: impl FnMut() -> Result<f64>) -> Result<f64> {
    let counts: Vec<f64> = (0..TURNS).map(|_| turn()).collect::<Result<_>>()?;
    Ok(median(&counts))
}

/// Instructions per MiB. `moves` returns how many bytes it moved.
fn per_mib(moves: impl FnOnce() -> Result<usize>) -> Result<f64> {
    let begin = cycles();
    let bytes = moves()?;
    let count = cycles() - begin;
    // About a MiB: the ring keeps an incomplete sub-buffer.
    ensure!(
        (MIB / 2..2 * MIB).contains(&bytes),
        "{bytes} bytes were moved"
    );
    Ok(count as f64 * MIB as f64 / bytes as f64)
}

/// A new file without a name.
fn new_file() -> Result<File> {
    let path = Path::new(OUTPUT).join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Measures the recorder, which reads positions, copies the ring, checks each record, writes
/// packets, and marks them as consumed. Measures also a bare `write()` of the mapped ring, without
/// any check.
fn ours() -> Result<(f64, f64)> {
    let control = ControlFs::open(Path::new(CONTROL_FS))?;
    let setup = TraceSetup {
        subbuf_size: Some(65536),
        subbuf_count: Some(32),
        ..TraceSetup::default()
    };
    let trace = control.create("volume", &setup)?;
    trace.start()?;
    let status = usertrace::init();
    ensure!(status == Status::Attached, "{status}");
    let fill = || {
        for n in 0..(MIB / RECORD) as u64 {
            let n = black_box(n);
            event!(volume, n, n, n, n);
        }
    };
    fill();
    usertrace::flush().map_err(crate::no)?;

    let output = PathBuf::from(OUTPUT).join("trace");
    fs::create_dir(&output)?;
    let mut session = Session::open(&output, &trace.recorded()?, None)?;
    for channel in [CONTROL, MAIN] {
        let directory = trace.channel(channel);
        for name in consumer_files(&directory)? {
            let file = KernelFile::open_to_consume(&directory.join(&name))?;
            session.add(channel, &name, file)?;
        }
    }
    let mut drain = || Ok(session.drain(false, Instant::now())?.bytes as usize);
    // Reads the descriptions of events, which are written once.
    drain()?;
    let ours = turns(|| {
        fill();
        per_mib(&mut drain)
    })?;
    drop(session);

    let directory = trace.channel(MAIN);
    let names = consumer_files(&directory)?;
    let name = names.first().context("no consumer file")?;
    let mapped = Mapped::new(&File::open(directory.join(name))?, MIB)?;
    let copied = turns(|| {
        let to = new_file()?;
        per_mib(|| {
            for block in 0..MIB / BLOCK {
                to.write_all_at(mapped.block(block), (block * BLOCK) as u64)?;
            }
            Ok(MIB)
        })
    })?;
    trace.stop()?;
    trace.remove()?;
    let lost: u64 = usertrace::stats().map(|trace| trace.lost).sum();
    ensure!(lost == 0, "{lost} events were lost");
    Ok((ours, copied))
}

/// Copies from a pipe to a file through a buffer, like `cat`.
fn through_pipe() -> Result<f64> {
    let (mut from, mut into) = pipe()?;
    full_size(from.as_raw_fd())?;
    into.write_all(&vec![1; MIB])?;
    let mut to = new_file()?;
    let mut block = vec![0; BLOCK];
    per_mib(|| {
        let mut bytes = 0;
        while bytes < MIB {
            let read = from.read(&mut block)?;
            to.write_all(&block[..read])?;
            bytes += read;
        }
        Ok(bytes)
    })
}

/// Moves pages of memory into a pipe and from there into a file, without copies in user space. This
/// is impossible with the pages of a ring, because the kernel takes no reference to them.
fn spliced() -> Result<f64> {
    let (from, into) = pipe()?;
    full_size(from.as_raw_fd())?;
    let memory = vec![1u8; MIB];
    let to = new_file()?;
    per_mib(|| {
        let mut bytes = 0;
        while bytes < MIB {
            let block = libc::iovec {
                iov_base: memory[bytes..].as_ptr().cast_mut().cast(),
                iov_len: BLOCK,
            };
            // SAFETY: the block is within `memory`, which is not changed meanwhile.
            let put = unsafe { libc::vmsplice(into.as_raw_fd(), &raw const block, 1, 0) };
            ensure!(put > 0, "vmsplice: {}", last_error());
            let mut rest = put as usize;
            while rest > 0 {
                let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
                // SAFETY: no memory is involved.
                let moved = unsafe { libc::splice(from, null_mut(), to, null_mut(), rest, 0) };
                ensure!(moved > 0, "splice: {}", last_error());
                rest -= moved as usize;
                bytes += moved as usize;
            }
        }
        Ok(bytes)
    })
}

/// Sets the largest size that a pipe may have.
fn full_size(pipe: RawFd) -> Result<()> {
    // SAFETY: no memory is involved.
    let size = unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, MIB) };
    ensure!(size == MIB as i32, "F_SETPIPE_SZ: {}", last_error());
    Ok(())
}

/// `TRACE_MMAP_IOCTL_GET_READER`, which releases the sub-buffer that was read, and takes the next
/// one. Linux documents it and the fields below in `Documentation/trace/ring-buffer-map.rst`.
const GET_READER: u64 = (b'R' as u64) << 8 | 0x20;
/// Offsets of the fields of `struct trace_buffer_meta`.
const META_PAGE_SIZE: usize = 0;
const SUBBUF_SIZE: usize = 8;
const NR_SUBBUFS: usize = 12;
const READER_ID: usize = 24;
/// Offset, in a sub-buffer, of the number of bytes in it.
const COMMIT: usize = 8;

/// Measures the mapped reader of ftrace's ring buffer, which writes each sub-buffer unchanged.
fn ftrace() -> Result<f64> {
    mount_tracefs()?;
    let tracefs = Path::new(TRACEFS);
    let size_file = tracefs.join("buffer_size_kb");
    let size_before = fs::read_to_string(&size_file)?;
    write(&size_file, "4096")?;
    let marker = OpenOptions::new()
        .write(true)
        .open(tracefs.join("trace_marker"))?;
    let ring = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(tracefs.join("per_cpu/cpu0/trace_pipe_raw"))?;
    let meta = Mapped::new(&ring, PAGE)?;
    let word = |at: usize| meta.word(at) as usize;
    let (start, size, count) = (word(META_PAGE_SIZE), word(SUBBUF_SIZE), word(NR_SUBBUFS));
    ensure!(start == PAGE && size == PAGE, "sub-buffers of {size} bytes");
    let subbufs = Mapped::new_at(&ring, start, size * count)?;
    let next = || {
        // SAFETY: no memory is involved.
        let ret = unsafe { libc::ioctl(ring.as_raw_fd(), GET_READER) };
        ensure!(ret == 0, "TRACE_MMAP_IOCTL_GET_READER: {}", last_error());
        Ok(word(READER_ID))
    };
    let line = [b'x'; 1000];
    let counts = turns(|| {
        let mut filled = 0;
        while filled < MIB + 8 * PAGE {
            filled += (&marker).write(&line)?;
        }
        let to = new_file()?;
        per_mib(|| {
            let mut bytes = 0;
            while bytes < MIB {
                let id = next()?;
                let subbuf = subbufs.bytes(id * size, size);
                ensure!(subbufs.word(id * size + COMMIT) != 0, "an empty sub-buffer");
                to.write_all_at(subbuf, bytes as u64)?;
                bytes += size;
            }
            Ok(bytes)
        })
    });
    // Restore the buffer for the next measurements.
    drop((meta, subbufs, ring));
    File::create(tracefs.join("trace"))?;
    // In "7 (expanded: 1408)", 1408 is the size since the first event.
    let mut sizes = size_before.split(|c: char| !c.is_ascii_digit());
    let size = sizes.rfind(|size| !size.is_empty());
    write(&size_file, size.context("buffer_size_kb")?)?;
    counts
}

/// A read-only mapping of a file.
struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

impl Mapped {
    fn new(file: &File, len: usize) -> Result<Self> {
        Self::new_at(file, 0, len)
    }

    fn new_at(file: &File, offset: usize, len: usize) -> Result<Self> {
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping without `MAP_FIXED` replaces no other one.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                len,
                prot,
                flags,
                file.as_raw_fd(),
                offset as i64,
            )
        };
        if start == libc::MAP_FAILED {
            bail!("mmap: {}", last_error());
        }
        let start = NonNull::new(start.cast()).context("mapped at 0")?;
        Ok(Self { start, len })
    }

    fn block(&self, block: usize) -> &[u8] {
        self.bytes(block * BLOCK, BLOCK)
    }

    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len);
        // SAFETY: the assertion keeps the slice within the mapping. Only this thread causes writes
        // to the file, and it does so at no time when a slice is in use.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), len) }
    }

    fn word(&self, at: usize) -> u32 {
        assert!(at + 4 <= self.len && at.is_multiple_of(4));
        // SAFETY: the assertion keeps it within the mapping, and aligned. The read is volatile
        // because the kernel may change the word at any time.
        unsafe { self.start.as_ptr().add(at).cast::<u32>().read_volatile() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and its borrows have ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
