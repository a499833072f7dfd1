//! The entries of the running kernel's crash directory.

use std::collections::BTreeMap;
use std::path::Path;

use usertrace_crash::{ElfDump, PhysicalMemory, Presence};
use usertrace_sys::crash::{
    LTT_CRASH_FREE, LTT_CRASH_MAGIC, LTT_CRASH_PAGE_MAGIC, LttCrashEntry, LttCrashPage,
    LttCrashRoot,
};
use zerocopy::FromBytes;

/// Counts the entries of each kind, `LTT_CRASH_*`, without free ones.
///
/// `/proc/kcore` shows the kernel's memory as a core dump, so the directory is found as in the dump
/// of a crashed kernel.
///
/// # Panics
/// If the directory is not what it should be.
#[must_use]
pub fn entries() -> BTreeMap<u32, usize> {
    let memory = ElfDump::open(Path::new("/proc/kcore")).expect("the kernel has CONFIG_PROC_KCORE");
    let read = |address: u64| {
        let mut page = vec![0; 4096];
        assert_eq!(
            memory.read(address, &mut page),
            Presence::Whole,
            "{address:#x}"
        );
        page
    };
    let root = memory.vmcoreinfo().root.expect("NUMBER(ltt_root)");
    let root = LttCrashRoot::read_from_prefix(&read(root))
        .expect("a page")
        .0;
    assert_eq!(root.magic, LTT_CRASH_MAGIC);
    let mut entries = BTreeMap::new();
    let mut next = root.directory;
    while next != 0 {
        let page = read(next);
        let (header, rest) = LttCrashPage::read_from_prefix(&page).expect("a page");
        assert_eq!(header.magic, LTT_CRASH_PAGE_MAGIC);
        for bytes in rest.chunks_exact(root.entry_size as usize) {
            let entry = LttCrashEntry::read_from_prefix(bytes).expect("an entry").0;
            if entry.kind != LTT_CRASH_FREE {
                *entries.entry(entry.kind).or_default() += 1;
            }
        }
        next = header.next;
    }
    entries
}
