//! Rules for which events form pairs, by their names and fields.

use usertrace_ring::schema::{FieldType, Scalar};

use usertrace_reader::Field;

use crate::pair_names;

/// Events after which a thread holds a mutex, if their field `result` is 0.
const ACQUIRED: &[&str] = &[
    "pthread:mutex_lock_acq",
    "pthread:mutex_timedlock_acq",
    "pthread:mutex_clocklock_acq",
    "pthread:mutex_trylock",
    "pthread:cond_wait_acq",
    "pthread:cond_timedwait_acq",
    "pthread:cond_clockwait_acq",
];

/// Events after which a thread does not hold a mutex, for example while it waits for a condition.
const RELEASED: &[&str] = &[
    "pthread:mutex_unlock",
    "pthread:cond_wait_req",
    "pthread:cond_timedwait_req",
    "pthread:cond_clockwait_req",
];

/// The name of the pair for holding a mutex.
const HELD: &str = "pthread:mutex held";

/// What an event does to a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairRule {
    pub(super) pair: String,
    pub(super) is_end: bool,
    /// Another thread may end it; the field identifies it.
    pub(super) is_async: bool,
    /// The field that identifies the instance.
    pub(super) key: Option<usize>,
    /// A field that must be 0 for the rule to apply.
    pub(super) only_if: Option<usize>,
}

/// The index of an integer field.
pub(super) fn field(fields: &[Field], name: &str) -> Option<usize> {
    let is_integer = |field: &Field| {
        matches!(
            field.kind,
            FieldType::Scalar(Scalar::Integer(_)) | FieldType::Enum(..)
        )
    };
    fields
        .iter()
        .position(|field| field.name == name && is_integer(field))
}

/// The rules for an event with this name and these fields, ends first. `exists` says whether the
/// trace has an event of a name.
pub(super) fn actions(
    name: &str,
    fields: &[Field],
    exists: &dyn Fn(&str) -> bool,
) -> Vec<PairRule> {
    let mut actions = Vec::new();
    let span = field(fields, "span");
    let mut add = |begin: &str, end: &str, is_end| {
        let is_async = pair_names::is_async(begin);
        // The event has no span, so the name is a coincidence.
        if is_async && span.is_none() {
            return;
        }
        let short = end.split_once(':').map_or(end, |(_, short)| short);
        actions.push(PairRule {
            pair: format!("{begin} → {short}"),
            is_end,
            is_async,
            key: span,
            only_if: None,
        });
    };
    if let Some(begin) = pair_names::begin_of(name, exists) {
        add(&begin, name, true);
    }
    if let Some(end) = pair_names::end_of(name, exists) {
        add(name, &end, false);
    }
    if let Some(mutex) = field(fields, "mutex") {
        let mut held = |is_end, only_if| {
            actions.push(PairRule {
                pair: HELD.to_owned(),
                is_end,
                is_async: false,
                key: Some(mutex),
                only_if,
            });
        };
        if RELEASED.contains(&name) {
            held(true, None);
        }
        if ACQUIRED.contains(&name)
            && let Some(result) = field(fields, "result")
        {
            // A wait holds the mutex afterwards even if it timed out.
            let is_wait = name.starts_with("pthread:cond");
            held(false, (!is_wait).then_some(result));
        }
    }
    actions.sort_by_key(|action| !action.is_end);
    actions
}

/// What an event of the C library's allocator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapUse {
    /// The fields with the released and the allocated address.
    pub(super) frees: Option<usize>,
    pub(super) gives: Option<usize>,
    /// Fields whose product is the size.
    pub(super) size: Option<usize>,
    pub(super) times: Option<usize>,
    /// A field that is 0 if the allocation succeeded.
    pub(super) result: Option<usize>,
}

impl HeapUse {
    pub(super) fn of(name: &str, fields: &[Field]) -> Option<Self> {
        let field = |name| field(fields, name);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> Vec<Field> {
        let text: Vec<String> = names.iter().map(|name| format!("u64 {name}")).collect();
        let line = format!("1 t:e 6 {}", text.join(";"));
        let event = usertrace_ring::schema::Event::parse(line.as_bytes()).unwrap();
        let fields = event.fields.into_iter();
        fields
            .map(|field| Field {
                name: field.name,
                kind: field.kind,
                length_name: None,
            })
            .collect()
    }

    fn of(all: &[&str], name: &str, names: &[&str]) -> Vec<(String, bool, bool)> {
        let exists = |name: &str| all.contains(&name);
        let actions = actions(name, &fields(names), &exists);
        let tell = |action: PairRule| (action.pair, action.is_end, action.is_async);
        actions.into_iter().map(tell).collect()
    }

    #[test]
    fn pairs_are_found_by_name() {
        let all = [
            "a:read_entry",
            "a:read_exit",
            "a:start",
            "a:end",
            "f:entry",
            "f:exit",
            "s:x.enter",
            "s:x.exit",
            "s:x.new",
            "s:x.close",
            "dl:dlopen_req",
            "dl:dlopen",
            "a:only_begin",
            "a:restart",
            "p:l_req",
            "p:l_acq",
            "p:l_done",
        ];
        let pair = |name: &str, is_end, is_async| vec![(name.to_owned(), is_end, is_async)];
        assert_eq!(
            of(&all, "a:read_entry", &["n"]),
            pair("a:read_entry → read_exit", false, false)
        );
        assert_eq!(
            of(&all, "a:read_exit", &["n"]),
            pair("a:read_entry → read_exit", true, false)
        );
        assert_eq!(
            of(&all, "a:end", &["n"]),
            pair("a:start → end", true, false)
        );
        assert_eq!(
            of(&all, "f:entry", &["n"]),
            pair("f:entry → exit", false, false)
        );
        assert_eq!(
            of(&all, "s:x.exit", &["span"]),
            pair("s:x.enter → x.exit", true, false)
        );
        assert_eq!(
            of(&all, "s:x.close", &["span"]),
            pair("s:x.new → x.close", true, true)
        );
        assert_eq!(
            of(&all, "dl:dlopen", &["n"]),
            pair("dl:dlopen_req → dlopen", true, false)
        );
        assert_eq!(
            of(&all, "p:l_acq", &["n"]),
            pair("p:l_req → l_acq", true, false)
        );
        for none in ["a:only_begin", "a:restart", "p:l_done"] {
            assert_eq!(of(&all, none, &["n"]), []);
        }
    }

    #[test]
    fn mutexes_are_held_between_lock_and_unlock() {
        let all = [
            "pthread:cond_wait_req",
            "pthread:cond_wait_acq",
            "pthread:mutex_unlock",
        ];
        let held = |is_end| ("pthread:mutex held".to_owned(), is_end, false);
        let wait = |is_end| {
            (
                "pthread:cond_wait_req → cond_wait_acq".to_owned(),
                is_end,
                false,
            )
        };
        assert_eq!(
            of(&all, all[0], &["cond", "mutex"]),
            [held(true), wait(false)]
        );
        assert_eq!(
            of(&all, all[1], &["mutex", "result"]),
            [wait(true), held(false)]
        );
        assert_eq!(of(&all, all[2], &["mutex"]), [held(true)]);
    }

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
