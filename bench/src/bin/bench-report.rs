//! Makes the report. `bench-report write DIRECTORY REPOSITORY` puts what the measurements left in
//! the directory together, and writes `docs/bench` and README's figures; `show` only says which
//! targets are met. `bench-report again REPOSITORY` makes them of `results.json` anew.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use usertrace_bench::{Machine, Results, figures, picture, report, with_figures};

const RESULTS: &str = "docs/bench/results.json";

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (from, repository) = match args[..] {
        ["write" | "show", from, repository] => (Some(Path::new(from)), Path::new(repository)),
        ["again", repository] => (None, Path::new(repository)),
        _ => bail!(
            "usage: bench-report write|show DIRECTORY REPOSITORY, or: bench-report again REPOSITORY"
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
