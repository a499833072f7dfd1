//! A small file system, to test a full disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::Run;

/// A mounted file system of a given size; dropping this unmounts it.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Mounts it in a run's directory; `None` if this user may not.
    pub(crate) fn new(run: &Run, size: &str) -> Option<Self> {
        let path = run.path().join("disk");
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&path)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.unwrap().success());
    }
}
