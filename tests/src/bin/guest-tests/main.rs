//! What the kernel and the library promise to programs, tested in the guest.

mod areas;
mod breakpoint;
mod c;
mod calls;
mod channels;
mod charges;
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
mod mappings;
mod memory;
mod preload;
mod probes;
mod recorder;
mod remote;
mod scopes;
mod seccomp;
mod sessions;
mod stays;
mod systemd;
mod traces;
mod update;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use usertrace_tests::guest;

/// A test: its name, which begins with the requirements that it is for, and what it does.
type Case = (&'static str, fn());

/// The cases of a module, by the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name as fn())),*]
    };
}
pub(crate) use cases;

/// In this order: the first looks at a kernel that never had a trace.
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
    control::buffers::ALL,
    control::probes::ALL,
    control::reports::ALL,
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
    commands::CASES,
    channels::CASES,
    flight::CASES,
    recorder::CASES,
    sessions::CASES,
    stays::CASES,
    fuzz::CASES,
    cycles::CASES,
];

/// What takes long, and asks nothing of the series that others do not: on the debug kernel, which is several times as slow, by
/// name only.
const ON_ONE_KERNEL: &[&[Case]] = &[
    preload::ON_ONE_KERNEL,
    commands::ON_ONE_KERNEL,
    contexts::ON_ONE_KERNEL,
    recorder::ON_ONE_KERNEL,
    sessions::ON_ONE_KERNEL,
    stays::ON_ONE_KERNEL,
    systemd::ON_ONE_KERNEL,
];

/// What turns events of the kernel on and off, for which the kernel changes its own code as it runs. Under QEMU 7.2 a breakpoint
/// that it had taken back stopped it once: we take that for QEMU's keeping what another processor was just translating. By name
/// only, in a guest whose processors take turns (`scripts/guest --turns -- guest-tests f9_`).
const CHANGE_CODE: &[&[Case]] = &[kernel_events::CHANGE_CODE];

/// Tests that take longer say so, for those who wonder what takes so long.
const LONG: Duration = Duration::from_secs(10);

/// What says which back end a program takes.
const BACKEND: &str = "USERTRACE_BACKEND";

/// Lets this program begin without buffers: it has events, so the library gets it some before `main`. What asks for
/// them in the tests are children.
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

fn main() -> ExitCode {
    begin_without_buffers();
    let mut arguments = Arguments::from_args();
    if !arguments.list
        && let Err(why) = guest::check()
    {
        eprintln!("guest-tests: {why}");
        return ExitCode::FAILURE;
    }
    // They fork, and the traces and slots of the system are there once.
    arguments.test_threads = Some(1);
    let by_name = arguments.filter.is_some();
    let once = (by_name || !guest::is_debug()).then_some(ON_ONE_KERNEL);
    let change_code = by_name.then_some(CHANGE_CODE);
    let trials = [ALL]
        .into_iter()
        .chain(once)
        .chain(change_code)
        .flatten()
        .flat_map(|cases| cases.iter())
        .map(|&(name, test)| {
            Trial::test(name, move || {
                usertrace_tests::control::remove_all();
                let begun = Instant::now();
                test();
                if begun.elapsed() > LONG {
                    println!("{} s", begun.elapsed().as_secs());
                }
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
