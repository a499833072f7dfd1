//! `usertrace`: records traces of programs, and takes them out of the dumps of kernels that crashed.

mod ctl;
mod doctor;
mod extract;
mod list;
mod output;
mod preload;
mod record;
mod snapshot;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Trace programs into buffers that the kernel owns, and read the traces, after a crash too.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(record::Args),
    Ctl(ctl::Args),
    Snapshot(snapshot::Args),
    Extract(extract::Args),
    List(list::Args),
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Record(args) => args.run(),
        Command::Ctl(args) => args.run(),
        Command::Snapshot(args) => args.run(),
        Command::Extract(args) => args.run(),
        Command::List(args) => args.run(),
        Command::Doctor(args) => args.run(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
