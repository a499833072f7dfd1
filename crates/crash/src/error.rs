//! Errors of opening dumps.

use std::io;

/// Why a file cannot be opened as a dump.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The file cannot be read.
    #[error("cannot read {what}")]
    Io {
        /// The part that cannot be read.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The file is in kdump's compressed format, but invalid.
    #[error("this is a dump in the compressed format of kdump, but {0}")]
    Kdump(&'static str),
    /// The file is the reserved memory of an earlier boot, but invalid.
    #[error("this is reserved memory of a previous boot, but {0}")]
    Reserved(&'static str),
    /// The file is a saved virtual machine, which is not a dump.
    #[error(
        "this is a machine that QEMU or libvirt saved to restore it, not its memory: dump-guest-memory, or virsh dump with \
         --memory-only, makes a dump"
    )]
    Machine,
    /// The format is not supported.
    #[error("this is neither an ELF file nor a dump in the compressed format of kdump")]
    Unknown,
    /// The ELF file is for another kind of machine, or not a dump.
    #[error("this is an ELF file, but not a dump of a 64-bit little-endian machine")]
    NotADump,
    /// The number of segments is implausible.
    #[error("{0} segments are more than a dump has")]
    Segments(u32),
}
