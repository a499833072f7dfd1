//! Which code is at an address, and what it is called.

use std::sync::Arc;

use usertrace_reader::Event;
use usertrace_symbols::{AddressKind, BuildId, Frame, Options, Resolver};

use super::table::{Location, Space, StackId, StackTable};

/// A module, as profiles describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The last part of its path.
    pub name: String,
    /// Where its process found it.
    pub path: String,
    /// In hexadecimal, or empty.
    pub build_id: String,
}

/// The modules of all processes, and their symbols.
#[derive(Debug, Default)]
pub struct Code {
    resolver: Resolver,
    /// Code has no names but those of modules, with offsets.
    is_nameless: bool,
    /// Number of locations whose names took too much memory.
    unnamed: usize,
}

impl Code {
    /// Looks for symbols as `options` say. Without them, code has no names but those of modules.
    #[must_use]
    pub fn new(options: Option<Options>) -> Self {
        Self {
            is_nameless: options.is_none(),
            unnamed: 0,
            resolver: Resolver::new(options.unwrap_or_default()),
        }
    }

    /// Takes notice of an event about modules. Returns whether it is one.
    pub fn note(&mut self, table: &mut StackTable, event: &Event<'_>) -> bool {
        let is_noted = self.resolver.note(event);
        if is_noted {
            table.modules_changed(event.trace.process() as u32);
        }
        is_noted
    }

    /// Interns the call stack of an event.
    pub fn stack(&mut self, table: &mut StackTable, event: &Event<'_>) -> StackId {
        let process = event.trace.process();
        let modules = &mut self.resolver.modules;
        let append = |to: &mut Vec<u64>| usertrace_symbols::append_stack(event, to);
        table.intern_with(process as u32, append, |address| {
            let found = modules.find(process, address)?;
            Some((found.module.number(), found.offset))
        })
    }

    /// Says whether another process may have forked this one, itself or by others, or been forked
    /// by it.
    pub(crate) fn is_related(&self, process: u32) -> impl Fn(u32) -> bool {
        let modules = &self.resolver.modules;
        move |other| modules.are_loaded_alike(process as usize, other as usize)
    }

    /// What resolves addresses.
    pub(crate) fn resolver(&mut self) -> &mut Resolver {
        &mut self.resolver
    }

    /// Takes what is to be said of files without symbols: a line each.
    pub fn take_messages(&mut self) -> Vec<String> {
        let symbols = &mut self.resolver.symbols;
        let mut messages = symbols.take_messages();
        messages.extend(symbols.missing());
        if self.unnamed > 0 {
            let places = self.unnamed;
            messages.push(format!(
                "{places} places of code have no names: those of others take too much memory"
            ));
        }
        messages
    }

    /// The functions at a location, from the innermost inlined one. Never empty.
    pub(crate) fn frames(&mut self, location: Location) -> Arc<[Frame]> {
        let Resolver {
            modules, symbols, ..
        } = &mut self.resolver;
        let module = match location.space {
            Space::Module(module) => modules.get(module).map(Arc::clone),
            Space::Process(_) => None,
        };
        let Some(module) = module else {
            return [Frame::unknown(format!("{:#x}", location.offset))].into();
        };
        let instruction = AddressKind::Return.instruction(location.offset);
        let frames = match self.is_nameless {
            true => [].into(),
            false => symbols.frames(&module, instruction),
        };
        match frames.is_empty() {
            true => {
                let place = format!("{}+{:#x}", module.name(), location.offset);
                [Frame::unknown(place)].into()
            }
            false => frames,
        }
    }

    /// The module and the offset of a location whose names would take too much memory.
    pub(crate) fn unnamed(&mut self, location: Location) -> Arc<[Frame]> {
        self.unnamed += 1;
        let is_nameless = std::mem::replace(&mut self.is_nameless, true);
        let frames = self.frames(location);
        self.is_nameless = is_nameless;
        frames
    }

    /// The module with this number.
    pub(crate) fn module(&self, module: u32) -> ModuleInfo {
        let module = self.resolver.modules.get(module);
        module.map_or_else(ModuleInfo::default, |module| ModuleInfo {
            name: module.name(),
            path: usertrace_sys::printable(&module.path().to_string_lossy()),
            build_id: module
                .build_id()
                .map(BuildId::to_string)
                .unwrap_or_default(),
        })
    }
}
