//! The kinds of contexts, and how they are in a payload.

use super::Apps;
use crate::writer::Remembered;

/// What the names of those begin with that a program defines.
const APP: &[u8] = b"app.";

/// A context that a channel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Vpid,
    Vtid,
    Procname,
    CpuId,
    Ip,
    /// A namespace: its index in [`NAMESPACES`].
    Namespace(u8),
    /// One that the program defines: its place in [`Apps`].
    App(u8),
}

/// The thread's namespaces, in the order in which threads remember them. Their files in
/// `/proc/thread-self/ns` are called so without `_ns`.
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

/// Those but the namespaces, with their names.
const PLAIN: [(Kind, &str); 5] = [
    (Kind::Vpid, "vpid"),
    (Kind::Vtid, "vtid"),
    (Kind::Procname, "procname"),
    (Kind::CpuId, "cpu_id"),
    (Kind::Ip, "ip"),
];

/// What codes of namespaces, and of those that a program defines, begin at.
const NAMESPACE: u8 = 32;
const APP_CODE: u8 = 64;

/// The names of those that any program can tell.
pub(super) fn plain() -> impl Iterator<Item = &'static str> {
    PLAIN.iter().map(|(_, name)| *name).chain(NAMESPACES)
}

impl Kind {
    /// The context with a name; `apps` has those that a program defines, and gets a place for one
    /// that it may define later. Nothing if there is no such context, or no place.
    ///
    /// Nobody may interrupt it who calls it, too.
    pub(crate) fn of_name(name: &[u8], apps: &Apps) -> Option<Self> {
        if let Some(own) = name.strip_prefix(APP) {
            return Some(Self::App(apps.find(own)?));
        }
        // Plain loops: this runs on signal stacks, and in debug builds each adapter takes its part
        // of them.
        for (kind, plain) in &PLAIN {
            if plain.as_bytes() == name {
                return Some(*kind);
            }
        }
        for (at, namespace) in NAMESPACES.iter().enumerate() {
            if namespace.as_bytes() == name {
                return Some(Self::Namespace(at as u8));
            }
        }
        None
    }

    /// Calls `put` with the parts of its description, `TYPE NAME`.
    pub(crate) fn describe(self, apps: &Apps, mut put: impl FnMut(&[u8])) {
        put(match self {
            Self::Vpid | Self::Vtid | Self::CpuId | Self::Namespace(_) => b"u32 ",
            Self::Procname => b"c8[16] ",
            Self::Ip => b"x64 ",
            Self::App(_) => b"u64 ",
        });
        match self {
            Self::Namespace(at) => put(NAMESPACES[usize::from(at) % NAMESPACES.len()].as_bytes()),
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

    /// As a byte, never 0.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Namespace(at) => NAMESPACE + at,
            Self::App(app) => APP_CODE + app,
            plain => PLAIN
                .iter()
                .position(|(kind, _)| *kind == plain)
                .map_or(0, |at| 1 + at as u8),
        }
    }

    /// What a byte stands for; nothing for 0.
    pub(super) fn of_code(code: u8) -> Option<Self> {
        match code {
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
    fn a_context_has_a_name_a_code_and_a_description() {
        let apps = Apps::new();
        for (name, described) in [
            ("vpid", "u32 vpid"),
            ("vtid", "u32 vtid"),
            ("procname", "c8[16] procname"),
            ("cpu_id", "u32 cpu_id"),
            ("ip", "x64 ip"),
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
        for none in ["", "tid", "app", "app.", "app.a b", "net", "net_ns "] {
            assert_eq!(Kind::of_name(none.as_bytes(), &apps), None, "{none}");
        }
        assert_eq!(Kind::of_code(0), None);
        assert_eq!(Kind::of_code(31), None);
    }
}
