//! Records: what the functions that `USERTRACE_EVENT` makes call.

use usertrace::event::{Callsite, Outcome, Payload, record, record_variable, record_words};

/// Functions for payloads of so many words, which come in registers. The callsite comes last, so
/// that who calls these with its own arguments leaves them where they are. None of them panics;
/// `C-unwind`, as what turns a panic into an abort would keep the long way from being a jump, and
/// so cost registers on the short one.
macro_rules! words {
    ($($name:ident($($word:ident),*))*) => {$(
        /// Writes an event whose payload has so many words.
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name($($word: u64,)* callsite: &'static Callsite) -> Outcome {
            record(callsite, [$($word),*])
        }
    )*};
}

words! {
    usertrace_record_0()
    usertrace_record_1(a)
    usertrace_record_2(a, b)
    usertrace_record_3(a, b, c)
    usertrace_record_4(a, b, c, d)
    usertrace_record_5(a, b, c, d, e)
}

/// Writes an event whose payload has more words.
///
/// # Safety
/// There must be so many words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_record_words(
    words: *const u64,
    count: usize,
    callsite: &'static Callsite,
) -> Outcome {
    // SAFETY: the header's macros give the place and the length of what they made.
    record_words(callsite, unsafe {
        std::slice::from_raw_parts(words, count)
    })
}

/// A part of a payload: `struct usertrace_part`.
#[repr(C)]
#[derive(Debug)]
pub struct Part {
    /// NULL: it is zeros.
    data: *const u8,
    len: usize,
}

const ZEROS: [u8; 256] = [0; 256];

impl Part {
    /// Appends it to a payload.
    ///
    /// # Safety
    /// There must be so many bytes.
    #[inline(always)]
    unsafe fn append_to(&self, payload: &mut impl Payload) {
        if !self.data.is_null() {
            // SAFETY: the header's macros give the place and the length of what they made.
            return payload.append(unsafe { std::slice::from_raw_parts(self.data, self.len) });
        }
        let mut left = self.len;
        while left != 0 {
            let len = left.min(ZEROS.len());
            payload.append(&ZEROS[..len]);
            left -= len;
        }
    }
}

/// Writes an event whose payload is these parts, one after the other.
///
/// # Safety
/// There must be so many parts, and each must have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_record_parts(
    parts: *const Part,
    count: usize,
    callsite: &'static Callsite,
) -> Outcome {
    // SAFETY: the header's macros give the place and the length of what they made.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let len = || {
        let lens = parts.iter().map(|part| part.len);
        lens.fold(0, usize::saturating_add)
    };
    record_variable(
        callsite,
        len(),
        |payload| {
            for part in parts {
                // SAFETY: the header's macros give the place and the length of what they made.
                unsafe { part.append_to(payload) };
            }
        },
        len,
        |payload| {
            for part in parts {
                // SAFETY: the header's macros give the place and the length of what they made.
                unsafe { part.append_to(payload) };
            }
        },
    )
}
