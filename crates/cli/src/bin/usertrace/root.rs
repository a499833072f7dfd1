//! Option for the mount point of the control file system, shared by the commands that use it.

use std::path::PathBuf;

use usertrace_consumer::{CONTROL_FS, ControlFs, ControlFsError};

#[derive(Debug, clap::Args)]
pub(crate) struct Root {
    /// Where the control file system is mounted
    #[arg(long = "root", value_name = "DIR", default_value = CONTROL_FS)]
    pub(crate) path: PathBuf,
}

impl Root {
    /// Opens the control file system.
    pub(crate) fn open(&self) -> Result<ControlFs, ControlFsError> {
        ControlFs::open(&self.path)
    }
}
