//! Resolves places in modules.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use usertrace_sys::printable;

use crate::debuginfod::Debuginfod;
use crate::dwarf::{Dwarf, Unreadable};
use crate::frame::Frame;
use crate::locate::{Located, locate};
use crate::module::Module;
use crate::options::Options;
use crate::symbol_table::SymbolTable;

/// Limit of the memory for debug information and symbol tables, in bytes. The files that were not
/// used for the longest time are closed, and are read again if they are needed.
const MAX_MEMORY: u64 = 1 << 30;
/// Growth of the memory after which it is compared with its limit, in bytes.
const STEP: u64 = 32 << 20;
/// Maximum number of places whose frames are remembered, and their memory in bytes: debug
/// information may say much of few addresses.
const MAX_PLACES: usize = 1 << 20;
const MAX_PLACES_MEMORY: usize = 256 << 20;

/// Finds the functions, files and lines of places in modules, and remembers them.
///
/// All modules have to be of one [`Modules`](crate::Modules).
#[derive(Debug, Default)]
pub struct Symbols {
    options: Options,
    servers: Debuginfod,
    /// By the number of the module.
    files: HashMap<u32, Files>,
    /// By module and offset.
    places: HashMap<(u32, u64), Arc<[Frame]>>,
    places_memory: usize,
    lookups: u64,
    /// Growth of the memory since it was last compared with its limit, in bytes.
    grown: u64,
    /// Modules whose messages were given.
    told: HashSet<u32>,
    messages: Vec<String>,
    /// Names of modules without any symbols.
    missing: Vec<String>,
}

/// What is read of a module's files.
#[derive(Debug)]
struct Files {
    /// Address in the file of the start of the module.
    base: u64,
    dwarf: Option<Dwarf>,
    table: SymbolTable,
    /// When it was last used, as a number of lookups.
    used: u64,
}

impl Symbols {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// The functions at an offset from the start of a module: the innermost of those that are
    /// inlined there first, the one that they are in last. Empty if it is unknown.
    pub fn frames(&mut self, module: &Module, offset: u64) -> Arc<[Frame]> {
        let place = (module.number(), offset);
        if let Some(frames) = self.places.get(&place) {
            return Arc::clone(frames);
        }
        self.lookups += 1;
        let frames: Arc<[Frame]> = of_program(self.find(module, offset)).into();
        let memory = frames.iter().map(Frame::memory).sum::<usize>();
        if self.places.len() >= MAX_PLACES || self.places_memory + memory > MAX_PLACES_MEMORY {
            (self.places, self.places_memory) = (HashMap::new(), 0);
        }
        self.places_memory += memory;
        self.places.insert(place, Arc::clone(&frames));
        frames
    }

    /// Takes what is to be said of files that were not used, or could not be: a line each.
    pub fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// What to say at the end of modules without symbols.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        const MAX_NAMES: usize = 5;
        let (count, names) = (self.missing.len(), &self.missing);
        let listed = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>();
        let more = match count.saturating_sub(MAX_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let modules = if count == 1 { "module" } else { "modules" };
        (count > 0).then(|| {
            format!(
                "no symbols of {count} {modules}: {}{more} (--debug-dir DIR says where their files are)",
                listed.join(", ")
            )
        })
    }

    fn find(&mut self, module: &Module, offset: u64) -> Vec<Frame> {
        let number = module.number();
        if !self.files.contains_key(&number) {
            let files = self.open(module);
            self.files.insert(number, files);
            self.limit_memory(number);
        }
        let Some(files) = self.files.get_mut(&number) else {
            return Vec::new();
        };
        files.used = self.lookups;
        // `addr2line` adds 1 to the address, and there is no code at the last one.
        let address = files.base.checked_add(offset);
        let Some(address) = address.filter(|&address| address < u64::MAX) else {
            return Vec::new();
        };
        let found = match &mut files.dwarf {
            Some(dwarf) => {
                let before = dwarf.memory();
                let found = dwarf.find(address);
                self.grown += dwarf.memory() - before;
                found
            }
            None => Ok(Vec::new()),
        };
        let mut frames = found.unwrap_or_else(|Unreadable| {
            files.dwarf = None;
            let path = module.path();
            self.messages.push(format!(
                "the debug information of {path:?} takes too long to read: only its functions are named"
            ));
            Vec::new()
        });
        // The symbol table knows functions of assembly and of units without debug information.
        let is_named = frames
            .last()
            .is_some_and(|frame| !frame.function.is_empty());
        if !is_named && let Some(function) = files.table.find(address) {
            match frames.last_mut() {
                Some(outermost) => outermost.function = function,
                None => frames.push(Frame {
                    function,
                    ..Frame::default()
                }),
            }
        }
        for frame in &mut frames {
            if frame.function.is_empty() {
                frame.function = format!("{}+{offset:#x}", module.name());
            }
        }
        if self.grown > STEP {
            self.limit_memory(number);
        }
        frames
    }

    /// Finds and reads the files of a module.
    fn open(&mut self, module: &Module) -> Files {
        let located = locate(module, &self.options, &mut self.servers);
        let mut files = Files {
            base: 0,
            dwarf: None,
            table: SymbolTable::default(),
            used: self.lookups,
        };
        let mut messages = Vec::new();
        let lowest = [&located.binary, &located.debug].into_iter().flatten();
        files.base = lowest.filter_map(|elf| elf.lowest).next().unwrap_or(0);
        if let Some(elf) = located.dwarf() {
            match Dwarf::load(elf, located.alternate.as_ref()) {
                Ok(dwarf) => files.dwarf = Some(dwarf),
                Err(error) => messages.push(format!(
                    "cannot read the debug information in {:?}: {error}",
                    elf.path
                )),
            }
        }
        for elf in [&located.debug, &located.binary].into_iter().flatten() {
            match SymbolTable::read(elf) {
                Ok(table) if table.len() > files.table.len() => files.table = table,
                Ok(_) => {}
                Err(error) => {
                    messages.push(format!(
                        "cannot read the symbols in {:?}: {error}",
                        elf.path
                    ));
                }
            }
        }
        if self.told.insert(module.number()) {
            self.tell(module, &located, messages);
        }
        files
    }

    /// Notes what is to be said of a module's files: at most a line for each module.
    fn tell(&mut self, module: &Module, located: &Located, mut messages: Vec<String>) {
        let has_symbols = located.binary.is_some() || located.debug.is_some();
        // Files that were not used do not matter if another one has everything.
        let matters = located
            .debug
            .as_ref()
            .is_none_or(|debug| !debug.has_dwarf())
            || located
                .doubts
                .iter()
                .any(|doubt| doubt.starts_with("some names"));
        if matters {
            messages.extend(located.doubts.last().cloned());
        }
        if messages.is_empty() && !has_symbols && module.path().is_absolute() {
            self.missing.push(module.name());
        }
        let messages = messages.into_iter().take(1);
        self.messages
            .extend(messages.map(|message| printable(&message)));
    }

    /// Closes files until the memory is within its limit, except for those of one module.
    fn limit_memory(&mut self, number: u32) {
        self.grown = 0;
        let memory = |files: &Files| {
            files.dwarf.as_ref().map_or(0, Dwarf::memory) + files.table.memory() as u64
        };
        while self.files.values().map(memory).sum::<u64>() > MAX_MEMORY {
            let others = self
                .files
                .iter()
                .filter(|(other, files)| **other != number && memory(files) > 0);
            let Some(oldest) = others
                .min_by_key(|(_, files)| files.used)
                .map(|(oldest, _)| *oldest)
            else {
                return;
            };
            self.files.remove(&oldest);
        }
    }
}

/// Leaves out the library's own function: `event!` reads its address in one that is always inlined.
fn of_program(mut frames: Vec<Frame>) -> Vec<Frame> {
    let is_own = |frame: &Frame| {
        let file = frame.file.as_deref().unwrap_or_default();
        let name = frame.function.rsplit("::").next();
        frame.is_inlined && name == Some("capture_ip") && file.ends_with("/src/event/ip.rs")
    };
    if frames.first().is_some_and(is_own) {
        frames.remove(0);
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_function_is_left_out() {
        let frame = |function: &str, file: &str, is_inlined| Frame {
            function: function.into(),
            file: Some(file.into()),
            line: Some(1),
            is_inlined,
            is_unknown: false,
        };
        let served = frame("shop::served", "/shop/src/main.rs", false);
        let own = "/usertrace-0.1.0/src/event/ip.rs";
        for name in ["capture_ip", "usertrace::event::ip::capture_ip"] {
            let frames = vec![frame(name, own, true), served.clone()];
            assert_eq!(of_program(frames), std::slice::from_ref(&served));
        }
        for other in [
            frame("capture_ip", "/shop/src/ip.rs", true),
            frame("capture", own, true),
            frame("capture_ip", own, false),
        ] {
            let frames = vec![other, served.clone()];
            assert_eq!(of_program(frames.clone()), frames);
        }
        assert!(of_program(Vec::new()).is_empty());
    }
}
