//! The reports of the guest, one a line, on a port of their own.

use std::fmt;

/// A report of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The first process runs.
    Hello,
    /// A heartbeat: the scheduler runs the first process, and time moves.
    Beat,
    /// The command, or the shell, is about to start.
    Started,
    /// The command is over, and all it wrote has been sent.
    Exit {
        /// Its status as in a shell: 128 + N if signal N killed it.
        status: u8,
        /// How many bytes went through the port of standard output.
        stdout: u64,
        /// How many bytes went through the port of standard error.
        stderr: u64,
    },
    /// The guest could not do its job, for this reason.
    Trouble(String),
    /// The crash kernel's first process runs, and starts to save the dump.
    DumpStarted,
    /// The dump is saved, and has this many bytes.
    DumpSaved(u64),
    /// The dump is not saved, for this reason.
    DumpFailed(String),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => writeln!(f, "hello"),
            Self::Beat => writeln!(f, "beat"),
            Self::Started => writeln!(f, "started"),
            Self::Exit {
                status,
                stdout,
                stderr,
            } => writeln!(f, "exit {status} {stdout} {stderr}"),
            Self::Trouble(why) => writeln!(f, "trouble {}", one_line(why)),
            Self::DumpStarted => writeln!(f, "dump-started"),
            Self::DumpSaved(bytes) => writeln!(f, "dump-saved {bytes}"),
            Self::DumpFailed(why) => writeln!(f, "dump-failed {}", one_line(why)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

impl Report {
    /// Reads one line without its end; `None` if it is no report.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "hello" => Self::Hello,
            "beat" => Self::Beat,
            "started" => Self::Started,
            "exit" => {
                let mut fields = rest.split(' ');
                let report = Self::Exit {
                    status: fields.next()?.parse().ok()?,
                    stdout: fields.next()?.parse().ok()?,
                    stderr: fields.next()?.parse().ok()?,
                };
                if fields.next().is_some() {
                    return None;
                }
                report
            }
            "trouble" => Self::Trouble(rest.into()),
            "dump-started" => Self::DumpStarted,
            "dump-saved" => Self::DumpSaved(rest.parse().ok()?),
            "dump-failed" => Self::DumpFailed(rest.into()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back_as_they_were() {
        for report in [
            Report::Hello,
            Report::Beat,
            Report::Started,
            Report::Exit {
                status: 255,
                stdout: u64::MAX,
                stderr: 0,
            },
            Report::Trouble("no 9p".into()),
            Report::DumpStarted,
            Report::DumpSaved(1 << 40),
            Report::DumpFailed("disk full".into()),
        ] {
            let line = report.to_string();
            assert_eq!(
                Report::parse(line.strip_suffix('\n').unwrap()),
                Some(report)
            );
        }
    }

    #[test]
    fn a_report_is_one_line() {
        assert_eq!(Report::Trouble("a\nb".into()).to_string(), "trouble a; b\n");
    }

    #[test]
    fn other_lines_are_no_reports() {
        for line in [
            "",
            "hell",
            "exit",
            "exit 1 2",
            "exit 256 0 0",
            "exit 1 2 3 4",
            "dump-saved x",
        ] {
            assert_eq!(Report::parse(line), None, "{line:?}");
        }
    }
}
