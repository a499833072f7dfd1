//! Fields of any type and value, and how `babeltrace2` prints them (B1).

use proptest::prelude::*;

const INTEGERS: [&str; 21] = [
    "u8", "u16", "u32", "u64", "x8", "x16", "x32", "x64", "s8", "s16", "s32", "s64", "u16be",
    "u32be", "u64be", "x16be", "x32be", "x64be", "s16be", "s32be", "s64be",
];

/// A field type of the header.
#[derive(Clone, Debug)]
pub enum Type {
    Number(&'static str),
    Array(&'static str, usize),
    Sequence(&'static str),
    Str,
    Chars(usize),
    CharSequence,
    /// Labels, each with seeds for its first and last value.
    Enum(&'static str, Vec<(String, u64, u64)>),
}

/// Generates any type.
pub fn types() -> impl Strategy<Value = Type> {
    let integer = || prop::sample::select(&INTEGERS);
    let number = || prop_oneof![4 => integer(), 1 => prop::sample::select(&["f32", "f64", "bool"])];
    let label = "[a-z \"\\\\=,;{}%\u{1}ü*/\n.]{0,5}";
    prop_oneof![
        number().prop_map(Type::Number),
        (number(), 1usize..5).prop_map(|(kind, len)| Type::Array(kind, len)),
        number().prop_map(Type::Sequence),
        Just(Type::Str),
        (1usize..9).prop_map(Type::Chars),
        Just(Type::CharSequence),
        (
            integer(),
            prop::collection::vec((label, any::<u64>(), any::<u64>()), 1..4)
        )
            .prop_map(|(kind, labels)| Type::Enum(kind, labels)),
    ]
}

/// Encodes any text for a description.
pub fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let bytes = text.bytes();
    bytes
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Quotes a text as a reader does. Control characters are replaced.
fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Makes an integer of a seed: its value, its bytes, and its printed form.
fn integer(kind: &str, seed: u64) -> (i128, Vec<u8>, String) {
    let be = kind.ends_with("be");
    let bits: u32 = kind[1..].trim_end_matches("be").parse().unwrap();
    let low = seed << (64 - bits) >> (64 - bits);
    let value = match kind.starts_with('s') {
        true => i128::from((low << (64 - bits)).cast_signed() >> (64 - bits)),
        false => i128::from(low),
    };
    let mut bytes = low.to_le_bytes()[..bits as usize / 8].to_vec();
    if be {
        bytes.reverse();
    }
    let shown = match kind.starts_with('x') {
        true => format!("0x{value:X}"),
        false => value.to_string(),
    };
    (value, bytes, shown)
}

/// Makes a number of a seed: its bytes and its printed form.
fn number(kind: &str, seed: u64) -> (Vec<u8>, String) {
    // All digits of quarters are printed.
    let quarters = f32::from(seed as u16 as i16) / 4.0;
    match kind {
        "f32" => (quarters.to_le_bytes().into(), quarters.to_string()),
        "f64" => (
            f64::from(quarters).to_le_bytes().into(),
            quarters.to_string(),
        ),
        "bool" => (vec![(seed % 2) as u8], (seed % 2).to_string()),
        _ => {
            let (_, bytes, shown) = integer(kind, seed);
            (bytes, shown)
        }
    }
}

/// Makes a text of at most `room` bytes of seeds.
fn text(seeds: &[u64], room: usize) -> String {
    let mut text = String::new();
    for seed in seeds {
        let c = ['a', 'Z', ' ', 'ü', '日', '.'][(seed % 6) as usize];
        if text.len() + c.len_utf8() <= room {
            text.push(c);
        }
    }
    text
}

fn numbers(kind: &str, seeds: &[u64], len: usize) -> (Vec<u8>, String) {
    let (mut bytes, mut shown) = (Vec::new(), String::from("["));
    for n in 0..len {
        let (element, text) = number(kind, seeds[n % seeds.len()]);
        bytes.extend(element);
        let comma = if n == 0 { "" } else { "," };
        shown += &format!("{comma} [{n}] = {text}");
    }
    (bytes, shown + " ]")
}

impl Type {
    pub fn describe(&self) -> String {
        match self {
            Type::Number(kind) => (*kind).to_owned(),
            Type::Array(kind, len) => format!("{kind}[{len}]"),
            Type::Sequence(kind) => format!("{kind}[]"),
            Type::Str => "str".to_owned(),
            Type::Chars(len) => format!("c8[{len}]"),
            Type::CharSequence => "c8[]".to_owned(),
            Type::Enum(kind, _) => {
                let labels: Vec<_> = self
                    .labels()
                    .iter()
                    .map(|(label, first, last)| match first == last {
                        true => format!("{}={first}", encode(label)),
                        false => format!("{}={first}..{last}", encode(label)),
                    })
                    .collect();
                format!("{kind}{{{}}}", labels.join(","))
            }
        }
    }

    /// Makes the bytes of a field from random numbers, including values that no program writes on
    /// purpose.
    pub fn any_value(&self, random: &mut impl FnMut() -> u64) -> Vec<u8> {
        let len_of = |kind: &str| match kind {
            "bool" => 1,
            kind => kind[1..].trim_end_matches("be").parse::<usize>().unwrap() / 8,
        };
        let mut bytes = |len: usize| -> Vec<u8> {
            // Large numbers, small ones, and text.
            let mut byte = || match random() % 4 {
                0 => 0,
                1 => (random() % 128) as u8,
                _ => random() as u8,
            };
            (0..len).map(|_| byte()).collect()
        };
        match self {
            Type::Number(kind) => bytes(len_of(kind)),
            Type::Array(kind, len) => bytes(len * len_of(kind)),
            // Texts are not empty: for empty ones, babeltrace2 2.0.4 prints an earlier text.
            Type::Chars(len) => [b"x".to_vec(), bytes(len - 1)].concat(),
            Type::CharSequence => {
                let len = u32::from(bytes(1)[0] % 6);
                let text = [b"y".to_vec(), bytes(len as usize)].concat();
                [(len + 1).to_le_bytes().to_vec(), text].concat()
            }
            Type::Sequence(kind) => {
                let count = u32::from(bytes(1)[0] % 6);
                let numbers = bytes(count as usize * len_of(kind));
                [count.to_le_bytes().to_vec(), numbers].concat()
            }
            Type::Str => {
                let len = usize::from(bytes(1)[0] % 12);
                let mut text = bytes(len);
                text.retain(|&b| b != 0);
                [b"z", &text[..], b"\0"].concat()
            }
            Type::Enum(..) => self.value("x", &[random(), random()]).0,
        }
    }

    /// Different labels, and the range of values of each.
    fn labels(&self) -> Vec<(String, i128, i128)> {
        let Type::Enum(kind, labels) = self else {
            return Vec::new();
        };
        let labels = labels.iter().enumerate();
        labels
            .map(|(n, (label, a, b))| {
                let (a, b) = (integer(kind, *a).0, integer(kind, *b).0);
                (format!("{label}{n}"), a.min(b), a.max(b))
            })
            .collect()
    }

    /// Makes the bytes of a field from seeds, and its printed form.
    pub fn value(&self, name: &str, seeds: &[u64]) -> (Vec<u8>, String) {
        let sequence = |len: usize, elements: Vec<u8>, shown: String| {
            let bytes = [(len as u32).to_le_bytes().to_vec(), elements].concat();
            (bytes, format!("_{name}_length = {len}, {name} = {shown}"))
        };
        let (bytes, shown) = match self {
            Type::Number(kind) => number(kind, seeds[0]),
            Type::Array(kind, len) => numbers(kind, seeds, *len),
            Type::Sequence(kind) => {
                let len = (seeds[0] % 5) as usize;
                let (elements, shown) = numbers(kind, seeds, len);
                return sequence(len, elements, shown);
            }
            Type::Str => {
                let text = text(seeds, usize::MAX);
                ([text.as_bytes(), b"\0"].concat(), quoted(&text))
            }
            Type::Chars(len) => {
                let text = text(seeds, *len);
                let mut bytes = text.clone().into_bytes();
                // Bytes after a NUL are not text.
                bytes.resize((text.len() + 1).min(*len), 0);
                bytes.resize(*len, b'x');
                (bytes, quoted(&text))
            }
            Type::CharSequence => {
                let text = text(seeds, usize::MAX);
                return sequence(text.len(), text.clone().into_bytes(), quoted(&text));
            }
            Type::Enum(kind, labels) => {
                // Include the ends of the ranges.
                let of_labels = labels.iter().flat_map(|(_, first, last)| [*first, *last]);
                let values: Vec<u64> = of_labels.chain([seeds[0]]).collect();
                let (value, bytes, shown) = integer(kind, values[seeds[1] as usize % values.len()]);
                let its: Vec<_> = self
                    .labels()
                    .iter()
                    .filter(|(_, first, last)| (*first..=*last).contains(&value))
                    .map(|(label, ..)| quoted(label))
                    .collect();
                let its = if its.is_empty() {
                    "<unknown>".to_owned()
                } else {
                    its.join(", ")
                };
                (bytes, format!("( {its} : container = {shown} )"))
            }
        };
        (bytes, format!("{name} = {shown}"))
    }
}
