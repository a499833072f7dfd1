//! Tests of filter expressions: their syntax, what they answer, and how they bear hostile text.

mod answers;
mod errors;
mod limits;
mod precedence;
mod properties;

use usertrace_expression::{Answer, Expression, Field, Slices};

/// Parses a text that must be an expression.
fn parse(text: &str) -> Expression {
    match Expression::parse(text.as_bytes()) {
        Ok(expression) => expression,
        Err(error) => panic!("{}", error.with_caret(text.as_bytes())),
    }
}

/// The answer for fields that are named as in the expression.
fn answer(text: &str, fields: &[(&str, Field<'_>)]) -> Answer {
    let expression = parse(text);
    let values: Vec<Field<'_>> = expression
        .references(text.as_bytes())
        .map(|reference| {
            let name = reference.to_string();
            let field = fields.iter().find(|(known, _)| *known == name);
            field.map_or(Field::Missing, |(_, value)| *value)
        })
        .collect();
    expression.evaluate(text.as_bytes(), &mut Slices(&values))
}
