//! Builds the guest's first process, and packs it with its job.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use usertrace_init::{JOB_PATH, Job, OUT_PATH};

use crate::cpio::Archive;
use crate::paths::{repository, target_dir};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The directory of the initramfs's statically linked programs, which are built if needed.
///
/// It is in a target directory of its own: tests call this while cargo locks the usual one.
fn programs() -> Result<PathBuf> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    BUILT
        .get_or_init(|| build_programs().map_err(|e| format!("{e:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

/// Builds the guest's first process, unless that was done before.
///
/// # Errors
/// Cargo cannot build it.
pub fn build_first_process() -> Result<()> {
    programs().map(|_| ())
}

fn build_programs() -> Result<PathBuf> {
    let dir = target_dir().join("guest");
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--release",
            "--package",
            "usertrace-init",
            "--bins",
        ])
        .args(["--target", TARGET])
        .arg("--target-dir")
        .arg(&dir)
        // Without the caller's variables: a wrapper or other flags would rebuild the programs
        // each time.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C strip=symbols",
        )
        .current_dir(repository())
        .stdin(Stdio::null())
        .output()
        .context("running cargo")?;
    if !output.status.success() {
        bail!(
            "building the guest's init failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(dir.join(TARGET).join("release"))
}

/// A program in the initramfs that is traced and then becomes init, if `rdinit=` asks for it.
const FIRST: &str = "first";

/// The initramfs for this job, and a kernel with these arguments.
pub(crate) fn pack(job: &Job, cmdline: &str) -> Result<Vec<u8>> {
    let directory = programs()?;
    let read = |name| {
        let path = directory.join(name);
        std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
    };
    let init = read("usertrace-init")?;
    let mut archive = Archive::default();
    archive.directory("dev");
    // The kernel opens it for the first process's standard streams, before anything is mounted.
    archive.device("dev/console", 5, 1);
    archive.file("init", 0o755, &init);
    if cmdline
        .split_whitespace()
        .any(|word| word == format!("rdinit=/{FIRST}"))
    {
        archive.file(FIRST, 0o755, &read("usertrace-first")?);
    }
    archive.file(JOB_PATH.trim_start_matches('/'), 0o600, &job.encode()?);
    Ok(archive.finish())
}

/// Writes the contents of the initramfs as a root file system to a directory.
pub(crate) fn lay_out(job: &Job, root: &Path) -> Result<()> {
    let job_path = root.join(JOB_PATH.trim_start_matches('/'));
    for name in [
        "dev",
        "proc",
        "sys",
        "run",
        "sbin",
        OUT_PATH.trim_start_matches('/'),
    ] {
        std::fs::create_dir_all(root.join(name))?;
    }
    std::fs::copy(programs()?.join("usertrace-init"), root.join("sbin/init"))?;
    std::fs::write(job_path, job.encode()?)?;
    Ok(())
}
