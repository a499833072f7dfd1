//! The system calls that a service's filter must allow, so that the library can use the kernel's
//! buffers.

/// The calls of the trace buffers. A systemd that is older than they are does not know their names.
pub(super) const TRACING: [&str; 3] = ["alloc_tracebuf", "ltt_switch", "ltt_update"];
/// The other system calls of the library, with the kernel's buffers.
const OTHERS: &str = "futex getcpu getcwd getpid gettid madvise membarrier mmap mprotect munmap \
                      nanosleep newfstatat prctl readlinkat rseq rt_sigprocmask tgkill uname";
/// The calls that systemd adds to each list of allowed calls.
const DEFAULT_SET: &str = "@default";
/// All calls that systemd knows.
pub(super) const KNOWN_SET: &str = "@known";

/// The assignments to `SystemCallFilter=` in a drop-in, besides those of the unit, so that the
/// filter allows the library's calls. `has_names`: systemd knows the calls of the trace buffers.
///
/// Without their names, a list of allowed calls cannot have them. A list of refused calls allows
/// all calls that it does not name. So the drop-in turns a list of allowed calls into a list of
/// refused calls: all that systemd knows, with the unit's exceptions.
pub(super) fn assignments(unit: &[&str], has_names: bool) -> Vec<String> {
    let Some(first) = unit.first() else {
        return Vec::new();
    };
    let needed = match has_names {
        true => format!("{} {OTHERS}", TRACING.join(" ")),
        false => OTHERS.to_owned(),
    };
    if first.starts_with('~') || has_names {
        return vec![needed];
    }
    let refuse_all = [
        String::new(),
        format!("~{KNOWN_SET}"),
        DEFAULT_SET.to_owned(),
    ];
    let exceptions = unit.iter().map(|line| (*line).to_owned());
    refuse_all
        .into_iter()
        .chain(exceptions)
        .chain([needed])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_allowed_calls_becomes_one_of_refused_calls() {
        let lines = ["@system-service", "~@privileged @resources", "mount:EPERM"];
        assert_eq!(
            assignments(&lines, false),
            [
                "",
                "~@known",
                "@default",
                "@system-service",
                "~@privileged @resources",
                "mount:EPERM",
                OTHERS
            ]
        );
    }

    #[test]
    fn a_list_of_refused_calls_stays_one() {
        assert_eq!(assignments(&[], false), [""; 0]);
        assert_eq!(assignments(&["~@mount", "@process"], false), [OTHERS]);
    }

    #[test]
    fn a_systemd_that_knows_the_calls_is_told_their_names() {
        let all = format!("alloc_tracebuf ltt_switch ltt_update {OTHERS}");
        assert_eq!(assignments(&["@system-service"], true), [all.as_str()]);
        assert_eq!(assignments(&["~@mount"], true), [all.as_str()]);
        assert_eq!(assignments(&[], true), [""; 0]);
    }
}
