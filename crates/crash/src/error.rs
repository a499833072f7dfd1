//! Why a file is no dump that can be read.

use std::io;

/// A file that is no dump which can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// It cannot be read.
    #[error("cannot read {what}")]
    Io {
        /// Which part.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It has the compressed format of kdump, and cannot be read.
    #[error("this is a dump in the compressed format of kdump, but {0}")]
    Kdump(&'static str),
    /// It is what a boot has left in reserved memory, and cannot be read.
    #[error("this is reserved memory of a previous boot, but {0}")]
    Reserved(&'static str),
    /// It is a virtual machine that was saved, to be restored.
    #[error(
        "this is a machine that QEMU or libvirt saved to restore it, not its memory: dump-guest-memory, or virsh dump with \
         --memory-only, makes a dump"
    )]
    Machine,
    /// It is none of the formats that can be read.
    #[error("this is neither an ELF file nor a dump in the compressed format of kdump")]
    Unknown,
    /// It is an ELF file for another kind of machine, or not a dump.
    #[error("this is an ELF file, but not a dump of a 64-bit little-endian machine")]
    NotADump,
    /// It says that it has more than can be.
    #[error("{0} segments are more than a dump has")]
    Segments(u32),
}
