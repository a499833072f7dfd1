//! The encoding of numbers in a payload, alone or as elements of arrays and sequences.

use std::marker::PhantomData;

/// The type of a numeric field, or of its elements.
///
/// # Safety
/// If [`PLAIN`](Self::PLAIN) is true, all bytes of a value in memory must be initialised, and be
/// those of the payload.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of an array or a sequence",
    note = "elements are integers, `f32`, `f64`, `bool` and `ptr`"
)]
pub unsafe trait Number {
    /// The type of the argument of an event.
    type Value: Copy + 'static;

    /// The type's name in a description.
    const NAME: &'static str;

    /// True if the payload has the bytes that a value has in memory.
    const PLAIN: bool;

    /// The bytes of a value, in the low part of a word.
    fn bits(value: Self::Value) -> u64;
}

/// An unsigned integer that is displayed in hexadecimal.
#[derive(Debug)]
pub struct Hex<T>(PhantomData<T>);

/// An integer that is stored in network byte order. The argument of an event is in native byte
/// order.
#[derive(Debug)]
pub struct Be<T>(PhantomData<T>);

// Words are composed by shifts, so that the compiler can use registers. On a little-endian machine,
// that is the order of the bytes in memory. Descriptions give `usize` and addresses 64 bits.
const _: () = assert!(cfg!(target_endian = "little") && usize::BITS == 64);

macro_rules! plain {
    ($($type:ty = $value:ty, $name:literal, $bits:expr;)*) => {$(
        // SAFETY: a value has `size_of` bytes without padding, and `bits` returns them in native
        // order, which is little-endian.
        unsafe impl Number for $type {
            type Value = $value;
            const NAME: &'static str = $name;
            const PLAIN: bool = true;

            #[inline(always)]
            fn bits(value: $value) -> u64 {
                let bits: fn($value) -> u64 = $bits;
                bits(value)
            }
        }
    )*};
}

plain! {
    u8 = u8, "u8", u64::from;
    u16 = u16, "u16", u64::from;
    u32 = u32, "u32", u64::from;
    u64 = u64, "u64", |value| value;
    usize = usize, "u64", |value| value as u64;
    Hex<u8> = u8, "x8", u64::from;
    Hex<u16> = u16, "x16", u64::from;
    Hex<u32> = u32, "x32", u64::from;
    Hex<u64> = u64, "x64", |value| value;
    i8 = i8, "s8", |value| value.cast_unsigned().into();
    i16 = i16, "s16", |value| value.cast_unsigned().into();
    i32 = i32, "s32", |value| value.cast_unsigned().into();
    i64 = i64, "s64", |value| value.cast_unsigned();
    isize = isize, "s64", |value| value.cast_unsigned() as u64;
    f32 = f32, "f32", |value| value.to_bits().into();
    f64 = f64, "f64", |value| value.to_bits();
    bool = bool, "bool", u64::from;
}

macro_rules! swapped {
    ($($type:ty = $value:ty, $name:literal;)*) => {$(
        // SAFETY: `PLAIN` is false.
        unsafe impl Number for Be<$type> {
            type Value = $value;
            const NAME: &'static str = $name;
            const PLAIN: bool = false;

            #[inline(always)]
            fn bits(value: $value) -> u64 {
                <$type as Number>::bits(value.swap_bytes())
            }
        }
    )*};
}

swapped! {
    u16 = u16, "u16be";
    u32 = u32, "u32be";
    u64 = u64, "u64be";
    Hex<u16> = u16, "x16be";
    Hex<u32> = u32, "x32be";
    Hex<u64> = u64, "x64be";
    i16 = i16, "s16be";
    i32 = i32, "s32be";
    i64 = i64, "s64be";
}

// SAFETY: `PLAIN` is false, because a pointer is more than its address.
unsafe impl Number for *const () {
    type Value = *const ();
    const NAME: &'static str = "x64";
    const PLAIN: bool = false;

    #[inline(always)]
    fn bits(value: *const ()) -> u64 {
        value.addr() as u64
    }
}
