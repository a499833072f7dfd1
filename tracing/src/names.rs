//! What the events of a callsite of `tracing` are called.

use tracing_core::{Level, Metadata};
use usertrace::Loglevel;
use usertrace::event::strip_raw;

use crate::part::Part;

/// Bytes of a provider's or an event's name at most: with both, a description has room for its
/// fields.
const MAX: usize = 255;

/// `PROVIDER:NAME LOGLEVEL`, as a description begins.
///
/// The provider is the target. `tracing` calls an event `event src/main.rs:12` if the program has
/// no name for it: that becomes `main.rs-12`, or if the program has chosen the target, the module's
/// path and the line. A span's name is its own, with what happens to it.
pub(crate) fn head(metadata: &Metadata<'_>, part: Part) -> String {
    let provider = name(metadata.target());
    let own = match place(metadata.name()) {
        Some((file, line)) => {
            let module = metadata
                .module_path()
                .filter(|module| *module != metadata.target());
            let file = file.rsplit('/').next().unwrap_or(file);
            name(&format!("{}-{line}", module.unwrap_or(file)))
        }
        None => name(metadata.name()),
    };
    let (suffix, level) = (part.suffix(), loglevel(*metadata.level()) as u32);
    format!("{provider}:{own}{suffix} {level}")
}

/// File and line in a name that `tracing`'s macros made.
fn place(name: &str) -> Option<(&str, &str)> {
    let place = name.strip_prefix("event ")?;
    let (file, line) = place.rsplit_once(':')?;
    line.bytes()
        .all(|b| b.is_ascii_digit())
        .then_some((file, line))
}

/// A name with none but the letters that a description takes: `::` becomes a dot, anything else
/// that must not be there an underscore.
fn name(text: &str) -> String {
    let text = text.replace("::", ".");
    let mut name: String = text
        .chars()
        .map(|c| match c {
            '.' | '-' => c,
            c => word(c),
        })
        .take(MAX)
        .collect();
    if name.is_empty() {
        name.push('_');
    }
    name
}

/// A field's name as an identifier.
pub(crate) fn field(name: &str) -> String {
    strip_raw(name).chars().map(word).collect()
}

fn word(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '_' }
}

/// As syslog numbers them. There is no number for what is more verbose than debugging: that is the
/// highest that there is.
fn loglevel(level: Level) -> Loglevel {
    match level {
        Level::ERROR => Loglevel::Error,
        Level::WARN => Loglevel::Warning,
        Level::INFO => Loglevel::Info,
        Level::DEBUG => Loglevel::DebugSystem,
        Level::TRACE => Loglevel::Debug,
    }
}
