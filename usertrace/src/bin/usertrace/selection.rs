//! Which traces and events are asked for, as all commands that read traces have it.

use std::path::PathBuf;

use usertrace::reader::{Patterns, Reader, Selection, Time};

use crate::output;

pub(crate) const WRONG_COMMAND_LINE: u8 = 2;
/// Something of what was to be read is damaged.
pub(crate) const DAMAGED: u8 = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Selected {
    /// Directories with traces
    #[arg(required = true, value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,

    /// Only these events: NAME or PROVIDER:NAME, * for any characters, ? for any one, ! in front for those that are not
    /// wanted; several with commas between them, of which the last that matches counts [default: all]
    #[arg(short, long, value_name = "PATTERNS", value_delimiter = ',')]
    event: Vec<String>,

    /// Only those of these processes; several with commas between them
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<i64>,

    /// Only those from this time on
    #[arg(long, value_name = "TIME")]
    from: Option<Time>,

    /// Only those up to this time
    #[arg(long, value_name = "TIME")]
    to: Option<Time>,
}

impl Selected {
    /// What the reader is to be told, but for times, which depend on the traces. None: a pattern is none, which was said;
    /// the status is [`WRONG_COMMAND_LINE`] then.
    pub(crate) fn selection(&self) -> Option<Selection> {
        let events = match &self.event[..] {
            [] => None,
            patterns => match Patterns::new(patterns) {
                Ok(patterns) => Some(patterns),
                Err(bad) => {
                    output::say(bad);
                    return None;
                }
            },
        };
        Some(Selection {
            events,
            pids: self.pid.clone(),
            ..Selection::default()
        })
    }

    /// Opens the traces. None: as above.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Reader>> {
        let Some(selection) = self.selection() else {
            return Ok(None);
        };
        let mut reader = Reader::open(&self.directories, selection)?;
        if self.from.is_some() || self.to.is_some() {
            let times = [self.from, self.to];
            let is_of_day = |time: &Option<Time>| matches!(time, Some(Time::OfDay { .. }));
            let span = times.iter().any(is_of_day).then(|| reader.span());
            let span = span.flatten().unwrap_or_default();
            let within = |time: Option<Time>| time.map(|time| time.within(span));
            reader.set_times(within(self.from), within(self.to));
        }
        Ok(Some(reader))
    }
}
