//! Finds the kernel's reports of its own errors in its console log.

/// Texts at the beginning of reports. A warning has several of these lines, and counts once, by its
/// first line.
const SIGNS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "INFO: task ",
    "INFO: rcu_",
    "rcu: INFO: ",
    "INFO: lockdep is turned off",
    "UBSAN: ",
    "Oops: ",
    "general protection fault",
    "Unable to handle",
    "unregister_netdevice: waiting",
    "kernel BUG at",
    "list_add corruption",
    "list_del corruption",
    "refcount_t: ",
    "ODEBUG: ",
    "suspicious RCU usage",
    "possible circular locking",
    "possible recursive locking",
    "inconsistent lock state",
    "bad unlock balance",
    "sleeping function called",
    "VM_FAULT_OOM leaked",
    "new suspected memory leaks",
    "unreferenced object 0x",
    "rust_kernel: panicked",
    "panicked at ",
];

/// The text of every panic.
const PANIC: &str = "Kernel panic - not syncing";

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The kernel panics for this reason.
    Panic(String),
    /// The kernel reports an error.
    Splat(String),
}

/// Judges the console line by line.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    line: Vec<u8>,
    allowed: Vec<String>,
}

/// Longer lines are judged by their beginnings.
const LINE_MAX: usize = 4096;

impl Scanner {
    /// A scanner that ignores lines with one of these texts.
    pub(crate) fn new(allowed: Vec<String>) -> Self {
        Self {
            line: Vec::new(),
            allowed,
        }
    }

    /// Takes the next bytes, which may end anywhere, and returns the findings of complete lines.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Finding> {
        let mut found = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                found.extend(self.judge());
                self.line.clear();
            } else if self.line.len() < LINE_MAX {
                self.line.push(byte);
            }
        }
        found
    }

    /// Judges an incomplete last line.
    pub(crate) fn finish(&mut self) -> Option<Finding> {
        let found = self.judge();
        self.line.clear();
        found
    }

    fn judge(&self) -> Option<Finding> {
        let line = String::from_utf8_lossy(&self.line);
        let text = without_time(line.trim_end());
        if let Some(at) = text.find(PANIC) {
            let reason = text[at + PANIC.len()..].trim_start_matches(':').trim();
            return Some(Finding::Panic(reason.to_string()));
        }
        if self
            .allowed
            .iter()
            .any(|allowed| text.contains(allowed.as_str()))
        {
            return None;
        }
        let found = text.starts_with("BUG ") || SIGNS.iter().any(|sign| text.contains(sign));
        found.then(|| Finding::Splat(text.to_string()))
    }
}

/// The line without `[   12.345678] `, and `[  T1] ` behind it.
fn without_time(line: &str) -> &str {
    let mut text = line;
    while let Some((stamp, rest)) = text.strip_prefix('[').and_then(|t| t.split_once("] ")) {
        if !stamp
            .bytes()
            .all(|b| b.is_ascii_digit() || b" .CT".contains(&b))
        {
            break;
        }
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Vec<Finding> {
        let mut scanner = Scanner::default();
        let mut found = scanner.feed(text.as_bytes());
        found.extend(scanner.finish());
        found
    }

    #[test]
    fn reports_of_the_kernels_errors_are_found() {
        for line in [
            "[    1.000000] WARNING: mm/memory.c:123 at foo+0x1/0x2, CPU#0: sh/12",
            "[    1.0] WARNING: CPU: 0 PID: 1 at kernel/x.c:1 f+0x1/0x2",
            "[    3.1] BUG: KASAN: slab-use-after-free in f+0x1/0x2",
            "[    3.1][   T12] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[    3.1] WARNING: possible circular locking dependency detected",
            "[    3.1] WARNING: suspicious RCU usage",
            "[   99.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[   99.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]",
            "[   99.1] INFO: task x:12 blocked for more than 120 seconds.",
            "[   99.1] kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "[   99.1] BUG kmalloc-64 (Not tainted): Redzone overwritten",
            "[   99.1] BUG: workqueue lockup - pool cpus=0",
            "[    9.1] rust_kernel: panicked at kernel/trace/ltt/x.rs:1:2:",
        ] {
            assert!(matches!(&judge(line)[..], [Finding::Splat(_)]), "{line}");
        }
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "",
            "[    0.000000] Linux version 7.3.4",
            "[    0.1] debug: skip boot console de-registration.",
            "[    0.1] Warning: unable to open an initial console.",
            "[    0.1] kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)",
            "[    0.1] slab DEBUG on",
            "[    0.1] rcu: RCU lockdep checking is enabled.",
        ] {
            assert_eq!(judge(line), [], "{line}");
        }
    }

    #[test]
    fn a_panic_is_found_with_its_reason() {
        assert_eq!(
            judge("[   3.2] Kernel panic - not syncing: sysrq triggered crash\r\n"),
            [Finding::Panic("sysrq triggered crash".into())]
        );
    }

    #[test]
    fn a_line_in_pieces_is_one_line() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.feed(b"[ 1.0] Kernel pan"), []);
        assert_eq!(
            scanner.feed(b"ic - not syncing: x\nnext"),
            [Finding::Panic("x".into())]
        );
        assert_eq!(scanner.finish(), None);
    }

    #[test]
    fn allowed_lines_are_ignored_unless_they_are_panics() {
        let mut scanner = Scanner::new(vec!["foo+0x".into(), "panic".into()]);
        assert_eq!(scanner.feed(b"WARNING: at foo+0x1\n"), []);
        assert_eq!(scanner.feed(b"WARNING: at bar+0x1\n").len(), 1);
        assert_eq!(scanner.feed(b"Kernel panic - not syncing: y\n").len(), 1);
    }
}
