//! Finds fields of events by name.

use usertrace_reader::Field;
use usertrace_ring::schema::{FieldType, Scalar};

/// The index of an integer field.
pub(crate) fn integer_field(fields: &[Field], name: &str) -> Option<usize> {
    let is_integer = |field: &Field| {
        matches!(
            field.kind,
            FieldType::Scalar(Scalar::Integer(_)) | FieldType::Enum(..)
        )
    };
    fields
        .iter()
        .position(|field| field.name == name && is_integer(field))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Fields of type `u64` with these names.
    pub(crate) fn fields(names: &[&str]) -> Vec<Field> {
        let text: Vec<String> = names.iter().map(|name| format!("u64 {name}")).collect();
        let line = format!("1 t:e 6 {}", text.join(";"));
        let event = usertrace_ring::schema::Event::parse(line.as_bytes()).unwrap();
        let fields = event.fields.into_iter();
        fields
            .map(|field| Field {
                name: field.name,
                kind: field.kind,
                length_name: None,
            })
            .collect()
    }
}
