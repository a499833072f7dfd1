//! Kernels, function by function and object by object.
//!
//! Addresses do not count, only contents. The bytes of each function and object are compared, and
//! for each relocation its target: a symbol and an offset, or for unnamed targets their contents,
//! such as a text, a branch of a `switch`, or the address of a warning. Unnamed data is compared,
//! too, but not its order: the linker sorts texts, and the build sorts tables.

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

/// Symbols that may differ, and why. A name may end with `*`.
const REASONS: &[(&str, &str)] = &[
    ("sys_call_table", TABLE),
    ("x64_sys_call", TABLE),
    ("__x64_sys_alloc_tracebuf", TABLE),
    ("__x64_sys_ltt_*", TABLE),
    ("__ia32_sys_alloc_tracebuf", TABLE),
    ("__ia32_sys_ltt_*", TABLE),
    ("do_syscall_64", NUMBER),
    ("__seccomp_filter", NUMBER),
    ("seccomp_attach_filter", NUMBER),
    ("seccomp_cache_prepare_bitmap", NUMBER),
    (
        "do_seccomp",
        "it calls functions behind those that know how many system calls there are",
    ),
    ("kallsyms_*", "it has the names and places of all functions"),
    (
        CONFIG,
        "the configuration, which says of each option whether it is on",
    ),
    (".notes", "the sum over the whole kernel"),
];

const TABLE: &str = "entries of the system call table, which say ENOSYS";
const NUMBER: &str = "it knows how many system calls there are";
const LED: &str = "they lead into functions that have a reason";

/// The parts of a kernel by name. A name may have several parts, in order.
type Parts = BTreeMap<Name, Vec<Part>>;

/// A section and a symbol in it. None: what no symbol covers.
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

/// The contents of a function or an object, independent of its address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    len: u64,
    digest: u64,
    /// A description of the contents, if the part has no name.
    what: String,
}

struct Section<'a> {
    name: String,
    address: u64,
    len: u64,
    /// Empty if the section is all zeros.
    data: &'a [u8],
    executable: bool,
}

struct Symbol {
    address: u64,
    len: u64,
    name: String,
}

/// A field that the linker filled in.
struct Relocation {
    address: u64,
    kind: u32,
    target: Target,
}

enum Target {
    Symbol(String),
    Address(u64),
}

impl Relocation {
    fn len(&self) -> usize {
        match self.kind {
            R_X86_64_64 | R_X86_64_PC64 => 8,
            _ => 4,
        }
    }
}

/// The contents of `/proc/config.gz`.
const CONFIG: &str = "kernel_config_data";
/// The section of warnings, and the length of a `struct bug_entry`.
const BUGS: (&str, u64) = ("__bug_table", 16);
/// The most bytes of a text that are compared.
const LONGEST_TEXT: u64 = 256;
/// The longest chain of unnamed targets.
const DEEPEST: u32 = 3;

struct Image<'a> {
    sections: Vec<Section<'a>>,
    /// Symbols with a length, by address.
    symbols: Vec<Symbol>,
    /// Relocations, by address.
    relocations: Vec<Relocation>,
}

/// Prints the differences. Returns whether each has a reason.
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
    for (name, how, reason) in &differences {
        unexplained += usize::from(reason.is_none());
        println!("{name}: {how}: {}", reason.unwrap_or("NO REASON"));
    }
    println!(
        "{} differences, {unexplained} of them without a reason",
        differences.len()
    );
    Ok(unexplained == 0)
}

/// A difference: the name, a description, and the reason, if there is one.
type Difference = (Name, String, Option<&'static str>);

fn differences(before: &Parts, after: &Parts) -> Vec<Difference> {
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let mut differences = Vec::new();
    for name in names {
        let of = |parts: &Parts| parts.get(name).cloned().unwrap_or_default();
        let (before, after) = (of(before), of(after));
        if name.symbol.is_none() {
            differences.extend(unnamed(name, &before, &after));
            continue;
        }
        let len = |parts: &[Part]| parts.iter().map(|part| part.len).sum::<u64>();
        let how = match (&before[..], &after[..]) {
            (before, after) if before == after => continue,
            ([], after) => format!("added, {} bytes", len(after)),
            (before, []) => format!("removed, {} bytes", len(before)),
            (before, after) if len(before) == len(after) => {
                format!("other contents, {} bytes", len(after))
            }
            (before, after) => format!("{} bytes, not {}", len(after), len(before)),
        };
        differences.push((name.clone(), how, reason(name)));
    }
    differences
}

/// The differences of a section's unnamed pieces. A piece that refers to a function with a reason
/// to differ has the same reason: branches of a `switch`, addresses of warnings.
fn unnamed(name: &Name, before: &[Part], after: &[Part]) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut led = 0;
    for (what, count) in pieces(before, after) {
        let function = what.split([' ', '+']).nth(1).unwrap_or_default();
        if reason_of(function).is_some() {
            led += count.unsigned_abs();
        } else {
            let what: String = what.chars().take(80).collect();
            differences.push((name.clone(), format!("{count:+} {what}"), reason(name)));
        }
    }
    if led > 0 {
        let how = format!("{led} entries");
        differences.push((name.clone(), how, Some(LED)));
    }
    differences
}

/// How often each unnamed piece is in one kernel more than in the other.
fn pieces<'a>(before: &'a [Part], after: &'a [Part]) -> BTreeMap<&'a str, i32> {
    let mut counts = BTreeMap::new();
    for (parts, one) in [(before, -1), (after, 1)] {
        for part in parts {
            *counts.entry(part.what.as_str()).or_insert(0) += one;
        }
    }
    counts.retain(|_, count| *count != 0);
    counts
}

fn reason(name: &Name) -> Option<&'static str> {
    reason_of(name.symbol.as_deref().unwrap_or(&name.section))
}

fn reason_of(name: &str) -> Option<&'static str> {
    REASONS
        .iter()
        .find(|(pattern, _)| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *pattern,
        })
        .map(|(_, reason)| *reason)
}

/// The sections that the kernel has in memory.
fn sections<'a>(file: &ElfFile64<'a, Endianness>) -> Result<Vec<Section<'a>>, Error> {
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
    Ok(sections)
}

/// The symbols of functions and data, by address.
fn symbols(file: &ElfFile64<'_, Endianness>) -> Result<Vec<Symbol>, Error> {
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
    add_symbols_without_length(file, &mut symbols);
    symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    Ok(symbols)
}

/// The relocations of all sections, by address. Fails if there are none.
fn relocations(
    file: &ElfFile64<'_, Endianness>,
    sections: &[Section<'_>],
) -> Result<Vec<Relocation>, Error> {
    let is_code = |address: u64| {
        sections.iter().any(|section| {
            section.executable
                && (section.address..section.address + section.len).contains(&address)
        })
    };
    let mut relocations = Vec::new();
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
                // In an instruction, a relative address is relative to the end of the field.
                let bias = match r_type {
                    R_X86_64_PC32 | R_X86_64_PLT32 if is_code(address) => 4,
                    _ => 0,
                };
                let at = symbol
                    .address()
                    .wrapping_add_signed(relocation.addend() + bias);
                Target::Address(at)
            } else {
                Target::Symbol(format!("{}+{:#x}", symbol.name()?, relocation.addend()))
            };
            relocations.push(Relocation {
                address,
                kind: r_type,
                target,
            });
        }
    }
    if relocations.is_empty() {
        return Err("it has no relocations".into());
    }
    relocations.sort_by_key(|relocation| relocation.address);
    Ok(relocations)
}

/// Adds tables of assembler files, whose symbols have no lengths.
fn add_symbols_without_length(file: &ElfFile64<'_, Endianness>, symbols: &mut Vec<Symbol>) {
    let address = |name: &str| {
        let mut all = file.symbols();
        all.find(|symbol| symbol.name() == Ok(name))
            .map(|symbol| symbol.address())
    };
    let functions = symbols
        .iter()
        .find(|symbol| symbol.name == "kallsyms_offsets")
        .map_or(0, |offsets| offsets.len / 4);
    let config = address(CONFIG).zip(address("kernel_config_data_end"));
    for (name, len) in [
        ("kallsyms_num_syms", 4),
        ("kallsyms_token_index", 2 * 256),
        ("kallsyms_seqs_of_names", 3 * functions),
        (CONFIG, config.map_or(0, |(start, end)| end - start)),
    ] {
        if let Some(address) = address(name) {
            symbols.push(Symbol {
                address,
                len,
                name: name.into(),
            });
        }
    }
}

impl<'a> Image<'a> {
    fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        let sections = sections(&file)?;
        let symbols = symbols(&file)?;
        let relocations = relocations(&file, &sections)?;
        Ok(Self {
            sections,
            symbols,
            relocations,
        })
    }

    fn section(&self, address: u64) -> Option<&Section<'a>> {
        self.sections
            .iter()
            .find(|section| (section.address..section.address + section.len).contains(&address))
    }

    /// Describes an address: a symbol and an offset, or the contents, if there is no symbol.
    fn describe(&self, address: u64, depth: u32) -> String {
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
        if depth == DEEPEST {
            return section.name.clone();
        }
        let rest = section.address + section.len;
        let end = match self.relocations(address, rest).first() {
            _ if section.name == BUGS.0 => address + BUGS.1,
            Some(relocation) if relocation.address == address => address + relocation.len() as u64,
            relocation => {
                let end = relocation.map_or(rest, |relocation| relocation.address);
                let end = end.min(address + LONGEST_TEXT);
                let text = bytes(section, address, end);
                let len = text.iter().position(|byte| *byte == 0);
                len.map_or(end, |len| address + len as u64)
            }
        };
        let (contents, targets) = self.contents(section, address, end.min(rest), depth + 1);
        let contents = String::from_utf8_lossy(&contents);
        format!("{}: {contents:?} {targets:?}", section.name)
    }

    fn target(&self, relocation: &Relocation, depth: u32) -> String {
        match &relocation.target {
            Target::Symbol(name) => name.clone(),
            Target::Address(address) => self.describe(*address, depth),
        }
    }

    /// The bytes without relocated fields, and the relocations: offset, kind, and target.
    fn contents(
        &self,
        section: &Section<'_>,
        from: u64,
        to: u64,
        depth: u32,
    ) -> (Vec<u8>, Vec<(usize, u32, String)>) {
        let mut contents = bytes(section, from, to).to_vec();
        let targets = self.relocations(from, to).iter().map(|relocation| {
            let at = (relocation.address - from) as usize;
            let filled = contents.iter_mut().skip(at).take(relocation.len());
            filled.for_each(|byte| *byte = 0);
            (at, relocation.kind, self.target(relocation, depth))
        });
        let targets = targets.collect();
        (contents, targets)
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
        for (_, pieces) in parts.iter_mut().filter(|(name, _)| name.symbol.is_none()) {
            pieces.sort_unstable();
        }
        parts
    }

    /// Adds the pieces between symbols, without padding.
    fn add_gap(&self, parts: &mut Parts, section: &Section<'_>, from: u64, to: u64) {
        let name = Name {
            section: section.name.clone(),
            symbol: None,
        };
        let pieces = parts.entry(name).or_default();
        let mut add = |from, to, piece: &str| {
            pieces.push(Part {
                len: to - from,
                digest: 0,
                what: piece.into(),
            });
        };
        let mut at = from;
        for relocation in self.relocations(from, to) {
            self.add_bytes(section, at, relocation.address, &mut add);
            at = relocation.address + relocation.len() as u64;
            add(
                relocation.address,
                at,
                &format!("{} {}", relocation.kind, self.target(relocation, 0)),
            );
        }
        self.add_bytes(section, at, to, &mut add);
    }

    /// Adds the parts of a gap without relocations: texts and numbers.
    fn add_bytes(
        &self,
        section: &Section<'_>,
        from: u64,
        to: u64,
        add: &mut impl FnMut(u64, u64, &str),
    ) {
        if to <= from {
            return;
        }
        let all = bytes(section, from, to);
        if section.executable {
            // The room between functions is filled with `int3`, or short with no-ops.
            if to - from >= 64 && all.iter().any(|byte| *byte != 0xcc) {
                add(from, to, &format!("{all:x?}"));
            }
            return;
        }
        let mut at = from;
        for text in all.split(|byte| *byte == 0) {
            if !text.is_empty() {
                let what = String::from_utf8_lossy(text);
                add(at, at + text.len() as u64, &format!("{what:?}"));
            }
            at += text.len() as u64 + 1;
        }
    }

    fn relocations(&self, from: u64, to: u64) -> &[Relocation] {
        let first = self
            .relocations
            .partition_point(|relocation| relocation.address < from);
        let end = self
            .relocations
            .partition_point(|relocation| relocation.address < to);
        &self.relocations[first..end.max(first)]
    }

    fn part(&self, section: &Section<'_>, from: u64, to: u64) -> Part {
        let mut hasher = DefaultHasher::new();
        self.contents(section, from, to, 0).hash(&mut hasher);
        Part {
            len: to - from,
            digest: hasher.finish(),
            what: String::new(),
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
            relocations: vec![Relocation {
                address: at + 1,
                kind: R_X86_64_PLT32,
                target: Target::Symbol(target.into()),
            }],
        }
    }

    const CALL: &[u8] = b"\x90\x90\x90\x90\x90\x90\x90\xc3\xe8\x01\x02\x03\x04\x90\x90\xc3";
    const MOVED: &[u8] =
        b"\x90\x90\x90\x90\x90\x90\x90\xc3\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xe8\x05\x06\x07\x08\x90\x90\xc3";
    const OTHER: &[u8] = b"\x90\x90\x90\x90\x90\x90\x90\xc3\xe8\x01\x02\x03\x04\x90\x50\xc3";

    #[test]
    fn moved_code_is_equal() {
        let before = image(0x1008, CALL, "first+0x0").parts();
        assert_eq!(before.len(), 2);
        assert_eq!(
            differences(&before, &image(0x1010, MOVED, "first+0x0").parts()),
            []
        );
    }

    #[test]
    fn other_code_and_other_targets_are_found() {
        let before = image(0x1008, CALL, "first+0x0").parts();
        for after in [
            image(0x1008, OTHER, "first+0x0"),
            image(0x1008, CALL, "second+0x0"),
        ] {
            let differences = differences(&before, &after.parts());
            assert_eq!(differences.len(), 1);
            assert_eq!(differences[0].0.symbol.as_deref(), Some("second"));
            assert_eq!(differences[0].2, None);
        }
    }

    #[test]
    fn only_table_changes_have_a_reason() {
        let name = |symbol: &str| Name {
            section: ".text".into(),
            symbol: Some(symbol.into()),
        };
        assert_eq!(reason(&name("sys_call_table")), Some(TABLE));
        assert_eq!(reason(&name("__x64_sys_ltt_switch")), Some(TABLE));
        assert_eq!(reason(&name("__se_sys_prctl")), None);
    }
}
