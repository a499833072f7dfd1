//! Reads and consumes the rings of a consumer file while they are written, as the library's
//! recorder does.

use std::io;
use std::path::Path;

use usertrace_consumer::{ConsumerFile, FileRing, KernelFile};
use usertrace_ring::{Channel, Counts, GapKind, Item, PayloadLengths, RingReader, WaitPolicy};
use usertrace_sys::uapi::{LTT_FILE_DEAD, LttRingPositions};

use crate::event;

/// Payloads of all events: the thread, and the number.
struct Numbered;

impl PayloadLengths for Numbered {
    fn payload_len(&self, _: u16, bytes: &[u8]) -> Option<usize> {
        const LEN: usize = 12;
        (bytes.len() >= LEN).then_some(LEN)
    }
}

/// A consumer file whose rings have events with the fields of [`event::numbered`] and nothing else.
#[derive(Debug)]
pub struct Reader {
    file: KernelFile,
    rings: Vec<RingReader>,
    positions: Vec<LttRingPositions>,
}

impl Reader {
    /// Opens a file, to read from the consumed position.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// If the kernel says of it what cannot be.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = KernelFile::open_to_consume(path)?;
        let channel = Channel::new(&file.info()?.channel).expect("a channel");
        let mut positions = vec![LttRingPositions::default(); channel.nr_rings() as usize];
        file.positions(&mut positions)?;
        let rings = positions
            .iter()
            .map(|at| RingReader::live(channel.format(), at.consumed, u64::MAX))
            .collect();
        Ok(Self {
            file,
            rings,
            positions,
        })
    }

    /// Reads and consumes the rings, and calls `tell` with the ring and each event. Returns whether
    /// the process is dead.
    ///
    /// # Panics
    /// If the kernel refuses, or if there is anything that is not whole.
    pub fn drain(&mut self, tell: impl FnMut(usize, (u32, u64))) -> bool {
        let dead = self.look(tell, |ring, kind| panic!("{kind:?} in ring {ring}"));
        for (ring, (reader, at)) in self.rings.iter().zip(&self.positions).enumerate() {
            if reader.position() > at.consumed {
                self.file
                    .consume(ring as u32, reader.position())
                    .expect("LTT_IOC_CONSUME");
            }
        }
        dead
    }

    /// Like [`drain`](Self::drain), but consumes nothing, and calls `gap` for each gap.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn look(
        &mut self,
        mut tell: impl FnMut(usize, (u32, u64)),
        gap: impl FnMut(usize, GapKind),
    ) -> bool {
        self.look_with_times(|ring, _, event| tell(ring, event), gap)
    }

    /// Like [`look`](Self::look), with the time of each event.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn look_with_times(
        &mut self,
        mut tell: impl FnMut(usize, u64, (u32, u64)),
        mut gap: impl FnMut(usize, GapKind),
    ) -> bool {
        let info = self.file.info().expect("LTT_IOC_INFO");
        let channel = Channel::new(&info.channel).expect("a channel");
        let flags = self
            .file
            .positions(&mut self.positions)
            .expect("LTT_IOC_POSITIONS");
        let dead = flags & LTT_FILE_DEAD != 0;
        let policy = if dead {
            WaitPolicy::Last
        } else {
            WaitPolicy::Wait
        };
        for (ring, reader) in self.rings.iter_mut().enumerate() {
            let at = self.positions[ring];
            let mut memory = FileRing::new(&self.file, &channel, ring as u32);
            let read: Result<(), std::convert::Infallible> = reader.read(
                &mut memory,
                at.head,
                policy,
                &Numbered,
                &mut |item: Item<'_>| {
                    match item {
                        Item::Record { time, payload, .. } => {
                            tell(ring, time, event::read(payload));
                        }
                        Item::Gap { kind } => gap(ring, kind),
                        Item::SubBuffer { .. } | Item::Overwritten { .. } => {}
                    }
                    Ok(())
                },
            );
            let Ok(()) = read;
        }
        dead
    }

    /// The counts of all rings.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.rings.iter().for_each(|ring| sum += ring.counts());
        sum
    }

    /// Events that the rings had lost when [`drain`](Self::drain) looked.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.positions.iter().map(|at| at.lost).sum()
    }
}
