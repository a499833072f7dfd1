//! Random expressions answer as the model says, and random bytes do no harm.

use proptest::prelude::*;
use proptest::sample::select;
use usertrace_expression::{
    Answer, ErrorKind, Expression, Field, FirstTest, Integer, MAX_REFERENCES, MAX_TEXT, Slices,
    Words, evaluate_words,
};

use usertrace_testing::expression_model::{
    self as model, Given, Tree, floats, numbers, pieces, texts, trees,
};

/// The names of the fields.
const FIELDS: [&str; 5] = [
    "plain",
    "outer.inner",
    "list[2]",
    "$ctx.vtid",
    "$app.shop:request",
];

/// Parts of which hostile texts are made.
const PARTS: [&str; 12] = [
    "a", "1", "(", ")", "!", "&&", "|", "==", "<<", "\"*\"", "$ctx.b", " ",
];

fn values() -> impl Strategy<Value = Given> {
    let signed = || numbers().prop_map(|number| number as i64);
    let integer = prop_oneof![
        signed().prop_map(Integer::Signed),
        numbers().prop_map(Integer::Unsigned)
    ];
    prop_oneof![
        1 => Just(Given::Missing),
        3 => signed().prop_map(Given::Signed),
        3 => numbers().prop_map(Given::Unsigned),
        1 => any::<bool>().prop_map(Given::Bool),
        1 => prop_oneof![4 => floats(), 1 => Just(f64::NAN), 1 => Just(-1.5)]
            .prop_map(Given::Float),
        3 => texts().prop_map(Given::Text),
        2 => (integer, prop::collection::vec(texts(), 0..3))
            .prop_map(|(integer, labels)| Given::Enumeration(integer, labels)),
    ]
}

fn answer(expression: &Expression, text: &[u8], values: &[Given]) -> Answer {
    let labels: Vec<_> = values.iter().map(Given::labels).collect();
    let fields: Vec<Field<'_>> = expression
        .references(text)
        .map(|reference| {
            let name = reference.to_string();
            let index = FIELDS
                .iter()
                .position(|known| *known == name)
                .expect("a known field");
            values[index].field(&labels[index])
        })
        .collect();
    let answer = expression.evaluate(text, &mut Slices(&fields));
    let words: Vec<_> = expression.compile(text).collect();
    let compiled = evaluate_words(Memory(&words), &mut Slices(&fields));
    assert_eq!(compiled, answer, "compiled: {words:x?}");
    answer
}

/// Whether the comparison that the expression needs fails for an integer.
fn first_test_fails(expression: &Expression, text: &[u8], values: &[Given]) -> bool {
    let Some(test) = expression.first_test() else {
        return false;
    };
    let reference = expression.references(text).nth(test.reference.into());
    let name = reference.expect("a reference").to_string();
    let index = FIELDS.iter().position(|known| *known == name);
    let value = match values[index.expect("a known field")] {
        Given::Signed(value) => i128::from(value),
        Given::Unsigned(value) => value.into(),
        _ => return false,
    };
    let constant = match test.constant {
        Integer::Signed(constant) => i128::from(constant),
        Integer::Unsigned(constant) => constant.into(),
    };
    FirstTest::bit(value.cmp(&constant)) & test.orders == 0
}

/// Words that are 0 behind their end.
#[derive(Clone, Copy)]
struct Memory<'a>(&'a [u32]);

impl Words for Memory<'_> {
    fn word(self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or_default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Requirements: E4
    #[test]
    fn answers_are_those_of_a_tree_walk(
        tree in trees(FIELDS.len()),
        events in prop::collection::vec(prop::collection::vec(values(), FIELDS.len()), 1..8),
    ) {
        let mut text = Vec::new();
        model::print(&tree, &FIELDS, &mut text);
        let shown = String::from_utf8_lossy(&text);
        let expression = match Expression::parse(&text) {
            Ok(expression) => expression,
            Err(error) => {
                let is_limit = matches!(error.kind(), ErrorKind::TooManySteps | ErrorKind::TooDeep);
                prop_assert!(is_limit || !model::is_valid(&tree), "{}", error.with_caret(&text));
                return Ok(());
            }
        };
        prop_assert!(model::is_valid(&tree), "accepted: {shown}");
        for values in &events {
            let expected = model::evaluate(&tree, values);
            let answer = answer(&expression, &text, values);
            prop_assert_eq!(answer, expected, "{} with {:?}: {:?}", shown, values, expression);
            if first_test_fails(&expression, &text, values) {
                prop_assert_ne!(answer, Answer::True, "{} with {:?}", shown, values);
            }
        }
    }

    #[test]
    fn globs_match_as_a_table_says(pieces in pieces(), text in texts()) {
        let mut written = b"plain == ".to_vec();
        model::print(&Tree::Text(pieces.clone()), &FIELDS, &mut written);
        let expression = Expression::parse(&written).expect("an expression");
        let fields = [Field::Text(&text)];
        let answer = expression.evaluate(&written, &mut Slices(&fields));
        prop_assert_eq!(answer.is_match(), model::glob(&pieces, &text));
    }

    /// Requirements: F4
    #[test]
    fn hostile_text_ends_in_an_error_or_an_expression(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(
                select(b"aaab1290x.e\"'\\*()[]$ctxap.!~+-<>=&|^ \t\n\x00\xff".to_vec()),
                0..300,
            ),
            prop::collection::vec(
                select(&PARTS[..]),
                0..200,
            ).prop_map(|parts| parts.concat().into_bytes()),
        ],
    ) {
        match Expression::parse(&text) {
            Ok(expression) => {
                let fields = [Field::Unsigned(7); MAX_REFERENCES];
                let _answer = expression.evaluate(&text, &mut Slices(&fields));
                let _unbound = expression.evaluate(&text, &mut Slices(&[]));
                prop_assert!(expression.references(&text).count() <= MAX_REFERENCES);
            }
            Err(error) => {
                prop_assert!(error.place().start <= text.len());
                prop_assert!(error.place().end <= text.len());
                let printed = error.with_caret(&text).to_string();
                prop_assert_eq!(printed.lines().count(), 3, "{}", printed);
                prop_assert!(!printed.contains(|c: char| c.is_control() && c != '\n'));
            }
        }
    }

    /// A program evaluates words that an update replaces meanwhile.
    ///
    /// Requirements: F2
    #[test]
    fn any_words_end_in_an_answer(
        head in (0..80_u32, 0..20_u32, 0..40_u32),
        steps in prop::collection::vec((0..20_u8, any::<[u8; 3]>(), 0..6_u8), 0..80),
    ) {
        let (count, depth, len) = head;
        let mut words = vec![count | depth << 8 | len << 16];
        words.extend(steps.iter().map(|(kind, [a, b, c], small)| {
            // Most operands are small.
            u32::from_le_bytes([*kind, if a % 3 == 0 { *a } else { *small }, *b, *c])
        }));
        let fields = [Field::Unsigned(7), Field::Text(b"abc"), Field::Missing];
        evaluate_words(Memory(&words), &mut Slices(&fields));
    }

    #[test]
    fn long_hostile_text_is_bounded(unit in "[a(!~ 1\"*.&|=$\\[]{1,6}") {
        let text = unit.repeat(MAX_TEXT / unit.len());
        if let Err(error) = Expression::parse(text.as_bytes()) {
            let printed = error.with_caret(text.as_bytes()).to_string();
            prop_assert!(printed.lines().all(|line| line.chars().count() < 100), "{}", printed);
        }
    }
}
