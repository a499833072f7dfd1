//! Recognizes begin and end events by their names.

/// Last words of the names of begin and end events, as used by the preload libraries, the `tracing`
/// layer, and most programs that are instrumented for other tracers.
const WORDS: &[(&str, &str)] = &[
    ("entry", "exit"),
    ("enter", "exit"),
    ("begin", "end"),
    ("start", "end"),
    ("start", "stop"),
    ("start", "done"),
    ("req", "acq"),
    ("req", "done"),
    (NEW, "close"),
    // `dlopen_req`, and `dlopen` at its end.
    ("req", ""),
];

/// Spans of `tracing`. A span outlives the periods in which threads are inside it.
const NEW: &str = "new";

/// Separators before the last word.
const SEPARATORS: [char; 4] = ['_', '.', '-', ':'];

/// The event that ends what this one begins, if `exists` says that it exists.
pub(crate) fn end_of(name: &str, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut ends = WORDS
        .iter()
        .filter_map(|&(first, last)| replace(name, first, last));
    ends.find(|end| exists(end))
}

/// The event that begins what this one ends, if it exists.
pub(crate) fn begin_of(name: &str, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    WORDS.iter().find_map(|&(first, last)| {
        let begin = replace(name, last, first)?;
        (exists(&begin) && end_of(&begin, exists).as_deref() == Some(name)).then_some(begin)
    })
}

/// Whether such a span may end in another thread, and after spans that began later. `begin` is the
/// name of its begin event.
pub(crate) fn is_async(begin: &str) -> bool {
    stem_of(begin, NEW).is_some()
}

/// The name of a span, from the name of its begin event: `libc:read` for `libc:read_entry`,
/// `function` for `function:entry`.
pub(crate) fn stem(begin: &str) -> &str {
    let mut stems = WORDS.iter().filter_map(|(first, _)| stem_of(begin, first));
    stems.next().unwrap_or(begin)
}

fn stem_of<'a>(name: &'a str, word: &str) -> Option<&'a str> {
    let stem = name.strip_suffix(word)?.strip_suffix(SEPARATORS)?;
    (!stem.is_empty()).then_some(stem)
}

/// Replaces the last word of a name. An empty word has no separator.
fn replace(name: &str, from: &str, to: &str) -> Option<String> {
    if from.is_empty() {
        return Some(format!("{name}_{to}"));
    }
    let stem = name.strip_suffix(from)?;
    if !stem.is_empty() && !stem.ends_with(SEPARATORS) {
        return None;
    }
    if to.is_empty() {
        return stem_of(name, from).map(str::to_owned);
    }
    Some(format!("{stem}{to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_and_end_events_are_paired_by_name() {
        let events = [
            "function:entry",
            "function:exit",
            "sys:read_entry",
            "sys:read_exit",
            "a:b.enter",
            "a:b.exit",
            "dl:dlopen_req",
            "dl:dlopen",
            "m:lock_req",
            "m:lock_acq",
            "m:lock",
            "t:start",
            "t:end",
            "span.new",
            "span.close",
            "x:tick_begin",
            "x:carry",
            "x:exit",
            "x:weekend",
        ];
        let exists = |name: &str| events.contains(&name);
        for (begin, end, called) in [
            ("function:entry", "function:exit", "function"),
            ("sys:read_entry", "sys:read_exit", "sys:read"),
            ("a:b.enter", "a:b.exit", "a:b"),
            ("dl:dlopen_req", "dl:dlopen", "dl:dlopen"),
            ("m:lock_req", "m:lock_acq", "m:lock"),
            ("t:start", "t:end", "t"),
            ("span.new", "span.close", "span"),
        ] {
            assert_eq!(end_of(begin, &exists).as_deref(), Some(end));
            assert_eq!(begin_of(end, &exists).as_deref(), Some(begin));
            assert_eq!(
                (begin_of(begin, &exists), end_of(end, &exists)),
                (None, None)
            );
            assert_eq!(stem(begin), called);
            assert_eq!(is_async(begin), begin == "span.new");
        }
        // Their counterparts do not exist, or they only look like a begin or an end.
        for name in ["x:tick_begin", "x:exit", "x:weekend", "x:carry", "m:lock"] {
            assert_eq!(
                (begin_of(name, &exists), end_of(name, &exists)),
                (None, None),
                "{name}"
            );
        }
    }
}
