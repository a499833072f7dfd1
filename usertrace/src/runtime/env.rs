//! What the environment asks for.

use std::ffi::CStr;

/// What `USERTRACE_BACKEND` and `USERTRACE_SIGNAL` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) backend: Backend,
    /// 0: none.
    pub(super) signo: u32,
}

/// `USERTRACE_BACKEND`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// `kernel`, or nothing: buffers that the kernel owns.
    Kernel,
    /// `off`: no events.
    Off,
    /// Something else.
    Unknown,
}

/// What it says, or the defaults in a program that was given more rights than whoever set the environment has.
pub(super) fn settings() -> Settings {
    // SAFETY: a constant of the process.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return parse(None, None);
    }
    let variable = |name: &CStr| {
        // SAFETY: as all that reads the environment, this relies on no thread changing it meanwhile.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
        }
    };
    parse(
        variable(c"USERTRACE_BACKEND"),
        variable(c"USERTRACE_SIGNAL"),
    )
}

fn parse(backend: Option<&[u8]>, signal: Option<&[u8]>) -> Settings {
    Settings {
        backend: match backend {
            None | Some(b"" | b"kernel") => Backend::Kernel,
            Some(b"off") => Backend::Off,
            Some(_) => Backend::Unknown,
        },
        signo: match signal {
            Some(b"none") => 0,
            text => text.and_then(number).unwrap_or(libc::SIGRTMIN() as u32 + 3),
        },
    }
}

/// The number of a signal that can be handled.
fn number(text: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(text).ok()?.parse().ok()?;
    let good = (1..=libc::SIGRTMAX()).contains(&number)
        && ![libc::SIGKILL, libc::SIGSTOP].contains(&number)
        // Below SIGRTMIN, the C library has some of the real-time signals for itself.
        && !(32..libc::SIGRTMIN()).contains(&number);
    good.then_some(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let default = libc::SIGRTMIN() as u32 + 3;
        let signo = |text: &str| parse(None, Some(text.as_bytes())).signo;
        assert_eq!(
            parse(None, None),
            Settings {
                backend: Backend::Kernel,
                signo: default
            }
        );
        assert_eq!(signo("none"), 0);
        assert_eq!(signo("10"), 10);
        assert_eq!(signo("64"), 64);
        for bad in ["", "0", "9", "19", "33", "65", "-1", "x", "4294967306"] {
            assert_eq!(signo(bad), default, "{bad}");
        }
        let backend = |text: &str| parse(Some(text.as_bytes()), None).backend;
        assert_eq!(backend("off"), Backend::Off);
        assert_eq!(backend("kernel"), Backend::Kernel);
        assert_eq!(backend(""), Backend::Kernel);
        assert_eq!(backend("OFF"), Backend::Unknown);
    }
}
