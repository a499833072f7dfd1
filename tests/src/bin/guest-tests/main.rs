//! Tests of the kernel's and the library's promises to programs. They run in the guest.

mod adversary;
mod areas;
mod breakpoint;
mod c;
mod calls;
mod channels;
mod charges;
mod clock;
mod commands;
mod consumer;
mod contexts;
mod control;
mod cycles;
mod discovery;
mod events;
mod flight;
mod fuzz;
mod hotplug;
mod info;
mod isolation;
mod kernel_events;
mod kernel_mappings;
mod layer;
mod lifecycle;
mod live_memory;
mod locks;
mod long_running;
mod mappings;
mod memory;
mod neighbours;
mod preload;
mod probes;
mod recorder;
mod relay;
mod remote;
mod saved;
mod scopes;
mod seccomp;
mod sessions;
mod systemd;
mod tiers;
mod traces;
mod trigger_commands;
mod triggers;
mod update;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use libtest_mimic::Arguments;
use usertrace_tests::{guest, progress};

/// A test: its name and its function.
type Case = (&'static str, fn());

/// The cases of a module, by the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name as fn())),*]
    };
}
pub(crate) use cases;

/// All tests, in this order: the first needs a kernel that never had a trace.
const ALL: &[&[Case]] = &[
    info::BEFORE_THE_FIRST_TRACE,
    discovery::CASES,
    c::CASES,
    calls::CASES,
    areas::CASES,
    kernel_mappings::CASES,
    traces::CASES,
    update::CASES,
    info::CASES,
    consumer::CASES,
    charges::CASES,
    events::CASES,
    layer::CASES,
    probes::CASES,
    control::Cases::BUFFERS,
    control::Cases::PROBES,
    control::Cases::REPORTS,
    preload::CASES,
    memory::CASES,
    remote::CASES,
    scopes::CASES,
    lifecycle::CASES,
    live_memory::CASES,
    mappings::CASES,
    seccomp::CASES,
    hotplug::CASES,
    isolation::CASES,
    neighbours::CASES,
    commands::CASES,
    channels::CASES,
    flight::CASES,
    triggers::CASES,
    clock::CASES,
    recorder::CASES,
    sessions::CASES,
    long_running::CASES,
    fuzz::CASES,
    cycles::CASES,
];

/// Long tests that reach no path of the series which others do not. They run by name only on the
/// debug kernel, which is several times as slow.
const ON_ONE_KERNEL: &[&[Case]] = &[
    preload::ON_ONE_KERNEL,
    commands::ON_ONE_KERNEL,
    contexts::ON_ONE_KERNEL,
    recorder::ON_ONE_KERNEL,
    saved::ON_ONE_KERNEL,
    sessions::ON_ONE_KERNEL,
    long_running::ON_ONE_KERNEL,
    relay::ON_ONE_KERNEL,
    systemd::ON_ONE_KERNEL,
    trigger_commands::ON_ONE_KERNEL,
];

/// Tests that turn the kernel's events on and off, for which the kernel patches its own code. Under
/// QEMU 7.2, the kernel once stopped at a breakpoint that it had removed: QEMU had probably kept a
/// translation of another processor. They run by name only, in a guest whose processors take turns
/// (`scripts/guest --turns -- guest-tests kernel_event`).
const CHANGE_CODE: &[&[Case]] = &[kernel_events::CHANGE_CODE];

/// Tests that need the debug kernel.
const ON_THE_DEBUG_KERNEL: &[&[Case]] =
    &[locks::ON_THE_DEBUG_KERNEL, adversary::ON_THE_DEBUG_KERNEL];

/// Tests for a guest whose time-stamp counter is unstable. They run by name only
/// (`scripts/guest --append tsc=unstable -- guest-tests unstable_clock`).
const ON_AN_UNSTABLE_CLOCK: &[&[Case]] = &[clock::ON_AN_UNSTABLE_CLOCK];

/// The variable that chooses a program's back end.
const BACKEND: &str = "USERTRACE_BACKEND";

/// Restarts this program without a back end: it has events, so the library attaches it before
/// `main`. In the tests, only children attach.
fn begin_without_buffers() {
    if std::env::var_os(BACKEND).is_none() {
        let mut own = Command::new("/proc/self/exe");
        let error = own
            .args(std::env::args_os().skip(1))
            .env(BACKEND, "off")
            .exec();
        panic!("cannot execute itself: {error}");
    }
    // SAFETY: there are no other threads yet.
    unsafe { std::env::remove_var(BACKEND) };
}

/// All cases, each with its kind: the words by which `scripts/test` selects tests
/// (`vm/src/suite/kind.rs`).
fn all() -> Vec<progress::Case> {
    let lists = [
        ("", ALL),
        ("release", ON_ONE_KERNEL),
        ("turns", CHANGE_CODE),
        ("debug", ON_THE_DEBUG_KERNEL),
        ("clock", ON_AN_UNSTABLE_CLOCK),
    ];
    let mut all = Vec::new();
    for (guest, list) in lists {
        for &(name, test) in list.iter().copied().flatten() {
            let kind = match guest {
                "" if tiers::CHANGE_STATE.contains(&name) => "state",
                "" if tiers::LONG.contains(&name) => "full",
                "release" if tiers::LONG.contains(&name) => "release full",
                "turns" if tiers::LONG.contains(&name) => "turns full",
                _ => guest,
            };
            all.push(progress::Case { name, kind, test });
        }
    }
    for (list, word) in [(tiers::CHANGE_STATE, "state"), (tiers::LONG, "full")] {
        for name in list {
            let mut named = all.iter().filter(|case| case.name == *name);
            let is_of_it = |case: &progress::Case| case.is_of(word);
            assert!(named.any(is_of_it), "no test {name} can be \"{word}\"");
        }
    }
    all
}

fn main() -> ExitCode {
    begin_without_buffers();
    let arguments = Arguments::from_args();
    if !arguments.list
        && let Err(why) = guest::check()
    {
        eprintln!("guest-tests: {why}");
        return ExitCode::FAILURE;
    }
    let mut cases = all();
    // Started by hand without a name: the tests for this kernel.
    if !arguments.list && arguments.filter.is_none() && !progress::is_driven() {
        cases.retain(|case| {
            let is_for_this_kernel = if guest::is_debug() {
                !case.is_of("release")
            } else {
                !case.is_of("debug")
            };
            is_for_this_kernel && !case.is_of("turns") && !case.is_of("clock")
        });
    }
    progress::run(arguments, &cases, usertrace_tests::control::remove_all)
}
