//! What the running systemd is asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::calls::{KNOWN_SET, TRACING};
use super::name::ServiceName;

/// There if systemd is the machine's first process.
const RUNNING: &str = "/run/systemd/system";

/// The state of a unit.
#[derive(Debug)]
pub(super) struct UnitState {
    pub(super) name: String,
    pub(super) is_active: bool,
    /// The first process of the service, unless it has none.
    pub(super) main_pid: Option<u32>,
}

/// Whether systemd runs this machine.
pub(super) fn is_running() -> bool {
    Path::new(RUNNING).is_dir()
}

/// Makes systemd read its files again.
pub(super) fn reload() -> anyhow::Result<()> {
    output("systemctl", &["daemon-reload"]).map(drop)
}

/// Whether systemd knows the names of the calls of the trace buffers.
pub(super) fn has_names() -> anyhow::Result<bool> {
    let known = output("systemd-analyze", &["syscall-filter", KNOWN_SET])?;
    let is_known = |call: &&str| known.lines().any(|line| line.trim() == *call);
    Ok(TRACING.iter().all(is_known))
}

/// The units that systemd has loaded of a service: itself, or the instances of a template.
pub(super) fn states(name: &ServiceName) -> anyhow::Result<Vec<UnitState>> {
    let pattern = name.pattern();
    let properties = "--property=Id,ActiveState,MainPID";
    let text = output("systemctl", &["show", properties, "--", &pattern])?;
    let state = |block: &str| {
        let value = |name: &str| {
            let mut lines = block.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        };
        Some(UnitState {
            name: value("Id")?.to_owned(),
            is_active: matches!(
                value("ActiveState"),
                Some("active" | "activating" | "reloading")
            ),
            main_pid: value("MainPID")
                .and_then(|pid| pid.parse().ok())
                .filter(|pid| *pid != 0),
        })
    };
    Ok(text.split("\n\n").filter_map(state).collect())
}

/// Whether a process has loaded one of the libraries. `None` if this user may not see that, or the
/// process has ended.
pub(super) fn has_libraries(pid: u32, libraries: &[String]) -> Option<bool> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let has = |library: &String| maps.contains(&format!("/libusertrace_{library}.so"));
    Some(libraries.iter().any(has))
}

fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("SYSTEMD_PAGER", "")
        .env("SYSTEMD_COLORS", "0")
        .output()
        .with_context(|| format!("cannot run {program} (of the package systemd)"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let arguments = arguments.join(" ");
        bail!("{program} {arguments} failed: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
