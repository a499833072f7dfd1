//! The command line of this process, which traces say.

use std::ffi::CStr;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// How much of it is kept. As a word of a description each byte may be three.
const MAX: usize = 512;
/// Where there is more.
const MORE: &[u8] = b"...";

/// As it was when the program began: programs may write over it later.
static CMDLINE: OnceLock<Cmdline> = OnceLock::new();

#[derive(Clone, Copy, Debug)]
struct Cmdline {
    bytes: [u8; MAX],
    len: usize,
}

/// Runs before all else that attaches this process, in each program and library that this crate is
/// linked into, whether that has events or not: those below 101 are not the program's own. Other C
/// libraries pass nothing.
#[cfg(target_env = "gnu")]
#[used]
#[unsafe(link_section = ".init_array.00100")]
static KEEP: unsafe extern "C" fn(c_int, *const *const c_char) = keep;

/// Keeps it: the first that is told.
///
/// # Safety
/// These must be the arguments of `main`, as glibc passes them also to libraries that are loaded
/// later, and nobody may be writing to them.
#[cfg_attr(not(target_env = "gnu"), allow(dead_code, reason = "nobody is told"))]
unsafe extern "C" fn keep(argc: c_int, argv: *const *const c_char) {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return;
    }
    let arguments = (0..count).map_while(|n| {
        // SAFETY: `argv` has so many and a NULL, as the loader made it.
        let argument = unsafe { *argv.add(n) };
        // SAFETY: each is a text that ends with a NUL, as the loader made it.
        (!argument.is_null()).then(|| unsafe { CStr::from_ptr(argument) }.to_bytes())
    });
    let _ = CMDLINE.set(Cmdline::of(arguments));
}

/// The arguments with spaces between them. None: it is not known. Async-signal-safe.
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
                kept.bytes[MAX - MORE.len()..].copy_from_slice(MORE);
                break;
            }
        }
        kept
    }

    /// Appends what there is room for. False: that is not all.
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
    fn arguments_have_spaces_between_them() {
        assert_eq!(kept(&[b"./a", b"", b"b c"]), b"./a  b c");
        assert_eq!(kept(&[]), b"");
    }

    #[test]
    fn what_is_cut_says_so() {
        let long = [b'x'; MAX - 2];
        assert_eq!(kept(&[&long, b"y"]).last_chunk(), Some(b"x y"));
        for rest in [&b"yz"[..], &[b'y'; 2 * MAX]] {
            let cut = kept(&[&long, rest]);
            assert_eq!(cut.len(), MAX);
            assert_eq!(cut.last_chunk(), Some(b"x..."));
        }
    }
}
