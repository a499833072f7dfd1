//! What depends on what runs one way: between crates as `docs/architecture.md` has it, and between
//! the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use usertrace_vm::repository;

/// The crates below the command, and which of ours each may use.
const CRATES: &[(&str, &[&str])] = &[
    ("usertrace-sys", &[]),
    ("usertrace-os", &[]),
    ("usertrace-ring", &["usertrace-sys"]),
    (
        "usertrace-ctf",
        &["usertrace-os", "usertrace-ring", "usertrace-sys"],
    ),
    (
        "usertrace-reader",
        &[
            "usertrace-ctf",
            "usertrace-os",
            "usertrace-ring",
            "usertrace-sys",
        ],
    ),
    (
        "usertrace-report",
        &["usertrace-ctf", "usertrace-reader", "usertrace-ring"],
    ),
    (
        "usertrace-crash",
        &["usertrace-ctf", "usertrace-ring", "usertrace-sys"],
    ),
    ("usertrace-control", &["usertrace-sys"]),
    (
        "usertrace-consumer",
        &[
            "usertrace-control",
            "usertrace-ctf",
            "usertrace-os",
            "usertrace-ring",
            "usertrace-sys",
        ],
    ),
    (
        "usertrace",
        &[
            "usertrace-control",
            "usertrace-ctf",
            "usertrace-os",
            "usertrace-ring",
            "usertrace-sys",
        ],
    ),
];

/// Where no module imports, by whatever way round, one that imports it.
const WITHOUT_CIRCLES: &[&str] = &[
    "sys/src",
    "crates/cli/src",
    "crates/cli/src/bin/usertrace",
    "crates/consumer/src",
    "crates/control/src",
    "crates/crash/src",
    "crates/ctf/src",
    "crates/os/src",
    "crates/reader/src",
    "crates/report/src",
    "crates/ring/src",
    "c/src",
    "tracing/src",
    "usertrace/src",
    "vm/src",
];

#[test]
fn crates_use_what_is_below_them() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    for (name, allowed) in CRATES {
        let package = packages.iter().find(|package| package["name"] == *name);
        let package = package.unwrap_or_else(|| panic!("there is no {name}"));
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        // Tests may use more.
        let used = dependencies.filter(|dependency| dependency["kind"].is_null());
        let names = used.map(|dependency| dependency["name"].as_str().unwrap());
        let ours: Vec<_> = names.filter(|used| used.starts_with("usertrace")).collect();
        let unwanted = ours.iter().find(|used| !allowed.contains(used));
        assert_eq!(unwanted, None, "{name} uses it");
    }
}

#[test]
fn modules_import_each_other_one_way() {
    for directory in WITHOUT_CIRCLES {
        let root = repository().join(directory);
        let mut modules = Modules::default();
        modules.read(&root, &root);
        assert!(!modules.sources.is_empty(), "{directory} has no modules");
        let circles = modules.circles();
        assert!(circles.is_empty(), "{directory}: {circles:?}");
    }
}

#[test]
fn circles_are_found() {
    let of = |sources: &[(&str, &str)]| {
        let mut modules = Modules::default();
        for (name, source) in sources {
            modules.add(name, source);
        }
        modules.circles()
    };
    let two = [("a", "use crate::b::B;"), ("b", "fn f() { crate::a::g() }")];
    assert_eq!(of(&two).len(), 2);
    // What a module gives on is of the one that has it.
    let facade = "mod a;\nmod b;\npub use self::a::A;";
    assert!(
        of(&[
            ("", facade),
            ("a", ""),
            ("b", "use crate::A;\nuse super::A as X;")
        ])
        .is_empty()
    );
    let others = [
        ("", facade),
        ("a", "use super::{b::B, c};"),
        ("b", "use crate::{A, d};"),
    ];
    assert_eq!(of(&others).len(), 2);
    // A child needs no `self::`.
    let child = [("", "fn f() { a::g() }\nstruct S;"), ("a", "use super::S;")];
    assert_eq!(of(&child).len(), 2);
    // Neither comments nor tests are imports, nor is where something is visible.
    let visible = [
        ("a", "use crate::b::f;"),
        ("b", "pub(in crate::a) fn f() {}"),
    ];
    assert!(of(&visible).is_empty());
    let no_imports = "// use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}";
    assert!(of(&[("a", "use crate::b;"), ("b", no_imports)]).is_empty());
}

/// A module's path in its crate.
type Name = Vec<String>;

/// The modules of a crate.
#[derive(Default)]
struct Modules {
    sources: BTreeMap<Name, String>,
}

impl Modules {
    /// Reads the files in a directory, but for tests and programs.
    fn read(&mut self, root: &Path, directory: &Path) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if path.is_dir() && !matches!(name, "tests" | "bin") {
                self.read(root, &path);
            } else if path.extension().is_some_and(|end| end == "rs") && name != "tests" {
                let relative = path.strip_prefix(root).unwrap().with_extension("");
                let name = relative.to_str().unwrap().replace('/', "::");
                self.add(&name, &fs::read_to_string(path).unwrap());
            }
        }
    }

    fn add(&mut self, name: &str, source: &str) {
        let parts = name.split("::").filter(|part| !part.is_empty());
        let mut name: Name = parts.map(str::to_owned).collect();
        if let Some("lib" | "main" | "mod") = name.last().map(String::as_str) {
            name.pop();
        }
        let is_test = |visibility: &str| format!("#[cfg(test)]\n{visibility}mod ");
        let tests = [
            is_test(""),
            is_test("pub(super) "),
            "#[cfg(all(test".to_owned(),
        ];
        let tests = tests.map(|start| source.find(&start));
        let end = tests.into_iter().flatten().min().unwrap_or(source.len());
        let code = &source[..end];
        let lines = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or(line));
        self.sources
            .insert(name, lines.collect::<Vec<_>>().join("\n"));
    }

    /// The modules that are in circles, or between two of them.
    fn circles(&self) -> BTreeSet<String> {
        let mut given_on = BTreeMap::new();
        let mut uses = Vec::new();
        for (module, source) in &self.sources {
            for (path, is_public) in imports(source, &self.starts(module)) {
                let Some(path) = self.absolute(module, &path) else {
                    continue;
                };
                match path.last() {
                    Some(last) if is_public => {
                        given_on.insert([&module[..], std::slice::from_ref(last)].concat(), path);
                    }
                    _ => uses.push((module, path)),
                }
            }
        }
        let mut edges: BTreeSet<(&Name, Name)> = BTreeSet::new();
        for (module, path) in uses {
            let used = self.resolve(&path, &given_on, 0);
            if used != *module {
                edges.insert((module, used));
            }
        }
        // Without those that nobody imports, and those that import nobody, as often as there are some.
        loop {
            let before = edges.len();
            let from: BTreeSet<Name> = edges.iter().map(|(from, _)| (*from).clone()).collect();
            let to: BTreeSet<Name> = edges.iter().map(|(_, to)| to.clone()).collect();
            edges.retain(|(one, other)| to.contains(*one) && from.contains(other));
            if edges.len() == before {
                break;
            }
        }
        edges.iter().map(|(module, _)| module.join("::")).collect()
    }

    /// What the paths begin with that a module can name: children need no `self::` in front.
    fn starts(&self, module: &Name) -> Vec<String> {
        let is_child = |other: &&Name| other.len() == module.len() + 1 && other.starts_with(module);
        let children = self.sources.keys().filter(is_child);
        let children = children.map(|child| format!("{}::", child[module.len()]));
        let roots = ["crate::", "super::", "self::"].map(str::to_owned);
        roots.into_iter().chain(children).collect()
    }

    /// A path from the crate's root. None: it leads to another crate.
    fn absolute(&self, module: &Name, path: &[String]) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let from = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => {
                let parent = module.split_last()?.1.to_vec();
                // More than one of them.
                return match rest.first().map(String::as_str) {
                    Some("super") => self.absolute(&parent, rest),
                    _ => Some([parent, rest.to_vec()].concat()),
                };
            }
            _ => {
                let child = [&module[..], std::slice::from_ref(first)].concat();
                return self
                    .sources
                    .contains_key(&child)
                    .then(|| [&module[..], path].concat());
            }
        };
        Some([from, rest.to_vec()].concat())
    }

    /// The module that has what this path leads to.
    fn resolve(&self, path: &[String], given_on: &BTreeMap<Name, Name>, depth: usize) -> Name {
        let mut module = Name::new();
        for part in path {
            module.push(part.clone());
            if self.sources.contains_key(&module) {
                continue;
            }
            return match given_on.get(&module) {
                Some(path) if depth < 8 => self.resolve(path, given_on, depth + 1),
                _ => {
                    module.pop();
                    module
                }
            };
        }
        module
    }
}

/// The paths that code imports or names, which begin with one of `starts`, and whether it gives them
/// on.
fn imports(source: &str, starts: &[String]) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let (is_public, import) = match line.trim_start().split_once("use ") {
            Some(("", import)) => (false, import),
            Some((before, import)) if before.starts_with("pub") => (true, import),
            _ => {
                rest.push_str(line);
                rest.push('\n');
                continue;
            }
        };
        let mut import = import.to_owned();
        while !import.contains(';') {
            let Some(line) = lines.next() else { break };
            import.push_str(line);
        }
        let tree = import.split(';').next().unwrap_or_default();
        found.extend(paths(tree).into_iter().map(|path| (path, is_public)));
    }
    for start in starts {
        for (at, _) in rest.match_indices(start.as_str()) {
            let is_inside = rest[..at]
                .ends_with(|c: char| c.is_alphanumeric() || ":_$.".contains(c))
                // Where something is visible is no import.
                || rest[..at].ends_with("(in ");
            let is_path = |c: char| c.is_alphanumeric() || ":_".contains(c);
            let len = rest[at..].find(|c| !is_path(c)).unwrap_or(rest.len() - at);
            if !is_inside {
                found.extend(
                    paths(&rest[at..at + len])
                        .into_iter()
                        .map(|path| (path, false)),
                );
            }
        }
    }
    found
}

/// The paths of a tree of imports: `a::{b, c::d}` has two.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let Some((before, inner)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or(tree);
        let parts = name.split("::").map(str::trim);
        let mut parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        if parts.len() > 1 && matches!(parts.last(), Some(&"self" | &"*")) {
            parts.pop();
        }
        return vec![parts.into_iter().map(str::to_owned).collect()];
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut begin) = (0, 0);
    let mut branches = Vec::new();
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&inner[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&inner[begin..]);
    let branches = branches
        .into_iter()
        .filter(|branch| !branch.trim().is_empty());
    branches
        .flat_map(|branch| paths(&format!("{before}{}", branch.trim())))
        .collect()
}
