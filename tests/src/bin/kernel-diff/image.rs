//! Kernels, function by function and object by object.
//!
//! Where something is does not count, but only what it is. So of each function and object its bytes are compared, and
//! wherever the linker has put an address, what is there: the name of what it is in, and how far.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use object::elf::{R_X86_64_64, R_X86_64_PC32, R_X86_64_PC64, R_X86_64_PLT32, STT_SECTION};
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionFlags,
};

type Error = Box<dyn std::error::Error>;

/// What may differ, and why: a name, or one that ends with `*`.
const REASONS: &[(&str, &str)] = &[
    ("sys_call_table", TABLE),
    ("x64_sys_call", TABLE),
    ("__x64_sys_alloc_tracebuf", TABLE),
    ("__x64_sys_ltt_*", TABLE),
    ("__ia32_sys_alloc_tracebuf", TABLE),
    ("__ia32_sys_ltt_*", TABLE),
    ("seccomp_attach_filter", NUMBER),
    ("seccomp_cache_prepare_bitmap", NUMBER),
    ("kallsyms_*", "it has the names and places of all functions"),
    (".notes", "the sum over the whole kernel"),
];

const TABLE: &str = "entries of the system call table, which say ENOSYS";
const NUMBER: &str = "it knows how many system calls there are";

/// A part of a kernel: what all of it that has this name is like, in order.
type Parts = BTreeMap<Name, Vec<Part>>;

/// The section, and in it the function or object; or, without a name, what no symbol covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    section: String,
    symbol: Option<String>,
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.symbol {
            Some(symbol) => write!(f, "{symbol} ({})", self.section),
            None => write!(f, "{} (what no symbol covers)", self.section),
        }
    }
}

/// A function or an object, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    len: u64,
    digest: u64,
}

struct Section<'a> {
    name: String,
    address: u64,
    len: u64,
    /// Nothing, if it is all zeros.
    data: &'a [u8],
    executable: bool,
}

struct Symbol {
    address: u64,
    len: u64,
    name: String,
}

/// A place that the linker has filled in.
struct Place {
    address: u64,
    kind: u32,
    target: String,
}

struct Image<'a> {
    sections: Vec<Section<'a>>,
    /// By address, those that have a length.
    symbols: Vec<Symbol>,
    /// By address.
    places: Vec<Place>,
}

/// Prints in what they differ. The result says whether each difference has a reason.
pub(crate) fn compare(unpatched: &Path, patched: &Path) -> Result<bool, Error> {
    let read = |path: &Path| {
        let data = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let parts = Image::parse(&data).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, Error>(parts.parts())
    };
    let (before, after) = (read(unpatched)?, read(patched)?);
    let count: usize = before.values().map(Vec::len).sum();
    println!("{count} functions and objects in the unpatched kernel");
    let mut unexplained = 0;
    let differences = differences(&before, &after);
    for (name, how) in &differences {
        let reason = reason(name);
        unexplained += usize::from(reason.is_none());
        println!("{name}: {how}: {}", reason.unwrap_or("NO REASON"));
    }
    println!(
        "{} differences, {unexplained} of them without a reason",
        differences.len()
    );
    Ok(unexplained == 0)
}

fn differences(before: &Parts, after: &Parts) -> Vec<(Name, String)> {
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let none = Vec::new();
    let of = |parts: &Parts, name| parts.get(name).unwrap_or(&none).clone();
    names
        .into_iter()
        .filter_map(|name| {
            let (before, after) = (of(before, name), of(after, name));
            let len = |parts: &[Part]| parts.iter().map(|part| part.len).sum::<u64>();
            let how = match (&before[..], &after[..]) {
                (before, after) if before == after => return None,
                ([], after) => format!("added, {} bytes", len(after)),
                (before, []) => format!("removed, {} bytes", len(before)),
                (before, after) if len(before) == len(after) => {
                    format!("other contents, {} bytes", len(after))
                }
                (before, after) => format!("{} bytes, not {}", len(after), len(before)),
            };
            Some((name.clone(), how))
        })
        .collect()
}

fn reason(name: &Name) -> Option<&'static str> {
    let name = name.symbol.as_deref().unwrap_or(&name.section);
    REASONS
        .iter()
        .find(|(pattern, _)| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *pattern,
        })
        .map(|(_, reason)| *reason)
}

impl<'a> Image<'a> {
    fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        let mut sections = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags } = section.flags() else {
                continue;
            };
            if sh_flags & u64::from(object::elf::SHF_ALLOC) == 0 || section.size() == 0 {
                continue;
            }
            sections.push(Section {
                name: section.name()?.into(),
                address: section.address(),
                len: section.size(),
                data: section.data()?,
                executable: sh_flags & u64::from(object::elf::SHF_EXECINSTR) != 0,
            });
        }
        let mut symbols = Vec::new();
        for symbol in file.symbols() {
            let is_part = symbol.section_index().is_some()
                && symbol.elf_symbol().st_type() != STT_SECTION
                && symbol.size() > 0;
            if is_part {
                symbols.push(Symbol {
                    address: symbol.address(),
                    len: symbol.size(),
                    name: symbol.name()?.into(),
                });
            }
        }
        symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        let mut places = Vec::new();
        let mut image = Self {
            sections,
            symbols,
            places: Vec::new(),
        };
        for section in file.sections() {
            for (address, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else {
                    continue;
                };
                let RelocationTarget::Symbol(index) = relocation.target() else {
                    continue;
                };
                let symbol = file.symbol_by_index(index)?;
                let kind = symbol.elf_symbol().st_type();
                let target = if kind == STT_SECTION || symbol.name()?.is_empty() {
                    // What is relative is so to the end of the field.
                    let bias = match r_type {
                        R_X86_64_PC32 | R_X86_64_PLT32 => 4,
                        _ => 0,
                    };
                    let at = symbol
                        .address()
                        .wrapping_add_signed(relocation.addend() + bias);
                    image.describe(at)
                } else {
                    format!("{}+{:#x}", symbol.name()?, relocation.addend())
                };
                places.push(Place {
                    address,
                    kind: r_type,
                    target,
                });
            }
        }
        if places.is_empty() {
            return Err("it has no relocations".into());
        }
        places.sort_by_key(|place| place.address);
        image.places = places;
        Ok(image)
    }

    fn section(&self, address: u64) -> Option<&Section<'a>> {
        self.sections
            .iter()
            .find(|section| (section.address..section.address + section.len).contains(&address))
    }

    /// What is at an address: what it is in, and how far; or a text that has no name.
    fn describe(&self, address: u64) -> String {
        let end = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        // The innermost one; of several names the first.
        let mut found: Option<&Symbol> = None;
        for symbol in self.symbols[..end].iter().rev().take(64) {
            if address >= symbol.address + symbol.len {
                continue;
            }
            if found.is_some_and(|found| found.address != symbol.address) {
                break;
            }
            found = Some(symbol);
        }
        if let Some(symbol) = found {
            return format!("{}+{:#x}", symbol.name, address - symbol.address);
        }
        let Some(section) = self.section(address) else {
            return "nothing".into();
        };
        let from = (address - section.address) as usize;
        let bytes = section.data.get(from..).unwrap_or(&[]);
        let len = bytes.iter().take(256).position(|byte| *byte == 0);
        match len {
            Some(len) => format!(
                "{}: {:?}",
                section.name,
                String::from_utf8_lossy(&bytes[..len])
            ),
            None => section.name.clone(),
        }
    }

    fn parts(&self) -> Parts {
        let mut parts = Parts::new();
        for section in &self.sections {
            let end = section.address + section.len;
            let mut at = section.address;
            let first = self.symbols.partition_point(|symbol| symbol.address < at);
            for symbol in self.symbols[first..]
                .iter()
                .take_while(|symbol| symbol.address < end)
            {
                if symbol.address > at {
                    self.add_gap(&mut parts, section, at, symbol.address);
                }
                let part = self.part(section, symbol.address, symbol.address + symbol.len);
                let name = Name {
                    section: section.name.clone(),
                    symbol: Some(symbol.name.clone()),
                };
                parts.entry(name).or_default().push(part);
                at = at.max(symbol.address + symbol.len);
            }
            if at < end {
                self.add_gap(&mut parts, section, at, end);
            }
        }
        parts
    }

    /// What is between symbols, unless it only fills the room between them.
    fn add_gap(&self, parts: &mut Parts, section: &Section<'_>, from: u64, to: u64) {
        let places = self.places(from, to);
        let fills = places.is_empty()
            && (section.executable && to - from < 64
                || bytes(section, from, to).iter().all(|byte| *byte == 0));
        if fills {
            return;
        }
        let name = Name {
            section: section.name.clone(),
            symbol: None,
        };
        parts
            .entry(name)
            .or_default()
            .push(self.part(section, from, to));
    }

    fn places(&self, from: u64, to: u64) -> &[Place] {
        let first = self.places.partition_point(|place| place.address < from);
        let end = self.places.partition_point(|place| place.address < to);
        &self.places[first..end.max(first)]
    }

    fn part(&self, section: &Section<'_>, from: u64, to: u64) -> Part {
        let mut contents = bytes(section, from, to).to_vec();
        let mut hasher = DefaultHasher::new();
        for place in self.places(from, to) {
            let at = (place.address - from) as usize;
            let len = match place.kind {
                R_X86_64_64 | R_X86_64_PC64 => 8,
                _ => 4,
            };
            for byte in contents.iter_mut().skip(at).take(len) {
                *byte = 0;
            }
            (at, place.kind, &place.target).hash(&mut hasher);
        }
        contents.hash(&mut hasher);
        Part {
            len: to - from,
            digest: hasher.finish(),
        }
    }
}

fn bytes<'a>(section: &Section<'a>, from: u64, to: u64) -> &'a [u8] {
    let from = (from - section.address) as usize;
    let to = (to - section.address) as usize;
    section
        .data
        .get(from..to.min(section.data.len()))
        .unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with two functions and a string, the second function at this address.
    fn image(at: u64, code: &'static [u8], target: &str) -> Image<'static> {
        let symbol = |address, name: &str| Symbol {
            address,
            len: 8,
            name: name.into(),
        };
        Image {
            sections: vec![Section {
                name: ".text".into(),
                address: 0x1000,
                len: code.len() as u64,
                data: code,
                executable: true,
            }],
            symbols: vec![symbol(0x1000, "first"), symbol(at, "second")],
            places: vec![Place {
                address: at + 1,
                kind: R_X86_64_PLT32,
                target: target.into(),
            }],
        }
    }

    const CALL: &[u8] = b"\x90\x90\x90\x90\x90\x90\x90\xc3\xe8\x01\x02\x03\x04\x90\x90\xc3";
    const MOVED: &[u8] =
        b"\x90\x90\x90\x90\x90\x90\x90\xc3\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xe8\x05\x06\x07\x08\x90\x90\xc3";
    const OTHER: &[u8] = b"\x90\x90\x90\x90\x90\x90\x90\xc3\xe8\x01\x02\x03\x04\x90\x50\xc3";

    #[test]
    fn c1_what_moved_is_the_same() {
        let before = image(0x1008, CALL, "first+0x0").parts();
        assert_eq!(before.len(), 2);
        assert_eq!(
            differences(&before, &image(0x1010, MOVED, "first+0x0").parts()),
            []
        );
    }

    #[test]
    fn c1_other_code_and_other_targets_are_seen() {
        let before = image(0x1008, CALL, "first+0x0").parts();
        for after in [
            image(0x1008, OTHER, "first+0x0"),
            image(0x1008, CALL, "second+0x0"),
        ] {
            let differences = differences(&before, &after.parts());
            assert_eq!(differences.len(), 1);
            assert_eq!(differences[0].0.symbol.as_deref(), Some("second"));
            assert_eq!(reason(&differences[0].0), None);
        }
    }

    #[test]
    fn c1_only_what_the_table_forces_has_a_reason() {
        let name = |symbol: &str| Name {
            section: ".text".into(),
            symbol: Some(symbol.into()),
        };
        assert_eq!(reason(&name("sys_call_table")), Some(TABLE));
        assert_eq!(reason(&name("__x64_sys_ltt_switch")), Some(TABLE));
        assert_eq!(reason(&name("__se_sys_prctl")), None);
    }
}
