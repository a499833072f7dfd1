//! Simulates the memory of a machine that crashed while programs were traced, and makes dumps of
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::{RingWriter, words};

pub const PAGE: u64 = 4096;

/// Geometry of the rings in dumps.
pub const SUBBUF_SIZE: u64 = 4096;
pub const SUBBUF_COUNT: u64 = 4;
const RING: u64 = SUBBUF_SIZE * SUBBUF_COUNT;
const STRIDE: u64 = 128;

/// Physical memory: its pages other than zeros.
#[derive(Clone, Default)]
pub struct Memory {
    pub pages: BTreeMap<u64, Vec<u8>>,
    next: u64,
    is_reserved: bool,
}

impl Memory {
    /// Reserved memory, in which pages are contiguous.
    pub fn reserved() -> Self {
        Self {
            is_reserved: true,
            ..Self::default()
        }
    }

    /// Allocates a page. Successive pages are scattered, unless the memory is reserved.
    pub fn page(&mut self, bytes: &[u8]) -> u64 {
        self.next += 1;
        let number = match self.is_reserved {
            true => self.next,
            false => self.next * 7919 % 65521,
        };
        let address = 0x10_0000 + number * PAGE;
        let mut page = bytes.to_vec();
        page.resize(PAGE as usize, 0);
        assert!(self.pages.insert(address, page).is_none());
        address
    }

    pub fn store(&mut self, address: u64, word: u64) {
        let page = self.pages.get_mut(&(address & !(PAGE - 1))).unwrap();
        let at = (address % PAGE) as usize;
        page[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    pub fn copy(&self, address: u64) -> Vec<u8> {
        self.pages[&address].clone()
    }

    pub fn load(&self, address: u64) -> u64 {
        let page = &self.pages[&(address & !(PAGE - 1))];
        let at = (address % PAGE) as usize;
        u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
    }

    /// Builds a tree of the pages of `area` that are not zeros. Returns its root, number of pages,
    /// and depth.
    pub fn tree(&mut self, area: &[u8], depth: u32) -> [u64; 3] {
        let mut level: Vec<u64> = area
            .chunks(PAGE as usize)
            .map(|page| match page.iter().any(|&b| b != 0) {
                true => self.page(page) | 1,
                false => 0,
            })
            .collect();
        let pages = level.len() as u64;
        for _ in 0..depth {
            level = level
                .chunks(PAGE as usize / 8)
                .map(|entries| {
                    let mut bytes = Vec::new();
                    words(&mut bytes, entries);
                    match entries.iter().any(|&word| word != 0) {
                        true => self.page(&bytes) | 1,
                        false => 0,
                    }
                })
                .collect();
        }
        assert_eq!(level.len(), 1, "the tree is not high enough");
        [level[0], pages, u64::from(depth)]
    }
}

/// An additional channel: its index, its name, and its rings, one for each CPU.
pub type Further = (u64, String, Vec<RingWriter>);

/// A process. It has a ring of descriptions and one of events for each CPU, and additional
/// channels, the same for all processes of a trace.
#[derive(Clone)]
pub struct Process {
    pub number: u64,
    pub pid: u32,
    pub comm: String,
    pub control: Vec<RingWriter>,
    pub main: Vec<RingWriter>,
    pub further: Vec<Further>,
}

pub fn ring(cpu: u32) -> RingWriter {
    RingWriter::new(SUBBUF_SIZE, SUBBUF_COUNT, cpu)
}

impl Process {
    pub fn new(number: u64, pid: u32, comm: &str, cpus: u32) -> Self {
        Self {
            number,
            pid,
            comm: comm.into(),
            control: (0..cpus).map(ring).collect(),
            main: (0..cpus).map(ring).collect(),
            further: Vec::new(),
        }
    }
}

pub struct Trace {
    pub generation: u64,
    pub name: String,
    pub processes: Vec<Process>,
}

/// `struct ltt_clock_sync` at the time of the traces: 2 cycles per nanosecond.
pub const SYNC: [u64; 4] = [1_000_000, 500_000, 1_700_000_000_000_000_000, 2_000_000_000];

fn name(text: &str, len: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.truncate(len - 1);
    bytes.resize(len, 0);
    bytes
}

/// `struct ltt_info_channel`.
fn channel(title: &str, buffers: u64, control: u64, rings: u32, cell_size: u32) -> Vec<u8> {
    let mut bytes = name(title, 32);
    words(&mut bytes, &[buffers, control]);
    words(&mut bytes, &[SUBBUF_SIZE | SUBBUF_COUNT << 32]);
    words(&mut bytes, &[u64::from(rings) | STRIDE << 32]);
    if cell_size != 0 {
        // Mode and protocol of tables.
        words(&mut bytes, &[3 << 32, 2, cell_size.into()]);
    }
    bytes.resize(32 + 16 + 16 + 12 + 36, 0);
    bytes
}

/// `struct ltt_crash_entry`.
fn entry(kind: u32, serial: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    words(&mut bytes, &[u64::from(kind), serial]);
    bytes.extend_from_slice(content);
    assert!(bytes.len() <= 256);
    bytes.resize(256, 0);
    bytes
}

/// A machine that crashed.
pub struct Machine {
    pub memory: Memory,
    pub root: u64,
    /// Pages of the directory.
    pub directory: Vec<u64>,
    /// Roots of the trees of the write area and the control area, for each process of each trace.
    pub trees: Vec<[u64; 2]>,
    /// The kernel's notes of the crash: clock, CPU and thread.
    pub crash: Option<(u64, u32, u32)>,
}

pub fn machine(traces: &[Trace]) -> Machine {
    machine_with(Memory::default(), traces)
}

/// A machine whose traces are in this memory.
pub fn machine_with(mut memory: Memory, traces: &[Trace]) -> Machine {
    let mut entries = Entries::default();
    for trace in traces {
        entries.add_trace(&mut memory, trace);
    }
    let Entries {
        mut entries, trees, ..
    } = entries;
    // Removed entries leave meaningless ones.
    entries.insert(1, entry(0, 99, &[0xff; 200]));

    let mut directory = Vec::new();
    let mut next = 0;
    for chunk in entries.chunks((PAGE as usize - 256) / 256).rev() {
        let mut bytes = Vec::new();
        words(&mut bytes, &[0x4745_5249_44ab_544c, next]);
        bytes.resize(256, 0);
        bytes.extend(chunk.concat());
        next = memory.page(&bytes);
        directory.insert(0, next);
    }
    let root = memory.page(&root_page(next));
    Machine {
        memory,
        root,
        directory,
        trees,
        crash: None,
    }
}

/// The root page of a directory that begins at this address.
fn root_page(directory: u64) -> Vec<u8> {
    let root_words = [0x544f_4f52_5454_4cab, 2 | PAGE << 32, 256 | 1 << 32];
    let sum = root_words
        .iter()
        .fold(0u64, |sum, word| sum.wrapping_sub(*word));
    let mut bytes = Vec::new();
    words(&mut bytes, &root_words);
    words(&mut bytes, &[sum, directory]);
    words(
        &mut bytes,
        &[SYNC[0] - 1000, SYNC[1] - 500, SYNC[2] - 500, SYNC[3]],
    );
    bytes
}

/// A channel in the areas of a trace's processes.
struct PlacedChannel<'a> {
    index: u64,
    title: &'a str,
    /// Offsets of its rings and of its control blocks.
    buffers: u64,
    control: u64,
    rings: u64,
    /// Size of a cell, if it has tables of counters.
    cell_size: u32,
}

/// The channels of a trace, and the lengths of its processes' areas.
fn layout(trace: &Trace) -> (Vec<PlacedChannel<'_>>, [u64; 2]) {
    let cpus = trace.processes.first().map_or(1, |p| p.main.len()) as u64;
    // Layout of the areas: rings of `control`, a hole, rings of `main`. Control blocks are on pages
    // of their own, in the same order.
    let main_buffers = cpus * RING + 2 * PAGE;
    let channel = |index, title, buffers, control, rings| PlacedChannel {
        index,
        title,
        buffers,
        control,
        rings,
        cell_size: 0,
    };
    let mut channels = vec![
        channel(0, "control", 0, 64, cpus),
        channel(1, "main", main_buffers, 8192, cpus),
    ];
    // Additional channels follow.
    let (mut buffers_len, mut control_len) = (main_buffers + cpus * RING + PAGE, 8192 + PAGE);
    let further = trace.processes.first().map_or(&[][..], |p| &p.further);
    for (index, title, rings) in further {
        let cell_size = rings.first().map_or(0, |ring| ring.cell_size);
        let rings = rings.len() as u64;
        channels.push(PlacedChannel {
            cell_size,
            ..channel(*index, title, buffers_len, control_len, rings)
        });
        buffers_len += rings * RING;
        control_len += PAGE;
    }
    (channels, [buffers_len, control_len])
}

/// The entries of a directory.
struct Entries {
    entries: Vec<Vec<u8>>,
    trees: Vec<[u64; 2]>,
    serial: u64,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            trees: Vec::new(),
            serial: 1,
        }
    }
}

impl Entries {
    fn push(&mut self, kind: u32, content: &[u8]) {
        self.entries.push(entry(kind, self.serial, content));
        self.serial += 1;
    }

    /// Adds a trace with its channels and processes.
    fn add_trace(&mut self, memory: &mut Memory, trace: &Trace) {
        let mut content = Vec::new();
        words(&mut content, &[trace.generation]);
        content.extend(name(&trace.name, 32));
        words(&mut content, &[3 | 1 << 32]);
        words(&mut content, &SYNC);
        // The processor's clock, as in the root page.
        words(&mut content, &[1]);
        self.push(1, &content);
        let (channels, lens) = layout(trace);
        for placed in &channels {
            let mut content = Vec::new();
            words(&mut content, &[trace.generation, placed.index]);
            content.extend(channel(
                placed.title,
                placed.buffers,
                placed.control,
                placed.rings as u32,
                placed.cell_size,
            ));
            self.push(2, &content);
        }
        for process in &trace.processes {
            self.add_process(memory, trace, process, &channels, lens);
        }
    }

    /// Adds a process and its areas, which have these lengths.
    fn add_process(
        &mut self,
        memory: &mut Memory,
        trace: &Trace,
        process: &Process,
        channels: &[PlacedChannel<'_>],
        [buffers_len, control_len]: [u64; 2],
    ) {
        let mut buffers = vec![0; buffers_len as usize];
        let mut control = vec![0; control_len as usize];
        let further = process.further.iter().map(|(_, _, rings)| rings);
        let rings = [&process.control, &process.main].into_iter().chain(further);
        for (rings, placed) in rings.zip(channels) {
            for (n, ring) in (0..).zip(rings) {
                put(&mut buffers, placed.buffers + n * RING, &ring.bytes);
                put(&mut control, placed.control + n * STRIDE, &ring.control());
            }
        }
        let mut content = Vec::new();
        words(
            &mut content,
            &[process.number, 77, u64::from(process.pid), 0],
        );
        content.extend(name(&process.comm, 16));
        self.push(3, &content);
        let mut content = Vec::new();
        words(&mut content, &[process.number, trace.generation]);
        let (of_buffers, of_control) = (memory.tree(&buffers, 2), memory.tree(&control, 1));
        words(&mut content, &of_buffers);
        words(&mut content, &of_control);
        self.push(4, &content);
        self.trees.push([of_buffers[0], of_control[0]]);
    }
}

fn put(area: &mut [u8], at: u64, bytes: &[u8]) {
    area[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

/// Layout of a dump.
#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// A segment for each run of pages.
    Runs,
    /// Segments that claim more memory than the file has; zeros follow.
    Tail,
    /// Each page in two overlapping segments.
    Overlapping,
    /// Without the kernel's vmcoreinfo.
    WithoutNotes,
    /// Without the page at this address, as if makedumpfile excluded it.
    LeavingOut(u64),
}

/// A segment of the file: address, bytes, and length in memory.
type Segment = (u64, Vec<u8>, u64);

/// Makes an ELF core file.
pub fn elf(machine: &Machine, style: Style) -> Vec<u8> {
    let mut segments: Vec<Segment> = Vec::new();
    for (&address, page) in &machine.memory.pages {
        match (segments.last_mut(), style) {
            (Some((start, bytes, len)), Style::Runs) if *start + *len == address => {
                bytes.extend_from_slice(page);
                *len += PAGE;
            }
            (_, Style::Overlapping) => {
                segments.push((address, page[..3000].to_vec(), 3000));
                segments.push((address + 1000, page[1000..].to_vec(), PAGE - 1000));
            }
            (_, Style::LeavingOut(out)) if out == address => {
                segments.push((address, Vec::new(), PAGE));
            }
            // Zeros follow, which are not in the file.
            (_, Style::Tail) => segments.push((address, page.clone(), 3 * PAGE)),
            _ => segments.push((address, page.clone(), PAGE)),
        }
    }
    if style == Style::Tail {
        // Segments need not be sorted.
        segments.reverse();
    }
    let mut info = format!(
        "OSRELEASE=7.3.4-test\nPAGESIZE=4096\nNUMBER(ltt_root)={:#x}\nCRASHTIME=1700000001\n",
        machine.root
    );
    if let Some((cycles, cpu, thread)) = machine.crash {
        info += &format!(
            "NUMBER(ltt_crash_cycles)={cycles}\nNUMBER(ltt_crash_cpu)={cpu}\nNUMBER(ltt_crash_thread)={thread}\n"
        );
    }
    let notes: &[(&str, u32, &[u8])] =
        &[("CORE", 1, &[0; 336]), ("VMCOREINFO", 0, info.as_bytes())];
    let kept = if style == Style::WithoutNotes { 1 } else { 2 };
    file(&notes[..kept], &segments)
}

/// Saves raw memory, from address 0 on.
pub fn save_raw(path: &Path, machine: &Machine) {
    let file = fs::File::create(path).unwrap();
    for (&address, page) in &machine.memory.pages {
        file.write_all_at(page, address).unwrap();
    }
}

/// Saves the memory as reserved memory of a previous boot: a page in front describes it, and leads
/// to the directory as the root page does.
pub fn save_reserved(path: &Path, machine: &Machine) {
    let first = machine.memory.pages.keys().next().unwrap() - PAGE;
    let last = machine.memory.pages.keys().next_back().unwrap();
    let mut head = vec![0x5345_5253_44ab_544c, first, last + PAGE - first, 7];
    head.push(head.iter().fold(0u64, |sum, word| sum.wrapping_sub(*word)));
    head.extend([0; 3]);
    let mut bytes = Vec::new();
    words(&mut bytes, &head);
    bytes.extend(machine.memory.copy(machine.root));
    bytes.truncate(PAGE as usize);
    let file = fs::File::create(path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    for (&address, page) in &machine.memory.pages {
        file.write_all_at(page, address - first).unwrap();
    }
}

pub fn file(notes: &[(&str, u32, &[u8])], segments: &[Segment]) -> Vec<u8> {
    let mut note_bytes = Vec::new();
    for (name, kind, content) in notes {
        for word in [name.len() as u32 + 1, content.len() as u32, *kind] {
            note_bytes.extend_from_slice(&word.to_le_bytes());
        }
        for bytes in [name.as_bytes(), &[0]]
            .concat()
            .chunks(4)
            .chain(content.chunks(4))
        {
            note_bytes.extend_from_slice(bytes);
            note_bytes.resize(note_bytes.len().next_multiple_of(4), 0);
        }
    }
    let headers = 64 + 56 * (1 + segments.len() as u64);
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    words(&mut bytes, &[0, 64, 0]);
    bytes.extend([0, 0, 0, 0, 64, 0, 56, 0]);
    bytes.extend((1 + segments.len() as u16).to_le_bytes());
    bytes.resize(64, 0);
    let mut offset = headers;
    let mut header = |bytes: &mut Vec<u8>, kind: u64, address, file: u64, memory: u64| {
        words(
            bytes,
            &[
                kind | 6 << 32,
                offset,
                0xffff_8880_0000_0000u64.wrapping_add(address),
                address,
            ],
        );
        words(bytes, &[file, memory, 0]);
        offset += file;
    };
    header(
        &mut bytes,
        4,
        0,
        note_bytes.len() as u64,
        note_bytes.len() as u64,
    );
    for (address, content, len) in segments {
        header(&mut bytes, 1, *address, content.len() as u64, *len);
    }
    bytes.extend(note_bytes);
    for (_, content, _) in segments {
        bytes.extend(content);
    }
    bytes
}

pub fn save(path: &Path, machine: &Machine, style: Style) {
    fs::write(path, elf(machine, style)).unwrap();
}
