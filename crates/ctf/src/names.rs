//! Conversion of names: of the kernel, and of files.

/// Converts a name of the kernel, which ends at a NUL.
#[must_use]
pub fn kernel_name(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Makes a file name that is not hidden and needs no quoting.
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
