//! Rules for which events form pairs, by their names and fields.

use usertrace_reader::Field;

use crate::fields::integer_field as field;
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
pub(crate) const HELD: &str = "pthread:mutex held";

/// Whether a pair is the time from asking for a lock to having it.
pub(crate) fn is_lock_wait(pair: &str) -> bool {
    let locks = ["pthread:mutex_", "pthread:rwlock_"];
    locks.iter().any(|lock| pair.starts_with(lock)) && pair.contains("_req → ")
}

/// What an event does to a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairRule {
    pub(crate) pair: String,
    pub(crate) is_end: bool,
    /// Another thread may end it; the field identifies it.
    pub(crate) is_async: bool,
    /// The field that identifies the instance.
    pub(crate) key: Option<usize>,
    /// A field that must be 0 for the rule to apply.
    pub(crate) only_if: Option<usize>,
}

/// The rules for an event with this name and these fields, ends first. `exists` says whether the
/// trace has an event of a name.
pub(crate) fn actions(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::tests::fields;

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
}
