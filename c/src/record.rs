//! Writing records: called by the functions that `USERTRACE_EVENT` defines.

use usertrace::__private::{Payload, record, record_long, record_variable, record_words};
use usertrace::{Callsite, Outcome};

/// Defines functions for payloads of a fixed number of words, which come in registers. The call
/// site comes last, so that callers pass their own arguments on in place.
///
/// None of them panics. They are `C-unwind`, because the abort guard of `C` would keep the slow
/// path from being a tail jump, and so cost the fast path registers.
macro_rules! words {
    ($($name:ident($($word:ident),*))*) => {$(
        /// Writes an event whose payload has this number of words.
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

/// Writes an event with a longer payload.
///
/// # Safety
/// `words` must point to `count` words.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn usertrace_record_words(
    words: *const u64,
    count: usize,
    callsite: &'static Callsite,
) -> Outcome {
    // SAFETY: the header's macros pass the address and length of data that they made.
    record_words(callsite, unsafe {
        std::slice::from_raw_parts(words, count)
    })
}

/// A part of a payload: `struct usertrace_part`.
#[repr(C)]
#[derive(Debug)]
pub struct Part {
    /// NULL stands for zeros.
    data: *const u8,
    len: usize,
}

const ZEROS: [u8; 256] = [0; 256];

impl Part {
    /// Appends the part to a payload.
    ///
    /// # Safety
    /// `data` must be NULL or point to `len` bytes.
    #[inline(always)]
    unsafe fn append_to(&self, payload: &mut impl Payload) {
        if !self.data.is_null() {
            // SAFETY: the header's macros pass the address and length of data that they made.
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

/// Writes an event. Its payload is the concatenation of `count` parts.
///
/// # Safety
/// `parts` must point to `count` parts, each of which must have its length of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn usertrace_record_parts(
    parts: *const Part,
    count: usize,
    callsite: &'static Callsite,
) -> Outcome {
    // SAFETY: the header's macros pass the address and length of data that they made.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let lens = parts.iter().map(|part| part.len);
    let len = lens.fold(0, usize::saturating_add);
    record_variable(
        callsite,
        len,
        |payload| {
            for part in parts {
                // SAFETY: the header's macros pass the address and length of data that they made.
                unsafe { part.append_to(payload) };
            }
        },
        || {
            record_long(callsite, len, &|payload| {
                for part in parts {
                    // SAFETY: the header's macros pass the address and length of data that they
                    // made.
                    unsafe { part.append_to(payload) };
                }
            })
        },
    )
}
