//! The fields of events that traces declare alike, and their columns.

use std::sync::Arc;

use usertrace_reader::Field;
use usertrace_ring::schema::{FieldType, Integer, Scalar};

use crate::code::CodeFields;
use crate::fields::Fields;
use crate::schema::Layout;

/// The fields of an event: traces that declare an event alike have one in common.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) fields: Fields,
    /// Their columns, as long as all texts are UTF-8.
    pub(crate) layout: Arc<Layout>,
}

impl Shape {
    /// The fields of a loss: what is lost, how many, since when, and the file that it is missing
    /// in. Before them is the CPU, if it is known.
    pub(crate) fn of_losses(has_cpu: bool) -> Self {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
            length_name: None,
        };
        let integer = |len, signed| {
            FieldType::Scalar(Scalar::Integer(Integer {
                len,
                signed,
                hex: false,
                big_endian: false,
            }))
        };
        let cpu = has_cpu.then(|| field("cpu_id", integer(4, false)));
        Self {
            fields: Fields {
                packet: cpu.into_iter().collect(),
                contexts: Vec::new(),
                code: CodeFields::default(),
                own: vec![
                    field("lost", FieldType::Str),
                    field("lost_count", integer(8, false)),
                    field("lost_since", integer(8, true)),
                    field("lost_file", FieldType::Str),
                ],
            },
            layout: Arc::new(Layout::of_losses(has_cpu)),
        }
    }
}
