//! The system calls that a service's filter must allow, so that the library can use the kernel's
//! buffers.

use std::collections::{BTreeSet, HashMap, HashSet};

/// The calls of the trace buffers. A systemd that is older than they are does not know their names.
const TRACING: [&str; 3] = ["alloc_tracebuf", "ltt_switch", "ltt_update"];
/// The other system calls of the library, with the kernel's buffers.
const OTHERS: [&str; 18] = [
    "futex",
    "getcpu",
    "getcwd",
    "getpid",
    "gettid",
    "madvise",
    "membarrier",
    "mmap",
    "mprotect",
    "munmap",
    "nanosleep",
    "newfstatat",
    "prctl",
    "readlinkat",
    "rseq",
    "rt_sigprocmask",
    "tgkill",
    "uname",
];
/// What systemd allows with each list of allowed calls.
const DEFAULT_SET: &str = "@default";
/// All that systemd knows.
const KNOWN_SET: &str = "@known";

/// systemd's sets of system calls, by name.
#[derive(Debug, Default)]
pub(super) struct Sets(HashMap<String, Vec<String>>);

/// What a drop-in must change about a service's filter.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// Allow these calls as well.
    Allow(Vec<String>),
    /// Replace the list of allowed calls by the list of all that systemd knows besides, which are
    /// refused: systemd cannot name the calls of the trace buffers.
    RefuseOthers(Vec<String>),
}

impl Sets {
    /// Reads what `systemd-analyze syscall-filter` prints.
    pub(super) fn parse(text: &str) -> Self {
        let mut sets: HashMap<String, Vec<String>> = HashMap::new();
        let mut current = None;
        for line in text.lines() {
            let word = line.trim();
            if word.is_empty() || word.starts_with('#') {
                continue;
            }
            if !line.starts_with(char::is_whitespace) {
                current = word.starts_with('@').then(|| word.to_owned());
                if let Some(name) = &current {
                    sets.entry(name.clone()).or_default();
                }
            } else if let Some(set) = current.as_ref().and_then(|name| sets.get_mut(name)) {
                set.push(word.to_owned());
            }
        }
        Self(sets)
    }

    /// Whether there is anything in them.
    pub(super) fn are_known(&self) -> bool {
        self.0.contains_key(KNOWN_SET)
    }

    /// The calls that a word of a filter names: a call, or a set, which may have sets.
    fn calls(&self, word: &str) -> BTreeSet<String> {
        let mut calls = BTreeSet::new();
        let mut seen = HashSet::new();
        let mut left = vec![word];
        while let Some(word) = left.pop() {
            match self.0.get(word) {
                Some(set) if seen.insert(word) => left.extend(set.iter().map(String::as_str)),
                None if !word.starts_with('@') => {
                    calls.insert(word.to_owned());
                }
                _ => {}
            }
        }
        calls
    }
}

/// Finds what must change, so that a filter of these lines allows what the library needs. `None`:
/// nothing.
pub(super) fn grant(lines: &[&str], sets: &Sets) -> Option<Grant> {
    let needed = || TRACING.iter().chain(&OTHERS).map(|call| (*call).to_owned());
    let mut filter: Option<(bool, BTreeSet<String>)> = None;
    for line in lines {
        let (is_inverted, words) = match line.strip_prefix('~') {
            Some(words) => (true, words),
            None => (false, *line),
        };
        // The first line decides what the list is.
        let (is_allowing, list) = filter.get_or_insert_with(|| match is_inverted {
            true => (false, BTreeSet::new()),
            false => (true, sets.calls(DEFAULT_SET)),
        });
        for word in words.split_whitespace() {
            // An error number may follow a call that is refused.
            let calls = sets.calls(word.split(':').next().unwrap_or_default());
            match *is_allowing != is_inverted {
                true => list.extend(calls),
                false => list.retain(|call| !calls.contains(call)),
            }
        }
    }
    let (is_allowing, list) = filter?;
    if !is_allowing {
        // It allows what it does not name.
        let refused: Vec<_> = needed().filter(|call| list.contains(call)).collect();
        return (!refused.is_empty()).then_some(Grant::Allow(refused));
    }
    let missing: Vec<_> = needed().filter(|call| !list.contains(call)).collect();
    if missing.is_empty() {
        return None;
    }
    let known = sets.calls(KNOWN_SET);
    if TRACING.iter().all(|call| known.contains(*call)) {
        return Some(Grant::Allow(missing));
    }
    let needed: BTreeSet<_> = needed().collect();
    let others = known
        .into_iter()
        .filter(|call| !list.contains(call) && !needed.contains(call));
    Some(Grant::RefuseOthers(others.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened output of systemd 257.
    const OLD: &str = "\
@default
    # System calls that are always permitted
    futex
    getcpu
    getpid
    gettid
    membarrier
    mmap
    munmap
    mprotect
    nanosleep
    rseq

@io
    getcwd
    newfstatat
    readlinkat
    read

@process
    prctl
    tgkill

@mount
    mount
    umount2

@system-service
    @io
    @process
    @default
    madvise
    rt_sigprocmask
    uname

@known
    # All known system calls declared in the kernel
    @system-service
    @mount
    reboot
";

    fn allow(calls: &[&str]) -> Option<Grant> {
        Some(Grant::Allow(
            calls.iter().map(|call| (*call).to_owned()).collect(),
        ))
    }

    fn refuse(calls: &[&str]) -> Option<Grant> {
        Some(Grant::RefuseOthers(
            calls.iter().map(|call| (*call).to_owned()).collect(),
        ))
    }

    #[test]
    fn a_list_of_allowed_calls_becomes_one_of_refused_calls() {
        let sets = Sets::parse(OLD);
        assert!(sets.are_known());
        assert_eq!(
            grant(&["@system-service"], &sets),
            refuse(&["mount", "reboot", "umount2"])
        );
        assert_eq!(
            grant(&["@system-service @mount", "~umount2 prctl"], &sets),
            refuse(&["reboot", "umount2"])
        );
        // What the library needs is allowed, although the unit does not name it.
        assert_eq!(
            grant(&["read"], &sets),
            refuse(&["mount", "reboot", "umount2"])
        );
    }

    #[test]
    fn a_list_of_refused_calls_allows_new_ones() {
        let sets = Sets::parse(OLD);
        assert_eq!(grant(&[], &sets), None);
        assert_eq!(grant(&["~@mount", "~reboot:EPERM"], &sets), None);
        assert_eq!(
            grant(&["~@mount", "~@process"], &sets),
            allow(&["prctl", "tgkill"])
        );
        assert_eq!(grant(&["~@mount @process", "prctl tgkill"], &sets), None);
    }

    #[test]
    fn a_systemd_that_knows_the_calls_is_told_their_names() {
        let new = OLD.replace(
            "    reboot\n",
            "    reboot\n    alloc_tracebuf\n    ltt_switch\n    ltt_update\n",
        );
        let sets = Sets::parse(&new);
        assert_eq!(
            grant(&["@system-service"], &sets),
            allow(&["alloc_tracebuf", "ltt_switch", "ltt_update"])
        );
        let line = "@system-service alloc_tracebuf ltt_switch ltt_update";
        assert_eq!(grant(&[line], &sets), None);
    }

    #[test]
    fn sets_that_contain_themselves_end() {
        let sets = Sets::parse("@a\n    @b\n    x\n@b\n    @a\n    y\n");
        assert_eq!(sets.calls("@a"), ["x", "y"].map(str::to_owned).into());
        assert!(!sets.are_known() && sets.calls("@none").is_empty());
    }
}
