//! The last calls of this process, which are printed with a finding.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::actor::CallResult;
use crate::kinds::Kind;

const CALLS: usize = 64;
const ARGUMENTS: usize = 6;
/// The result of a call that is not over. No call returns it.
const NOT_OVER: i64 = i64::MIN;

struct Entry {
    /// The kind and the thread, plus 1. 0: no entry.
    kind: AtomicU64,
    result: AtomicU64,
    arguments: [AtomicU64; ARGUMENTS],
}

static HISTORY: [Entry; CALLS] = [const {
    Entry {
        kind: AtomicU64::new(0),
        result: AtomicU64::new(0),
        arguments: [const { AtomicU64::new(0) }; ARGUMENTS],
    }
}; CALLS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Notes the begin of a call. Returns the index for [`end`].
pub(crate) fn begin(kind: Kind, thread: usize, arguments: &[usize]) -> usize {
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % CALLS;
    let entry = &HISTORY[at];
    for (index, place) in entry.arguments.iter().enumerate() {
        let argument = arguments.get(index).copied().unwrap_or(0);
        place.store(argument as u64, Ordering::Relaxed);
    }
    entry
        .result
        .store(NOT_OVER.cast_unsigned(), Ordering::Relaxed);
    let word = ((kind as u64) << 8) | (thread as u64 + 1);
    entry.kind.store(word, Ordering::Relaxed);
    at
}

/// Notes the result of a call.
pub(crate) fn end(at: usize, result: CallResult) {
    let word = match result {
        Ok(value) => value as u64,
        Err(errno) => (-i64::from(errno)).cast_unsigned(),
    };
    HISTORY[at].result.store(word, Ordering::Relaxed);
}

/// Prints the calls, oldest first.
pub(crate) fn tell(who: &str, what: &str) {
    let mut text = format!("--- {who}: {what}; its last calls, by thread:\n");
    let next = NEXT.load(Ordering::Relaxed);
    for at in next.saturating_sub(CALLS)..next {
        let entry = &HISTORY[at % CALLS];
        let word = entry.kind.load(Ordering::Relaxed);
        let kind = Kind::of((word >> 8) as usize).map_or("?", Kind::name);
        let result = entry.result.load(Ordering::Relaxed).cast_signed();
        let result = match result {
            NOT_OVER => "not over".to_owned(),
            -4095..0 => format!("{:?}", nix::errno::Errno::from_raw(-result as i32)),
            value => format!("{value:#x}"),
        };
        let arguments = entry
            .arguments
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let thread = (word & 0xff).wrapping_sub(1);
        text += &format!("  {thread} {kind} {arguments:x?} = {result}\n");
    }
    eprintln!("{text}---");
}
