//! Names addresses of processes.

use std::rc::Rc;

use usertrace_reader::Event;

use crate::frame::Frame;
use crate::modules::Modules;
use crate::options::Options;
use crate::stack::AddressKind;
use crate::symbols::Symbols;

/// Names addresses of the processes of a reading, as of the last event that was noted.
#[derive(Debug, Default)]
pub struct Resolver {
    /// Which modules the processes have loaded.
    pub modules: Modules,
    /// The symbols of these modules.
    pub symbols: Symbols,
}

impl Resolver {
    /// Creates a resolver that knows nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            modules: Modules::new(),
            symbols: Symbols::new(options),
        }
    }

    /// Takes notice of an event, as [`Modules::note`] does.
    #[inline]
    pub fn note(&mut self, event: &Event<'_>) -> bool {
        self.modules.note(event)
    }

    /// The functions at an address: the innermost of those that are inlined there first. Never
    /// empty: an unknown function is `MODULE+0xOFFSET`, or `0xADDRESS` if the module is unknown.
    pub fn resolve(&mut self, process: usize, address: u64, kind: AddressKind) -> Rc<[Frame]> {
        let Some(found) = self.modules.find(process, kind.instruction(address)) else {
            return unknown(format!("{address:#x}"));
        };
        let frames = self.symbols.frames(&found.module, found.offset);
        match frames.is_empty() {
            // The address as it is, since that is what other tools have.
            true => {
                let offset = found.offset + (address - kind.instruction(address));
                unknown(format!("{}+{offset:#x}", found.module.name()))
            }
            false => frames,
        }
    }
}

fn unknown(function: String) -> Rc<[Frame]> {
    Rc::new([Frame {
        function,
        file: None,
        line: None,
        inlined: false,
    }])
}
