//! Errors of texts that are no expressions, and the place of the caret.

use usertrace_expression::{Expression, MAX_TEXT};

fn error(text: &[u8]) -> String {
    let error = Expression::parse(text).expect_err("the text is no expression");
    error.with_caret(text).to_string()
}

#[test]
fn errors_have_a_caret_under_their_place() {
    for (text, caret, message) in [
        ("", "^", "expected a value, found the end"),
        ("a ==", "    ^", "expected a value, found the end"),
        (
            "status >= )",
            "          ^",
            r#"expected a value, found ")""#,
        ),
        ("a b", "  ^", "expected an operator, found a name"),
        ("a 12", "  ^^", "expected an operator, found a number"),
        ("a \"x\"", "  ^^^", "expected an operator, found text"),
        ("a == == b", "     ^^", r#"expected a value, found "==""#),
        ("a @ b", "  ^", r#"expected an operator, found "@""#),
        ("a ! b", "  ^", r#"expected an operator, found "!""#),
        ("a -> b", "  ^", "arithmetic is not supported"),
        ("a + 1 == 2", "  ^", "arithmetic is not supported"),
        ("\"a\" + 1", "    ^", "arithmetic is not supported"),
        ("a % 2", "  ^", "arithmetic is not supported"),
        ("a = 1", "  ^", r#"unknown operator "=" (use "==")"#),
        ("(a == 1", "^", r#""(" has no ")""#),
        ("((a) || b", "^", r#""(" has no ")""#),
        ("a == 1)", "      ^", r#"")" has no "(""#),
        ("()", " ^", r#"expected a value, found ")""#),
        ("a.", "  ^", r#"expected a name after ".", found the end"#),
        ("a.1", " ^^", "expected an operator, found a number"),
        (
            "a . 1",
            "    ^",
            r#"expected a name after ".", found a number"#,
        ),
        (
            "a[b]",
            "  ^",
            r#"expected an index after "[", found a name"#,
        ),
        ("a[-1]", "  ^", r#"expected an index after "[", found "-""#),
        (
            "a[1.5]",
            "  ^^^",
            r#"expected an index after "[", found a number"#,
        ),
        ("a[1", "   ^", r#"expected "]", found the end"#),
        ("$ctx", "^^^^", r#"expected "$ctx.NAME" or "$app.NAME""#),
        ("$ctx[1]", "^^^^", r#"expected "$ctx.NAME" or "$app.NAME""#),
        (
            "a && $event.x",
            "     ^^^^^^",
            r#"expected "$ctx.NAME" or "$app.NAME""#,
        ),
        ("a == \"x", "     ^^", "the text has no closing quote"),
        (
            r#"a == "\x""#,
            "      ^^",
            r#"unknown escape in a text (known: \*, \\, \", \')"#,
        ),
        (
            r#"a == "x\"#,
            "       ^",
            r#"unknown escape in a text (known: \*, \\, \", \')"#,
        ),
        ("a == 09", "     ^^", "invalid number"),
        ("a == 12ab", "     ^^^^", "invalid number"),
        ("a == 0x", "     ^^", "invalid number"),
        ("a == 0x1p3", "     ^^^^^", "invalid number"),
        ("a == 1.2.3", "     ^^^^^", "invalid number"),
        ("a == 1e", "     ^^", "invalid number"),
        (
            "a == 18446744073709551616",
            "     ^^^^^^^^^^^^^^^^^^^^",
            "the number is too large",
        ),
        ("a == 1e999", "     ^^^^^", "the number is too large"),
        (
            "-9223372036854775809 < a",
            "^^^^^^^^^^^^^^^^^^^^",
            "the number is too large",
        ),
        (
            "a < \"x\"",
            "    ^^^",
            r#"text compares with "==" and "!=" only"#,
        ),
        (
            "\"x\" >= a",
            "^^^",
            r#"text compares with "==" and "!=" only"#,
        ),
        (
            "a == (\"x\" < b)",
            "      ^^^",
            r#"text compares with "==" and "!=" only"#,
        ),
        (
            "\"a\" == 1",
            "^^^^^^^^",
            "cannot compare text with a number",
        ),
        (
            "!a == \"x\"",
            "^^^^^^^^^",
            "cannot compare text with a number",
        ),
        (
            "\"a\" == \"*\"",
            "^^^^^^^^^^",
            "both sides of the comparison are constant text",
        ),
        ("~\"a\"", " ^^^", "expected a number, found text"),
        ("a & (\"b\")", "    ^^^^^", "expected a number, found text"),
        ("\"a\" && \"b\"", "^^^", "expected a condition, found text"),
        ("a && \"b\"", "     ^^^", "expected a condition, found text"),
        ("!\"b\"", " ^^^", "expected a condition, found text"),
        ("\"b\"", "^^^", "expected a condition, found text"),
        ("~1.5", " ^^^", "bit operators take integers, found a float"),
        (
            "a << -1.5",
            "     ^^^^",
            "bit operators take integers, found a float",
        ),
    ] {
        let expected = format!("{message}\n  {text}\n  {caret}");
        assert_eq!(error(text.as_bytes()), expected);
    }
}

#[test]
fn carets_stand_right_after_tabs_wide_and_broken_characters() {
    let message = "expected an operator, found a name\n  ";
    let check = |text: &[u8], printed: &str, caret: &str| {
        assert_eq!(error(text), format!("{message}{printed}\n  {caret}"));
    };
    check(b"a\t\n==\t1 b", "a  == 1 b", "        ^");
    let outside = error("a == é".as_bytes());
    let expected = "expected a value, found a character outside of ASCII\n  a == é\n       ^";
    assert_eq!(outside, expected);
    check(
        "a == \"é日本\" b".as_bytes(),
        "a == \"é日本\" b",
        "             ^",
    );
    check(
        b"a == \"\xff\xfe\" b",
        "a == \"\u{fffd}\u{fffd}\" b",
        "          ^",
    );
    check(
        "a == \"\u{202e}\" b".as_bytes(),
        "a == \"\u{fffd}\" b",
        "         ^",
    );
    let controls = error(b"a == 1 \x1b[31m");
    assert_eq!(
        controls,
        "expected an operator, found byte 0x1b\n  a == 1 \u{fffd}[31m\n         ^"
    );
    let controls = error(b"a == \"\x1b\"");
    assert!(
        controls.starts_with("control character in a text"),
        "{controls}"
    );
}

#[test]
fn long_texts_are_printed_around_the_place() {
    let text = format!("{}) && {}", "a == 1 && ".repeat(7), "b == 2 && ".repeat(7));
    let expected = concat!(
        "expected a value, found \")\"\n",
        "  …a == 1 && a == 1 && a == 1 && a == 1 && ) && b == 2 && b == 2 && b == 2 && b…\n",
        "                                           ^"
    );
    assert_eq!(error(text.as_bytes()), expected);
    let long = vec![b' '; MAX_TEXT + 1];
    let printed = error(&long);
    assert!(
        printed.starts_with("the expression is longer than 4096 bytes\n"),
        "{printed}"
    );
    assert!(printed.lines().all(|line| line.len() < 80), "{printed}");
}

/// The caret of an error of another text, and one that ends in the middle of a character.
#[test]
fn carets_bear_another_text() {
    let error = Expression::parse(b"a == 1 && b c").expect_err("no operator");
    for text in ["", "a", "日本日本日本日本", "a == 1 && 日本"] {
        let printed = error.with_caret(text.as_bytes()).to_string();
        assert_eq!(printed.lines().count(), 3, "{printed}");
    }
}
