//! A random adversary for the kernel's side of tracing. It runs in the guest, as root, and starts
//! unprivileged actors.
//!
//! Several traced programs make the three calls, and do to their areas all that a program can do to
//! its memory; readers of the group that may trace do the same to consumer files; root creates,
//! changes and removes traces; memory, CPUs and programs come and go; and allocations fail. All
//! that is written anywhere says who wrote it: whoever reads something else has found a page that
//! is reachable after its end. When all is over, everything must be as it was before.
//!
//! All random numbers follow from the seed, in a stream for each step of each thread of each
//! process. How the steps of several processes interleave follows from nothing: a run with the same
//! seed makes the same steps, in another order among processes. `--turns` has one actor of one
//! thread make one step at a time, in an order that follows from the seed, too: two such runs make
//! the same steps in the same order, and print the same sum.
//!
//! ```sh
//! cargo build --workspace && scripts/guest --config debug -- "$PWD/target/debug/adversary" --seconds 60
//! ```

mod actor;
mod actors;
mod calls;
mod files;
mod history;
mod kinds;
mod oracle;
mod pattern;
mod plan;
mod probe;
mod report;
mod run_state;
mod scene;
mod supervisor;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use clap::Parser;
use usertrace_tests::guest;

use crate::plan::Plan;

/// Try to break the kernel's side of tracing by random calls, in the guest.
#[derive(Parser)]
struct Options {
    /// Number that all random numbers follow from [default: any]
    #[arg(long)]
    seed: Option<u64>,
    /// How long the run lasts, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many steps all actors make at most [default: no limit]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    calls: u64,
    /// Let one actor of one thread make one step at a time, so that a seed reproduces the run
    /// exactly
    #[arg(long)]
    turns: bool,
    /// Leave all CPUs on
    #[arg(long)]
    no_hotplug: bool,
    /// Overlook lines of the kernel's log with this text; the guest needs it as --allow-splat
    #[arg(long, value_name = "TEXT")]
    allow: Vec<String>,
}

/// What says which back end a program takes.
const BACKEND: &str = "USERTRACE_BACKEND";

/// Where this program is while it runs, in memory.
const COPY: &str = "/tmp/adversary-program";

fn main() -> ExitCode {
    let first = std::env::args_os().nth(1);
    for (argument, by_sharer) in [
        (calls::life::EXECUTED, false),
        (calls::life::EXECUTED_BY_SHARER, true),
    ] {
        if first
            .as_ref()
            .is_some_and(|first| first.as_encoded_bytes() == argument.to_bytes())
        {
            executed(by_sharer);
            return ExitCode::SUCCESS;
        }
    }
    if let Err(why) = guest::check() {
        eprintln!("adversary: {why}");
        return ExitCode::FAILURE;
    }
    if std::env::var_os(BACKEND).is_none() {
        // The library would get this program areas before `main`. And its actors execute it again
        // and again, which takes long from the host's file system.
        if let Err(error) = std::fs::copy("/proc/self/exe", COPY) {
            eprintln!("adversary: {COPY}: {error}");
            return ExitCode::FAILURE;
        }
        let error = Command::new(COPY)
            .args(std::env::args_os().skip(1))
            .env(BACKEND, "off")
            .exec();
        eprintln!("adversary: it cannot execute itself: {error}");
        return ExitCode::FAILURE;
    }
    let options = Options::parse();
    let plan = Plan {
        seed: options.seed.unwrap_or_else(plan::any_seed),
        seconds: options.seconds,
        calls: options.calls,
        turns: options.turns,
        hotplug: !options.no_hotplug,
    };
    if supervisor::watch(plan, options.allow) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What this program does when an actor executes it.
fn executed(by_sharer: bool) {
    // A signal that another program has asked for would end this one now.
    // SAFETY: The set is whole, and nothing runs but by default.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const all, std::ptr::null_mut());
    }
    probe::init();
    let actor = actor::Actor {
        run: run_state::RunState::inherited(),
        plan: Plan {
            seed: 0,
            seconds: 0,
            calls: 0,
            turns: false,
            hotplug: false,
        },
        who: plan::ThreadId {
            actor: 0,
            round: 0,
            thread: 0,
        },
        is_child: true,
    };
    calls::life::executed(&actor, by_sharer);
}
