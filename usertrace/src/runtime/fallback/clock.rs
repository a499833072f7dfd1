//! The clock of the traces, beside those of the kernel.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use usertrace_ctf::Clock;
use usertrace_os::procfs;
use usertrace_sys::clock::{Source, sync};
use usertrace_sys::uapi::LttClockSync;

use super::super::env;

/// The clocks that the kernel would take the time from.
const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// The clock of a program's traces, from when the pool was made.
#[derive(Debug)]
#[repr(C)]
pub(super) struct TraceClock {
    source: Source,
    start: LttClockSync,
}

impl TraceClock {
    /// Chooses the processor's counter, unless the kernel says that it is not valid. The time of
    /// day is that of `recording`, if the program is part of one: all of its processes have the
    /// same then, also if it was set meanwhile.
    pub(super) fn start(recording: Option<env::Clock>) -> Self {
        let source = if is_counter_valid(Path::new(CLOCK_SOURCES)) {
            Source::Processor
        } else {
            Source::Monotonic
        };
        let mut start = sync(source);
        // In another namespace, it would be hours or years beside.
        let is_same = |clock: &env::Clock| clock.namespace == procfs::time_namespace().as_bytes();
        if let Some(clock) = recording.filter(is_same) {
            start.realtime = start.monotonic.saturating_add_signed(clock.offset);
        }
        Self { source, start }
    }

    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// What the clocks said at the start.
    pub(super) fn first(&self) -> &LttClockSync {
        &self.start
    }

    /// What they say now.
    pub(super) fn now(&self) -> LttClockSync {
        sync(self.source)
    }

    /// How the clock runs, from a later point.
    pub(super) fn until(&self, now: LttClockSync) -> Clock {
        Clock::new(&self.start, &[now])
    }

    /// Has the kernel found since the start that the counter is not valid?
    pub(super) fn is_unstable(&self) -> bool {
        self.source == Source::Processor && !is_counter_valid(Path::new(CLOCK_SOURCES))
    }
}

/// Does the kernel trust the processor's counter? Where there is no sysfs, as in some containers,
/// it is taken to be valid.
fn is_counter_valid(sources: &Path) -> bool {
    // Others have no such file, or one that does not name the counter as we do: it is part of the
    // architecture.
    if cfg!(not(target_arch = "x86_64")) {
        return true;
    }
    let Ok(sources) = std::fs::read_to_string(sources) else {
        return true;
    };
    sources.split_whitespace().any(|source| source == "tsc")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_whether_the_counter_is_valid() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (sources, valid) in [
            ("tsc hpet acpi_pm\n", true),
            ("kvm-clock tsc acpi_pm \n", true),
            ("hpet acpi_pm\n", false),
            ("tsc-early\n", false),
            ("\n", false),
        ] {
            std::fs::write(file.path(), sources).unwrap();
            assert_eq!(is_counter_valid(file.path()), valid, "{sources:?}");
        }
        assert!(is_counter_valid(Path::new("/nonexistent/file")));
    }
}
