//! Reads the values of contexts. Async-signal-safe: nothing here allocates, waits, or changes
//! `errno`.

use std::sync::atomic::Ordering;

use super::callstack::{self, Known};
use super::kind::NAMESPACES;
use super::known_code::KNOWN;
use super::sink::Sink;
use super::stack::StackRange;
use super::{Apps, Kind};
use crate::event::Place;
use crate::os::{file, process, thread};
use crate::unwind::Walks;
use crate::writer::{self, Remembered, Rseq};

/// The file of each namespace.
const FILES: [&std::ffi::CStr; NAMESPACES.len()] = [
    c"/proc/thread-self/ns/cgroup",
    c"/proc/thread-self/ns/ipc",
    c"/proc/thread-self/ns/mnt",
    c"/proc/thread-self/ns/net",
    c"/proc/thread-self/ns/pid",
    c"/proc/thread-self/ns/time",
    c"/proc/thread-self/ns/user",
    c"/proc/thread-self/ns/uts",
];

/// Bits of a thread's stamp that say which values its cache has.
const KNOWS_NUMBERS: u64 = 1;
const KNOWS_NAME: u64 = 2;
const KNOWS_NAMESPACES: u64 = 4;
const STAMP_SHIFT: u32 = 3;

/// How to describe the code at the addresses of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    /// Number of changes to loaded code so far.
    pub(crate) changes: fn() -> u32,
    /// Describes the object with an address, if it is new.
    pub(crate) notice: fn(usize),
}

impl Code {
    /// Has the object with an address described before the event.
    #[inline]
    pub(super) fn see(self, address: usize) {
        self.see_since(address, (self.changes)());
    }

    /// The same, as of the last of `changes` changes.
    #[inline]
    fn see_since(self, address: usize, changes: u32) {
        if !KNOWN.has(address, changes) {
            (self.notice)(address);
            KNOWN.add(address, (self.changes)());
        }
    }
}

/// The sources of the values of an event's contexts.
pub(super) struct Values<'a> {
    pub(super) apps: fn() -> &'static Apps,
    pub(super) thread: &'a Remembered,
    /// What the thread remembers of its walks.
    pub(super) walks: Option<Walks<'a>>,
    pub(super) rseq: Option<Rseq>,
    /// Changes each time that threads must query their contexts again.
    pub(super) stamp: u64,
    /// The event's place.
    pub(super) place: Place,
    /// None: addresses are compared only.
    pub(super) code: Option<Code>,
}

impl Values<'_> {
    /// Appends the value of a context.
    #[inline(always)]
    pub(super) fn append(&self, kind: Kind, to: &mut impl Sink) {
        match kind {
            Kind::Vpid => to.append(&(self.numbers() as u32).to_ne_bytes()),
            Kind::Vtid => to.append(&((self.numbers() >> 32) as u32).to_ne_bytes()),
            Kind::Procname => {
                self.know_name();
                for word in &self.thread.name {
                    to.append(&word.load(Ordering::Relaxed).to_ne_bytes());
                }
            }
            Kind::CpuId => to.append(&writer::cpu(self.rseq).to_ne_bytes()),
            Kind::Ip => {
                self.see(self.place.ip);
                to.append(&(self.place.ip as u64).to_ne_bytes());
            }
            Kind::Callstack(frames) => self.append_callstack(usize::from(frames), to),
            Kind::Namespace(at) => to.append(&self.namespace(usize::from(at)).to_ne_bytes()),
            Kind::App(place) => to.append(&(self.apps)().value(place).to_ne_bytes()),
        }
    }

    /// Not inlined: the compiler would prepare it for all contexts.
    #[inline(never)]
    fn see(&self, address: usize) {
        if let Some(code) = self.code {
            code.see(address);
        }
    }

    #[inline(never)]
    fn append_callstack(&self, max: usize, to: &mut impl Sink) {
        let changes = self.code.map_or(0, |code| (code.changes)());
        let see = |address| {
            if let Some(code) = self.code {
                code.see_since(address, changes);
            }
        };
        let known = Known {
            range: StackRange(&self.thread.stack),
            // Only a walk that sees the code of all addresses may make them known.
            walks: self.code.and(self.walks),
            changes,
        };
        callstack::append((self.place, max), known, to, see);
    }

    fn numbers(&self) -> u64 {
        self.know_numbers();
        self.thread.numbers.load(Ordering::Relaxed)
    }

    fn namespace(&self, at: usize) -> u32 {
        self.know_namespaces();
        let pair = self.thread.namespaces.get(at / 2);
        let pair = pair.map_or(0, |pair| pair.load(Ordering::Relaxed));
        (pair >> (at % 2 * 32)) as u32
    }

    /// True if the thread's cache is current, for the values that `what` says.
    fn knows(&self, what: u64) -> bool {
        let stamp = self.thread.stamp.load(Ordering::Relaxed);
        stamp >> STAMP_SHIFT == self.stamp && stamp & what != 0
    }

    fn note(&self, what: u64) {
        let before = self.thread.stamp.load(Ordering::Relaxed);
        let rest = if before >> STAMP_SHIFT == self.stamp {
            before
        } else {
            self.stamp << STAMP_SHIFT
        };
        self.thread.stamp.store(rest | what, Ordering::Relaxed);
    }

    pub(super) fn know_numbers(&self) {
        if self.knows(KNOWS_NUMBERS) {
            return;
        }
        let (process, number) = (process::id(), thread::id());
        self.thread.numbers.store(
            u64::from(process) | u64::from(number) << 32,
            Ordering::Relaxed,
        );
        self.note(KNOWS_NUMBERS);
    }

    fn know_name(&self) {
        if self.knows(KNOWS_NAME) {
            return;
        }
        for (word, bytes) in self.thread.name.iter().zip(thread::name().as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        self.note(KNOWS_NAME);
    }

    fn know_namespaces(&self) {
        if self.knows(KNOWS_NAMESPACES) {
            return;
        }
        for (pair, files) in self.thread.namespaces.iter().zip(FILES.as_chunks().0) {
            let [first, second] = files.map(inode);
            pair.store(
                u64::from(first) | u64::from(second) << 32,
                Ordering::Relaxed,
            );
        }
        self.note(KNOWS_NAMESPACES);
    }
}

/// The inode number of a namespace, which has 32 bits; 0 if there is none, as where `/proc` is not
/// mounted.
fn inode(path: &std::ffi::CStr) -> u32 {
    file::inode(path).map_or(0, |inode| inode as u32)
}
