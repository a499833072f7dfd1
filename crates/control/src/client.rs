//! The controller's end of the control channel.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use usertrace_os::process::pidfd_open;
use usertrace_sys::printable;

use crate::protocol::{ANSWER_MAX, NAME, VERSION};
use crate::socket;

/// How often to restart a list because modules were loaded or unloaded meanwhile.
const TRIES: usize = 20;

/// A connection to the control channel of a process.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// A pidfd, which becomes readable when the process ends.
    process: OwnedFd,
    patience: Duration,
}

/// An event that the process can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEvent {
    /// Its description, as in the header `linux/ltt.h`, without the id.
    pub description: String,
    /// Whether a trace or a probe enables it.
    pub enabled: bool,
}

/// An item of the list of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedProbe {
    /// A probe, by its name.
    Probe(String),
    /// A connection.
    Connection {
        /// The pattern of events.
        events: String,
        /// The probe's name.
        probe: String,
        /// Whether the events call the probe.
        active: bool,
    },
}

/// A report that a process sends without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An event was dropped because a ring was full.
    Full {
        /// The trace's slot.
        slot: usize,
        /// The channel's index.
        channel: usize,
        /// Total number of events dropped there.
        lost: u64,
    },
    /// Events were registered: their names.
    Appeared(Vec<String>),
    /// Events were removed: their names.
    Disappeared(Vec<String>),
    /// The process is about to end.
    Ending,
    /// The process is about to close the channel.
    Closing,
    /// Number of reports that are missing here.
    Missed(u64),
    /// The channel is closed.
    Closed,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It exited with a status.
    Exited(i32),
    /// A signal killed it.
    Killed(i32),
    /// Unknown: its parent has not waited for it yet, or the kernel is too old to say.
    Unknown,
    /// It still runs, and only closed the channel.
    Runs,
}

impl Client {
    /// Connects to a process, and verifies that this process and user answer.
    ///
    /// # Errors
    /// If the process has no channel, or another process or user answers.
    pub fn connect(process: u32, patience: Duration) -> anyhow::Result<Self> {
        let handle =
            pidfd_open(process).with_context(|| format!("there is no process {process}"))?;
        // Effective, as a process without privileges would have it: the owner of its directory.
        let owner = std::fs::metadata(format!("/proc/{process}"))
            .with_context(|| format!("there is no process {process}"))?
            .uid();
        let no_channel = || {
            format!(
                "process {process} has no control channel; USERTRACE_CONTROL=signal or =thread opens one"
            )
        };
        let descriptor = socket::connect(process)
            .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
            .with_context(no_channel)?;
        // SAFETY: `connect` just created the descriptor, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let peer = socket::peer(descriptor)
            .map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))?;
        if i64::from(peer.pid) != i64::from(process) {
            bail!("process {} answers in place of {process}", peer.pid);
        }
        if peer.uid != 0 && peer.uid != owner {
            bail!(
                "process {process} answers for user {}, and is user {owner}'s",
                peer.uid
            );
        }
        Ok(Self {
            socket,
            process: handle,
            patience,
        })
    }

    /// Sends a request, and returns the answer after "ok".
    ///
    /// # Errors
    /// The process's error, or if it does not answer.
    pub fn ask(&self, request: &str) -> anyhow::Result<String> {
        let packet = format!("{VERSION}{request}");
        // If sending fails, the process has closed the channel, and may have sent a reason before.
        let _ = socket::send(self.socket.as_raw_fd(), packet.as_bytes());
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(text) = self.packet(Some(left))? else {
                bail!("the process closed the channel");
            };
            if let Some(rest) = text.strip_prefix("ok") {
                return Ok(rest.strip_prefix(' ').unwrap_or(rest).to_owned());
            }
            if let Some(error) = text.strip_prefix("error ") {
                bail!("the process says: {}", printable(error));
            }
            if !text.starts_with("report ") {
                bail!("the process answers what is no answer: {text:?}");
            }
        }
    }

    /// The next packet without the version, or `None` if the channel is closed.
    fn packet(&self, patience: Option<Duration>) -> anyhow::Result<Option<String>> {
        if !readable(&self.socket, patience)? {
            bail!(
                "the process does not answer; loading and unloading need USERTRACE_CONTROL=thread there, or \
                 that it calls usertrace_control_serve()"
            );
        }
        let mut room = vec![0; ANSWER_MAX];
        let mut receive = || socket::receive(self.socket.as_raw_fd(), &mut room, 0);
        // If the peer closed the channel without reading everything, the first call reports that. A
        // second one still gets the packets that it sent before.
        let received = match receive() {
            Err(syscalls::Errno::ECONNRESET) => receive(),
            received => received,
        };
        let len = match received {
            Ok(len) => len,
            Err(errno) => return Err(io::Error::from_raw_os_error(errno.into_raw()).into()),
        };
        if len == 0 {
            return Ok(None);
        }
        let packet = room
            .get(..len)
            .context("the process sent too long a packet")?;
        let text = std::str::from_utf8(packet).context("the process sent what is no text")?;
        match text.strip_prefix(VERSION) {
            Some(text) => Ok(Some(text.to_owned())),
            None => bail!("the process speaks another version"),
        }
    }

    /// Reads all lines of a list, which comes in several answers.
    fn lines(&self, what: &str) -> anyhow::Result<Vec<String>> {
        for _ in 0..TRIES {
            let (mut list, mut head, mut from) = (Vec::new(), None, 0u64);
            loop {
                let text = self.ask(&format!("{what} {from}"))?;
                let mut lines = text.split('\n').map(str::to_owned);
                let this = lines.next();
                if head.get_or_insert_with(|| this.clone()) != &this {
                    // The events have changed, so start again.
                    break;
                }
                list.extend(lines);
                let last = list.pop().unwrap_or_default();
                if last == "end" {
                    return Ok(list);
                }
                let next = last
                    .strip_prefix("next ")
                    .and_then(|next| next.parse().ok());
                let next = next.filter(|&next| next > from);
                from = next.with_context(|| format!("a list that goes on with {last:?}"))?;
            }
        }
        bail!("events come and go all the time")
    }

    /// Lists the events of the process.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub fn events(&self) -> anyhow::Result<Vec<ListedEvent>> {
        let listed = |line: String| {
            let (enabled, description) = match line.split_once(' ') {
                Some(("0", description)) => (false, description),
                Some(("1", description)) => (true, description),
                _ => bail!("a list of events has {line:?}"),
            };
            Ok(ListedEvent {
                description: description.to_owned(),
                enabled,
            })
        };
        self.lines("list")?.into_iter().map(listed).collect()
    }

    /// Lists its probes, and their connections.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub fn probes(&self) -> anyhow::Result<Vec<ListedProbe>> {
        let listed = |line: String| {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            match words.as_slice() {
                [what, name] if what == "probe" => Ok(ListedProbe::Probe(name.clone())),
                [what, events, probe, active] if what == "connection" => {
                    Ok(ListedProbe::Connection {
                        events: events.clone(),
                        probe: probe.clone(),
                        active: active == "active",
                    })
                }
                _ => bail!("a list of probes has {line:?}"),
            }
        };
        self.lines("probes")?.into_iter().map(listed).collect()
    }

    /// Waits for the next report.
    ///
    /// # Errors
    /// If the packet is not a report.
    pub fn report(&self) -> anyhow::Result<Report> {
        let Some(text) = self.packet(None)? else {
            return Ok(Report::Closed);
        };
        parse_report(&text).with_context(|| format!("no report: {text:?}"))
    }

    /// How the process ended. To be called after the channel was closed.
    #[must_use]
    pub fn ending(&self) -> ProcessEnd {
        if !readable(&self.process, Some(self.patience)).unwrap_or(false) {
            return ProcessEnd::Runs;
        }
        ending(&self.process)
    }
}

/// Processes with a control channel in this network namespace, by their ids in their own PID
/// namespaces.
///
/// # Errors
/// If `/proc/net/unix` cannot be read.
pub fn sockets() -> io::Result<BTreeSet<u32>> {
    Ok(parse_sockets(&std::fs::read_to_string("/proc/net/unix")?))
}

/// Parses `/proc/net/unix`, where an abstract name starts with `@` instead of NUL.
fn parse_sockets(text: &str) -> BTreeSet<u32> {
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7));
    let pids = names.filter_map(|name| name.strip_prefix('@')?.strip_prefix(NAME)?.parse().ok());
    pids.collect()
}

fn parse_report(text: &str) -> Option<Report> {
    let text = text.strip_prefix("report ")?;
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let names = || rest.split('\n').map(str::to_owned).collect();
    let words: Vec<&str> = head.split(' ').collect();
    Some(match words.as_slice() {
        ["full", slot, channel, lost] => Report::Full {
            slot: slot.parse().ok()?,
            channel: channel.parse().ok()?,
            lost: lost.parse().ok()?,
        },
        ["appeared"] => Report::Appeared(names()),
        ["disappeared"] => Report::Disappeared(names()),
        ["ending"] => Report::Ending,
        ["closing"] => Report::Closing,
        ["missed", count] => Report::Missed(count.parse().ok()?),
        _ => return None,
    })
}

/// Waits until there is something to read; for ever, if no time is given.
fn readable(descriptor: &OwnedFd, patience: Option<Duration>) -> io::Result<bool> {
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let left = until.map_or(-1, |until| {
            let left = until.saturating_duration_since(Instant::now());
            left.as_millis().min(i32::MAX as u128) as i32
        });
        let mut entry = libc::pollfd {
            fd: descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `entry` is one valid `pollfd`, as the count says.
        match unsafe { libc::poll(&raw mut entry, 1, left) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            count => return Ok(count > 0),
        }
    }
}

/// `struct pidfd_info` (`linux/pidfd.h`), up to the field that is needed.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`, since Linux 6.15.
const INFO_EXIT: u64 = 1 << 3;

nix::ioctl_readwrite!(pidfd_get_info, 0xff, 11, PidfdInfo);

fn ending(process: &OwnedFd) -> ProcessEnd {
    let mut info = PidfdInfo {
        mask: INFO_EXIT,
        ..PidfdInfo::default()
    };
    // The status exists only after the parent has waited for the process, so retry for a moment.
    for _ in 0..20 {
        // SAFETY: the ioctl number contains the size of `PidfdInfo`, and the kernel writes no more.
        let done = unsafe { pidfd_get_info(process.as_raw_fd(), &raw mut info) };
        if done.is_ok() && info.mask & INFO_EXIT != 0 {
            let code = info.exit_code;
            return match code & 0x7f {
                0 => ProcessEnd::Exited(code >> 8 & 0xff),
                signal => ProcessEnd::Killed(signal),
            };
        }
        info.mask = INFO_EXIT;
        std::thread::sleep(Duration::from_millis(10));
    }
    ProcessEnd::Unknown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_are_parsed() {
        let full = Report::Full {
            slot: 1,
            channel: 2,
            lost: 30,
        };
        assert_eq!(parse_report("report full 1 2 30"), Some(full));
        assert_eq!(parse_report("report ending"), Some(Report::Ending));
        assert_eq!(parse_report("report closing"), Some(Report::Closing));
        assert_eq!(parse_report("report missed 3"), Some(Report::Missed(3)));
        let names = vec!["a:b".to_owned(), "c:d".to_owned()];
        assert_eq!(
            parse_report("report appeared\na:b\nc:d"),
            Some(Report::Appeared(names))
        );
        for bad in [
            "",
            "ending",
            "report",
            "report full 1 2",
            "report full 1 2 -3",
        ] {
            assert_eq!(parse_report(bad), None, "{bad}");
        }
    }

    #[test]
    fn sockets_are_found_by_name() {
        let text = "Num RefCount Protocol Flags Type St Inode Path\n\
                    0: 00000002 00000000 00010000 0005 01 1 @usertrace/control/12\n\
                    0: 00000003 00000000 00000000 0005 03 2 @usertrace/control/12\n\
                    0: 00000003 00000000 00000000 0005 03 3\n\
                    0: 00000002 00000000 00010000 0001 01 4 /run/usertrace/control/13\n\
                    0: 00000002 00000000 00010000 0005 01 5 @usertrace/control/x\n";
        assert_eq!(parse_sockets(text), BTreeSet::from([12]));
    }

    proptest! {
        #[test]
        fn reports_may_be_anything(text in ".{0,100}") {
            let _ = parse_report(&text);
        }
    }
}
