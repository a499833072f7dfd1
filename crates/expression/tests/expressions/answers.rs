//! Answers of expressions.

use usertrace_expression::Answer::{False, True, Unknown};
use usertrace_expression::{Answer, Field, Integer, ReferenceKind, Segment};

use super::{answer, parse};

fn check(fields: &[(&str, Field<'_>)], table: &[(&str, Answer)]) {
    for (text, expected) in table {
        assert_eq!(answer(text, fields), *expected, "{text}");
    }
}

#[test]
fn integers_compare_exactly() {
    let fields = [
        ("minus", Field::Signed(-1)),
        ("greatest", Field::Unsigned(u64::MAX)),
        ("least", Field::Signed(i64::MIN)),
        ("byte", Field::Unsigned(200)),
    ];
    check(
        &fields,
        &[
            ("minus == greatest", False),
            ("minus < greatest", True),
            ("greatest > 18446744073709551614", True),
            ("greatest == 0xffffffffffffffffULL", True),
            ("least == -9223372036854775808", True),
            ("least < -9223372036854775807", True),
            ("-least == 9223372036854775808", True),
            ("-greatest == 1", Unknown),
            ("byte == 200 && byte == 0xC8 && byte == 0310", True),
            ("65535 < 65536 && -65536 > -65537", True),
            (
                "byte < 65535 && byte < 65536 && byte > -65536 && byte > -65537",
                True,
            ),
            (
                "byte < 8388607 && byte < 8388608 && byte > -8388608 && byte > -8388609",
                True,
            ),
            (
                "300 > byte && 200 >= byte && 100 <= byte && !(300 < byte) && 200 == byte",
                True,
            ),
            ("9007199254740993 == 9007199254740992.0", True),
        ],
    );
}

#[test]
fn bits_take_the_sign_of_what_they_are_compared_with() {
    let fields = [
        ("signed", Field::Signed(-2)),
        ("flags", Field::Unsigned(1 << 63 | 5)),
    ];
    check(
        &fields,
        &[
            ("signed & 0xff == 0xfe", True),
            ("signed ^ 1 == -1", True),
            ("signed ^ 1 == 0xffffffffffffffff", True),
            ("signed | 0 == signed", True),
            ("flags & 0x8000000000000000 == 0x8000000000000000", True),
            ("flags & flags == flags", True),
            ("flags & 0x8000000000000000 < 0", True),
            ("~0 == -1 && ~0 == 0xffffffffffffffff", True),
            ("-(~0) == 1", True),
            ("1 << 63 == 0x8000000000000000", True),
            ("1 << 64", Unknown),
            ("1 >> 64", Unknown),
            ("1 << -1", Unknown),
            ("1 << 4294967296", Unknown),
            ("-1 >> 63 == 1", True),
            ("flags >> 60 == 8", True),
            ("(1 < 2) | 4 == 5", True),
        ],
    );
}

#[test]
fn floats_compare_as_floats() {
    let fields = [
        ("half", Field::Float(0.5)),
        ("nan", Field::Float(f64::NAN)),
        ("one", Field::Signed(1)),
    ];
    check(
        &fields,
        &[
            (
                "half == .5 && half == 5e-1 && half == 0.5f && half < 1 && half > -1",
                True,
            ),
            (
                "one == 1.0 && one == 1. && one >= 0.99 && one < 17.34e9",
                True,
            ),
            ("half", True),
            ("!half", False),
            ("nan == nan", False),
            ("nan != nan", True),
            ("nan < 1 || nan >= 1", False),
            ("-half == -0.5 && -half < -.25", True),
            ("half & 1", Unknown),
            ("~half", Unknown),
            ("half << 1", Unknown),
        ],
    );
}

#[test]
fn texts_compare_with_globs() {
    let fields = [
        ("path", Field::Text(b"/api/users")),
        ("same", Field::Text(b"/api/users")),
        ("stars", Field::Text(b"a*b")),
        ("slash", Field::Text(b"a\\b")),
        ("quote", Field::Text(b"say \"it's\"")),
        ("empty", Field::Text(b"")),
        ("number", Field::Signed(1)),
    ];
    check(
        &fields,
        &[
            ("path == \"/api/*\"", True),
            ("path != \"/api/*\"", False),
            ("\"/api/*\" == path", True),
            ("path == '/api/users'", True),
            (
                "path == \"*users\" && path == \"*\" && path == \"**api**\" && path == \"*a*i*s\"",
                True,
            ),
            (
                "path == \"/api\" || path == \"api*\" || path == \"/api/users?\"",
                False,
            ),
            // LTTng has no `?`.
            ("path == \"/api/user?\"", False),
            ("path == same", True),
            ("path != same || path == stars", False),
            (r#"stars == "a\*b" && path != "\*""#, True),
            (r#"slash == "a\\b" && slash == "a\\*""#, True),
            (r#"quote == "say \"it's\"" && quote == 'say "it\'s"'"#, True),
            ("empty == \"\" && empty == \"*\" && empty != \"?\"", True),
            ("path == \"\"", False),
            ("path == number", Unknown),
            ("path != number", Unknown),
            ("path < same", Unknown),
            ("path", Unknown),
            ("!path", Unknown),
            ("-path == 1", Unknown),
            ("number == \"1\"", Unknown),
        ],
    );
}

#[test]
fn enumerations_compare_by_value_and_by_label() {
    let labels: [&[u8]; 2] = [b"NOT_FOUND", b"CLIENT_ERROR"];
    let fields = [
        (
            "status",
            Field::Enumeration(Integer::Unsigned(404), &labels),
        ),
        ("other", Field::Enumeration(Integer::Signed(404), &[])),
        ("name", Field::Text(b"CLIENT_ERROR")),
    ];
    check(
        &fields,
        &[
            ("status == 404 && status >= 400 && status & 4 == 4", True),
            ("status == \"NOT_FOUND\" && status == \"CLIENT*\"", True),
            ("status != \"NOT_FOUND\"", False),
            ("status == \"SERVER*\"", False),
            ("status == name && name == status", True),
            ("status != name", False),
            ("other == \"*\"", False),
            ("other != \"*\"", True),
            ("status == other", True),
            ("status && other", True),
        ],
    );
}

#[test]
fn truths_are_numbers() {
    let fields = [("yes", Field::Bool(true)), ("no", Field::Bool(false))];
    check(
        &fields,
        &[
            ("yes", True),
            ("no", False),
            ("yes == 1 && no == 0", True),
            ("(1 < 2) == yes", True),
            ("!no == 1", True),
            ("!5 == 0", True),
            ("(5 && 7) == 1", True),
            ("(0 || 7) == 1", True),
        ],
    );
}

#[test]
fn unknown_follows_kleene() {
    check(
        &[],
        &[
            ("missing", Unknown),
            ("!missing", Unknown),
            ("missing == missing", Unknown),
            ("missing != \"*\"", Unknown),
            ("missing && 0", False),
            ("0 && missing", False),
            ("missing && 1", Unknown),
            ("1 && missing", Unknown),
            ("missing || 1", True),
            ("1 || missing", True),
            ("missing || 0", Unknown),
            ("0 || missing", Unknown),
            ("missing & 0 == 0", Unknown),
            ("!(missing && 0)", True),
            ("(missing || 1) && (0 || 1)", True),
            ("missing == 1 || missing != 1", Unknown),
        ],
    );
}

/// The first comparison decides the whole expression only if nothing follows what it decides.
#[test]
fn decided_parts_do_not_decide_the_rest() {
    let fields = [("n", Field::Signed(3))];
    check(
        &fields,
        &[
            ("n > 5 && n", False),
            ("n > 5 && n || n == 3", True),
            ("n == 3 || n", True),
            ("(n == 3 || n) && n > 5", False),
            ("(n > 5 && n) == 0", True),
            ("!(n > 5 && n)", True),
            ("n > 5 && (n || missing) || n < 4 && n > 2", True),
        ],
    );
}

#[test]
fn references_are_listed_once() {
    let text = "a.b [0x2] . c == 1 && a . b[2].c == $ctx.vtid || $app.shop:request > ctx && a";
    let expression = parse(text);
    let references: Vec<_> = expression.references(text.as_bytes()).collect();
    let written: Vec<_> = references.iter().map(ToString::to_string).collect();
    assert_eq!(
        written,
        [
            "a.b [0x2] . c",
            "$ctx.vtid",
            "$app.shop:request",
            "ctx",
            "a"
        ]
    );
    let kinds: Vec<_> = references
        .iter()
        .map(|reference| reference.kind())
        .collect();
    let expected = [
        ReferenceKind::Field,
        ReferenceKind::Context,
        ReferenceKind::Application,
        ReferenceKind::Field,
        ReferenceKind::Field,
    ];
    assert_eq!(kinds, expected);
    let segments: Vec<_> = references[0].segments().collect();
    let expected = [
        Segment::Name(b"a"),
        Segment::Name(b"b"),
        Segment::Index(2),
        Segment::Name(b"c"),
    ];
    assert_eq!(segments, expected);
    let segments: Vec<_> = references[2].segments().collect();
    assert_eq!(segments, [Segment::Name(b"shop:request")]);
}

/// The examples of lttng-enable-event(1).
#[test]
fn examples_of_lttng_are_expressions() {
    let fields = [
        ("msg_id", Field::Signed(23)),
        ("size", Field::Unsigned(4096)),
        ("$ctx.procname", Field::Text(b"lttng-consumerd")),
        ("flag", Field::Bool(false)),
        ("$app.my_provider:my_context", Field::Float(17.34e9)),
        ("$ctx.cpu_id", Field::Unsigned(2)),
        ("filename", Field::Text(b"a.txt")),
        ("eax_reg", Field::Unsigned(0x248)),
        ("x[4]", Field::Unsigned(0x123_4fff)),
    ];
    check(
        &fields,
        &[
            ("msg_id == 23 && size >= 2048", True),
            ("$ctx.procname == \"lttng*\" && (!flag || poel < 34)", True),
            (
                "$app.my_provider:my_context == 17.34e9 || some_enum >= 14",
                True,
            ),
            ("$ctx.cpu_id == 2 && filename != \"*.log\"", True),
            ("eax_reg & 0xff7 == 0x240 && x[4] >> 12 <= 0x1234", True),
        ],
    );
}
