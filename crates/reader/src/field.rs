//! Fields as a trace declares them.

use usertrace_ring::schema::FieldType;

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: FieldType,
    /// What the number of its elements is called, if it is a sequence.
    pub length_name: Option<String>,
}

/// How long fields are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Fixed(usize),
    /// That depends on what they are.
    Varies,
}

impl Length {
    pub(crate) fn of(fields: &[Field]) -> Self {
        let mut lens = fields.iter().map(|field| field.kind.fixed_len());
        let sum = lens.try_fold(0usize, |sum, len| sum.checked_add(len?));
        sum.map_or(Self::Varies, Self::Fixed)
    }

    /// How long such fields are at the start of `bytes`; it may be more than there is. None: more
    /// than there is.
    #[inline]
    pub(crate) fn at(self, fields: &[Field], bytes: &[u8]) -> Option<usize> {
        if let Self::Fixed(len) = self {
            return Some(len);
        }
        let mut end = 0usize;
        for field in fields {
            end = end.checked_add(field.kind.len(bytes.get(end..)?)?)?;
        }
        Some(end)
    }
}
