//! `usertrace send`: sends a recording to a relay.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use usertrace_consumer::{RecorderEvent, RelayOptions, SendOptions, send_recording};
use usertrace_relay::Address;

use crate::limits::{self, duration};
use crate::{output, relay};

/// Send a recording to LTTng's relay daemon
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace send traces tcp://relay.example       # a recording that has ended
  usertrace send traces tcp://10.0.0.1:5342:5343  # the ports for control and for data
  usertrace send --wait 1h traces tcp://relay     # the relay may come back within an hour

The recording may be one with chunks or without, or what usertrace record --relay has left: the relay was away until the end, or
the recorder was killed. If programs still write to it, the command sends on until they end. The files stay where they are.

The relay keeps the traces in HOST/NAME-TIME. A recording that is sent again, also after a part of it, replaces what the relay
has of it; which is noted in the file .relay in DIR.

Exit status: 0 if the relay has everything, 1 if not, 2 for a wrong command line.")]
pub(crate) struct Args {
    /// Directory of the recording
    #[arg(value_name = "DIR")]
    recording: PathBuf,

    /// The relay: tcp://HOST[:PORT[:PORT]]
    #[arg(value_name = "ADDRESS")]
    address: Address,

    /// Name of the session on the relay [default: that of the directory]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// How long the relay may take for all of it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,

    /// Say only what is wrong
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let directory = self.recording.display().to_string();
        let path = self
            .recording
            .canonicalize()
            .with_context(|| format!("cannot open \"{directory}\""))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let options = SendOptions {
            name: self.name.unwrap_or_else(|| name.into_owned()),
            recording: path,
            relay: RelayOptions {
                address: self.address,
                spool: u64::MAX,
                live: None,
                patience: self.wait,
            },
        };
        let quiet = self.quiet;
        let summary = send_recording(&options, &mut |event| {
            limits::report(&RecorderEvent::Relay(event), quiet);
        })?;
        let is_complete = relay::report(summary.as_ref(), &directory, quiet);
        Ok(u8::from(!is_complete))
    }
}
