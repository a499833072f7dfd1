//! Reads the settings of a trace from the control file system.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use usertrace_sys::files::file_info;

use super::error::SavedTraceError;
use super::key::{self, ALLOCATE, Key, PREFAULT, STARTED, SUBBUF_COUNT, SUBBUF_SIZE, Value};
use super::trace::{SavedChannel, SavedTrace, Setting, setting};
use crate::control_fs::{CONTROL_SUBBUFS, ControlFsError, TraceDir, consumer_files};
use crate::{CONTROL, MAIN};

/// Bytes in a sub-buffer of the channel `control` in new traces.
const CONTROL_SUBBUF_SIZE: u64 = 64 << 10;

impl SavedTrace {
    /// Reads the settings of a trace.
    ///
    /// # Errors
    /// If they cannot be read, for example because the trace was removed meanwhile.
    pub fn capture(trace: &TraceDir) -> Result<Self, SavedTraceError> {
        let path = trace.path();
        let mut settings = settings(path, key::of_trace())?;
        // The start allocates, so the key says something only of a trace that is not started.
        if is(&settings, &STARTED) {
            settings.retain(|setting| setting.key.name != ALLOCATE.name);
        }
        let mut channels = Vec::new();
        for name in channel_names(path).map_err(read_error(path))? {
            let settings = self::settings(&path.join(&name), key::of_channel(&name))?;
            if name == CONTROL && is_usual_control(&settings) {
                continue;
            }
            channels.push(SavedChannel {
                name,
                line: 0,
                settings,
            });
        }
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            line: 0,
            settings,
            channels,
        })
    }
}

/// Whether a flag is set.
fn is(settings: &[Setting], key: &Key) -> bool {
    setting(settings, key).is_some_and(|setting| setting.value == Value::Flag(true))
}

/// Whether the channel `control` is as in each new trace, so that nobody needs to read of it.
fn is_usual_control(settings: &[Setting]) -> bool {
    let is = |key: &Key, number: u64| {
        let setting = setting(settings, key);
        setting.is_some_and(|setting| setting.value == Value::Number(number))
    };
    is(&SUBBUF_SIZE, CONTROL_SUBBUF_SIZE)
        && is(&SUBBUF_COUNT, CONTROL_SUBBUFS.into())
        && setting(settings, &PREFAULT).is_none()
}

/// Reads the settings of a trace or channel, without those that `usertrace save` leaves out.
pub(super) fn settings(
    directory: &Path,
    keys: &'static [Key],
) -> Result<Vec<Setting>, ControlFsError> {
    let mut settings = Vec::new();
    for key in keys {
        let path = directory.join(key.file);
        let text = fs::read_to_string(&path).map_err(read_error(&path))?;
        if key.silent == Some(text.trim_end()) {
            continue;
        }
        let value = key.kind.of_control_file(&text).ok_or_else(|| {
            let why = format!("{:?} is not {}", text.trim_end(), key.kind.describe());
            read_error(&path)(io::Error::new(io::ErrorKind::InvalidData, why))
        })?;
        settings.push(Setting {
            key,
            value,
            line: 0,
        });
    }
    Ok(settings)
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> ControlFsError + '_ {
    |source| ControlFsError::Io {
        what: "read",
        path: path.to_owned(),
        source,
    }
}

/// The channels of a trace: `control`, `main`, then the others in the order in which the kernel
/// searches them for an event.
fn channel_names(trace: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(trace)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.file_type()?.is_dir()
        {
            names.push(name);
        }
    }
    // The file system lists the newest entry first. That is the reverse order, unless a channel was
    // removed and another one got its index. Files of processes have the exact order.
    names.reverse();
    names.sort_by_cached_key(|name| {
        let position = position(&trace.join(name));
        (name != CONTROL, name != MAIN, position)
    });
    Ok(names)
}

/// The position of a channel's rings, which is in the order of indices. `None` if no process has
/// the channel.
fn position(channel: &Path) -> Option<u64> {
    let files = consumer_files(channel).ok()?;
    let infos = files.iter().filter_map(|name| {
        let file = File::open(channel.join(name)).ok()?;
        file_info(file.as_fd()).ok()
    });
    let mut positions = infos.map(|info| info.channel.control_offset);
    positions.next()
}
