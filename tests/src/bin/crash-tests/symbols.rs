//! Functions of ELF files, by address.

use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, SymbolKind};
use rustc_demangle::demangle;

/// A function of a program, or of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) name: String,
}

/// The functions that are of interest, by address.
#[derive(Clone, Debug)]
pub(crate) struct Functions(Vec<Function>);

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The address of a symbol of an ELF file, which may be in the middle of a function.
pub(crate) fn address(path: &Path, name: &str) -> u64 {
    let data = read(path);
    let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
    let found = file.symbol_by_name(name);
    found.unwrap_or_else(|| panic!("no {name}")).address()
}

impl Functions {
    /// The functions of an ELF file whose names are of interest.
    pub(crate) fn of(path: &Path, is_of_interest: impl Fn(&str) -> bool) -> Self {
        let data = read(path);
        let file = ElfFile64::<Endianness>::parse(&*data).expect("an ELF file");
        let mut functions: Vec<_> = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
            .map(|symbol| Function {
                start: symbol.address(),
                end: symbol.address() + symbol.size(),
                name: format!("{:#}", demangle(symbol.name().unwrap_or_default())),
            })
            .filter(|function| is_of_interest(&function.name))
            .collect();
        functions.sort();
        functions.dedup_by_key(|function| function.start);
        Self(functions)
    }

    /// The functions, moved by an offset.
    pub(crate) fn moved(mut self, by: u64) -> Self {
        for function in &mut self.0 {
            function.start = function.start.wrapping_add(by);
            function.end = function.end.wrapping_add(by);
        }
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Function> {
        self.0.iter()
    }

    /// The function that contains an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Function> {
        let next = self.0.partition_point(|function| function.start <= address);
        let function = self.0.get(next.checked_sub(1)?)?;
        (address < function.end).then_some(function)
    }
}
