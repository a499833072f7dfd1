//! Programs that tests need and that no package of this release has: `scripts/setup` puts them into the cache.

use std::path::PathBuf;
use std::process::Command;

/// Where they are, as `scripts/common` says it.
fn tools() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let caches = || {
        let home = || variable("HOME").expect("HOME").join(".cache");
        variable("XDG_CACHE_HOME").unwrap_or_else(home)
    };
    let cache = variable("USERTRACE_CACHE").unwrap_or_else(|| caches().join("usertrace"));
    cache.join("tools")
}

/// A `babeltrace2` that reads CTF 2: the one in the cache, or else the one that is installed.
pub fn babeltrace() -> Command {
    let fetched = tools().join("babeltrace2-2.1.1/babeltrace2");
    if fetched.exists() {
        return Command::new(fetched);
    }
    let version = Command::new("babeltrace2").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_new = version.is_ok_and(|text| text.starts_with("Babeltrace 2.1"));
    assert!(
        is_new,
        "babeltrace2 2.1 (of Debian 13, fetched by scripts/setup) must be there to run this test"
    );
    Command::new("babeltrace2")
}
