//! Opening the files of a trace.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use usertrace_ctf::recording::finished;
use usertrace_os::files;

/// Opens a file of a trace. If its chunk was finished meanwhile, the file is found under its new
/// name.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let open = |path: &Path| files::open(OpenOptions::new().read(true), path);
    match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            open(&finished(path)).map_err(|_| error)
        }
        opened => opened,
    }
}
