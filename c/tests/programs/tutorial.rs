//! The tutorial for programs in C: its program is built and run as the page says.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_testing::babeltrace;
use usertrace_testing::c_library::succeed;
use usertrace_testing::documents::{event_of, fenced};

use crate::INSTALLED;

pub(crate) const ALL: &[(&str, fn())] = &[(
    "program_of_the_tutorial_records_what_the_page_shows",
    program,
)];

/// Shows the installed library below a directory, with a file for `pkg-config` there. The path has
/// no blank, which the command of the page would split.
fn installed(directory: &Path) -> PathBuf {
    let installed = directory.join("installed");
    symlink(INSTALLED.prefix(), &installed).unwrap();
    let name = "usertrace.pc";
    let text = fs::read_to_string(installed.join("lib/pkgconfig").join(name)).unwrap();
    let lines = text.lines().map(|line| match line.split_once('=') {
        Some(("prefix", _)) => format!("prefix={}\n", installed.display()),
        Some(("libdir", _)) => format!("libdir={}/lib\n", installed.display()),
        _ => format!("{line}\n"),
    });
    fs::write(directory.join(name), lines.collect::<String>()).unwrap();
    installed
}

/// Types the commands that build the program, and those that trace it without the command
/// `usertrace`. The trace has the events that the page shows.
///
/// Requirements: F7
fn program() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorials/instrument-c.md");
    let page = fs::read_to_string(page).unwrap();
    let [build, _record, direct] = &fenced(&page, "sh")[..] else {
        panic!("the page has other blocks of commands");
    };
    let [program] = &fenced(&page, "c")[..] else {
        panic!("the page has other programs");
    };
    let shown: Vec<_> = fenced(&page, "")[0].iter().copied().map(event_of).collect();

    let directory = tempfile::tempdir().unwrap();
    assert_eq!(program[0], "/* server.c */");
    fs::write(directory.path().join("server.c"), program.join("\n")).unwrap();
    let installed = installed(directory.path());
    let types = |command: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", command])
            .current_dir(directory.path())
            .env("PKG_CONFIG_PATH", directory.path())
            .env("LD_LIBRARY_PATH", installed.join("lib"));
        succeed(&shell.output().unwrap());
    };
    types(&build.join("\n"));
    types(direct[0]);
    let read = babeltrace::lines(&directory.path().join("direct"));
    assert_eq!((read.discarded, read.discarded_packets), (0, 0));
    let events: Vec<_> = read.lines.iter().map(|line| event_of(line)).collect();
    assert_eq!(events, shown);
}
