//! The interface of the harness and the guest's first process: the [`Job`] in the initramfs, the
//! [`Report`]s, and common names. The first process is the binary of this package.

mod job;
mod report;

pub use job::{Dump, Job, JobError, Share};
pub use report::Report;

/// The job's place in the initramfs.
pub const JOB_PATH: &str = "/job";

/// The share with the crash kernel and its initramfs, and its mount point.
pub const BOOT_TAG: &str = "boot";
/// The share that becomes the guest's root.
pub const ROOT_TAG: &str = "root";
/// The share at [`OUT_PATH`], the only one that can be written.
pub const OUT_TAG: &str = "out";
/// The directory in which the guest writes files for the host.
pub const OUT_PATH: &str = "/out";
/// Name of the dump in [`OUT_PATH`].
pub const DUMP_NAME: &str = "vmcore";
/// The name of the crash kernel command's output, in [`OUT_PATH`].
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

/// The interval of heartbeats.
pub const BEAT: std::time::Duration = std::time::Duration::from_secs(1);

/// The size of a dump's blocks that become holes if they are zero.
pub const DUMP_BLOCK: usize = 4096;
