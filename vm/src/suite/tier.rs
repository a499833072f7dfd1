//! The tiers and sections of a run.

use clap::ValueEnum;

/// How much of the tests a run covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// No guest: formatting, lints, unit, property, model and fallback tests.
    Quick,
    /// Every requirement at least once, panics and dumps included.
    Middle,
    /// Everything, with the large counts.
    Full,
}

impl Tier {
    /// The name that a person types, and that reports show.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Middle => "middle",
            Self::Full => "full",
        }
    }
}

/// A part of the tests that can be selected by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Section {
    /// Formatting, lints, and the tests that need no guest
    Host,
    /// Fuzzing of everything that reads bytes which may be damaged
    Fuzz,
    /// The kernel series: it applies, is formatted, and passes its linters
    Series,
    /// The harness itself, on real guests
    Harness,
    /// Tests in guests of the release kernel
    Guest,
    /// Tests that panic or reset guests, and read what is left
    Crash,
    /// Tests in guests of the debug kernel: KASAN, lockdep, PROVE_RCU, kmemleak
    Debug,
    /// Code for aarch64 and riscv64, on emulated processors
    Cross,
    /// The kernel without the series, and with it switched off
    Compare,
    /// The kernel's Debian packages: a build, and guests with that kernel
    Package,
    /// A Debian machine with systemd and services, which panics and is reset
    Machine,
}

impl Section {
    /// The name that a person types, and that reports show.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The lowest tier that has tests of this section.
    pub(crate) fn lowest_tier(self) -> Tier {
        match self {
            Self::Host => Tier::Quick,
            Self::Series | Self::Harness | Self::Guest | Self::Crash | Self::Debug => Tier::Middle,
            Self::Fuzz | Self::Cross | Self::Compare | Self::Package | Self::Machine => Tier::Full,
        }
    }

    /// The paths of the repository that the section's results depend on; empty for all of it.
    pub(crate) fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Series | Self::Compare => &[
                "kernel-patches",
                "sys/include",
                "scripts/common",
                "scripts/compare",
                "scripts/kernel",
                "scripts/setup",
                "tests",
                "vm",
            ],
            Self::Fuzz => &[
                "Cargo.lock",
                "crates",
                "fuzz",
                "scripts/common",
                "scripts/fuzz",
                "sys",
                "usertrace",
            ],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_paths_of_the_repository() {
        for section in Section::value_variants() {
            for path in section.inputs() {
                assert!(usertrace_vm::repository().join(path).exists(), "{path}");
            }
        }
    }
}
