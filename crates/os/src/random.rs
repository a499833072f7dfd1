//! Random bytes.

use std::fs::File;
use std::io::{self, Read as _};

/// Fills `bytes` with random ones, without waiting for entropy at boot.
///
/// # Errors
/// There is no generator: the system call is refused, and `/dev/urandom` cannot be read.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: `bytes` is valid for writes of its length.
    let len =
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_INSECURE) };
    if usize::try_from(len) != Ok(bytes.len()) {
        // Kernels before 5.6 do not know the flag, a filter may refuse the call, and a signal may
        // cut a long answer. The file is not the first choice: the root of a program may have no
        // `/dev`.
        File::open("/dev/urandom")?.read_exact(bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_filled_each_time_anew() {
        let mut twice = [[0_u8; 64]; 2];
        for bytes in &mut twice {
            fill(bytes).unwrap();
            assert!(bytes[56..].iter().any(|byte| *byte != 0), "{bytes:?}");
        }
        assert_ne!(twice[0], twice[1]);
    }
}
