//! `scripts/test`: runs the tests of a tier, as many at a time as the machine can take, and
//! reports.

mod guests;
mod history;
mod junit;
mod kind;
mod ktap;
mod left_out;
mod plan;
pub(crate) mod process;
mod programs;
mod report;
mod requirements;
mod result;
mod schedule;
mod tally;
mod tier;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use clap::ValueEnum as _;
use usertrace_vm::cache_dir;

use crate::suite::history::History;
use crate::suite::plan::Context;
use crate::suite::report::Report;
use crate::suite::result::{TestResult, Verdict};
use crate::suite::tier::{Section, Tier};

/// Run the tests of a tier, and print one sum over all, last
#[derive(Args)]
pub(crate) struct Options {
    /// `quick` or `full`, then sections [default: the middle tier, all its sections]
    #[arg(value_name = "TIER|SECTION")]
    words: Vec<String>,
    /// Write the results as JUnit XML, for CI systems
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Full tier: run also what has passed with the same inputs
    #[arg(long)]
    fresh: bool,
}

/// Runs the tests. Returns whether none failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let (tier, sections) = selection(&options.words)?;
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    if let Some(path) = &options.junit {
        // Reports a file that cannot be written before an hour of tests, not after it.
        fs::write(path, "").with_context(|| format!("writing {}", path.display()))?;
    }
    process::catch_signals()?;
    let begun = Instant::now();
    let goes_on: &[Section] = if tier == Tier::Full { &sections } else { &[] };
    let mut history = History::load(goes_on)?;
    if options.fresh {
        history.forget();
    }
    let context = Context {
        tier,
        sections: sections.clone(),
        history: Arc::new(Mutex::new(history)),
        kept: Arc::default(),
        long: Arc::default(),
    };
    let jobs = plan::plan(&context);
    let (mut results, spans) = schedule::run(jobs, schedule::capacity(), |result| {
        report::show(result);
        let mut history = context
            .history
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        history.note(result);
    });
    let save = process::run(plan::script("dependencies", &["save"]), process::SILENCE);
    if let Err(why) = save.outcome {
        println!(
            "\nwhat cargo built is not kept for other clones: {why}\n{}",
            save.output
        );
    }
    if tier == Tier::Middle && options.words.is_empty() {
        let result = requirements_result(&results);
        report::show(&result);
        results.push(result);
    }
    let kept = std::mem::take(&mut *context.kept.lock().unwrap_or_else(PoisonError::into_inner));
    let mut history = context
        .history
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for span in &spans {
        history.note_duration(&span.name, span.time);
    }
    let long = std::mem::take(&mut *context.long.lock().unwrap_or_else(PoisonError::into_inner));
    let left_out = left_out::left_out(tier, &sections, &long);
    let report = Report {
        results: &results,
        spans: &spans,
        time: begun.elapsed(),
        left_out: &left_out,
        kept: &kept,
    };
    let whole = whole_sections(&report, &sections, &kept);
    match history.save(tier.name(), &whole) {
        Ok(path) => println!("\nwhen each section last passed: {}", path.display()),
        Err(e) => println!("\nthe summary file was not written: {e:#}"),
    }
    if let Some(path) = &options.junit {
        junit::write(path, &results, report.time)?;
    }
    report.print();
    let tally = report.tally();
    Ok(tally.failed == 0 && tally.passed > 0)
}

/// A test of its own: all tests that show requirements have passed.
fn requirements_result(results: &[TestResult]) -> TestResult {
    let (verdict, output) = match requirements::not_shown(results) {
        Ok(lines) if lines.is_empty() => (Verdict::Passed, String::new()),
        Ok(lines) => {
            let why = format!("{} named tests did not pass", lines.len());
            (Verdict::Failed(why), lines.join("\n"))
        }
        Err(why) => (Verdict::Failed(why), String::new()),
    };
    TestResult {
        section: Section::Host,
        program: "docs/requirements.md".into(),
        name: String::new(),
        verdict,
        time: Duration::ZERO,
        output,
    }
}

/// The sections without a failed or skipped test, and how many tests each has.
fn whole_sections(
    report: &Report<'_>,
    sections: &[Section],
    kept: &BTreeMap<Section, u64>,
) -> Vec<(Section, u64)> {
    let of = |section: &Section| {
        let results = report
            .results
            .iter()
            .filter(|result| result.section == *section);
        let tally = result::tally(results);
        let passed = tally.passed + kept.get(section).unwrap_or(&0);
        (tally.failed == 0 && passed > 0).then_some((*section, passed))
    };
    sections.iter().filter_map(of).collect()
}

/// The tier, and the sections of it, that these words select.
fn selection(words: &[String]) -> Result<(Tier, Vec<Section>)> {
    let (tier, words) = match words.first().map(|word| &**word) {
        Some("quick") => (Tier::Quick, &words[1..]),
        Some("full") => (Tier::Full, &words[1..]),
        _ => (Tier::Middle, words),
    };
    let mut sections = Vec::new();
    for word in words {
        let section = match Section::from_str(word, false) {
            Ok(section) => section,
            Err(_) => bail!("unknown section \"{word}\"; see --help"),
        };
        if section.lowest_tier() > tier {
            let least = match section.lowest_tier() {
                Tier::Full => "full ",
                _ => "",
            };
            let name = tier.name();
            bail!(
                "the {name} tier has no tests of section \"{word}\": run scripts/test {least}{word}"
            );
        }
        sections.push(section);
    }
    if sections.is_empty() {
        let all = Section::value_variants().iter().copied();
        sections = all
            .filter(|section| section.lowest_tier() <= tier)
            .collect();
    }
    Ok((tier, sections))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(words: &[&str]) -> Result<(Tier, Vec<Section>)> {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        selection(&words)
    }

    #[test]
    fn words_select_a_tier_and_sections() {
        assert_eq!(
            select(&["quick"]).unwrap(),
            (Tier::Quick, vec![Section::Host])
        );
        let (tier, sections) = select(&[]).unwrap();
        assert_eq!(tier, Tier::Middle);
        assert!(sections.contains(&Section::Crash) && !sections.contains(&Section::Cross));
        let crash = (Tier::Full, vec![Section::Crash]);
        assert_eq!(select(&["full", "crash"]).unwrap(), crash);
        let (_, sections) = select(&["full"]).unwrap();
        assert_eq!(sections, Section::value_variants());
    }

    #[test]
    fn wrong_words_are_named() {
        for (words, named) in [
            (&["slow"][..], "slow"),
            (&["cross"], "scripts/test full cross"),
            (&["quick", "guest"], "scripts/test guest"),
        ] {
            let error = select(words).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
