//! Traces of programs that use `tracing`, as its layer writes them.

use std::path::Path;

use usertrace_ctf::{StreamWriter, TraceWriter};

use crate::processes::{clock, info, stream_with_contexts};

/// Cycles of the clock at [`START`](crate::processes::START).
const FIRST: u64 = 1_000_000;

/// The trace of a process with the spans `shop:request`, which have a path and later a status, and
/// `shop:query`, which have a table. Both may have the event `shop:main.rs-12`.
#[derive(Debug)]
pub struct SpanTrace {
    _trace: TraceWriter,
    stream: StreamWriter,
}

/// Time in ns after the start, and thread.
pub type At = (u64, u32);

const EVENTS: [&str; 18] = [
    "1 shop:request.new 6 u64 span;u64 parent;str path",
    "2 shop:request.record 6 u64 span;u16 status",
    "3 shop:request.follows 6 u64 span;u64 follows",
    "4 shop:request.enter 6 u64 span",
    "5 shop:request.exit 6 u64 span",
    "6 shop:request.close 6 u64 span",
    "7 shop:main.rs-12 6 u64 span;str message",
    "8 shop:query.new 6 u64 span;u64 parent;str table",
    "9 shop:query.follows 6 u64 span;u64 follows",
    "10 shop:query.enter 6 u64 span",
    "11 shop:query.exit 6 u64 span",
    "12 shop:query.close 6 u64 span",
    "13 libc:read 6 u32 fd",
    "14 libc:malloc 6 u64 size;x64 ptr",
    "15 libc:free 6 x64 ptr",
    "16 pthread:mutex_lock_req 6 x64 mutex",
    "17 pthread:mutex_lock_acq 6 x64 mutex;s32 result",
    "18 pthread:mutex_unlock 6 x64 mutex;s32 result",
];

impl SpanTrace {
    /// Begins the trace of process `shop` with this id.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn create(directory: &Path, pid: u32) -> Self {
        let path = directory.join(format!("shop-{pid}"));
        let info = info("shop", pid, Some("web1"));
        let mut trace = TraceWriter::create(&path, info, clock(1_000_000_000)).unwrap();
        let contexts = "@1 u32 vtid;c8[16] procname";
        let stream = stream_with_contexts(&mut trace, contexts, &EVENTS);
        Self {
            _trace: trace,
            stream,
        }
    }

    fn write(&mut self, id: u16, (time, thread): At, fields: &[&[u8]]) {
        let mut contexts = thread.to_ne_bytes().to_vec();
        let mut name = [0; 16];
        let text = format!("worker-{thread}");
        name[..text.len()].copy_from_slice(text.as_bytes());
        contexts.extend(name);
        self.stream
            .event(id, FIRST + time, &contexts, &fields.concat())
            .unwrap();
    }

    /// A request is made.
    pub fn request(&mut self, at: At, [id, parent]: [u64; 2], path: &str) {
        let path = [path.as_bytes(), b"\0"].concat();
        self.write(1, at, &[&id.to_ne_bytes(), &parent.to_ne_bytes(), &path]);
    }

    /// A query is made.
    pub fn query(&mut self, at: At, [id, parent]: [u64; 2], table: &str) {
        let table = [table.as_bytes(), b"\0"].concat();
        self.write(8, at, &[&id.to_ne_bytes(), &parent.to_ne_bytes(), &table]);
    }

    /// A request gets its status.
    pub fn status(&mut self, at: At, id: u64, status: u16) {
        self.write(2, at, &[&id.to_ne_bytes(), &status.to_ne_bytes()]);
    }

    /// A request (`true`) or a query follows from a span.
    pub fn follows(&mut self, at: At, is_request: bool, [id, of]: [u64; 2]) {
        let kind = if is_request { 3 } else { 9 };
        self.write(kind, at, &[&id.to_ne_bytes(), &of.to_ne_bytes()]);
    }

    /// A thread enters a request or a query.
    pub fn enter(&mut self, at: At, is_request: bool, id: u64) {
        self.write(if is_request { 4 } else { 10 }, at, &[&id.to_ne_bytes()]);
    }

    /// A thread leaves it.
    pub fn exit(&mut self, at: At, is_request: bool, id: u64) {
        self.write(if is_request { 5 } else { 11 }, at, &[&id.to_ne_bytes()]);
    }

    /// It is over.
    pub fn close(&mut self, at: At, is_request: bool, id: u64) {
        self.write(if is_request { 6 } else { 12 }, at, &[&id.to_ne_bytes()]);
    }

    /// Something happens in it.
    pub fn message(&mut self, at: At, id: u64, message: &str) {
        let message = [message.as_bytes(), b"\0"].concat();
        self.write(7, at, &[&id.to_ne_bytes(), &message]);
    }

    /// Something happens that knows no spans.
    pub fn other(&mut self, at: At) {
        self.write(13, at, &[&3u32.to_ne_bytes()]);
    }

    /// A thread allocates a block.
    pub fn malloc(&mut self, at: At, size: u64, ptr: u64) {
        self.write(14, at, &[&size.to_ne_bytes(), &ptr.to_ne_bytes()]);
    }

    /// A thread frees a block.
    pub fn free(&mut self, at: At, ptr: u64) {
        self.write(15, at, &[&ptr.to_ne_bytes()]);
    }

    /// A thread asks for a mutex, has it, and releases it.
    pub fn lock(&mut self, thread: u32, mutex: u64, times: [u64; 3]) {
        let (mutex, done) = (mutex.to_ne_bytes(), 0i32.to_ne_bytes());
        let [asks, has, releases] = times.map(|time| (time, thread));
        self.write(16, asks, &[&mutex]);
        self.write(17, has, &[&mutex, &done]);
        self.write(18, releases, &[&mutex, &done]);
    }

    /// Notes that events were lost.
    pub fn lose(&mut self, count: u64) {
        self.stream.discard(count);
    }

    /// Completes the trace.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn finish(mut self) {
        self.stream.finish().unwrap();
    }
}
