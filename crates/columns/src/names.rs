//! Names of directories and columns, made of names that any program may have chosen.

use std::collections::HashSet;

/// Longest name that the escaped value of a directory may have; the key and `=` come before it.
/// File systems take 255 bytes.
const MAX_VALUE: usize = 200;

/// The value that Hive and its successors read as null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The name of a directory of a partition: `KEY=VALUE`.
///
/// The value is escaped as Hive does: `%` and two hexadecimal digits for each character that a path
/// or a shell may take for something else. A value that would be too long is cut, and `~` and a
/// hash of the whole value follow. No value, and an empty one, become Hive's name for null.
#[must_use]
pub fn directory(key: &str, value: Option<&str>) -> String {
    let value = value.unwrap_or_default();
    if value.is_empty() {
        return format!("{key}={NULL}");
    }
    let mut name = format!("{key}=");
    let start = name.len();
    for (at, c) in value.char_indices() {
        let before = name.len();
        // What only looks like null is not.
        if is_special(c) || at == 0 && value == NULL {
            name.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            name.push(c);
        }
        if name.len() - start > MAX_VALUE {
            name.truncate(before);
            name.push_str(&format!("~{:016x}", hash(value)));
            break;
        }
    }
    name
}

/// The characters that Hive escapes, and the tilde, which marks a value that was cut.
fn is_special(c: char) -> bool {
    c.is_ascii_control() || "\"#%'*/:=?\\{[]^~".contains(c)
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The names of a table's columns, each once. Upper and lower case count as the same, as in SQL.
#[derive(Debug, Default)]
pub(crate) struct ColumnNames(HashSet<String>);

impl ColumnNames {
    /// With names that no other column may get.
    pub(crate) fn new(reserved: &[&str]) -> Self {
        Self(reserved.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Takes the first free name: the wanted one, with `prefix` in front if that is taken, or with
    /// a number from 2 on behind.
    pub(crate) fn take(&mut self, wanted: &str, prefix: &str) -> String {
        if !wanted.is_empty() && self.0.insert(wanted.to_lowercase()) {
            return wanted.to_owned();
        }
        let stem = format!("{prefix}{wanted}");
        let numbered = (2u64..).map(|number| format!("{stem}_{number}"));
        let mut names = std::iter::once(stem.clone()).chain(numbered);
        // The second one is free at the latest when all others are taken.
        names
            .find(|name| self.0.insert(name.to_lowercase()))
            .unwrap_or(stem)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What engines make of the name of a directory.
    fn unescaped(name: &str) -> Option<String> {
        let (_, value) = name.split_once('=')?;
        if value == NULL {
            return None;
        }
        let mut bytes = Vec::new();
        let mut rest = value.as_bytes();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let (digits, behind) = rest.split_at(2);
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        }
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn directories_are_named_as_hive_does() {
        for (value, name) in [
            (Some("libc:malloc"), "event=libc%3Amalloc"),
            (Some("a/../b"), "event=a%2F..%2Fb"),
            (Some(".."), "event=.."),
            (Some("x=%2F\0\n"), "event=x%3D%252F%00%0A"),
            (Some("zürich 1"), "event=zürich 1"),
            (Some(""), "event=__HIVE_DEFAULT_PARTITION__"),
            (None, "event=__HIVE_DEFAULT_PARTITION__"),
            (
                Some("__HIVE_DEFAULT_PARTITION__"),
                "event=%5F_HIVE_DEFAULT_PARTITION__",
            ),
        ] {
            assert_eq!(directory("event", value), name);
            let of_name = unescaped(name);
            assert_eq!(of_name.as_deref(), value.filter(|value| !value.is_empty()));
        }
    }

    #[test]
    fn long_values_are_cut_and_stay_different() {
        let names = ["a", "b"].map(|end| directory("event", Some(&("=".repeat(300) + end))));
        assert_ne!(names[0], names[1]);
        for name in names {
            assert!(name.len() <= 255 && name.contains("%3D~"), "{name}");
        }
        assert_eq!(directory("event", Some(&"a".repeat(200))).len(), 206);
    }

    proptest! {
        #[test]
        fn any_value_is_one_path_part(value in "\\PC{0,300}|[\u{0}-\u{7f}]{0,80}") {
            let name = directory("event", Some(&value));
            prop_assert!(!name.contains(['/', '\0']) && name.len() <= 255, "{name}");
            prop_assert_eq!(name.matches('=').count(), 1);
            let is_cut = name.contains('~');
            if !is_cut {
                prop_assert_eq!(unescaped(&name).unwrap_or_default(), value);
            }
        }
    }

    #[test]
    fn taken_names_get_a_prefix_or_a_number() {
        let mut names = ColumnNames::new(&["time"]);
        for (wanted, prefix, name) in [
            ("size", "field_", "size"),
            ("Size", "field_", "field_Size"),
            ("SIZE", "field_", "field_SIZE_2"),
            ("Time", "field_", "field_Time"),
            ("", "field_", "field_"),
            ("ctx_a", "", "ctx_a"),
            ("ctx_A", "", "ctx_A_2"),
            ("field_size", "field_", "field_field_size"),
        ] {
            assert_eq!(names.take(wanted, prefix), name);
        }
    }
}
