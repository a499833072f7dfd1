//! Recording traces while programs run (C4, C5).
//!
//! The kernel shows one file for each process and channel ([`ConsumerFile`]); its rings are mapped
//! read-only, and its positions come and go by ioctl. A [`Session`] turns the files of one trace
//! into CTF: descriptions of events first, then events, which are given back to the writer only
//! when they are in the trace's files. [`record`] is all of it, with a program to run.

mod channels;
mod checkpoint;
mod chunks;
mod control_fs;
mod daemon;
mod daemons;
mod error;
mod fallback;
mod file;
mod ftrace;
mod kernel_file;
mod mapping;
mod open_files;
mod pid_filter;
mod process;
mod record;
mod recorder;
mod rotation;
mod session;
mod signals;
mod snapshot;
mod source;
mod tracepoints;

pub use channels::{CONTROL, MAIN};
pub use chunks::{Limits, finished_chunks};
pub use control_fs::{
    CONTROL_FS, ControlFs, ControlFsError, TraceDir, TraceSetup, consumer_files, event_channels,
    filter_words,
};
pub use daemon::{DaemonNotification, DaemonOptions, daemon};
pub use daemons::{DaemonError, Written, programs_below, snapshot_below, snapshot_of};
pub use error::{OutputError, RecordError, describe};
pub use fallback::record_fallback;
pub use file::{ConsumerFile, FileRing};
pub use ftrace::{FtraceError, KernelEvents, KernelOptions, KernelSummary, KernelTrace, Tracefs};
pub use kernel_file::KernelFile;
pub use open_files::raise_open_files;
pub use record::{Notification, Options, Recording, record};
pub use recorder::RecorderEvent;
pub use session::{
    Progress, RecordingProgress, Session, SessionError, SessionSummary, close_recording,
};
pub use snapshot::{Files, SnapshotError, snapshot, snapshot_process};
pub use tracepoints::{
    ProcessTracepoints, ToldBy, TraceTracepoints, Tracepoint, TracepointField, programs,
    tracepoints,
};

pub use source::Source;
