//! The directories of the last runs, in the cache: logs and outcomes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

/// How many directories are kept.
const KEPT: usize = 60;
/// The file in a directory that is locked while its run goes on. The kernel unlocks it when the
/// process ends.
const IN_USE: &str = "in-use";

/// The directory of a run. It stays after the run, until there are many newer ones.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    _in_use: Flock<File>,
}

impl RunDir {
    /// Creates a directory in `runs`, and removes the oldest ones.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(runs: &Path) -> Result<Self> {
        fs::create_dir_all(runs).with_context(|| format!("making {}", runs.display()))?;
        let mut old: Vec<_> = fs::read_dir(runs)?
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        old.sort();
        for (_, path) in old.iter().rev().skip(KEPT) {
            // A guest may run longer than many later ones together.
            if !is_in_use(path) {
                let _ = fs::remove_dir_all(path);
            }
        }
        let path = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(runs)?
            .keep();
        let in_use = File::create(path.join(IN_USE))?;
        let in_use = Flock::lock(in_use, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| errno)
            .with_context(|| format!("locking {}", path.display()))?;
        Ok(Self {
            path,
            _in_use: in_use,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn is_in_use(path: &Path) -> bool {
    let file = File::open(path.join(IN_USE));
    file.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn oldest_directories_are_removed_except_of_a_current_run() {
        let runs = tempfile::tempdir().unwrap();
        let of = || RunDir::new(runs.path()).unwrap();
        let (goes_on, over) = (of(), of().path().to_owned());
        // Clocks of files are coarse.
        for path in [goes_on.path(), &over] {
            let directory = File::open(path).unwrap();
            directory.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let mut last = None;
        for _ in 0..=KEPT {
            last = Some(of());
        }
        assert!(goes_on.path().exists() && !over.exists());
        let path = goes_on.path().to_owned();
        drop(goes_on);
        of();
        assert!(!path.exists() && last.unwrap().path().exists());
    }
}
