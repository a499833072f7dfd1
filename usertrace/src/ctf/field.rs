//! A field in a trace's `metadata` file (TSDL), as `lttng-ust` declares it.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::description::string;
use crate::metadata::{Element, Field, FieldType, Integer, Label, Scalar};

/// What texts are made of.
const CHAR: &str = "integer { size = 8; align = 8; signed = false; encoding = UTF8; }";

/// Appends a field's declaration. `names`: those that its event has already.
pub(super) fn declare(text: &mut String, field: &Field, names: &mut HashSet<String>) {
    let _ = match &field.kind {
        FieldType::Scalar(kind) => {
            writeln!(
                text,
                "\t\t{} {};",
                scalar(*kind),
                identifier(&field.name, names)
            )
        }
        FieldType::Str => {
            let name = identifier(&field.name, names);
            writeln!(text, "\t\tstring {{ encoding = UTF8; }} {name};")
        }
        FieldType::Enum(kind, labels) => {
            let name = identifier(&field.name, names);
            let labels: Vec<_> = labels.iter().map(enumerator).collect();
            let (kind, labels) = (integer(*kind), labels.join(", "));
            writeln!(text, "\t\tenum : {kind} {{ {labels} }} {name};")
        }
        FieldType::Array(kind, len) => {
            let name = identifier(&field.name, names);
            writeln!(text, "\t\t{} {name}[{len}];", element(*kind))
        }
        FieldType::Sequence(kind) => {
            let len = identifier(&format!("_{}_length", field.name), names);
            let name = identifier(&field.name, names);
            writeln!(
                text,
                "\t\tuint32_t {len};\n\t\t{} {name}[{len}];",
                element(*kind)
            )
        }
    };
}

fn element(kind: Element) -> String {
    match kind {
        Element::Scalar(kind) => scalar(kind),
        Element::Char => CHAR.to_owned(),
    }
}

fn scalar(kind: Scalar) -> String {
    match kind {
        Scalar::Integer(kind) => integer(kind),
        Scalar::Float { len } => {
            let (exponent, mantissa) = if len == 4 { (8, 24) } else { (11, 53) };
            format!("floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = 8; }}")
        }
        Scalar::Bool => "uint8_t".to_owned(),
    }
}

fn integer(kind: Integer) -> String {
    format!(
        "integer {{ size = {}; align = 8; signed = {}; base = {};{} }}",
        u32::from(kind.len) * 8,
        kind.signed,
        if kind.hex { 16 } else { 10 },
        if kind.big_endian {
            " byte_order = be;"
        } else {
            ""
        },
    )
}

fn enumerator(label: &Label) -> String {
    let (name, first, last) = (string(&label.name), label.first, label.last);
    if first == last {
        format!("{name} = {first}")
    } else {
        format!("{name} = {first} ... {last}")
    }
}

/// A field's name, by which it is the only one of its event. Readers drop the underscore at its start, which keeps it
/// apart from the language's own words.
fn identifier(name: &str, names: &mut HashSet<String>) -> String {
    let safe: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let mut unique = format!("_{safe}");
    let mut number = 2;
    while !names.insert(unique.clone()) {
        unique = format!("_{safe}_{number}");
        number += 1;
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_are_identifiers_and_differ() {
        let mut names = HashSet::new();
        let got: Vec<_> = ["size", "size", "size_2", "a-b", "a+b", "ü", "int"]
            .map(|name| identifier(name, &mut names))
            .into();
        assert_eq!(
            got,
            [
                "_size",
                "_size_2",
                "_size_2_2",
                "_a_b",
                "_a_b_2",
                "__",
                "_int"
            ]
        );
    }

    /// B1.
    #[test]
    fn a_sequence_has_its_length_before_it() {
        let (mut text, mut names) = (String::new(), HashSet::new());
        names.insert("__x_length".to_owned());
        let field = Field {
            name: "x".into(),
            kind: FieldType::Sequence(Element::Char),
        };
        declare(&mut text, &field, &mut names);
        let expected = format!("\t\tuint32_t __x_length_2;\n\t\t{CHAR} _x[__x_length_2];\n");
        assert_eq!(text, expected);
    }
}
