//! Lists what a run does not cover, for its report.

use std::collections::BTreeMap;

use clap::ValueEnum as _;

use crate::suite::plan::NOT_QUICK;
use crate::suite::tier::{Section, Tier};

/// Parts of sections, besides single tests, that tiers below the full one leave out.
const PARTS: &[(Section, &str)] = &[
    (
        Section::Series,
        "clippy of the kernel, and a build of each patch",
    ),
    (
        Section::Guest,
        "the large counts of random searches, the adversary on this kernel, and what recording costs",
    ),
    (
        Section::Crash,
        "stops at each instruction; a panic for each state of a ring; 200 panics, 200 stops and 200 resets",
    ),
    (
        Section::Debug,
        "guest tests that also run on the release kernel; the adversary for 30 minutes, and with 8 processors",
    ),
];

/// What the quick tier leaves out of the section `host`, besides programs and tests.
const HOST_NOT_QUICK: [&str; 2] = ["lints of tests", "examples in the documentation"];

/// A line for each section, part of a section, and number of long tests that a run of this tier and
/// these sections leaves out.
pub(crate) fn left_out(
    tier: Tier,
    sections: &[Section],
    long: &BTreeMap<Section, u64>,
) -> Vec<String> {
    let others = Section::value_variants()
        .iter()
        .filter(|section| !sections.contains(section))
        .map(|section| {
            let is_full = tier == Tier::Full || section.lowest_tier() == Tier::Full;
            let full = if is_full { "full " } else { "" };
            format!("section {0} (scripts/test {full}{0})", section.name())
        });
    let mut lines: Vec<_> = others.collect();
    if tier == Tier::Quick {
        let not_quick = NOT_QUICK.iter();
        let not_quick = not_quick.map(|(_, what)| *what).chain(HOST_NOT_QUICK);
        lines.extend(not_quick.map(|what| format!("{what} (scripts/test host)")));
    }
    if tier < Tier::Full {
        let parts = PARTS
            .iter()
            .filter(|(section, _)| sections.contains(section));
        let parts = parts.map(|(section, what)| (section, (*what).to_owned()));
        let tests = long
            .iter()
            .map(|(section, count)| (section, format!("{count} long tests")));
        let of_full = |(section, what): (&Section, String)| {
            format!("{what} (scripts/test full {})", section.name())
        };
        lines.extend(parts.chain(tests).map(of_full));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_out_parts_are_listed_with_their_commands() {
        let long = BTreeMap::from([(Section::Host, 7)]);
        let lines = left_out(Tier::Middle, &[Section::Host], &long);
        let has = |text: &str| lines.iter().any(|line| line == text);
        assert!(has("7 long tests (scripts/test full host)"), "{lines:?}");
        assert!(has("section crash (scripts/test crash)"), "{lines:?}");
        assert!(has("section cross (scripts/test full cross)"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("adversary")));
        let lines = left_out(Tier::Quick, &[Section::Host], &long);
        let packages = "the Debian packages (scripts/test host)";
        assert!(lines.iter().any(|line| line == packages), "{lines:?}");
    }

    #[test]
    fn full_tier_leaves_out_nothing() {
        let all = Section::value_variants();
        assert!(left_out(Tier::Full, all, &BTreeMap::new()).is_empty());
    }
}
