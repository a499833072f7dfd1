//! What the harness and the guest's first process agree on: the [`Job`] that is packed into the
//! initramfs, the [`Report`]s that come back, and the names both use. The process itself is the
//! binary of this package.

mod job;
mod report;

pub use job::{Dump, Job, JobError, Share};
pub use report::Report;

/// The job's place in the initramfs.
pub const JOB_PATH: &str = "/job";

/// Where the harness puts the kernel and the initramfs that a crash boots: a share of this tag,
/// mounted there.
pub const BOOT_TAG: &str = "boot";
/// The share that becomes the guest's root.
pub const ROOT_TAG: &str = "root";
/// The share at [`OUT_PATH`], the only one that can be written.
pub const OUT_TAG: &str = "out";
/// Where the guest writes what the host shall keep.
pub const OUT_PATH: &str = "/out";
/// Name of the dump in [`OUT_PATH`].
pub const DUMP_NAME: &str = "vmcore";
/// Name of what a command in the crash kernel said, in [`OUT_PATH`].
pub const CRASH_LOG_NAME: &str = "crash-kernel.log";

/// The virtio-serial port of the command's standard input.
pub const PORT_STDIN: &str = "usertrace.stdin";
/// The virtio-serial port of the command's standard output.
pub const PORT_STDOUT: &str = "usertrace.stdout";
/// The virtio-serial port of the command's standard error.
pub const PORT_STDERR: &str = "usertrace.stderr";
/// The virtio-serial port of the [`Report`]s; the host answers with [`BYE`] or [`GO`].
pub const PORT_STATUS: &str = "usertrace.status";

/// The host has everything: the guest may power off.
pub const BYE: &[u8] = b"bye\n";
/// The host has handed its terminal over: the shell may start.
pub const GO: &[u8] = b"go\n";

/// How often the guest says that it is alive.
pub const BEAT: std::time::Duration = std::time::Duration::from_secs(1);

/// Size of the blocks of a dump that are looked at for zeros and left as holes.
pub const DUMP_BLOCK: usize = 4096;
