//! The Debian packages that `scripts/package` builds work together, from the directory where they
//! are unpacked (F7).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use usertrace_testing::counts::counts;

const PACKAGES: [&str; 3] = ["usertrace", "libusertrace1", "libusertrace-dev"];

/// Runs a program that must succeed, and returns its output.
fn succeed(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {stderr}");
    String::from_utf8(stdout).unwrap()
}

/// Builds all packages, and returns their files.
fn build(output: &Path) -> [PathBuf; 3] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/package");
    let mut package = Command::new(script);
    package.arg("--output").arg(output);
    if counts(0, 1) == 0 {
        // Building and compressing take longer than all other steps.
        package
            .args(["--no-build", "--profile", "dev"])
            .env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    }
    succeed(&mut package);
    let files = fs::read_dir(output).unwrap();
    let files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), PACKAGES.len(), "{files:?}");
    PACKAGES.map(|package| {
        let is_it = |file: &&PathBuf| {
            let name = file.file_name().unwrap().to_str().unwrap();
            name.starts_with(&format!("{package}_"))
        };
        files.iter().find(is_it).expect(package).clone()
    })
}

fn field(package: &Path, name: &str) -> String {
    let mut query = Command::new("dpkg-deb");
    succeed(query.arg("--field").arg(package).arg(name))
        .trim()
        .to_owned()
}

/// Checks the dependencies of the packages.
fn check_dependencies(packages: &[PathBuf; 3]) {
    let [command, library, development] = packages;
    for package in [command, library] {
        let depends = field(package, "Depends");
        assert!(depends.contains("libc6 (>= "), "{package:?}: {depends}");
    }
    let version = field(library, "Version");
    let depends = field(development, "Depends");
    assert_eq!(depends, format!("libusertrace1 (= {version})"));
}

/// Extracts the packages to `root`, and checks their sums.
fn extract(packages: &[PathBuf; 3], directory: &Path, root: &Path) {
    for package in packages {
        succeed(
            Command::new("dpkg-deb")
                .arg("--extract")
                .args([package.as_path(), root]),
        );
        let control = directory.join("control");
        succeed(
            Command::new("dpkg-deb")
                .arg("--control")
                .args([package, &control]),
        );
        let mut check = Command::new("md5sum");
        succeed(
            check
                .args(["--check", "--quiet"])
                .arg(control.join("md5sums"))
                .current_dir(root),
        );
    }
}

/// Checks that important files are there, and can be executed if need be.
fn check_files(root: &Path) {
    for file in [
        "usr/share/man/man1/usertrace-record.1.gz",
        "usr/share/man/man2/ltt_update.2.gz",
        "usr/share/bash-completion/completions/usertrace",
        "usr/share/doc/usertrace/copyright",
        "usr/lib/systemd/system/usertrace-crash.service",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    // The daemon's unit loads the files in it.
    assert!(root.join("etc/usertrace/traces.d").is_dir());
    // dracut runs these scripts.
    for script in ["module-setup.sh", "pre-pivot.sh", "usertrace-crash.sh"] {
        let script = root
            .join("usr/lib/dracut/modules.d/90usertrace")
            .join(script);
        let mode = fs::metadata(&script).map(|metadata| metadata.permissions().mode());
        assert_eq!(mode.unwrap() & 0o777, 0o755, "{script:?}");
    }
}

/// Records a program with the command, and a library that it preloads.
fn check_record(directory: &Path, root: &Path) {
    let trace = directory.join("trace");
    let mut record = Command::new(root.join("usr/bin/usertrace"));
    record
        .args(["record", "--quiet", "--malloc", "-o"])
        .arg(&trace);
    succeed(record.args(["--", "/bin/ls", "/"]));
    let events = succeed(Command::new("babeltrace2").arg(&trace));
    assert!(events.contains("libc:malloc"), "{events}");
}

/// Builds and runs a program in C with the packages.
fn check_program_in_c(directory: &Path, root: &Path) {
    let source = directory.join("program.c");
    fs::write(
        &source,
        "#include <stdio.h>\n#include <usertrace.h>\n\
         int main(void) { char text[200]; usertrace_init(); usertrace_status(text, sizeof(text)); return puts(text) < 0; }\n",
    )
    .unwrap();
    let libraries = fs::read_dir(root.join("usr/lib")).unwrap();
    let mut libraries = libraries.map(|entry| entry.unwrap().path());
    let libraries = libraries.find(|path| path.join("libusertrace.so.1").exists());
    let libraries = libraries.expect("where libraries are");
    let flags = succeed(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "usertrace"])
            .env("PKG_CONFIG_PATH", libraries.join("pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", root),
    );
    let program = directory.join("program");
    succeed(
        Command::new("cc")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace()),
    );
    let said = succeed(Command::new(&program).env("LD_LIBRARY_PATH", &libraries));
    assert!(!said.trim().is_empty());
}

/// Requirements: F7
#[test]
fn packages_work_together_and_are_the_same_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let packages = build(&directory.path().join("first"));
    let again = build(&directory.path().join("again"));
    for (package, again) in packages.iter().zip(&again) {
        assert!(
            fs::read(package).unwrap() == fs::read(again).unwrap(),
            "{package:?}"
        );
    }

    check_dependencies(&packages);
    let root = directory.path().join("root");
    extract(&packages, directory.path(), &root);
    check_files(&root);
    check_record(directory.path(), &root);
    check_program_in_c(directory.path(), &root);
}
