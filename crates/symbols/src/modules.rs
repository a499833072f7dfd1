//! Which objects processes have loaded, as time goes on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use usertrace_reader::{Event, Number, Value, Values};

use crate::build_id::BuildId;
use crate::module::{DebugLink, Identity, Module};

/// Start of the names of all events about modules.
const PROVIDERS: &str = "lttng_ust_";
const STATEDUMP: &str = "lttng_ust_statedump:";
const LIB: &str = "lttng_ust_lib:";

/// Maximum number of objects that a process may have loaded at once. A trace may say more; those
/// beyond are ignored.
const MAX_LOADED: usize = 1 << 16;

/// Objects that the processes of a reading have loaded, as of the last event that was noted.
///
/// The reader passes on the events about modules if
/// [`Selection::modules`](usertrace_reader::Selection::modules) is set.
#[derive(Debug, Default)]
pub struct Modules {
    /// By the number of the process.
    processes: HashMap<usize, Process>,
    known: HashMap<Identity, Arc<Module>>,
    all: Vec<Arc<Module>>,
}

/// An address as a place in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The module.
    pub module: Arc<Module>,
    /// Distance from the start of its lowest segment.
    pub offset: u64,
}

#[derive(Debug, Default)]
struct Process {
    /// By their base addresses. They do not overlap.
    loaded: BTreeMap<u64, Loaded>,
    /// Base addresses that a list of all objects, which has not ended yet, has named.
    listed: Option<HashSet<u64>>,
}

#[derive(Debug)]
struct Loaded {
    size: u64,
    identity: Identity,
    /// Set when an address in it is first looked up.
    module: Option<Arc<Module>>,
}

/// The fields of events about modules.
#[derive(Debug, Default)]
struct Fields<'a> {
    base: Option<u64>,
    size: Option<u64>,
    path: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    crc: Option<u64>,
    build_id: Option<BuildId>,
}

impl Modules {
    /// Creates a list without any module.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes notice of an event. Returns whether it is about modules, and so none of the program's.
    #[inline]
    pub fn note(&mut self, event: &Event<'_>) -> bool {
        event.class.name.starts_with(PROVIDERS) && self.note_named(event)
    }

    fn note_named(&mut self, event: &Event<'_>) -> bool {
        let name = &*event.class.name;
        let (is_list, what) = match (name.strip_prefix(STATEDUMP), name.strip_prefix(LIB)) {
            (Some(what), _) => (true, what),
            (_, Some(what)) => (false, what),
            _ => return false,
        };
        let process = self.processes.entry(event.trace.process()).or_default();
        let fields = Fields::of(event);
        match what {
            "start" if is_list => process.listed = Some(HashSet::new()),
            "end" if is_list => process.end_list(),
            "bin_info" if is_list => process.load(&fields),
            "load" if !is_list => process.load(&fields),
            "unload" if !is_list => process.unload(&fields),
            "build_id" => process.describe(&fields, |identity| {
                identity.build_id.clone_from(&fields.build_id);
            }),
            "debug_link" => process.describe(&fields, |identity| {
                let name = fields.name.filter(|name| is_file_name(name));
                let crc = fields.crc.and_then(|crc| u32::try_from(crc).ok());
                identity.debug_link = name.zip(crc).map(|(name, crc)| DebugLink {
                    name: name.into(),
                    crc,
                });
            }),
            _ => {}
        }
        true
    }

    /// Takes notice of an object that a process has loaded at a base address, with a size, if no
    /// event says that.
    pub fn load(
        &mut self,
        process: usize,
        [base, size]: [u64; 2],
        path: &Path,
        build_id: Option<BuildId>,
        debug_link: Option<DebugLink>,
    ) {
        let fields = Fields {
            base: Some(base),
            size: Some(size),
            path: Some(path.as_os_str().as_bytes()),
            ..Fields::default()
        };
        let process = self.processes.entry(process).or_default();
        process.load(&fields);
        process.describe(&fields, |identity| {
            (identity.build_id, identity.debug_link) = (build_id, debug_link);
        });
    }

    /// Takes notice of an object that a process has no longer, if no event says that.
    pub fn unload(&mut self, process: usize, base: u64) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.loaded.remove(&base);
        }
    }

    /// Finds the module that a process has loaded at an address, as of the last noted event.
    #[must_use]
    pub fn find(&mut self, process: usize, address: u64) -> Option<Found> {
        let process = self.processes.get_mut(&process)?;
        let (&base, loaded) = process.loaded.range_mut(..=address).next_back()?;
        let offset = address - base;
        if offset >= loaded.size {
            return None;
        }
        let module = match &loaded.module {
            Some(module) => module,
            None => {
                let module = match self.known.get(&loaded.identity) {
                    Some(module) => Arc::clone(module),
                    None => {
                        let module = Arc::new(Module {
                            number: u32::try_from(self.all.len()).ok()?,
                            identity: loaded.identity.clone(),
                        });
                        let identity = loaded.identity.clone();
                        self.known.insert(identity, Arc::clone(&module));
                        self.all.push(Arc::clone(&module));
                        module
                    }
                };
                loaded.module.insert(module)
            }
        };
        Some(Found {
            module: Arc::clone(module),
            offset,
        })
    }

    /// The module with this [number](Module::number).
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Arc<Module>> {
        self.all.get(usize::try_from(number).ok()?)
    }

    /// Whether two processes have modules at the same addresses, as one that was forked and its
    /// parent have. Programs of other processes have their libraries elsewhere, unless the
    /// addresses are not random.
    #[must_use]
    pub fn are_loaded_alike(&self, one: usize, other: usize) -> bool {
        let of = |process| Some(&self.processes.get(process)?.loaded);
        let Some((one, other)) = of(&one).zip(of(&other)) else {
            return false;
        };
        let same = one.iter().filter(|(base, loaded)| {
            let there = other.get(base);
            there.is_some_and(|there| there.identity.path == loaded.identity.path)
        });
        // A program of fixed addresses is at the same one each time. Either process may have loaded
        // or unloaded something since.
        same.count() * 2 > one.len().min(other.len())
    }

    /// Whether the trace says anything about the modules of a process.
    #[must_use]
    pub fn knows(&self, process: usize) -> bool {
        self.processes.contains_key(&process)
    }
}

impl Process {
    fn load(&mut self, fields: &Fields<'_>) {
        let (Some(base), Some(size), Some(path)) = (fields.base, fields.size, fields.path) else {
            return;
        };
        let Some(end) = base.checked_add(size).filter(|_| size > 0) else {
            return;
        };
        if let Some(listed) = &mut self.listed
            && listed.len() < MAX_LOADED
        {
            listed.insert(base);
        }
        let identity = Identity {
            path: path.into(),
            build_id: None,
            debug_link: None,
        };
        let loaded = Loaded {
            size,
            identity,
            module: None,
        };
        // Whatever was at these addresses is no longer there.
        let before = self.loaded.range(..base).next_back();
        let overlapping: Vec<u64> = before
            .filter(|(before, loaded)| base - **before < loaded.size)
            .into_iter()
            .chain(self.loaded.range(base..end))
            .map(|(base, _)| *base)
            .collect();
        for base in overlapping {
            self.loaded.remove(&base);
        }
        if self.loaded.len() < MAX_LOADED {
            self.loaded.insert(base, loaded);
        }
    }

    fn unload(&mut self, fields: &Fields<'_>) {
        if let Some(base) = fields.base {
            self.loaded.remove(&base);
        }
    }

    /// Removes what a list of all objects did not name.
    fn end_list(&mut self) {
        if let Some(listed) = self.listed.take()
            && listed.len() < MAX_LOADED
        {
            self.loaded.retain(|base, _| listed.contains(base));
        }
    }

    /// Adds to the description of an object.
    fn describe(&mut self, fields: &Fields<'_>, add: impl FnOnce(&mut Identity)) {
        let Some(base) = fields.base else {
            return;
        };
        if let Entry::Occupied(mut entry) = self.loaded.entry(base) {
            let loaded = entry.get_mut();
            add(&mut loaded.identity);
            loaded.module = None;
        }
    }
}

impl<'a> Fields<'a> {
    fn of(event: &Event<'a>) -> Self {
        let mut all = Self::default();
        for (field, value) in Values::new(&event.class.fields, event.payload) {
            let number = match value {
                Value::Scalar(Number::Integer(_, bits)) => Some(bits),
                _ => None,
            };
            match (&*field.name, value) {
                ("baddr", _) => all.base = number,
                ("memsz", _) => all.size = number,
                ("crc", _) => all.crc = number.map(|bits| bits & u64::from(u32::MAX)),
                ("path", Value::Text(path)) => all.path = Some(path),
                ("filename", Value::Text(name)) => all.name = Some(name),
                ("build_id", Value::List(bytes)) => {
                    let byte = |number| match number {
                        Number::Integer(_, bits) => bits as u8,
                        _ => 0,
                    };
                    // One more than a build ID may have, so that a longer one is invalid.
                    let bytes: Vec<u8> = bytes.map(byte).take(65).collect();
                    all.build_id = BuildId::new(&bytes);
                }
                _ => {}
            }
        }
        all
    }
}

/// Whether it names a file in a directory, rather than a path that leads elsewhere.
fn is_file_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b".."
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens to the modules of a process.
    #[derive(Clone, Debug)]
    enum Step {
        Load(u64, u64),
        Unload(u64),
        Start,
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = || prop_oneof![8 => 0u64..64, 1 => any::<u64>(), 1 => u64::MAX - 4..=u64::MAX];
        prop_oneof![
            4 => (number(), number()).prop_map(|(base, size)| Step::Load(base, size)),
            2 => number().prop_map(Step::Unload),
            1 => Just(Step::Start),
            1 => Just(Step::End),
        ]
    }

    fn fields(base: u64, size: u64, path: &[u8]) -> Fields<'_> {
        Fields {
            base: Some(base),
            size: Some(size),
            path: Some(path),
            ..Fields::default()
        }
    }

    proptest! {
        /// An address belongs to the last module that was loaded there, as in a model that looks
        /// through all of them.
        #[test]
        fn the_last_module_at_an_address_is_found(
            steps in prop::collection::vec(step(), 0..40),
            addresses in prop::collection::vec(0u64..80, 20),
        ) {
            let mut modules = Modules::new();
            let process = modules.processes.entry(0).or_default();
            let mut model: Vec<(u64, u64, String, bool)> = Vec::new();
            let mut is_listing = false;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Load(base, size) => {
                        let path = format!("/{number}");
                        process.load(&fields(base, size, path.as_bytes()));
                        if size > 0 && let Some(end) = base.checked_add(size) {
                            model.retain(|(of, size, ..)| of + size <= base || *of >= end);
                            model.push((base, size, path, true));
                        }
                    }
                    Step::Unload(base) => {
                        process.unload(&fields(base, 0, b""));
                        model.retain(|(of, ..)| *of != base);
                    }
                    Step::Start => {
                        process.listed = Some(HashSet::new());
                        is_listing = true;
                        model.iter_mut().for_each(|(.., is_listed)| *is_listed = false);
                    }
                    Step::End => {
                        process.end_list();
                        if std::mem::take(&mut is_listing) {
                            model.retain(|(.., is_listed)| *is_listed);
                        }
                    }
                }
            }
            for address in addresses {
                let found = modules.find(0, address);
                let found = found.map(|found| (found.module.path().to_owned(), found.offset));
                let expected = model
                    .iter()
                    .find(|(base, size, ..)| (*base..base + size).contains(&address))
                    .map(|(base, _, path, _)| (path.into(), address - base));
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(modules.find(1, 0), None);
        }
    }

    #[test]
    fn debug_links_are_names_of_files() {
        for (name, is_valid) in [
            (&b"x.debug"[..], true),
            (b"", false),
            (b"..", false),
            (b"../x", false),
            (b"/etc/passwd", false),
        ] {
            assert_eq!(is_file_name(name), is_valid);
        }
    }
}
