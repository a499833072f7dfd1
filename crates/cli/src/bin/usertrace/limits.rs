//! Options for rotation and limits, shared by the commands that record.

use std::time::Duration;

use usertrace_consumer::{Limits as Wanted, RecorderEvent};

use crate::byte_size::{self, SizeError};
use crate::output;

/// Heading of these options in help texts.
pub(crate) const HEADING: &str = "Rotation and limits";

#[derive(Debug, clap::Args)]
pub(crate) struct Limits {
    /// Begin a new chunk, a directory with traces of its own, when one has SIZE bytes; k, M and G
    /// are understood
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = HEADING)]
    rotate_size: Option<u64>,

    /// Begin a new chunk when one is so old: 90s, 15min, 1h, 1day
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = HEADING)]
    rotate_time: Option<Duration>,

    /// Remove the oldest of more than N finished chunks
    #[arg(long, value_name = "N", help_heading = HEADING)]
    keep: Option<usize>,

    /// Let all files have no more than SIZE bytes: where chunks are made, the oldest are removed,
    /// and one ends at the latest with a quarter of SIZE; else the recording ends
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = HEADING)]
    max_size: Option<u64>,
}

impl Limits {
    /// Whether the options make chunks.
    pub(crate) fn rotates(&self) -> bool {
        self.rotate_size.is_some() || self.rotate_time.is_some()
    }

    /// Whether `--keep` is given without any option that makes chunks.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.keep.is_some() && !self.rotates()
    }

    /// Whether old chunks are to be removed.
    pub(crate) fn limits_size(&self) -> bool {
        self.keep.is_some() || self.max_size.is_some()
    }
}

impl From<Limits> for Wanted {
    fn from(limits: Limits) -> Self {
        Self {
            rotate_size: limits.rotate_size,
            rotate_time: limits.rotate_time,
            keep: limits.keep,
            max_size: limits.max_size,
        }
    }
}

/// Reports an event of the recorder. With `quiet`, only trouble and its end are reported.
pub(crate) fn report(event: &RecorderEvent, quiet: bool) {
    let is_important = event.is_trouble() || matches!(event, RecorderEvent::SpaceAvailable { .. });
    if is_important || !quiet {
        output::say(event);
    }
}

/// Parses a number of bytes other than 0.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    match byte_size::parse(text) {
        Err(SizeError::NotANumber) => Err("not a number".to_owned()),
        Err(SizeError::TooLarge) => Err("too large".to_owned()),
        Ok(0) => Err("nothing".to_owned()),
        Ok(size) => Ok(size),
    }
}

/// Parses a duration of at least a second.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_secs(1) {
        return Err("less than a second".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("3G"), Ok(3 << 30));
        for bad in ["", "G", "-1", "0", "0M", "99999999999G", "ü"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(duration("15min"), Ok(Duration::from_secs(900)));
        for bad in ["", "15", "0s", "10ms"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
