//! Runs the commands in README and the documents, as they stand there.
//!
//! Each block of commands has a case here, so a new block without a case fails. A case names the
//! tests of commands that it leaves out.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use super::examples;

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
}

const fn case(first: &'static str, on: RunsOn, prepare: &'static str) -> Case {
    Case {
        first,
        on,
        prepare,
        without: &[],
        root: false,
    }
}

const fn root(first: &'static str, on: RunsOn, prepare: &'static str) -> Case {
    Case {
        root: true,
        ..case(first, on, prepare)
    }
}

/// Makes a recording to read.
const TRACES: &str = "usertrace record -q -o traces -- ./server 3 && cp -r traces usertrace-TIME";
/// Makes a recording unless the block's first command does.
const UNLESS_RECORDED: &str =
    "[ -n \"$USERTRACE_PRELOAD_DIR\" ] || usertrace record -q -o traces -- ./server 3";
/// Makes a trace with channels.
const MINE: &str = "mkdir /sys/kernel/ltt/mine";

const CASES: &[(&str, &[Case])] = &[
    (
        "README.md",
        &[
            case(
                "scripts/demo",
                TestedElsewhere("CI runs scripts/test; the rest boots guests"),
                "",
            ),
            case("cargo build", Each, ""),
            case("scripts/guest", TestedElsewhere("vm/tests"), ""),
            root("export PATH=", Patched, ""),
        ],
    ),
    (
        "docs/guide.md",
        &[
            case(
                "cargo install",
                TestedElsewhere("packaging, and the examples of the manual"),
                "",
            ),
            root("mount -t ltt", Patched, "umount /sys/kernel/ltt"),
            case("usertrace record -- ./server --port 80", Each, ""),
            Case {
                without: &[("record -o traces", "the tests of recorders that are killed")],
                ..root("usertrace record -p server", Patched, "")
            },
            Case {
                without: &[("systemctl", "guest-tests, systemd")],
                ..root(
                    "systemctl",
                    Patched,
                    "usertrace record -q -o traces/web -- ./server 3",
                )
            },
            Case {
                without: &[(
                    "usertrace-TIME",
                    "the line of before, whose recording was ended",
                )],
                ..root("usertrace record --kernel", Patched, "")
            },
            case("usertrace view traces | less", Each, TRACES),
            case("usertrace export --json", Each, TRACES),
            case(
                "usertrace record --malloc --pthread --context",
                Each,
                UNLESS_RECORDED,
            ),
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
            Case {
                without: &[("python3", "guest-tests, preload")],
                ..case("usertrace record --malloc --pthread --dl", Each, "")
            },
            root(
                "usertrace snapshot mine",
                Patched,
                "usertrace start mine && ./server 3",
            ),
            root("usertrace start --flight", Patched, ""),
            Case {
                without: &[("./program", "the next cases")],
                ..root("mkdir /sys/kernel/ltt/mine\n", Patched, "")
            },
            root("echo 0 >/sys/kernel/ltt/mine/filter", Patched, MINE),
            root("mkdir /sys/kernel/ltt/mine/orders", Patched, MINE),
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
            root("echo vtid procname", Patched, MINE),
            case(
                "cc server.c -o server",
                TestedElsewhere("the tests of usertrace-c"),
                "",
            ),
            case(
                "export PKG_CONFIG_PATH",
                TestedElsewhere("the tests of usertrace-c"),
                "",
            ),
            case(
                "usertrace ctl PID list",
                TestedElsewhere("tests/control"),
                "",
            ),
            case("usertrace extract", TestedElsewhere("crash-tests"), ""),
            case("RUSTFLAGS=", TestedElsewhere("crash-tests, dracut"), ""),
            case(
                "cat /sys/kernel/ltt/reserved",
                TestedElsewhere("crash-tests, reset"),
                "",
            ),
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
];

/// The blocks of shell commands in a document.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match line {
            "```sh" => {
                is_inside = true;
                blocks.push(Vec::new());
            }
            "```" => is_inside = false,
            line if is_inside => blocks.last_mut().unwrap().push(line),
            _ => {}
        }
    }
    blocks
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
    let mut done = 0;
    for (document, cases) in CASES {
        let text = fs::read_to_string(environment.repository.join(document)).unwrap();
        let blocks = blocks(&text);
        assert!(!blocks.is_empty(), "{document}");
        for block in &blocks {
            let whole = format!("{}\n", block.join("\n"));
            let case = cases.iter().find(|case| whole.starts_with(case.first));
            let case = case.unwrap_or_else(|| panic!("{document}: no case for {:?}", block[0]));
            clean();
            done += type_block(document, case, block, environment);
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

/// Types one block in a directory of its own, and returns the number of commands.
fn type_block(document: &str, case: &Case, block: &[&str], environment: &Environment<'_>) -> usize {
    let needs_other = case.on == Patched && !environment.is_patched;
    let is_other = case.on == Unpatched && environment.is_patched;
    if matches!(case.on, TestedElsewhere(_)) || is_other || case.root && environment.user.is_some()
    {
        return 0;
    }
    // Such a block uses a shell or files to change something in the patched kernel.
    if needs_other && !case.first.starts_with("usertrace") {
        return 0;
    }
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path(), environment);
    let run = |line: &str| {
        let mut variables = vec![("HOME", directory.path().to_str().unwrap())];
        if let Some(libraries) = &environment.libraries {
            variables.push(("USERTRACE_PRELOAD_DIR", libraries.to_str().unwrap()));
        }
        examples::run_as(line, directory.path(), &variables, environment.user)
    };
    if !case.prepare.is_empty() && !needs_other {
        let (status, said) = run(case.prepare);
        assert_eq!(status, Some(0), "{document}: {}: {said}", case.prepare);
    }
    let (mut done, mut before) = (0, String::new());
    for line in block {
        let is_left_out = |(words, _): &(&str, &str)| line.contains(words);
        let preloads = ["--malloc", "--pthread", "LD_PRELOAD"]
            .iter()
            .any(|word| line.contains(word));
        if line.trim_start().starts_with('#')
            || case.without.iter().any(is_left_out)
            || preloads && environment.libraries.is_none()
        {
            continue;
        }
        let typed = line.replace("/tmp", directory.path().to_str().unwrap());
        let typed = match case.on {
            BesideProgram => examples::beside_program(&typed),
            _ if typed.contains("-p server") || typed.contains("-p 4711") => {
                let typed = typed
                    .replace("-p 4711", "-p $!")
                    .replace("-p server", "-p $!");
                format!("./server & sleep 0.5; {typed}")
            }
            _ => typed,
        };
        let (status, said) = run(&format!("{before}{typed}"));
        done += 1;
        if line.starts_with("export ") || line.starts_with("cd ") {
            before += &format!("{typed}\n");
        }
        if needs_other {
            let names_it = ["trace buffers", "patched kernel", "tracefs"]
                .iter()
                .any(|what| said.contains(what));
            assert!(names_it, "{document}: {line}: {said}");
            continue;
        }
        let command = line.split(' ').nth(1).unwrap_or_default();
        let expected = examples::statuses(command, line);
        assert!(
            status.is_some_and(|status| expected.contains(&status))
                // `top` shows a finished recording once.
                || command == "top" && status == Some(0),
            "{document}: {line}: {status:?}: {said}"
        );
        for wrong in ["error:", "panicked", "not found", "usertrace: cannot"] {
            assert!(!said.contains(wrong), "{document}: {line}: {said}");
        }
    }
    done
}

/// Prepares a directory like that of the document's reader.
fn prepare(directory: &Path, environment: &Environment<'_>) {
    let at = |name: &str| directory.join(name);
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
    if let Some(user) = environment.user {
        for path in [directory.to_owned(), at("bin")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }
}
