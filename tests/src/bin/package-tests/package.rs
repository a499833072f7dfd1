//! The packages, and guests with their kernel.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;
use usertrace_vm::{Guest, KernelConfig, Run, Streams, cache_dir, repository};

/// What the kernel's release ends in.
const SUFFIX: &str = "-ltt-local";

/// Runs `scripts/kernel package`.
fn script(arguments: &[&str]) -> Output {
    Command::new(repository().join("scripts/kernel"))
        .arg("package")
        .args(arguments)
        .output()
        .expect("scripts/kernel")
}

/// The paths of the packages, which are built at most once.
fn packages() -> &'static [PathBuf] {
    static PACKAGES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let output = script(&["--local"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.lines().map(PathBuf::from).collect()
    })
}

/// The package whose name begins so.
pub(crate) fn package(prefix: &str) -> &'static Path {
    let begins = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(prefix.as_bytes())
    };
    let found = packages().iter().find(begins);
    found.unwrap_or_else(|| panic!("no package {prefix}*: {:?}", packages()))
}

/// The directory with the packages, the kernel, and its build.
fn directory() -> PathBuf {
    packages();
    let cache = cache_dir().expect("a cache");
    cache.join("kernel/package-cloud-local")
}

/// The kernel as its package has it, which is not signed.
pub(crate) fn image() -> PathBuf {
    directory().join("bzImage")
}

/// The private key, with its certificate, with which the build has signed all modules.
pub(crate) fn signing_key() -> PathBuf {
    directory().join("build/certs/signing_key.pem")
}

/// A directory that guests see, and whose path has no blanks: make takes no modules from others.
pub(crate) fn directory_for_make() -> TempDir {
    let cache = cache_dir().expect("a cache");
    tempfile::tempdir_in(cache).expect("a directory")
}

/// Unpacks a package.
pub(crate) fn unpacked(prefix: &str) -> TempDir {
    let to = directory_for_make();
    dpkg_deb(&["--extract".into(), package(prefix).into(), to.path().into()]);
    to
}

/// Runs `dpkg-deb`, and returns its output.
fn dpkg_deb(arguments: &[OsString]) -> String {
    let output = Command::new("dpkg-deb").args(arguments).output();
    let output = output.expect("dpkg-deb must be there to run this test");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A guest with this kernel, its memory for a crash kernel included.
pub(crate) fn guest(image: PathBuf) -> Guest {
    Guest::with_kernel(KernelConfig::Release, image)
        .memory_mib(1024)
        // It patches its own code far more than the harness's own, at which QEMU's parallel
        // processors fail now and then (int3).
        .take_turns(true)
        // Distributions watch for processors and tasks that make no progress. On a busy host, those
        // of an emulated machine make none for a while.
        .append("nowatchdog sysctl.kernel.hung_task_timeout_secs=0")
        // It has more to do at boot than the harness's own, on a machine that may be busy.
        .silence(Duration::from_secs(300))
        .timeout(Duration::from_secs(3600))
}

/// Runs a script in a guest with the package's kernel. Its arguments are `$1` and so on.
pub(crate) fn sh(options: &str, script: &str, arguments: &[&Path]) -> Run {
    let words = ["sh", "-ec", script, "sh"].map(OsString::from);
    let arguments = arguments.iter().map(OsString::from);
    let guest = guest(image()).append(options);
    let run = guest
        .command(words.into_iter().chain(arguments))
        .run(Streams::capture());
    run.expect("a guest")
}

/// All that a guest said.
pub(crate) fn said(run: &Run) -> String {
    let [stdout, stderr] = [&run.stdout, &run.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{stdout}{stderr}{}", run.explain())
}

/// The packages have what they promise to Debian, and no private key. A second build has nothing to
/// do.
pub(crate) fn packages_are_complete() {
    let field = |package: &Path, field: &str| {
        let arguments = ["--field".into(), package.into(), field.into()];
        dpkg_deb(&arguments).trim().to_owned()
    };
    let image = package("linux-image-");
    let name = field(image, "Package");
    let release = name.strip_prefix("linux-image-").expect("its name");
    assert!(release.ends_with(SUFFIX), "{release}");
    assert_eq!(
        field(package("linux-headers-"), "Package"),
        format!("linux-headers-{release}")
    );
    assert_eq!(field(package("linux-libc-dev"), "Architecture"), "amd64");
    for package in packages() {
        let list = dpkg_deb(&["--contents".into(), package.into()]);
        assert!(!list.contains("signing_key"), "{}", package.display());
    }
    let list = dpkg_deb(&["--contents".into(), image.into()]);
    for file in [
        format!("/boot/vmlinuz-{release}"),
        format!("/boot/config-{release}"),
        format!("/boot/System.map-{release}"),
        format!("/lib/modules/{release}/modules.dep"),
        "/overlay.ko".to_owned(),
        "/nf_tables.ko".to_owned(),
    ] {
        assert!(list.contains(&file), "{file}: {list}");
    }
    let root = unpacked("linux-libc-dev");
    let header = root.path().join("usr/include/linux/ltt.h");
    assert!(header.exists(), "{}", header.display());

    let again = script(&["--local"]);
    let printed = String::from_utf8_lossy(&again.stdout);
    let paths: Vec<_> = printed.lines().map(PathBuf::from).collect();
    assert_eq!(paths, packages());
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!said.contains("building"), "{said}");
}

/// Each bad argument has an error that names it, and builds nothing.
pub(crate) fn bad_arguments_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let other = directory.path().join("config");
    std::fs::write(&other, "CONFIG_ARM64=y\n").expect("a file");
    let other = other.to_str().expect("a path");
    for (arguments, expected) in [
        (&["--config", "/no/such/file"][..], "\"/no/such/file\""),
        (&["--config", other], "no CONFIG_X86_64=y"),
        (&["--bogus"], "--bogus"),
        (&["--config"], "--config cloud|running|FILE"),
    ] {
        let output = script(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(expected),
            "{arguments:?}: {said}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}
