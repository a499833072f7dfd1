//! Names locations in code, once for each.

use std::sync::Arc;

use usertrace_symbols::Frame;

use super::code::{Code, ModuleInfo};
use super::table::{Location, Space, StackId, StackTable};

/// Maximum memory of the frames, in bytes. Debug information may say much of each address.
const MAX_MEMORY: usize = 256 << 20;

/// The frames of all locations.
#[derive(Debug, Default)]
pub struct Frames {
    /// By location: its frames, from the innermost.
    by_location: Vec<Arc<[Frame]>>,
    modules: Vec<ModuleInfo>,
}

impl Frames {
    /// Names all locations.
    pub fn resolve(table: &StackTable, code: &mut Code) -> Self {
        let locations = table.locations();
        let module = |location: &Location| match location.space {
            Space::Module(module) => Some(module),
            Space::Process(_) => None,
        };
        let modules = locations.iter().filter_map(module).max();
        let modules = modules.map_or(0, |last| last + 1);
        let mut left = MAX_MEMORY;
        let by_location = locations.iter().map(|&location| {
            if left == 0 {
                return code.unnamed(location);
            }
            let frames = code.frames(location);
            left = left.saturating_sub(frames.iter().map(Frame::memory).sum());
            frames
        });
        let by_location = by_location.collect();
        Self {
            by_location,
            modules: (0..modules).map(|number| code.module(number)).collect(),
        }
    }

    /// The frames of a location, from the innermost.
    pub fn of_location(&self, location: u32) -> &[Frame] {
        &self.by_location[location as usize]
    }

    /// The frames of a stack, from the innermost.
    pub fn of<'a>(
        &'a self,
        table: &'a StackTable,
        stack: StackId,
    ) -> impl Iterator<Item = &'a Frame> {
        let locations = table.frames(stack);
        locations.flat_map(|location| self.of_location(location))
    }

    /// All modules, by their numbers.
    pub fn modules(&self) -> &[ModuleInfo] {
        &self.modules
    }
}
