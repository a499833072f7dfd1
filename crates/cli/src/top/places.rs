//! Which code events are from: their call stacks, and the names of these.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use usertrace_report::stacks::culprit;
use usertrace_ring::schema::{Module, ModuleChange};
use usertrace_symbols::{AddressKind, BuildId, DebugLink, Frame, Options, Resolver};

/// Maximum number of call stacks of a process. Events of further ones have no place.
const MAX_STACKS: usize = 1 << 16;

/// Finds the functions at addresses of all processes of a source.
#[derive(Debug)]
pub struct Code {
    pub(super) resolver: Resolver,
    processes: usize,
}

/// The same for several counters.
pub type SharedCode = Rc<RefCell<Code>>;

impl Code {
    /// Looks for symbols as `options` say.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            resolver: Resolver::new(options),
            processes: 0,
        }
    }

    /// The number of another process.
    pub(super) fn add_process(&mut self) -> usize {
        self.processes += 1;
        self.processes - 1
    }

    /// The modules of a process change.
    fn change(&mut self, process: usize, change: &ModuleChange) {
        let modules = &mut self.resolver.modules;
        match change {
            ModuleChange::Loaded(Module {
                base,
                size,
                build_id,
                debug_link,
                path,
                ..
            }) => {
                let path = path.as_deref().unwrap_or_default();
                let debug_link = debug_link.as_ref().map(|link| DebugLink {
                    name: link.name.as_bytes().into(),
                    crc: link.crc,
                });
                let build_id = BuildId::new(build_id);
                modules.load(process, [*base, *size], path.as_ref(), build_id, debug_link);
            }
            ModuleChange::Unloaded(base) => modules.unload(process, *base),
        }
    }
}

/// The call stacks of a process's events, each once.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// By addresses, since the modules last changed.
    numbers: HashMap<Box<[u64]>, u32>,
    /// Those without a name yet, in the order of their numbers.
    nameless: Vec<Box<[u64]>>,
    /// The function of each of the first stacks, with its file and line.
    names: Vec<Option<Rc<str>>>,
    key: Vec<u64>,
}

impl Stacks {
    /// The number of a stack. `append` adds its return addresses. 0: there is none, or too many.
    pub(super) fn number(&mut self, append: impl FnOnce(&mut Vec<u64>)) -> u32 {
        self.key.clear();
        append(&mut self.key);
        if self.key.is_empty() {
            return 0;
        }
        if let Some(&number) = self.numbers.get(&self.key[..]) {
            return number;
        }
        if self.names.len() + self.nameless.len() >= MAX_STACKS {
            return 0;
        }
        let stack: Box<[u64]> = self.key[..].into();
        self.nameless.push(stack.clone());
        let number = (self.names.len() + self.nameless.len()) as u32;
        self.numbers.insert(stack, number);
        number
    }

    /// Names all stacks so far.
    pub(super) fn name_all(&mut self, resolver: &mut Resolver, process: usize) {
        for stack in self.nameless.drain(..) {
            let mut at = |address| resolver.resolve(process, address, AddressKind::Return);
            let frames: Vec<_> = stack.iter().map(|&address| at(address)).collect();
            let frames: Vec<&Frame> = frames.iter().flat_map(|frames| frames.iter()).collect();
            let function = frames.get(culprit(frames.iter().copied()));
            self.names
                .push(function.map(|frame| frame.to_string().into()));
        }
    }

    /// Other code may be at the same addresses from now on.
    pub(super) fn forget(&mut self) {
        self.numbers.clear();
    }

    /// Names all stacks so far, and changes the modules.
    pub(super) fn change(&mut self, code: &mut Code, process: usize, change: &ModuleChange) {
        self.name_all(&mut code.resolver, process);
        self.forget();
        code.change(process, change);
    }

    /// The function of a stack that was named.
    pub(super) fn name(&self, number: u32) -> Option<&Rc<str>> {
        let index = (number as usize).checked_sub(1)?;
        self.names.get(index)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(base: u64, path: &str) -> ModuleChange {
        ModuleChange::Loaded(Module {
            base,
            size: 0x1000,
            is_pic: true,
            build_id: vec![1, 2],
            debug_link: None,
            path: Some(path.to_owned()),
        })
    }

    /// An address belongs to the module that was there when the event came.
    #[test]
    fn stacks_keep_their_names_when_modules_change() {
        let mut code = Code::new(Options {
            debuginfod: false,
            ..Options::default()
        });
        let process = code.add_process();
        let mut stacks = Stacks::default();
        stacks.change(&mut code, process, &loaded(0x1000, "/no/first"));
        let stack = |stacks: &mut Stacks, address| stacks.number(|to| to.push(address));
        let first = stack(&mut stacks, 0x1010);
        assert_eq!(stack(&mut stacks, 0x1010), first);
        assert_eq!(stacks.number(|_| ()), 0);
        stacks.change(&mut code, process, &ModuleChange::Unloaded(0x1000));
        stacks.change(&mut code, process, &loaded(0x1000, "/no/second"));
        let second = stack(&mut stacks, 0x1010);
        let outside = stack(&mut stacks, 0x9010);
        stacks.name_all(&mut code.resolver, process);
        let names = [first, second, outside].map(|number| stacks.name(number).unwrap().to_string());
        assert_eq!(names, ["first+0x10", "second+0x10", "0x9010"]);
        assert_eq!(stacks.name(0), None);
    }

    #[test]
    fn stacks_are_bounded() {
        let mut stacks = Stacks::default();
        let numbers = (1..=MAX_STACKS as u64 + 5).map(|n| stacks.number(|to| to.push(n)));
        assert_eq!(numbers.filter(|number| *number == 0).count(), 5);
    }
}
