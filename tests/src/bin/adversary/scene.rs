//! The state of a traced program's areas, shared by its threads.

use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use usertrace_sys::Calls;
use usertrace_sys::uapi::{LttInfo, LttInfoChannel, LttTracebuf};
use usertrace_tests::areas::SLOTS;
use usertrace_tests::random::Random;

use crate::pattern;
use crate::probe;

/// How many written pages are remembered, to be read again.
const TOUCHED: usize = 256;
pub(crate) const PAGE: usize = 4096;
/// The length of the memory that calls copy from, and may write.
pub(crate) const SPARE: usize = 4 * PAGE;

/// The largest ring.
const RING: usize = 64 << 20;

/// One of the areas, or where it was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// A ring of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingRange {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) control: usize,
}

pub(crate) struct Scene {
    /// The family of the words that this program writes.
    family: AtomicU32,
    number: AtomicU64,
    /// The last result of `alloc_tracebuf`: info, control, buffers, each with its length. 0: none.
    areas: [AtomicUsize; 8],
    touched: [AtomicUsize; TOUCHED],
    next: AtomicUsize,
    /// The last buffer that `ltt_update` returned for each slot.
    pub(crate) buffers: [AtomicUsize; SLOTS],
    /// Whether all areas are mapped, as the kernel mapped them.
    intact: AtomicBool,
    /// Whether the program has one thread, and shares its memory with no other process.
    pub(crate) alone: AtomicBool,
    /// Memory without Rust objects.
    spare: AtomicUsize,
    /// The last update signal.
    pub(crate) signo: AtomicU32,
}

/// The areas of this process.
pub(crate) static SCENE: Scene = Scene {
    family: AtomicU32::new(0),
    number: AtomicU64::new(0),
    areas: [const { AtomicUsize::new(0) }; 8],
    touched: [const { AtomicUsize::new(0) }; TOUCHED],
    next: AtomicUsize::new(0),
    buffers: [const { AtomicUsize::new(0) }; SLOTS],
    intact: AtomicBool::new(false),
    alone: AtomicBool::new(true),
    spare: AtomicUsize::new(0),
    signo: AtomicU32::new(0),
};

/// The calls of this kernel.
pub(crate) fn calls() -> Calls {
    Calls::discover().expect("this is the patched kernel")
}

impl Scene {
    /// Begins a child of this program, which writes words of its own family.
    pub(crate) fn fork(&self, family: u32) {
        self.family.store(family, Ordering::Relaxed);
        self.intact.store(false, Ordering::Relaxed);
        self.alone.store(true, Ordering::Relaxed);
        for page in &self.touched {
            page.store(0, Ordering::Relaxed);
        }
        for buffer in &self.buffers {
            buffer.store(0, Ordering::Relaxed);
        }
        self.fill();
    }

    /// Begins a new program.
    pub(crate) fn begin(&self, family: u32) {
        // SAFETY: A new mapping, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * SPARE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "memory");
        self.spare.store(at as usize, Ordering::Relaxed);
        self.fork(family);
    }

    /// Fills the memory that calls may copy into an area.
    fn fill(&self) {
        for at in (0..SPARE).step_by(8) {
            let _ = probe::write(self.spare() + at, self.word());
        }
    }

    pub(crate) fn family(&self) -> u32 {
        self.family.load(Ordering::Relaxed)
    }

    /// The next word of this program.
    pub(crate) fn word(&self) -> u64 {
        pattern::traced(self.family(), self.number.fetch_add(1, Ordering::Relaxed))
    }

    /// The address of memory that calls may read: it has this program's words.
    pub(crate) fn spare(&self) -> usize {
        self.spare.load(Ordering::Relaxed)
    }

    /// The address of memory that calls may overwrite.
    pub(crate) fn scratch(&self) -> usize {
        self.spare() + SPARE
    }

    /// Notes new areas.
    pub(crate) fn mapped(&self, at: &LttTracebuf) {
        let words = [
            at.info,
            at.info_len,
            at.control,
            at.control_len,
            at.buffers,
            at.buffers_len,
            at.control_stride,
            at.buffers_stride,
        ];
        for (place, word) in self.areas.iter().zip(words) {
            place.store(word as usize, Ordering::Relaxed);
        }
        self.intact.store(true, Ordering::Relaxed);
    }

    /// Notes that the mappings of the areas may have changed.
    pub(crate) fn meddle(&self) {
        self.intact.store(false, Ordering::Relaxed);
    }

    /// Whether all areas are certainly mapped as the kernel mapped them.
    pub(crate) fn is_intact(&self) -> bool {
        self.alone.load(Ordering::Relaxed) && self.intact.load(Ordering::Relaxed)
    }

    /// The addresses of the areas, or where they were.
    pub(crate) fn areas(&self) -> Option<[Range; 3]> {
        let range = |at: usize| Range {
            start: self.areas[at].load(Ordering::Relaxed),
            len: self.areas[at + 1].load(Ordering::Relaxed),
        };
        let areas = [range(0), range(2), range(4)];
        areas.iter().all(|area| area.start != 0).then_some(areas)
    }

    /// Bytes of a slot of the write area, or of the control area.
    pub(crate) fn stride(&self, buffers: bool) -> usize {
        self.areas[6 + usize::from(buffers)].load(Ordering::Relaxed)
    }

    /// A slot of the write area that `ltt_update` has given.
    pub(crate) fn slot(&self, random: &mut Random) -> usize {
        let first = random.below(SLOTS as u64) as usize;
        (0..SLOTS)
            .map(|at| (first + at) % SLOTS)
            .find(|&slot| self.buffers[slot].load(Ordering::Relaxed) != 0)
            .unwrap_or(first)
    }

    /// A ring of a buffer, by what the info area says now.
    pub(crate) fn ring(&self, random: &mut Random) -> Option<RingRange> {
        let [info, control, buffers] = self.areas()?;
        let slot = self.slot(random);
        let channel = random.below(3) as usize;
        let which = random.below(64);
        let word_at = |at: usize| {
            let whole = probe::read(at & !7).ok()?;
            Some((whole >> (8 * (at & 4))) as u32)
        };
        let told = |offset: usize| Some(word_at(info.start + offset)? as usize % (1 << 20));
        let at = info.start
            + told(offset_of!(LttInfo, trace_offset))?
            + slot * told(offset_of!(LttInfo, trace_stride))?
            + told(offset_of!(LttInfo, channel_offset))?
            + channel * told(offset_of!(LttInfo, channel_stride))?;
        let at = at & !7;
        let long = |offset: usize| probe::read(at + offset).ok();
        let word = |offset: usize| word_at(at + offset);
        let size = word(offset_of!(LttInfoChannel, subbuf_size))? as usize;
        let count = word(offset_of!(LttInfoChannel, subbuf_count))? as usize;
        let rings = u64::from(word(offset_of!(LttInfoChannel, nr_rings))?);
        let stride = word(offset_of!(LttInfoChannel, control_stride))? as usize;
        // Other memory may be where the info area was.
        if rings == 0 || !(PAGE..=RING).contains(&size) || !(1..=RING / size).contains(&count) {
            return None;
        }
        let ring = (which % rings) as usize;
        let len = size * count;
        let start = slot * self.stride(true)
            + long(offset_of!(LttInfoChannel, buffers_offset))? as u32 as usize
            + ring * len;
        let block = slot * self.stride(false)
            + long(offset_of!(LttInfoChannel, control_offset))? as u32 as usize
            + ring * stride;
        let is_inside = start + len <= buffers.len && block + PAGE <= control.len;
        is_inside.then_some(RingRange {
            start: buffers.start + start,
            len,
            control: control.start + block,
        })
    }

    /// A word of a ring, with preference for the first pages.
    pub(crate) fn address(&self, random: &mut Random) -> Option<usize> {
        let ring = self.ring(random)?;
        let pages = ring.len as u64 / PAGE as u64;
        let page = match random.below(3) {
            0 => random.below(pages),
            _ => random.below(pages.min(20)),
        };
        Some(ring.start + page as usize * PAGE + 8 * random.below(PAGE as u64 / 8) as usize)
    }

    /// Remembers a page that was written.
    pub(crate) fn touch(&self, address: usize) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % TOUCHED;
        self.touched[at].store(address & !(PAGE - 1), Ordering::Relaxed);
    }

    /// The pages that were written.
    pub(crate) fn touched(&self) -> impl Iterator<Item = usize> {
        let pages = self.touched.iter().map(|page| page.load(Ordering::Relaxed));
        pages.filter(|&page| page != 0)
    }

    /// A part of an area, and whether it is the whole area.
    pub(crate) fn part(&self, random: &mut Random) -> Option<(Range, bool)> {
        let areas = self.areas()?;
        let area = areas[random.below(3) as usize];
        let pages = (area.len / PAGE) as u64;
        let part = match random.below(8) {
            0 | 1 => area,
            // A page that was written.
            2 | 3 => {
                let at = random.below(TOUCHED as u64) as usize;
                match self.touched[at].load(Ordering::Relaxed) {
                    // Other memory may be where other areas were.
                    page if !(area.start..area.start + area.len).contains(&page) => area,
                    page => Range {
                        start: page,
                        len: PAGE * (1 + random.below(4) as usize),
                    },
                }
            }
            // From the start, to the end, in the middle, over the end.
            4 => Range {
                len: PAGE * (1 + random.below(pages) as usize),
                ..area
            },
            5 => {
                let len = PAGE * (1 + random.below(pages.min(64)) as usize);
                Range {
                    start: area.start + area.len - len,
                    len,
                }
            }
            6 => {
                let first = random.below(pages) as usize;
                let most = pages as usize - first;
                Range {
                    start: area.start + first * PAGE,
                    len: PAGE * (1 + random.below(most.min(64) as u64) as usize),
                }
            }
            _ => {
                // A slot.
                let len = (area.len / SLOTS) & !(PAGE - 1);
                Range {
                    start: area.start + len * self.slot(random),
                    len: len.max(PAGE),
                }
            }
        };
        let is_whole = part.start == area.start && part.len == area.len;
        Some((part, is_whole))
    }
}

/// The name and file offset of the mapping at an address, from `/proc/self/maps`.
fn mapping_at(address: usize) -> Option<(String, usize)> {
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    for line in text.lines() {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        if (number(start)?..number(end)?).contains(&address) {
            let mut words = rest.splitn(5, ' ');
            let offset = number(words.nth(1)?)?;
            let name = words.nth(2).unwrap_or_default().trim_start();
            return Some((name.to_owned(), offset));
        }
    }
    None
}

/// The name of the mapping at an address.
pub(crate) fn name_at(address: usize) -> Option<String> {
    mapping_at(address).map(|(name, _)| name)
}

/// Whether an address is in one of the areas.
pub(crate) fn is_area(address: usize) -> bool {
    name_at(address).is_some_and(|name| name.contains("[ltt]"))
}

/// Whether an address is in a write area, which follows the other areas in the file.
pub(crate) fn is_write_area(address: usize) -> bool {
    let Some([info, control, _]) = SCENE.areas() else {
        return false;
    };
    mapping_at(address)
        .is_some_and(|(name, offset)| name.contains("[ltt]") && offset >= info.len + control.len)
}
