//! Which operators bind more tightly, as lttng-enable-event(1) has it.

use usertrace_expression::{Answer, Expression, Field, Slices};

/// Answers of the same expression with and without parentheses, for all small values.
fn assert_same(plain: &str, grouped: &str) {
    let (first, second) = (super::parse(plain), super::parse(grouped));
    for values in 0..4_u64.pow(4) {
        let fields: Vec<Field<'_>> = (0..4)
            .map(|n| Field::Unsigned(values >> (2 * n) & 3))
            .collect();
        let answer = |text: &str, expression: &Expression| {
            // a, b, c and d stand in this order in each expression.
            expression.evaluate(text.as_bytes(), &mut Slices(&fields))
        };
        let (first, second) = (answer(plain, &first), answer(grouped, &second));
        assert_eq!(first, second, "{plain} and {grouped}: {fields:?}");
    }
}

/// Requirements: E4
#[test]
fn operators_bind_as_in_lttng() {
    for (plain, grouped) in [
        // Unary operators first, from right to left.
        ("-a << b == c", "((-a) << b) == c"),
        ("!a == b", "(!a) == b"),
        ("~a & b", "(~a) & b"),
        ("!-a", "!(-a)"),
        ("-+~a == b", "(-(+(~a))) == b"),
        // Shifts, &, ^, |, then comparisons. In C, comparisons bind more tightly than &.
        ("a << b & c", "(a << b) & c"),
        ("a & b << c", "a & (b << c)"),
        ("a << b >> c", "(a << b) >> c"),
        ("a & b ^ c", "(a & b) ^ c"),
        ("a ^ b & c", "a ^ (b & c)"),
        ("a ^ b | c", "(a ^ b) | c"),
        ("a | b ^ c", "a | (b ^ c)"),
        ("a & b == c", "(a & b) == c"),
        ("a == b & c", "a == (b & c)"),
        ("a | b < c", "(a | b) < c"),
        ("a < b | c", "a < (b | c)"),
        // < before ==, and both from left to right.
        ("a < b == c", "(a < b) == c"),
        ("a == b < c", "a == (b < c)"),
        ("a < b < c", "(a < b) < c"),
        ("a >= b > c", "(a >= b) > c"),
        ("a == b != c", "(a == b) != c"),
        ("a != b == c", "(a != b) == c"),
        // && before ||.
        ("a == b && c", "(a == b) && c"),
        ("a && b == c", "a && (b == c)"),
        ("a || b && c", "a || (b && c)"),
        ("a && b || c", "(a && b) || c"),
        ("a && b || c && d", "(a && b) || (c && d)"),
        ("a || b && c || d", "(a || (b && c)) || d"),
        ("a | b ^ c & d << 1 == 2", "(a | (b ^ (c & (d << 1)))) == 2"),
    ] {
        assert_same(plain, grouped);
    }
}

/// The example of lttng-enable-event(1): true there, and false in C.
#[test]
fn bit_operators_bind_more_tightly_than_comparisons() {
    assert_eq!(super::answer("2 & 2 == 2", &[]), Answer::True);
    assert_eq!(super::answer("2 & (2 == 2)", &[]), Answer::False);
}
