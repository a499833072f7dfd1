//! Paths of the cache, the repository, and the kernels.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The configuration of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KernelConfig {
    /// Fast: for tests and benchmarks.
    #[default]
    Release,
    /// Slow: with every checker that can find errors of the tracer.
    Debug,
}

impl fmt::Display for KernelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Release => "release",
            Self::Debug => "debug",
        })
    }
}

/// The cache: `USERTRACE_CACHE`, or `usertrace` in the user's cache directory. `scripts/common`
/// says the same.
///
/// # Errors
/// Neither that nor a home directory is set.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    if let Some(dir) = set("USERTRACE_CACHE") {
        return Ok(dir);
    }
    if let Some(dir) = set("XDG_CACHE_HOME") {
        return Ok(dir.join("usertrace"));
    }
    Ok(set("HOME").context("no HOME")?.join(".cache/usertrace"))
}

/// The repository's root.
#[must_use]
pub fn repository() -> &'static Path {
    let vm = Path::new(env!("CARGO_MANIFEST_DIR"));
    vm.parent().unwrap_or(vm)
}

/// Cargo's target directory.
#[must_use]
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR").filter(|v| !v.is_empty()) {
        Some(dir) => repository().join(dir),
        None => repository().join("target"),
    }
}

/// The kernel that `scripts/kernel build` built, or the one in `USERTRACE_KERNEL`.
///
/// # Errors
/// There is none.
pub fn kernel_image(config: KernelConfig) -> Result<PathBuf> {
    let path = match env::var_os("USERTRACE_KERNEL").filter(|v| !v.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => cache_dir()?
            .join("kernel")
            .join(format!("out-{config}"))
            .join("bzImage"),
    };
    path.canonicalize().with_context(|| {
        format!(
            "no kernel at {}: run scripts/kernel build --config {config}",
            path.display()
        )
    })
}
