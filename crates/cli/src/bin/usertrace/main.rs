//! `usertrace`: records traces of programs, reads them, and extracts them from the dumps of crashed
//! kernels.

// These macros panic when the reader closes the pipe; the functions of `output` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod byte_size;
mod call_printer;
mod ctl;
mod daemon;
mod descendants;
mod destination;
mod doctor;
mod environment;
mod export;
mod extract;
mod file_size;
mod filter;
mod generate;
mod help;
mod kernel_commands;
mod leaks;
mod limits;
mod list;
mod load;
mod lockdown;
mod markdown;
mod notify;
mod obstacle;
mod output;
mod pids;
mod place;
mod preload;
mod progress;
mod record;
mod relay;
mod report;
mod root;
mod save;
mod selection;
mod send;
mod service;
mod setup;
mod snapshot;
mod spans;
mod start;
mod stat;
mod status;
mod symbols;
#[cfg_attr(
    not(feature = "parquet"),
    allow(
        dead_code,
        unused_imports,
        reason = "without the feature, nothing is converted"
    )
)]
mod tables;
mod target;
mod terminal;
mod top;
mod trigger;
mod unusable;
mod view;
mod wait;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use usertrace_consumer::raise_open_files;

/// Trace programs into buffers that the kernel owns, and read the traces, after a crash too.
#[derive(Debug, Parser)]
#[command(name = "usertrace", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(record::Args),
    Daemon(daemon::Args),
    Ctl(ctl::Args),
    Start(start::Start),
    Stop(start::Stop),
    Destroy(start::Destroy),
    Filter(filter::Args),
    Trigger(trigger::Args),
    Wait(wait::Args),
    Save(save::Args),
    Load(load::Args),
    Status(list::Status),
    Snapshot(snapshot::Args),
    Extract(extract::Args),
    View(view::Args),
    Export(export::Args),
    Report(report::Args),
    Spans(spans::Args),
    Leaks(leaks::Args),
    Send(send::Args),
    List(list::Args),
    Top(top::Args),
    Stat(stat::Args),
    Service(service::Args),
    Doctor(doctor::Args),
    Generate(generate::Args),
}

fn main() -> ExitCode {
    raise_open_files();
    file_size::survive_limit();
    let matches = help::shown(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return report(&error),
    };
    match cli.command {
        Command::Record(args) => args.run(),
        Command::Daemon(args) => args.run(),
        Command::Ctl(args) => args.run(),
        Command::Start(args) => args.run(),
        Command::Stop(args) => args.run(),
        Command::Destroy(args) => args.run(),
        Command::Filter(args) => args.run(),
        Command::Trigger(args) => args.run(),
        Command::Wait(args) => args.run(),
        Command::Save(args) => args.run(),
        Command::Load(args) => args.run(),
        Command::Status(args) => args.run(),
        Command::Snapshot(args) => args.run(),
        Command::Extract(args) => args.run(),
        Command::View(args) => args.run(),
        Command::Export(args) => args.run(),
        Command::Report(args) => args.run(),
        Command::Spans(args) => args.run(),
        Command::Leaks(args) => args.run(),
        Command::Send(args) => args.run(),
        Command::List(args) => args.run(),
        Command::Top(args) => args.run(),
        Command::Stat(args) => args.run(),
        Command::Service(args) => args.run(),
        Command::Doctor(args) => args.run(),
        Command::Generate(args) => args.run(Cli::command()),
    }
}

/// Prints help, or an error of the command line.
fn report(message: &clap::Error) -> ExitCode {
    let status = u8::try_from(message.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    match message.print().and_then(|()| io::stdout().flush()) {
        // A failure to write to standard error is no error, nor is a closed pipe.
        Err(error) if !message.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            output::say(format_args!("cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
        help::shown(Cli::command()).debug_assert();
    }
}
