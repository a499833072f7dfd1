//! What actors write into pages, so that whoever reads it knows whose it is.

use usertrace_sys::uapi::{LTT_ID_PAD, LTT_LOST_WORD};

/// In the upper 16 bits of what traced programs write.
const TRACED: u64 = 0xa7c3;
/// In those of what the victim keeps in memory of its own, which nobody else may see or change.
const SECRET: u64 = 0x5ec4;

/// A word that a traced program writes: its family, and any number.
pub(crate) fn traced(family: u32, number: u64) -> u64 {
    TRACED << 48 | u64::from(family & 0xff_ffff) << 24 | number & 0xff_ffff
}

/// A word of the victim's.
pub(crate) fn secret(number: u64) -> u64 {
    SECRET << 48 | number & 0xffff_ffff_ffff
}

/// What a word is that was read where rings lie.
///
/// None: it may be there. `family`: who may have written it, if that is known.
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
    // The kernel's, where it ends a sub-buffer.
    if word as u16 == LTT_ID_PAD {
        return None;
    }
    if word == 0xaaaa_aaaa_aaaa_aaaa {
        return Some("the poison of a freed page".into());
    }
    Some(format!("{word:#018x}, which nobody wrote there"))
}
