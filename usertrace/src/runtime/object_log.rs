//! A log of the objects that this process has loaded and unloaded, as lines of descriptions.
//!
//! It lies in memory that children of `fork` get a copy of. Each trace has a position in it.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use usertrace_sys::word::encoded;

use super::debug_link::DebugLink;
use super::hash::hash;
use crate::os;
use crate::os::linker::{self, Changes, Object};
use crate::os::signal::SignalMaskGuard;

/// Changes that are described, in all. Later ones are counted.
const MAX_CHANGES: usize = 4096;
/// Bytes of lines in all, so that descriptions of events find room in the control channel. The
/// lines of repeated changes are stored once, but count each time.
const MAX_TEXT: usize = 192 << 10;
/// Bytes of a record besides its line: its header and padding.
const RECORD: u32 = 16;
/// Bytes of a record that says that an object is gone, which has the longest address.
const UNLOADED: u32 = RECORD + 1 + 2 * size_of::<usize>() as u32;
/// Longest line without its NUL: `LTT_META_MAX` less one.
const MAX_LINE: usize = usertrace_sys::uapi::LTT_META_MAX - 1;
/// Longest build ID that is described.
const MAX_BUILD_ID: usize = 64;

/// A change: the line that describes it.
#[derive(Debug)]
#[repr(C)]
struct Change {
    /// Place and length of the line.
    at: AtomicU32,
    len: AtomicU32,
    /// Not 0: the object was loaded by this change, and is still.
    is_loaded: AtomicU32,
    /// The walk that found it last.
    walk: AtomicU32,
    base: AtomicU64,
    size: AtomicU64,
    /// Not 0: an event's address led to it, so walks may not find it: there are namespaces.
    is_by_address: AtomicU32,
    /// An element of the list of changes that are loaded objects, which are in any order; only for
    /// the lock's holder. It has nothing to do with this change, but is here so that the list and
    /// the changes begin in one page.
    live: AtomicU32,
    /// Hash of everything else that identifies it; 0: it was unloaded.
    identity: AtomicU64,
}

/// The log. All zeros is an empty one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ObjectLog {
    /// The process and the thread that write; 0: none.
    lock: AtomicU64,
    /// Changes that can be read.
    count: AtomicU32,
    /// Changes that found no room.
    lost: AtomicU32,
    walks: AtomicU32,
    text_len: AtomicU32,
    /// Bytes that the changes take in the control channel of a trace.
    described: AtomicU32,
    reserved: AtomicU32,
    /// Length of the list [`Change::live`].
    nr_live: AtomicU32,
    /// What the linker had counted at the last walk.
    loaded: AtomicU64,
    unloaded: AtomicU64,
    changes: [Change; MAX_CHANGES],
    text: UnsafeCell<[u8; MAX_TEXT]>,
}

// SAFETY: all fields are atomic but `text`. The lock's holder writes it beyond the lines of changes
// that are counted, and readers only read those lines.
unsafe impl Sync for ObjectLog {}

/// Holds the log's lock while it lives, with signals blocked.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    objects: &'a ObjectLog,
    _signals: SignalMaskGuard,
}

impl ObjectLog {
    /// An element of the list of loaded objects.
    fn live(&self, place: u32) -> &AtomicU32 {
        &self.changes[place as usize % MAX_CHANGES].live
    }

    /// Number of changes so far.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        // Pairs with the store in `append`.
        self.count.load(Ordering::Acquire)
    }

    /// Number of changes that are not described, for lack of room.
    pub(super) fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The line of a change, without its NUL. `is_first`: the trace has no earlier line, so it
    /// needs only objects that are still loaded. Async-signal-safe.
    pub(super) fn line(&self, number: u32, is_first: bool) -> Option<&[u8]> {
        if number >= self.count() {
            return None;
        }
        let change = self.changes.get(number as usize)?;
        if is_first && change.is_loaded.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let (at, len) = (
            change.at.load(Ordering::Relaxed) as usize,
            change.len.load(Ordering::Relaxed) as usize,
        );
        if at.checked_add(len)? > MAX_TEXT {
            return None;
        }
        // SAFETY: inside the text. The change is counted, so nobody writes its line any more; the
        // load in `count` sees what was written before.
        Some(unsafe { std::slice::from_raw_parts(self.text.get().cast::<u8>().add(at), len) })
    }

    /// Takes the lock, and waits for it. None if this thread has it.
    pub(super) fn lock(&self) -> Option<Writer<'_>> {
        loop {
            if let Some(writer) = self.try_lock() {
                return Some(writer);
            }
            if self.lock.load(Ordering::Relaxed) == holder() {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// Takes the lock, if it is free.
    pub(super) fn try_lock(&self) -> Option<Writer<'_>> {
        let signals = SignalMaskGuard::new();
        let own = holder();
        let before = self.lock.load(Ordering::Relaxed);
        // A holder in the parent process does not exist here.
        let is_free = before == 0 || before >> 32 != own >> 32;
        // Acquire pairs with the release in `drop`.
        let taken = is_free
            && self
                .lock
                .compare_exchange(before, own, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // A writer releases the lock when it is dropped, so there must be none if this fails.
        let writer = taken.then(|| Writer {
            objects: self,
            _signals: signals,
        })?;
        if before != 0 {
            writer.repair();
        }
        Some(writer)
    }

    /// Whether an object in the log contains the address.
    pub(super) fn has(&self, address: usize) -> bool {
        let count = (self.count() as usize).min(MAX_CHANGES);
        self.changes[..count].iter().any(|change| {
            let offset = (address as u64).wrapping_sub(change.base.load(Ordering::Relaxed));
            change.is_loaded.load(Ordering::Relaxed) != 0
                && offset < change.size.load(Ordering::Relaxed)
        })
    }
}

/// The calling process and thread.
fn holder() -> u64 {
    u64::from(os::process::id()) << 32 | u64::from(os::thread::id())
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // Pairs with `lock`.
        self.objects.lock.store(0, Ordering::Release);
    }
}

impl Writer<'_> {
    /// Restores what a thread of the parent process had begun to change when `fork` copied it. What
    /// is counted was complete, and each change says itself whether its object is loaded.
    fn repair(&self) {
        let objects = self.objects;
        let mut live = 0;
        for (number, change) in self.counted().iter().enumerate() {
            if change.is_loaded.load(Ordering::Relaxed) != 0 {
                objects.live(live).store(number as u32, Ordering::Relaxed);
                live += 1;
            }
        }
        objects.nr_live.store(live, Ordering::Relaxed);
        // The next walk compares everything.
        objects.loaded.store(0, Ordering::Relaxed);
        objects.unloaded.store(0, Ordering::Relaxed);
    }

    fn counted(&self) -> &[Change] {
        let count = self.objects.count.load(Ordering::Relaxed) as usize;
        &self.objects.changes[..count.min(MAX_CHANGES)]
    }

    fn find(&self, base: usize, identity: u64) -> Option<&Change> {
        self.live().map(|(_, change)| change).find(|change| {
            change.base.load(Ordering::Relaxed) == base as u64
                && change.identity.load(Ordering::Relaxed) == identity
        })
    }

    /// The changes that are loaded objects, with their places in the list of them.
    fn live(&self) -> impl Iterator<Item = (usize, &Change)> {
        let count = self.objects.nr_live.load(Ordering::Relaxed) as usize;
        let live = self.objects.changes.iter().take(count).enumerate();
        let counted = self.counted();
        live.filter_map(move |(place, element)| {
            let number = element.live.load(Ordering::Relaxed) as usize;
            Some((place, counted.get(number)?))
        })
    }

    /// Compares what is loaded with the log. Waits for the linker. Returns whether something
    /// changed.
    pub(super) fn walk(&self) -> bool {
        let objects = self.objects;
        let walk = objects.walks.load(Ordering::Relaxed).wrapping_add(1);
        let (mut is_news, mut now) = (true, Changes::default());
        let before = Changes {
            loaded: objects.loaded.load(Ordering::Relaxed),
            unloaded: objects.unloaded.load(Ordering::Relaxed),
        };
        linker::each_object(|changes, object| {
            now = changes;
            is_news = changes == Changes::default() || changes != before;
            if let Some(change) = is_news
                .then(|| self.find(object.base, identity(object)))
                .flatten()
            {
                change.walk.store(walk, Ordering::Relaxed);
            }
            is_news
        });
        if !is_news {
            return false;
        }
        let count = objects.count.load(Ordering::Relaxed);
        objects.walks.store(walk, Ordering::Relaxed);
        // First what is gone: another object may be in its place.
        self.remove(|change| {
            let base = change.base.load(Ordering::Relaxed) as usize;
            let mut is_there = change.walk.load(Ordering::Relaxed) == walk;
            if !is_there && change.is_by_address.load(Ordering::Relaxed) != 0 {
                linker::find_object(base, |object| {
                    is_there = identity(object) == change.identity.load(Ordering::Relaxed);
                });
            }
            !is_there
        });
        linker::each_object(|_, object| {
            if self.find(object.base, identity(object)).is_none() {
                self.append_loaded(object, walk, false);
            }
            true
        });
        objects.loaded.store(now.loaded, Ordering::Relaxed);
        objects.unloaded.store(now.unloaded, Ordering::Relaxed);
        objects.count.load(Ordering::Relaxed) != count
    }

    /// Adds an object that an address led to, in place of those that it overlaps. Returns whether
    /// it is described.
    pub(super) fn add_by_address(&self, object: &Object<'_>) -> bool {
        let before = self.objects.count.load(Ordering::Relaxed);
        if self.find(object.base, identity(object)).is_none() {
            let (base, end) = (object.base as u64, (object.base + object.size) as u64);
            self.remove(|change| {
                let of_other = change.base.load(Ordering::Relaxed);
                of_other < end && base - of_other.min(base) < change.size.load(Ordering::Relaxed)
            });
            self.append_loaded(object, 0, true);
        }
        self.objects.count.load(Ordering::Relaxed) != before
    }

    /// Removes loaded objects, and describes that.
    fn remove(&self, is_gone: impl Fn(&Change) -> bool) {
        let objects = self.objects;
        while let Some((place, change)) = self.live().find(|(_, change)| is_gone(change)) {
            change.is_loaded.store(0, Ordering::Relaxed);
            let base = change.base.load(Ordering::Relaxed);
            let last = objects.nr_live.load(Ordering::Relaxed).saturating_sub(1);
            let moved = objects.live(last).load(Ordering::Relaxed);
            objects.live(place as u32).store(moved, Ordering::Relaxed);
            objects.nr_live.store(last, Ordering::Relaxed);
            self.append_unloaded(base);
        }
    }

    fn append_loaded(&self, object: &Object<'_>, walk: u32, is_by_address: bool) {
        let identity = identity(object);
        let base = object.base as u64;
        let text_len = self.objects.text_len.load(Ordering::Relaxed);
        let place = self.place_of(base, identity);
        let place = place.or_else(|| {
            // Events come from addresses, and they must open no file.
            let link = match is_by_address {
                true => None,
                false => DebugLink::of(object),
            };
            self.put(|line| loaded_line(line, object, link.as_ref()))
        });
        let size = object.size as u64;
        if !self.append(place, (base, size), (identity, walk, is_by_address)) {
            // No change has the line.
            self.objects.text_len.store(text_len, Ordering::Relaxed);
        }
    }

    /// The place of the line of an earlier change that was the same.
    fn place_of(&self, base: u64, identity: u64) -> Option<(u32, u32)> {
        let same = |change: &&Change| {
            change.base.load(Ordering::Relaxed) == base
                && change.identity.load(Ordering::Relaxed) == identity
        };
        let change = self.counted().iter().find(same)?;
        let (at, len) = (&change.at, &change.len);
        Some((at.load(Ordering::Relaxed), len.load(Ordering::Relaxed)))
    }

    fn append_unloaded(&self, base: u64) {
        let place = self.place_of(base, 0).or_else(|| {
            self.put(|line| {
                line.put(b"-");
                line.put_hex(base as usize);
            })
        });
        self.append(place, (base, 0), (0, 0, false));
    }

    /// Composes a line behind all others. None if there is no room.
    fn put(&self, compose: impl FnOnce(&mut Line<'_>)) -> Option<(u32, u32)> {
        let at = self.objects.text_len.load(Ordering::Relaxed) as usize;
        let room = MAX_TEXT.checked_sub(at)?.min(MAX_LINE);
        // SAFETY: inside the text, and beyond the lines of all changes that are counted. The lock's
        // holder is the only one that has the place.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.objects.text.get().cast::<u8>().add(at), room)
        };
        let mut line = Line { bytes, len: 0 };
        compose(&mut line);
        let len = line.len;
        if len > room {
            return None;
        }
        self.objects
            .text_len
            .store((at + len) as u32, Ordering::Relaxed);
        Some((at as u32, len as u32))
    }

    /// Returns whether there is room for the change, and for the ends of all objects that are
    /// loaded then: another object may come to the place of one that is gone.
    fn append(
        &self,
        place: Option<(u32, u32)>,
        (base, size): (u64, u64),
        (identity, walk, is_by_address): (u64, u32, bool),
    ) -> bool {
        let count = self.objects.count.load(Ordering::Relaxed);
        let before = self.objects.described.load(Ordering::Relaxed);
        let nr_live = self.objects.nr_live.load(Ordering::Relaxed);
        let ends = nr_live + u32::from(identity != 0);
        let has_room = |len| {
            let described = before + len + RECORD + ends * UNLOADED;
            count + 1 + ends <= MAX_CHANGES as u32 && described <= MAX_TEXT as u32
        };
        let free = self.objects.changes.get(count as usize);
        let place = place.filter(|&(_, len)| has_room(len));
        let Some((change, (at, len))) = free.zip(place) else {
            self.objects.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let described = before + len + RECORD;
        self.objects.described.store(described, Ordering::Relaxed);
        change.at.store(at, Ordering::Relaxed);
        change.len.store(len, Ordering::Relaxed);
        change.base.store(base, Ordering::Relaxed);
        change.size.store(size, Ordering::Relaxed);
        change
            .is_by_address
            .store(is_by_address.into(), Ordering::Relaxed);
        change.identity.store(identity, Ordering::Relaxed);
        change.walk.store(walk, Ordering::Relaxed);
        change
            .is_loaded
            .store((identity != 0).into(), Ordering::Relaxed);
        if identity != 0 {
            // There is room: no more changes are live than there are.
            self.objects.live(nr_live).store(count, Ordering::Relaxed);
            self.objects.nr_live.store(nr_live + 1, Ordering::Relaxed);
        }
        // Pairs with the load in `count`.
        self.objects.count.store(count + 1, Ordering::Release);
        true
    }
}

/// A hash of what tells objects at the same address apart. Never 0.
fn identity(object: &Object<'_>) -> u64 {
    hash(&[
        &object.size.to_ne_bytes(),
        object.build_id,
        b"/",
        object.name,
    ]) | 1
}

/// A line that is composed. It counts what does not fit.
struct Line<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Line<'_> {
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
            }
            self.len += 1;
        }
    }

    fn put_hex(&mut self, number: usize) {
        let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for at in (0..digits).rev() {
            self.put(&[DIGITS[number >> (4 * at) & 15]]);
        }
    }

    fn put_word(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let (encoded, len) = encoded(byte);
            self.put(&encoded[..len]);
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Composes `+BASE SIZE PIC BUILD_ID CRC LINK PATH`.
fn loaded_line(line: &mut Line<'_>, object: &Object<'_>, link: Option<&DebugLink>) {
    line.put(b"+");
    line.put_hex(object.base);
    line.put(b" ");
    line.put_hex(object.size);
    line.put(if object.is_pic { b" 1 " } else { b" 0 " });
    match object.build_id {
        build_id if build_id.is_empty() || build_id.len() > MAX_BUILD_ID => line.put(b"-"),
        build_id => build_id.iter().for_each(|byte| {
            line.put(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }),
    }
    match link {
        Some(link) => {
            line.put(b" ");
            line.put_hex(link.crc as usize);
            line.put(b" ");
            line.put_word(link.name());
            line.put(b" ");
        }
        None => line.put(b" - - "),
    }
    let before = line.len;
    put_path(line, object);
    if line.len > line.bytes.len() || line.len == before {
        // Without the path if that is too long.
        line.len = before;
        line.put(b"-");
    }
}

/// Appends the absolute path of an object's file.
fn put_path(line: &mut Line<'_>, object: &Object<'_>) {
    // SAFETY: reads the auxiliary vector.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if vdso != 0 && object.base == vdso {
        return line.put_word(b"[vdso]");
    }
    let mut place = [0u8; libc::PATH_MAX as usize];
    match object.name.first() {
        None => {
            let len = os::file::link_target(c"/proc/self/exe", &mut place);
            line.put_word(&place[..len.unwrap_or(0)]);
        }
        Some(b'/') => line.put_word(object.name),
        Some(_) => {
            let len = os::file::current_directory(&mut place).unwrap_or(0);
            let directory = CStr::from_bytes_until_nul(&place[..len]).unwrap_or_default();
            // One that cannot be reached has no path.
            if directory.to_bytes().starts_with(b"/") {
                line.put_word(directory.to_bytes());
                line.put_word(b"/");
                line.put_word(object.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(object: &Object<'_>, room: usize) -> Option<String> {
        let mut bytes = vec![0; room];
        let mut line = Line {
            bytes: &mut bytes,
            len: 0,
        };
        loaded_line(&mut line, object, None);
        let len = line.len;
        (len <= room).then(|| String::from_utf8(bytes[..len].to_vec()).unwrap())
    }

    fn log() -> &'static ObjectLog {
        let log = os::fork_private::map_kept::<ObjectLog>().unwrap();
        // SAFETY: a new mapping of zeros, which is never unmapped.
        unsafe { log.as_ref() }
    }

    fn lines(log: &ObjectLog, is_first: bool) -> Vec<String> {
        let lines = (0..log.count()).filter_map(|number| log.line(number, is_first));
        lines
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect()
    }

    /// What is loaded by the lines, by base.
    fn loaded(log: &ObjectLog) -> std::collections::BTreeSet<String> {
        let mut loaded = std::collections::BTreeSet::new();
        for line in lines(log, false) {
            let (sign, rest) = line.split_at(1);
            let base = rest.split(' ').next().unwrap().to_owned();
            let is_change = match sign {
                "+" => loaded.insert(base),
                _ => loaded.remove(&base),
            };
            assert!(is_change, "{line}");
        }
        loaded
    }

    /// A log that is full of changes, or of text, says of each object in it when it is gone.
    #[test]
    fn ends_are_described_by_a_full_log() {
        for (long, live_objects) in [(0, 1), (0, 2), (300, 1), (300, 40)] {
            let log = log();
            let writer = log.lock().unwrap();
            let add = |number: usize, kind: usize| {
                let name = format!("/{}{kind}", "a".repeat(long));
                writer.add_by_address(&Object {
                    base: (1 + number) << 20,
                    size: 0x3000,
                    is_pic: true,
                    build_id: &[],
                    name: name.as_bytes(),
                })
            };
            // It stays.
            add(live_objects, 0);
            for round in 0.. {
                for number in 0..live_objects {
                    // Each in the place of the one before.
                    add(number, if long == 0 { round % 2 } else { round });
                }
                if log.lost() > 10 {
                    break;
                }
            }
            assert!(log.count() as usize <= MAX_CHANGES);
            let live = || {
                writer
                    .live()
                    .map(|(_, change)| change.base.load(Ordering::Relaxed))
            };
            let bases = || live().map(|base| format!("{base:x}")).collect();
            assert_eq!(loaded(log), bases(), "{long} {live_objects}");
            assert!(live().count() > 0);
            // The walk finds others, some of which may have room.
            writer.walk();
            let mut left = loaded(log).into_iter();
            assert_eq!(left.find(|base| base.len() < 10), None);
            assert!(log.described.load(Ordering::Relaxed) as usize <= MAX_TEXT);
        }
    }

    #[test]
    fn objects_that_addresses_lead_to_replace_others() {
        let log = log();
        let object = |base, size, name| Object {
            base,
            size,
            is_pic: true,
            build_id: &[],
            name,
        };
        let writer = log.lock().unwrap();
        // It is taken.
        assert!(log.lock().is_none() && log.try_lock().is_none());
        assert!(writer.add_by_address(&object(0x10000, 0x3000, b"/a")));
        assert!(writer.add_by_address(&object(0x20000, 0x3000, b"/b")));
        assert!(!writer.add_by_address(&object(0x20000, 0x3000, b"/b")));
        assert!(writer.add_by_address(&object(0x12000, 0x1000, b"/c")));
        assert!(log.has(0x12fff) && !log.has(0x13000) && !log.has(0x10000) && log.has(0x20000));
        let a = "+10000 3000 1 - - - %2Fa";
        let (b, c) = ("+20000 3000 1 - - - %2Fb", "+12000 1000 1 - - - %2Fc");
        assert_eq!(lines(log, false), [a, b, "-10000", c]);
        assert_eq!(lines(log, true), [b, c]);
        // The walk finds none of them.
        assert!(writer.walk());
        assert!(!log.has(0x20000) && log.has(objects_are_lines as fn() as usize));
        let all = lines(log, false);
        let gone = std::collections::BTreeSet::from_iter(&all[4..6]);
        assert_eq!(gone, [&"-12000".to_owned(), &"-20000".to_owned()].into());
        assert!(!writer.walk());
        drop(writer);
        assert!(log.try_lock().is_some());
    }

    /// A child of `fork` has the log as a thread of its parent left it in the middle of a change.
    #[test]
    fn logs_of_children_are_repaired() {
        let log = log();
        let writer = log.lock().unwrap();
        let object = |number: usize| Object {
            base: number << 20,
            size: 0x3000,
            is_pic: true,
            build_id: &[],
            name: b"/a",
        };
        for number in 1..4 {
            assert!(writer.add_by_address(&object(number)));
        }
        let live = |writer: &Writer<'_>| {
            let bases = writer
                .live()
                .map(|(_, change)| change.base.load(Ordering::Relaxed) >> 20);
            bases.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(live(&writer), [1, 2, 3].into());
        drop(writer);
        // It was about to add a fourth one, and had begun to remove the second one.
        log.live(3).store(log.count(), Ordering::Relaxed);
        log.nr_live.store(4, Ordering::Relaxed);
        log.changes[1].is_loaded.store(0, Ordering::Relaxed);
        let parent = (u64::from(os::process::id()) + 1) << 32 | 1;
        log.lock.store(parent, Ordering::Relaxed);
        let writer = log.lock().unwrap();
        assert_eq!(live(&writer), [1, 3].into());
        assert_eq!(log.nr_live.load(Ordering::Relaxed), 2);
        assert!(writer.add_by_address(&object(5)));
        assert_eq!(live(&writer), [1, 3, 5].into());
        // Each object is gone once.
        assert!(writer.walk());
        let gone = |line: &&String| ["-100000", "-300000", "-500000"].contains(&line.as_str());
        assert_eq!(lines(log, false).iter().filter(gone).count(), 3);
    }

    #[test]
    fn full_logs_count_what_they_lose() {
        let log = log();
        let writer = log.lock().unwrap();
        let mut bases = 0;
        while log.lost() == 0 {
            bases += 1;
            let object = Object {
                base: bases * 0x10000,
                size: 0x1000,
                is_pic: true,
                build_id: &[7; 20],
                name: b"/usr/lib/x86_64-linux-gnu/libexample.so.1.2",
            };
            writer.add_by_address(&object);
        }
        assert!(
            (1000..=MAX_CHANGES).contains(&(log.count() as usize)),
            "{}",
            log.count()
        );
        assert_eq!(log.count() as usize + 1, bases);
        let taken: usize = lines(log, false).iter().map(|line| line.len() + 16).sum();
        assert!(taken <= MAX_TEXT, "{taken}");
    }

    /// The time that programs pay when tracing is initialised. For people: machines are busy.
    #[test]
    fn first_walks_are_short() {
        let mut times: Vec<_> = (0..50)
            .map(|_| {
                let log = log();
                let begin = std::time::Instant::now();
                assert!(log.lock().unwrap().walk());
                (begin.elapsed(), log.count())
            })
            .collect();
        times.sort();
        println!("{:?} for {} objects", times[25].0, times[25].1);
        assert!(times[25].0 < std::time::Duration::from_millis(20));
    }

    #[test]
    fn objects_are_lines() {
        let object = Object {
            base: 0x7f00_1234_5000,
            size: 0x2000,
            is_pic: true,
            build_id: &[0, 0xab],
            name: b"/lib/a b.so",
        };
        let line = "+7f0012345000 2000 1 00ab - - %2Flib%2Fa%20b.so";
        assert_eq!(composed(&object, MAX_LINE).as_deref(), Some(line));
        let without = "+7f0012345000 2000 1 00ab - - -";
        assert_eq!(composed(&object, 40).as_deref(), Some(without));
        assert_eq!(composed(&object, 30), None);
        let own = std::env::current_exe().unwrap();
        let program = Object {
            name: b"",
            build_id: &[],
            ..object
        };
        let name = own.file_name().unwrap().to_str().unwrap();
        let line = composed(&program, MAX_LINE).unwrap();
        assert!(line.starts_with("+7f0012345000 2000 1 - - - %2F"), "{line}");
        assert!(line.ends_with(&format!("%2F{name}")), "{line}");
        let relative = Object {
            name: b"./x.so",
            build_id: &[7; 65],
            ..object
        };
        let line = composed(&relative, MAX_LINE).unwrap();
        assert!(
            line.contains(" - - - %2F") && line.ends_with("%2F.%2Fx.so"),
            "{line}"
        );
    }
}
