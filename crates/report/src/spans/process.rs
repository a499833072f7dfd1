//! Processes that spans belong to.

use std::collections::HashMap;

use usertrace_reader::{Event, Metadata};

use super::thread;

/// Most threads with names.
const MAX_THREADS: usize = 1 << 16;

/// A process that spans belong to.
#[derive(Clone, Debug, Default)]
pub struct ProcessInfo {
    /// Its name, if it is known.
    pub name: Option<String>,
    /// Its process id.
    pub pid: Option<i64>,
    /// Its host.
    pub host: Option<String>,
    threads: HashMap<i64, String>,
}

impl ProcessInfo {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            name: metadata.owner_name().map(str::to_owned),
            pid: metadata.pid(),
            host: metadata.env_text("hostname").map(str::to_owned),
            threads: HashMap::new(),
        }
    }

    /// Notes the name of an event's thread.
    pub(super) fn note_thread(&mut self, event: &Event<'_>, thread: Option<i64>) {
        let Some((tid, name)) = thread.zip(thread::thread_name(event)) else {
            return;
        };
        let has_room = self.threads.len() < MAX_THREADS;
        match self.threads.get_mut(&tid) {
            Some(known) if known.as_bytes() == name => {}
            Some(known) => *known = String::from_utf8_lossy(name).into_owned(),
            None if has_room => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.threads.insert(tid, name);
            }
            None => {}
        }
    }

    /// The last name of a thread, if it is known.
    #[must_use]
    pub fn thread_name(&self, tid: i64) -> Option<&str> {
        self.threads.get(&tid).map(String::as_str)
    }
}
