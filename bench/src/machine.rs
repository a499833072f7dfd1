//! The machine of a measurement.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// A machine, and its software.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name, family, model and stepping.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// The hypervisor, if the machine is virtual.
    pub virtualised: Option<String>,
    /// `uname -sr`
    pub kernel: String,
    /// Version of the C library.
    pub libc: String,
    /// Version of the compiler.
    pub rustc: String,
    /// Versions of the distribution's LTTng-UST and LTTng-tools.
    pub lttng: Option<String>,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let of = |key: &str| {
            let line = cpuinfo.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().to_string())
            });
            line.unwrap_or_else(|| "?".into())
        };
        let has = |flag: &str| of("flags").split(' ').any(|one| one == flag);
        Self {
            processor: format!(
                "{} (family {}, model {}, stepping {})",
                of("model name"),
                of("cpu family"),
                of("model"),
                of("stepping")
            ),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            virtualised: has("hypervisor").then(|| {
                let lscpu = output_of("lscpu", &[]).unwrap_or_default();
                let vendor = lscpu
                    .lines()
                    .find_map(|line| line.strip_prefix("Hypervisor vendor:"));
                vendor.map_or("yes", str::trim).to_string()
            }),
            kernel: output_of("uname", &["-sr"]).unwrap_or_default(),
            libc: output_of("ldd", &["--version"])
                .and_then(|text| text.lines().next().map(String::from))
                .unwrap_or_default(),
            rustc: output_of("rustc", &["--version"]).unwrap_or_default(),
            lttng: package("liblttng-ust-dev")
                .zip(package("lttng-tools"))
                .map(|(library, tools)| format!("liblttng-ust {library}, lttng-tools {tools}")),
        }
    }
}

/// Standard output of a command; none if that fails or is empty.
fn output_of(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Version of an installed package.
fn package(name: &str) -> Option<String> {
    output_of("dpkg-query", &["-W", "-f", "${Version}", name])
}
