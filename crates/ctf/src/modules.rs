//! The events about modules: names and fields are those of LTTng-UST, so that `babeltrace2` and
//! Trace Compass find the symbols of addresses.

use usertrace_ring::schema::{Contexts, Description, Event, Module};

/// Providers of the events about modules: of the state at a moment, and of changes.
pub const MODULE_PROVIDERS: [&str; 2] = ["lttng_ust_statedump", "lttng_ust_lib"];

/// Name of the stream file. Those of rings end with a number.
pub(super) const MODULES_FILE: &str = "modules";

/// Whether an event is about modules, and so no event of the program.
#[must_use]
pub fn is_module_event(name: &str) -> bool {
    let provider = name.split_once(':').map(|(provider, _)| provider);
    provider.is_some_and(|provider| MODULE_PROVIDERS.contains(&provider))
}

/// The contexts that `babeltrace2` wants. An instruction pointer has no meaning here.
const CONTEXTS: &str = "@0 s32 vpid;x64 ip";

/// An event about modules: its id in its class of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModuleEvent {
    Start = 1,
    End,
    BinInfo,
    BuildId,
    DebugLink,
    Load,
    LoadBuildId,
    LoadDebugLink,
    Unload,
}

/// Descriptions of the events.
const EVENTS: [(ModuleEvent, &str); 9] = [
    (ModuleEvent::Start, "lttng_ust_statedump:start 13"),
    (ModuleEvent::End, "lttng_ust_statedump:end 13"),
    (
        ModuleEvent::BinInfo,
        "lttng_ust_statedump:bin_info 13 x64 baddr;u64 memsz;str path;u8 is_pic;u8 has_build_id;u8 has_debug_link",
    ),
    (
        ModuleEvent::BuildId,
        "lttng_ust_statedump:build_id 13 x64 baddr;x8[] build_id",
    ),
    (
        ModuleEvent::DebugLink,
        "lttng_ust_statedump:debug_link 13 x64 baddr;x32 crc;str filename",
    ),
    (
        ModuleEvent::Load,
        "lttng_ust_lib:load 13 x64 baddr;u64 memsz;str path;u8 has_build_id;u8 has_debug_link",
    ),
    (
        ModuleEvent::LoadBuildId,
        "lttng_ust_lib:build_id 13 x64 baddr;x8[] build_id",
    ),
    (
        ModuleEvent::LoadDebugLink,
        "lttng_ust_lib:debug_link 13 x64 baddr;x32 crc;str filename",
    ),
    (ModuleEvent::Unload, "lttng_ust_lib:unload 13 x64 baddr"),
];

/// Descriptions of all events about modules.
pub(super) fn module_events() -> Vec<Event> {
    let lines = EVENTS
        .iter()
        .map(|(id, line)| format!("{} {line}", *id as u16));
    lines
        .map(|line| match Event::parse(line.as_bytes()) {
            Ok(event) => event,
            Err(error) => unreachable!("{line}: {error}"),
        })
        .collect()
}

/// Name of an event that never occurs.
pub const UNUSED_EVENT: &str = "usertrace:unused";

/// An event that never occurs. The debug-info filter of `babeltrace2` aborts unless the ids of a
/// class begin with 0 and have no gaps; those of rings begin with 1.
pub(super) fn unused_event() -> Event {
    Event {
        id: 0,
        name: UNUSED_EVENT.to_owned(),
        loglevel: 14,
        format: None,
        fields: Vec::new(),
    }
}

/// Contexts of the events about modules.
pub(super) fn module_contexts() -> Contexts {
    match Description::parse(CONTEXTS.as_bytes()) {
        Ok(Description::Contexts(contexts)) => contexts,
        other => unreachable!("{other:?}"),
    }
}

/// Values of the contexts.
pub(super) fn context_values(vpid: i32) -> [u8; 12] {
    let mut values = [0; 12];
    values[..4].copy_from_slice(&vpid.to_ne_bytes());
    values
}

/// Calls `emit` with the events and payloads that describe a loaded module. `is_dump`: as part of
/// the state, else as a change.
pub(super) fn describe<E>(
    module: &Module,
    is_dump: bool,
    mut emit: impl FnMut(ModuleEvent, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let base = module.base.to_ne_bytes();
    let (bin_info, build_id, debug_link) = match is_dump {
        true => (
            ModuleEvent::BinInfo,
            ModuleEvent::BuildId,
            ModuleEvent::DebugLink,
        ),
        false => (
            ModuleEvent::Load,
            ModuleEvent::LoadBuildId,
            ModuleEvent::LoadDebugLink,
        ),
    };
    let mut payload = base.to_vec();
    payload.extend_from_slice(&module.size.to_ne_bytes());
    push_text(&mut payload, module.path.as_deref().unwrap_or_default());
    if is_dump {
        payload.push(module.is_pic.into());
    }
    payload.push((!module.build_id.is_empty()).into());
    payload.push(module.debug_link.is_some().into());
    emit(bin_info, &payload)?;
    if !module.build_id.is_empty() {
        let mut payload = base.to_vec();
        payload.extend_from_slice(&(module.build_id.len() as u32).to_ne_bytes());
        payload.extend_from_slice(&module.build_id);
        emit(build_id, &payload)?;
    }
    if let Some(link) = &module.debug_link {
        let mut payload = base.to_vec();
        payload.extend_from_slice(&link.crc.to_ne_bytes());
        push_text(&mut payload, &link.name);
        emit(debug_link, &payload)?;
    }
    Ok(())
}

/// Appends a text, which has no NUL, and a NUL.
fn push_text(payload: &mut Vec<u8>, text: &str) {
    payload.extend_from_slice(text.as_bytes());
    payload.push(0);
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use usertrace_ring::schema::DebugLink;

    use super::*;

    #[test]
    fn payloads_agree_with_the_descriptions() {
        let events = module_events();
        let module = Module {
            base: 0x7f00_0000_0000,
            size: 0x1000,
            is_pic: true,
            build_id: vec![1, 2, 3],
            debug_link: Some(DebugLink {
                crc: 7,
                name: "a.debug".into(),
            }),
            path: Some("/lib/a.so".into()),
        };
        let bare = Module {
            build_id: Vec::new(),
            debug_link: None,
            path: None,
            ..module.clone()
        };
        for (module, is_dump, expected) in [
            (&module, true, &[3, 4, 5][..]),
            (&module, false, &[6, 7, 8]),
            (&bare, true, &[3]),
            (&bare, false, &[6]),
        ] {
            let mut ids = Vec::new();
            let Ok(()) = describe(module, is_dump, |event, payload| {
                ids.push(event as u16);
                let event = &events[event as usize - 1];
                assert_eq!(event.payload_len(payload), Some(payload.len()), "{event:?}");
                Ok::<_, Infallible>(())
            });
            assert_eq!(ids, expected);
        }
        assert!(events.iter().all(|event| is_module_event(&event.name)));
        assert!((1..).zip(&events).all(|(id, event)| event.id == id));
        assert!(!is_module_event("lttng_ust_library:load") && !is_module_event("lttng_ust_lib"));
    }
}
