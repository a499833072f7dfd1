//! Events that say that something begins, or that it has ended.

/// What events say in pairs, by the ends of their names: the beginning, and the end. As preloaded libraries, the layer for
/// `tracing`, and most programs that are instrumented for other tracers call them.
const PAIRS: [(&str, &str); 6] = [
    ("entry", "exit"),
    ("enter", "exit"),
    ("begin", "end"),
    ("start", "end"),
    ("req", "acq"),
    // `dlopen_req`, and `dlopen` when it is done.
    ("req", ""),
];

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Begin,
    End,
    Neither,
}

/// What an event says, and how what it says that of is called: `libc:read` of `libc:read_entry`, `function` of
/// `function:entry`. Only if its other half is an event, too, as `is_event` says.
pub(super) fn part(name: &str, is_event: impl Fn(&str) -> bool) -> (Part, &str) {
    // Up to the last word of it, and what keeps that apart.
    for (begin, end) in PAIRS {
        if let Some(stem) = stem(name, begin)
            && is_event(&other(name, begin, end))
        {
            return (Part::Begin, stem);
        }
        if end.is_empty() {
            if ["_", "."]
                .iter()
                .any(|sign| is_event(&format!("{name}{sign}{begin}")))
            {
                return (Part::End, name);
            }
        } else if let Some(stem) = stem(name, end)
            && is_event(&other(name, end, begin))
        {
            return (Part::End, stem);
        }
    }
    (Part::Neither, name)
}

/// What is left of a name that ends with this word.
fn stem<'a>(name: &'a str, word: &str) -> Option<&'a str> {
    name.strip_suffix(word)?.strip_suffix(['_', '.', ':'])
}

/// The name with another last word.
fn other(name: &str, word: &str, other: &str) -> String {
    let before = &name[..name.len() - word.len()];
    match other {
        "" => before[..before.len() - 1].to_owned(),
        other => format!("{before}{other}"),
    }
}

/// What has begun on a thread, and has not ended.
#[derive(Debug, Default)]
pub(super) struct Stack {
    open: Vec<u64>,
}

/// Deeper than any thread's own stack would be; ends may be missing for ever.
const MAX_DEPTH: usize = 4096;

impl Stack {
    /// It begins. False: too much has.
    pub(super) fn begin(&mut self, what: u64) -> bool {
        let has_room = self.open.len() < MAX_DEPTH;
        if has_room {
            self.open.push(what);
        }
        has_room
    }

    /// It ends: so many that begun within it end with it, as their own ends are missing. None: it has not begun.
    pub(super) fn end(&mut self, what: u64) -> Option<usize> {
        let at = self.open.iter().rposition(|&open| open == what)?;
        let within = self.open.len() - at - 1;
        self.open.truncate(at);
        Some(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_known_by_their_names() {
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
            "x:tick_begin",
            "x:carry",
            "x:exit",
            "x:weekend",
        ];
        for (name, expected) in [
            ("function:entry", (Part::Begin, "function")),
            ("function:exit", (Part::End, "function")),
            ("sys:read_entry", (Part::Begin, "sys:read")),
            ("sys:read_exit", (Part::End, "sys:read")),
            ("a:b.enter", (Part::Begin, "a:b")),
            ("a:b.exit", (Part::End, "a:b")),
            ("dl:dlopen_req", (Part::Begin, "dl:dlopen")),
            ("dl:dlopen", (Part::End, "dl:dlopen")),
            ("m:lock_req", (Part::Begin, "m:lock")),
            ("m:lock_acq", (Part::End, "m:lock")),
            ("t:start", (Part::Begin, "t")),
            ("t:end", (Part::End, "t")),
            // Its end is no event; nor is what only looks like a half one.
            ("x:tick_begin", (Part::Neither, "x:tick_begin")),
            ("x:exit", (Part::Neither, "x:exit")),
            ("x:weekend", (Part::Neither, "x:weekend")),
            ("x:carry", (Part::Neither, "x:carry")),
        ] {
            assert_eq!(
                part(name, |name| events.contains(&name)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn ends_that_are_missing_are_made_up_for() {
        let mut stack = Stack::default();
        assert_eq!(stack.end(1), None);
        for what in [1, 2, 1, 3] {
            assert!(stack.begin(what));
        }
        assert_eq!(stack.end(1), Some(1));
        assert_eq!(stack.end(3), None);
        assert_eq!(stack.end(1), Some(1));
        assert_eq!(stack.end(2), None);
        assert!((0..MAX_DEPTH).all(|_| stack.begin(5)));
        assert!(!stack.begin(6));
        assert_eq!(stack.end(6), None);
    }
}
