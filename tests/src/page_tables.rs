//! The kernel's own page tables: at which addresses the kernel maps a page.
//!
//! The kernel shows its memory as a core dump (`/proc/kcore`), and its vmcoreinfo has the address
//! of the top table. From there this module reads all tables as the processor does. x86-64 only.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use usertrace_crash::{ElfDump, PhysicalMemory, Presence};
use usertrace_sys::crash::{
    LTT_CRASH_ADDRESS, LTT_CRASH_MAGIC, LTT_CRASH_PRESENT, LttCrashContent, LttCrashEntry,
    LttCrashPage, LttCrashRoot, LttCrashTree,
};
use zerocopy::{FromBytes, IntoBytes};

const PAGE: u64 = 4096;
/// Words in a table.
const FANOUT: u64 = 512;

/// Bits of a word of a table of x86-64.
const PRESENT: u64 = 1;
const IS_LEAF: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// `__START_KERNEL_map`: where the kernel maps its image.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Memory of the running kernel.
#[derive(Debug)]
pub struct KernelMemory {
    memory: ElfDump,
    vmcoreinfo: String,
}

impl KernelMemory {
    /// Opens the memory of this kernel.
    ///
    /// # Panics
    /// If the kernel lacks `/proc/kcore` or a vmcoreinfo.
    #[must_use]
    pub fn open() -> Self {
        let memory = ElfDump::open(Path::new("/proc/kcore")).expect("CONFIG_PROC_KCORE");
        let location = fs::read_to_string("/sys/kernel/vmcoreinfo").expect("CONFIG_VMCORE_INFO");
        let (address, len) = location.trim().split_once(' ').expect("two numbers");
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let (address, len) = (number(address).expect("hex"), number(len).expect("hex"));
        let mut note = vec![0; len as usize];
        assert_eq!(memory.read(address, &mut note), Presence::Whole);
        let vmcoreinfo = String::from_utf8_lossy(&note).into_owned();
        Self { memory, vmcoreinfo }
    }

    fn page(&self, address: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE as usize];
        let presence = self.memory.read(address, &mut page);
        assert_eq!(presence, Presence::Whole, "{address:#x}");
        page
    }

    fn words(&self, address: u64) -> [u64; FANOUT as usize] {
        let mut words = [0; FANOUT as usize];
        let presence = self.memory.read(address, words.as_mut_bytes());
        assert_eq!(presence, Presence::Whole, "{address:#x}");
        words
    }

    /// The value of a line of the vmcoreinfo.
    fn line(&self, name: &str) -> &str {
        let mut lines = self.vmcoreinfo.lines();
        let value = lines.find_map(|line| line.split_once(name)?.1.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.vmcoreinfo))
    }

    /// The virtual address of the kernel's top table, and its physical address.
    ///
    /// # Panics
    /// If the vmcoreinfo lacks the address.
    #[must_use]
    pub fn top_table(&self) -> (u64, u64) {
        let address = u64::from_str_radix(self.line("SYMBOL(swapper_pg_dir)"), 16).expect("hex");
        let moved: i64 = self.line("NUMBER(phys_base)").parse().expect("a number");
        (address, (address - IMAGE).wrapping_add_signed(moved))
    }

    /// Returns the virtual addresses at which the kernel maps each `wanted` page, by physical
    /// address. A large page counts as the pages of 4 KiB that it consists of.
    ///
    /// # Panics
    /// If a table cannot be read.
    #[must_use]
    pub fn mappings(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u64>> {
        let has_five = self.line("NUMBER(pgtable_l5_enabled)") == "1";
        let mut numbers = vec![false; wanted.last().map_or(0, |last| last / PAGE + 1) as usize];
        for page in wanted {
            numbers[(page / PAGE) as usize] = true;
        }
        let mut walk = Walk {
            memory: self,
            wanted,
            numbers,
            seen: HashSet::new(),
            found: BTreeMap::new(),
        };
        let level = if has_five { 4 } else { 3 };
        walk.table(self.top_table().1, level, 0);
        walk.found
    }

    /// The physical addresses of all pages of rings, of all processes and traces.
    ///
    /// # Panics
    /// If the crash directory is damaged.
    #[must_use]
    pub fn ring_pages(&self) -> BTreeSet<u64> {
        let root = self.memory.vmcoreinfo().root.expect("NUMBER(ltt_root)");
        let page = self.page(root);
        let root = LttCrashRoot::read_from_prefix(&page).expect("a page").0;
        assert_eq!(root.magic, LTT_CRASH_MAGIC);
        let mut pages = BTreeSet::new();
        let mut next = root.directory;
        while next != 0 {
            let page = self.page(next);
            let (header, rest) = LttCrashPage::read_from_prefix(&page).expect("a page");
            for bytes in rest.chunks_exact(root.entry_size as usize) {
                let entry = LttCrashEntry::read_from_prefix(bytes).expect("an entry").0;
                if let LttCrashContent::Buffer(buffer) = entry.content() {
                    let LttCrashTree { root, depth, .. } = buffer.buffers;
                    self.leaves(root, depth, &mut pages);
                }
            }
            next = header.next;
        }
        pages
    }

    fn leaves(&self, word: u64, level: u32, pages: &mut BTreeSet<u64>) {
        if word & LTT_CRASH_PRESENT == 0 {
            return;
        }
        let address = word & LTT_CRASH_ADDRESS;
        if level == 0 {
            pages.insert(address);
            return;
        }
        for word in self.words(address) {
            self.leaves(word, level - 1, pages);
        }
    }
}

struct Walk<'a> {
    memory: &'a KernelMemory,
    wanted: &'a BTreeSet<u64>,
    /// Whether a page is wanted, by its number: a quick check, as most pages are not.
    numbers: Vec<bool>,
    /// Tables that were read, with their levels. KASAN maps the same tables at many addresses.
    seen: HashSet<(u64, u32)>,
    found: BTreeMap<u64, Vec<u64>>,
}

impl Walk<'_> {
    /// Reads a table whose words stand for pages (level 0), or for tables of the level below.
    fn table(&mut self, table: u64, level: u32, start: u64) {
        if !self.seen.insert((table, level)) {
            return;
        }
        let len = PAGE * FANOUT.pow(level);
        let is_top = self.seen.len() == 1;
        for (index, word) in (0..).zip(self.memory.words(table)) {
            // The lower half is that of programs.
            if word & PRESENT == 0 || is_top && index < FANOUT / 2 {
                continue;
            }
            // The address is extended by its highest bit.
            let sign = if is_top {
                !0 << (12 + 9 * (level + 1))
            } else {
                0
            };
            let at = sign | (start + index * len);
            if level > 0 && word & IS_LEAF == 0 {
                self.table(word & ADDRESS, level - 1, at);
                continue;
            }
            let first = word & ADDRESS & !(len - 1);
            let is_wanted = |number: u64| self.numbers.get(number as usize) == Some(&true);
            if level == 0 && !is_wanted(first / PAGE) {
                continue;
            }
            for &page in self.wanted.range(first..first + len) {
                self.found.entry(page).or_default().push(at + page - first);
            }
        }
    }
}
