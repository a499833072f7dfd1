//! The lines of text by which a kernel describes itself to who reads its dump.

use std::str::FromStr;

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::NoteIterator;

use usertrace_ctf::Crash;
use usertrace_sys::printable;

/// Bytes of notes, or of these lines, that a dump may have: some hundred for each CPU.
pub(super) const MAX_NOTES: u64 = 16 << 20;

/// What is of use here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmcoreinfo {
    /// Physical address of the root page: the line `NUMBER(ltt_root)=`.
    pub root: Option<u64>,
    /// Version of the kernel.
    pub release: Option<String>,
    /// When and where it crashed: the line `CRASHTIME=`, and those that begin with
    /// `NUMBER(ltt_crash_`.
    pub crash: Crash,
    /// The length of a note was wrong: `root` was found behind the name of the note that has it.
    pub is_from_damaged_notes: bool,
}

/// The name of the note.
const NAME: &[u8] = b"VMCOREINFO\0";
/// What precedes the name, and where what the note has is behind it.
const NOTE_HEADER: usize = 12;
const NAME_LEN: usize = NAME.len().next_multiple_of(4);

/// The text behind the name of the note, up to the end of all notes, whatever lengths say. None:
/// the name is not there, or it is there twice, and a program may have made one of them, in its
/// registers.
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
    /// Takes what is in the dump's notes, unless it was known before. If a length in them is wrong,
    /// the text that is searched for is found by the name before it.
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

    /// Takes what is in `text`, unless it was known before.
    pub fn merge(&mut self, text: &[u8]) {
        for line in String::from_utf8_lossy(text).lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let value = value.trim_matches(['\0', ' ']);
            match key {
                "NUMBER(ltt_root)" => self.root = self.root.or_else(|| number(value)),
                "OSRELEASE" => {
                    // It goes to terminals, and the dump may be anybody's.
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

/// Takes a decimal number, unless it was known before.
fn take<T: FromStr>(known: &mut Option<T>, text: &str) {
    if known.is_none() {
        *known = text.parse().ok();
    }
}

/// An address: hexadecimal with 0x, or decimal, which may have been printed as a signed number.
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

    /// F4: a dump that somebody made to mislead says nothing to the terminal.
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
