//! Reports: packets that the program sends to controllers without a request.

use std::fmt;
use std::sync::atomic::Ordering;

use syscalls::Errno;
use usertrace_control::protocol::VERSION;
use usertrace_control::{Text, socket};

use super::opened::control;
use super::state::{Control, Controller};
use crate::clock;
use crate::event::Callsite;
use crate::os::{self, errno};
use crate::runtime::registry;
use crate::runtime::registry_lock::RegistryGuard;
use crate::writer::Channel;

/// Maximum size of a report, which lies on the stack. A name always fits.
const REPORT_MAX: usize = 4096;

/// Milliseconds between two reports of full rings of a slot.
const FULL_EACH: u64 = 100;

/// A change of the set of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Appeared,
    Disappeared,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Appeared => "appeared",
            Self::Disappeared => "disappeared",
        })
    }
}

/// The channel, if a controller wants reports.
fn watched() -> Option<&'static Control> {
    let watched = |control: &&Control| {
        control.watchers.load(Ordering::Relaxed) != 0
            && control.process.load(Ordering::Relaxed) == os::process::id()
    };
    control().filter(watched)
}

impl Control {
    /// Sends a report to all controllers that want it, and counts it as missed if a socket has no
    /// room. The lock keeps the sockets open.
    fn report(&self, _: &RegistryGuard, packet: &[u8]) {
        for controller in &self.controllers {
            if controller.watches.load(Ordering::Relaxed) != 0
                && let Some(socket) = controller.socket.get()
                && controller.report(socket, packet) == Err(Errno::EAGAIN)
            {
                controller.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Controller {
    fn report(&self, socket: i32, packet: &[u8]) -> Result<(), Errno> {
        let missed = self.missed.load(Ordering::Relaxed);
        if missed != 0 {
            let mut room = [0; 64];
            let mut text = Text::new(&mut room);
            let _ = text.push(format_args!("{VERSION}report missed {missed}"));
            socket::send(socket, text.get())?;
            self.missed.fetch_sub(missed, Ordering::Relaxed);
        }
        socket::send(socket, packet)
    }
}

/// Reports events that came or went. Signal handlers must not call this.
pub(crate) fn report_change<'a>(change: Change, events: impl Iterator<Item = &'a Callsite>) {
    let Some(control) = watched() else { return };
    let Some(held) = registry::hold() else { return };
    let mut room = [0; REPORT_MAX];
    let mut text = Text::new(&mut room);
    let _ = text.push(format_args!("{VERSION}report {change}"));
    let head = text.len();
    for event in events {
        let name = event.full_name();
        if text.push(format_args!("\n{name}")).is_err() {
            control.report(&held, text.bytes());
            text.truncate(head);
            let _ = text.push(format_args!("\n{name}"));
        }
    }
    if text.len() > head {
        control.report(&held, text.bytes());
    }
}

/// Reports that an event was dropped because a ring of a slot was full, at a limited rate.
/// Async-signal-safe.
pub(crate) fn report_full(slot: usize, index: usize, channel: &Channel) {
    if let Some(control) = watched() {
        // Events preserve `errno`.
        let _errno = errno::keep();
        control.report_full(slot, index, channel);
    }
}

impl Control {
    /// Sends a report of one word.
    pub(super) fn report_alone(&self, held: &RegistryGuard, word: &str) {
        let mut room = [0; 32];
        let mut text = Text::new(&mut room);
        let _ = text.push(format_args!("{VERSION}report {word}"));
        self.report(held, text.get());
    }

    fn report_full(&self, slot: usize, index: usize, channel: &Channel) {
        let last = &self.last_full_report[slot];
        let (now, before) = (clock::monotonic() / 1_000_000, last.load(Ordering::Relaxed));
        if now < before + FULL_EACH {
            return;
        }
        // Only the first thread reports, and it does not wait for the lock.
        let first = last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed);
        let (Ok(_), Some(held)) = (first, registry::try_hold()) else {
            return;
        };
        let lost = channel.positions().fold(0, |sum, (_, lost)| sum + lost);
        let mut room = [0; 128];
        let mut text = Text::new(&mut room);
        let _ = text.push(format_args!("{VERSION}report full {slot} {index} {lost}"));
        self.report(&held, text.get());
    }
}

pub(super) extern "C" fn at_exit() {
    if let Some(control) = watched()
        && let Some(held) = registry::hold()
    {
        control.report_alone(&held, "ending");
    }
}
