//! Firefox Profiler's processed profile.
//!
//! The crate `fxprof-processed-profile` writes the same format, of the same version. But it has no
//! source lines and no inlined functions, and its weights are whole numbers of 32 bits: too small
//! for bytes, and for times in milliseconds. A test has Profiler's own code read this.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::source::Source;
use crate::activity::LaneOwner;
use crate::binary::gzip;
use crate::stacks::{Key, NO_STACK, Space, Weight, label};

/// Version of the format.
const VERSION: u32 = 55;
/// Indices of the categories.
const CODE: u32 = 0;
const EVENT: u32 = 1;
/// The type of resources that are libraries.
const LIBRARY: u32 = 1;

#[derive(Serialize)]
struct Profile {
    meta: Value,
    libs: Vec<Value>,
    threads: Vec<Thread>,
    pages: [(); 0],
    #[serde(rename = "profilerOverhead")]
    profiler_overhead: [(); 0],
    counters: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    name: String,
    is_main_thread: bool,
    process_type: &'static str,
    process_name: String,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    pid: String,
    tid: String,
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    frame_table: FrameTable,
    func_table: FuncTable,
    stack_table: StackTable,
    samples: Samples,
    markers: Markers,
    resource_table: ResourceTable,
    native_symbols: NativeSymbols,
    string_array: Vec<String>,
    #[serde(skip)]
    interned: Interned,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<u32>,
    subcategory: Vec<u32>,
    func: Vec<usize>,
    native_symbol: Vec<()>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u32>,
    line: Vec<Option<u32>>,
    column: Vec<()>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    file_name: Vec<Option<usize>>,
    line_number: Vec<()>,
    column_number: Vec<()>,
}

#[derive(Default, Serialize)]
struct StackTable {
    length: usize,
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    stack: Vec<Option<usize>>,
    time_deltas: Vec<f64>,
    weight: Vec<f64>,
    weight_type: &'static str,
    /// The time of the last sample, in ns.
    #[serde(skip)]
    last: u64,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    category: [(); 0],
    data: [(); 0],
    end_time: [(); 0],
    name: [(); 0],
    phase: [(); 0],
    start_time: [(); 0],
}

#[derive(Default, Serialize)]
struct ResourceTable {
    length: usize,
    lib: Vec<u32>,
    name: Vec<usize>,
    host: Vec<()>,
    r#type: Vec<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    address: [(); 0],
    function_size: [(); 0],
    lib_index: [(); 0],
    name: [(); 0],
}

/// What a thread's tables have already.
#[derive(Default)]
struct Interned {
    strings: HashMap<String, usize, ahash::RandomState>,
    resources: HashMap<u32, usize, ahash::RandomState>,
    /// By name, resource and file.
    funcs: HashMap<(usize, i64, Option<usize>), usize, ahash::RandomState>,
    /// The frames of locations, from the outermost, and those of labels.
    of_location: HashMap<u32, Vec<usize>, ahash::RandomState>,
    of_label: HashMap<String, usize, ahash::RandomState>,
    stacks: HashMap<(Option<usize>, usize), usize, ahash::RandomState>,
}

/// A frame of a thread's table.
struct FrameRow {
    address: i64,
    inline_depth: u32,
    category: u32,
    func: usize,
    line: Option<u32>,
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Appends a compressed profile.
pub(super) fn write(out: &mut Vec<u8>, source: &Source<'_>) {
    let mut threads: Vec<Thread> = Vec::new();
    let mut numbers = HashMap::new();
    for (time, key, weight) in samples(source) {
        let number = *numbers.entry((key.process, key.lane())).or_insert_with(|| {
            threads.push(Thread::new(source, key));
            threads.len() - 1
        });
        threads[number].sample(source, key, time, weight);
    }
    // The first thread of a process stands for it.
    threads.sort_by(|a, b| {
        let place = |thread: &Thread| {
            let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
            (
                number(&thread.pid),
                !thread.is_main_thread,
                number(&thread.tid),
            )
        };
        place(a).cmp(&place(b))
    });
    let profile = Profile {
        meta: meta(source),
        libs: libraries(source),
        threads,
        pages: [],
        profiler_overhead: [],
        counters: [],
    };
    // A value that is made of numbers, texts and lists of these has a representation in JSON.
    let text = serde_json::to_vec(&profile).unwrap_or_default();
    out.extend_from_slice(&gzip(&text));
}

/// Times, keys and weights, in order of time.
fn samples(source: &Source<'_>) -> Vec<(u64, Key, u64)> {
    let Source {
        profile, activity, ..
    } = source;
    let is_of_memory = matches!(source.by, Weight::Live | Weight::Peak);
    let mut all: Vec<(u64, Key, u64)> = match &profile.timeline {
        Some((_, timeline)) if !is_of_memory => {
            let keys = profile.samples.all();
            let bins = timeline.sorted().into_iter();
            bins.map(|(time, number, weight)| (time, keys[number as usize].0, weight))
                .collect()
        }
        _ => {
            let weights = profile.weights(activity).into_iter();
            let time = |key: Key| match (source.by, activity.heap.peak(key.process)) {
                (Weight::Peak, Some(peak)) => peak.time,
                _ => activity.end,
            };
            weights
                .map(|(key, weights)| (time(key), key, weights[source.by as usize]))
                .filter(|(_, _, weight)| *weight > 0)
                .collect()
        }
    };
    all.sort_unstable();
    all
}

fn meta(source: &Source<'_>) -> Value {
    let begin = source.activity.begin.unwrap_or(0);
    let interval = match &source.profile.timeline {
        Some((_, timeline)) => milliseconds(timeline.bin()),
        None => 1.0,
    };
    let category = |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    json!({
        "categories": [category("Code", "blue"), category("Event", "orange")],
        "debug": false,
        "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        "interval": interval,
        "preprocessedProfileVersion": VERSION,
        "processType": 0,
        "product": format!("usertrace, by {}", source.by.name()),
        "oscpu": "Linux",
        "startTime": begin as f64 / 1e6,
        "symbolicated": true,
        "pausedRanges": [],
        "version": 24,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "markerSchema": [],
    })
}

fn libraries(source: &Source<'_>) -> Vec<Value> {
    let modules = source.frames.modules().iter();
    let libraries = modules.map(|module| {
        let code_id = (!module.build_id.is_empty()).then_some(&module.build_id);
        json!({
            "name": module.name,
            "path": module.path,
            "debugName": module.name,
            "debugPath": module.path,
            "breakpadId": breakpad_id(&module.build_id),
            "codeId": code_id,
            "arch": null,
        })
    });
    libraries.collect()
}

/// A build ID as Breakpad's symbol servers name it: a GUID of its first 16 bytes, and an age of 0.
fn breakpad_id(build_id: &str) -> String {
    let mut digits = build_id.get(..32).unwrap_or(build_id).to_uppercase();
    while digits.len() < 32 {
        digits.push('0');
    }
    // The first numbers of a GUID are little-endian.
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let bytes = order.iter().filter_map(|n| digits.get(2 * n..2 * n + 2));
    bytes.chain(["0"]).collect()
}

impl Thread {
    /// A thread without samples.
    fn new(source: &Source<'_>, key: Key) -> Self {
        let process = source.processes.get(key.process as usize);
        let process = process.cloned().unwrap_or_default();
        // Profiler tells processes apart by this.
        let pid = process.pid.unwrap_or_else(|| key.process.into());
        let lane = key
            .lane()
            .map(|lane| &source.activity.lanes.all[lane as usize]);
        let tid = lane.and_then(|lane| match lane.owner {
            LaneOwner::Thread(_, tid) => Some(tid),
            LaneOwner::Handle(_, thread) => Some(thread),
            _ => None,
        });
        Self {
            name: lane.map_or_else(|| process.text(), |lane| lane.text()),
            is_main_thread: tid.is_none_or(|tid| tid == pid.cast_unsigned()),
            process_type: "default",
            process_name: process.text(),
            process_startup_time: 0.0,
            process_shutdown_time: None,
            register_time: 0.0,
            unregister_time: None,
            pid: pid.to_string(),
            tid: tid.map_or_else(|| pid.to_string(), |tid| tid.to_string()),
            paused_ranges: [],
            show_markers_in_timeline: false,
            frame_table: FrameTable::default(),
            func_table: FuncTable::default(),
            stack_table: StackTable::default(),
            samples: Samples {
                length: 0,
                stack: Vec::new(),
                time_deltas: Vec::new(),
                weight: Vec::new(),
                weight_type: match source.by {
                    Weight::Events => "samples",
                    Weight::Time => "tracing-ms",
                    Weight::Bytes | Weight::Live | Weight::Peak => "bytes",
                },
                last: 0,
            },
            markers: Markers::default(),
            resource_table: ResourceTable::default(),
            native_symbols: NativeSymbols::default(),
            string_array: Vec::new(),
            interned: Interned::default(),
        }
    }

    fn sample(&mut self, source: &Source<'_>, key: Key, time: u64, weight: u64) {
        let mut stack = None;
        let mut locations: Vec<u32> = source.profile.table.frames(key.stack).collect();
        while let Some(location) = locations.pop() {
            for frame in self.frames(source, location) {
                stack = Some(self.stack(stack, frame));
            }
        }
        if key.stack == NO_STACK {
            let frame = self.label("[no call stack]", CODE);
            stack = Some(self.stack(stack, frame));
        }
        if let Some(event) = label(key.label, source.activity) {
            let frame = self.label(&event, EVENT);
            stack = Some(self.stack(stack, frame));
        }
        let weight = match source.by {
            Weight::Time => milliseconds(weight),
            _ => weight as f64,
        };
        let samples = &mut self.samples;
        samples.length += 1;
        samples.stack.push(stack);
        samples.time_deltas.push(milliseconds(time - samples.last));
        samples.weight.push(weight);
        samples.last = time;
    }

    /// The frames of a location, from the outermost.
    fn frames(&mut self, source: &Source<'_>, location: u32) -> Vec<usize> {
        if let Some(known) = self.interned.of_location.get(&location) {
            return known.clone();
        }
        let place = source.profile.table.locations()[location as usize];
        let resource = match place.space {
            Space::Module(module) => {
                let name = &source.frames.modules()[module as usize].name;
                self.resource(module, name) as i64
            }
            Space::Process(_) => -1,
        };
        let address = match place.space {
            // The address of the call.
            Space::Module(_) => i64::try_from(place.offset.wrapping_sub(1)).unwrap_or(-1),
            Space::Process(_) => -1,
        };
        let frames = source.frames.of_location(location);
        let mut numbers = Vec::new();
        for (depth, frame) in (0..).zip(frames.iter().rev()) {
            let name = self.string(&frame.function);
            let file = frame.file.as_deref().map(|file| self.string(file));
            let func = self.func(name, resource, file);
            numbers.push(self.frame_table.push(FrameRow {
                address,
                inline_depth: depth,
                category: CODE,
                func,
                line: frame.line,
            }));
        }
        self.interned.of_location.insert(location, numbers.clone());
        numbers
    }

    fn label(&mut self, text: &str, category: u32) -> usize {
        if let Some(&known) = self.interned.of_label.get(text) {
            return known;
        }
        let name = self.string(text);
        let func = self.func(name, -1, None);
        let frame = self.frame_table.push(FrameRow {
            address: -1,
            inline_depth: 0,
            category,
            func,
            line: None,
        });
        self.interned.of_label.insert(text.to_owned(), frame);
        frame
    }

    fn stack(&mut self, prefix: Option<usize>, frame: usize) -> usize {
        let table = &mut self.stack_table;
        *self
            .interned
            .stacks
            .entry((prefix, frame))
            .or_insert_with(|| {
                table.prefix.push(prefix);
                table.frame.push(frame);
                table.length += 1;
                table.length - 1
            })
    }

    fn func(&mut self, name: usize, resource: i64, file: Option<usize>) -> usize {
        let table = &mut self.func_table;
        *self
            .interned
            .funcs
            .entry((name, resource, file))
            .or_insert_with(|| {
                table.name.push(name);
                table.is_js.push(false);
                table.relevant_for_js.push(false);
                table.resource.push(resource);
                table.file_name.push(file);
                table.line_number.push(());
                table.column_number.push(());
                table.length += 1;
                table.length - 1
            })
    }

    fn resource(&mut self, module: u32, name: &str) -> usize {
        let name = self.string(name);
        let table = &mut self.resource_table;
        *self.interned.resources.entry(module).or_insert_with(|| {
            table.lib.push(module);
            table.name.push(name);
            table.host.push(());
            table.r#type.push(LIBRARY);
            table.length += 1;
            table.length - 1
        })
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(&known) = self.interned.strings.get(text) {
            return known;
        }
        let number = self.string_array.len();
        self.string_array.push(text.to_owned());
        self.interned.strings.insert(text.to_owned(), number);
        number
    }
}

impl FrameTable {
    fn push(&mut self, row: FrameRow) -> usize {
        self.address.push(row.address);
        self.inline_depth.push(row.inline_depth);
        self.category.push(row.category);
        self.subcategory.push(0);
        self.func.push(row.func);
        self.native_symbol.push(());
        self.inner_window_id.push(0);
        self.line.push(row.line);
        self.column.push(());
        self.length += 1;
        self.length - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_become_guids() {
        assert_eq!(
            breakpad_id("000102030405060708090a0b0c0d0e0f10111213"),
            "030201000504070608090A0B0C0D0E0F0"
        );
        assert_eq!(breakpad_id(""), "000000000000000000000000000000000");
        assert_eq!(breakpad_id("abcd"), "0000CDAB0000000000000000000000000");
    }
}
