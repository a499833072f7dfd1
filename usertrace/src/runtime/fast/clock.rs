//! The clock of the traces, beside those of the kernel.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use usertrace_ctf::Clock;
use usertrace_sys::uapi::LttClockSync;

use super::super::env;
use crate::clock::Source;

/// The clocks that the kernel would take the time from.
const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// The clock of a program's traces, from when the pool was made.
#[derive(Debug)]
pub(super) struct TraceClock {
    source: Source,
    start: LttClockSync,
}

impl TraceClock {
    /// Chooses the processor's counter, unless the kernel says that it is not valid. The time of day is that of `recording`,
    /// if the program is part of one: all of its processes have the same then, also if it was set meanwhile.
    pub(super) fn start(recording: Option<env::Clock>) -> Self {
        let source = if is_counter_valid(Path::new(CLOCK_SOURCES)) {
            Source::Processor
        } else {
            Source::Monotonic
        };
        let mut start = sync(source);
        // In another namespace, it would be hours or years beside.
        let is_same = |clock: &env::Clock| clock.namespace == namespace().as_bytes();
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

/// Where `CLOCK_MONOTONIC` is the same. Empty where there are no such namespaces.
fn namespace() -> OsString {
    std::fs::read_link("/proc/self/ns/time").map_or(OsString::new(), PathBuf::into_os_string)
}

/// The time of day of a recording that begins, as `USERTRACE_CLOCK` has it.
#[cfg(feature = "tools")]
pub(crate) fn of_recording() -> OsString {
    let sync = sync(Source::Monotonic);
    let offset = sync.realtime.wrapping_sub(sync.monotonic).cast_signed();
    let mut text = OsString::from(format!("{offset}@"));
    text.push(namespace());
    text
}

/// Does the kernel trust the processor's counter? Where there is no sysfs, as in some containers, it is taken to be valid.
fn is_counter_valid(sources: &Path) -> bool {
    // Others have no such file, or one that does not name the counter as we do: it is part of the architecture.
    if cfg!(not(target_arch = "x86_64")) {
        return true;
    }
    let Ok(sources) = std::fs::read_to_string(sources) else {
        return true;
    };
    sources.split_whitespace().any(|source| source == "tsc")
}

/// Tries to read all of them at the same moment.
const TRIES: usize = 5;

fn ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time`. Async-signal-safe; these clocks exist everywhere.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time of day, in ns since 1970.
pub(super) fn realtime() -> u64 {
    ns(libc::CLOCK_REALTIME)
}

/// All clocks, as close to each other as can be had. What is called cycles is the time of `source`.
pub(crate) fn sync(source: Source) -> LttClockSync {
    let read = || {
        let before = crate::clock::cycles();
        let (monotonic, realtime) = (ns(libc::CLOCK_MONOTONIC), ns(libc::CLOCK_REALTIME));
        let took = crate::clock::cycles().wrapping_sub(before);
        let sync = LttClockSync {
            cycles: match source {
                Source::Processor => before.wrapping_add(took / 2),
                Source::Monotonic => monotonic,
            },
            monotonic,
            realtime,
            freq: source.frequency(),
        };
        (took, sync)
    };
    let mut best = read();
    for _ in 1..TRIES {
        let next = read();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// The time of day, for people.
pub(super) fn date() -> String {
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(realtime());
    humantime::format_rfc3339_millis(now).to_string()
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

    #[test]
    fn cycles_are_the_time_of_the_source() {
        let (monotonic, counter) = (sync(Source::Monotonic), sync(Source::Processor));
        assert_eq!(
            (monotonic.cycles, monotonic.freq),
            (monotonic.monotonic, 1_000_000_000)
        );
        assert_ne!(counter.cycles, counter.monotonic);
    }
}
