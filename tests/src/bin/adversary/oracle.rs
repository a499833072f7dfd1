//! Judges the words that actors read, and what is left after the run.

use std::collections::BTreeMap;
use std::fs;

use usertrace_tests::random::Random;
use usertrace_tests::{control, directory, guest};

use crate::actor::Actor;
use crate::pattern;
use crate::probe;
use crate::scene::{PAGE, SCENE, is_write_area};

/// Judges a word that a traced program read in its own write area.
///
/// Zeros, the program's own words and the kernel's are allowed. Another thread may have mapped
/// other memory there meanwhile, so a foreign word counts only if it is still there, in a mapping
/// of an area.
pub(crate) fn judge_own(actor: &Actor, address: usize, word: u64) {
    let family = Some(SCENE.family());
    if pattern::foreign(word, family).is_none() {
        return;
    }
    let mut what = String::new();
    for _ in 0..3 {
        let before = is_write_area(address);
        let Ok(word) = probe::read(address) else {
            return;
        };
        let Some(foreign) = pattern::foreign(word, family) else {
            return;
        };
        if !before || !is_write_area(address) {
            return;
        }
        what = foreign;
    }
    actor.find(&format!(
        "a page of a buffer is reachable after its end: {address:#x} of this program's areas has {what}"
    ));
}

/// Judges some words of some pages that this program wrote. `every`: of all pages.
pub(crate) fn check_touched(actor: &Actor, random: &mut Random, every: bool) {
    let most = if every { usize::MAX } else { 32 };
    let first = random.below(8) as usize;
    for page in SCENE.touched().skip(first).take(most) {
        for word in (0..PAGE / 8).step_by(128) {
            let address = page + 8 * word;
            // Nothing is mapped there.
            let Ok(word) = probe::read(address) else {
                break;
            };
            judge_own(actor, address, word);
        }
    }
}

/// Judges a word that a consumer read. `pid` is the process of the consumer file.
pub(crate) fn judge_consumed(actor: &Actor, pid: u32, offset: usize, word: u64) {
    if let Some(foreign) = pattern::foreign(word, actor.run.family(pid)) {
        actor.find(&format!(
            "a page of a buffer is reachable after its end, or another program's: a consumer file of process {pid} has \
             {foreign} at {offset:#x}"
        ));
    }
}

/// The kernel's usage of memory, files and crash entries, which a run must not change.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    memory: control::Memory,
    entries: BTreeMap<u32, usize>,
    files: u64,
    /// In KiB.
    slab: u64,
    free: u64,
    total: u64,
}

/// How much slab may differ, in KiB: each CPU caches some. KASAN keeps a 32nd of the memory in
/// quarantine, and the debug kernel has kmemleak, too.
fn slab_tolerance(total: u64) -> u64 {
    (24 << 10) + if guest::is_debug() { total / 16 } else { 0 }
}
/// How much memory may differ: what the run's files and the kernel's caches take.
const FREE: u64 = 96 << 10;

impl Usage {
    /// The usage now.
    pub(crate) fn take() -> Self {
        // Frees caches.
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
        let text = fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            number.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let files = fs::read_to_string("/proc/sys/fs/file-nr").unwrap_or_default();
        Self {
            memory: control::memory(),
            entries: directory::entries(),
            files: files
                .split_whitespace()
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            slab: field("SUnreclaim:"),
            free: field("MemFree:"),
            total: field("MemTotal:"),
        }
    }

    /// Describes each usage that has not returned to what it was before.
    pub(crate) fn differences(&self, before: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.memory != before.memory {
            wrong.push(format!(
                "the control file \"memory\" says {:?}, and said {:?}",
                self.memory, before.memory
            ));
        }
        if self.entries != before.entries {
            wrong.push(format!(
                "the crash directory has {:?}, and had {:?}",
                self.entries, before.entries
            ));
        }
        if self.files > before.files + 64 {
            wrong.push(format!(
                "{} files are open, and {} were",
                self.files, before.files
            ));
        }
        if self.slab > before.slab + slab_tolerance(self.total) {
            wrong.push(format!(
                "the kernel's slab has {} KiB, and had {} KiB",
                self.slab, before.slab
            ));
        }
        if self.free + FREE + slab_tolerance(self.total) < before.free {
            wrong.push(format!(
                "{} KiB are free, and {} KiB were",
                self.free, before.free
            ));
        }
        wrong
    }
}
