//! Boots a kernel under QEMU and runs one command in it.
//!
//! The guest's root is the host's own, read-only, so that any installed program can be run without
//! an image being built; `/out` is the one place where it writes to the host. Its standard streams
//! and its exit status come over virtio-serial ports of their own. Only the death of the kernel is
//! read from the console. [`Outcome`] distinguishes every way in which a run can end.
//!
//! ```no_run
//! use usertrace_vm::{Guest, KernelConfig, Outcome, Streams};
//!
//! let run = Guest::new(KernelConfig::Release)?.command(["uname", "-r"]).run(Streams::capture())?;
//! assert_eq!(run.outcome, Outcome::Passed);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod console;
mod counter;
mod cpio;
mod gdb;
mod guest;
mod image;
mod initramfs;
mod monitor;
mod outcome;
mod paths;
mod qemu;
mod run_dir;
mod shell;
mod splat;
mod streams;

pub use gdb::{Debugger, Registers};
pub use guest::{CRASH_ROOT, Guest, Run};
pub use image::{ImageFormat, Monitor};
pub use initramfs::build_first_process;
pub use outcome::Outcome;
pub use paths::{KernelConfig, cache_dir, kernel_image, repository, target_dir};
pub use streams::Streams;
