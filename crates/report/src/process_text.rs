//! Names processes.

/// The name of a process, as far as it is known, and its number.
pub(crate) fn process_text(name: &str, pid: Option<i64>) -> String {
    let name = match name {
        "" => "process",
        name => name,
    };
    match pid {
        Some(pid) => format!("{name} ({pid})"),
        None => name.to_owned(),
    }
}
