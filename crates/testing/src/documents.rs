//! Runs the commands in README and the book (`docs/`), as they stand there.
//!
//! Each block of commands has a case here, so a new block or page without a case fails. A case
//! names the tests of commands that it leaves out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{containers, examples};

/// Kernels on which a block's commands work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunsOn {
    /// On every kernel.
    Each,
    /// On a kernel with trace buffers. On others, the commands say that they need it.
    Patched,
    /// On a kernel without trace buffers.
    Unpatched,
    /// Like [`Each`](Self::Each), beside a program that the fallback traces to `traces`.
    BesideProgram,
    /// Not run here, but tested in the named place.
    TestedElsewhere(&'static str),
}

use RunsOn::{BesideProgram, Each, Patched, TestedElsewhere, Unpatched};

/// How to run one block.
struct Case {
    /// Beginning of its first command.
    first: &'static str,
    on: RunsOn,
    /// Commands to run before the block.
    prepare: &'static str,
    /// Commands that are left out: words in them, and where they are tested.
    without: &'static [(&'static str, &'static str)],
    /// The block needs root.
    root: bool,
    /// The block runs in the directory of the block before.
    continues: bool,
    /// The block needs the libraries to preload.
    preloads: bool,
}

const fn case(first: &'static str, on: RunsOn, prepare: &'static str) -> Case {
    Case {
        first,
        on,
        prepare,
        without: &[],
        root: false,
        continues: false,
        preloads: false,
    }
}

const fn root(first: &'static str, on: RunsOn, prepare: &'static str) -> Case {
    Case {
        root: true,
        ..case(first, on, prepare)
    }
}

/// A step after the block before.
const fn then(first: &'static str, on: RunsOn) -> Case {
    Case {
        continues: true,
        ..case(first, on, "")
    }
}

/// A step of a page that is about the libraries to preload.
const fn preloaded(case: Case) -> Case {
    Case {
        preloads: true,
        ..case
    }
}

/// Makes a recording to read.
const TRACES: &str = "usertrace record -q -o traces -- ./server 3";
/// Makes a recording unless the block's first command does.
const UNLESS_RECORDED: &str =
    "[ -n \"$USERTRACE_PRELOAD_DIR\" ] || usertrace record -q -o traces -- ./server 3";
/// Makes a trace with channels.
const MINE: &str = "mkdir /sys/kernel/ltt/mine";

/// Makes a file with a trace's settings, and removes the trace.
const SAVED: &str =
    "usertrace start mine && usertrace save mine >mine.toml && usertrace destroy mine";

/// Pages whose commands are the examples of the manual, which have a test of their own.
const GENERATED: &str = "docs/reference/commands";

const CASES: &[(&str, &[Case])] = &[
    (
        "README.md",
        &[
            case("cargo build", Each, ""),
            case(
                "scripts/demo",
                TestedElsewhere("CI runs scripts/test; the rest boots guests"),
                "",
            ),
        ],
    ),
    (
        "docs/start/quick-start.md",
        &[
            preloaded(case("cargo build", Each, "")),
            preloaded(then("usertrace record --malloc", Each)),
            preloaded(then("usertrace view traces", Each)),
        ],
    ),
    (
        "docs/start/install.md",
        &[
            case(
                "scripts/package",
                TestedElsewhere("the tests of usertrace-c, package"),
                "",
            ),
            case(
                "cargo install",
                TestedElsewhere("packaging, and the examples of the manual"),
                "",
            ),
            case("cargo build", Each, ""),
            case(
                "scripts/c-library",
                TestedElsewhere("the tests of usertrace-c"),
                "",
            ),
            case(
                "scripts/kernel tree",
                TestedElsewhere("scripts/test, series"),
                "",
            ),
            root("mount -t ltt", Patched, "umount /sys/kernel/ltt"),
            case("usertrace doctor", Each, ""),
        ],
    ),
    // Not in guests, where compilers take long.
    (
        "docs/tutorials/leak.md",
        &[
            preloaded(case("cc -g cache.c", Unpatched, "")),
            preloaded(then("usertrace record --malloc", Unpatched)),
            preloaded(then("usertrace view traces", Unpatched)),
            preloaded(then("usertrace leaks", Unpatched)),
            preloaded(then("usertrace report", Unpatched)),
        ],
    ),
    (
        "docs/tutorials/locks.md",
        &[
            preloaded(case("cc -g locks.c", Unpatched, "")),
            preloaded(then("setarch -R usertrace record", Unpatched)),
            preloaded(then("usertrace view -e", Unpatched)),
            preloaded(then("usertrace export --json", Unpatched)),
            preloaded(then("nm locks", Unpatched)),
            preloaded(then("usertrace report", Unpatched)),
        ],
    ),
    (
        "docs/tutorials/instrument-rust.md",
        &[
            case(
                "cargo new",
                TestedElsewhere("tests/tools, tutorial, which builds the program"),
                "",
            ),
            case("cargo build --release", TestedElsewhere("likewise"), ""),
            case(
                "usertrace record -o traces -- target/release/shop",
                TestedElsewhere("likewise"),
                "",
            ),
            case("usertrace record -e", TestedElsewhere("likewise"), ""),
            case(
                "cargo add usertrace-tracing",
                TestedElsewhere("likewise"),
                "",
            ),
        ],
    ),
    (
        "docs/tutorials/instrument-c.md",
        &[
            case(
                "cc server.c -o server",
                TestedElsewhere("the tests of usertrace-c"),
                "",
            ),
            case("usertrace record -o traces -- ./server", Unpatched, ""),
            case(
                "USERTRACE_OUTPUT=direct",
                TestedElsewhere("the tests of usertrace-c"),
                "",
            ),
        ],
    ),
    (
        "docs/tutorials/panic.md",
        &[
            case(
                "scripts/demo",
                TestedElsewhere("crash-tests boots such guests"),
                "",
            ),
            case("cargo build", TestedElsewhere("likewise"), ""),
            case("export PATH=", TestedElsewhere("likewise"), ""),
            case("usertrace extract", TestedElsewhere("likewise"), ""),
        ],
    ),
    (
        "docs/how-to/record.md",
        &[
            case("usertrace record -- ./server --port 80", Each, ""),
            Case {
                without: &[("python3", "guest-tests, preload")],
                ..case("usertrace record --malloc -- sqlite3", Each, "")
            },
            root("usertrace record -p server", Patched, ""),
            root("usertrace record --trace mine -o traces", Patched, ""),
            case("usertrace record --subbuf-size 1M", Each, ""),
            case(
                "usertrace record -o traces\n",
                TestedElsewhere("the tests of recorders that are killed"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/read.md",
        &[
            case("usertrace view traces | less", Each, TRACES),
            case(
                "usertrace record --function --context",
                Each,
                UNLESS_RECORDED,
            ),
            case(
                "usertrace record --malloc --pthread --context",
                Each,
                UNLESS_RECORDED,
            ),
            case("usertrace export --json", Each, TRACES),
            Case {
                without: &[
                    ("mine", "guest-tests, sessions"),
                    ("all traces", "the examples of the manual"),
                ],
                ..case("usertrace top", Each, TRACES)
            },
            Case {
                without: &[("mine", "guest-tests, sessions")],
                ..case("usertrace list --events", Each, "")
            },
        ],
    ),
    (
        "docs/how-to/leaks.md",
        &[
            preloaded(case(
                "usertrace record --malloc --context callstack",
                Each,
                "",
            )),
            preloaded(then("usertrace leaks", Each)),
        ],
    ),
    (
        "docs/how-to/symbols.md",
        &[
            case(
                "usertrace view --debug-dir /proc",
                TestedElsewhere("tests/tools, symbols: a copy of the file system"),
                "",
            ),
            case(
                "usertrace view --debug-dir",
                Each,
                "mkdir symbols rootfs && usertrace record -q -o traces -- ./server 3",
            ),
        ],
    ),
    (
        "docs/how-to/several-hosts.md",
        &[
            case("scp -r", TestedElsewhere("tests/tools, hosts"), ""),
            case(
                "usertrace view web db --sync",
                TestedElsewhere("likewise"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/daemon.md",
        &[
            Case {
                without: &[
                    ("systemctl", "guest-tests, systemd"),
                    ("/var/lib/usertrace", "likewise"),
                ],
                ..root("systemctl", Patched, "")
            },
            root(
                "usertrace daemon",
                Patched,
                "usertrace record -q -o traces/web -- ./server 3",
            ),
            case("usertrace record --rotate-time", Unpatched, ""),
        ],
    ),
    (
        "docs/how-to/services.md",
        &[
            case(
                "apt install",
                TestedElsewhere("scripts/machine test story"),
                "",
            ),
            case(
                "usertrace service enable --malloc --pthread",
                TestedElsewhere("likewise"),
                "",
            ),
            case(
                "usertrace service enable --malloc openvpn@",
                TestedElsewhere("guest-tests, examples of the manual"),
                "",
            ),
            case(
                "cd /etc/postgresql",
                TestedElsewhere("scripts/machine test story"),
                "",
            ),
            case("chgrp", TestedElsewhere("likewise"), ""),
            case("journalctl", TestedElsewhere("likewise"), ""),
        ],
    ),
    (
        "docs/how-to/relay.md",
        &[
            case("lttng-relayd", TestedElsewhere("tests/fast, relay"), ""),
            case(
                "usertrace record --relay tcp://relay.example -- ./server",
                TestedElsewhere("tests/fast, relay"),
                "",
            ),
            case(
                "babeltrace2 received",
                TestedElsewhere("tests/fast, relay"),
                "",
            ),
            case("usertrace send", TestedElsewhere("tests/fast, relay"), ""),
            case(
                "usertrace record --relay tcp://relay.example --live",
                TestedElsewhere("tests/fast, relay"),
                "",
            ),
            case(
                "babeltrace2 -i lttng-live",
                TestedElsewhere("tests/fast, relay"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/flight-recorder.md",
        &[
            root("usertrace start --flight", Patched, ""),
            root(
                "usertrace snapshot mine",
                Patched,
                "usertrace start mine && ./server 3",
            ),
            Case {
                without: &[("./program &", "the program is there")],
                ..case("usertrace record --flight", BesideProgram, "")
            },
        ],
    ),
    (
        "docs/reference/expressions.md",
        &[case("usertrace view --where", Each, TRACES)],
    ),
    (
        "docs/how-to/filters.md",
        &[
            case("usertrace record -e 'shop:served if", Each, ""),
            case("usertrace record -e", Each, ""),
            then("usertrace view -e", Each),
            then("usertrace view --where", Each),
            root("usertrace start mine", Patched, ""),
            Case {
                without: &[("./program &", "the program is there")],
                ..case("USERTRACE_CONTROL=thread", BesideProgram, "")
            },
            root("echo 0 >/sys/kernel/ltt/mine/filter", Patched, MINE),
        ],
    ),
    (
        "docs/how-to/triggers.md",
        &[
            root("usertrace start --flight mine", Patched, ""),
            root("usertrace start --flight --trigger", Patched, ""),
            case(
                "usertrace daemon",
                TestedElsewhere("guest-tests, trigger_commands"),
                "",
            ),
            case("while usertrace wait", TestedElsewhere("likewise"), ""),
            root("echo 'shop:served if", Patched, MINE),
        ],
    ),
    (
        "docs/how-to/counting.md",
        &[
            case(
                "usertrace stat -e 'shop:served hist(bytes) by path if",
                Each,
                "",
            ),
            case("usertrace stat -e", Each, ""),
            case("usertrace stat --malloc", Each, ""),
            case("usertrace stat --interval 1 --top", Each, ""),
            case("usertrace stat --interval 1 --openmetrics", Each, ""),
            root("mkdir /sys/kernel/ltt/mine /sys", Patched, ""),
            then("usertrace snapshot mine", Patched),
        ],
    ),
    (
        "docs/how-to/channels.md",
        &[
            root("mkdir /sys/kernel/ltt/mine\n", Patched, ""),
            case("usertrace record --trace mine", Each, ""),
            root("mkdir /sys/kernel/ltt/mine/orders", Patched, MINE),
            root("echo block", Patched, MINE),
            root("echo vtid procname", Patched, MINE),
        ],
    ),
    (
        "docs/how-to/save-and-load.md",
        &[
            root("usertrace start --flight", Patched, ""),
            root("usertrace load mine.toml", Patched, SAVED),
            root(
                "sed -i",
                Patched,
                "usertrace start mine && usertrace save mine >mine.toml",
            ),
            case(
                "usertrace save mine >/etc",
                TestedElsewhere("guest-tests, saved"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/group.md",
        &[
            case(
                "chgrp tracing /sys",
                TestedElsewhere("guest-tests, isolation"),
                "",
            ),
            case(
                "cd /sys/kernel/ltt/mine && chgrp",
                TestedElsewhere("guest-tests, isolation"),
                "",
            ),
            case("usertrace doctor", Each, ""),
        ],
    ),
    (
        "docs/how-to/kernel-events.md",
        &[
            root("usertrace record --kernel 'sched:sched_switch", Patched, ""),
            root("usertrace record -p 4711 --kernel", Patched, ""),
            root("usertrace record --kernel 'sched:*'", Patched, ""),
        ],
    ),
    (
        "docs/how-to/control.md",
        &[
            case("USERTRACE_CONTROL=thread ./server", Each, ""),
            case(
                "usertrace ctl PID list",
                TestedElsewhere("tests/control"),
                "",
            ),
            Case {
                without: &[("./program &", "the program is there")],
                ..case("USERTRACE_CONTROL=thread ./program", BesideProgram, "")
            },
            case("cc -shared -fPIC", TestedElsewhere("tests/control"), ""),
        ],
    ),
    (
        "docs/how-to/containers.md",
        &[
            // By a script in place of Docker: `containers::docker`.
            preloaded(case(
                "docker run -v \"$PWD/traces:/traces\" -e",
                Unpatched,
                "",
            )),
            preloaded(then("usertrace view traces", Unpatched)),
            preloaded(case(
                "docker run -v \"$PWD/traces:/traces\" image usertrace",
                Unpatched,
                "",
            )),
            root("usertrace start --context", Patched, ""),
        ],
    ),
    (
        "docs/how-to/kdump.md",
        &[
            case("usertrace extract", TestedElsewhere("crash-tests"), ""),
            case("RUSTFLAGS=", TestedElsewhere("crash-tests, dracut"), ""),
        ],
    ),
    (
        "docs/how-to/reset.md",
        &[case(
            "cat /sys/kernel/ltt/reserved",
            TestedElsewhere("crash-tests, reset"),
            "",
        )],
    ),
    (
        "docs/how-to/kernel-package.md",
        &[
            case(
                "scripts/kernel package",
                TestedElsewhere("package-tests"),
                "",
            ),
            case(
                "apt install ./linux-image",
                TestedElsewhere("the machine's test"),
                "",
            ),
            case(
                "make -C /lib/modules",
                TestedElsewhere("package-tests, module"),
                "",
            ),
            case(
                "/lib/modules/7.3.4-ltt/build/scripts/sign-file",
                TestedElsewhere("package-tests, module"),
                "",
            ),
            case("sbsign", TestedElsewhere("package-tests, lockdown"), ""),
            case(
                "kdump-config load",
                TestedElsewhere("package-tests, lockdown, by the same system call"),
                "",
            ),
            case("git am", TestedElsewhere("scripts/test, series"), ""),
            case(
                "scripts/config",
                TestedElsewhere("scripts/kernel package merges the same settings"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/requests.md",
        &[
            case(
                "usertrace record --context vtid,procname",
                Unpatched,
                UNLESS_RECORDED,
            ),
            case(
                "usertrace spans --slowest 10 traces",
                TestedElsewhere("tests/tools, spans; usertrace-tracing, tests/requests"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/perfetto.md",
        &[
            case(
                "usertrace record --malloc --pthread --context",
                Unpatched,
                UNLESS_RECORDED,
            ),
            case(
                "echo 'select name",
                TestedElsewhere("tests/tools, export, asks Perfetto's trace processor"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/profiles.md",
        &[
            case(
                "usertrace record --malloc --pthread --context",
                Unpatched,
                UNLESS_RECORDED,
            ),
            case(
                "usertrace export --folded -o",
                Unpatched,
                "usertrace record -q --context callstack -o traces -- ./server 3",
            ),
            case(
                "usertrace export --folded --by time",
                TestedElsewhere("tests/tools, stacks"),
                "",
            ),
        ],
    ),
    (
        "docs/how-to/columns.md",
        &[
            case(
                "usertrace record --malloc --context",
                Unpatched,
                UNLESS_RECORDED,
            ),
            case(
                "usertrace daemon --start web",
                TestedElsewhere("guest-tests, long_running, has the daemon's tables"),
                "",
            ),
            case(
                "usertrace record --rotate-size 64M --parquet",
                Unpatched,
                UNLESS_RECORDED,
            ),
        ],
    ),
    (
        "docs/how-to/opentelemetry.md",
        &[case(
            "usertrace record --pthread --context",
            Unpatched,
            UNLESS_RECORDED,
        )],
    ),
    (
        "docs/how-to/trace-compass.md",
        &[case(
            "usertrace record --pthread --context",
            Unpatched,
            UNLESS_RECORDED,
        )],
    ),
    (
        "docs/how-to/lttng-ust.md",
        &[
            case(
                "export PKG_CONFIG_PATH",
                TestedElsewhere("the tests of usertrace-c"),
                "",
            ),
            case("usertrace record -o traces -- ./server", Unpatched, ""),
        ],
    ),
    (
        "docs/fallback.md",
        &[
            case("USERTRACE_OUTPUT=traces ./program", Unpatched, ""),
            case("usertrace record --rotate-time", Unpatched, ""),
            Case {
                without: &[("./program &", "the program is there")],
                ..case("usertrace snapshot traces", BesideProgram, "")
            },
        ],
    ),
    (
        "docs/testing.md",
        &[
            case(
                "scripts/test quick",
                TestedElsewhere("it is what runs this"),
                "",
            ),
            case("scripts/guest", TestedElsewhere("vm/tests"), ""),
            case("cargo test", TestedElsewhere("it is what runs this"), ""),
        ],
    ),
];

/// The blocks of shell commands in a document.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    fenced(text, "sh")
}

/// The blocks of a language in a document, as lines. `""` is for blocks that name none.
pub fn fenced<'a>(text: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    let (mut is_block, mut is_wanted) = (false, false);
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(_) if is_block => (is_block, is_wanted) = (false, false),
            Some(of) => {
                (is_block, is_wanted) = (true, of == language);
                if is_wanted {
                    blocks.push(Vec::new());
                }
            }
            None if is_wanted => blocks.last_mut().unwrap().push(line),
            None => {}
        }
    }
    blocks
}

/// A line that shows an event, without what differs between two runs: the time, the host, the
/// process and the CPU. Other lines stay.
pub fn event_of(line: &str) -> String {
    let Some((head, fields)) = line.split_once(": {") else {
        return line.to_owned();
    };
    let name = head.rsplit(' ').next().unwrap_or_default();
    match fields.split_once(" }, ") {
        Some((cpu, fields)) if cpu.starts_with(" cpu_id = ") => format!("{name}: {fields}"),
        _ => format!("{name}: {{{fields}"),
    }
}

/// The files that a document tells its reader to save: blocks whose first line is a comment that is
/// a name, such as `/* leak.c */`.
fn files(text: &str) -> Vec<(&str, &str)> {
    let mut files = Vec::new();
    let blocks = text.split("\n```").skip(1).step_by(2);
    for block in blocks {
        let Some((_, block)) = block.split_once('\n') else {
            continue;
        };
        let first = block.lines().next().unwrap_or_default();
        let name = first
            .strip_prefix("/* ")
            .and_then(|rest| rest.strip_suffix(" */"))
            .or_else(|| first.strip_prefix("# "));
        let is_name = |name: &&str| {
            name.contains('.')
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if let Some(name) = name.filter(is_name) {
            files.push((name, block));
        }
    }
    files
}

/// README, and all pages below `docs`, sorted by path.
pub fn pages(repository: &Path) -> Vec<PathBuf> {
    let mut pages = vec![repository.join("README.md")];
    let mut directories = vec![repository.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The pages that have blocks of commands, by their paths.
fn documents(repository: &Path) -> BTreeMap<String, String> {
    let documents = pages(repository).into_iter().map(|path| {
        let name = path.strip_prefix(repository).unwrap().to_str().unwrap();
        (name.to_owned(), fs::read_to_string(&path).unwrap())
    });
    documents
        .filter(|(name, text)| !name.starts_with(GENERATED) && !blocks(text).is_empty())
        .collect()
}

/// The machine and the programs that the commands use.
pub struct Environment<'a> {
    /// The repository.
    pub repository: &'a Path,
    pub usertrace: PathBuf,
    pub server: PathBuf,
    /// Directory of the libraries to preload, if they are built.
    pub libraries: Option<PathBuf>,
    /// Whether this kernel has trace buffers.
    pub is_patched: bool,
    /// User who types; `None` is root.
    pub user: Option<u32>,
}

/// Types the commands of all documents, and returns their number. `clean` removes what a block left
/// in the kernel.
pub fn check(environment: &Environment<'_>, clean: &dyn Fn()) -> usize {
    let documents = documents(environment.repository);
    for (document, _) in CASES {
        assert!(
            documents.contains_key(*document),
            "there are cases for {document}, which is not there or has no commands"
        );
    }
    let cases = |document: &str| CASES.iter().find(|(name, _)| *name == document);
    for document in documents.keys() {
        assert!(
            cases(document).is_some(),
            "{document}: there are no cases for its commands"
        );
    }
    let mut done = 0;
    for (document, text) in &documents {
        let blocks = blocks(text);
        let cases = cases(document).map_or(&[][..], |(_, cases)| *cases);
        let mut directory = None;
        for block in &blocks {
            let whole = format!("{}\n", block.join("\n"));
            let case = cases.iter().find(|case| whole.starts_with(case.first));
            let case = case.unwrap_or_else(|| panic!("{document}: no case for {:?}", block[0]));
            clean();
            if !case.continues {
                directory = None;
            }
            let directory = directory.get_or_insert_with(|| {
                let directory = tempfile::tempdir().unwrap();
                prepare(directory.path(), environment, &files(text));
                directory
            });
            done += type_block(document, case, block, environment, directory);
        }
        let unused = cases.iter().find(|case| {
            let is_it =
                |block: &Vec<&str>| format!("{}\n", block.join("\n")).starts_with(case.first);
            !blocks.iter().any(is_it)
        });
        assert!(
            unused.is_none(),
            "{document} has no {:?}",
            unused.unwrap().first
        );
    }
    done
}

/// The commands of a block: a line that ends with a backslash goes on.
fn commands(block: &[&str]) -> Vec<String> {
    let lines = block.join("\n").replace("\\\n", "");
    lines.lines().map(str::to_owned).collect()
}

/// Whether a command works on every kernel although its block needs the patched one, or runs in the
/// background.
fn works_anywhere(line: &str) -> bool {
    let command = line.strip_prefix("usertrace ");
    let command = command.map(|rest| rest.split(' ').next().unwrap_or_default());
    line.ends_with('&')
        || command.is_none_or(|command| ["view", "report", "export", "doctor"].contains(&command))
}

/// Types one block in a directory, and returns the number of commands.
fn type_block(
    document: &str,
    case: &Case,
    block: &[&str],
    environment: &Environment<'_>,
    directory: &TempDir,
) -> usize {
    let needs_other = case.on == Patched && !environment.is_patched;
    let is_other = case.on == Unpatched && environment.is_patched;
    if matches!(case.on, TestedElsewhere(_))
        || is_other
        || case.root && environment.user.is_some()
        || case.preloads && environment.libraries.is_none()
    {
        return 0;
    }
    // Such a block uses a shell or files to change something in the patched kernel.
    if needs_other && !case.first.starts_with("usertrace") {
        return 0;
    }
    let run = |line: &str| {
        let mut variables = vec![("HOME", directory.path().to_str().unwrap())];
        if let Some(libraries) = &environment.libraries {
            variables.push(("USERTRACE_PRELOAD_DIR", libraries.to_str().unwrap()));
        }
        examples::run_as(line, directory.path(), &variables, environment.user)
    };
    if !case.prepare.is_empty() && !needs_other {
        let (status, output) = run(case.prepare);
        assert_eq!(status, Some(0), "{document}: {}: {output}", case.prepare);
    }
    let (mut done, mut before) = (0, String::new());
    for line in &commands(block) {
        let preloads = ["--malloc", "--pthread", "LD_PRELOAD"]
            .iter()
            .any(|word| line.contains(word));
        if line.trim_start().starts_with('#')
            || case.without.iter().any(|(words, _)| line.contains(words))
            || preloads && environment.libraries.is_none()
            || needs_other && works_anywhere(line)
        {
            continue;
        }
        let typed = typed(line, case, directory.path());
        let (status, output) = run(&format!("{before}{typed}"));
        done += 1;
        if line.starts_with("export ") || line.starts_with("cd ") {
            before += &format!("{typed}\n");
        }
        if needs_other {
            let names_it = ["trace buffers", "patched kernel", "tracefs"]
                .iter()
                .any(|what| output.contains(what));
            assert!(names_it, "{document}: {line}: {output}");
        } else {
            check_success(document, line, status, &output);
        }
    }
    done
}

/// The command that is typed for a line of a document: with a temporary directory, and a running
/// server where the line needs one.
fn typed(line: &str, case: &Case, directory: &Path) -> String {
    let typed = line.replace("/tmp", directory.to_str().unwrap());
    match case.on {
        BesideProgram => examples::beside_program(&typed),
        _ if typed.contains("-p server") || typed.contains("-p 4711") => {
            let typed = typed
                .replace("-p 4711", "-p $!")
                .replace("-p server", "-p $!");
            format!("./server & sleep 0.5; {typed}")
        }
        _ => typed,
    }
}

/// Checks that a command of a document ended with an expected status, and reported no error.
fn check_success(document: &str, line: &str, status: Option<i32>, output: &str) {
    let command = line.split(' ').nth(1).unwrap_or_default();
    let expected = examples::statuses(command, line);
    assert!(
        status.is_some_and(|status| expected.contains(&status))
            // `top` shows a finished recording once.
            || command == "top" && status == Some(0),
        "{document}: {line}: {status:?}: {output}"
    );
    for wrong in ["error:", "panicked", "not found", "usertrace: cannot"] {
        assert!(!output.contains(wrong), "{document}: {line}: {output}");
    }
}

/// Prepares a directory like that of the document's reader.
fn prepare(directory: &Path, environment: &Environment<'_>, files: &[(&str, &str)]) {
    let at = |name: &str| directory.join(name);
    for (name, text) in files {
        fs::write(at(name), text).unwrap();
    }
    fs::create_dir_all(at("bin")).unwrap();
    fs::create_dir_all(at("target")).unwrap();
    let built = environment.usertrace.parent().unwrap();
    symlink(built, at("target/release")).unwrap();
    symlink(&environment.usertrace, at("bin/usertrace")).unwrap();
    symlink(&environment.server, at("server")).unwrap();
    let program = at("program");
    fs::write(&program, "#!/bin/sh\nexec ./server 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Everything is built already.
    symlink("/bin/true", at("bin/cargo")).unwrap();
    docker(&at("bin"), environment);
    if let Some(user) = environment.user {
        for path in [directory.to_owned(), at("bin")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }
}

/// Writes a `docker` whose image has the programs, and the libraries to preload.
fn docker(bin: &Path, environment: &Environment<'_>) {
    let mut image = vec![
        ("/server".to_owned(), environment.server.clone()),
        (
            "/usr/bin/usertrace".to_owned(),
            environment.usertrace.clone(),
        ),
    ];
    if let Some(libraries) = &environment.libraries {
        for name in ["malloc", "pthread", "dl", "function"] {
            let file = format!("libusertrace_{name}.so");
            image.push((format!("/usr/lib/usertrace/{file}"), libraries.join(&file)));
        }
    }
    containers::docker(bin, &image, "./server 3");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_language() {
        let text = "a\n```sh\nb\n\nc\n```\n```\nd\n```\n```sh\ne\n```\n";
        assert_eq!(fenced(text, "sh"), [vec!["b", "", "c"], vec!["e"]]);
        assert_eq!(fenced(text, ""), [["d"]]);
    }

    #[test]
    fn events_of_two_runs_are_equal() {
        let line = "[07:05:55.9] (+?.?) vm:shop:(62) shop:served: { cpu_id = 0 }, { n = 1 }";
        for line in [line, "shop:served: { cpu_id = 10 }, { n = 1 }"] {
            assert_eq!(event_of(line), "shop:served: { n = 1 }");
        }
        assert_eq!(event_of("shop:served: { n = 1 }"), "shop:served: { n = 1 }");
        assert_eq!(event_of("attached"), "attached");
    }
}
