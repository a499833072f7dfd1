//! Debian's kdump-tools: its crash kernel boots the system, and a unit of systemd saves memory. Our
//! unit extracts traces before that (C7).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use tempfile::TempDir;
use usertrace_tests::{SYSTEMD, program};
use usertrace_vm::{cache_dir, repository, target_dir};

use crate::DEFAULT;
use crate::guest::{Crash, entries};

/// The directory of units in a package.
const UNITS: &str = "lib/systemd/system";

const ITS: [&str; 2] = ["kdump-tools.service", "kdump-tools-dump.service"];
const OURS: &str = "usertrace-crash.service";
/// Units of the system that these units name.
const OTHERS: [&str; 6] = [
    "basic.target",
    "local-fs.target",
    "multi-user.target",
    "network-online.target",
    "shutdown.target",
    "sysinit.target",
];

/// The package, which `scripts/setup` fetches.
fn package() -> PathBuf {
    let cache = cache_dir().expect("a cache");
    let package = cache.join("tools/kdump-tools-1.8.1");
    assert!(
        package.exists(),
        "kdump-tools 1.8.1 (of Debian 12, fetched by scripts/setup) must be there to run this test"
    );
    package
}

/// A root directory with its units and ours, which are enabled.
fn units() -> TempDir {
    // Where guests see it.
    let root = tempfile::tempdir_in(target_dir()).expect("a directory");
    let to = root.path().join(UNITS);
    fs::create_dir_all(&to).expect("a directory");
    let ours = repository().join("packaging/systemd");
    fs::copy(ours.join(OURS), to.join(OURS)).expect("a unit");
    for name in ITS {
        fs::copy(package().join(UNITS).join(name), to.join(name)).expect("a unit");
    }
    let output = Command::new("systemctl")
        .arg("--root")
        .arg(root.path())
        .args(["enable", "kdump-tools.service", OURS])
        .output();
    let output = output.expect("systemctl (Debian package systemd) must be there to run this test");
    assert!(output.status.success(), "{output:?}");
    root
}

/// The crash kernel starts no unit but the one that saves memory, and what belongs to that. Our
/// unit runs before.
///
/// Requirements: C7
pub(crate) fn runs_the_extraction_first() {
    let units = units();
    let usertrace = program::path("usertrace");
    let script = format!("{SYSTEMD}{}", include_str!("kdump-tools.sh"));
    let script = ["sh", "-c", &script, "kdump-tools.sh"].map(PathBuf::from);
    let arguments = [package(), units.path().into(), usertrace];
    let crashed = Crash::of(DEFAULT)
        .before("\"$numbered\" --events 500")
        .numbered_and_first(
            script.into_iter().chain(arguments),
            &["--panic", "--threads", "2", "--events", "2000"],
        );
    let crash = crashed.out().join("crash");
    let extracted = crashed.is_extracted_below(&crash);
    // It is named by its date.
    let saved = only(&crash, "2");
    crashed.is_the_same_in(&only(&saved, "dump."));
    // It begins with the log.
    let log = only(&saved, "dmesg.");
    assert!(written(&extracted.join("crash")) < written(&log));
}

/// The entry of a directory whose name begins so.
fn only(directory: &Path, prefix: &str) -> PathBuf {
    let begin_so = entries(directory, prefix);
    let [path] = &begin_so[..] else {
        panic!("{}: {prefix}: {begin_so:?}", directory.display());
    };
    path.clone()
}

fn written(path: &Path) -> SystemTime {
    let metadata = fs::metadata(path).expect("a file");
    metadata.modified().expect("when it was written")
}

/// The dependencies of these units and ours have no cycle, for which systemd would leave out a
/// unit. So with ours enabled, too, the crash kernel is loaded when the system boots.
///
/// Requirements: C7
pub(crate) fn units_have_no_ordering_cycle() {
    let root = units();
    let to = root.path().join(UNITS);
    for name in OTHERS {
        fs::copy(Path::new("/").join(UNITS).join(name), to.join(name)).expect("a target");
    }
    for name in ITS.iter().chain([&OURS]) {
        let unit = fs::read_to_string(to.join(name)).expect("a unit");
        // Neither program is there, and manual pages are elsewhere.
        let unit = unit
            .replace("/usr/bin/usertrace", "/bin/true")
            .replace("/etc/init.d/kdump-tools", "/bin/true")
            .replace("Documentation=", "#");
        fs::write(to.join(name), unit).expect("a unit");
    }
    let path = [root.path().join("etc/systemd/system"), to];
    let path = std::env::join_paths(path).expect("no colons");
    for name in ["multi-user.target", "kdump-tools-dump.service"] {
        let Output { status, stderr, .. } = Command::new("systemd-analyze")
            .args(["verify", name])
            .env("SYSTEMD_UNIT_PATH", &path)
            .output()
            .expect("systemd-analyze (Debian package systemd) must be installed to run this test");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success() && said.is_empty(), "{name}: {said}");
    }
}
