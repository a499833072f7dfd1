//! The clock of the traces, and its relation to the kernel's clocks.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use usertrace_ctf::Clock;
use usertrace_os::procfs;
use usertrace_sys::clock::{Source, sync};
use usertrace_sys::uapi::LttClockSync;

use super::super::env;

/// The kernel's list of usable clock sources.
const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// The clock of a program's traces, and what it read when the pool was made.
#[derive(Debug)]
#[repr(C)]
pub(super) struct TraceClock {
    source: Source,
    start: LttClockSync,
    /// The largest error of the time of day in ns; `u64::MAX`: unknown.
    error: u64,
}

impl TraceClock {
    /// Chooses the processor's counter, unless the kernel does not trust it.
    ///
    /// If the program is part of a recording, the time of day is that of `recording`. So all
    /// processes agree on it, even if somebody set it meanwhile.
    pub(super) fn start(recording: Option<env::Clock>) -> Self {
        let source = if is_counter_valid(Path::new(CLOCK_SOURCES)) {
            Source::Processor
        } else {
            Source::Monotonic
        };
        let mut start = sync(source);
        let mut error = u64::MAX;
        // In another time namespace, it would be wrong by any amount.
        let is_same = |clock: &env::Clock| clock.namespace == procfs::time_namespace().as_bytes();
        if let Some(clock) = recording.filter(is_same) {
            start.realtime = start.monotonic.saturating_add_signed(clock.offset);
            error = clock.error.unwrap_or(u64::MAX);
        }
        Self {
            source,
            start,
            error,
        }
    }

    /// The clock that events are written with.
    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// The clocks at the start.
    pub(super) fn first(&self) -> &LttClockSync {
        &self.start
    }

    /// The clocks now.
    pub(super) fn now(&self) -> LttClockSync {
        sync(self.source)
    }

    /// The clock's description for a trace, measured from the start until `now`.
    pub(super) fn until(&self, now: LttClockSync) -> Clock {
        let error = (self.error != u64::MAX).then_some(self.error);
        Clock::new(&self.start, &[now])
            .of_this_boot()
            .with_error(error)
    }

    /// Whether the kernel has marked the counter as unusable since the start.
    pub(super) fn is_unstable(&self) -> bool {
        self.source == Source::Processor && !is_counter_valid(Path::new(CLOCK_SOURCES))
    }
}

/// Whether the kernel trusts the processor's counter. Without sysfs, as in some containers, this
/// assumes so.
fn is_counter_valid(sources: &Path) -> bool {
    // On other architectures the counter is always valid, and the file has other names.
    if cfg!(not(target_arch = "x86_64")) {
        return true;
    }
    // On the stack: a program that does nothing else before `main` has no heap yet.
    let mut text = [0; 512];
    let read = File::open(sources).and_then(|mut file| file.read(&mut text));
    let Ok(len) = read else {
        return true;
    };
    let mut sources = text[..len].split(u8::is_ascii_whitespace);
    sources.any(|source| source == b"tsc")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn kernel_decides_whether_the_counter_is_valid() {
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
