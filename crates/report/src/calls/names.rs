//! Names of functions by their addresses.

use std::collections::HashMap;
use std::rc::Rc;

use usertrace_symbols::{AddressKind, Resolver};

/// Most names that are kept.
const MAX_NAMES: usize = 1 << 20;

/// A function's name, and whether symbols know it.
type Named = (Rc<str>, bool);

/// Names functions, each address once. Without a resolver, an address is its name.
#[derive(Debug, Default)]
pub struct FunctionNames {
    by_address: HashMap<(usize, u64, AddressKind), Named>,
}

impl FunctionNames {
    /// The function that begins at an address.
    pub fn function(
        &mut self,
        resolver: Option<&mut Resolver>,
        process: usize,
        address: u64,
    ) -> Rc<str> {
        self.named(resolver, process, address, AddressKind::Entry).0
    }

    /// The function whose code has a call site, if symbols know it.
    pub(super) fn caller(
        &mut self,
        resolver: Option<&mut Resolver>,
        process: usize,
        call_site: u64,
    ) -> Option<Rc<str>> {
        let (name, is_known) = self.named(resolver, process, call_site, AddressKind::Return);
        is_known.then_some(name)
    }

    fn named(
        &mut self,
        resolver: Option<&mut Resolver>,
        process: usize,
        address: u64,
        kind: AddressKind,
    ) -> Named {
        if let Some(known) = self.by_address.get(&(process, address, kind)) {
            return known.clone();
        }
        let unknown = || (Rc::from(format!("{address:#x}")), false);
        let named = match resolver {
            None => unknown(),
            Some(resolver) => {
                let frames = resolver.resolve(process, address, kind);
                // The function whose code it is, not one that is inlined there.
                frames.last().map_or_else(unknown, |frame| {
                    let is_known = !frame.function.contains("+0x") && !is_address(&frame.function);
                    (Rc::from(&frame.function[..]), is_known)
                })
            }
        };
        if self.by_address.len() >= MAX_NAMES {
            self.by_address.clear();
        }
        self.by_address
            .insert((process, address, kind), named.clone());
        named
    }

    /// Forgets all names: modules were loaded or unloaded.
    pub fn clear(&mut self) {
        self.by_address.clear();
    }
}

fn is_address(name: &str) -> bool {
    name.starts_with("0x")
}
