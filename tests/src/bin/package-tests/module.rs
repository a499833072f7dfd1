//! A module of others, which is built as DKMS builds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use usertrace_vm::Outcome;

use crate::package::{directory_for_make, said, sh, signing_key, unpacked};

const SOURCE: &str = r#"
#include <linux/module.h>

static int __init hello_init(void)
{
	pr_info("hello from a module\n");
	return 0;
}

static void __exit hello_exit(void)
{
}

module_init(hello_init);
module_exit(hello_exit);
MODULE_DESCRIPTION("A module of a test");
MODULE_LICENSE("GPL");
"#;

/// Loads the module `$1`, and shows what it said.
const LOAD: &str = "insmod \"$1\"; dmesg | grep 'hello from a module'; rmmod hello";

/// Runs a command, which must succeed.
fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The only kernel in the unpacked package of headers.
fn headers(root: &Path) -> PathBuf {
    let entries = fs::read_dir(root.join("usr/src")).expect("usr/src");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let path = paths.next().expect("headers");
    assert_eq!(paths.next(), None);
    path
}

/// Builds the module against the headers.
fn build(headers: &Path) -> TempDir {
    let directory = directory_for_make();
    let path = directory.path();
    fs::write(path.join("hello.c"), SOURCE).expect("a file");
    fs::write(path.join("Makefile"), "obj-m := hello.o\n").expect("a file");
    let mut make = Command::new("make");
    // cargo's own would add its settings.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    make.arg("-C")
        .arg(headers)
        .arg(format!("M={}", path.display()));
    run(make.arg("modules"));
    directory
}

/// A module that is built with the package of headers alone is loaded. A locked-down kernel loads
/// it only after it was signed with the build's key.
pub(crate) fn is_built_with_the_headers_and_loaded() {
    let root = unpacked("linux-headers-");
    let headers = headers(root.path());
    let built = build(&headers);
    let module = built.path().join("hello.ko");

    let loaded = sh("", LOAD, &[&module]);
    assert_eq!(loaded.outcome, Outcome::Passed, "{}", said(&loaded));

    let refused = sh("lockdown=integrity", LOAD, &[&module]);
    assert_ne!(refused.outcome, Outcome::Passed, "{}", said(&refused));
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("could not insert module"), "{stderr}");

    let key = signing_key();
    let mut sign = Command::new(headers.join("scripts/sign-file"));
    run(sign.arg("sha256").args([&key, &key, &module]));
    let signed = sh("lockdown=integrity", LOAD, &[&module]);
    assert_eq!(signed.outcome, Outcome::Passed, "{}", said(&signed));
}
