//! Prints events as text, byte-identical to `babeltrace2`.
//!
//! One difference is deliberate: times before 1970 are printed as seconds. `babeltrace2` prints a
//! time of day for all but the first.

use std::io::Write as _;

use usertrace_ring::schema::Integer;

use crate::event::Event;
use crate::field::Field;
use crate::quoted::{self, Special};
use crate::time;
use crate::value::{Enumeration, List, Number, Value, Values};

const NS: u64 = 1_000_000_000;

/// Prints one line for each event.
#[derive(Debug, Default)]
pub struct Printer {
    /// Time of the last event.
    last: Option<i64>,
    /// The last printed second, and its text.
    second: Option<(i64, [u8; 9])>,
}

impl Printer {
    /// Creates a printer that has printed nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an event's line.
    pub fn event(&mut self, out: &mut Vec<u8>, event: &Event<'_>) {
        out.push(b'[');
        self.time(out, event.ns);
        out.extend_from_slice(b"] (");
        match self.last.replace(event.ns) {
            None => out.extend_from_slice(b"+?.?????????"),
            Some(last) => {
                // Only events that arrived late are earlier, see `Reader::refresh`.
                out.push(if event.ns < last { b'-' } else { b'+' });
                let delta = event.ns.abs_diff(last);
                decimal(out, delta / NS);
                out.push(b'.');
                nine(out, (delta % NS) as u32);
            }
        }
        out.extend_from_slice(b") ");
        out.extend_from_slice(event.trace.head.as_bytes());
        out.extend_from_slice(event.class.name.as_bytes());
        out.extend_from_slice(b": ");
        self.values(out, event);
        out.push(b'\n');
    }

    /// Appends what follows an event's name in its line: the packet's context, contexts, and
    /// fields.
    pub fn values(&self, out: &mut Vec<u8>, event: &Event<'_>) {
        if !event.stream.packet.is_empty() {
            fields(out, &event.stream.packet, event.packet);
            out.extend_from_slice(b", ");
        }
        if let Some(contexts) = &event.stream.contexts {
            fields(out, contexts, event.contexts);
            out.extend_from_slice(b", ");
        }
        fields(out, &event.class.fields, event.payload);
    }

    /// Appends fields whose values are in `bytes`, as `{ NAME = VALUE, … }`.
    pub fn fields(out: &mut Vec<u8>, fields: &[Field], bytes: &[u8]) {
        self::fields(out, fields, bytes);
    }

    /// Appends the time of day of a time in ns since 1970.
    pub fn time(&mut self, out: &mut Vec<u8>, ns: i64) {
        let (second, rest) = (ns.div_euclid(NS as i64), ns.rem_euclid(NS as i64) as u32);
        if ns < 0 {
            let ns = ns.unsigned_abs();
            out.push(b'-');
            decimal(out, ns / NS);
            out.push(b'.');
            return nine(out, (ns % NS) as u32);
        }
        let text = match &self.second {
            Some((known, text)) if *known == second => text,
            _ => &self.second.insert((second, time_of_day(second))).1,
        };
        out.extend_from_slice(text);
        nine(out, rest);
    }
}

/// `HH:MM:SS.`
fn time_of_day(second: i64) -> [u8; 9] {
    let (hour, minute, second) = time::of_day(second);
    let mut text = *b"00:00:00.";
    for (at, number) in [(0, hour), (3, minute), (6, second)] {
        text[at..at + 2].copy_from_slice(&PAIRS[number as usize % 100]);
    }
    text
}

/// All numbers of two digits.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + n as u8 / 10, b'0' + n as u8 % 10];
        n += 1;
    }
    pairs
};

/// Appends a number below 10^9 with all nine digits.
#[inline]
fn nine(out: &mut Vec<u8>, number: u32) {
    let pair = |n: u32| PAIRS[(n % 100) as usize];
    let [a, b] = pair(number / 10_000_000);
    let [c, d] = pair(number / 100_000);
    let [e, f] = pair(number / 1000);
    let [g, h] = pair(number / 10);
    out.extend_from_slice(&[a, b, c, d, e, f, g, h, b'0' + (number % 10) as u8]);
}

#[inline]
fn decimal(out: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        return out.push(b'0' + number as u8);
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number > 0 {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

fn hexadecimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(b"0x");
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| {
        let value = (number >> (4 * digit)) as usize & 0xf;
        b"0123456789ABCDEF"[value]
    }));
}

/// Appends fields. The caller has checked that `bytes` has all of them.
fn fields(out: &mut Vec<u8>, fields: &[Field], bytes: &[u8]) {
    out.push(b'{');
    let mut before: &[u8] = b" ";
    let mut values = Values::new(fields, bytes);
    loop {
        let count = values.count_ahead();
        let Some((field, value)) = values.next() else {
            break;
        };
        out.extend_from_slice(before);
        before = b", ";
        if let Some(name) = &field.length_name {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b" = ");
            decimal(out, count.into());
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b" = ");
        match value {
            Value::Scalar(value) => number(out, value),
            Value::Text(text) => string(out, text),
            Value::Enum(value) => enumeration(out, value),
            Value::List(elements) => list(out, elements),
        }
    }
    out.extend_from_slice(b" }");
}

fn list(out: &mut Vec<u8>, elements: List<'_>) {
    out.push(b'[');
    for (n, element) in (0..).zip(elements) {
        out.extend_from_slice(if n == 0 { b" [" } else { b", [" });
        decimal(out, n);
        out.extend_from_slice(b"] = ");
        number(out, element);
    }
    out.extend_from_slice(b" ]");
}

#[inline]
fn number(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::Integer(kind, bits) => integer(out, kind, bits),
        Number::Bool(byte) => decimal(out, byte.into()),
        Number::F32(number) => float(out, number.into(), number.is_sign_negative()),
        Number::F64(number) => float(out, number, number.is_sign_negative()),
    }
}

#[inline]
fn integer(out: &mut Vec<u8>, kind: Integer, bits: u64) {
    if kind.hex {
        // A negative number has as many digits as its type.
        let above = 64 - 8 * u32::from(kind.len);
        hexadecimal(out, bits << above >> above);
    } else if kind.signed && bits.cast_signed() < 0 {
        out.push(b'-');
        decimal(out, bits.cast_signed().unsigned_abs());
    } else {
        decimal(out, bits);
    }
}

fn enumeration(out: &mut Vec<u8>, value: Enumeration<'_>) {
    out.extend_from_slice(b"( ");
    let mut is_first = true;
    for name in value.names() {
        if !is_first {
            out.extend_from_slice(b", ");
        }
        is_first = false;
        string(out, name.as_bytes());
    }
    if is_first {
        out.extend_from_slice(b"<unknown>");
    }
    out.extend_from_slice(b" : container = ");
    integer(out, value.kind, value.bits);
    out.extend_from_slice(b" )");
}

/// The character that escapes a byte in a string. None if the byte needs no escape.
const fn escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'\\' | b'\'' | b'"' | b'?' => byte,
        0x07 => b'a',
        0x08 => b'b',
        0x1b => b'e',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x0b => b'v',
        // Hexadecimal digits follow.
        0..0x20 | 0x7f => b'x',
        _ => return None,
    })
}

static ESCAPES: [Option<u8>; 256] = {
    let mut escapes = [None; 256];
    let mut n = 0;
    while n < 256 {
        escapes[n] = escape(n as u8);
        n += 1;
    }
    escapes
};

/// Appends a quoted string. Control characters of two bytes, which `babeltrace2` prints as they
/// are, are escaped, as a terminal may obey them.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    let is_special = |byte: u8| ESCAPES[usize::from(byte)].is_some();
    quoted::append(out, text, is_special, |out, special| match special {
        Special::C1([first, second]) => {
            let _ = write!(out, "\\x{first:02x}\\x{second:02x}");
        }
        Special::Byte(byte) => {
            let escape = ESCAPES[usize::from(byte)].unwrap_or(byte);
            out.extend_from_slice(&[b'\\', escape]);
            if escape == b'x' {
                let _ = write!(out, "{byte:02x}");
            }
        }
    });
}

/// Appends a number like C's `%g`.
fn float(out: &mut Vec<u8>, number: f64, is_negative: bool) {
    if is_negative {
        out.push(b'-');
    }
    if number.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if number.is_infinite() {
        return out.extend_from_slice(b"inf");
    }
    // `D.DDDDDeX`: these six digits are right for both notations.
    let mut text = [0; 16];
    let mut rest = &mut text[..];
    let _ = write!(rest, "{:.5e}", number.abs());
    let len = 16 - rest.len();
    let (mantissa, exponent) = text[..len].split_at(7);
    let exponent = exponent
        .get(1..)
        .and_then(|digits| std::str::from_utf8(digits).ok());
    let exponent: i32 = exponent.and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let mut digits = [0; 6];
    digits[0] = mantissa[0];
    digits[1..].copy_from_slice(&mantissa[2..]);
    let significant = digits
        .iter()
        .rposition(|&digit| digit != b'0')
        .map_or(1, |at| at + 1);
    let digits = &digits[..significant];
    if !(-4..6).contains(&exponent) {
        out.push(digits[0]);
        if let [_, rest @ ..] = digits
            && !rest.is_empty()
        {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        let _ = write!(
            out,
            "e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        );
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend((1..-exponent).map(|_| b'0'));
        out.extend_from_slice(digits);
    } else {
        let whole = exponent as usize + 1;
        let (before, behind) = digits.split_at(whole.min(digits.len()));
        out.extend_from_slice(before);
        out.extend((before.len()..whole).map(|_| b'0'));
        if !behind.is_empty() {
            out.push(b'.');
            out.extend_from_slice(behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// C's own output.
    fn printed_by_c(number: f64) -> String {
        let mut text = [0u8; 64];
        // SAFETY: `snprintf` writes at most the 64 bytes of `text`; the format takes one double.
        let len = unsafe { libc::snprintf(text.as_mut_ptr().cast(), 64, c"%g".as_ptr(), number) };
        std::str::from_utf8(&text[..len as usize])
            .unwrap()
            .to_owned()
    }

    /// Requirements: B1
    #[test]
    fn special_numbers_are_printed_like_c() {
        for number in [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.1,
            1e5,
            999999.0,
            999999.5,
            1e6,
            1000005.0,
            1000015.0,
            1e-4,
            9.9999949e-5,
            1e-5,
            1e100,
            1e-100,
            0.5,
            2.5,
            123456.5,
            123457.5,
            1.000005,
            1.5e-310,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            100.0,
            1.25e7,
            0.000123456789,
        ] {
            assert_eq!(
                text(|out| float(out, number, number.is_sign_negative())),
                printed_by_c(number)
            );
        }
    }

    #[test]
    fn strings_are_escaped_as_babeltrace2_does() {
        let all: Vec<u8> = (1..=0x7f).collect();
        let escaped = text(|out| string(out, &all));
        assert!(
            escaped.starts_with(r#""\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e"#),
            "{escaped}"
        );
        assert!(
            escaped.contains(r#"\x1a\e\x1c\x1d\x1e\x1f !\"#),
            "{escaped}"
        );
        assert!(escaped.ends_with("z{|}~\\x7f\""), "{escaped}");
        assert!(
            escaped.contains(r"&\'()*") && escaped.contains(r">\?@") && escaped.contains(r"[\\]")
        );
        assert_eq!(text(|out| string(out, "日本".as_bytes())), "\"日本\"");
        // `babeltrace2` prints these as they are.
        let all: String = ('\u{7e}'..='\u{a3}').collect();
        let escaped = text(|out| string(out, all.as_bytes()));
        assert!(
            escaped.starts_with(r#""~\x7f\xc2\x80\xc2\x81"#),
            "{escaped}"
        );
        assert!(
            escaped.ends_with("\\xc2\\x9f\u{a0}\u{a1}\u{a2}\u{a3}\""),
            "{escaped}"
        );
        let cut = [b'a', 0xc2];
        let mut escaped = Vec::new();
        string(&mut escaped, &cut);
        assert_eq!(escaped, [b'"', b'a', 0xc2, b'"']);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Requirements: B1
        #[test]
        fn numbers_are_printed_like_c(bits in any::<u64>(), short in any::<u32>(), small in -99_999_999i64..99_999_999) {
            for number in [f64::from_bits(bits), small as f64, small as f64 / 1e4, f64::from(f32::from_bits(short))] {
                let negative = number.is_sign_negative();
                prop_assert_eq!(text(|out| float(out, number, negative)), printed_by_c(number));
            }
        }

        #[test]
        fn integers_are_printed(bits in any::<u64>(), less in 0u32..64) {
            let number = bits >> less;
            prop_assert_eq!(text(|out| decimal(out, number)), number.to_string());
            prop_assert_eq!(text(|out| hexadecimal(out, number)), format!("0x{number:X}"));
            let nine_digits = (number % NS) as u32;
            prop_assert_eq!(text(|out| nine(out, nine_digits)), format!("{nine_digits:09}"));
        }
    }
}
