//! Demangles names of C++ and Rust functions.

use std::fmt::{self, Write};

use usertrace_sys::printable;

/// Maximum length in bytes of a mangled name, and of a demangled one. Mangled names refer back to
/// their own parts, so a short one may stand for an endless text.
const MAX_MANGLED: usize = 16 << 10;
const MAX_NAME: usize = 8 << 10;

/// Demangles a name, if it is mangled, and makes it printable.
pub(crate) fn demangle(raw: &[u8]) -> String {
    let raw = raw.get(..MAX_MANGLED).unwrap_or(raw);
    let name = String::from_utf8_lossy(raw);
    // Linkers append versions: `memcpy@@GLIBC_2.14`.
    let name = match name.split_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        _ => &name,
    };
    printable(&demangled(name).unwrap_or_else(|| shorten(name)))
}

fn demangled(name: &str) -> Option<String> {
    // Rust's legacy names are also valid names of C++.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return written(|out| write!(out, "{rust:#}"));
    }
    let symbol = name.starts_with("_Z").then_some(name)?;
    let symbol = cpp_demangle::Symbol::new(symbol).ok()?;
    let options = cpp_demangle::DemangleOptions::new().no_return_type();
    written(|out| symbol.structured_demangle(out, &options))
}

/// A text of limited length.
#[derive(Default)]
struct Short {
    text: String,
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// None if the text gets too long.
fn written(write: impl FnOnce(&mut Short) -> fmt::Result) -> Option<String> {
    let mut short = Short::default();
    write(&mut short).ok()?;
    Some(short.text)
}

fn shorten(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME / 4) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpp_and_rust_are_demangled() {
        for (mangled, name) in [
            ("main", "main"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_ZN4shop4CartC2Ev", "shop::Cart::Cart()"),
            ("_ZN4shop4leakIiEEvT_", "shop::leak<int>(int)"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Z", "_Z"),
            ("a\x1b[31mb", "a\u{fffd}[31mb"),
        ] {
            assert_eq!(demangle(mangled.as_bytes()), name);
        }
    }

    /// A name that doubles with each of its parts stays as it is, and takes no time.
    #[test]
    fn names_that_expand_without_end_are_left_mangled() {
        let mut bomb = String::from("_Z1fI1aE1bI");
        for _ in 0..60 {
            bomb = format!("_Z1fSt4pairI{0}{0}E", &bomb[2..bomb.len().min(2000)]);
        }
        assert!(demangle(bomb.as_bytes()).len() <= MAX_NAME);
        let doubling: String = (0..64)
            .map(|n| {
                let digit = char::from_digit(n % 36, 36).unwrap().to_ascii_uppercase();
                format!("St4pairIS{digit}_S{digit}_E")
            })
            .collect();
        assert!(demangle(format!("_Z1f{doubling}").as_bytes()).len() <= MAX_NAME);
    }
}
