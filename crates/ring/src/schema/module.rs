//! Descriptions of the modules that a process has loaded: its program and its libraries.

use std::fmt::Write as _;

use super::{DescriptionError, percent};

/// Prefix of the description of a loaded module, in place of an event id.
const LOADED: char = '+';
/// Prefix of the description of an unloaded one.
const UNLOADED: char = '-';
/// Stands for a word that is unknown.
const NONE: &str = "-";
/// Maximum length of a build ID in bytes. Linkers write 8 to 32, users up to 64.
const MAX_BUILD_ID: usize = 64;

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Address of its lowest segment.
    pub base: u64,
    /// Length up to the end of its highest segment: at least 1.
    pub size: u64,
    /// Whether it is position-independent. If not, addresses in the file are those in memory.
    pub is_pic: bool,
    /// Its build ID; empty if it has none.
    pub build_id: Vec<u8>,
    /// The separate debug file that it names.
    pub debug_link: Option<DebugLink>,
    /// Path of its file, as the process sees it; `[vdso]` for the kernel's library. Invalid UTF-8
    /// is replaced. None if it is unknown.
    pub path: Option<String>,
}

/// The section `.gnu_debuglink` of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// CRC of the debug file.
    pub crc: u32,
    /// Name of the debug file.
    pub name: String,
}

/// A change to the modules of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleChange {
    /// It is loaded.
    Loaded(Module),
    /// The module with this base is gone.
    Unloaded(u64),
}

impl ModuleChange {
    /// Whether a line describes a module.
    pub(super) fn is_described_by(line: &str) -> bool {
        line.starts_with([LOADED, UNLOADED])
    }

    /// Parses a description without the NUL at its end.
    pub(super) fn parse(line: &str) -> Result<Self, DescriptionError> {
        Self::of(line).ok_or(DescriptionError::Module)
    }

    fn of(line: &str) -> Option<Self> {
        if let Some(base) = line.strip_prefix(UNLOADED) {
            return Some(Self::Unloaded(hex(base)?));
        }
        let mut words = line.strip_prefix(LOADED)?.split(' ');
        let mut word = || words.next();
        let (base, size) = (hex(word()?)?, hex(word()?)?);
        // Its end is an address, too.
        base.checked_add(size).filter(|_| size > 0)?;
        let is_pic = match word()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let build_id = known(word()?, build_id)?.unwrap_or_default();
        let crc = known(word()?, |crc| u32::try_from(hex(crc)?).ok())?;
        let link = known(word()?, text)?;
        let debug_link = match (crc, link) {
            (Some(crc), Some(name)) => Some(DebugLink { crc, name }),
            (None, None) => None,
            _ => return None,
        };
        let path = known(word()?, text)?;
        words.next().is_none().then_some(Self::Loaded(Module {
            base,
            size,
            is_pic,
            build_id,
            debug_link,
            path,
        }))
    }

    /// Formats the description.
    #[must_use]
    pub fn line(&self) -> String {
        let module = match self {
            Self::Unloaded(base) => return format!("{UNLOADED}{base:x}"),
            Self::Loaded(module) => module,
        };
        let (base, size) = (module.base, module.size);
        let mut line = format!("{LOADED}{base:x} {size:x} {} ", u8::from(module.is_pic));
        if module.build_id.is_empty() {
            line += NONE;
        }
        for byte in &module.build_id {
            let _ = write!(line, "{byte:02x}");
        }
        let _ = match &module.debug_link {
            None => write!(line, " {NONE} {NONE}"),
            Some(link) => write!(line, " {:x} {}", link.crc, percent::encode(&link.name)),
        };
        let path = module.path.as_deref().map(percent::encode);
        let _ = write!(line, " {}", path.as_deref().unwrap_or(NONE));
        line
    }
}

/// Parses a word unless it stands for an unknown one. The outer option is none if it is invalid.
fn known<T>(word: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match word {
        NONE => Some(None),
        word => parse(word).map(Some),
    }
}

/// Parses a number in lower-case hexadecimal without leading zeros.
fn hex(word: &str) -> Option<u64> {
    let is_number = word.bytes().all(is_digit) && (word == "0" || !word.starts_with('0'));
    is_number.then(|| u64::from_str_radix(word, 16).ok())?
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn build_id(word: &str) -> Option<Vec<u8>> {
    let (digits, rest) = word.as_bytes().as_chunks::<2>();
    if digits.is_empty() || digits.len() > MAX_BUILD_ID || !rest.is_empty() {
        return None;
    }
    let byte = |digits: &[u8; 2]| {
        let digits = digits
            .iter()
            .all(|&byte| is_digit(byte))
            .then_some(digits)?;
        u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    digits.iter().map(byte).collect()
}

/// Decodes a text: not empty, and without NUL.
fn text(word: &str) -> Option<String> {
    let bytes = percent::decode_bytes(word)?;
    let is_text = !bytes.is_empty() && !bytes.contains(&0);
    is_text.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::Description;

    fn parse(line: &str) -> Result<ModuleChange, DescriptionError> {
        match Description::parse(line.as_bytes())? {
            Description::Module(change) => Ok(change),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn modules_are_parsed() {
        for line in [
            "+400000 1000 0 - - - %2Fbin%2Fa",
            "+7f12345ff000 2a000 1 00ff01 - - %2Flib%2Fx.so",
            "+7ffffffff000 1000 1 ab - - %5Bvdso%5D",
            "+1 1 1 - deadbeef x.debug -",
            "-7f12345ff000",
            "-0",
        ] {
            assert_eq!(parse(line).map(|change| change.line()), Ok(line.to_owned()));
        }
        let Ok(ModuleChange::Loaded(module)) = parse("+a000 2000 1 0aff 1f a.debug %2Fa%20b%FF")
        else {
            panic!()
        };
        let debug_link = Some(DebugLink {
            crc: 0x1f,
            name: "a.debug".to_owned(),
        });
        let expected = Module {
            base: 0xa000,
            size: 0x2000,
            is_pic: true,
            build_id: vec![0x0a, 0xff],
            debug_link,
            path: Some("/a b\u{fffd}".to_owned()),
        };
        assert_eq!(module, expected);
    }

    #[test]
    fn invalid_modules_are_refused() {
        for line in [
            "+",
            "-",
            "--1",
            "-0x1",
            "-A",
            "-01",
            "-10000000000000000",
            "-1 ",
            "+1 0 1 - - - -",
            "+ffffffffffffffff 1 1 - - - -",
            "+1 1 2 - - - -",
            "+1 1 1 a - - -",
            "+1 1 1 ABCD - - -",
            "+1 1 1 +1 - - -",
            "+1 1 1 - 1 - -",
            "+1 1 1 - - x -",
            "+1 1 1 - 100000000 x -",
            "+1 1 1 - - - /a",
            "+1 1 1 - - - a%00b",
            "+1 1 1 - - - ",
            "+1 1 1 - - - a b",
            "+1 1 1 - - -",
            "+1  1 1 - - - -",
        ] {
            assert_eq!(parse(line), Err(DescriptionError::Module), "{line}");
        }
        let long = format!("+1 1 1 {} - - -", "ab".repeat(MAX_BUILD_ID + 1));
        assert_eq!(parse(&long), Err(DescriptionError::Module));
    }

    proptest! {
        /// Requirements: F4
        #[test]
        fn arbitrary_modules_are_survived(
            line in "[-+][0-9a-f]{0,17}( [-0-9a-f]{0,4}){0,5}( [-a-z%0-9A-F.]{0,9}){0,2}",
        ) {
            if let Ok(change) = parse(&line) {
                // Invalid UTF-8 in a path is replaced once.
                let again = parse(&change.line());
                prop_assert_eq!(again, Ok(change));
            }
        }

        #[test]
        fn modules_round_trip(
            base in 0..=u64::MAX >> 1,
            size in 1..=u64::MAX >> 1,
            is_pic: bool,
            build_id in prop::collection::vec(any::<u8>(), 0..=MAX_BUILD_ID),
            debug_link in prop::option::of((any::<u32>(), "[^\0-]{1,20}")),
            path in prop::option::of("/[^\0]{0,80}"),
        ) {
            let debug_link = debug_link.map(|(crc, name)| DebugLink { crc, name });
            let module = Module { base, size, is_pic, build_id, debug_link, path };
            let change = ModuleChange::Loaded(module);
            prop_assert_eq!(parse(&change.line()), Ok(change));
        }
    }
}
