//! The library for C and C++, as `scripts/c-library` installs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// An installation of the library, for one test program.
pub struct CLibrary {
    prefix: &'static str,
    installed: OnceLock<()>,
}

impl CLibrary {
    /// An installation in this directory, made when it is first used.
    pub const fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            installed: OnceLock::new(),
        }
    }

    /// The directory. The library is installed there once in each run.
    pub fn prefix(&self) -> &Path {
        let prefix = Path::new(self.prefix);
        self.installed.get_or_init(|| {
            let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/c-library");
            let output = Command::new(script).arg("--prefix").arg(prefix).output();
            succeed(&output.unwrap());
        });
        prefix
    }

    /// The words that `pkg-config` prints, with the files of a directory below the prefix. A shell
    /// splits them, as a path may have spaces.
    pub fn flags(&self, files: &str, arguments: &[&str]) -> Vec<String> {
        let output = Command::new("sh")
            .args([
                "-euc",
                r#"eval "set -- $(pkg-config "$@")"; printf '%s\n' "$@""#,
            ])
            .arg("sh")
            .args(arguments)
            .env("PKG_CONFIG_PATH", self.prefix().join(files))
            .output();
        let flags = succeed(&output.unwrap());
        flags.lines().map(str::to_owned).collect()
    }
}

/// The standard output of a program, which must have succeeded.
pub fn succeed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}\n{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
