//! The documents are consistent: links, the book's summary, spelling, and what pages quote from the
//! code.

mod messages;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use usertrace_testing::documents::pages;
use usertrace_vm::repository;

use crate::pages::Page;

/// Where a link leads: to a file, and to an anchor in it.
fn split(target: &str) -> (&str, Option<&str>) {
    match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    }
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[test]
fn links_lead_somewhere() {
    let all: BTreeMap<_, _> = pages(repository())
        .into_iter()
        .map(|path| (path.clone(), Page::read(&path)))
        .collect();
    let mut dead = Vec::new();
    for (path, page) in &all {
        for target in &page.links {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = split(target);
            let to = match file {
                "" => path.clone(),
                file => normal(&path.parent().unwrap().join(file)),
            };
            let is_there = match (all.get(&to), anchor) {
                (Some(page), Some(anchor)) => page.anchors.contains(anchor),
                (None, Some(_)) => to.exists() && to.extension().is_none_or(|end| end != "md"),
                (_, None) => to.exists(),
            };
            if !is_there {
                let path = path.strip_prefix(repository()).unwrap();
                dead.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Each term of the glossary has an anchor that a writer can guess, and stands where a reader
/// looks.
#[test]
fn terms_of_the_glossary_can_be_linked_to() {
    let text = fs::read_to_string(repository().join("docs/glossary.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let mut terms = Vec::new();
    for row in rows.filter(|row| !row.starts_with("term ")) {
        let cell = row.split(" | ").next().unwrap_or_default();
        let (anchor, term) = cell
            .strip_prefix("<a id=\"")
            .and_then(|rest| rest.split_once("\"></a>"))
            .unwrap_or_else(|| panic!("{cell:?} has no anchor"));
        let term = term.split(',').next().unwrap_or_default();
        assert_eq!(anchor, term.to_lowercase().replace(' ', "-"));
        terms.push(term);
    }
    assert!(terms.len() > 50, "{} terms", terms.len());
    assert!(
        terms.is_sorted(),
        "not in the order of the alphabet: {terms:?}"
    );
}

/// The style of the book names pages by their headings. A heading that changes would lose its
/// style.
#[test]
fn the_style_names_headings_that_exist() {
    let docs = repository().join("docs");
    let style = fs::read_to_string(docs.join("book.css")).unwrap();
    let mut anchors = BTreeSet::new();
    for path in pages(repository()) {
        anchors.extend(Page::read(&path).anchors);
    }
    let ends = |c: char| !c.is_alphanumeric() && c != '-';
    let named: Vec<_> = style
        .split("h1#")
        .skip(1)
        .map(|rest| rest.split(ends).next().unwrap_or_default())
        .collect();
    assert!(!named.is_empty(), "docs/book.css names no page");
    for heading in named {
        assert!(
            anchors.contains(heading),
            "docs/book.css: no page has the heading {heading:?}"
        );
    }
}

/// Each page of `docs` is in the book. `SUMMARY.md` is no page.
#[test]
fn each_page_is_in_the_summary() {
    let docs = repository().join("docs");
    let summary = docs.join("SUMMARY.md");
    let listed: BTreeSet<_> = Page::read(&summary)
        .links
        .iter()
        .map(|target| normal(&docs.join(split(target).0)))
        .collect();
    let missing: Vec<_> = pages(repository())
        .into_iter()
        .filter(|path| path.starts_with(&docs) && *path != summary && !listed.contains(path))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:#?}");
}

/// Words that `codespell` takes for mistakes, and that are none. `diamon.org` has the standard of
/// CTF.
const WORDS: &str = "crate,diamon";

#[test]
fn spelling_is_right() {
    let mut command = Command::new("codespell");
    command
        .args(["--ignore-words-list", WORDS, "--"])
        .args(pages(repository()))
        .current_dir(repository());
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("codespell (scripts/setup installs it): {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// All variables that the code reads are in the reference, and no others.
#[test]
fn the_reference_has_each_variable() {
    let page = fs::read_to_string(repository().join("docs/reference/environment.md")).unwrap();
    let documented: BTreeSet<_> = variables(&page, "").collect();
    let mut read = BTreeSet::new();
    let programs = [
        "*.rs",
        "scripts/*",
        ".ci/*",
        "bench/lttng/*",
        "tests/machine/*",
        "vm/demo/*",
    ];
    for file in listed(&programs) {
        let Ok(text) = fs::read_to_string(repository().join(&file)) else {
            continue;
        };
        if file.ends_with(".rs") {
            read.extend(variables(&text, "\""));
        } else {
            read.extend(variables(&text, "$"));
            read.extend(variables(&text, "${"));
        }
    }
    // A macro's name, in a test.
    read.remove("USERTRACE_EVENT");
    let missing: Vec<_> = read.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&read).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/reference/environment.md has not {missing:?}, and has {unknown:?}, which nothing reads"
    );
}

/// The names of variables that follow a mark. Behind a quotation mark, one ends the name, too.
fn variables<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = String> + 'a {
    let start = format!("{mark}USERTRACE_");
    let found: Vec<_> = text.match_indices(&start).map(|(at, _)| at).collect();
    found.into_iter().filter_map(move |at| {
        let name = &text[at + mark.len()..];
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
        let is_whole = mark != "\"" || name[end..].starts_with('"');
        (is_whole && end > "USERTRACE_".len()).then(|| name[..end].to_owned())
    })
}

/// Files of the repository that match one of the patterns.
fn listed(patterns: &[&str]) -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--"])
        .args(patterns)
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let files = String::from_utf8(listed.stdout).unwrap();
    files.lines().map(str::to_owned).collect()
}

/// The fixed parts of each message in the page are in the code.
#[test]
fn troubleshooting_quotes_the_code() {
    let code = messages::Code::read(listed(&[
        "crates/**/*.rs",
        "usertrace/**/*.rs",
        "sys/**/*.rs",
    ]));
    let path = repository().join("docs/help/troubleshooting.md");
    let page = fs::read_to_string(path).unwrap();
    let mut quoted = 0;
    let mut unknown = Vec::new();
    for message in messages::quoted(&page) {
        quoted += 1;
        if let Some(part) = code.unknown_part(message) {
            unknown.push(format!("{message:?}: {part:?}"));
        }
    }
    assert!(quoted > 100, "{quoted} messages");
    assert!(
        unknown.is_empty(),
        "docs/help/troubleshooting.md quotes what the code does not say:\n{}",
        unknown.join("\n")
    );
}
