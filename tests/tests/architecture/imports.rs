//! The imports between the modules of a crate, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path in its crate.
pub(crate) type Name = Vec<String>;

/// The modules of a crate.
#[derive(Default)]
pub(crate) struct Modules {
    pub(crate) sources: BTreeMap<Name, String>,
}

impl Modules {
    /// Reads the files in a directory, except tests and programs.
    pub(crate) fn read(&mut self, root: &Path, directory: &Path) {
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

    pub(crate) fn add(&mut self, name: &str, source: &str) {
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

    /// The imports and paths between modules: pairs of the module that uses an item, and the module
    /// that defines it.
    pub(crate) fn edges(&self) -> BTreeSet<(Name, Name)> {
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
                    // For an imported module: the items that are named after its name.
                    Some(last) if self.sources.contains_key(&path) => {
                        let named = imports(source, &[format!("{last}::")]);
                        let items = named
                            .into_iter()
                            .filter_map(|(named, _)| named.get(1).cloned());
                        uses.extend(items.map(|item| (module, [&path[..], &[item]].concat())));
                    }
                    _ => uses.push((module, path)),
                }
            }
        }
        let edges = uses.into_iter().map(|(module, path)| {
            let used = self.resolve(&path, &given_on, 0);
            (module.clone(), used)
        });
        edges.filter(|(module, used)| module != used).collect()
    }

    /// The modules that are in circles, or on paths between circles.
    pub(crate) fn circles(&self) -> BTreeSet<String> {
        let mut edges = self.edges();
        // Repeatedly removes modules that are not imported, or import none.
        loop {
            let before = edges.len();
            let from: BTreeSet<Name> = edges.iter().map(|(from, _)| from.clone()).collect();
            let to: BTreeSet<Name> = edges.iter().map(|(_, to)| to.clone()).collect();
            edges.retain(|(one, other)| to.contains(one) && from.contains(other));
            if edges.len() == before {
                break;
            }
        }
        edges.iter().map(|(module, _)| module.join("::")).collect()
    }

    /// The beginnings of paths in a module: its children need no `self::`.
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
                // Several `super::`.
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

    /// The module that defines the item of a path.
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

/// The paths that code imports or names, and that begin with one of `starts`, and whether it
/// re-exports them.
fn imports(source: &str, starts: &[String]) -> Vec<(Vec<String>, bool)> {
    let (mut found, rest) = apart(source);
    let named = named(&rest, starts).into_iter();
    found.extend(named.map(|path| (path, false)));
    found
}

/// The paths that code imports, whether it re-exports them, and the code without its imports.
fn apart(source: &str) -> (Vec<(Vec<String>, bool)>, String) {
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
    (found, rest)
}

/// The paths in code, without its imports, that begin with one of `starts`.
fn named(code: &str, starts: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in starts {
        for (at, _) in code.match_indices(start.as_str()) {
            let before = &code[..at];
            let is_inside = before.ends_with(|c: char| c.is_alphanumeric() || ":_$.".contains(c))
                // The path of a visibility is no import.
                || before.ends_with("(in ");
            let is_path = |c: char| c.is_alphanumeric() || ":_".contains(c);
            let len = code[at..].find(|c| !is_path(c)).unwrap_or(code.len() - at);
            if !is_inside {
                found.extend(paths(&code[at..at + len]));
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
