//! The jobs of each tier, and what it leaves out.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use usertrace_vm::{KernelConfig, cache_dir, repository, target_dir};

use crate::suite::guests::{GuestBatch, GuestTest};
use crate::suite::history::History;
use crate::suite::kind::{CLOCK, TURNS};
use crate::suite::process::{self, SILENCE};
use crate::suite::programs::{self, ListedTest, Program, cargo};
use crate::suite::result::{TestResult, Verdict, full_name};
use crate::suite::schedule::{Job, JobResult, Need, ResultSender, Task};
use crate::suite::tally::Tally;
use crate::suite::tier::{Section, Tier};

/// Programs whose tests share something that takes long to set up: all tests run in one process.
const WHOLE: &[&str] = &[
    MACHINE_CODE,
    "usertrace-c::lttng",
    PACKAGES,
    "usertrace-c::programs",
];
/// Builds the library as a release, and disassembles it.
const MACHINE_CODE: &str = "usertrace-bench::code";
/// Builds everything once more, as a release.
const PACKAGES: &str = "usertrace-c::package";
/// Programs, and modules and tests of programs, that the quick tier leaves out, and what they test:
/// optimised code, real programs, other compilers and tools of others. They take much processor
/// time, and find little in a library that passed its own tests.
pub(crate) const NOT_QUICK: &[(&str, &str)] = &[
    (PACKAGES, "the Debian packages"),
    (MACHINE_CODE, "the machine code of a release build"),
    ("usertrace-cli::tools::report", "reports in a browser"),
    (
        "usertrace-cli::tools::export::perfetto_has_slices_of_threads",
        "exports in Perfetto's own reader",
    ),
    (
        "usertrace-cli::tools::export::perfetto_tells_hosts_apart",
        "exports of several hosts in Perfetto's own reader",
    ),
    (
        "usertrace-cli::tools::export::the_trace_processor_complains",
        "that Perfetto's own reader finds mistakes",
    ),
    (
        "usertrace-cli::tools::stacks::page_shows_call_stacks",
        "call stacks in a browser",
    ),
    (
        "usertrace-cli::tools::stacks::page_says_how_to_record_call_stacks",
        "pages without call stacks in a browser",
    ),
    (
        "usertrace-cli::tools::stacks::names_of_code_never_become_markup",
        "hostile names of code in a browser",
    ),
    (
        "usertrace-cli::tools::stacks::pprof_reads_the_profile",
        "profiles in pprof",
    ),
    (
        "usertrace-cli::tools::stacks::firefox_profiler_reads_the_profile",
        "profiles in Firefox Profiler's own reader",
    ),
    (
        "usertrace-columns::tables",
        "tables in the readers of others",
    ),
    (
        "usertrace-cli::restart",
        "recorders that are killed or have no room at each write",
    ),
    (
        "usertrace::writer::tests::mm_cid::everything_with_rings_of_concurrency_ids",
        "all tests of the writer once more, with rings of concurrency ids",
    ),
    (
        "usertrace::writer::tests::registration::everything_with_an_area_of_our_own",
        "all tests of the writer once more, with an area of their own",
    ),
    (
        "usertrace-relay::relay::connection_that_breaks_at_any_byte_is_an_error_and_leaves_nothing_twice",
        "connections that break at each byte",
    ),
    ("usertrace-c::lttng", "LTTng's own readers and recorders"),
    ("usertrace-c::programs", "programs in C and C++"),
    (
        "usertrace-tests-preload::report",
        "reports of servers and databases",
    ),
    ("usertrace-cli::terminal", "the documents' commands"),
    ("usertrace-cli::fast::relay", "LTTng's relay daemon"),
    (
        "usertrace-cli::fast::relay_send",
        "recordings that are sent to LTTng's relay daemon later",
    ),
    (
        "usertrace-cli::fast::hosts",
        "three hosts, and a network that fails",
    ),
];
/// The tests of the harness, which boot guests.
const HARNESS: &str = "usertrace-vm::harness";
/// Crash tests that stop at each instruction.
const SWEEPS: &str = "_at_each_instruction_";
/// By how much the middle tier divides the large counts of guest tests. On the debug kernel each
/// takes five times as long.
const MIDDLE_SCALE: &str = "40";
const MIDDLE_SCALE_DEBUG: &str = "400";
/// How long the middle tier fuzzes the control file system in a guest.
const MIDDLE_FUZZ_SECONDS: &str = "5";
/// How many guests share a kernel's guest tests.
const GUESTS: usize = 2;
/// The programs that run in guests.
const BOOT_TESTS: &str = "boot-tests";
const GUEST_TESTS: &str = "guest-tests";
/// The program that tests the kernel's packages.
const PACKAGE_TESTS: &str = "package-tests";
/// The kernel's parameters for a trace from boot, which `boot-tests` expects.
const BOOT_TRACE: &str = "ltt.boot=early,flight,subbuf_size=8192,subbuf_count=4 rdinit=/first";
/// The options of guests of the debug kernel with guest tests. The adversary is among them.
const OF_DEBUG_GUESTS: [&str; 4] = ["--append", "page_poison=1", "--silence", ADVERSARY_SILENCE];
/// The full tier's counts: the test, the variable, the count of one run, and the number of runs.
const REPEATS: &[(&str, &str, u32, u32)] = &[
    ("memory_at_any_instant", "USERTRACE_INSTANTS", 50, 4),
    ("panic_at_any_instant", "USERTRACE_PANICS", 20, 10),
    ("reset_at_any_instant", "USERTRACE_RESETS", 50, 4),
];
/// How long the full tier fuzzes each target.
const FUZZ_SECONDS: &str = "180";
/// The full tier's runs of the adversary: the kernel, the processors, and the name. In the middle
/// tier, the adversary is one of the guest tests.
const ADVERSARY: &[(KernelConfig, &str, &str)] = &[
    (
        KernelConfig::Debug,
        "2",
        "adversary, 2 processors, debug kernel",
    ),
    (
        KernelConfig::Debug,
        "8",
        "adversary, 8 processors, debug kernel",
    ),
    (
        KernelConfig::Release,
        "2",
        "adversary, 2 processors, release kernel",
    ),
    (
        KernelConfig::Release,
        "8",
        "adversary, 8 processors, release kernel",
    ),
];
/// How long each of these runs attacks, in seconds.
const ADVERSARY_SECONDS: u64 = 1800;
/// How much longer than the adversary its guest may live: for the boot, the final checks, and the
/// search for leaks.
const ADVERSARY_TIMEOUT: u64 = 2400;
/// How long the adversary's guest may be silent, in seconds: attacks on processors and memory delay
/// the first process, too.
const ADVERSARY_SILENCE: &str = "300";
/// How long a sweep may print nothing.
const SWEEP_SILENCE: Duration = Duration::from_secs(6 * 60 * 60);

/// The context of a plan.
#[derive(Clone)]
pub(crate) struct Context {
    /// The tier.
    pub(crate) tier: Tier,
    /// The sections that run.
    pub(crate) sections: Vec<Section>,
    /// The history of earlier runs.
    pub(crate) history: Arc<Mutex<History>>,
    /// Tests that passed in an earlier run, with the same inputs.
    pub(crate) kept: Arc<Mutex<BTreeMap<Section, u64>>>,
    /// Tests that only the full tier runs.
    pub(crate) long: Arc<Mutex<BTreeMap<Section, u64>>>,
}

impl Context {
    fn has(&self, section: Section) -> bool {
        self.sections.contains(&section)
    }

    fn expected(&self, name: &str) -> Option<Duration> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.expected(name)
    }

    /// How long a test in a guest takes.
    fn guest_cost(&self, test: &GuestTest, config: KernelConfig) -> Duration {
        self.expected(&test.full_name_on(config))
            .unwrap_or(Duration::from_secs(2))
    }

    /// Whether a test need not run: it has passed before. Counts it.
    fn keep(&self, section: Section, name: &str) -> bool {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let has_passed = history.has_passed(section, name);
        if has_passed {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            *kept.entry(section).or_default() += 1;
        }
        has_passed
    }

    /// Leaves out the tests that only the full tier runs, and counts them.
    fn without_long(&self, section: Section, tests: Vec<ListedTest>) -> Vec<ListedTest> {
        if self.tier == Tier::Full {
            return tests;
        }
        let (long, tests): (Vec<_>, Vec<_>) = tests.into_iter().partition(ListedTest::is_long);
        if !long.is_empty() {
            let mut count = self.long.lock().unwrap_or_else(PoisonError::into_inner);
            *count.entry(section).or_default() += long.len() as u64;
        }
        tests
    }

    /// Whether all tests of a kernel run in the guest that is traced from boot.
    fn has_one_guest(&self, config: KernelConfig) -> bool {
        self.tier < Tier::Full && config == KernelConfig::Debug
    }

    /// The guest tests that this tier runs on a kernel, and those for guests of another kind.
    fn of_kernel(
        &self,
        section: Section,
        config: KernelConfig,
        tests: Vec<ListedTest>,
    ) -> (Vec<ListedTest>, Vec<ListedTest>) {
        let (wanted, others) = tests
            .into_iter()
            .partition(|test| test.is_for(self.tier, config));
        (self.without_long(section, wanted), others)
    }

    /// The variables of guest tests on a kernel.
    fn guest_variables(&self, config: KernelConfig) -> Vec<(String, String)> {
        let mut variables = self.variables();
        if self.tier < Tier::Full {
            let scale = match config {
                KernelConfig::Release => MIDDLE_SCALE,
                KernelConfig::Debug => MIDDLE_SCALE_DEBUG,
            };
            variables.push(("USERTRACE_TEST_SCALE".into(), scale.into()));
            variables.push(("USERTRACE_FUZZ_SECONDS".into(), MIDDLE_FUZZ_SECONDS.into()));
        }
        variables
    }

    /// The variables of all tests of this tier.
    fn variables(&self) -> Vec<(String, String)> {
        if self.tier == Tier::Full {
            ["USERTRACE_TEST_COUNTS", "USERTRACE_RANDOM_ADDRESSES"]
                .map(|name| (name.into(), "full".into()))
                .into()
        } else {
            Vec::new()
        }
    }

    fn job(&self, section: Section, name: &str, needs: &[Need], weight: usize, task: Task) -> Job {
        Job {
            section,
            name: name.into(),
            needs: needs.to_vec(),
            weight,
            expected: self.expected(name).unwrap_or(Duration::from_secs(20)),
            is_whole: false,
            task,
        }
    }

    /// A command whose status is its only result: one test.
    fn status(
        &self,
        jobs: &mut Vec<Job>,
        section: Section,
        name: &'static str,
        needs: &[Need],
        command: Command,
    ) {
        if self.keep(section, name) {
            return;
        }
        let work = move |_: &ResultSender| JobResult::from(vec![status(section, name, command)]);
        let task = Task::Test(Box::new(work));
        jobs.push(self.job(section, name, needs, 2, task));
    }
}

/// All jobs of a run, including the builds that they need.
pub(crate) fn plan(context: &Context) -> Vec<Job> {
    let mut jobs = Vec::new();
    for &section in &context.sections {
        match section {
            Section::Host => host(context, &mut jobs),
            Section::Fuzz => fuzz(context, &mut jobs),
            Section::Series => series(context, &mut jobs),
            Section::Guest => guest(context, &mut jobs, section, KernelConfig::Release),
            Section::Debug => guest(context, &mut jobs, section, KernelConfig::Debug),
            Section::Cross => cross(context, &mut jobs),
            Section::Compare => compare(context, &mut jobs),
            Section::Machine => machine(context, &mut jobs),
            // The tests are listed when the programs are built.
            Section::Harness | Section::Crash | Section::Package => {}
        }
    }
    tests_of_programs(context, &mut jobs);
    builds(context, &mut jobs);
    jobs
}

fn host(context: &Context, jobs: &mut Vec<Job>) {
    let section = Section::Host;
    let format = cargo(&["fmt", "--all", "--check"]);
    context.status(jobs, section, "format", &[], format);
    if context.tier > Tier::Quick {
        context.status(jobs, section, "the book", &[], script("book", &[]));
    }
    if context.tier == Tier::Full {
        // Each crate is built from its package, without the rest of the repository.
        let publish = cargo(&[
            "publish",
            "--dry-run",
            "--workspace",
            "--locked",
            "--allow-dirty",
        ]);
        context.status(jobs, section, "packages for crates.io", &[], publish);
    }
    // One job for both: cargo runs one build at a time. It comes after the programs, and beside the
    // tests.
    let mut lints = cargo(&["clippy", "--workspace", "--locked", "--quiet"]);
    if context.tier > Tier::Quick {
        // Tests are more than half of the code that clippy has to look at.
        lints.arg("--all-targets");
    }
    lints.args(["--", "-D", "warnings"]);
    let documentation = cargo(&["test", "--doc", "--workspace", "--locked", "--no-fail-fast"]);
    let names = ["lints", "examples in the documentation"];
    // The quick tier has no examples: they are built once more, and tests of the library do the
    // same.
    let [skips_lints, skips_documentation] = names.map(|name| {
        let is_left_out = context.tier == Tier::Quick && name == names[1];
        is_left_out || context.keep(section, name)
    });
    if skips_lints && skips_documentation {
        return;
    }
    let work = move |early: &ResultSender| {
        if !skips_lints {
            early.send(status(section, names[0], lints));
        }
        if !skips_documentation {
            early.send(counted(section, names[1], documentation));
        }
        JobResult::default()
    };
    let task = Task::Test(Box::new(work));
    let name = names.join(", ");
    jobs.push(context.job(section, &name, &[Need::Programs], 2, task));
}

fn fuzz(context: &Context, jobs: &mut Vec<Job>) {
    for (name, target) in [
        ("fuzzing of dumps", "dump"),
        ("fuzzing of crash directories", "directory"),
        ("fuzzing of filter expressions", "expression"),
        ("fuzzing of a relay's answers", "relay"),
        ("fuzzing of rings", "ring"),
        ("fuzzing of traces", "trace"),
    ] {
        let command = script("fuzz", &[target, "--seconds", FUZZ_SECONDS]);
        context.status(jobs, Section::Fuzz, name, &[], command);
    }
}

fn series(context: &Context, jobs: &mut Vec<Job>) {
    let section = Section::Series;
    if context.tier < Tier::Full {
        let check = script("kernel", &["check", "--no-clippy"]);
        context.status(jobs, section, "the series", &[], check);
        if let Some(job) = jobs.last_mut() {
            // It has nothing to do unless the series has changed. Then it is the longest one on one
            // processor.
            job.expected = job.expected.max(Duration::from_secs(180));
        }
        return;
    }
    let check = script("kernel", &["check"]);
    context.status(jobs, section, "the series", &[], check);
    let each = script("kernel", &["check", "--each"]);
    context.status(jobs, section, "each patch of the series", &[], each);
}

/// Jobs in guests of one kernel, except `guest-tests`.
fn guest(context: &Context, jobs: &mut Vec<Job>, section: Section, config: KernelConfig) {
    let name = format!("trace from boot, and the kernel's own tests, {config} kernel");
    let context_ = context.clone();
    let list = {
        let name = name.clone();
        move |_: &ResultSender| {
            let job = boot_batch(&context_, section, config, name);
            JobResult::found(match job {
                Ok(job) => job.into_iter().collect(),
                Err(why) => vec![failing(&context_, section, BOOT_TESTS, why)],
            })
        }
    };
    let mut job = context.job(
        section,
        &name,
        &[Need::Programs],
        1,
        Task::Test(Box::new(list)),
    );
    // Listing takes no time, and what it finds does.
    job.expected = Duration::MAX;
    jobs.push(job);
    adversary(context, jobs, section, config);
    if config == KernelConfig::Release {
        let mut bench = Command::new(target_dir().join("debug/usertrace-vm"));
        bench
            // Its parts print nothing until they end, and take a minute on a busy machine.
            .args(["guest", "--smp", "1", "--icount", "--silence", "300", "--"])
            .arg(target_dir().join("release/guest-bench"));
        let needs = [kernel_need(config), Need::Init, Need::GuestBench];
        context.status(jobs, section, "guest-bench", &needs, bench);
    }
}

/// The guest that is traced from boot, and in which the kernel's own tests run.
///
/// A debug kernel needs a minute of processor time to boot and to search for leaks. In the middle
/// tier, there is one such guest for all tests.
fn boot_batch(
    context: &Context,
    section: Section,
    config: KernelConfig,
    name: String,
) -> Result<Option<Job>, String> {
    let mut tests = tests_of(BOOT_TESTS, debug_program(BOOT_TESTS).list()?);
    let mut variables = context.variables();
    // At the end, the debug kernel searches for leaks, which takes the longer the more memory there
    // is.
    let memory = if context.has_one_guest(config) {
        "1280M"
    } else {
        "1G"
    };
    let mut options = ["--append", BOOT_TRACE, "--memory", memory]
        .map(str::to_owned)
        .to_vec();
    if context.has_one_guest(config) {
        let guest_tests = debug_program(GUEST_TESTS).list()?;
        let (wanted, _) = context.of_kernel(section, config, guest_tests);
        tests.extend(tests_of(GUEST_TESTS, wanted));
        variables = context.guest_variables(config);
        options.extend(OF_DEBUG_GUESTS.map(str::to_owned));
    }
    let batch = GuestBatch {
        section,
        name,
        config,
        options,
        tests,
        variables,
        kselftest: Some(kselftest_program()?),
    };
    Ok(batch_job(context, batch))
}

/// The random adversary, in guests of one kernel. Freed pages are poisoned, or at least cleared.
fn adversary(context: &Context, jobs: &mut Vec<Job>, section: Section, config: KernelConfig) {
    if context.tier < Tier::Full {
        return;
    }
    for &(kernel, processors, name) in ADVERSARY {
        if kernel != config {
            continue;
        }
        let mut command = Command::new(target_dir().join("debug/usertrace-vm"));
        let timeout = ADVERSARY_SECONDS + ADVERSARY_TIMEOUT;
        command
            .args(["guest", "--config", &config.to_string()])
            .args(["--smp", processors, "--timeout", &timeout.to_string()])
            .args(["--silence", ADVERSARY_SILENCE])
            .args(["--append", "page_poison=1 init_on_free=1", "--"])
            .arg(target_dir().join("debug/adversary"))
            .args(["--seconds", &ADVERSARY_SECONDS.to_string()])
            .envs(context.variables());
        let needs = [kernel_need(config), Need::Init, Need::Programs];
        context.status(jobs, section, name, &needs, command);
    }
}

fn kernel_need(config: KernelConfig) -> Need {
    match config {
        KernelConfig::Release => Need::ReleaseKernel,
        KernelConfig::Debug => Need::DebugKernel,
    }
}

fn cross(context: &Context, jobs: &mut Vec<Job>) {
    let section = Section::Cross;
    let name = "code for aarch64 and riscv64";
    if context.keep(section, name) {
        return;
    }
    let work = move |_: &ResultSender| {
        let possible = process::run(script("cross", &["possible"]), SILENCE);
        if possible.outcome.is_err() {
            let mut result = failed(section, name, String::new());
            result.verdict = Verdict::Skipped(possible.output.trim().replace('\n', "; "));
            return JobResult::from(vec![result]);
        }
        let run = |name, args: &[&str]| status(section, name, script("cross", args));
        let count = |name, args: &[&str]| counted(section, name, script("cross", args));
        JobResult::from(vec![
            run("aarch64 build", &["build"]),
            run("aarch64, machine code", &["code"]),
            count("aarch64, without a kernel", &["user"]),
            count("aarch64, in a guest", &["boot"]),
            run("the kernel on arm64 and riscv64", &["kernel"]),
        ])
    };
    let task = Task::Test(Box::new(work));
    let needs = [Need::CrossKernels];
    jobs.push(context.job(section, name, &needs, 2, task));
}

fn compare(context: &Context, jobs: &mut Vec<Job>) {
    let section = Section::Compare;
    let needs = [Need::CompareKernels, Need::ReleaseKernel, Need::Init];
    let images = script("compare", &["images"]);
    context.status(jobs, section, "images without the tracer", &needs, images);
    let selftests = script("compare", &["selftests"]);
    context.status(
        jobs,
        section,
        "the kernel's own selftests",
        &needs,
        selftests,
    );
}

/// Tests of a whole machine. Each boots its own; the first one that runs builds the image.
fn machine(context: &Context, jobs: &mut Vec<Job>) {
    for (name, test) in [
        ("services, an upgrade, a panic, a purge", "story"),
        ("services, a reset, reserved memory", "reset"),
        ("services of Debian in their sandboxes", "services"),
        ("settings of sandboxes", "sandbox"),
    ] {
        let command = script("machine", &["test", test]);
        context.status(jobs, Section::Machine, name, &[], command);
    }
}

/// The tests that are listed once the programs are built.
fn tests_of_programs(context: &Context, jobs: &mut Vec<Job>) {
    let wanted = [
        Section::Host,
        Section::Harness,
        Section::Guest,
        Section::Crash,
        Section::Debug,
        Section::Package,
    ];
    if !wanted.iter().any(|section| context.has(*section)) {
        return;
    }
    let found: Arc<Mutex<Vec<Program>>> = Arc::default();
    let programs = Arc::clone(&found);
    let build = move || {
        *programs.lock().unwrap_or_else(PoisonError::into_inner) = programs::build()?;
        Ok(())
    };
    let task = Task::Build(Need::Programs, Box::new(build));
    let mut job = context.job(Section::Host, "programs", &[], 4, task);
    job.expected = Duration::MAX;
    jobs.push(job);
    let context_ = context.clone();
    let list = move |_: &ResultSender| {
        let programs = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        JobResult::found(list_all(&context_, programs))
    };
    let task = Task::Test(Box::new(list));
    let mut job = context.job(Section::Host, "list of tests", &[Need::Programs], 1, task);
    job.expected = Duration::MAX;
    jobs.push(job);
}

/// Jobs for the tests of all programs.
fn list_all(context: &Context, programs: Vec<Program>) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for program in programs {
        let section = if program.name == HARNESS {
            Section::Harness
        } else {
            Section::Host
        };
        known.push(program.name.clone());
        if !context.has(section) || (context.tier == Tier::Quick && !is_quick(&program.name)) {
            continue;
        }
        let tests = program.list().map(|mut tests| {
            let name = |test: &ListedTest| full_name(&program.name, &test.name);
            known.extend(tests.iter().map(name));
            if context.tier == Tier::Quick {
                tests.retain(|test| is_quick(&name(test)));
            }
            context.without_long(section, tests)
        });
        match tests {
            Ok(tests) if WHOLE.contains(&&*program.name) => {
                jobs.extend(whole_job(context, section, &program, tests));
            }
            Ok(tests) => {
                let jobs_ = tests.iter().filter_map(|test| {
                    test_job(context, section, &program, test, &context.variables())
                });
                jobs.extend(jobs_);
            }
            Err(why) => jobs.push(failing(context, section, &program.name, why)),
        }
    }
    if context.has(Section::Host) {
        // A renamed test would come back into the quick tier, and nobody would notice.
        let stale = NOT_QUICK
            .iter()
            .filter(|(part, _)| !known.iter().any(|name| is_part(part, name)));
        jobs.extend(stale.map(|(part, _)| {
            let why = format!("the quick tier leaves out {part}, and there is no such test");
            failing(context, Section::Host, "list of tests", why)
        }));
    }
    if context.has(Section::Crash) {
        jobs.extend(crash_jobs(context));
    }
    if context.has(Section::Package) {
        jobs.extend(package_jobs(context));
    }
    let guests = [
        (Section::Guest, KernelConfig::Release),
        (Section::Debug, KernelConfig::Debug),
    ];
    for (section, config) in guests {
        if context.has(section) && !context.has_one_guest(config) {
            match debug_program(GUEST_TESTS).list() {
                Ok(tests) => jobs.extend(guest_jobs(context, section, config, tests)),
                Err(why) => jobs.push(failing(context, section, GUEST_TESTS, why)),
            }
        }
    }
    jobs
}

/// Whether the quick tier has a program or a test, by its full name.
fn is_quick(name: &str) -> bool {
    !NOT_QUICK.iter().any(|(part, _)| is_part(part, name))
}

/// Whether a full name is that of a program, module or test, or of something in it.
fn is_part(part: &str, name: &str) -> bool {
    let rest = name.strip_prefix(part);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn whole_job(
    context: &Context,
    section: Section,
    program: &Program,
    mut tests: Vec<ListedTest>,
) -> Option<Job> {
    let all = tests.len();
    tests.retain(|test| !context.keep(section, &full_name(&program.name, &test.name)));
    if tests.is_empty() && all > 0 {
        return None;
    }
    let (variables, owned) = (context.variables(), program.clone());
    let work =
        move |_: &ResultSender| JobResult::from(owned.run_whole(section, &tests, &variables));
    let mut job = context.job(section, &program.name, &[], 2, Task::Test(Box::new(work)));
    job.is_whole = true;
    Some(job)
}

fn test_job(
    context: &Context,
    section: Section,
    program: &Program,
    test: &ListedTest,
    variables: &[(String, String)],
) -> Option<Job> {
    let name = full_name(&program.name, &test.name);
    if context.keep(section, &name) {
        return None;
    }
    let needs: &[Need] = match section {
        Section::Host => &[],
        Section::Package => &[Need::KernelPackage, Need::Init, Need::Kselftest],
        _ => &[Need::ReleaseKernel, Need::Init],
    };
    let weight = if section == Section::Host { 1 } else { 2 };
    let (program, test, variables) = (program.clone(), test.clone(), variables.to_vec());
    let silence = if test.name.contains(SWEEPS) {
        SWEEP_SILENCE
    } else {
        process::TEST_SILENCE
    };
    let work = move |_: &ResultSender| {
        JobResult::from(vec![
            program.run_one(section, &test.name, &variables, silence),
        ])
    };
    let mut job = context.job(section, &name, needs, weight, Task::Test(Box::new(work)));
    let usual = Duration::from_secs(if section == Section::Host { 1 } else { 10 });
    job.expected = context.expected(&name).unwrap_or(usual);
    Some(job)
}

fn crash_jobs(context: &Context) -> Vec<Job> {
    let section = Section::Crash;
    let program = debug_program("crash-tests");
    let tests = match program.list() {
        Ok(tests) => context.without_long(section, tests),
        Err(why) => return vec![failing(context, section, "crash-tests", why)],
    };
    let mut jobs = Vec::new();
    for test in &tests {
        let mut variables = context.variables();
        if context.tier < Tier::Full {
            jobs.extend(test_job(context, section, &program, test, &variables));
            continue;
        }
        let repeat = REPEATS.iter().find(|(name, ..)| *name == test.name);
        let Some(&(_, variable, count, runs)) = repeat else {
            variables.push(("USERTRACE_SWEEP".into(), "1".into()));
            jobs.extend(test_job(context, section, &program, test, &variables));
            continue;
        };
        variables.push((variable.into(), count.to_string()));
        for run in 1..=runs {
            // Each run has its own name, so a stopped run continues after the
            // last.
            let numbered = Program {
                name: format!("crash-tests ({run} of {runs})"),
                ..program.clone()
            };
            jobs.extend(test_job(context, section, &numbered, test, &variables));
        }
    }
    jobs
}

/// The tests of the kernel's packages.
fn package_jobs(context: &Context) -> Vec<Job> {
    let section = Section::Package;
    let program = debug_program(PACKAGE_TESTS);
    match program.list() {
        Ok(tests) => tests
            .iter()
            .filter_map(|test| test_job(context, section, &program, test, &context.variables()))
            .collect(),
        Err(why) => vec![failing(context, section, PACKAGE_TESTS, why)],
    }
}

/// Distributes the guest tests of a kernel over guests.
fn guest_jobs(
    context: &Context,
    section: Section,
    config: KernelConfig,
    tests: Vec<ListedTest>,
) -> Vec<Job> {
    let batch = |name: String, options: Vec<String>, tests: Vec<GuestTest>| GuestBatch {
        section,
        name,
        config,
        options,
        tests,
        variables: context.guest_variables(config),
        kselftest: None,
    };
    let (wanted, others) = context.of_kernel(section, config, tests);
    let wanted = tests_of(GUEST_TESTS, wanted);
    let cost = |test: &GuestTest| context.guest_cost(test, config);
    let mut jobs = Vec::new();
    for (at, share) in share(&wanted, GUESTS, cost).into_iter().enumerate() {
        let name = format!("guest tests {} of {GUESTS}, {config} kernel", at + 1);
        let options = match config {
            KernelConfig::Release => Vec::new(),
            KernelConfig::Debug => OF_DEBUG_GUESTS.map(str::to_owned).into(),
        };
        jobs.extend(batch_job(context, batch(name, options, share)));
    }
    if config == KernelConfig::Release {
        let own = [
            (
                TURNS,
                "guest tests, processors take turns",
                vec!["--turns".into()],
            ),
            (
                CLOCK,
                "guest tests, unstable clock",
                vec!["--append".into(), "tsc=unstable".into()],
            ),
        ];
        for (kind, name, options) in own {
            let of_kind = others.iter().filter(|test| test.is_of(kind));
            let tests = context.without_long(section, of_kind.cloned().collect());
            let tests = tests_of(GUEST_TESTS, tests);
            jobs.extend(batch_job(context, batch(name.to_owned(), options, tests)));
        }
    }
    jobs
}

/// The tests of a program, to run in a guest.
fn tests_of(program: &'static str, tests: Vec<ListedTest>) -> Vec<GuestTest> {
    let test = |ListedTest { name, .. }| GuestTest { program, name };
    tests.into_iter().map(test).collect()
}

/// Distributes tests over so many guests, by how long they take. Each keeps their order.
fn share(
    tests: &[GuestTest],
    guests: usize,
    cost: impl Fn(&GuestTest) -> Duration,
) -> Vec<Vec<GuestTest>> {
    let mut order: Vec<usize> = (0..tests.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(cost(&tests[at])));
    let mut loads = vec![Duration::ZERO; guests];
    let mut places = vec![0; tests.len()];
    // The first test needs a kernel that never had a trace. It stays first, as each guest keeps the
    // order.
    for at in order {
        let least = (0..guests).min_by_key(|&guest| loads[guest]).unwrap_or(0);
        loads[least] += cost(&tests[at]);
        places[at] = least;
    }
    let of = |guest| {
        let tests = tests.iter().zip(&places);
        let here = tests.filter(|(_, place)| **place == guest);
        here.map(|(test, _)| test.clone()).collect()
    };
    (0..guests).map(of).collect()
}

/// A job for a guest, if any of its tests has to run.
fn batch_job(context: &Context, mut batch: GuestBatch) -> Option<Job> {
    // The kernel's own tests have no names before they run, so their guest runs as a whole.
    if batch.kselftest.is_none() {
        let has_to_run =
            |test: &GuestTest| !context.keep(batch.section, &test.full_name_on(batch.config));
        batch.tests = batch
            .tests
            .iter()
            .filter(|test| has_to_run(test))
            .cloned()
            .collect();
    }
    if batch.tests.is_empty() {
        return None;
    }
    let cost = |test| context.guest_cost(test, batch.config);
    let expected = batch.tests.iter().map(cost).sum();
    let (section, name) = (batch.section, batch.name.clone());
    let mut needs = vec![kernel_need(batch.config), Need::Init, Need::Programs];
    if batch.kselftest.is_some() {
        needs.push(Need::Kselftest);
    }
    let work = move |early: &ResultSender| JobResult::from(batch.run(early));
    let mut job = context.job(section, &name, &needs, 2, Task::Test(Box::new(work)));
    // The kernel's own tests are not among those that have a name here.
    job.expected = job.expected.max(expected);
    Some(job)
}

/// Adds the builds that the jobs need.
fn builds(context: &Context, jobs: &mut Vec<Job>) {
    let mut needs: HashSet<Need> = jobs
        .iter()
        .flat_map(|job| job.needs.iter().copied())
        .collect();
    // The tests that are found later need these.
    let boots = [
        Section::Harness,
        Section::Guest,
        Section::Crash,
        Section::Compare,
    ];
    if boots.iter().any(|section| context.has(*section)) {
        needs.extend([Need::ReleaseKernel, Need::Init]);
    }
    if context.has(Section::Debug) {
        needs.extend([Need::DebugKernel, Need::Init]);
    }
    if context.has(Section::Package) {
        needs.extend([
            Need::KernelPackage,
            Need::Init,
            Need::Kselftest,
            Need::ReleaseKernel,
        ]);
    }
    if context.has(Section::Guest) || context.has(Section::Debug) {
        needs.extend([Need::Kselftest, Need::ReleaseKernel]);
    }
    // It is compiled in the tree that a kernel's build makes: the first one that is built.
    let kernel_of_kselftest = if needs.contains(&Need::DebugKernel) {
        Need::DebugKernel
    } else {
        Need::ReleaseKernel
    };
    let mut add = |name: &str, need, needs: &[Need], weight, build: BuildFn| {
        let task = Task::Build(need, build);
        let mut job = context.job(Section::Host, name, needs, weight, task);
        job.expected = Duration::from_secs(3600);
        jobs.push(job);
    };
    for need in needs {
        match need {
            // The list of tests comes with it.
            Need::Programs => {}
            Need::Init => {
                let build = || usertrace_vm::build_first_process().map_err(|e| format!("{e:#}"));
                add("guest's first process", need, &[], 1, Box::new(build));
            }
            Need::ReleaseKernel => kernel("release kernel", need, &["release"], &mut add),
            Need::DebugKernel => kernel("debug kernel", need, &["debug"], &mut add),
            Need::CrossKernels => {
                kernel(
                    "kernels for arm64 and riscv64",
                    need,
                    &["arm64", "riscv"],
                    &mut add,
                );
            }
            Need::CompareKernels => {
                kernel("kernels to compare", need, &["unpatched", "off"], &mut add);
            }
            Need::KernelPackage => {
                let build = || kernel_script(&["package", "--local"], KERNEL_NICE);
                add("the kernel's packages", need, &[], 2, Box::new(build));
            }
            Need::Kselftest => {
                let build = || succeed(kselftest_build()?);
                add(
                    "kselftest",
                    need,
                    &[kernel_of_kselftest],
                    1,
                    Box::new(build),
                );
            }
            Need::GuestBench => {
                let mut command = cargo(&["build", "--locked", "--quiet", "--release"]);
                command.args(["--package", "usertrace-bench", "--bin", "guest-bench"]);
                if context.tier < Tier::Full {
                    // Without the recorder, which is most of the build.
                    command.arg("--no-default-features");
                }
                add(
                    "guest-bench",
                    need,
                    &[],
                    2,
                    Box::new(move || succeed(command)),
                );
            }
        }
    }
}

type BuildFn = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// The priority of kernels' builds: tests run beside them.
const KERNEL_NICE: i32 = 10;
/// The priority of the debug kernel's build. It comes first: all tests of that kernel run in one
/// guest, which leaves a processor idle if nothing else is left to do. Those of the release kernel
/// run in several guests.
const DEBUG_KERNEL_NICE: i32 = 5;

/// Builds kernels, one after the other, at a low priority.
fn kernel(
    name: &str,
    need: Need,
    configs: &'static [&'static str],
    add: &mut impl FnMut(&str, Need, &[Need], usize, BuildFn),
) {
    let build = move || {
        if has_own_kernel() {
            return Ok(());
        }
        let nice = match need {
            Need::DebugKernel => DEBUG_KERNEL_NICE,
            _ => KERNEL_NICE,
        };
        configs
            .iter()
            .try_for_each(|config| kernel_script(&["build", "--config", config], nice))
    };
    add(name, need, &[], 2, Box::new(build));
}

/// Runs `scripts/kernel` at a priority.
fn kernel_script(arguments: &[&str], nice: i32) -> Result<(), String> {
    let mut command = script("kernel", arguments);
    // SAFETY: one system call, which is what may happen between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            Ok(())
        });
    }
    succeed(command)
}

/// Whether the user names a kernel to boot, so that none is built.
fn has_own_kernel() -> bool {
    std::env::var_os("USERTRACE_KERNEL").is_some_and(|path| !path.is_empty())
}

fn kselftest_directory() -> Result<PathBuf, String> {
    let cache = cache_dir().map_err(|e| format!("{e:#}"))?;
    Ok(cache.join("kernel/selftest"))
}

fn kselftest_program() -> Result<PathBuf, String> {
    Ok(kselftest_directory()?.join("ltt_test"))
}

/// Builds the series' own test program in C, from the patched tree.
fn kselftest_build() -> Result<Command, String> {
    let built = kselftest_directory()?;
    fs::create_dir_all(&built).map_err(|e| format!("making {}: {e}", built.display()))?;
    let tree = built.with_file_name("linux");
    let mut output = OsString::from("OUTPUT=");
    output.push(&built);
    let mut make = Command::new("make");
    make.args(["--silent", "-C"])
        .arg(tree.join("tools/testing/selftests/ltt"))
        .arg(output)
        .arg("LDFLAGS=-static");
    Ok(make)
}

/// A program of `tests/` that is not a test target.
fn debug_program(name: &str) -> Program {
    Program {
        name: name.into(),
        path: target_dir().join("debug").join(name),
        directory: repository().join("tests"),
    }
}

/// A program in `scripts/`.
pub(crate) fn script(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("scripts").join(name));
    command.args(args);
    command
}

/// Runs a build.
fn succeed(command: Command) -> Result<(), String> {
    let finished = process::run(command, SILENCE);
    finished
        .outcome
        .map_err(|why| format!("{why}\n{}", finished.output))
}

/// Runs a command whose status is its only result.
fn status(section: Section, name: &str, command: Command) -> TestResult {
    one_test(section, name, command, |_| None)
}

/// Runs a command that prints summaries as libtest does; it is one test here.
fn counted(section: Section, name: &str, command: Command) -> TestResult {
    one_test(section, name, command, |stdout| {
        let tally = Tally::of_libtest(stdout);
        match (tally.passed, tally.failed) {
            (0, 0) => Some("there was no test".into()),
            (_, 0) => None,
            _ => Some(tally.to_string()),
        }
    })
}

/// Runs a command as one test. `wrong` returns what is wrong with its output despite a status of 0.
fn one_test(
    section: Section,
    name: &str,
    command: Command,
    wrong: impl Fn(&str) -> Option<String>,
) -> TestResult {
    let finished = process::run(command, SWEEP_SILENCE);
    let why = finished.outcome.err().or_else(|| wrong(&finished.stdout));
    let mut result = failed(section, name, finished.output);
    result.time = finished.time;
    result.verdict = why.map_or(Verdict::Passed, Verdict::Failed);
    result
}

fn failed(section: Section, name: &str, output: String) -> TestResult {
    TestResult {
        section,
        program: name.into(),
        name: String::new(),
        verdict: Verdict::Failed("failed".into()),
        time: Duration::ZERO,
        output,
    }
}

/// A job that reports why the tests of a program could not be listed.
fn failing(context: &Context, section: Section, name: &str, why: String) -> Job {
    let mut result = failed(section, name, why);
    result.verdict = Verdict::Failed("cannot list its tests".into());
    let task = Task::Test(Box::new(|_: &ResultSender| JobResult::from(vec![result])));
    context.job(section, name, &[], 1, task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str) -> GuestTest {
        GuestTest {
            program: GUEST_TESTS,
            name: name.into(),
        }
    }

    #[test]
    fn quick_tier_has_no_part_of_what_it_leaves_out() {
        assert!(!is_quick("usertrace-c::lttng"));
        assert!(!is_quick("usertrace-cli::tools::report::pages_open"));
        assert!(is_quick("usertrace-cli::tools::reports"));
        assert!(is_quick("usertrace-cli"));
    }

    #[test]
    fn guests_share_tests_by_time_and_keep_their_order() {
        let tests: Vec<_> = ["a", "b", "c", "d"].map(test).into();
        let cost = |test: &GuestTest| Duration::from_secs(if test.name == "c" { 9 } else { 3 });
        let shares = share(&tests, 2, cost);
        let names: Vec<Vec<_>> = shares
            .iter()
            .map(|tests| tests.iter().map(|test| &*test.name).collect())
            .collect();
        assert_eq!(names, [vec!["c"], vec!["a", "b", "d"]]);
    }
}
