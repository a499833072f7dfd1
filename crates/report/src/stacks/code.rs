//! Which code is at an address, and what it is called.

use usertrace_reader::Event;

use super::addresses;
use super::frames::{Frame, ModuleInfo, Symbolize};
use super::table::{Location, Space};

/// The modules of all processes, and their symbols.
#[derive(Debug, Default)]
pub(crate) struct Code {}

impl Code {
    /// Takes notice of an event about modules. Returns whether it is one.
    pub(crate) fn note(&mut self, _event: &Event<'_>) -> bool {
        false
    }

    /// The addresses of an event's call stack, from the innermost one.
    pub(crate) fn stack(event: &Event<'_>) -> impl Iterator<Item = u64> {
        let mut all = Vec::new();
        addresses::append(&mut all, event);
        all.into_iter()
    }

    /// Finds the number of the module that a process has at an address, and the offset there.
    pub(crate) fn find(&mut self, _process: usize, _address: u64) -> Option<(u32, u64)> {
        None
    }
}

impl Symbolize for Code {
    fn frames(&mut self, location: Location) -> Vec<Frame> {
        let function = match location.space {
            Space::Process(_) => format!("0x{:x}", location.offset),
            Space::Module(module) => format!("{module}+0x{:x}", location.offset),
        };
        vec![Frame {
            function,
            is_unknown: true,
            ..Frame::default()
        }]
    }

    fn module(&self, module: u32) -> ModuleInfo {
        ModuleInfo {
            name: module.to_string(),
            ..ModuleInfo::default()
        }
    }
}
