//! Checks that figures in the documents are those of the last measurement.

use std::fs;
use std::path::Path;

use usertrace_bench::{
    Growth, Results, figures, growth_page, growth_picture, picture, report, with_figures,
};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the repository")
}

fn read(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn results() -> Results {
    serde_json::from_str(&read("docs/bench/results.json")).expect("results")
}

#[test]
fn the_report_and_the_picture_are_made_of_the_results() {
    let again = "cargo run -p usertrace-bench --bin bench-report -- again .";
    assert!(
        read("docs/bench/results.md") == report(&results()),
        "{again}"
    );
    assert!(
        read("docs/bench/results.svg") == picture(&results()),
        "{again}"
    );
}

#[test]
fn readme_quotes_the_results() {
    let readme = read("README.md");
    let quoted = with_figures(&readme, &figures(&results())).expect("README has a place for them");
    assert_eq!(readme, quoted);
}

#[test]
fn growth_is_made_of_its_results() {
    let guests: Vec<Growth> =
        serde_json::from_str(&read("docs/bench/growth.json")).expect("results");
    let again = "cargo run -p usertrace-bench --bin bench-report -- growth .";
    let page = read("docs/bench/growth.md");
    assert!(growth_page(&page, &guests) == Some(page), "{again}");
    assert!(
        read("docs/bench/growth.svg") == growth_picture(&guests),
        "{again}"
    );
}
