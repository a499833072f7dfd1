//! Names of the events of a call site of `tracing`.

use tracing_core::{Level, Metadata};
use usertrace::__private::strip_raw;
use usertrace::Loglevel;

use crate::part::Part;

/// Limit of a provider's or an event's name, in bytes. With both, a description has room for its
/// fields.
const MAX_NAME: usize = 255;

/// The beginning of a description: `PROVIDER:NAME LOGLEVEL`.
///
/// The provider is the target. `tracing` calls an unnamed event `event src/main.rs:12`, which
/// becomes `main.rs-12`. If the program has chosen the target, it becomes the module's path and the
/// line. The name of a span gets the suffix of its part.
pub(crate) fn head(metadata: &Metadata<'_>, part: Part) -> String {
    let provider = name(metadata.target());
    let own = match location(metadata.name()) {
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
fn location(name: &str) -> Option<(&str, &str)> {
    let location = name.strip_prefix("event ")?;
    let (file, line) = location.rsplit_once(':')?;
    line.bytes()
        .all(|b| b.is_ascii_digit())
        .then_some((file, line))
}

/// Makes a name valid for a description: `::` becomes a dot, and other invalid characters become
/// underscores.
fn name(text: &str) -> String {
    let text = text.replace("::", ".");
    let mut name: String = text
        .chars()
        .map(|c| match c {
            '.' | '-' => c,
            c => word(c),
        })
        .take(MAX_NAME)
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

/// Converts a log level to syslog's numbers. `TRACE`, which syslog lacks, gets the highest one.
fn loglevel(level: Level) -> Loglevel {
    match level {
        Level::ERROR => Loglevel::Error,
        Level::WARN => Loglevel::Warning,
        Level::INFO => Loglevel::Info,
        Level::DEBUG => Loglevel::DebugSystem,
        Level::TRACE => Loglevel::Debug,
    }
}
