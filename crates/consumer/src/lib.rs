//! Recording traces while programs run (C4, C5).
//!
//! The kernel has one consumer file for each process and channel ([`ConsumerFile`]). Its rings are
//! mapped read-only; ioctls read the positions and consume. A [`Session`] converts the files of one
//! trace to CTF: first the descriptions of events, then the events. It consumes events only after
//! they are in the trace's files. [`record`] does all of that, and runs a program.

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
mod host_clock;
mod kernel_file;
mod mapping;
mod open_files;
mod pid_filter;
mod process;
mod record;
mod recorder;
mod relay;
mod rotation;
mod saved;
mod session;
mod signals;
mod size_meter;
mod snapshot;
mod source;
mod tracepoints;
mod trigger_event;
mod trigger_watch;
mod triggers;

pub use channels::{CONTROL, COUNT, MAIN};
pub use chunks::{Limits, finished_chunks};
pub use control_fs::{
    CONTROL_FS, ControlFs, ControlFsError, TraceDir, TraceSetup, consumer_files, event_channels,
    filter_words,
};
pub use daemon::{DaemonNotification, DaemonOptions, daemon};
pub use daemons::{DaemonError, DaemonTrace, programs_below, snapshot_below, snapshot_of};
pub use error::{OutputError, RecordError, describe};
pub use fallback::record_fallback;
pub use file::{ConsumerFile, FileRing};
pub use ftrace::{FtraceError, KernelEvents, KernelOptions, KernelSummary, KernelTrace, Tracefs};
pub use kernel_file::KernelFile;
pub use open_files::raise_open_files;
pub use record::{Notification, Options, Recording, record};
pub use recorder::RecorderEvent;
pub use relay::{
    RelayEvent, RelayOptions, RelaySummary, SendOptions, SendRecordingError, send_recording,
};
pub use saved::{
    IfExists, LoadedTraces, SavedFile, SavedTrace, SavedTraceError, load_saved_traces,
    print_saved_traces, read_saved_traces, saved_traces_below,
};
pub use session::{
    Progress, RecordingProgress, Session, SessionError, SessionSummary, close_recording,
};
pub use snapshot::{ProcessFiles, SnapshotError, snapshot, snapshot_process};
pub use tracepoints::{
    ProcessTracepoints, TraceTracepoints, Tracepoint, TracepointField, TracepointSource, programs,
    tracepoints,
};
pub use trigger_event::TriggerEvent;
pub use trigger_watch::TriggerOptions;
pub use triggers::{FiredFile, FiredTrigger, TraceTrigger, WaitOutcome};

pub use source::ConsumerSource;
