//! The command that `scripts/guest` and `scripts/test` call.

mod suite;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use usertrace_vm::{Guest, KernelConfig, Outcome, Streams};

#[derive(Parser)]
#[command(about, version)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Boot the patched kernel and run one command in it, as root
    Guest(GuestArgs),
    /// Run the tests of a tier, and print one sum over all, last
    Test(suite::Options),
}

/// Boot the patched kernel and run one command in it, as root.
///
/// The guest sees this machine's root read-only, the repository at its own path, and may write to
/// /tmp (gone at the end) and /out. Standard input, output and error and the exit status pass
/// through exactly; a command that signal N kills has status 128 + N. Without a command: a shell.
#[derive(Args)]
#[command(after_long_help = "\
Exit status:
  the command's own, or
  120  the harness is broken: nothing is known about the command
  121  the kernel panicked
  122  the guest hung: no sign of life
  123  the command was not over in time
  124  the command ended, but the kernel reported a mistake of its own (a warning, KASAN, lockdep, a leak, ...)
With one of the last five, standard error ends with the end of the console, the console log's path and a line
`outcome: ...`. A command that exits with such a number itself has no such line; and the file `outcome` beside
each console log tells every run's outcome.

Environment:
  USERTRACE_CACHE   where kernels and run directories are (default: ~/.cache/usertrace)
  USERTRACE_KERNEL  a bzImage to boot instead of the one that scripts/kernel built
  USERTRACE_ACCEL   kvm: use KVM; anything else: TCG, which works everywhere
  USERTRACE_RANDOM_ADDRESSES  set: programs are at random addresses, each start of one takes 2.5 times as long")]
struct GuestArgs {
    /// Number of processors
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    smp: u32,
    /// Size of memory: a number with K, M or G, or of MiB [default: 1G, debug 2G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Which kernel
    #[arg(long, value_enum, default_value_t)]
    config: KernelConfig,
    /// Let the guest's time-stamp counter count instructions: the same work takes the same count on
    /// every host
    #[arg(long)]
    icount: bool,
    /// Let the guest's processors take turns: slower, and without those of QEMU's mistakes that
    /// take two at once
    #[arg(long)]
    turns: bool,
    /// Arm kdump: a panic leaves the dump `vmcore` in the directory of --out
    #[arg(long)]
    crash: bool,
    /// Seconds that the whole run may take [default: 600, debug 2400]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Seconds without a sign of life after which the guest hangs [default: 30, debug 120; booting
    /// half as much again]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    silence: Option<u64>,
    /// Directory of this machine's that is /out in the guest [default: one in the run's directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// More arguments for the kernel
    #[arg(long, value_name = "KERNEL_ARGS", allow_hyphen_values = true)]
    append: Vec<String>,
    /// Variable for the command, NAME=VALUE, or NAME to pass this environment's on
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Text that makes a line of the console no splat
    #[arg(long, value_name = "TEXT")]
    allow_splat: Vec<String>,
    /// Command and arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|e| {
        let _ = e.print();
        // `--help` succeeds. A wrong command line has the status of a harness error.
        std::process::exit(if e.use_stderr() {
            i32::from(Outcome::Infra(String::new()).code())
        } else {
            0
        });
    });
    let done = match cli.action {
        Action::Guest(args) => guest(args),
        Action::Test(options) => suite::run(&options).map(|well| ExitCode::from(u8::from(!well))),
    };
    done.unwrap_or_else(|e| {
        eprintln!("usertrace-vm: {e:#}");
        let outcome = Outcome::Infra(format!("{e:#}"));
        eprintln!("outcome: {outcome}");
        ExitCode::from(outcome.code())
    })
}

fn guest(args: GuestArgs) -> Result<ExitCode> {
    let mut guest = Guest::new(args.config)?
        .smp(args.smp)
        .count_instructions(args.icount)
        .take_turns(args.turns)
        .crash(args.crash)
        .command(args.command);
    if let Some(size) = args.memory {
        guest = guest.memory_mib(size);
    }
    if let Some(limit) = args.timeout {
        guest = guest.timeout(Duration::from_secs(limit));
    }
    if let Some(limit) = args.silence {
        guest = guest.silence(Duration::from_secs(limit));
    }
    if let Some(out) = args.out {
        guest = guest.out(out);
    }
    for more in &args.append {
        guest = guest.append(more);
    }
    for text in args.allow_splat {
        guest = guest.allow_splat(text);
    }
    for variable in args.env {
        match variable.split_once('=') {
            Some((name, value)) => guest = guest.env(name, value),
            None => {
                if let Some(value) = std::env::var_os(&variable) {
                    guest = guest.env(variable, value);
                }
            }
        }
    }
    let run = guest.run(Streams::inherit())?;
    if !run.outcome.is_commands_own() {
        eprint!("{}", run.explain());
    }
    Ok(ExitCode::from(run.outcome.code()))
}

/// A size in MiB.
fn parse_size(text: &str) -> Result<u64> {
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "M"),
    };
    let number: u64 = digits.parse().context("not a number")?;
    let mib = match unit {
        "K" | "k" => Some(number / 1024),
        "M" | "m" => Some(number),
        "G" | "g" => number.checked_mul(1024),
        _ => bail!("the unit is K, M or G"),
    };
    mib.filter(|&mib| mib >= 64)
        .context("less than 64 MiB, or too much")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, mib) in [("512M", 512), ("2G", 2048), ("131072K", 128), ("256", 256)] {
            assert_eq!(parse_size(text).unwrap(), mib);
        }
        for text in [
            "",
            "M",
            "1T",
            "1M",
            "-1G",
            "99999999999999999999G",
            "18446744073709551615G",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
