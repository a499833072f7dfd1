//! Reads the machine code of an event: how many instructions it is, and that none of them locks,
//! calls, or enters the kernel (A3, B6).
//!
//! The code is that of `instrumented`, as a release build makes it, whatever this test is built as;
//! and that of a library in C (`code.c`), and of `libusertrace.so`, which it calls. All paths from
//! the place of the event to its end are followed; the one of an event that is recorded passes the
//! end of the restartable sequence, and the one of an event that no trace wants makes no call.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register,
};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

/// Instructions of an event that is recorded, at most, and of one from C, whose caller jumps into
/// the library.
const MOST: usize = 48;
const MOST_FROM_C: usize = 55;

/// Instructions of an event that is counted or rejected, at most, from where its function jumps to
/// the library: one without value and key, any other one, and one that is rejected.
const MOST_COUNTED_PLAIN: usize = 80;
const MOST_COUNTED: usize = 165;
const MOST_REJECTED: usize = 95;

/// Instructions of an event of at most four words into the thread's own ring, from where its
/// function jumps to the library.
const MOST_IN_OWN_RING: usize = 165;

/// Where release builds go: others need most of what is built here, too.
fn target() -> &'static Path {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    here.parent().expect("it is below the target directory")
}

/// The optimised program.
struct Program {
    file: Vec<u8>,
}

impl Program {
    /// Built once for all tests.
    fn build() -> &'static Self {
        static PROGRAM: OnceLock<Program> = OnceLock::new();
        PROGRAM.get_or_init(Self::build_it)
    }

    fn build_it() -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--release", "--locked"])
            .args(["--package", "usertrace-bench", "--bin", "instrumented"])
            .arg("--no-default-features")
            .arg("--target-dir")
            .arg(target())
            // What measures this test's coverage, or checks its memory, is no part of the program.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status()
            .expect("cargo");
        assert!(status.success(), "building the program: {status}");
        let file = std::fs::read(target().join("release/instrumented")).expect("it was built");
        Self { file }
    }

    /// The library for C, as it is installed, and one that writes an event by it.
    fn of_c() -> (Self, Self) {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let run = |command: &mut Command| {
            let status = command.status().expect("a command");
            assert!(status.success(), "{command:?}: {status}");
        };
        run(Command::new(here.join("../scripts/c-library"))
            .arg("--prefix")
            .arg(&prefix)
            .env("CARGO_TARGET_DIR", target())
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS"));
        let library = prefix.join("lib/libusertrace.so.1");
        let caller = prefix.join("code.so");
        run(Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-I"])
            .arg(prefix.join("include"))
            .arg("-o")
            .arg(&caller)
            .arg(here.join("tests/code.c"))
            .arg(&library));
        let read = |path| Self {
            file: std::fs::read(path).expect("it was built"),
        };
        (read(library), read(caller))
    }

    fn object(&self) -> object::File<'_> {
        object::File::parse(&*self.file).expect("an ELF file")
    }

    /// Where the function begins that has such a name.
    fn function(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let object = self.object();
        let mut found: Vec<u64> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.name().is_ok_and(&wanted))
            .map(|symbol| symbol.address())
            .collect();
        found.dedup();
        assert_eq!(found.len(), 1, "one symbol has that name");
        found[0]
    }

    /// Where the place of the event begins.
    fn place(&self) -> u64 {
        self.function(|name| name == "usertrace_bench_place")
    }

    /// Where its function begins. Both ways to mangle a name have its parts in it.
    fn record(&self) -> u64 {
        self.function(|name| {
            name.contains("instrumented") && name.contains("numbers") && name.contains("record")
        })
    }

    fn code(&self) -> Walk<'_> {
        let object = self.object();
        let sections = object
            .sections()
            .filter_map(|section| Some((section.address(), section.data().ok()?)))
            .filter(|(address, _)| *address != 0)
            .collect();
        let commits = object.section_by_name("__rseq_cs").map(|sequences| {
            let range = sequences.address()..sequences.address() + sequences.size();
            object
                .dynamic_relocations()
                .expect("they are relocated")
                .filter(|(at, _)| range.contains(at) && (at - range.start) % 32 == 8)
                .map(|(at, relocation)| {
                    assert_eq!(relocation.target(), RelocationTarget::Absolute);
                    // Start and length of a sequence: what it ends with is the commit.
                    let data = sequences.data().expect("they are in the file");
                    let length = &data[(at - range.start) as usize + 8..][..8];
                    relocation.addend().cast_unsigned()
                        + u64::from_le_bytes(length.try_into().expect("8 bytes"))
                })
                .collect()
        });
        Walk {
            sections,
            commits: commits.unwrap_or_default(),
        }
    }
}

/// What the paths lead through.
struct Walk<'a> {
    sections: Vec<(u64, &'a [u8])>,
    /// Where the restartable sequences end.
    commits: HashSet<u64>,
}

type Instructions = Vec<Instruction>;

impl Walk<'_> {
    fn instruction(&self, at: u64) -> Instruction {
        let bytes = self
            .sections
            .iter()
            .find_map(|(start, data)| data.get(usize::try_from(at.checked_sub(*start)?).ok()?..))
            .filter(|bytes| !bytes.is_empty())
            .unwrap_or_else(|| panic!("no code at {at:#x}"));
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        assert_ne!(instruction.code(), Code::INVALID, "at {at:#x}");
        instruction
    }

    /// All paths from there to a return, or to a jump that leads elsewhere, that come to no place
    /// twice.
    fn paths(&self, from: u64) -> Vec<Instructions> {
        let mut done = Vec::new();
        let mut open: Vec<(u64, Instructions)> = vec![(from, Vec::new())];
        while let Some((at, mut path)) = open.pop() {
            if path.iter().any(|instruction| instruction.ip() == at) {
                continue;
            }
            let instruction = self.instruction(at);
            path.push(instruction);
            assert!(open.len() + done.len() < 100_000, "too many paths");
            match instruction.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch => done.push(path),
                FlowControl::ConditionalBranch => {
                    open.push((instruction.near_branch_target(), path.clone()));
                    open.push((instruction.next_ip(), path));
                }
                FlowControl::UnconditionalBranch => {
                    open.push((instruction.near_branch_target(), path));
                }
                // The end of the road: a trap.
                FlowControl::Exception => {}
                FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::Interrupt
                | FlowControl::XbeginXabortXend => open.push((instruction.next_ip(), path)),
            }
        }
        done
    }

    /// The paths of an event that is recorded, in one trace: those that pass a commit.
    fn recorded(&self, record: u64) -> Vec<Instructions> {
        let mut paths = self.paths(record);
        paths.retain(|path| {
            path.iter()
                .any(|instruction| self.commits.contains(&instruction.ip()))
        });
        assert!(!paths.is_empty(), "no path of an event is recorded");
        paths
    }
}

/// Says so if an event that is recorded is too much: these instructions, and so many before them.
fn check(path: &[Instruction], before: usize, most: usize) {
    for instruction in path {
        if let Some(why) = forbidden(instruction) {
            panic!("{instruction} is {why}, in\n{}", show(path));
        }
    }
    let count = path.len() + before;
    assert!(
        count <= most,
        "{count} instructions, not {most} at most:\n{}",
        show(path)
    );
    println!("{count} instructions:\n{}", show(path));
}

/// An event that no trace wants is one load, one branch, and nothing that costs.
fn check_disabled(paths: &[Instructions]) {
    let [path] = paths else {
        panic!("{} paths of an event that no trace wants", paths.len());
    };
    let branches = path
        .iter()
        .filter(|instruction| instruction.flow_control() == FlowControl::ConditionalBranch);
    assert_eq!((reads(path), branches.count()), (1, 1), "{}", show(path));
    assert_eq!(path.iter().find_map(forbidden), None, "{}", show(path));
    println!("disabled, with the return:\n{}", show(path));
}

/// Why the instruction must not be on an event's path, if it must not.
fn forbidden(instruction: &Instruction) -> Option<&'static str> {
    let of_memory = (0..instruction.op_count())
        .any(|operand| instruction.op_kind(operand) == iced_x86::OpKind::Memory);
    match instruction.mnemonic() {
        _ if instruction.has_lock_prefix() => Some("locked"),
        // Locked without saying so.
        Mnemonic::Xchg if of_memory => Some("locked"),
        Mnemonic::Mfence | Mnemonic::Cpuid => Some("serialising"),
        Mnemonic::Call => Some("a call"),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int | Mnemonic::Int3 => {
            Some("a system call")
        }
        _ => None,
    }
}

/// How often it reads memory, other than for returning.
fn reads(path: &[Instruction]) -> usize {
    let mut factory = InstructionInfoFactory::new();
    path.iter()
        .filter(|instruction| instruction.flow_control() == FlowControl::Next)
        .map(|instruction| {
            let info = factory.info(instruction);
            info.used_memory()
                .iter()
                .filter(|memory| memory.base() != Register::RSP)
                .filter(|memory| matches!(memory.access(), OpAccess::Read | OpAccess::ReadWrite))
                .count()
        })
        .sum()
}

fn show(path: &[Instruction]) -> String {
    path.iter()
        .map(|instruction| format!("{:#x}: {instruction}\n", instruction.ip()))
        .collect()
}

/// Requirements: A3, B6
#[test]
fn event_is_few_instructions_without_locks_or_calls() {
    let program = Program::build();
    for path in &program.code().recorded(program.record()) {
        check(path, 0, MOST);
        let stamps = path
            .iter()
            .filter(|instruction| instruction.mnemonic() == Mnemonic::Rdtsc);
        assert_eq!(stamps.count(), 1, "{}", show(path));
    }
}

/// Requirements: A3
#[test]
fn disabled_event_is_one_load_and_one_branch() {
    let program = Program::build();
    let record = program.record();
    let mut disabled = program.code().paths(program.place());
    disabled.retain(|path| {
        path.iter().all(|instruction| {
            // A call, or a jump, to the event's function.
            instruction.mnemonic() != Mnemonic::Call && instruction.ip() != record
        })
    });
    check_disabled(&disabled);
}

/// An event that is counted, by whatever value and key, costs no time stamp either. One that a
/// comparison rejects commits nothing.
///
/// Requirements: A3
#[test]
fn counted_and_rejected_events_are_few_instructions_without_locks_or_calls() {
    let program = Program::build();
    let code = program.code();
    let of = |part: &str| program.function(|name| name.contains("dispatch") && name.contains(part));
    let counted = code.recorded(of("count_four"));
    for path in &counted {
        assert_eq!(path.iter().find_map(forbidden), None, "{}", show(path));
        let is_stamp = |i: &Instruction| i.mnemonic() == Mnemonic::Rdtsc;
        assert!(!path.iter().any(is_stamp), "{}", show(path));
    }
    // For each sequence, the event that finds its cell at once.
    let mut shortest: BTreeMap<u64, &Instructions> = BTreeMap::new();
    for path in &counted {
        let mut commit = path.iter().map(Instruction::ip);
        let commit = commit.find(|ip| code.commits.contains(ip));
        let known = shortest.entry(commit.expect("it commits")).or_insert(path);
        if path.len() < known.len() {
            *known = path;
        }
    }
    let ways: Vec<usize> = shortest.values().map(|path| path.len()).collect();
    println!("counted: {ways:?} instructions");
    // With and without a key: plain, and with values of both signs.
    assert_eq!(ways.len(), 6);
    assert!(ways.iter().all(|len| *len <= MOST_COUNTED), "{ways:?}");
    assert!(
        ways.iter().any(|len| *len <= MOST_COUNTED_PLAIN),
        "{ways:?}"
    );
    let mut rejected = code.paths(of("test_four"));
    rejected.retain(|path| {
        let calls = path.iter().any(|i| i.mnemonic() == Mnemonic::Call);
        let returns = path.last().map(Instruction::flow_control) == Some(FlowControl::Return);
        returns && !calls
    });
    let shortest = rejected.iter().map(Vec::len).min().expect("a path");
    println!("rejected: {shortest} instructions");
    assert!(shortest <= MOST_REJECTED, "{shortest}");
}

/// An event into a ring that the thread alone writes commits by an addition that is not locked.
///
/// Requirements: A3, B6
#[test]
fn event_into_a_threads_own_ring_is_few_instructions_without_locks_or_calls() {
    let program = Program::build();
    let record =
        program.function(|name| name.contains("dispatch") && name.contains("10record_few"));
    let mut paths = program.code().paths(record);
    // One that fills a sub-buffer calls what wakes the reader.
    paths.retain(|path| {
        let commits = path.iter().any(|i| i.mnemonic() == Mnemonic::Xadd);
        commits && !path.iter().any(|i| i.mnemonic() == Mnemonic::Call)
    });
    assert!(!paths.is_empty(), "no path of an event is recorded");
    let longest = paths.iter().map(Vec::len).max().expect("a path");
    println!("at most {longest} instructions in a ring of the thread");
    for path in &paths {
        check(path, 0, MOST_IN_OWN_RING);
    }
}

/// The payload is loaded by single words: a load of parts of two stores would wait for both to
/// leave the store buffer, which takes longer than all the rest. There is no lock or call, either.
///
/// Requirements: A3, B6
#[test]
fn payload_in_memory_is_copied_without_waiting_for_stores() {
    let program = Program::build();
    let code = program.code();
    let record =
        program.function(|name| name.contains("dispatch") && name.contains("12record_words"));
    // The function in the order of its code, up to the first commit.
    let mut body: Instructions = vec![code.instruction(record)];
    while !body.iter().any(|i| code.commits.contains(&i.next_ip())) {
        assert!(body.len() < 400, "no commit:\n{}", show(&body));
        body.push(code.instruction(body[body.len() - 1].next_ip()));
    }
    assert_eq!(body.iter().find_map(forbidden), None, "{}", show(&body));
    let mut factory = InstructionInfoFactory::new();
    let mut copies = 0;
    let is_before = |i: &&Instruction| i.mnemonic() != Mnemonic::Prefetchw;
    for instruction in body.iter().skip_while(is_before) {
        let memory = factory.info(instruction).used_memory().iter();
        let loads = memory.filter(|memory| memory.access() == OpAccess::Read);
        let widest = loads.map(|memory| memory.memory_size().size()).max();
        assert!(widest <= Some(8), "{instruction}, in\n{}", show(&body));
        copies += usize::from(widest == Some(8));
    }
    assert_ne!(copies, 0, "no copy of a payload");
}

/// It is what it is in Rust, but for a jump into the library.
///
/// Requirements: A3, B6, F7
#[test]
fn event_in_c_is_as_few_instructions() {
    let (library, caller) = Program::of_c();
    let paths = caller.code().paths(caller.place());
    let (enabled, others): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| {
        path.last().map(Instruction::flow_control) == Some(FlowControl::IndirectBranch)
    });
    // One way calls what notes where the event is, for a trace that asks for it.
    let (noted, disabled): (Vec<_>, Vec<_>) = others.into_iter().partition(|path| {
        path.iter()
            .any(|instruction| instruction.mnemonic() == Mnemonic::Call)
    });
    check_disabled(&disabled);
    let ([to_library], [_]) = (&enabled[..], &noted[..]) else {
        panic!(
            "{} ways into the library, {} by calls",
            enabled.len(),
            noted.len()
        );
    };
    assert_eq!(
        to_library.iter().find_map(forbidden),
        None,
        "{}",
        show(to_library)
    );
    let record = library.function(|name| name == "usertrace_record_4");
    for path in &library.code().recorded(record) {
        check(path, to_library.len(), MOST_FROM_C);
    }
}
