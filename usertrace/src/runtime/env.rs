//! Parses the environment variables of the library.

use std::ffi::CStr;
use std::fmt;

use crate::control::Mode as Control;
use crate::writer::Prefault;

/// The values of the variables of both back ends, except for that of the control channel, and of
/// the fallback's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) backend: Backend,
    /// 0: none.
    pub(super) signo: u32,
    /// `USERTRACE_STACKS`: whether events of releases have whole call stacks, too.
    pub(super) all_stacks: bool,
    pub(super) fast: Fast,
}

/// The value of `USERTRACE_CONTROL`: `thread`, `signal`, or `signal:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlSetting {
    /// Unset or empty.
    Unset,
    Mode(Control),
    /// Any other value.
    Unknown(&'static [u8]),
}

/// `USERTRACE_CONTROL`
pub(crate) fn control() -> ControlSetting {
    if is_secure() {
        return ControlSetting::Unset;
    }
    variable(CONTROL).map_or(ControlSetting::Unset, parse_control)
}

fn parse_control(text: &'static [u8]) -> ControlSetting {
    let of_signal = || {
        let number = signal(text.strip_prefix(b"signal:")?)?;
        Some(Control::Signal(libc::c_int::try_from(number).ok()?))
    };
    match text {
        b"" => ControlSetting::Unset,
        b"thread" => ControlSetting::Mode(Control::Thread),
        b"signal" => ControlSetting::Mode(Control::Signal(libc::SIGIO)),
        text => of_signal().map_or(ControlSetting::Unknown(text), ControlSetting::Mode),
    }
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the value is a string of the environment. As with all readers of the environment, no
    // thread may change it meanwhile.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// `USERTRACE_BACKEND`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// Unset: the kernel's buffers, or else the fallback if `USERTRACE_OUTPUT` says where to write.
    Unset,
    /// `auto`: the kernel's buffers, or else the fallback.
    Auto,
    /// `kernel`: buffers that the kernel owns.
    Kernel,
    /// `fast`: the fallback.
    Fast,
    /// `off`: no events.
    Off,
    /// Any other value.
    Unknown,
    /// Not a value: the program has more rights than the user who set the environment, so the
    /// fallback is not available.
    Secure,
}

/// The settings of the fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fast {
    /// `USERTRACE_OUTPUT`: a directory, or `null`.
    pub(super) output: Option<&'static [u8]>,
    /// `USERTRACE_RINGS`
    pub(super) rings: Rings,
    /// `USERTRACE_MODE`
    pub(super) mode: Mode,
    /// `USERTRACE_CTF`: the version of CTF.
    pub(super) ctf: Ctf,
    /// `USERTRACE_SUBBUF_SIZE`
    pub(super) subbuf_size: u32,
    /// `USERTRACE_SUBBUF_COUNT`; none: [`default_subbuf_count`].
    pub(super) subbuf_count: Option<u32>,
    /// `USERTRACE_PREFAULT`: `all`, or nothing.
    pub(super) prefault: Prefault,
    /// `USERTRACE_FILTER`: as it is written to a trace's file `filter`.
    pub(super) filter: &'static [u8],
    /// `USERTRACE_CONTEXTS`: names of contexts, with blanks or commas between them.
    pub(super) contexts: &'static [u8],
    /// `USERTRACE_COUNT`: what to count in place of events: a line for each channel, as
    /// [`CountRequest`](usertrace_sys::count::CountRequest) parses it.
    pub(super) count: &'static [u8],
    /// `USERTRACE_CLOCK`: the wall-clock offset of the recording that the program belongs to.
    pub(super) clock: Option<Clock>,
}

/// `USERTRACE_CLOCK`, which `record` sets: `NS@NAMESPACE`, or `NS,ERROR@NAMESPACE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Wall-clock time minus `CLOCK_MONOTONIC`, in ns.
    pub(super) offset: i64,
    /// The largest error of the wall-clock time in ns, if it is known.
    pub(super) error: Option<u64>,
    /// The time namespace in which the offset is valid, as in `/proc/self/ns/time`.
    pub(super) namespace: &'static [u8],
}

impl Clock {
    fn parse(text: &'static [u8]) -> Option<Self> {
        let at = text.iter().position(|byte| *byte == b'@')?;
        let numbers = std::str::from_utf8(&text[..at]).ok()?;
        let (offset, error) = match numbers.split_once(',') {
            Some((offset, error)) => (offset, Some(error.parse().ok()?)),
            None => (numbers, None),
        };
        Some(Self {
            offset: offset.parse().ok()?,
            error,
            namespace: &text[at + 1..],
        })
    }
}

/// `USERTRACE_RINGS`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rings {
    /// `cpu`, or nothing.
    Cpu,
    /// `thread`
    Thread,
}

/// `USERTRACE_MODE`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `discard`, or nothing.
    Discard,
    /// `overwrite`
    Overwrite,
    /// `block`
    Block,
}

/// `USERTRACE_CTF`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ctf {
    /// `1.8`, or nothing.
    V1_8,
    /// `2`
    V2,
}

impl Fast {
    /// The directory of traces, relative to the current one; none if traces are discarded.
    #[cfg(feature = "fallback")]
    pub(super) fn directory(&self) -> Option<std::path::PathBuf> {
        use std::os::unix::ffi::OsStrExt as _;
        let name = self.output.unwrap_or(b"usertrace-traces");
        (name != b"null").then(|| std::ffi::OsStr::from_bytes(name).into())
    }

    pub(super) const DEFAULT: Self = Self {
        output: None,
        rings: Rings::Cpu,
        mode: Mode::Discard,
        ctf: Ctf::V1_8,
        subbuf_size: 64 << 10,
        subbuf_count: None,
        prefault: Prefault::Ahead,
        filter: b"",
        contexts: b"",
        count: b"",
        clock: None,
    };
}

/// An invalid value of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidValue {
    variable: &'static CStr,
    value: &'static [u8],
    /// The valid values.
    expected: &'static str,
    /// The consequence.
    instead: &'static str,
}

impl InvalidValue {
    /// True if only the fallback uses the variable.
    pub(super) fn is_of_fallback(&self) -> bool {
        ![BACKEND, SIGNAL, CONTROL, STACKS].contains(&self.variable)
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot use {} {}: it is not {} ({})",
            self.variable.to_bytes().escape_ascii(),
            Quoted(self.value),
            self.expected,
            self.instead
        )
    }
}

/// Displays a value, or its beginning, in quotes.
pub(super) struct Quoted(pub(super) &'static [u8]);

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// So short that all possible lines fit into a pipe at once.
        const MAX: usize = 40;
        match self.0.split_at_checked(MAX) {
            Some((start, [_, ..])) => write!(f, "\"{}...\"", start.escape_ascii()),
            _ => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

const BACKEND: &CStr = c"USERTRACE_BACKEND";
const SIGNAL: &CStr = c"USERTRACE_SIGNAL";
const CONTROL: &CStr = c"USERTRACE_CONTROL";
const STACKS: &CStr = c"USERTRACE_STACKS";

/// The default number of sub-buffers of a ring. The reader may be off the CPU for milliseconds, so
/// a process with few rings gets more sub-buffers for each. Up to 64 rings have at most 1024
/// sub-buffers together, which is 64 MiB by default.
#[cfg(any(feature = "fallback", test))]
pub(super) fn default_subbuf_count(nr_rings: u32) -> u32 {
    match nr_rings {
        0..=16 => 64,
        17..=32 => 32,
        _ => 16,
    }
}

/// Reads the settings. A program with more rights than the user who set the environment gets the
/// defaults.
pub(super) fn settings() -> Settings {
    settings_or(|_| {})
}

/// Reads the settings as [`settings`] does, and calls `complain` for each invalid value.
pub(super) fn settings_or(mut complain: impl FnMut(InvalidValue)) -> Settings {
    if is_secure() {
        return Settings {
            backend: Backend::Secure,
            ..parse(|_| None, &mut |_| {})
        };
    }
    if let ControlSetting::Unknown(value) = control() {
        complain(InvalidValue {
            variable: CONTROL,
            value,
            expected: "thread, signal, or signal:N of a signal that can be handled",
            instead: "there is no control channel",
        });
    }
    parse(variable, &mut complain)
}

/// Whether `USERTRACE_STACKS` asks for whole call stacks of all events, also of releases.
pub fn wants_all_stacks() -> bool {
    settings().all_stacks
}

/// True if `USERTRACE_QUIET` suppresses reports on standard error.
pub(super) fn is_quiet() -> bool {
    !matches!(variable(c"USERTRACE_QUIET"), None | Some(b"" | b"0"))
}

/// True if the program has more rights than the user who set the environment.
fn is_secure() -> bool {
    // SAFETY: `getauxval` reads a constant of the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn parse(
    variable: impl Fn(&CStr) -> Option<&'static [u8]>,
    complain: &mut dyn FnMut(InvalidValue),
) -> Settings {
    let mut variables = Variables {
        get: &variable,
        complain,
    };
    Settings {
        backend: variables.read(
            BACKEND,
            [Backend::Unset, Backend::Unknown],
            |value| match value {
                b"auto" => Some(Backend::Auto),
                b"kernel" => Some(Backend::Kernel),
                b"fast" => Some(Backend::Fast),
                b"off" => Some(Backend::Off),
                _ => None,
            },
            "auto, kernel, fast or off",
            "this program is not traced",
        ),
        signo: variables.read(
            SIGNAL,
            [libc::SIGRTMIN() as u32 + 3; 2],
            |value| {
                if value == b"none" {
                    Some(0)
                } else {
                    signal(value)
                }
            },
            "none, or the number of a signal that can be handled",
            "SIGRTMIN+3 is used",
        ),
        all_stacks: variables.read(
            STACKS,
            [false; 2],
            |value| (value == b"all").then_some(true),
            "all",
            "events of releases have their caller alone",
        ),
        fast: fast(&mut variables),
    }
}

fn fast(variables: &mut Variables<'_>) -> Fast {
    let fast = Fast::DEFAULT;
    Fast {
        output: variables.filled(c"USERTRACE_OUTPUT"),
        rings: variables.read(
            c"USERTRACE_RINGS",
            [fast.rings; 2],
            |value| match value {
                b"cpu" => Some(Rings::Cpu),
                b"thread" => Some(Rings::Thread),
                _ => None,
            },
            "cpu or thread",
            "cpu is used",
        ),
        mode: variables.read(
            c"USERTRACE_MODE",
            [fast.mode; 2],
            |value| match value {
                b"discard" => Some(Mode::Discard),
                b"overwrite" => Some(Mode::Overwrite),
                b"block" => Some(Mode::Block),
                _ => None,
            },
            "discard, overwrite or block",
            "discard is used",
        ),
        ctf: variables.read(
            c"USERTRACE_CTF",
            [fast.ctf; 2],
            |value| match value {
                b"1.8" => Some(Ctf::V1_8),
                b"2" => Some(Ctf::V2),
                _ => None,
            },
            "1.8 or 2",
            "1.8 is used",
        ),
        subbuf_size: variables.read(
            c"USERTRACE_SUBBUF_SIZE",
            [fast.subbuf_size; 2],
            size,
            "a number of bytes, or of k or M",
            "the default is used",
        ),
        subbuf_count: variables.read(
            c"USERTRACE_SUBBUF_COUNT",
            [fast.subbuf_count; 2],
            |value| size(value).map(Some),
            "a number",
            "the default is used",
        ),
        prefault: variables.read(
            c"USERTRACE_PREFAULT",
            [fast.prefault; 2],
            |value| (value == b"all").then_some(Prefault::All),
            "all",
            "pages come when a ring comes to them",
        ),
        filter: variables.filled(c"USERTRACE_FILTER").unwrap_or(fast.filter),
        contexts: variables
            .filled(c"USERTRACE_CONTEXTS")
            .unwrap_or(fast.contexts),
        count: variables.filled(c"USERTRACE_COUNT").unwrap_or(fast.count),
        clock: variables.read(
            c"USERTRACE_CLOCK",
            [None; 2],
            |value| Clock::parse(value).map(Some),
            "what record sets it to",
            "times are by the clock as the program starts",
        ),
    }
}

/// The source of variables, and the sink for complaints.
struct Variables<'a> {
    get: &'a dyn Fn(&CStr) -> Option<&'static [u8]>,
    complain: &'a mut dyn FnMut(InvalidValue),
}

impl Variables<'_> {
    /// The value of a variable; none if it is unset or empty.
    fn filled(&self, name: &CStr) -> Option<&'static [u8]> {
        (self.get)(name).filter(|value| !value.is_empty())
    }

    /// Parses a variable. Returns `unset` if it is not set, and `bad`, after a complaint, if its
    /// value is invalid.
    fn read<T>(
        &mut self,
        variable: &'static CStr,
        [unset, bad]: [T; 2],
        parse: impl Fn(&'static [u8]) -> Option<T>,
        expected: &'static str,
        instead: &'static str,
    ) -> T {
        let Some(value) = self.filled(variable) else {
            return unset;
        };
        parse(value).unwrap_or_else(|| {
            (self.complain)(InvalidValue {
                variable,
                value,
                expected,
                instead,
            });
            bad
        })
    }
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a number with an optional unit, `k` (1024) or `M` (1024 * 1024).
fn size(text: &[u8]) -> Option<u32> {
    let (digits, unit) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 1 << 10),
        [digits @ .., b'm' | b'M'] => (digits, 1 << 20),
        digits => (digits, 1),
    };
    number(digits)?.checked_mul(unit)
}

/// Parses the number of a signal that can be handled.
fn signal(text: &[u8]) -> Option<u32> {
    let number = libc::c_int::try_from(number(text)?).ok()?;
    let good = (1..=libc::SIGRTMAX()).contains(&number)
        && ![libc::SIGKILL, libc::SIGSTOP].contains(&number)
        // The C library reserves the real-time signals below SIGRTMIN.
        && !(32..libc::SIGRTMIN()).contains(&number);
    good.then_some(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(name: &'static CStr, value: &'static str) -> Settings {
        parse(
            |asked| (asked == name).then_some(value.as_bytes()),
            &mut |_| {},
        )
    }

    /// The complaint about a value.
    fn complaint(name: &'static CStr, value: &'static str) -> Option<String> {
        let mut complaints = Vec::new();
        parse(
            |asked| (asked == name).then_some(value.as_bytes()),
            &mut |bad| complaints.push(bad.to_string()),
        );
        assert!(complaints.len() <= 1, "{complaints:?}");
        complaints.pop()
    }

    #[test]
    fn invalid_values_are_reported() {
        for (name, good, bad) in [
            (c"USERTRACE_BACKEND", &["auto", "fast", ""][..], "slow"),
            (c"USERTRACE_SIGNAL", &["none", "10"], "9"),
            (c"USERTRACE_STACKS", &["all", ""], "some"),
            (c"USERTRACE_RINGS", &["cpu", "thread"], "core"),
            (
                c"USERTRACE_MODE",
                &["discard", "overwrite", "block"],
                "bogus",
            ),
            (c"USERTRACE_CTF", &["1.8", "2"], "3"),
            (c"USERTRACE_SUBBUF_SIZE", &["64k", "4096"], "lots"),
            (c"USERTRACE_SUBBUF_COUNT", &["4"], "-1"),
            (c"USERTRACE_PREFAULT", &["all"], "some"),
            (
                c"USERTRACE_CLOCK",
                &["-5@time:[4026531834]", "0@", "5,0@x"],
                "5",
            ),
            (c"USERTRACE_CLOCK", &["5,1000@x"], "5,@x"),
        ] {
            for value in good {
                assert_eq!(complaint(name, value), None, "{name:?} {value}");
            }
            let start = format!(
                "cannot use {} \"{bad}\": it is not ",
                name.to_str().unwrap()
            );
            let said = complaint(name, bad).unwrap();
            assert!(said.starts_with(&start) && said.ends_with(')'), "{said}");
        }
        let said = complaint(c"USERTRACE_MODE", "a\n\u{1b}").unwrap();
        assert!(said.contains(r#""a\n\x1b""#), "{said}");
    }

    #[test]
    fn backend_and_signal_are_parsed() {
        let default = libc::SIGRTMIN() as u32 + 3;
        let signo = |text| only(c"USERTRACE_SIGNAL", text).signo;
        assert_eq!(
            parse(|_| None, &mut |bad| panic!("{bad}")),
            Settings {
                backend: Backend::Unset,
                signo: default,
                all_stacks: false,
                fast: Fast::DEFAULT,
            }
        );
        assert_eq!(signo("none"), 0);
        assert_eq!(signo("10"), 10);
        assert_eq!(signo("64"), 64);
        for bad in ["", "0", "9", "19", "33", "65", "-1", "x", "4294967306"] {
            assert_eq!(signo(bad), default, "{bad}");
        }
        let backend = |text| only(c"USERTRACE_BACKEND", text).backend;
        assert_eq!(backend("auto"), Backend::Auto);
        assert_eq!(backend("kernel"), Backend::Kernel);
        assert_eq!(backend("fast"), Backend::Fast);
        assert_eq!(backend("off"), Backend::Off);
        assert_eq!(backend(""), Backend::Unset);
        assert_eq!(backend("OFF"), Backend::Unknown);
    }

    #[test]
    fn control_channel_is_off_by_default() {
        let signal = |number| ControlSetting::Mode(Control::Signal(number));
        for (text, asked) in [
            ("", ControlSetting::Unset),
            ("thread", ControlSetting::Mode(Control::Thread)),
            ("signal", signal(libc::SIGIO)),
            ("signal:64", signal(64)),
        ] {
            assert_eq!(parse_control(text.as_bytes()), asked);
        }
        for bad in [
            "on",
            "signal:",
            "signal:9",
            "signal:x",
            "signal:33",
            "threads",
        ] {
            let asked = parse_control(bad.as_bytes());
            assert_eq!(asked, ControlSetting::Unknown(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn fallback_settings_are_parsed() {
        let output = |text| only(c"USERTRACE_OUTPUT", text).fast.output;
        assert_eq!(output("a/b"), Some(&b"a/b"[..]));
        assert_eq!(output(""), None);
        assert_eq!(only(c"USERTRACE_RINGS", "thread").fast.rings, Rings::Thread);
        assert_eq!(only(c"USERTRACE_RINGS", "x").fast.rings, Rings::Cpu);
        assert_eq!(
            only(c"USERTRACE_MODE", "overwrite").fast.mode,
            Mode::Overwrite
        );
        assert_eq!(only(c"USERTRACE_MODE", "block").fast.mode, Mode::Block);
        assert_eq!(only(c"USERTRACE_CTF", "2").fast.ctf, Ctf::V2);
        let size = |text| only(c"USERTRACE_SUBBUF_SIZE", text).fast.subbuf_size;
        assert_eq!(size("8192"), 8192);
        assert_eq!(size("128k"), 128 << 10);
        assert_eq!(size("1M"), 1 << 20);
        for bad in ["k", "-1", "5000M", "1 k"] {
            assert_eq!(size(bad), 64 << 10, "{bad}");
        }
        let count = |text| only(c"USERTRACE_SUBBUF_COUNT", text).fast.subbuf_count;
        assert_eq!(count("4"), Some(4));
        assert_eq!(count(""), None);
        for (rings, count) in [(1, 64), (16, 64), (17, 32), (32, 32), (33, 16), (1024, 16)] {
            assert_eq!(default_subbuf_count(rings), count);
            // Up to 64 rings, the total is at most that of 64 rings.
            assert!(rings > 64 || rings * count <= 64 * 16);
        }
        let prefault = |text| only(c"USERTRACE_PREFAULT", text).fast.prefault;
        assert_eq!(prefault("all"), Prefault::All);
        assert_eq!(prefault("1"), Prefault::Ahead);
        assert_eq!(only(c"USERTRACE_FILTER", "0 a*").fast.filter, b"0 a*");
        assert_eq!(
            only(c"USERTRACE_CONTEXTS", "vtid,ip").fast.contexts,
            b"vtid,ip"
        );
    }
}
