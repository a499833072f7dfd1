//! Names addresses of processes.

use std::sync::Arc;

use usertrace_reader::Event;

use crate::frame::Frame;
use crate::modules::Modules;
use crate::named::{AddressFields, NamedField, addresses};
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
    addresses: AddressFields,
}

impl Resolver {
    /// Creates a resolver that knows nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            modules: Modules::new(),
            symbols: Symbols::new(options),
            addresses: AddressFields::default(),
        }
    }

    /// Forgets the classes of events that it knows. Must be called after
    /// [`Reader::refresh`](usertrace_reader::Reader::refresh).
    pub fn refresh(&mut self) {
        self.addresses.clear();
    }

    /// Names the code addresses in an event: those of its contexts and of its fields whose
    /// [names](AddressKind::of_field) say that they have some. Empty if there are none, or if the
    /// trace knows no module at any of them.
    pub fn name_fields<'a>(&mut self, event: &Event<'a>) -> Vec<NamedField<'a>> {
        let process = event.trace.process();
        if !self.addresses.has_any(event) || !self.modules.knows(process) {
            return Vec::new();
        }
        let mut fields = addresses(event);
        for field in &mut fields {
            for (address, frames) in &mut field.frames {
                let is_known = self
                    .modules
                    .find(process, field.kind.instruction(*address))
                    .is_some();
                field.is_known |= is_known;
                *frames = self.resolve(process, *address, field.kind);
            }
        }
        fields.retain(|field| field.is_known);
        fields
    }

    /// Takes notice of an event, as [`Modules::note`] does.
    #[inline]
    pub fn note(&mut self, event: &Event<'_>) -> bool {
        self.modules.note(event)
    }

    /// The functions at an address: the innermost of those that are inlined there first. Never
    /// empty: an unknown function is `MODULE+0xOFFSET`, or `0xADDRESS` if the module is unknown.
    pub fn resolve(&mut self, process: usize, address: u64, kind: AddressKind) -> Arc<[Frame]> {
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

fn unknown(function: String) -> Arc<[Frame]> {
    Arc::new([Frame::unknown(function)])
}
