//! Compares the kernel without the series, and with it: `scripts/compare` runs it.
//!
//! - `images` compares two kernels that were built without the tracer, one of them from the patched
//!   source.
//! - `selftests` compares the results of the kernel's own selftests on two kernels.

mod image;
mod selftests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Say in what two kernels differ, and fail if in anything that has no reason
    Images {
        /// The unpatched one: `vmlinux.unstripped`, with its relocations
        unpatched: PathBuf,
        /// The patched one, without CONFIG_LTT
        patched: PathBuf,
    },
    /// Say in what the results of two runs of tests differ, and fail if in anything
    Selftests {
        /// Those of the unpatched kernel
        unpatched: PathBuf,
        /// Those of the patched one
        patched: PathBuf,
    },
}

fn main() -> ExitCode {
    let same = match Cli::parse().action {
        Action::Images { unpatched, patched } => image::compare(&unpatched, &patched),
        Action::Selftests { unpatched, patched } => selftests::compare(&unpatched, &patched),
    };
    match same {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("kernel-diff: {e}");
            ExitCode::FAILURE
        }
    }
}
