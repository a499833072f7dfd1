//! The library as `scripts/c-library` installs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Directory into which the library was installed for this run.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/c-library");
        let output = Command::new(script).arg("--prefix").arg(&prefix).output();
        succeed(&output.unwrap());
        prefix
    })
}

/// The output of a program, which must have succeeded.
pub(crate) fn succeed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}\n{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The words of `pkg-config`'s output, with the files of this directory. A shell splits it, since a
/// path may have spaces.
pub(crate) fn flags(files: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new("sh")
        .args([
            "-euc",
            r#"eval "set -- $(pkg-config "$@")"; printf '%s\n' "$@""#,
        ])
        .arg("sh")
        .args(arguments)
        .env("PKG_CONFIG_PATH", prefix().join(files))
        .output();
    let flags = succeed(&output.unwrap());
    flags.lines().map(str::to_owned).collect()
}
