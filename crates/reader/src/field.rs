//! Fields that a trace declares.

use usertrace_ring::schema::FieldType;

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: FieldType,
    /// Name of the member that has the number of elements, if this is a sequence.
    pub length_name: Option<String>,
}

/// Total length of some fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Fixed(usize),
    /// It depends on the values.
    Varies,
}

impl Length {
    pub(crate) fn of(fields: &[Field]) -> Self {
        let mut lens = fields.iter().map(|field| field.kind.fixed_len());
        let sum = lens.try_fold(0usize, |sum, len| sum.checked_add(len?));
        sum.map_or(Self::Varies, Self::Fixed)
    }

    /// Length of these fields at the start of `bytes`. It may exceed `bytes`. None if a field is
    /// cut off.
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
