//! Numbers as they are written: C's integers with their suffixes, and decimal floats.

use crate::error::ErrorKind;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Numeral {
    Integer(u64),
    Float(f64),
}

/// The length of the run of bytes that a number at the start of `text` takes, including letters
/// that make it invalid.
pub(crate) fn length(text: &[u8]) -> usize {
    let is_hex = matches!(text, [b'0', b'x' | b'X', ..]);
    let mut previous = 0;
    let ends = |byte: &u8| {
        let is_sign_of_exponent =
            matches!(byte, b'+' | b'-') && matches!(previous, b'e' | b'E') && !is_hex;
        previous = *byte;
        !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') || is_sign_of_exponent)
    };
    text.iter().position(ends).unwrap_or(text.len())
}

/// Parses a run of bytes that [`length`] found.
pub(crate) fn parse(run: &[u8]) -> Result<Numeral, ErrorKind> {
    let integer = match run {
        [b'0', b'x' | b'X', digits @ ..] => integer(digits, 16),
        _ if run.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => {
            return float(run).map(Numeral::Float);
        }
        [b'0', rest @ ..] if rest.first().is_some_and(u8::is_ascii_digit) => integer(rest, 8),
        _ => integer(run, 10),
    };
    integer.map(Numeral::Integer)
}

fn integer(run: &[u8], radix: u32) -> Result<u64, ErrorKind> {
    let digit = |byte: u8| char::from(byte).to_digit(radix);
    let count = run
        .iter()
        .take_while(|byte| digit(**byte).is_some())
        .count();
    let (digits, suffix) = run.split_at_checked(count).unwrap_or((run, &[]));
    if digits.is_empty() || !is_integer_suffix(suffix) {
        return Err(ErrorKind::InvalidNumber);
    }
    digits
        .iter()
        .filter_map(|byte| digit(*byte))
        .try_fold(0_u64, |number, digit| {
            number.checked_mul(radix.into())?.checked_add(digit.into())
        })
        .ok_or(ErrorKind::NumberTooLarge)
}

/// Suffixes say nothing here, as all integers have 64 bits. LTTng accepts them, too.
fn is_integer_suffix(suffix: &[u8]) -> bool {
    let known: [&[u8]; 8] = [b"", b"u", b"l", b"ll", b"ul", b"ull", b"lu", b"llu"];
    known.iter().any(|known| known.eq_ignore_ascii_case(suffix))
}

fn float(run: &[u8]) -> Result<f64, ErrorKind> {
    let digits = match run {
        [digits @ .., b'f' | b'F' | b'l' | b'L'] => digits,
        _ => run,
    };
    // `f64` also parses names such as "inf", which do not start like a number.
    let starts = digits
        .first()
        .is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.');
    let number = core::str::from_utf8(digits).ok().filter(|_| starts);
    match number.and_then(|digits| digits.parse::<f64>().ok()) {
        Some(number) if number.is_finite() => Ok(number),
        Some(_) => Err(ErrorKind::NumberTooLarge),
        None => Err(ErrorKind::InvalidNumber),
    }
}
