//! Dependencies run one way: between crates as `docs/architecture.md` draws them, and between the
//! modules of a crate.

mod drawing;
mod imports;
mod locks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use usertrace_testing::documents::pages;
use usertrace_vm::repository;

use crate::imports::Modules;

/// The crates below the command, and which of our crates each may use.
const CRATES: &[(&str, &[&str])] = &[
    ("usertrace-sys", &["usertrace-expression"]),
    ("usertrace-os", &[]),
    ("usertrace-expression", &[]),
    ("usertrace-ring", &["usertrace-sys"]),
    (
        "usertrace-ctf",
        &["usertrace-os", "usertrace-ring", "usertrace-sys"],
    ),
    (
        "usertrace-reader",
        &[
            "usertrace-ctf",
            "usertrace-expression",
            "usertrace-os",
            "usertrace-ring",
            "usertrace-sys",
        ],
    ),
    (
        "usertrace-symbols",
        &["usertrace-os", "usertrace-reader", "usertrace-sys"],
    ),
    (
        "usertrace-report",
        &[
            "usertrace-ctf",
            "usertrace-reader",
            "usertrace-ring",
            "usertrace-symbols",
            "usertrace-sys",
        ],
    ),
    (
        "usertrace-columns",
        &[
            "usertrace-os",
            "usertrace-reader",
            "usertrace-ring",
            "usertrace-symbols",
        ],
    ),
    (
        "usertrace-crash",
        &["usertrace-ctf", "usertrace-ring", "usertrace-sys"],
    ),
    ("usertrace-control", &["usertrace-os", "usertrace-sys"]),
    ("usertrace-relay", &[]),
    (
        "usertrace-consumer",
        &[
            "usertrace-control",
            "usertrace-ctf",
            "usertrace-os",
            "usertrace-relay",
            "usertrace-ring",
            "usertrace-sys",
        ],
    ),
    (
        "usertrace",
        &[
            "usertrace-control",
            "usertrace-ctf",
            "usertrace-expression",
            "usertrace-os",
            "usertrace-ring",
            "usertrace-sys",
        ],
    ),
];

/// Crates without circles of imports between modules.
const WITHOUT_CIRCLES: &[&str] = &[
    "sys/src",
    "crates/cli/src",
    "crates/cli/src/bin/usertrace",
    "crates/columns/src",
    "crates/consumer/src",
    "crates/control/src",
    "crates/crash/src",
    "crates/ctf/src",
    "crates/expression/src",
    "crates/os/src",
    "crates/reader/src",
    "crates/relay/src",
    "crates/report/src",
    "crates/ring/src",
    "crates/scenarios/src",
    "c/src",
    "bench/src",
    "preload/dl/src",
    "preload/function/src",
    "preload/malloc/src",
    "preload/next/src",
    "preload/pthread/src",
    "tests/src",
    "tracing/src",
    "usertrace/src",
    "vm/init/src",
    "vm/src",
];

/// The files that may include another file by `#[path]`, and why.
const INCLUDES: &[(&str, &str)] = &[
    (
        "bench/peers/src/main.rs",
        "the benchmark of events has them, in a workspace that does not build the crates of others",
    ),
    (
        "loom/tests/shared.rs",
        "the protocol is private to the library, and runs on loom's atomics here",
    ),
];

/// The packages of the workspace, as `cargo metadata` describes them.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Each crate, and which of our crates it uses. Tests may use more.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let used = dependencies.filter(|dependency| dependency["kind"].is_null());
        let names = used.map(|dependency| text(&dependency["name"]));
        let ours = names.filter(|used| used.starts_with("usertrace")).collect();
        (text(&package["name"]), ours)
    };
    packages().iter().map(of).collect()
}

#[test]
fn crates_depend_on_lower_crates_only() {
    let uses = uses();
    for (name, allowed) in CRATES {
        let used = uses
            .get(*name)
            .unwrap_or_else(|| panic!("there is no {name}"));
        let unwanted = used.iter().find(|used| !allowed.contains(&used.as_str()));
        assert_eq!(unwanted, None, "{name} uses it");
    }
}

/// The Rust files of the repository: their paths, and their text.
fn rust_files() -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "*.rs"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let files = String::from_utf8(listed.stdout).unwrap();
    // Git still lists a file that was removed without it.
    let read = |file: &str| {
        let source = fs::read_to_string(repository().join(file)).ok()?;
        Some((file.to_owned(), source))
    };
    files.lines().filter_map(read).collect()
}

/// A file belongs to one crate: others use that crate.
#[test]
fn modules_are_where_their_names_say() {
    let files = rust_files();
    let includes = files.iter().filter(|(_, source)| {
        let mut lines = source.lines().map(str::trim_start);
        lines.any(|line| line.starts_with("#[path") || line.starts_with("#![path"))
    });
    let includes: Vec<_> = includes.map(|(file, _)| file.as_str()).collect();
    let allowed: Vec<_> = INCLUDES.iter().map(|(file, _)| *file).collect();
    assert_eq!(includes, allowed, "files with #[path]");
}

/// Comments end at column 100, except tables, code, and words that cannot be broken.
#[test]
fn comments_end_at_column_100() {
    let mut long = Vec::new();
    for (file, source) in rust_files() {
        let mut is_code = false;
        for (number, line) in source.lines().enumerate() {
            let Some(text) = line.trim_start().strip_prefix("//") else {
                is_code = false;
                continue;
            };
            let text = text.trim_start_matches(['/', '!']).trim_start();
            is_code ^= text.starts_with("```");
            let may_be_long = is_code || text.starts_with('|') || !text.contains(' ');
            if line.chars().count() > 100 && !may_be_long {
                long.push(format!("{file}:{}", number + 1));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The packages of the library without features, as `cargo tree` prints them, are few.
#[test]
fn the_library_brings_few_packages() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--locked",
            "--package=usertrace",
            "--edges=normal",
        ])
        .args(["--no-default-features", "--prefix=depth"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(tree.lines().count() <= 22, "{tree}");
}

/// The page names these files, and they have these functions.
#[test]
fn the_page_leads_to_the_code() {
    for (file, function) in [
        ("usertrace/src/writer/rseq/x86_64.rs", "fn record<"),
        (
            "usertrace/src/writer/reserve_commit/protocol.rs",
            "fn commit",
        ),
        ("crates/crash/src/vmcoreinfo.rs", "NUMBER(ltt_root)"),
        ("crates/crash/src/scan.rs", "fn find_roots"),
        ("crates/ring/src/reader.rs", "fn overtaken"),
    ] {
        let source = fs::read_to_string(repository().join(file)).unwrap();
        assert!(source.contains(function), "{file} has no {function}");
        let page = fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
        assert!(page.contains(file), "the page does not name {file}");
    }
    let patches = fs::read_dir(repository().join("kernel-patches")).unwrap();
    let patches =
        patches.map(|patch| fs::read_to_string(patch.unwrap().path()).unwrap_or_default());
    assert!(
        patches
            .into_iter()
            .any(|patch| patch.contains("+    fn bring("))
    );
}

/// Each file or directory of this repository that a document names exists.
#[test]
fn paths_in_the_documents_are_there() {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let mut missing = Vec::new();
    for document in pages(repository()) {
        let text = fs::read_to_string(&document).unwrap();
        // Every second part is between backticks.
        let quoted = text.split('`').skip(1).step_by(2);
        let sources = quoted.filter(|word| {
            word.ends_with(".rs") && word.contains('/') && word.chars().all(is_path)
        });
        let sources = sources.filter(|word| !word.starts_with("kernel/"));
        missing.extend(
            sources
                .filter(|word| !repository().join(word).exists())
                .map(|word| format!("{}: {word}", document.display())),
        );
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// `USERTRACE_DRAW=1 cargo test -p usertrace-tests --test architecture` draws them anew.
#[test]
fn the_page_shows_the_graphs() {
    let names = CRATES
        .iter()
        .map(|(name, _)| *name)
        .chain(["usertrace-cli"]);
    let names: BTreeSet<_> = names.collect();
    let mut uses = uses();
    uses.retain(|name, _| names.contains(name.as_str()));
    let root = repository().join("usertrace/src");
    let mut modules = Modules::default();
    modules.read(&root, &root);
    // A drawing of these would never end.
    assert_eq!(modules.circles(), BTreeSet::new());
    let graphs = [
        ("crates", drawing::crates(&uses)),
        ("modules of usertrace", drawing::modules(&modules)),
    ];
    let page = repository().join("docs/architecture.md");
    let mut text = fs::read_to_string(&page).unwrap();
    let before = text.clone();
    for (name, graph) in graphs {
        let [start, end] = ["graph of the", "end of the graph of the"]
            .map(|mark| format!("<!-- {mark} {name} -->\n"));
        let from = text.find(&start).expect("a mark") + start.len();
        let to = text.find(&end).expect("a mark");
        text.replace_range(from..to, &graph);
    }
    if std::env::var_os("USERTRACE_DRAW").is_some() {
        fs::write(&page, text).unwrap();
    } else {
        assert_eq!(before, text, "run it with USERTRACE_DRAW=1");
    }
}

/// What code of the library contains that makes a system call without the C library.
const RAW_SYSTEM_CALLS: &[&str] = &[
    "Sysno",
    "syscalls::raw",
    "raw::syscall",
    "libc::syscall",
    "\"syscall\"",
    "\"svc ",
];

/// The modules of the library that may make such calls: `os`, and the wrapper of `vfork`, which
/// must be assembly.
const MAY_CALL: &[&[&str]] = &[
    &["os"],
    &["writer", "thread", "aarch64"],
    &["writer", "thread", "x86_64"],
];

/// The modules that make raw system calls, and may not.
fn raw_system_calls(modules: &Modules) -> Vec<String> {
    let calls = |source: &str| RAW_SYSTEM_CALLS.iter().any(|call| source.contains(call));
    let may_call = |name: &[String]| {
        MAY_CALL.iter().any(|allowed| {
            name.len() >= allowed.len() && name.iter().zip(*allowed).all(|(a, b)| a == b)
        })
    };
    let sources = modules.sources.iter();
    let wrong = sources.filter(|(name, source)| calls(source) && !may_call(name));
    wrong.map(|(name, _)| name.join("::")).collect()
}

#[test]
fn raw_system_calls_are_in_one_module() {
    let root = repository().join("usertrace/src");
    let mut modules = Modules::default();
    modules.read(&root, &root);
    assert!(
        modules.sources.contains_key(&vec!["os".to_owned()]),
        "there is no os"
    );
    assert_eq!(raw_system_calls(&modules), Vec::<String>::new());
}

#[test]
fn raw_system_calls_are_found() {
    let call = "fn f() { unsafe { raw::syscall0(Sysno::getpid as usize) }; }";
    let mut modules = Modules::default();
    for name in ["os::process", "writer", "writer::thread", "osmosis"] {
        modules.add(name, call);
    }
    modules.add("event", "// Sysno::getpid\nuse syscalls::Errno;");
    modules.add("probe", "fn f() { unsafe { libc::syscall(39) }; }");
    let found = ["osmosis", "probe", "writer", "writer::thread"];
    assert_eq!(raw_system_calls(&modules), found);
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
    // A re-exported item belongs to the module that defines it.
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
    // An item after the name of an imported module belongs to the module that defines it.
    let module = [
        ("a", "use crate::b;\nfn f() { b::g() }"),
        ("b", "pub use self::c::g;"),
        ("b::c", "use crate::a::f;"),
    ];
    assert_eq!(of(&module).len(), 2);
    // Comments, tests and visibilities are no imports.
    let visible = [
        ("a", "use crate::b::f;"),
        ("b", "pub(in crate::a) fn f() {}"),
    ];
    assert!(of(&visible).is_empty());
    let no_imports = "// use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}";
    assert!(of(&[("a", "use crate::b;"), ("b", no_imports)]).is_empty());
}
