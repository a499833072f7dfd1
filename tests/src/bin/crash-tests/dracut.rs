//! The crash kernel boots an initramfs that dracut made, with the module that takes traces out of
//! the dead kernel's memory before that is saved (C7).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use usertrace_tests::program;
use usertrace_vm::{CRASH_ROOT, repository};

use crate::DEFAULT;
use crate::guest::{Crash, EXTRACTION, entries};

/// The distribution's directory of dracut.
const DRACUT: &str = "/usr/lib/dracut";

/// A stand-in for the module of Fedora's kdump, which Debian does not package. It does what that
/// module does before it saves memory, but ends everything if a script fails.
const KDUMP: [(&str, &str); 2] = [
    (
        "module-setup.sh",
        "check() { return 255; }
         install() {
             printf '# a comment\\nnfs crash-root # the root\\npath /saved/here\\n' >\"$initdir/etc/kdump.conf\"
             inst_hook pre-pivot 90 \"$moddir/kdump.sh\"
             inst_multiple poweroff
         }",
    ),
    (
        "kdump.sh",
        "mount -o remount,ro /sysroot
         for script in /etc/kdump/pre.d/*; do \"$script\" || poweroff -f; done",
    ),
];

/// An initramfs with the module, and with some others.
struct Initramfs {
    path: PathBuf,
    _directory: TempDir,
}

impl Initramfs {
    /// Creates the initramfs, with more modules.
    fn make(more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // dracut looks for modules in one place only: that has those of the distribution, and ours.
        let base = directory.path().join("dracut");
        let modules = base.join("modules.d");
        fs::create_dir_all(&modules).expect("a directory");
        let ours = repository().join("packaging/dracut/90usertrace");
        symlink(ours, modules.join("90usertrace")).expect("a link");
        link_all(Path::new(DRACUT), &base);
        link_all(&Path::new(DRACUT).join("modules.d"), &modules);
        let kdump = modules.join("99kdumpbase");
        fs::create_dir(&kdump).expect("a directory");
        for (name, text) in KDUMP {
            let path = kdump.join(name);
            fs::write(&path, text).expect("a script");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a script's mode");
        }
        let configuration = directory.path().join("configuration");
        fs::create_dir(&configuration).expect("a directory");
        let path = directory.path().join("initramfs");
        // DRACUT_PATH has spaces between directories, and ours may have some in its name.
        let programs = directory.path().join("programs");
        fs::create_dir(&programs).expect("a directory");
        fs::copy(program::path("usertrace"), programs.join("usertrace")).expect("a copy");
        let output = Command::new("dracut")
            // The guest's kernel has no modules.
            .args([
                "--force",
                "--no-kernel",
                "--no-hostonly",
                "--no-early-microcode",
            ])
            .args(["--compress", "gzip -1", "--conf", "/dev/null", "--confdir"])
            .arg(configuration)
            .args(["--modules", "bash base udev-rules virtfs"])
            .args(["--add", "usertrace", "--add", more, "--tmpdir"])
            .arg(directory.path())
            .arg(&path)
            .env("dracutbasedir", base)
            .env(
                "DRACUT_PATH",
                format!("/usr/sbin /usr/bin {}", programs.display()),
            )
            .output()
            .expect("dracut (Debian package dracut-core) must be installed to run this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && path.exists(), "dracut: {said}");
        Self {
            path,
            _directory: directory,
        }
    }
}

/// Links to all entries of a directory that the other one does not have.
fn link_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("dracut's directory") {
        let path = entry.expect("an entry").path();
        let link = to.join(path.file_name().expect("a name"));
        if !link.exists() {
            symlink(&path, link).expect("a link");
        }
    }
}

/// The crash kernel's options, with more of the test.
fn options(more: &str) -> String {
    format!("root=virtfs:{CRASH_ROOT} rd.shell=0 rd.emergency=poweroff {more}")
}

/// Without kdump's module, traces are in `/var/crash` of the root file system.
///
/// Requirements: C7
pub(crate) fn saves_traces_in_the_root_file_system() {
    let root = tempfile::tempdir().expect("a directory");
    Crash::of(DEFAULT)
        .before("\"$numbered\" --events 500")
        .numbered_and_then(
            &Initramfs::make("").path,
            root.path(),
            &options(""),
            &["--panic", "--threads", "2", "--events", "2000"],
        )
        .is_extracted_below(&root.path().join("var/crash"));
}

/// With kdump's module, traces are where it saves memory, even if that is mounted read-only at
/// first, or where the command line says. Memory is saved without any trace, too.
///
/// Requirements: C7
pub(crate) fn saves_traces_where_kdump_saves_memory() {
    let initramfs = Initramfs::make("kdumpbase");
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name);
    Crash::of(DEFAULT)
        .numbered_and_then(
            &initramfs.path,
            root.path(),
            &options(""),
            &["--panic", "--events", "1000"],
        )
        .is_extracted_below(&path("saved/here"));
    Crash::without_trace()
        .numbered_and_then(
            &initramfs.path,
            root.path(),
            &options("usertrace.crash_dir=/sysroot/else/where"),
            &["--panic"],
        )
        .expect_nothing();
    let [extracted] = &entries(&path("else/where"), EXTRACTION)[..] else {
        panic!("nothing was looked for");
    };
    assert_eq!(fs::read_dir(extracted).expect("a directory").count(), 0);
}
