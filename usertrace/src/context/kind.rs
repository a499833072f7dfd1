//! The kinds of contexts, and their encoding in descriptions.

use super::Apps;
use super::callstack::MAX_FRAMES;
use crate::writer::Remembered;

/// The prefix of the names of contexts that a program defines.
const APP: &[u8] = b"app.";

/// A context that a channel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Vpid,
    Vtid,
    Procname,
    CpuId,
    Ip,
    /// The call stack, with at most this number of frames.
    Callstack(u8),
    /// A namespace: its index in [`NAMESPACES`].
    Namespace(u8),
    /// A context that the program defines: its index in [`Apps`].
    App(u8),
}

/// The thread's namespaces, in the order of its cache. Their files in `/proc/thread-self/ns` have
/// these names without `_ns`.
pub(super) const NAMESPACES: [&str; Remembered::NAMESPACES] = [
    "cgroup_ns",
    "ipc_ns",
    "mnt_ns",
    "net_ns",
    "pid_ns",
    "time_ns",
    "user_ns",
    "uts_ns",
];

/// The predefined contexts other than namespaces, with their names.
const PLAIN: [(Kind, &str); 5] = [
    (Kind::Vpid, "vpid"),
    (Kind::Vtid, "vtid"),
    (Kind::Procname, "procname"),
    (Kind::CpuId, "cpu_id"),
    (Kind::Ip, "ip"),
];

/// The first code of namespaces, and that of contexts that a program defines.
const NAMESPACE: u8 = 32;
const APP_CODE: u8 = 64;
/// The code of a call stack of one frame; longer ones follow.
const CALLSTACK: u8 = 192;
const _: () = assert!(CALLSTACK as usize + MAX_FRAMES - 1 <= u8::MAX as usize);

/// The name of the call stack. A number of frames may follow, as in `callstack:32`.
pub(super) const CALLSTACK_NAME: &str = "callstack";
/// The number of frames without one.
const FRAMES: u8 = 16;

/// The names of the predefined contexts.
pub(super) fn plain() -> impl Iterator<Item = &'static str> {
    let plain = PLAIN.iter().map(|(_, name)| *name);
    plain.chain([CALLSTACK_NAME]).chain(NAMESPACES)
}

/// The number of frames of a call stack with this name; none if it is another name.
pub(super) fn frames(name: &[u8]) -> Option<u8> {
    match name.strip_prefix(CALLSTACK_NAME.as_bytes())? {
        [] => Some(FRAMES),
        [b':', first @ b'1'..=b'9'] => Some(first - b'0'),
        [b':', first @ b'1'..=b'9', second @ b'0'..=b'9'] => {
            let frames = 10 * (first - b'0') + (second - b'0');
            (usize::from(frames) <= MAX_FRAMES).then_some(frames)
        }
        _ => None,
    }
}

impl Kind {
    /// Finds a context by its name. `apps` has those that a program defines; one that the program
    /// may define later is reserved there. None if there is no such context, or no free entry.
    ///
    /// Signals must be blocked, so that no handler calls this in between.
    pub(crate) fn of_name(name: &[u8], apps: &Apps) -> Option<Self> {
        if let Some(own) = name.strip_prefix(APP) {
            return Some(Self::App(apps.find(own)?));
        }
        // Plain loops: this runs on signal stacks, and in debug builds each iterator adapter takes
        // stack.
        for (kind, plain) in &PLAIN {
            if plain.as_bytes() == name {
                return Some(*kind);
            }
        }
        if let Some(frames) = frames(name) {
            return Some(Self::Callstack(frames));
        }
        for (at, namespace) in NAMESPACES.iter().enumerate() {
            if namespace.as_bytes() == name {
                return Some(Self::Namespace(at as u8));
            }
        }
        None
    }

    /// Passes its description, `TYPE NAME`, to `put` in parts.
    pub(crate) fn describe(self, apps: &Apps, mut put: impl FnMut(&[u8])) {
        put(match self {
            // Signed, as those of LTTng-UST: readers that look for symbols want them so.
            Self::Vpid | Self::Vtid => b"s32 ",
            Self::CpuId | Self::Namespace(_) => b"u32 ",
            Self::Procname => b"c8[16] ",
            Self::Ip => b"x64 ",
            Self::Callstack(_) => b"x64[] ",
            Self::App(_) => b"u64 ",
        });
        match self {
            Self::Namespace(at) => put(NAMESPACES[usize::from(at) % NAMESPACES.len()].as_bytes()),
            Self::Callstack(_) => put(CALLSTACK_NAME.as_bytes()),
            Self::App(app) => {
                put(APP);
                apps.each_byte(app, |byte| put(&[byte]));
            }
            _ => {
                for (kind, name) in &PLAIN {
                    if *kind == self {
                        put(name.as_bytes());
                    }
                }
            }
        }
    }

    /// The context's code, a byte that is never 0.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Namespace(at) => NAMESPACE + at,
            Self::App(app) => APP_CODE + app,
            Self::Callstack(frames) => CALLSTACK + (frames - 1),
            plain => PLAIN
                .iter()
                .position(|(kind, _)| *kind == plain)
                .map_or(0, |at| 1 + at as u8),
        }
    }

    /// The context with a code; none for 0.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        match code {
            CALLSTACK.. => Some(Self::Callstack(code - CALLSTACK + 1)),
            APP_CODE.. => Some(Self::App(code - APP_CODE)),
            NAMESPACE.. => Some(Self::Namespace(code - NAMESPACE)),
            _ => Some(PLAIN.get(usize::from(code.checked_sub(1)?))?.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_names_codes_and_descriptions() {
        let apps = Apps::new();
        for (name, described) in [
            ("vpid", "s32 vpid"),
            ("vtid", "s32 vtid"),
            ("procname", "c8[16] procname"),
            ("cpu_id", "u32 cpu_id"),
            ("ip", "x64 ip"),
            ("callstack", "x64[] callstack"),
            ("callstack:1", "x64[] callstack"),
            ("callstack:64", "x64[] callstack"),
            ("cgroup_ns", "u32 cgroup_ns"),
            ("uts_ns", "u32 uts_ns"),
            ("app.request", "u64 app.request"),
            ("app.b", "u64 app.b"),
        ] {
            let kind = Kind::of_name(name.as_bytes(), &apps).unwrap();
            assert_eq!(Kind::of_code(kind.code()), Some(kind), "{name}");
            let mut text = Vec::new();
            kind.describe(&apps, |part| text.extend_from_slice(part));
            assert_eq!(String::from_utf8(text).unwrap(), described);
        }
        let sizes = ["callstack", "callstack:1", "callstack:16", "callstack:64"];
        let sizes = sizes.map(|name| frames(name.as_bytes()));
        assert_eq!(sizes, [16, 1, 16, 64].map(Some));
        for none in [
            "callstack:",
            "callstack:0",
            "callstack:01",
            "callstack:65",
            "callstack:+1",
            "callstack:128",
            "callstacks",
        ] {
            assert_eq!(Kind::of_name(none.as_bytes(), &apps), None, "{none}");
        }
        for none in ["", "tid", "app", "app.", "app.a b", "net", "net_ns "] {
            assert_eq!(Kind::of_name(none.as_bytes(), &apps), None, "{none}");
        }
        assert_eq!(Kind::of_code(0), None);
        assert_eq!(Kind::of_code(31), None);
    }
}
