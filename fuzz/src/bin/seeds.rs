//! Writes the initial inputs of each target to files in a directory of its name: `seeds DIRECTORY`.
//!
//! The corpus does not contain them: it has the inputs that the fuzzer found from them.

use std::fs;
use std::path::Path;

use miniz_oxide::deflate::compress_to_vec_zlib;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use usertrace_crash::ExtractOptions;
use usertrace_testing::extraction::extract_all;
use usertrace_testing::RingWriter;
use usertrace_testing::dump::{
    self, Machine, PAGE, Process, SYNC, Trace, file, machine_with, save_reserved,
};
use usertrace_fuzz::{BETWEEN, Memory, scratch, traced};
use usertrace_sys::crash::LttCrashRoot;

fn main() {
    let directory = std::env::args_os().nth(1).expect("a directory");
    let directory = Path::new(&directory);
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let of_target = directory.join(target);
        fs::create_dir_all(&of_target).expect("a directory");
        fs::write(of_target.join(name), bytes).expect("a file");
    };

    let machine = small(dump::Memory::default());
    write("dump", "elf", &elf(&machine, true));
    write("dump", "elf-without-notes", &elf(&machine, false));
    write("dump", "flattened", &flattened(&elf(&machine, true)));
    write("dump", "kdump", &kdump(&machine));
    save_reserved(&directory.join("dump/reserved"), &small(dump::Memory::reserved()));
    // An image of a root page that leads nowhere.
    let at = std::mem::offset_of!(LttCrashRoot, directory);
    let mut root = machine.memory.copy(machine.root);
    root[at..at + 8].fill(0);
    write("dump", "raw", &root);

    write("relay", "accepted", &accepted());

    for (n, text) in [
        "status >= 500 && path == \"/api/*\"",
        "!(a & 0x6 == 2) || -b < 0.5 && $ctx.vtid != 017",
        "sizes[3] >> 2 ^ _sizes_length == ~'a\\*b'",
    ]
    .iter()
    .enumerate()
    {
        let rule = b"\0\x05\x06served\0\x10\x0bstatus >= 5";
        let input = [text.as_bytes(), &[0], rule].concat();
        write("expression", &format!("expression-{n}"), &input);
    }

    let page = |page: u8, kind: u8, word: u16, value: u64| {
        [&[page, kind][..], &word.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    write("directory", "unchanged", &[]);
    for kind in 0..8 {
        let changes: Vec<_> = (0..8)
            .map(|n| page(n * 5 + kind, kind, u16::from(n) * 3, u64::from(n) << 6))
            .collect();
        write("directory", &format!("changes-{kind}"), &changes.concat());
    }
    let cycle = page(1, 4, 1, 0);
    write("directory", "cycle", &cycle);

    for (how, protocol) in [(0x10u8, "rseq"), (0x14, "shared"), (0, "waiting")] {
        let mut ring = RingWriter::new(4096, 2, 0);
        ring.meta(10, "1 t:number 6 u64 n");
        ring.meta(11, "2 t:text 6 str s;u64 n;seq u8 bytes");
        for n in 0..40u64 {
            ring.event(2, 20 + n, &n.to_le_bytes());
        }
        ring.long(2, 99, &[7; 24], 62);
        ring.long(2, 100, &[7; 24], 63);
        let positions = [ring.head, ring.claimed].map(u64::to_le_bytes).concat();
        write(
            "ring",
            protocol,
            &[&[how][..], &positions, &ring.bytes].concat(),
        );
    }

    // A cell of a number, one of a text, and the overflow cell.
    let cell = |count: u64, name: u64, key: [u64; 4], bucket: u64| {
        let state = [count * 7, 0, 7, 7, 3 << 56 | bucket];
        let mut words = [0; 80];
        words[..2].copy_from_slice(&[count, name]);
        words[2..6].copy_from_slice(&key);
        words[6..11].copy_from_slice(&state);
        words[11..16].copy_from_slice(&state);
        words.map(u64::to_le_bytes).concat()
    };
    let text = u64::from_le_bytes(*b"ab\0\0\0\0\0\0");
    let cells = [
        cell(2, 0, [0; 4], 2),
        cell(3, 1 | 0xffff_ffff << 32, [5, 0, 0, 0], 3),
        vec![0; 640],
        cell(4, 2 | 2 << 32, [text, 0, 0, 0], 1),
    ];
    let plain: Vec<u8> = cells.iter().flat_map(|cell| cell[..64].to_vec()).collect();
    for (how, name, bytes) in [(0u8, "plain", plain), (4, "values", cells.concat())] {
        for (changes, moment) in [(0, "at-rest"), (9, "live")] {
            let input = [&[how, changes][..], &bytes].concat();
            write("table", &format!("{name}-{moment}"), &input);
        }
    }

    // The extracted traces of a machine, process by process.
    let output = scratch();
    let machine = traced(1);
    let memory = Memory(machine.memory.pages);
    let extraction = extract_all(
        &memory,
        machine.root,
        &ExtractOptions::default(),
        output.path(),
    )
    .expect("it is whole");
    for process in extraction.traces.iter().flat_map(|trace| &trace.processes) {
        let file = |name: &str| fs::read(process.directory.join(name)).expect("a file");
        let files = [file("metadata"), file("main_0"), file("main_1")];
        write("trace", &process.comm, &files.join(BETWEEN));
    }
}

/// A machine with one process, which wrote a few events to this memory.
fn small(memory: dump::Memory) -> Machine {
    let mut process = Process::new(1, 100, "prog", 1);
    process.control[0].meta(SYNC[0], "1 t:number 6 u64 n;str s");
    for n in 0..4u64 {
        process.main[0].event(1, SYNC[0] + n, &[&n.to_le_bytes()[..], b"text\0"].concat());
    }
    let trace = Trace {
        generation: 1,
        name: "small".into(),
        processes: vec![process],
    };
    machine_with(memory, &[trace])
}

/// An ELF dump of the machine's pages, without trailing zeros of pages that may be left out.
fn elf(machine: &Machine, notes: bool) -> Vec<u8> {
    let pages = machine.memory.pages.iter().map(|(&address, page)| {
        let used = page
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        let is_whole = machine.directory.contains(&address);
        let len = if is_whole { page.len() } else { used.max(256) };
        (address, page[..len].to_vec(), PAGE)
    });
    let info = format!(
        "NUMBER(ltt_root)={:#x}\nCRASHTIME=1700000001\n",
        machine.root
    );
    let notes: &[(&str, u32, &[u8])] = match notes {
        true => &[("VMCOREINFO", 0, info.as_bytes())],
        false => &[],
    };
    file(notes, &pages.collect::<Vec<_>>())
}

/// A dump in kdump's compressed format: see `crates/crash/src/kdump.rs`.
fn kdump(machine: &Machine) -> Vec<u8> {
    let block = PAGE as usize;
    let pfns: Vec<_> = machine
        .memory
        .pages
        .keys()
        .map(|address| address / PAGE)
        .collect();
    let pages = pfns.last().map_or(0, |last| last + 1);
    let bitmap = (pages as usize).div_ceil(8).next_multiple_of(block);
    let mut bytes = vec![0; block * 2 + bitmap * 2];
    bytes[..8].copy_from_slice(b"KDUMP   ");
    let mut put = |at: usize, value: u64, len: usize| {
        bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    };
    put(8, 6, 4);
    put(428, PAGE, 4);
    put(432, 1, 4);
    put(436, (2 * bitmap / block) as u64, 4);
    put(block + 96, pages, 8);
    for pfn in pfns.iter().map(|&pfn| pfn as usize) {
        for bitmap in [0, bitmap] {
            bytes[block * 2 + bitmap + pfn / 8] |= 1 << (pfn % 8);
        }
    }
    let mut at = bytes.len() + pfns.len() * 24;
    let mut data = Vec::new();
    for (n, page) in machine.memory.pages.values().enumerate() {
        let (flags, packed) = match n % 4 {
            0 => (1u32, compress_to_vec_zlib(page, 6)),
            1 => (2, lzokay::compress::compress(page).expect("a page")),
            2 => (
                4,
                snap::raw::Encoder::new()
                    .compress_vec(page)
                    .expect("a page"),
            ),
            _ => (0x20, compress_to_vec(&page[..], CompressionLevel::Fastest)),
        };
        bytes.extend((at as u64).to_le_bytes());
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 8]);
        at += packed.len();
        data.extend(packed);
    }
    bytes.extend(data);
    bytes
}

/// The flattened form of a dump, in records of some pages.
fn flattened(bytes: &[u8]) -> Vec<u8> {
    let mut flat = b"makedumpfile".to_vec();
    flat.resize(16, 0);
    flat.extend([1u64, 1].iter().flat_map(|word| word.to_be_bytes()));
    flat.resize(4096, 0);
    let records = bytes.chunks(9000).enumerate().rev();
    for (n, record) in records {
        flat.extend((n as u64 * 9000).to_be_bytes());
        flat.extend((record.len() as u64).to_be_bytes());
        flat.extend(record);
    }
    flat.extend([0xff; 16]);
    flat
}

/// What a relay says that accepts everything.
fn accepted() -> Vec<u8> {
    let ok = usertrace_relay::message::OK.to_be_bytes();
    let path = b"host/web-1\0";
    let version = [2u32.to_be_bytes(), 13u32.to_be_bytes()].concat();
    let len = (path.len() as u32).to_be_bytes();
    let session = [&1u64.to_be_bytes()[..], &ok, &len, path].concat();
    let stream = |id: u64| [&id.to_be_bytes()[..], &ok].concat();
    let pending = 0u32.to_be_bytes();
    let streams = [ok.to_vec(), stream(1), stream(2), ok.to_vec()].concat();
    // Three indexes, a beacon, and the metadata's reset; and two closed streams.
    let rest = [ok.repeat(5), pending.to_vec(), ok.repeat(2)].concat();
    [version, session, streams, rest].concat()
}
