//! Functions in symbol tables, for files without DWARF.

use std::io;

use object::LittleEndian as LE;
use object::elf::{
    SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_GLOBAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym64,
};
use object::pod;

use crate::demangle::demangle;
use crate::elf::{ElfFile, Section};
use crate::section;

/// Maximum size of a symbol table with its names.
const MAX_LEN: u64 = 512 << 20;

/// The functions of a file, by address.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    /// By address. Of several at the same address, the preferred one is last.
    functions: Vec<Function>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    size: u64,
    has_size: bool,
    name: u32,
    is_global: bool,
}

impl SymbolTable {
    /// Reads the symbol table of a file, or else its dynamic one. Empty if it has none.
    ///
    /// # Errors
    /// Those of reading, and if the table is damaged or too large.
    pub(crate) fn read(elf: &ElfFile) -> io::Result<Self> {
        let mut tables = [SHT_SYMTAB, SHT_DYNSYM].into_iter();
        let Some(section) = tables.find_map(|kind| elf.section_of_type(kind)) else {
            return Ok(Self::default());
        };
        let mut left = MAX_LEN;
        let bytes = section::contents(elf, section, &mut left)?;
        let names = match elf.section_at(section.link) {
            Some(names) => section::contents(elf, names, &mut left)?,
            None => Vec::new(),
        };
        let count = bytes.len() / size_of::<Sym64<LE>>();
        let symbols = pod::slice_from_bytes::<Sym64<LE>>(&bytes, count);
        let (symbols, _) = symbols.unwrap_or_default();
        let functions = symbols
            .iter()
            .filter_map(|symbol| Function::of(elf, symbol));
        let mut functions: Vec<Function> = functions.collect();
        functions.sort_by_key(|function| (function.start, function.has_size, function.is_global));
        Ok(Self { functions, names })
    }

    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }

    /// Memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.names.len() + self.functions.len() * size_of::<Function>()
    }

    /// Name of the function at an address of the file, demangled.
    pub(crate) fn find(&self, address: u64) -> Option<String> {
        let after = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let is_within = address - function.start < function.size;
        let name = self.names.get(function.name as usize..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        (is_within && !name.is_empty()).then(|| demangle(name))
    }
}

impl Function {
    fn of(elf: &ElfFile, symbol: &Sym64<LE>) -> Option<Self> {
        let (start, size) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
        let is_code = match symbol.st_type() {
            STT_FUNC | STT_GNU_IFUNC => true,
            // A label of assembly. Others without a type may be data.
            STT_NOTYPE => size > 0,
            _ => false,
        };
        let section = symbol.st_shndx.get(LE);
        let is_defined = section != SHN_UNDEF;
        // Assembly may give no size. What follows in another section is not of this function.
        let size_in = |section: &Section| {
            let end = section.address.saturating_add(section.size);
            let is_in = (section.address..end).contains(&start);
            if is_in { end - start } else { 0 }
        };
        let most = elf.section_at(section.into()).map_or(0, size_in);
        (is_code && is_defined).then(|| Self {
            start,
            size: if size > 0 { size } else { most },
            has_size: size > 0,
            name: symbol.st_name.get(LE),
            is_global: symbol.st_bind() == STB_GLOBAL,
        })
    }
}
