//! Debug files from `debuginfod` servers, by the client that the system has.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::build_id::BuildId;

const CLIENT: &str = "debuginfod-find";
const URLS: &str = "DEBUGINFOD_URLS";

/// Time limit of a download, and the pause between two looks at the client.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of build IDs that servers are asked for. A trace may have any number.
const MAX_ASKED: usize = 512;
/// Number of downloads that may reach the limit before no more are tried.
const MAX_FAILURES: u32 = 2;

/// Asks `debuginfod` servers.
#[derive(Debug, Default)]
pub(crate) struct Debuginfod {
    /// Build IDs that were asked for, and the files.
    asked: HashMap<BuildId, Option<PathBuf>>,
    failures: u32,
}

impl Debuginfod {
    /// The path of a debug file, from the client's cache or from a server. Each build ID is asked
    /// for once.
    pub(crate) fn find(&mut self, id: &BuildId) -> Option<PathBuf> {
        if let Some(known) = self.asked.get(id) {
            return known.clone();
        }
        let found = cached(id).or_else(|| self.download(id));
        self.asked.insert(id.clone(), found.clone());
        found
    }

    fn download(&mut self, id: &BuildId) -> Option<PathBuf> {
        let is_configured = env::var_os(URLS).is_some_and(|urls| !urls.is_empty());
        let is_over = self.failures >= MAX_FAILURES || self.asked.len() >= MAX_ASKED;
        if !is_configured || is_over {
            return None;
        }
        let mut command = Command::new(CLIENT);
        command.arg("debuginfo").arg(id.to_string());
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::piped());
        // Not installed.
        let mut client = command.spawn().ok()?;
        if !ends_in_time(&mut client, TIME_LIMIT) {
            self.failures += 1;
            return None;
        }
        // The output is a path, which fits into the pipe's buffer.
        let mut output = Vec::new();
        let stdout = client.stdout.take()?;
        stdout.take(1 << 16).read_to_end(&mut output).ok()?;
        let path = output.split(|&byte| byte == b'\n').next()?;
        (!path.is_empty()).then(|| OsStr::from_bytes(path).into())
    }
}

/// Waits for a client, and kills it when the time is over. Returns whether it was successful.
fn ends_in_time(client: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        match client.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if start.elapsed() < limit => thread::sleep(PAUSE),
            _ => {
                let _ = client.kill();
                let _ = client.wait();
                return false;
            }
        }
    }
}

/// The file in the client's cache, if it is there.
fn cached(id: &BuildId) -> Option<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let path = |name, below: &str| Some(PathBuf::from(variable(name)?).join(below));
    let directories = match variable("DEBUGINFOD_CACHE_PATH") {
        Some(directory) => vec![Some(directory.into())],
        None => vec![
            path("XDG_CACHE_HOME", "debuginfod_client"),
            path("HOME", ".cache/debuginfod_client"),
            path("HOME", ".debuginfod_client_cache"),
        ],
    };
    let files = directories.into_iter().flatten();
    let mut files =
        files.map(|directory: PathBuf| directory.join(id.to_string()).join("debuginfo"));
    // An empty file says that no server has it.
    files.find(|file| {
        file.metadata()
            .is_ok_and(|file| file.is_file() && file.len() > 0)
    })
}
