//! A consumer file with the state that its reader keeps.

use std::io;

use usertrace_ctf::{Identity, kernel_name};
use usertrace_ring::Channel;
use usertrace_sys::uapi::{LTT_MAX_CHANNELS, LttFileInfo, LttRingPositions};

use super::{ConsumerFile, FileRing};

/// A consumer file with its description and the positions of its rings.
#[derive(Debug)]
pub struct ConsumerSource<F> {
    /// Its channel's name.
    pub name: String,
    /// The file.
    pub file: F,
    /// What the file reported when it was opened.
    pub info: LttFileInfo,
    /// Its channel.
    pub channel: Channel,
    /// As of the last [`update`](Self::update); zeros before.
    pub positions: Vec<LttRingPositions>,
}

impl<F: ConsumerFile> ConsumerSource<F> {
    /// Wraps `file`, which belongs to the channel `name`.
    ///
    /// # Errors
    /// If the file cannot be queried, or describes an invalid channel.
    pub fn new(name: &str, file: F) -> io::Result<Self> {
        let info = file.info()?;
        let channel = Channel::new(&info.channel)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if info.channel_index as usize >= LTT_MAX_CHANNELS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self {
            name: name.to_owned(),
            file,
            info,
            channel,
            positions: vec![LttRingPositions::default(); channel.nr_rings() as usize],
        })
    }

    /// Reads the positions as they are now, and returns the file's flags, `LTT_FILE_*`.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn update(&mut self) -> io::Result<u32> {
        self.file.positions(&mut self.positions)
    }

    /// Events that its rings dropped, as of the last update.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let rings = self.positions.iter();
        rings.fold(0, |lost, ring| ring.lost.saturating_add(lost))
    }

    /// The ring with number `ring`.
    #[must_use]
    pub fn ring(&self, ring: usize) -> FileRing<'_, F> {
        FileRing::new(&self.file, &self.channel, ring as u32)
    }

    /// The identity of the process.
    #[must_use]
    pub fn identity(&self, hostname: Option<&str>) -> Identity {
        let info = &self.info;
        Identity {
            trace: kernel_name(&info.trace),
            comm: kernel_name(&info.comm),
            pid: info.pid,
            process: info.process,
            hostname: hostname.map(str::to_owned),
        }
    }
}
