//! Names of the kernel's, and of files.

/// A name of the kernel's: up to a NUL.
#[must_use]
pub fn kernel_name(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// `name`, as a name of a file that needs no quoting and hides nowhere.
#[must_use]
pub fn file_name(name: &str) -> String {
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    match safe.chars().next() {
        None => "_".to_owned(),
        Some(first @ ('.' | '-')) => safe.replacen(first, "_", 1),
        Some(_) => safe,
    }
}
