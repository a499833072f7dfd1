//! `usertrace ctl`: controls a running program over its control channel.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::{Value, json};
use usertrace_control::{Client, ListedProbe, ProcessEnd, Report};

use crate::output;
use crate::pids::Named;

/// Control a program that runs: its events, probes, and buffers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  USERTRACE_CONTROL=thread ./server & sleep 1; usertrace ctl $! list      # the events that it can write
  usertrace ctl 4711 finalise           # it writes no more events, and what it has written is read
  usertrace ctl 4711 initialise         # it goes on
  usertrace ctl 4711 watch              # what happens to it, until it ends

The program must have been started with USERTRACE_CONTROL=signal or =thread, or open its control channel itself, and be
this user's. EVENTS is PROVIDER:NAME, in which * is any characters, and ? one. A probe is called by events that it is
connected to when the connection is activated; what undoes either has the same EVENTS.

Exit status: 0, or 1 if it was not done.")]
pub(crate) struct Args {
    /// The program's process id, or its name if there is only one
    #[arg(value_name = "PID|NAME")]
    pid: Named,

    /// Write JSON: one value, or for watch one for each line
    #[arg(long, global = true)]
    json: bool,

    /// Seconds to wait for an answer
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the events that the program can write
    List,
    /// List its probes, and what they are connected to
    Probes,
    /// Load a library of probes into it
    Load {
        /// The library
        path: PathBuf,
    },
    /// Take the probes of such a library out, and unload it
    Unload {
        /// The library, as it was loaded
        path: PathBuf,
    },
    /// Connect a probe to events
    Connect(Connection),
    /// Undo connect
    Disconnect(Connection),
    /// Have events call a probe that is connected to them
    Activate(Connection),
    /// Undo activate
    Deactivate(Connection),
    /// Have readers look at its buffers now
    Flush,
    /// Have it write events, after finalise
    Initialise,
    /// Flush its buffers, and have it write no more events
    Finalise,
    /// Say what happens, until the program ends
    Watch,
}

#[derive(Debug, clap::Args)]
struct Connection {
    /// PROVIDER:NAME
    events: String,
    /// The probe's name
    probe: String,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run().map(|()| 0))
    }

    fn try_run(self) -> anyhow::Result<()> {
        let client = Client::connect(self.pid.pid()?, Duration::from_secs(self.timeout))?;
        let ask_about = |word: &str, connection: &Connection| {
            let Connection { events, probe } = connection;
            client.ask(&format!("{word} {events} {probe}"))
        };
        let events = match &self.action {
            Action::List => return list(&client, self.json),
            Action::Probes => return probes(&client, self.json),
            Action::Watch => return watch(&client, self.json),
            Action::Load { path } => {
                return change_library(&client, "load", path, self.json);
            }
            Action::Unload { path } => {
                return change_library(&client, "unload", path, self.json);
            }
            Action::Flush => return client.ask("flush").map(drop),
            Action::Initialise => return client.ask("initialise").map(drop),
            Action::Finalise => return client.ask("finalise").map(drop),
            Action::Connect(connection) => ask_about("connect", connection),
            Action::Disconnect(connection) => ask_about("disconnect", connection),
            Action::Activate(connection) => ask_about("activate", connection),
            Action::Deactivate(connection) => ask_about("deactivate", connection),
        }?;
        print(self.json, json!({ "events": number(&events)? }), || {
            format!("{events} events")
        })
    }
}

fn number(text: &str) -> anyhow::Result<u64> {
    text.parse()
        .with_context(|| format!("the process answers {text:?}, which is no number"))
}

/// Loads or unloads a library of probes.
fn change_library(client: &Client, word: &str, path: &Path, json: bool) -> anyhow::Result<()> {
    let named = || format!("cannot {word} {}", path.display());
    // A loaded library may have been removed from the file system.
    let found = match path.canonicalize() {
        Err(error) if word == "unload" && error.kind() == io::ErrorKind::NotFound => {
            std::path::absolute(path)
        }
        found => found,
    };
    let found = found.with_context(named)?;
    let text = found
        .to_str()
        .context("a path that is no text cannot be sent")?;
    let count = client.ask(&format!("{word} {text}")).with_context(named)?;
    print(json, json!({ "probes": number(&count)? }), || {
        format!("{count} probes")
    })
}

/// Prints a line of text, or `value` as a line of JSON.
fn print(json: bool, value: Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let line = if json { value.to_string() } else { text() };
    let mut output = io::stdout().lock();
    let written = writeln!(output, "{line}").and_then(|()| output.flush());
    written.context("cannot write to standard output")
}

fn list(client: &Client, json: bool) -> anyhow::Result<()> {
    let events = client.events()?;
    let values = events
        .iter()
        .map(|event| json!({ "event": event.description, "enabled": event.enabled }));
    print(json, values.collect(), || {
        let lines = events.iter().map(|event| {
            let state = if event.enabled { "on " } else { "off" };
            format!("{state} {}", event.description.escape_debug())
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn probes(client: &Client, json: bool) -> anyhow::Result<()> {
    let probes = client.probes()?;
    let values = probes.iter().map(|probe| match probe {
        ListedProbe::Probe(name) => json!({ "probe": name }),
        ListedProbe::Connection {
            events,
            probe,
            active,
        } => json!({ "events": events, "probe": probe, "active": active }),
    });
    print(json, values.collect(), || {
        let lines = probes.iter().map(|probe| match probe {
            ListedProbe::Probe(name) => name.escape_debug().to_string(),
            ListedProbe::Connection {
                events,
                probe,
                active,
            } => {
                let state = if *active { "active" } else { "inactive" };
                format!(
                    "{} to {}: {state}",
                    probe.escape_debug(),
                    events.escape_debug()
                )
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn watch(client: &Client, json: bool) -> anyhow::Result<()> {
    let saved = saved(&client.ask("watch")?);
    print(json, json!({ "saved": saved }), || {
        format!("events are {saved}")
    })?;
    let (mut announced_end, mut closes) = (false, false);
    loop {
        let report = client.report()?;
        let names = |what: &str, names: &[String]| {
            let names: Vec<_> = names
                .iter()
                .map(|name| name.escape_debug().to_string())
                .collect();
            print(json, json!({ what: names }), || {
                format!("{what} {}", names.join(" "))
            })
        };
        match report {
            Report::Full {
                slot,
                channel,
                lost,
            } => {
                let value = json!({ "full": { "slot": slot, "channel": channel, "lost": lost } });
                print(json, value, || {
                    format!("a ring of slot {slot}, channel {channel} is full: {lost} events lost")
                })?;
            }
            Report::Appeared(events) => names("appeared", &events)?,
            Report::Disappeared(events) => names("disappeared", &events)?,
            Report::Missed(count) => print(json, json!({ "missed": count }), || {
                format!("{count} reports are missing here")
            })?,
            Report::Ending => announced_end = true,
            Report::Closing => closes = true,
            Report::Closed => break,
        }
    }
    if closes {
        let value = json!({ "closed": true, "saved": saved });
        return print(json, value, || {
            format!("the program closed its control channel, and goes on; its events are {saved}")
        });
    }
    let ended = match client.ending() {
        ProcessEnd::Exited(status) => format!("exited with status {status}"),
        ProcessEnd::Killed(signal) => format!("killed by signal {signal}"),
        ProcessEnd::Unknown if announced_end => "ended by itself".to_owned(),
        ProcessEnd::Unknown => "ended without notice: killed by a signal, or by _exit".to_owned(),
        ProcessEnd::Runs => "runs another program".to_owned(),
    };
    print(json, json!({ "ended": ended, "saved": saved }), || {
        format!("the program {ended}; its events are {saved}")
    })
}

/// Where to find the events after the program has ended, from the answer to `watch`.
fn saved(answer: &str) -> String {
    match answer.split_once(' ') {
        Some(("fast", directory)) => format!("in {}", directory.escape_debug()),
        _ if answer == "kernel" => "in the kernel's buffers (usertrace list)".to_owned(),
        _ => "nowhere".to_owned(),
    }
}
