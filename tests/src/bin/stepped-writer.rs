//! Writes events of several kinds in one function, through which a crash test steps instruction by
//! instruction. A page of memory has the program's progress. It begins when the file `go` is in its
//! directory, and ends when `stop` is.

use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Parser;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use usertrace::{Outcome, tracepoint};
use usertrace_consumer::{CONTROL_FS, consumer_files};
use usertrace_testing::wait;
use usertrace_tests::consumer::Consumer;
use usertrace_tests::event;
use usertrace_tests::instants::{Kind, SUBBUF_COUNT, SUBBUF_SIZE, TAG, writers as words};
use usertrace_tests::shared::Shared;

tracepoint! {
    /// An event so long that its record is reserved, filled and then committed.
    mod long {
        provider: "test",
        name: "long",
        loglevel: Info,
        fields: { thread: u32, number: u64, data: bytes },
    }
}

/// The payload of a long event: too much for one store on the stack.
static DATA: [u8; 600] = [0x5a; 600];

#[derive(Debug, Parser)]
struct Args {
    /// Where the file `ready` is made, and `go` and `stop` are looked for
    directory: PathBuf,
    /// How often a signal is to come in the middle of an ordinary event, and of one that begins a
    /// sub-buffer
    #[arg(long, num_args = 2, default_values_t = [0, 0])]
    signals: Vec<u32>,
    /// Whose rings, and what becomes of events that find them full: SCOPE:MODE
    plans: Vec<String>,
}

/// The page with the progress, once it is mapped.
static PAGE: OnceLock<&[AtomicU64]> = OnceLock::new();

fn word(index: usize) -> &'static AtomicU64 {
    &PAGE.get().expect("it is set")[index]
}

/// Writes an event. The test steps through this function.
#[inline(never)]
fn stepped_function(is_long: bool, number: u64) -> Outcome {
    if is_long {
        usertrace::event!(long, 0, number, &DATA)
    } else {
        event::write(0, number)
    }
}

/// Counts an event by its outcome.
fn count(recorded: &AtomicU64, outcome: Outcome) {
    let counter = match outcome {
        Outcome::Recorded => recorded,
        Outcome::Lost => word(words::LOST),
        Outcome::Off => panic!("no trace wants it"),
    };
    // Release: a memory image that has the count has the event, too.
    counter.fetch_add(1, Ordering::Release);
}

/// Handles the trap after one instruction, for which the test set the trap flag. Writes an event,
/// too.
extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    /// The flag with which the processor traps after each instruction.
    const TRAP_FLAG: i64 = 1 << 8;
    let handled = word(words::HANDLED);
    count(handled, event::write(1, handled.load(Ordering::Relaxed)));
    // SAFETY: the kernel passes a valid context to a handler with SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
}

/// A trace, and the state of this process's ring in it.
struct Plan {
    trace: PathBuf,
    mode: String,
    consumer: Arc<Consumer>,
    /// The length of an ordinary record.
    record_len: u64,
    /// The number of the first event in each sub-buffer.
    begun: Vec<u64>,
}

impl Plan {
    fn begin(plan: &str) -> Self {
        let (scope, mode) = plan.split_once(':').expect("SCOPE:MODE");
        let trace = Path::new(CONTROL_FS).join("written");
        let tell = |file: &str, text: &str| fs::write(trace.join(file), text).expect("it is told");
        fs::create_dir(&trace).expect("a trace is made");
        tell("main/scope", scope);
        match mode {
            "flight" => tell("main/flight", "1"),
            mode => tell("main/mode", mode),
        }
        tell("main/subbuf_size", &SUBBUF_SIZE.to_string());
        tell("main/subbuf_count", &SUBBUF_COUNT.to_string());
        for index in [words::RECORDED, words::LOST, words::HANDLED, words::OLDEST] {
            word(index).store(0, Ordering::Relaxed);
        }
        tell("start", "1");
        let channel = trace.join("main");
        let file = wait::until_some("its files are there", || {
            consumer_files(&channel).expect("files").pop()
        });
        Self {
            consumer: Arc::new(Consumer::open(&channel.join(file))),
            mode: mode.to_owned(),
            trace,
            record_len: 0,
            begun: Vec::new(),
        }
    }

    fn end(self) {
        drop(self.consumer);
        fs::write(self.trace.join("start"), "0").expect("it is stopped");
        fs::remove_dir(&self.trace).expect("a trace is removed");
    }

    /// The head of the ring that this thread writes to.
    fn head(&self) -> u64 {
        let positions = self.consumer.positions();
        positions.iter().map(|ring| ring.head).max().unwrap_or(0)
    }

    /// Whether the next event begins a sub-buffer.
    fn is_at_end(&self) -> bool {
        let offset = self.head() % SUBBUF_SIZE;
        offset == 0 || offset + self.record_len > SUBBUF_SIZE
    }

    /// Notes the sub-buffers that an event has begun.
    fn note(&mut self, number: u64) {
        while (self.begun.len() as u64) < self.head().div_ceil(SUBBUF_SIZE) {
            self.begun.push(number);
        }
        // The sub-buffers that the next one to begin does not overwrite.
        let kept = self.begun.len().saturating_sub(SUBBUF_COUNT as usize - 1);
        let is_kept = self.mode == "discard";
        let oldest = if is_kept { 0 } else { self.begun[kept] };
        word(words::OLDEST).store(oldest, Ordering::Relaxed);
    }

    /// Writes an event that the test steps through.
    fn step(&mut self, kind: Kind) {
        let number = word(words::RECORDED).load(Ordering::Relaxed);
        word(words::KIND).store(kind as u64, Ordering::Relaxed);
        let is_long = matches!(kind, Kind::Long | Kind::LongAtEnd);
        let begun = self.begun.len();
        let outcome = stepped_function(is_long, number);
        count(word(words::RECORDED), outcome);
        self.note(number);
        if matches!(kind, Kind::First | Kind::AtEnd | Kind::LongAtEnd) {
            assert_eq!(
                self.begun.len(),
                begun + 1,
                "{kind:?}: it begins a sub-buffer"
            );
        }
    }

    /// Writes an event that the test does not step through.
    fn write(&mut self) {
        let number = word(words::RECORDED).load(Ordering::Relaxed);
        count(word(words::RECORDED), event::write(0, number));
        self.note(number);
    }

    /// Fills the sub-buffer.
    fn fill(&mut self) {
        while !self.is_at_end() {
            self.write();
        }
    }

    fn run(&mut self, signals: [u32; 2]) {
        self.step(Kind::First);
        if self.mode == "block" {
            // In mode `block`, writers wait for a reader only if there was one.
            self.consumer.consume_all();
        }
        let before = self.head();
        self.step(Kind::Ordinary);
        self.record_len = self.head() - before;
        self.step(Kind::Long);
        self.fill();
        self.step(Kind::AtEnd);
        self.fill();
        self.step(Kind::LongAtEnd);
        while self.begun.len() < SUBBUF_COUNT as usize {
            self.write();
        }
        self.fill();
        let reader = (self.mode == "block").then(|| self.read());
        self.step(Kind::Full);
        self.step(Kind::AfterFull);
        for _ in 0..signals[0] {
            if self.is_at_end() {
                self.write();
            }
            self.step(Kind::Interrupted);
        }
        for _ in 0..signals[1] {
            self.fill();
            self.step(Kind::InterruptedAtEnd);
        }
        if let Some((is_over, reader)) = reader {
            is_over.store(true, Ordering::Relaxed);
            reader.join().expect("it reads");
        }
    }

    /// Starts a thread that consumes again and again.
    fn read(&self) -> (Arc<AtomicBool>, JoinHandle<()>) {
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, consumer) = (is_over.clone(), self.consumer.clone());
        let reader = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                consumer.consume_all();
            }
        });
        (is_over, reader)
    }
}

fn main() {
    let args = Args::parse();
    event::attach();
    let page = Box::leak(Box::new(Shared::new())).words();
    PAGE.set(page).expect("it is set once");
    let address = |function: *const ()| function.addr() as u64;
    page[words::STEPPED_FUNCTION].store(address(stepped_function as *const ()), Ordering::Relaxed);
    page[words::ON_TRAP].store(address(on_trap as *const ()), Ordering::Relaxed);
    page[1].store(!TAG, Ordering::Relaxed);
    // Release: a reader that finds the tag finds the rest, too.
    page[0].store(TAG, Ordering::Release);
    let action = SigAction::new(
        SigHandler::SigAction(on_trap),
        SaFlags::SA_SIGINFO,
        SigSet::empty(),
    );
    // SAFETY: the handler writes an event, which handlers may, and uses atomics.
    unsafe { sigaction(Signal::SIGTRAP, &action) }.expect("a handler");
    fs::write(args.directory.join("ready"), "").expect("a file");
    wait::until("it may go", || args.directory.join("go").exists());
    for (number, plan) in (0..).zip(&args.plans) {
        word(words::PLAN).store(number, Ordering::Relaxed);
        let signals = [args.signals[0], args.signals[1]];
        let mut plan = Plan::begin(plan);
        plan.run(signals);
        plan.end();
    }
    // No trace wants it.
    word(words::KIND).store(0, Ordering::Relaxed);
    stepped_function(false, 0);
    wait::until("it may end", || args.directory.join("stop").exists());
}
