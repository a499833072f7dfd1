//! A filter expression, the values of an event, and the rules of a trace: parsing ends in an error
//! that can be printed, or in an expression whose two evaluations agree; evaluating any words ends;
//! any rules can be applied.
//!
//! The input is the text of the expression, a zero byte, and bytes that are also taken for values,
//! for words of a compiled expression, and for rules as the kernel shows them to programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use usertrace_expression::{
    Expression, Field, Integer, MAX_REFERENCES, Slices, Words, evaluate_words, text_of_words,
};
use usertrace_sys::filter::Rules;
use usertrace_sys::uapi::LTT_EXPR_MAX;

const LABELS: &[&[u8]] = &[b"Idle", b"a*b", b""];

/// Words that are 0 behind their end.
#[derive(Clone, Copy)]
struct Memory<'a>(&'a [u32]);

impl Words for Memory<'_> {
    fn word(self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or_default()
    }
}

/// The value that bytes give: a kind, and up to eight bytes of the value.
fn field(bytes: &[u8]) -> Option<Field<'_>> {
    let (kind, value) = bytes.split_first()?;
    let mut number = [0; 8];
    number[..value.len()].copy_from_slice(value);
    let unsigned = u64::from_le_bytes(number);
    Some(match kind % 7 {
        0 => Field::Missing,
        1 => Field::Signed(unsigned.cast_signed()),
        2 => Field::Unsigned(unsigned),
        3 => Field::Bool(unsigned & 1 != 0),
        4 => Field::Float(f64::from_bits(unsigned)),
        5 => Field::Text(value),
        _ => Field::Enumeration(Integer::Unsigned(unsigned), LABELS),
    })
}

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == 0);
    let (text, bytes) = input.split_at(end.unwrap_or(input.len()));
    let bytes = bytes.get(1..).unwrap_or_default();
    let fields: Vec<_> = bytes.chunks(9).filter_map(field).take(MAX_REFERENCES).collect();

    match Expression::parse(text) {
        Ok(expression) => {
            assert!(expression.references(text).count() <= MAX_REFERENCES);
            let words: Vec<_> = expression.compile(text).collect();
            let answer = expression.evaluate(text, &mut Slices(&fields));
            let compiled = evaluate_words(Memory(&words), &mut Slices(&fields));
            assert_eq!(answer, compiled, "{}", String::from_utf8_lossy(text));
            assert!(text_of_words(Memory(&words)).eq(text.iter().copied()));
        }
        Err(error) => {
            let printed = error.with_caret(text).to_string();
            assert_eq!(printed.lines().count(), 3, "{printed}");
            assert!(!printed.contains(|c: char| c.is_control() && c != '\n'));
        }
    }

    let word = |chunk: &[u8]| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(word)
    };
    let words: Vec<_> = bytes.chunks(4).map(word).collect();
    evaluate_words(Memory(&words), &mut Slices(&fields));

    let mut rules = Rules::new();
    rules.copy(bytes.len(), |at| words[at / 4].to_le_bytes());
    let accepted = rules.accept(b"shop:served", b"served");
    let mut room = [0; LTT_EXPR_MAX];
    let mut count = 0;
    rules.each_expression(&mut room, |text| {
        count += 1;
        if let Some(text) = text {
            let _parsed = Expression::parse(text);
        }
    });
    if let Some(conditions) = accepted.conditions().list() {
        assert!(conditions.iter().all(|condition| condition.number() < count));
    }
});
