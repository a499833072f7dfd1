//! Which events of which traces: what `view` and `report` have in common.

use std::path::PathBuf;

use usertrace::reader::{BadPattern, Patterns, Reader, Selection, Time};

/// What of it is wrong on the command line, see [`Select::selection`].
pub(crate) const WRONG_COMMAND_LINE: u8 = 2;
/// Something of what was to be read is damaged.
pub(crate) const DAMAGED: u8 = 3;

/// What to read.
#[derive(Debug, clap::Args)]
pub(crate) struct Select {
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

impl Select {
    /// Which events were asked for, but for their times.
    pub(crate) fn selection(&self) -> Result<Selection, BadPattern> {
        let events = match &self.event[..] {
            [] => None,
            patterns => Some(Patterns::new(patterns)?),
        };
        Ok(Selection {
            events,
            pids: self.pid.clone(),
            ..Selection::default()
        })
    }

    /// Opens the traces, for what was asked for.
    pub(crate) fn open(&self, selection: Selection) -> anyhow::Result<Reader> {
        let mut reader = Reader::open(&self.directories, selection)?;
        if self.from.is_some() || self.to.is_some() {
            let times = [self.from, self.to];
            let is_of_day = |time: &Option<Time>| matches!(time, Some(Time::OfDay { .. }));
            let span = times.iter().any(is_of_day).then(|| reader.span());
            let span = span.flatten().unwrap_or_default();
            let within = |time: Option<Time>| time.map(|time| time.within(span));
            reader.set_times(within(self.from), within(self.to));
        }
        Ok(reader)
    }
}
