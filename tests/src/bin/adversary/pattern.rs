//! The words that actors write into pages: each names its writer.

use usertrace_sys::uapi::{LTT_ID_PAD, LTT_LOST_WORD};

/// The upper 16 bits of words of traced programs.
const TRACED: u64 = 0xa7c3;
/// The upper 16 bits of words of the victim, whose memory nobody else may read or change.
const SECRET: u64 = 0x5ec4;

/// A word that a traced program writes: its family, and any number.
pub(crate) fn traced(family: u32, number: u64) -> u64 {
    TRACED << 48 | u64::from(family & 0xff_ffff) << 24 | number & 0xff_ffff
}

/// A word of the victim.
pub(crate) fn secret(number: u64) -> u64 {
    SECRET << 48 | number & 0xffff_ffff_ffff
}

/// Describes a word that must not be where rings are. None: the word is allowed.
///
/// `family` is the only possible writer, if that is known.
pub(crate) fn foreign(word: u64, family: Option<u32>) -> Option<String> {
    if word == 0 || word == LTT_LOST_WORD {
        return None;
    }
    if word >> 48 == TRACED {
        let writer = (word >> 24) as u32 & 0xff_ffff;
        return match family {
            Some(family) if family & 0xff_ffff != writer => {
                Some(format!("{word:#018x}, which process {writer} wrote"))
            }
            _ => None,
        };
    }
    if word >> 48 == SECRET {
        return Some(format!("{word:#018x}, memory of another program"));
    }
    // The kernel ends a sub-buffer with this.
    if word as u16 == LTT_ID_PAD {
        return None;
    }
    if word == 0xaaaa_aaaa_aaaa_aaaa {
        return Some("the poison of a freed page".into());
    }
    Some(format!("{word:#018x}, which nobody wrote there"))
}
