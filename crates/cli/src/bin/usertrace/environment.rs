//! The variables of the environment that the commands read, for the manual pages and the reference.

use clap::Command;

/// A variable, and the commands that read it.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// Names as on the command line; `usertrace` is the page of the whole command.
    commands: &'static [&'static str],
    pub(crate) meaning: &'static str,
}

/// Commands that start programs, and the page of the whole command: programs read these variables.
const PROGRAMS: &[&str] = &["usertrace", "record"];
/// Commands that name code addresses.
const SYMBOLS: &[&str] = &["view", "export", "report", "leaks"];
/// Commands that print times.
const TIMES: &[&str] = &["view", "export", "extract", "record", "snapshot", "daemon"];

const fn variable(
    name: &'static str,
    commands: &'static [&'static str],
    meaning: &'static str,
) -> Variable {
    Variable {
        name,
        commands,
        meaning,
    }
}

const ALL: &[Variable] = &[
    variable(
        "USERTRACE_PRELOAD_DIR",
        &["record"],
        "The directory of the libraries that --malloc, --pthread, --dl and --function preload. By default, they are beside \
         this program, in ../lib, or in ../lib/usertrace.",
    ),
    variable(
        "LD_PRELOAD",
        &["record"],
        "The libraries of --malloc, --pthread, --dl and --function are put in front of the libraries that it names.",
    ),
    variable(
        "USERTRACE_BACKEND",
        PROGRAMS,
        "Read by traced programs: kernel, fast (the fallback), auto (the kernel if possible, else the fallback), or off. By \
         default, kernel; auto if USERTRACE_OUTPUT is set. record sets it to fast on a kernel without trace buffers.",
    ),
    variable(
        "USERTRACE_OUTPUT",
        PROGRAMS,
        "Read by traced programs: the directory for the traces of the fallback, or null. record sets it on a kernel without \
         trace buffers.",
    ),
    variable(
        "USERTRACE_RINGS",
        PROGRAMS,
        "Read by traced programs, for the fallback: cpu (the default) for a ring for each CPU, or thread for a ring for each \
         thread.",
    ),
    variable(
        "USERTRACE_MODE",
        PROGRAMS,
        "Read by traced programs, for the fallback: discard (the default), overwrite, or block. record --flight and --block \
         set it.",
    ),
    variable(
        "USERTRACE_SUBBUF_SIZE",
        PROGRAMS,
        "Read by traced programs, for the fallback: bytes of a sub-buffer, with k or M for units [64k]. record --subbuf-size \
         sets it.",
    ),
    variable(
        "USERTRACE_SUBBUF_COUNT",
        PROGRAMS,
        "Read by traced programs, for the fallback: sub-buffers of a ring [64 for up to 16 rings, 32 for up to 32, else 16]. \
         record --subbuf-count sets it.",
    ),
    variable(
        "USERTRACE_FILTER",
        PROGRAMS,
        "Read by traced programs, for the fallback: patterns of events, as for record -e. record -e sets it.",
    ),
    variable(
        "USERTRACE_CONTEXTS",
        PROGRAMS,
        "Read by traced programs, for the fallback: names of contexts. record --context sets it.",
    ),
    variable(
        "USERTRACE_CTF",
        PROGRAMS,
        "Read by traced programs, for the fallback: the version of CTF, 1.8 (the default) or 2. record --ctf sets it.",
    ),
    variable(
        "USERTRACE_PREFAULT",
        PROGRAMS,
        "Read by traced programs, for the fallback: all allocates the pages of all rings before events need them.",
    ),
    variable(
        "USERTRACE_CLOCK",
        PROGRAMS,
        "Set by record for the programs that it starts: the time of day of the recording. Not to be set by hand.",
    ),
    variable(
        "USERTRACE_CONTROL",
        &[
            "usertrace",
            "record",
            "ctl",
            "start",
            "stop",
            "filter",
            "list",
        ],
        "Read by traced programs: signal, signal:N or thread opens a control channel, by which usertrace ctl and others \
         steer the program.",
    ),
    variable(
        "USERTRACE_SIGNAL",
        PROGRAMS,
        "Read by traced programs, for the kernel's buffers: the number of the signal that tells them of updates, or none \
         [SIGRTMIN+3].",
    ),
    variable(
        "USERTRACE_QUIET",
        PROGRAMS,
        "Read by traced programs: if it is set and not 0, the library prints nothing on standard error.",
    ),
    variable(
        "STATE_DIRECTORY",
        &["daemon"],
        "The directory for traces if -o names none. systemd sets it.",
    ),
    variable(
        "NOTIFY_SOCKET",
        &["daemon"],
        "The socket of systemd to which the daemon reports that it is ready, and its progress.",
    ),
    variable(
        "WATCHDOG_USEC",
        &["daemon"],
        "Microseconds within which systemd expects a sign of life; the daemon sends two in that time.",
    ),
    variable(
        "WATCHDOG_PID",
        &["daemon"],
        "The process that WATCHDOG_USEC is meant for.",
    ),
    variable(
        "JOURNAL_STREAM",
        &["daemon"],
        "Lines have the priorities of the journal if standard error is this stream.",
    ),
    variable(
        "PATH",
        &["record", "doctor"],
        "Where programs are searched: of record, the one to run; of doctor, babeltrace2.",
    ),
    variable(
        "DEBUGINFOD_URLS",
        SYMBOLS,
        "Servers from which debuginfod-find fetches debug files. Without it, nothing is downloaded.",
    ),
    variable(
        "DEBUGINFOD_CACHE_PATH",
        SYMBOLS,
        "Where debuginfod-find keeps these files.",
    ),
    variable(
        "TZ",
        TIMES,
        "The time zone of times that are printed or read.",
    ),
    variable(
        "SOURCE_DATE_EPOCH",
        &["generate"],
        "Seconds since 1970: the date of the manual pages.",
    ),
];

/// The variables that a command reads. The command is built, so that it has its whole name.
pub(crate) fn of(command: &Command) -> impl Iterator<Item = &'static Variable> + use<> {
    let whole = command.get_bin_name().unwrap_or(command.get_name());
    let name = whole.strip_prefix("usertrace ").unwrap_or(whole).to_owned();
    ALL.iter()
        .filter(move |variable| variable.commands.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    /// The names of a command and of all below it, as [`of`] compares them.
    fn names(command: &Command, into: &mut BTreeSet<String>) {
        let whole = command.get_bin_name().unwrap_or(command.get_name());
        into.insert(whole.strip_prefix("usertrace ").unwrap_or(whole).to_owned());
        for command in command.get_subcommands() {
            names(command, into);
        }
    }

    /// A command that is renamed, or named here by an alias, would lose its variables in the
    /// manual.
    #[test]
    fn each_variable_is_read_by_commands_that_exist() {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let mut known = BTreeSet::new();
        names(&command, &mut known);
        for variable in ALL {
            for name in variable.commands {
                assert!(
                    known.contains(*name),
                    "{}: there is no command {name:?}",
                    variable.name
                );
            }
        }
    }
}
