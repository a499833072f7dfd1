//! The kind of a test: words that a program of libtest-mimic shows in brackets, by which a tier
//! selects its tests.

use usertrace_vm::KernelConfig;

use crate::suite::programs::ListedTest;
use crate::suite::tier::Tier;

/// Guest tests for the release kernel only: long ones that reach no path of the series which others
/// do not.
const RELEASE: &str = "release";
/// Guest tests that need the debug kernel.
const DEBUG: &str = "debug";
/// Guest tests that change the kernel's state in ways of their own: the middle tier runs them on
/// the debug kernel, too.
const STATE: &str = "state";
/// Guest tests in which the kernel patches its own code: they run with emulated processors that
/// take turns.
pub(crate) const TURNS: &str = "turns";
/// Guest tests for a machine with an unstable time-stamp counter.
pub(crate) const CLOCK: &str = "clock";
/// Tests that only the full tier runs. Those of cargo's programs are ignored otherwise.
const FULL: &str = "full";

impl ListedTest {
    /// Whether this is one of the words of the test's kind.
    pub(crate) fn is_of(&self, word: &str) -> bool {
        self.kind.split(' ').any(|of| of == word)
    }

    /// Whether a lower tier than the full one leaves the test out.
    pub(crate) fn is_long(&self) -> bool {
        self.is_ignored || self.is_of(FULL)
    }

    /// Whether the tier runs this guest test in the guests of a kernel, if it is not too long.
    pub(crate) fn is_for(&self, tier: Tier, kernel: KernelConfig) -> bool {
        if self.is_of(TURNS) || self.is_of(CLOCK) {
            return false;
        }
        match kernel {
            KernelConfig::Release => !self.is_of(DEBUG),
            KernelConfig::Debug if self.is_of(RELEASE) => false,
            KernelConfig::Debug => tier == Tier::Full || self.is_of(DEBUG) || self.is_of(STATE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str) -> ListedTest {
        ListedTest {
            name: "a".into(),
            kind: kind.into(),
            is_ignored: false,
        }
    }

    #[test]
    fn kinds_select_kernels() {
        let runs = |kind, tier| {
            [KernelConfig::Release, KernelConfig::Debug].map(|kernel| of(kind).is_for(tier, kernel))
        };
        for (kind, middle, full) in [
            ("", [true, false], [true, true]),
            ("state", [true, true], [true, true]),
            ("debug", [false, true], [false, true]),
            ("release", [true, false], [true, false]),
            ("release full", [true, false], [true, false]),
            ("turns", [false, false], [false, false]),
            ("clock", [false, false], [false, false]),
        ] {
            assert_eq!(runs(kind, Tier::Middle), middle, "{kind}");
            assert_eq!(runs(kind, Tier::Full), full, "{kind}");
        }
    }

    #[test]
    fn long_tests_say_so_by_their_kind_or_are_ignored() {
        assert!(of("full").is_long() && of("release full").is_long());
        assert!(!of("").is_long() && !of("fuller").is_long());
        let ignored = ListedTest {
            is_ignored: true,
            ..of("")
        };
        assert!(ignored.is_long());
    }
}
