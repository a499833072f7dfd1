//! Lock files of workspaces inside the repository, which no other test builds by.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::{packages, repository};

/// The directories of these workspaces.
const WORKSPACES: &[&str] = &["bench/peers", "fuzz", "tracing/sqlx"];

/// The text between the first two quotes.
fn quoted(line: &str) -> Option<&str> {
    line.split('"').nth(1)
}

/// The packages of a lock file that come from no registry, and the names of their dependencies.
fn own_packages(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let blocks = lock.split("[[package]]").skip(1);
    let own = blocks.filter(|block| !block.contains("\nsource = "));
    own.filter_map(|block| {
        let mut lines = block.lines();
        let name = lines.find_map(|line| quoted(line.strip_prefix("name = ")?))?;
        let dependencies = lines.filter(|line| line.starts_with(" \""));
        // A version may follow the name.
        let names = dependencies.filter_map(|line| quoted(line)?.split(' ').next());
        Some((name, names.collect()))
    })
    .collect()
}

/// `cargo --locked` refuses a lock file without a dependency that a crate has got since.
#[test]
fn lock_files_have_the_dependencies_of_our_crates() {
    let packages = packages();
    for workspace in WORKSPACES {
        let file = format!("{workspace}/Cargo.lock");
        let lock = fs::read_to_string(repository().join(&file)).unwrap();
        let own = own_packages(&lock);
        let mut checked = 0;
        for package in &packages {
            let Some(locked) = own.get(package["name"].as_str().unwrap()) else {
                continue;
            };
            for dependency in package["dependencies"].as_array().unwrap() {
                let is_always = dependency["kind"].is_null() && dependency["optional"] == false;
                let name = dependency["name"].as_str().unwrap();
                assert!(
                    !is_always || locked.contains(name),
                    "{file} lacks {name} of {} (cargo metadata --manifest-path {workspace}/Cargo.toml)",
                    package["name"]
                );
            }
            checked += 1;
        }
        assert!(checked > 2, "{file} has {checked} crates of ours");
    }
}
