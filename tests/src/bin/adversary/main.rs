//! A random adversary for the kernel's side of tracing. It runs in the guest, as root, and starts
//! unprivileged actors.
//!
//! - Several traced programs make the three calls, and do to their areas all that a program can do
//!   to its memory.
//! - Readers of the tracing group do the same to consumer files.
//! - Root creates, changes and removes traces.
//! - Memory is short, allocations fail, and CPUs and programs come and go.
//!
//! Each word that an actor writes names its writer. An actor that reads any other word has found a
//! page that is still reachable after it was freed. After the run, the kernel's usage of memory,
//! files and crash entries must be what it was before.
//!
//! All random numbers follow from the seed, in a stream for each step of each thread of each
//! process. The order of steps among processes does not follow from it: a run with the same seed
//! makes the same steps in another order. With `--turns`, one single-threaded actor at a time makes
//! one step, in an order that follows from the seed: two such runs print the same sum.
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

/// The variable that chooses a program's back end.
const BACKEND: &str = "USERTRACE_BACKEND";

/// A copy of this program in memory.
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
        // Without the variable, the library would attach this program before `main`. Actors execute
        // the program often, which is slow from the host's file system.
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

/// Runs when an actor executes this program.
fn executed(by_sharer: bool) {
    // A pending update signal of the program before would end this one now.
    // SAFETY: `sigfillset` initialises the set, and no handler is installed.
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
