//! Recognizes the events of the C library's allocator.

use usertrace_reader::Field;

use crate::fields::integer_field;

/// What an event of the C library's allocator does. Its members are indices of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    /// The fields with the released and the allocated address.
    pub(crate) frees: Option<usize>,
    pub(crate) gives: Option<usize>,
    /// Fields whose product is the size.
    pub(crate) size: Option<usize>,
    pub(crate) times: Option<usize>,
    /// A field that is 0 if the allocation succeeded.
    pub(crate) result: Option<usize>,
}

impl HeapUse {
    /// What events of this name and with these fields do, if they are of the allocator.
    #[must_use]
    pub fn of(name: &str, fields: &[Field]) -> Option<Self> {
        let field = |name| integer_field(fields, name);
        let name = name.strip_prefix("libc:")?;
        let gives = Self {
            frees: None,
            gives: field("ptr"),
            size: field("size"),
            times: None,
            result: field("result"),
        };
        let found = match name {
            "malloc" | "posix_memalign" | "aligned_alloc" | "memalign" | "valloc" | "pvalloc" => {
                gives
            }
            "calloc" => Self {
                times: Some(field("nmemb")?),
                ..gives
            },
            "realloc" => Self {
                frees: Some(field("in_ptr")?),
                ..gives
            },
            "free" => Self {
                frees: Some(field("ptr")?),
                gives: None,
                ..gives
            },
            _ => return None,
        };
        (name == "free" || found.gives.is_some() && found.size.is_some()).then_some(found)
    }

    /// The size of the allocation. `value` reads a field of the event.
    pub fn size_of(&self, value: impl Fn(Option<usize>) -> Option<u64>) -> u64 {
        let size = value(self.size).unwrap_or(0);
        size.saturating_mul(value(self.times).unwrap_or(1))
    }

    /// The size of the allocation if there was one and it succeeded.
    pub fn allocated(&self, value: impl Fn(Option<usize>) -> Option<u64>) -> Option<u64> {
        let is_given = value(self.gives).is_some_and(|ptr| ptr != 0);
        let is_allocated = is_given && value(self.result).unwrap_or(0) == 0;
        is_allocated.then(|| self.size_of(&value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::tests::fields;

    #[test]
    fn heap_events_are_recognized() {
        let of = |name, names| HeapUse::of(name, &fields(names));
        let malloc = of("libc:malloc", &["size", "ptr"]).unwrap();
        assert_eq!(
            (malloc.size, malloc.gives, malloc.frees),
            (Some(0), Some(1), None)
        );
        let realloc = of("libc:realloc", &["in_ptr", "size", "ptr"]).unwrap();
        assert_eq!(
            (realloc.frees, realloc.size, realloc.gives),
            (Some(0), Some(1), Some(2))
        );
        let free = of("libc:free", &["ptr"]).unwrap();
        assert_eq!((free.frees, free.gives), (Some(0), None));
        assert_eq!(of("libc:malloc", &["size"]), None);
        assert_eq!(of("other:malloc", &["size", "ptr"]), None);
    }
}
