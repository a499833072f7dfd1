//! Parses vmcoreinfo: lines of text in which a kernel describes itself to dump tools.

use std::str::FromStr;

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::NoteIterator;

use usertrace_ctf::Crash;
use usertrace_sys::printable;

/// Maximum size of the notes, or of this text. Each CPU has some hundred bytes.
pub(super) const MAX_NOTES: u64 = 16 << 20;

/// The values of vmcoreinfo that this crate uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmcoreinfo {
    /// Physical address of the root page: the line `NUMBER(ltt_root)=`.
    pub root: Option<u64>,
    /// The kernel's version.
    pub release: Option<String>,
    /// Time and place of the crash: the line `CRASHTIME=`, and lines that start with
    /// `NUMBER(ltt_crash_`.
    pub crash: Crash,
    /// A note had a wrong length, and `root` was found by searching for the name of the note.
    pub is_from_damaged_notes: bool,
}

/// The name of the note.
const NAME: &[u8] = b"VMCOREINFO\0";
/// Size of the header before the name, and offset of the text after the name.
const NOTE_HEADER: usize = 12;
const NAME_LEN: usize = NAME.len().next_multiple_of(4);

/// The text after the name of the note, up to the end of all notes, regardless of lengths. `None`
/// if the name is absent. Also if it appears twice: a program may have put a copy in its registers.
fn stray_text(notes: &[u8]) -> Option<&[u8]> {
    let places = (NOTE_HEADER..notes.len()).step_by(4);
    let mut places = places.filter(|&at| notes[at..].starts_with(NAME));
    let at = places.next()?;
    places
        .next()
        .is_none()
        .then(|| notes.get(at + NAME_LEN..))?
}

impl Vmcoreinfo {
    /// Adds values from the dump's notes, without replacing known ones. If a length is wrong,
    /// searches for the name of the note instead.
    pub(super) fn merge_notes(&mut self, notes: &[u8], align: u64) {
        self.merge_whole_notes(notes, align);
        if self.root.is_none()
            && let Some(text) = stray_text(notes)
        {
            self.merge(text);
            self.is_from_damaged_notes = self.root.is_some();
        }
    }

    fn merge_whole_notes(&mut self, notes: &[u8], align: u64) {
        type Notes<'a> = NoteIterator<'a, FileHeader64<LittleEndian>>;
        let Ok(mut notes) = Notes::new(LittleEndian, align, notes) else {
            return;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == &NAME[..NAME.len() - 1] {
                self.merge(note.desc());
            }
        }
    }

    /// Adds values from `text`, without replacing known ones.
    pub fn merge(&mut self, text: &[u8]) {
        for line in String::from_utf8_lossy(text).lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let value = value.trim_matches(['\0', ' ']);
            match key {
                "NUMBER(ltt_root)" => self.root = self.root.or_else(|| number(value)),
                "OSRELEASE" => {
                    // It goes to terminals, and anybody may have made the dump.
                    self.release.get_or_insert_with(|| printable(value));
                }
                "CRASHTIME" => take(&mut self.crash.time, value),
                "NUMBER(ltt_crash_cycles)" => take(&mut self.crash.cycles, value),
                "NUMBER(ltt_crash_monotonic)" => take(&mut self.crash.monotonic, value),
                "NUMBER(ltt_crash_cpu)" => take(&mut self.crash.cpu, value),
                "NUMBER(ltt_crash_thread)" => take(&mut self.crash.thread, value),
                _ => {}
            }
        }
    }
}

/// Parses a decimal number, unless the value is known.
fn take<T: FromStr>(known: &mut Option<T>, text: &str) {
    if known.is_none() {
        *known = text.parse().ok();
    }
}

/// Parses an address: hexadecimal with 0x, or decimal, possibly printed as a signed number.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text
            .parse()
            .ok()
            .or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forged dump cannot control the terminal.
    ///
    /// Requirements: F4
    #[test]
    fn a_release_has_no_control_characters() {
        let mut info = Vmcoreinfo::default();
        info.merge(b"OSRELEASE=7.3.4\x1b]0;mine\x07\n");
        assert_eq!(
            info.release.as_deref(),
            Some("7.3.4\u{fffd}]0;mine\u{fffd}")
        );
    }

    #[test]
    fn lines_are_found() {
        let mut info = Vmcoreinfo::default();
        info.merge(b"OSRELEASE=7.3.4\nPAGESIZE=4096\nNUMBER(ltt_root)=0x12345000\nCRASHTIME=1700000000\n\0\0");
        info.merge(
            b"NUMBER(ltt_crash_cycles)=18446744073709551615\nNUMBER(ltt_crash_cpu)=3\nNUMBER(ltt_crash_thread)=0\n\
              NUMBER(ltt_crash_cpu)=4\nNUMBER(ltt_crash_monotonic)=5\n",
        );
        assert_eq!(info.root, Some(0x1234_5000));
        assert_eq!(info.release.as_deref(), Some("7.3.4"));
        let crash = Crash {
            time: Some(1_700_000_000),
            cycles: Some(u64::MAX),
            monotonic: Some(5),
            cpu: Some(3),
            thread: Some(0),
            may_be_forged: false,
        };
        assert_eq!(info.crash, crash);
        info.merge(b"NUMBER(ltt_root)=7\n");
        assert_eq!(info.root, Some(0x1234_5000));
        for (text, root) in [
            (&b"NUMBER(ltt_root)=4096"[..], Some(4096)),
            (b"NUMBER(ltt_root)=-4096\0", Some(0xffff_ffff_ffff_f000)),
            (b"NUMBER(ltt_root)=", None),
            (b"NUMBER(ltt_root)=0xg", None),
            (b"SYMBOL(ltt_root)=1\nNUMBER(ltt_root2)=1\n\xff\xfe=", None),
        ] {
            let mut info = Vmcoreinfo::default();
            info.merge(text);
            assert_eq!(info.root, root, "{}", text.escape_ascii());
        }
    }
}
