//! pprof's `profile.proto`.

use std::collections::HashMap;

use super::source::Source;
use crate::activity::LaneOwner;
use crate::binary::gzip;
use crate::export::proto::Message;
use crate::stacks::{Frame, Key, NO_STACK, Space, Weight, Weights, add, label};

/// Field numbers of `profile.proto`.
mod field {
    pub(super) mod profile {
        pub(crate) const SAMPLE_TYPE: u32 = 1;
        pub(crate) const SAMPLE: u32 = 2;
        pub(crate) const MAPPING: u32 = 3;
        pub(crate) const LOCATION: u32 = 4;
        pub(crate) const FUNCTION: u32 = 5;
        pub(crate) const STRING_TABLE: u32 = 6;
        pub(crate) const TIME_NANOS: u32 = 9;
        pub(crate) const DURATION_NANOS: u32 = 10;
        pub(crate) const PERIOD_TYPE: u32 = 11;
        pub(crate) const PERIOD: u32 = 12;
        pub(crate) const DEFAULT_SAMPLE_TYPE: u32 = 14;
    }
    pub(super) mod value_type {
        pub(crate) const TYPE: u32 = 1;
        pub(crate) const UNIT: u32 = 2;
    }
    pub(super) mod sample {
        pub(crate) const LOCATION_ID: u32 = 1;
        pub(crate) const VALUE: u32 = 2;
        pub(crate) const LABEL: u32 = 3;
    }
    pub(super) mod label {
        pub(crate) const KEY: u32 = 1;
        pub(crate) const STR: u32 = 2;
        pub(crate) const NUM: u32 = 3;
    }
    pub(super) mod mapping {
        pub(crate) const ID: u32 = 1;
        pub(crate) const MEMORY_START: u32 = 2;
        pub(crate) const MEMORY_LIMIT: u32 = 3;
        pub(crate) const FILENAME: u32 = 5;
        pub(crate) const BUILD_ID: u32 = 6;
        pub(crate) const HAS_FUNCTIONS: u32 = 7;
        pub(crate) const HAS_FILENAMES: u32 = 8;
        pub(crate) const HAS_LINE_NUMBERS: u32 = 9;
        pub(crate) const HAS_INLINE_FRAMES: u32 = 10;
    }
    pub(super) mod location {
        pub(crate) const ID: u32 = 1;
        pub(crate) const MAPPING_ID: u32 = 2;
        pub(crate) const ADDRESS: u32 = 3;
        pub(crate) const LINE: u32 = 4;
    }
    pub(super) mod line {
        pub(crate) const FUNCTION_ID: u32 = 1;
        pub(crate) const LINE: u32 = 2;
    }
    pub(super) mod function {
        pub(crate) const ID: u32 = 1;
        pub(crate) const NAME: u32 = 2;
        pub(crate) const SYSTEM_NAME: u32 = 3;
        pub(crate) const FILENAME: u32 = 4;
    }
}

/// The type and the unit of a weight.
fn sample_type(weight: Weight) -> (&'static str, &'static str) {
    match weight {
        Weight::Events => ("events", "count"),
        Weight::Bytes => ("bytes", "bytes"),
        Weight::Time => ("time", "nanoseconds"),
        Weight::Live => ("live_space", "bytes"),
        Weight::Peak => ("peak_space", "bytes"),
    }
}

/// The table of strings, which others refer to by their index.
#[derive(Debug)]
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, u64, ahash::RandomState>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Self {
            all: Vec::new(),
            numbers: HashMap::default(),
        };
        // The first one must be empty.
        strings.get("");
        strings
    }

    fn get(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// A profile that is being written. Ids are indices from 1 on.
struct Writer<'a> {
    source: &'a Source<'a>,
    message: Message,
    strings: Strings,
    /// By name and file.
    functions: HashMap<(u64, u64), u64, ahash::RandomState>,
    /// The weights that there are.
    kinds: Vec<Weight>,
}

/// Appends a compressed profile.
pub(super) fn write(out: &mut Vec<u8>, source: &Source<'_>) {
    let mut weights = source.profile.weights(source.activity);
    weights.sort_unstable_by_key(|(key, _)| *key);
    // Live and peak bytes of a stack come one by one.
    weights.dedup_by(|(key, more), (last, weights)| {
        let is_same = key == last;
        if is_same {
            add(weights, more);
        }
        is_same
    });
    let is_there = |kind: &Weight| {
        let index = *kind as usize;
        *kind == source.by || weights.iter().any(|(_, weights)| weights[index] > 0)
    };
    let mut writer = Writer {
        source,
        message: Message::default(),
        strings: Strings::new(),
        functions: HashMap::default(),
        kinds: Weight::ALL.into_iter().filter(is_there).collect(),
    };
    writer.types();
    writer.mappings();
    let unknown = writer.locations();
    for (key, weights) in &weights {
        writer.sample(*key, weights, unknown);
    }
    for text in std::mem::take(&mut writer.strings.all) {
        writer.message.text(field::profile::STRING_TABLE, &text);
    }
    out.extend_from_slice(&gzip(&writer.message.bytes));
}

impl Writer<'_> {
    fn value_type(&mut self, of: u32, weight: Weight) {
        let (kind, unit) = sample_type(weight);
        let (kind, unit) = (self.strings.get(kind), self.strings.get(unit));
        let mark = self.message.begin(of);
        self.message.number(field::value_type::TYPE, kind);
        self.message.number(field::value_type::UNIT, unit);
        self.message.end(mark);
    }

    fn types(&mut self) {
        use field::profile;
        for kind in self.kinds.clone() {
            self.value_type(profile::SAMPLE_TYPE, kind);
        }
        let activity = self.source.activity;
        let begin = activity.begin.unwrap_or(0);
        self.message.signed(profile::TIME_NANOS, begin);
        self.message.number(profile::DURATION_NANOS, activity.end);
        // Each event is there: a period of one.
        self.value_type(profile::PERIOD_TYPE, Weight::Events);
        self.message.number(profile::PERIOD, 1);
        let default = self.strings.get(sample_type(self.source.by).0);
        self.message.number(profile::DEFAULT_SAMPLE_TYPE, default);
    }

    /// Modules are at made-up addresses, as each is at several in several processes.
    fn mappings(&mut self) {
        use field::mapping;
        let frames = self.source.frames;
        let table = &self.source.profile.table;
        let mut uses = vec![ModuleUse::default(); frames.modules().len()];
        for (number, location) in (0..).zip(table.locations()) {
            if let Space::Module(module) = location.space {
                uses[module as usize].add(location.offset, frames.of_location(number));
            }
        }
        for ((number, module), used) in (0u32..).zip(frames.modules()).zip(uses) {
            let (path, build_id) = (
                self.strings.get(&module.path),
                self.strings.get(&module.build_id),
            );
            let message = &mut self.message;
            let mark = message.begin(field::profile::MAPPING);
            message.number(mapping::ID, u64::from(number) + 1);
            message.number(mapping::MEMORY_START, base(number));
            let limit = base(number).saturating_add(used.size);
            message.number(mapping::MEMORY_LIMIT, limit);
            message.number(mapping::FILENAME, path);
            message.number(mapping::BUILD_ID, build_id);
            // So pprof does not try to find symbols itself.
            message.number(mapping::HAS_FUNCTIONS, (!used.has_unknown).into());
            message.number(mapping::HAS_FILENAMES, used.has_files.into());
            message.number(mapping::HAS_LINE_NUMBERS, used.has_lines.into());
            message.number(mapping::HAS_INLINE_FRAMES, used.has_inlined.into());
            message.end(mark);
        }
    }

    /// Writes all locations: their ids are their indices and 1. Returns the id of one for events
    /// without a call stack.
    fn locations(&mut self) -> u64 {
        use field::location;
        let table = &self.source.profile.table;
        let mut id = 0;
        for (number, place) in (0u32..).zip(table.locations()) {
            id = u64::from(number) + 1;
            let frames = self.source.frames.of_location(number);
            // Names of the functions first: these are messages of their own.
            let lines: Vec<(u64, u32)> = frames
                .iter()
                .map(|frame| {
                    let file = frame.file.as_deref().unwrap_or_default();
                    let function = self.function(&frame.function, file);
                    (function, frame.line.unwrap_or(0))
                })
                .collect();
            // The address of the call, which is before the return address.
            let offset = place.offset.wrapping_sub(1);
            let message = &mut self.message;
            let mark = message.begin(field::profile::LOCATION);
            message.number(location::ID, id);
            let address = match place.space {
                Space::Module(module) => {
                    message.number(location::MAPPING_ID, u64::from(module) + 1);
                    base(module).saturating_add(offset)
                }
                Space::Process(_) => offset,
            };
            message.number(location::ADDRESS, address);
            for (function, line) in lines {
                let of_line = message.begin(location::LINE);
                message.number(field::line::FUNCTION_ID, function);
                message.number(field::line::LINE, line.into());
                message.end(of_line);
            }
            message.end(mark);
        }
        let function = self.function("[no call stack]", "");
        let message = &mut self.message;
        let mark = message.begin(field::profile::LOCATION);
        message.number(location::ID, id + 1);
        let of_line = message.begin(location::LINE);
        message.number(field::line::FUNCTION_ID, function);
        message.end(of_line);
        message.end(mark);
        id + 1
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        use field::function;
        let (name, file) = (self.strings.get(name), self.strings.get(file));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            let message = &mut self.message;
            let mark = message.begin(field::profile::FUNCTION);
            message.number(function::ID, id);
            message.number(function::NAME, name);
            message.number(function::SYSTEM_NAME, name);
            message.number(function::FILENAME, file);
            message.end(mark);
        }
        id
    }

    fn sample(&mut self, key: Key, weights: &Weights, unknown: u64) {
        use field::sample;
        if weights.iter().all(|&weight| weight == 0) {
            return;
        }
        let source = self.source;
        let mark = self.message.begin(field::profile::SAMPLE);
        let packed = self.message.begin(sample::LOCATION_ID);
        if key.stack == NO_STACK {
            crate::varint::put(&mut self.message.bytes, unknown);
        }
        for location in source.profile.table.frames(key.stack) {
            crate::varint::put(&mut self.message.bytes, u64::from(location) + 1);
        }
        self.message.end(packed);
        let packed = self.message.begin(sample::VALUE);
        for &kind in &self.kinds {
            // Signed in the format.
            let value = weights[kind as usize].min(i64::MAX.cast_unsigned());
            crate::varint::put(&mut self.message.bytes, value);
        }
        self.message.end(packed);
        if let Some(event) = label(key.label, source.activity) {
            self.text_label("event", &event);
        }
        if let Some(process) = source.processes.get(key.process as usize) {
            self.text_label("process", &process.name);
            if let Some(pid) = process.pid {
                self.number_label("pid", pid);
            }
        }
        if let Some(lane) = key.lane() {
            let lane = &source.activity.lanes.all[lane as usize];
            let name = String::from_utf8_lossy(&lane.name);
            self.text_label("thread", &name);
            if let LaneOwner::Thread(_, tid) = lane.owner {
                self.number_label("tid", tid.cast_signed());
            }
        }
        self.message.end(mark);
    }

    fn text_label(&mut self, key: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let (key, text) = (self.strings.get(key), self.strings.get(text));
        let mark = self.message.begin(field::sample::LABEL);
        self.message.number(field::label::KEY, key);
        self.message.number(field::label::STR, text);
        self.message.end(mark);
    }

    fn number_label(&mut self, key: &str, number: i64) {
        let key = self.strings.get(key);
        let mark = self.message.begin(field::sample::LABEL);
        self.message.number(field::label::KEY, key);
        self.message.signed(field::label::NUM, number);
        self.message.end(mark);
    }
}

/// The made-up address of a module.
fn base(module: u32) -> u64 {
    (u64::from(module) + 1) << 36
}

/// What is known of a module.
#[derive(Clone, Copy, Debug, Default)]
struct ModuleUse {
    /// Its size, as far as there are locations in it.
    size: u64,
    has_unknown: bool,
    has_files: bool,
    has_lines: bool,
    has_inlined: bool,
}

impl ModuleUse {
    fn add(&mut self, offset: u64, frames: &[Frame]) {
        self.size = self.size.max(offset.saturating_add(1));
        for frame in frames {
            self.has_unknown |= frame.is_unknown;
            self.has_files |= frame.file.is_some();
            self.has_lines |= frame.line.is_some();
            self.has_inlined |= frame.is_inlined;
        }
    }
}
