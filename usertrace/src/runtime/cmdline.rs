//! The command line of this process, which traces contain.

use std::ffi::CStr;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// Bytes that are kept. Each may take three in a description.
const MAX: usize = 512;
/// Ends a command line that was cut.
const ELLIPSIS: &[u8] = b"...";

/// The command line at the program's start: programs may overwrite it later.
static CMDLINE: OnceLock<Cmdline> = OnceLock::new();

#[derive(Clone, Copy, Debug)]
struct Cmdline {
    bytes: [u8; MAX],
    len: usize,
}

/// Runs before all constructors that attach this process, in each module that links this crate:
/// priorities below 101 are not the program's own. Only glibc passes arguments to constructors.
#[cfg(target_env = "gnu")]
#[used]
#[unsafe(link_section = ".init_array.00100")]
static KEEP: unsafe extern "C" fn(c_int, *const *const c_char) = keep;

/// Keeps the command line; only the first call has an effect.
///
/// # Safety
/// The arguments must be those of `main`, as glibc passes them also to constructors of libraries
/// that are loaded later. No thread may be writing to them.
#[cfg_attr(
    not(target_env = "gnu"),
    allow(dead_code, reason = "only glibc passes arguments")
)]
unsafe extern "C" fn keep(argc: c_int, argv: *const *const c_char) {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return;
    }
    let arguments = (0..count).map_while(|n| {
        // SAFETY: the loader made `argv` with `argc` entries and a NULL.
        let argument = unsafe { *argv.add(n) };
        // SAFETY: each entry is a NUL-terminated string that the loader made.
        (!argument.is_null()).then(|| unsafe { CStr::from_ptr(argument) }.to_bytes())
    });
    let _ = CMDLINE.set(Cmdline::of(arguments));
}

/// The arguments, separated by spaces; none if they are unknown. Async-signal-safe.
pub(super) fn get() -> Option<&'static [u8]> {
    CMDLINE
        .get()
        .map(|of| &of.bytes[..of.len])
        .filter(|text| !text.is_empty())
}

impl Cmdline {
    fn of<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut kept = Self {
            bytes: [0; MAX],
            len: 0,
        };
        for (n, argument) in arguments.enumerate() {
            let separator: &[u8] = if n == 0 { b"" } else { b" " };
            if !(kept.put(separator) && kept.put(argument)) {
                kept.bytes[MAX - ELLIPSIS.len()..].copy_from_slice(ELLIPSIS);
                break;
            }
        }
        kept
    }

    /// Appends as much as fits. False: not all of it fits.
    fn put(&mut self, bytes: &[u8]) -> bool {
        let room = MAX - self.len;
        let put = &bytes[..bytes.len().min(room)];
        self.bytes[self.len..][..put.len()].copy_from_slice(put);
        self.len += put.len();
        put.len() == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(arguments: &[&[u8]]) -> Vec<u8> {
        let kept = Cmdline::of(arguments.iter().copied());
        kept.bytes[..kept.len].to_vec()
    }

    #[test]
    fn arguments_are_separated_by_spaces() {
        assert_eq!(kept(&[b"./a", b"", b"b c"]), b"./a  b c");
        assert_eq!(kept(&[]), b"");
    }

    #[test]
    fn long_command_lines_are_cut_and_marked() {
        let long = [b'x'; MAX - 2];
        assert_eq!(kept(&[&long, b"y"]).last_chunk(), Some(b"x y"));
        for rest in [&b"yz"[..], &[b'y'; 2 * MAX]] {
            let cut = kept(&[&long, rest]);
            assert_eq!(cut.len(), MAX);
            assert_eq!(cut.last_chunk(), Some(b"x..."));
        }
    }
}
