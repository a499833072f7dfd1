//! Names locations in code, once for each.

use super::table::{Location, Space, StackId, StackTable};

/// A function that a location is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name, or `MODULE+0xOFFSET`, or an address.
    pub function: String,
    /// Its source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The compiler put it into the next outer function.
    pub is_inlined: bool,
    /// It has no name.
    pub is_unknown: bool,
}

impl Frame {
    /// `FILE:LINE`, or `FILE` if the line is unknown.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        Some(match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        })
    }
}

/// `FUNCTION (FILE:LINE)`, as far as it is known.
impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        match self.place() {
            Some(place) => write!(f, " ({place})"),
            None => Ok(()),
        }
    }
}

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

/// Names locations.
pub trait Symbolize {
    /// The functions at a location, from the innermost inlined one. Never empty.
    fn frames(&mut self, location: Location) -> Vec<Frame>;

    /// The module with this number.
    fn module(&self, module: u32) -> ModuleInfo;
}

/// The frames of all locations.
#[derive(Debug, Default)]
pub struct Frames {
    /// By location: its frames, from the innermost.
    by_location: Vec<Vec<Frame>>,
    modules: Vec<ModuleInfo>,
}

impl Frames {
    /// Names all locations.
    pub fn resolve(table: &StackTable, symbols: &mut impl Symbolize) -> Self {
        let locations = table.locations();
        let module = |location: &Location| match location.space {
            Space::Module(module) => Some(module),
            Space::Process(_) => None,
        };
        let modules = locations.iter().filter_map(module).max();
        let modules = modules.map_or(0, |last| last + 1);
        let by_location = locations.iter();
        Self {
            by_location: by_location
                .map(|&location| symbols.frames(location))
                .collect(),
            modules: (0..modules).map(|number| symbols.module(number)).collect(),
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
