//! A simulated kernel: processes' buffers, and positions that survive a killed recorder.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use usertrace_consumer::{CONTROL, ConsumerFile, MAIN};
use usertrace_ring::Positions;
use usertrace_sys::uapi::{LttClockSync, LttFileInfo, LttInfoChannel, LttRingPositions};

use usertrace_testing::RingWriter;

pub(crate) const SUBBUF: u64 = 4096;
pub(crate) const COUNT: u64 = 4;
pub(crate) const START: u64 = 1_000_000;

/// Words that outlive the recorder, in a mapped file. Changing one takes no system call, so no kill
/// can come between.
pub(crate) struct Words {
    words: &'static [AtomicU64],
}

impl Words {
    const NR: usize = 128;

    pub(crate) fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).unwrap();
        file.set_len(Self::NR as u64 * 8).unwrap();
        // SAFETY: this new mapping covers the whole file and is never unmapped.
        let words = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                Self::NR * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts(at.cast(), Self::NR)
        };
        Self { words }
    }

    pub(crate) fn get(&self, n: usize) -> u64 {
        self.words[n].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, n: usize, value: u64) {
        self.words[n].store(value, Ordering::Relaxed);
    }
}

/// The present state of a channel.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) name: &'static str,
    pub(crate) scope: u32,
    pub(crate) rings: Vec<RingWriter>,
}

/// The present state of a process.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// `control`, `main`, and others.
    pub(crate) channels: Vec<Channel>,
    pub(crate) dead: bool,
}

pub(crate) struct File {
    pub(crate) process: Rc<RefCell<Process>>,
    pub(crate) channel: usize,
    pub(crate) words: Rc<Words>,
    /// Whether the consumer has called `info`.
    pub(crate) asked: Cell<bool>,
}

impl File {
    /// Index of the word with a ring's consumed position.
    fn consumed(pid: u32, channel: usize, ring: usize) -> usize {
        1 + (pid as usize * 4 + channel) * 4 + ring
    }

    /// Whether the process is dead and everything was consumed; the kernel then has no files of it
    /// any more.
    pub(crate) fn is_gone(process: &Process, words: &Words) -> bool {
        let mut channels = process.channels.iter().enumerate().skip(1);
        process.dead
            && channels.all(|(n, channel)| {
                let mut rings = channel.rings.iter().enumerate();
                rings.all(|(ring, of)| words.get(Self::consumed(process.pid, n, ring)) >= of.head)
            })
    }
}

impl ConsumerFile for File {
    fn info(&self) -> io::Result<LttFileInfo> {
        let process = self.process.borrow();
        let channel = &process.channels[self.channel];
        let sync = LttClockSync {
            cycles: START,
            monotonic: 0,
            realtime: 1_700_000_000_000_000_000,
            freq: 1_000_000_000,
        };
        // The kernel refines the clock's frequency in the end.
        let now = LttClockSync {
            cycles: START + 1,
            freq: sync.freq + u64::from(self.asked.replace(true)),
            ..sync
        };
        let mut info = LttFileInfo {
            pid: process.pid,
            process: 3,
            channel_index: self.channel as u32,
            start: sync,
            now,
            channel: LttInfoChannel {
                subbuf_size: SUBBUF as u32,
                subbuf_count: COUNT as u32,
                nr_rings: channel.rings.len() as u32,
                control_stride: 128,
                scope: channel.scope,
                ..LttInfoChannel::default()
            },
            ..LttFileInfo::default()
        };
        info.comm[..4].copy_from_slice(b"prog");
        info.trace[..2].copy_from_slice(b"tr");
        Ok(info)
    }

    fn positions(&self, rings: &mut [LttRingPositions]) -> io::Result<u32> {
        let process = self.process.borrow();
        let of_channel = process.channels[self.channel].rings.iter().enumerate();
        for ((n, ring), positions) in of_channel.zip(rings) {
            *positions = LttRingPositions {
                head: ring.head,
                lost: ring.lost,
                claimed: ring.claimed,
                consumed: self.words.get(Self::consumed(process.pid, self.channel, n)),
            };
        }
        Ok(u32::from(process.dead))
    }

    fn consume(&self, ring: u32, position: u64) -> io::Result<()> {
        let process = self.process.borrow();
        let head = process.channels[self.channel].rings[ring as usize].head;
        let consumed = Self::consumed(process.pid, self.channel, ring as usize);
        assert_ne!(self.channel, 0);
        if position < self.words.get(consumed) || position > head {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.words.set(consumed, position);
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) {
        let process = self.process.borrow();
        let rings = &process.channels[self.channel].rings;
        let (ring, at) = (offset / (SUBBUF * COUNT), offset % (SUBBUF * COUNT));
        buffer.copy_from_slice(&rings[ring as usize].bytes[at as usize..][..buffer.len()]);
    }

    fn load(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn ring_positions(&self, ring: u32) -> io::Result<Positions> {
        let process = self.process.borrow();
        let consumed = Self::consumed(process.pid, self.channel, ring as usize);
        let ring = &process.channels[self.channel].rings[ring as usize];
        let claimed = ring.claimed.max(self.words.get(consumed));
        Ok(Positions {
            head: ring.head,
            claimed,
        })
    }
}

pub(crate) fn names(process: &Process) -> impl Iterator<Item = (usize, &'static str)> + '_ {
    let names = process.channels.iter().map(|channel| channel.name);
    assert_eq!(
        (process.channels[0].name, process.channels[1].name),
        (CONTROL, MAIN)
    );
    names.enumerate()
}
