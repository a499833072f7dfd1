//! Events of Perfetto's SDK. Its service runs in this process, and moves them into a buffer in
//! memory, which overwrites.

use std::hint::black_box;

use perfetto_sdk::heap_buffer::HeapBuffer;
use perfetto_sdk::pb_msg::{PbMsg, PbMsgWriter};
use perfetto_sdk::producer::{Backends, Producer, ProducerInitArgsBuilder};
use perfetto_sdk::protos::config::data_source_config::DataSourceConfig;
use perfetto_sdk::protos::config::trace_config::{
    TraceConfig, TraceConfigBufferConfig, TraceConfigDataSource,
};
use perfetto_sdk::protos::config::track_event::track_event_config::TrackEventConfig;
use perfetto_sdk::tracing_session::TracingSession;
use perfetto_sdk::track_event::{EventContext, TrackEvent, TrackEventDebugArg};
use perfetto_sdk::{track_event_categories, track_event_instant};

use super::TEXT;

track_event_categories! {
    pub mod perfetto_te_ns {
        ("peers", "Compared with other crates", []),
    }
}

/// The buffer, in KiB.
const BUFFER: u32 = 16 << 10;

/// Starts a session that records the events.
///
/// # Panics
/// If it cannot be started.
pub(super) fn start() -> TracingSession {
    let backends = ProducerInitArgsBuilder::new().backends(Backends::IN_PROCESS);
    Producer::init(backends.build());
    TrackEvent::init();
    perfetto_te_ns::register().expect("the category is new");
    let mut session = TracingSession::in_process().expect("a service in this process");
    session.setup(&configuration());
    session.start_blocking();
    assert!(
        perfetto_te_ns::is_category_enabled(0),
        "the session records no events"
    );
    session
}

fn configuration() -> Vec<u8> {
    let writer = PbMsgWriter::new();
    let buffer = HeapBuffer::new(writer.stream_writer());
    let mut message = PbMsg::new(&writer).expect("it is the first message");
    let mut trace = TraceConfig { msg: &mut message };
    trace.set_buffers(|buffer: &mut TraceConfigBufferConfig| {
        buffer.set_size_kb(BUFFER);
    });
    trace.set_data_sources(|source: &mut TraceConfigDataSource| {
        source.set_config(|source: &mut DataSourceConfig| {
            source.set_name("track_event");
            source.set_track_event_config(|events: &mut TrackEventConfig| {
                events.set_enabled_categories("peers");
            });
        });
    });
    message.finalize();
    let mut bytes = vec![0; writer.stream_writer().get_written_size()];
    buffer.copy_into(&mut bytes);
    bytes
}

#[inline(never)]
pub(super) fn events(count: u64) {
    for n in 0..count {
        track_event_instant!("peers", "layer", |event: &mut EventContext| {
            event.add_debug_arg("n", TrackEventDebugArg::Uint64(black_box(n)));
            event.add_debug_arg("text", TrackEventDebugArg::String(TEXT));
        });
    }
}
