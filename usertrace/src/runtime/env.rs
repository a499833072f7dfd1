//! What the environment asks for.

use std::ffi::CStr;

use crate::control::Mode as Control;
use crate::writer::Prefault;

/// What `USERTRACE_BACKEND`, `USERTRACE_SIGNAL` and the variables of the fallback say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) backend: Backend,
    /// 0: none.
    pub(super) signo: u32,
    pub(super) fast: Fast,
}

/// What `USERTRACE_CONTROL` asks for: `thread`, `signal`, or `signal:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is not set, or is empty.
    Nothing,
    Control(Control),
    /// What it is set to is none of these.
    Unknown(&'static [u8]),
}

/// `USERTRACE_CONTROL`
pub(crate) fn control() -> Asked {
    // SAFETY: a constant of the process.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Asked::Nothing;
    }
    variable(c"USERTRACE_CONTROL").map_or(Asked::Nothing, parse_control)
}

fn parse_control(text: &'static [u8]) -> Asked {
    let of_signal = || {
        let number = signal(text.strip_prefix(b"signal:")?)?;
        Some(Control::Signal(libc::c_int::try_from(number).ok()?))
    };
    match text {
        b"" => Asked::Nothing,
        b"thread" => Asked::Control(Control::Thread),
        b"signal" => Asked::Control(Control::Signal(libc::SIGIO)),
        text => of_signal().map_or(Asked::Unknown(text), Asked::Control),
    }
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: as all that reads the environment, this relies on no thread changing it meanwhile.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// `USERTRACE_QUIET=1`: nothing is said on standard error.
#[cfg(feature = "fast")]
pub(super) fn is_quiet() -> bool {
    variable(c"USERTRACE_QUIET") == Some(b"1")
}

/// `USERTRACE_BACKEND`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// Nothing: the kernel's buffers, or else the fallback if the environment says where it is to write to.
    Unset,
    /// `auto`: the kernel's buffers, or else the fallback.
    Auto,
    /// `kernel`: buffers that the kernel owns.
    Kernel,
    /// `fast`: the fallback.
    Fast,
    /// `off`: no events.
    Off,
    /// Something else.
    Unknown,
    /// The fallback is not for a program that was given more rights than whoever set the environment has.
    Secure,
}

/// What is said of the fallback.
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
    /// `USERTRACE_SUBBUF_COUNT`
    pub(super) subbuf_count: u32,
    /// `USERTRACE_PREFAULT`: `all`, or nothing.
    pub(super) prefault: Prefault,
    /// `USERTRACE_FILTER`: as it is written to a trace's file `filter`.
    pub(super) filter: &'static [u8],
    /// `USERTRACE_CONTEXTS`: names of contexts, with blanks or commas between them.
    pub(super) contexts: &'static [u8],
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
    pub(super) const DEFAULT: Self = Self {
        output: None,
        rings: Rings::Cpu,
        mode: Mode::Discard,
        ctf: Ctf::V1_8,
        subbuf_size: 64 << 10,
        subbuf_count: 16,
        prefault: Prefault::Ahead,
        filter: b"",
        contexts: b"",
    };
}

/// What it says, or the defaults in a program that was given more rights than whoever set the environment has.
pub(super) fn settings() -> Settings {
    // SAFETY: a constant of the process.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Settings {
            backend: Backend::Secure,
            ..parse(|_| None)
        };
    }
    parse(variable)
}

fn parse(variable: impl Fn(&CStr) -> Option<&'static [u8]>) -> Settings {
    let filled = |name: &CStr| variable(name).filter(|value| !value.is_empty());
    let fast = Fast::DEFAULT;
    Settings {
        backend: match filled(c"USERTRACE_BACKEND") {
            None => Backend::Unset,
            Some(b"auto") => Backend::Auto,
            Some(b"kernel") => Backend::Kernel,
            Some(b"fast") => Backend::Fast,
            Some(b"off") => Backend::Off,
            Some(_) => Backend::Unknown,
        },
        signo: match variable(c"USERTRACE_SIGNAL") {
            Some(b"none") => 0,
            text => text.and_then(signal).unwrap_or(libc::SIGRTMIN() as u32 + 3),
        },
        fast: Fast {
            output: filled(c"USERTRACE_OUTPUT"),
            rings: match filled(c"USERTRACE_RINGS") {
                Some(b"thread") => Rings::Thread,
                _ => fast.rings,
            },
            mode: match filled(c"USERTRACE_MODE") {
                Some(b"overwrite") => Mode::Overwrite,
                Some(b"block") => Mode::Block,
                _ => fast.mode,
            },
            ctf: match filled(c"USERTRACE_CTF") {
                Some(b"2") => Ctf::V2,
                _ => fast.ctf,
            },
            subbuf_size: filled(c"USERTRACE_SUBBUF_SIZE")
                .and_then(size)
                .unwrap_or(fast.subbuf_size),
            subbuf_count: filled(c"USERTRACE_SUBBUF_COUNT")
                .and_then(size)
                .unwrap_or(fast.subbuf_count),
            prefault: match filled(c"USERTRACE_PREFAULT") {
                Some(b"all") => Prefault::All,
                _ => fast.prefault,
            },
            filter: filled(c"USERTRACE_FILTER").unwrap_or(fast.filter),
            contexts: filled(c"USERTRACE_CONTEXTS").unwrap_or(fast.contexts),
        },
    }
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number, with `k` or `M` after it for 1024 or 1024 * 1024 of them.
fn size(text: &[u8]) -> Option<u32> {
    let (digits, unit) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 1 << 10),
        [digits @ .., b'm' | b'M'] => (digits, 1 << 20),
        digits => (digits, 1),
    };
    number(digits)?.checked_mul(unit)
}

/// The number of a signal that can be handled.
fn signal(text: &[u8]) -> Option<u32> {
    let number = libc::c_int::try_from(number(text)?).ok()?;
    let good = (1..=libc::SIGRTMAX()).contains(&number)
        && ![libc::SIGKILL, libc::SIGSTOP].contains(&number)
        // Below SIGRTMIN, the C library has some of the real-time signals for itself.
        && !(32..libc::SIGRTMIN()).contains(&number);
    good.then_some(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(name: &'static CStr, value: &'static str) -> Settings {
        parse(|asked| (asked == name).then_some(value.as_bytes()))
    }

    #[test]
    fn settings_are_read() {
        let default = libc::SIGRTMIN() as u32 + 3;
        let signo = |text| only(c"USERTRACE_SIGNAL", text).signo;
        assert_eq!(
            parse(|_| None),
            Settings {
                backend: Backend::Unset,
                signo: default,
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
    fn the_control_channel_is_off_unless_asked_for() {
        let signal = |number| Asked::Control(Control::Signal(number));
        for (text, asked) in [
            ("", Asked::Nothing),
            ("thread", Asked::Control(Control::Thread)),
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
            assert_eq!(asked, Asked::Unknown(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn the_fallback_is_set_up() {
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
        assert_eq!(only(c"USERTRACE_SUBBUF_COUNT", "4").fast.subbuf_count, 4);
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
