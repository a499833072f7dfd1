//! Names locations in code, once for each.

use usertrace_symbols::Frame;

use super::code::{Code, ModuleInfo};
use super::table::{Location, Space, StackId, StackTable};

/// The frames of all locations.
#[derive(Debug, Default)]
pub struct Frames {
    /// By location: its frames, from the innermost.
    by_location: Vec<Vec<Frame>>,
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
        let by_location = locations.iter();
        Self {
            by_location: by_location.map(|&location| code.frames(location)).collect(),
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
