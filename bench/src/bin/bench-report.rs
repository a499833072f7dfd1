//! Makes the report. `bench-report write DIRECTORY REPOSITORY` puts what the measurements left in
//! the directory together, and writes `docs/bench` and README's figures; `show` only says which
//! targets are met. `bench-report again REPOSITORY` makes them of `results.json` anew.
//! `bench-report growth REPOSITORY [FILE...]` writes `docs/bench/growth` from the results of
//! `guest-bench growth`, or from those that are there.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use usertrace_bench::{
    Growth, Machine, Results, figures, growth_page, growth_picture, picture, report, with_figures,
};

const RESULTS: &str = "docs/bench/results.json";
const GROWTH: &str = "docs/bench/growth.json";

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (from, repository) = match args[..] {
        ["write" | "show", from, repository] => (Some(Path::new(from)), Path::new(repository)),
        ["again", repository] => (None, Path::new(repository)),
        ["growth", repository, ref files @ ..] => return growth(Path::new(repository), files),
        _ => bail!(
            "usage: bench-report write|show DIRECTORY REPOSITORY, bench-report again REPOSITORY, \
             or bench-report growth REPOSITORY [FILE...]"
        ),
    };
    let before = read(&repository.join(RESULTS))?;
    let results = match from {
        Some(from) => collect(from, before)?,
        None => before.with_context(|| format!("there is no {RESULTS}"))?,
    };
    if args[0] != "show" {
        publish(&results, repository)?;
    }
    for target in results.targets() {
        println!("{target}");
    }
    Ok(())
}

/// Writes the documents about growth, from results of guests.
fn growth(repository: &Path, files: &[&str]) -> Result<()> {
    let kept = repository.join(GROWTH);
    let mut guests: Vec<Growth> = files
        .iter()
        .map(|file| read(Path::new(file))?.with_context(|| format!("there is no {file}")))
        .collect::<Result<_>>()?;
    if guests.is_empty() {
        guests = read(&kept)?.with_context(|| format!("there is no {GROWTH}"))?;
    }
    write(&kept, &(serde_json::to_string_pretty(&guests)? + "\n"))?;
    let docs = repository.join("docs/bench");
    write(&docs.join("growth.svg"), &growth_picture(&guests))?;
    let page = docs.join("growth.md");
    let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let text = growth_page(&text, &guests)
        .with_context(|| format!("{} has no place for the table", page.display()))?;
    write(&page, &text)
}

/// Writes the documents.
fn publish(results: &Results, repository: &Path) -> Result<()> {
    let docs = repository.join("docs/bench");
    fs::create_dir_all(&docs)?;
    let text = serde_json::to_string_pretty(results)? + "\n";
    write(&repository.join(RESULTS), &text)?;
    write(&docs.join("results.md"), &report(results))?;
    write(&docs.join("results.svg"), &picture(results))?;
    let readme = repository.join("README.md");
    let text = fs::read_to_string(&readme).context("README.md")?;
    if let Some(text) = with_figures(&text, &figures(results)) {
        write(&readme, &text)?;
    }
    Ok(())
}

/// What the measurements left; what they left out is as it was before.
fn collect(from: &Path, before: Option<Results>) -> Result<Results> {
    let instructions = read(&from.join("instructions.json"))?;
    let Some(events) = read(&from.join("events.json"))? else {
        return Ok(Results {
            instructions: Some(instructions.context("nothing was measured")?),
            ..before.context("no events were measured")?
        });
    };
    let date = std::process::Command::new("date").arg("+%F").output()?;
    Ok(Results {
        date: String::from_utf8_lossy(&date.stdout).trim().into(),
        machine: Machine::this(),
        events,
        instructions: instructions.or_else(|| before.and_then(|before| before.instructions)),
        start_up: read(&from.join("start-up.json"))?,
        to_disk: read(&from.join("to-disk.json"))?,
        wrapped: read(&from.join("wrapped.json"))?,
        redis: read(&from.join("redis.json"))?,
        readers: read(&from.join("readers.json"))?,
    })
}

/// Nothing if there is no such file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text)
        .with_context(|| path.display().to_string())
        .map(Some)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}
