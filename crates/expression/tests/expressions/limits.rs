//! The greatest expressions, and those that exceed a limit.

use std::cell::Cell;

use usertrace_expression::{
    Answer, ErrorKind, Expression, Field, MAX_DEPTH, MAX_REFERENCES, MAX_STEPS, MAX_TEXT, Slices,
    Source, Value,
};

use super::{answer, parse};

fn kind(text: &str) -> ErrorKind {
    Expression::parse(text.as_bytes())
        .expect_err("beyond a limit")
        .kind()
}

#[test]
fn expressions_are_small() {
    assert!(size_of::<Expression>() < 400, "{}", size_of::<Expression>());
}

#[test]
fn the_longest_text_is_an_expression() {
    let pattern = "x".repeat(MAX_TEXT - "a == \"\"".len());
    let text = format!("a == \"{pattern}\"");
    assert_eq!(text.len(), MAX_TEXT);
    assert_eq!(
        answer(&text, &[("a", Field::Text(pattern.as_bytes()))]),
        Answer::True
    );
    assert_eq!(kind(&format!("{text} ")), ErrorKind::TooLong);
    // The last name ends at the end of the text.
    let text = format!("{}a", " ".repeat(MAX_TEXT - 1));
    assert_eq!(answer(&text, &[("a", Field::Signed(1))]), Answer::True);
    let name = "n".repeat(MAX_TEXT);
    assert_eq!(answer(&name, &[(&name, Field::Signed(1))]), Answer::True);
}

#[test]
fn steps_are_limited() {
    // A comparison takes a step, and a connection two.
    let comparisons = MAX_STEPS.div_ceil(3);
    let text = vec!["a == 7"; comparisons].join(" || ");
    assert_eq!(answer(&text, &[("a", Field::Signed(7))]), Answer::True);
    assert_eq!(answer(&text, &[("a", Field::Signed(8))]), Answer::False);
    assert_eq!(kind(&format!("{text} || a == 7")), ErrorKind::TooManySteps);
}

#[test]
fn references_are_limited() {
    let names = |count: usize| {
        let names: Vec<_> = (0..count).map(|n| format!("n{n}")).collect();
        names.join(" | ")
    };
    let expression = parse(&names(MAX_REFERENCES));
    let text = names(MAX_REFERENCES);
    assert_eq!(
        expression.references(text.as_bytes()).count(),
        MAX_REFERENCES
    );
    let mut values = [Field::Signed(0); MAX_REFERENCES];
    values[MAX_REFERENCES - 1] = Field::Signed(1);
    let answer = expression.evaluate(text.as_bytes(), &mut Slices(&values));
    assert_eq!(answer, Answer::True);
    assert_eq!(
        kind(&names(MAX_REFERENCES + 1)),
        ErrorKind::TooManyReferences
    );
    // The same name again takes no further place.
    parse(&format!("{} | n0", names(MAX_REFERENCES)));
}

/// Requirements: F4
#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| format!("{}a{}", "a | (".repeat(depth), ")".repeat(depth));
    assert_eq!(
        answer(&nested(MAX_DEPTH - 1), &[("a", Field::Signed(1))]),
        Answer::True
    );
    assert_eq!(kind(&nested(MAX_DEPTH)), ErrorKind::TooDeep);
    for text in [
        "(".repeat(MAX_TEXT),
        "!".repeat(MAX_TEXT),
        "-(".repeat(MAX_TEXT / 2),
    ] {
        assert_eq!(kind(&text), ErrorKind::TooDeep);
    }
    let parentheses = format!("{}1{}", "(".repeat(64), ")".repeat(64));
    assert_eq!(answer(&parentheses, &[]), Answer::True);
}

/// Counts the bytes that an evaluation asks for.
struct Counting<'a>(&'a [u8], &'a Cell<usize>);

impl Source for Counting<'_> {
    type Text = ();
    type Labels = ();

    fn value(&mut self, _reference: usize) -> Value<(), ()> {
        Value::Text(())
    }

    fn byte(&mut self, (): (), at: usize) -> Option<u8> {
        self.1.set(self.1.get() + 1);
        self.0.get(at).copied()
    }

    fn next_label(&mut self, (): &mut ()) -> Option<()> {
        None
    }
}

/// Requirements: F2, F4
#[test]
fn hostile_globs_take_bounded_time() {
    let text = vec![b'a'; 4096];
    for pattern in [
        "*a".repeat(500) + "b",
        "*".repeat(1000) + &"a".repeat(1000) + "b",
    ] {
        let expression_text = format!("f == \"{pattern}\"");
        let expression = parse(&expression_text);
        let bytes = Cell::new(0);
        let mut source = Counting(&text, &bytes);
        let answer = expression.evaluate(expression_text.as_bytes(), &mut source);
        assert_eq!(answer, Answer::False);
        assert!(
            bytes.get() <= (pattern.len() + 1) * (text.len() + 1),
            "{}",
            bytes.get()
        );
    }
}

/// An evaluation with another text than the parsed one is wrong, and ends.
#[test]
fn evaluation_bears_another_text() {
    let expression = parse("a == \"some text\" && b == 1");
    let fields = [Field::Text(b"some text"), Field::Signed(1)];
    let answer = expression.evaluate(b"", &mut Slices(&fields));
    assert_eq!(answer, Answer::Unknown);
    assert_eq!(expression.references(b"").count(), 2);
}
