//! Options for sending to a relay, shared by the commands that record.

use std::path::Path;
use std::time::Duration;

use usertrace_consumer::{RelayOptions, RelaySummary};
use usertrace_ctf::Version;
use usertrace_relay::Address;

use crate::limits::{Limits, duration, size};
use crate::output;

/// Heading of these options in help texts.
const HEADING: &str = "Relay";
/// Default limit of what waits for the relay.
const SPOOL: &str = "1G";

#[derive(Debug, clap::Args)]
pub(crate) struct Relay {
    /// Send the traces to LTTng's relay daemon at tcp://HOST[:PORT[:PORT]]: the ports for control
    /// and for data; the output directory has only what waits to be sent
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    relay: Option<Address>,

    /// Let at most about SIZE bytes wait for the relay, and no more than three quarters of the
    /// disk's room; more stays in the rings
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = SPOOL, requires = "relay", help_heading = HEADING)]
    relay_spool: u64,

    /// Let viewers read live: they get events about a PERIOD later [default: 1s]
    #[arg(long, value_name = "PERIOD", value_parser = duration, num_args = 0..=1, require_equals = true, default_missing_value = "1s", requires = "relay", help_heading = HEADING)]
    live: Option<Duration>,
}

impl Relay {
    /// Whether viewers read live.
    pub(crate) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Why these options cannot be used together with others.
    pub(crate) fn conflict(&self, limits: &Limits, ctf: Version) -> Option<&'static str> {
        let is_used = self.relay.is_some();
        if is_used && limits.limits_size() {
            return Some("--keep and --max-size do not go with --relay: use --relay-spool");
        }
        (self.live.is_some() && ctf == Version::V2).then_some("--live needs CTF 1.8")
    }

    /// The options, with how long to wait for the relay at the end.
    pub(crate) fn options(self, output: &Path, patience: Option<Duration>) -> Option<RelayOptions> {
        let address = self.relay?;
        let options = RelayOptions {
            address,
            spool: self.relay_spool,
            live: self.live,
            patience,
        };
        Some(options.fitted(output))
    }
}

/// Reports whether everything was sent, and returns that.
pub(crate) fn report(summary: Option<&RelaySummary>, directory: &str, quiet: bool) -> bool {
    match summary {
        Some(summary) if summary.is_complete => {
            if !quiet {
                output::say(format_args!(
                    "the relay has everything, in \"{}\"",
                    summary.path
                ));
            }
            true
        }
        Some(summary) => {
            let why = summary.why.as_deref().unwrap_or("sending was interrupted");
            output::say(format_args!(
                "{} bytes wait for the relay in \"{directory}\": {why} (send them with: usertrace send {} ADDRESS)",
                summary.waiting,
                output::shell_word(directory)
            ));
            false
        }
        None => {
            output::say("the thread that sends to the relay failed");
            false
        }
    }
}
