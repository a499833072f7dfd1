//! `scripts/test`: every test there is, and one sum over all.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use nix::sys::signal::Signal;
use usertrace_vm::tally::Tally;
use usertrace_vm::{Guest, KernelConfig, Outcome, Streams, cache_dir, repository, target_dir};

use crate::lane::{self, Lane, SILENCE};

/// A part of the tests that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Formatting, lints, and the tests that need no guest
    Host,
    /// The kernel series: it applies, is formatted, and passes its linters
    Series,
    /// The harness itself, on real guests
    Harness,
    /// Tests in a guest of the release kernel
    Guest,
    /// Tests that panic guests and read their dumps
    Crash,
    /// Tests in a guest of the debug kernel: KASAN, lockdep, kmemleak
    Debug,
    /// Tests of what is linked into programs, on emulated aarch64 processors
    Cross,
    /// The kernel without the series, and with it: images without the tracer, and the kernel's own selftests
    Compare,
}

/// What a step's output has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// Its status is all: the step counts as one test.
    Nothing,
    /// Summaries like libtest's.
    Libtest,
    /// Results like the kernel's.
    Ktap,
}

/// How a step went, for the table at the end.
#[derive(Debug)]
struct Done {
    name: String,
    tally: Tally,
    time: Duration,
    note: Option<String>,
}

/// Runs the sections, and prints the sum last. The result says whether all is well.
pub(crate) fn run(sections: &[Section]) -> Result<bool> {
    // Emulated aarch64 processors take long, and an emulator that crashes leaves a test that waits; two more kernels to
    // compare with take longer: by name only.
    let usual: Vec<_> = Section::value_variants()
        .iter()
        .copied()
        .filter(|section| !matches!(section, Section::Cross | Section::Compare))
        .collect();
    let sections = if sections.is_empty() {
        &usual
    } else {
        sections
    };
    let of = |steps: &[Section]| -> Vec<_> {
        let wanted = |step: &&Section| sections.contains(step);
        steps.iter().filter(wanted).copied().collect()
    };
    let guests = of(&[Section::Guest, Section::Crash]);
    let debug = of(&[Section::Debug]);
    let mut kernels = Vec::new();
    if !guests.is_empty() || sections.contains(&Section::Harness) {
        kernels.push(KernelConfig::Release);
    }
    if !debug.is_empty() {
        kernels.push(KernelConfig::Debug);
    }
    if !has_own_kernel() {
        build_meanwhile(kernels);
    }
    let lane = Lane::shown();
    let mut suite = Suite::new(&lane);
    suite.sections(&of(&[Section::Host, Section::Series, Section::Harness]));
    if guests.is_empty() || debug.is_empty() {
        suite.sections(&guests);
        suite.sections(&debug);
    } else {
        suite.beside(&guests, &debug);
    }
    suite.sections(&of(&[Section::Cross, Section::Compare]));
    let sum = suite.sum();
    println!("\nsections left out: {}", left_out(sections));
    suite.table();
    println!("{sum}");
    Ok(sum.failed == 0)
}

fn left_out(sections: &[Section]) -> String {
    let left: Vec<_> = Section::value_variants()
        .iter()
        .filter(|section| !sections.contains(section))
        .filter_map(|section| section.to_possible_value())
        .map(|value| value.get_name().to_string())
        .collect();
    if left.is_empty() {
        "none".into()
    } else {
        left.join(", ")
    }
}

#[derive(Debug)]
struct Suite<'a> {
    lane: &'a Lane,
    done: Vec<Done>,
}

impl<'a> Suite<'a> {
    fn new(lane: &'a Lane) -> Self {
        Self {
            lane,
            done: Vec::new(),
        }
    }

    fn sections(&mut self, sections: &[Section]) {
        for section in sections {
            match section {
                Section::Host => self.host(),
                Section::Series => self.series(),
                Section::Harness => self.harness(),
                Section::Guest => self.guest(KernelConfig::Release),
                Section::Crash => self.crash(),
                Section::Debug => self.guest(KernelConfig::Debug),
                Section::Cross => self.cross(),
                Section::Compare => self.compare(),
            }
        }
    }

    /// Some sections, and others beside them: a guest leaves a processor half idle.
    fn beside(&mut self, here: &[Section], there: &[Section]) {
        // What both use must not change under either: it is built before.
        if !self.kernel(KernelConfig::Release)
            || !self.programs()
            || self.build_kselftest().is_none()
        {
            return;
        }
        let lane = Lane::held();
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut other = Suite::new(&lane);
                other.sections(there);
                other.done
            });
            self.sections(here);
            lane.show();
            other.join()
        });
        match other {
            Ok(done) => self.done.extend(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn host(&mut self) {
        self.step("format", cargo(["fmt", "--all", "--check"]), Says::Nothing);
        let clippy = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ];
        self.step("lints", cargo(clippy), Says::Nothing);
        let tests = [
            "test",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--exclude",
            "usertrace-vm",
        ];
        self.step("host tests", cargo(tests), Says::Libtest);
        let units = [
            "test",
            "--package",
            "usertrace-vm",
            "--locked",
            "--lib",
            "--bins",
        ];
        self.step("the harness's unit tests", cargo(units), Says::Libtest);
        self.step("fuzzing", script("fuzz", &[]), Says::Nothing);
    }

    fn series(&mut self) {
        self.step("the series", script("kernel", &["check"]), Says::Nothing);
    }

    fn harness(&mut self) {
        if !self.kernel(KernelConfig::Release) {
            return;
        }
        // Guests wait more than they work: two at a time.
        let tests = [
            "test",
            "--package",
            "usertrace-vm",
            "--locked",
            "--test",
            "harness",
            "--",
            "--test-threads=2",
        ];
        self.step("harness tests", cargo(tests), Says::Libtest);
    }

    fn guest(&mut self, config: KernelConfig) {
        if !self.kernel(config) || !self.programs() {
            return;
        }
        self.kunit(config);
        self.kselftest(config);
        self.step(
            &format!("guest tests, {config} kernel"),
            in_guest(config, &[], &program("guest-tests")),
            Says::Libtest,
        );
        self.boot_trace(config);
        // Events of the kernel ask nothing of the series, and the debug kernel's checkers take most of its instructions.
        if config == KernelConfig::Release {
            self.kernel_events();
            self.instructions();
        }
    }

    /// A trace that the kernel starts before the first process, which is traced.
    fn boot_trace(&mut self, config: KernelConfig) {
        let boot = "ltt.boot=early,flight,subbuf_size=8192,subbuf_count=4 rdinit=/first";
        let command = in_guest(config, &["--append", boot], &program("boot-tests"));
        let name = format!("trace from boot, {config} kernel");
        self.step(&name, command, Says::Libtest);
    }

    /// Recordings of the kernel's own events, whose tracepoints are changes of its code.
    fn kernel_events(&mut self) {
        let mut command = in_guest(KernelConfig::Release, &["--turns"], &program("guest-tests"));
        command.arg("f9_");
        self.step("guest tests, events of the kernel", command, Says::Libtest);
    }

    /// That an event takes as few instructions as it must, beside the kernel's other ways to take events.
    fn instructions(&mut self) {
        let build = [
            "build",
            "--package",
            "usertrace-bench",
            "--locked",
            "--quiet",
            "--release",
            "--bin",
            "guest-bench",
        ];
        if !self.prepare("guest-bench", cargo(build)) {
            return;
        }
        let mut command = Command::new(program("usertrace-vm"));
        command
            .args(["guest", "--smp", "1", "--icount", "--"])
            .arg(target_dir().join("release").join("guest-bench"));
        self.step("instructions of an event", command, Says::Nothing);
    }

    fn kselftest(&mut self, config: KernelConfig) {
        if let Some(built) = self.build_kselftest() {
            self.step(
                &format!("kselftest, {config} kernel"),
                in_guest(config, &[], &built),
                Says::Ktap,
            );
        }
    }

    /// The series' own test program in C, from the patched tree.
    fn build_kselftest(&mut self) -> Option<PathBuf> {
        // Without a cache there is no kernel either, which was said before.
        let kernels = cache_dir().ok()?.join("kernel");
        let built = kernels.join("selftest");
        let mut output = OsString::from("OUTPUT=");
        output.push(&built);
        let mut make = Command::new("make");
        make.args(["--silent", "-C"])
            .arg(kernels.join("linux/tools/testing/selftests/ltt"))
            .arg(output)
            .arg("LDFLAGS=-static");
        // Where that fails, so does make, and says it.
        let _ = fs::create_dir_all(&built);
        self.prepare("kselftest", make)
            .then(|| built.join("ltt_test"))
    }

    fn crash(&mut self) {
        if !self.kernel(KernelConfig::Release) || !self.programs() {
            return;
        }
        self.step(
            "crash tests",
            Command::new(program("crash-tests")),
            Says::Libtest,
        );
    }

    fn cross(&mut self) {
        let start = Instant::now();
        let (output, possible) = self
            .lane
            .run("aarch64", script("cross", &["possible"]), SILENCE);
        if possible.is_err() {
            let tally = Tally {
                skipped: 1,
                ..Tally::default()
            };
            self.note("aarch64", tally, start, Some(output.trim().into()));
            return;
        }
        if !self.prepare("aarch64 build", script("cross", &["build"])) {
            return;
        }
        let code = script("cross", &["code"]);
        self.step("aarch64, machine code", code, Says::Nothing);
        let user = script("cross", &["user"]);
        self.step("aarch64, without a kernel", user, Says::Libtest);
        let boot = script("cross", &["boot"]);
        self.step("aarch64, in a guest", boot, Says::Libtest);
        // One by one: a step may not be silent for long.
        for config in ["arm64", "riscv"] {
            let build = script("kernel", &["build", "--config", config]);
            if !self.prepare(&format!("kernel for {config}"), build) {
                return;
            }
        }
        let kernel = script("cross", &["kernel"]);
        self.step("the kernel on arm64 and riscv64", kernel, Says::Nothing);
    }

    fn compare(&mut self) {
        // One by one: a step may not be silent for long.
        for config in ["unpatched", "off"] {
            let build = script("kernel", &["build", "--config", config]);
            if !self.prepare(&format!("kernel to compare: {config}"), build) {
                return;
            }
        }
        if !self.kernel(KernelConfig::Release) {
            return;
        }
        let images = script("compare", &["images"]);
        self.step("images without the tracer", images, Says::Nothing);
        let selftests = script("compare", &["selftests"]);
        self.step("the kernel's own selftests", selftests, Says::Nothing);
    }

    /// The kernel, which is no test unless it cannot be built.
    fn kernel(&mut self, config: KernelConfig) -> bool {
        if has_own_kernel() {
            return true;
        }
        let build = script("kernel", &["build", "--config", &config.to_string()]);
        self.prepare(&format!("{config} kernel"), build)
    }

    /// The programs that run in guests, and the library that is loaded into others.
    fn programs(&mut self) -> bool {
        let build = [
            "build",
            "--workspace",
            "--locked",
            "--quiet",
            "--lib",
            "--bins",
        ];
        self.prepare("programs", cargo(build))
    }

    /// Something that later steps need.
    fn prepare(&mut self, name: &str, command: Command) -> bool {
        let start = Instant::now();
        let (_, outcome) = self.lane.run(name, command, SILENCE);
        let Err(why) = outcome else { return true };
        let tally = Tally {
            failed: 1,
            ..Tally::default()
        };
        self.note(name, tally, start, Some(format!("cannot be built: {why}")));
        false
    }

    fn step(&mut self, name: &str, command: Command, says: Says) {
        let start = Instant::now();
        let (output, outcome) = self.lane.run(name, command, SILENCE);
        let (tally, note) = judge(&output, outcome, says);
        self.note(name, tally, start, note);
    }

    /// The kernel's own unit tests, which run at boot and report on the console.
    fn kunit(&mut self, config: KernelConfig) {
        let name = format!("KUnit, {config} kernel");
        let start = Instant::now();
        self.lane.print(format!("\n=== {name}\n").as_bytes());
        let run = || -> Result<(String, Outcome)> {
            let guest = Guest::new(config)?
                .append("kunit.enable=1 kunit.autorun=1")
                .command(["true"]);
            let run = guest.run(Streams::capture())?;
            let bytes = fs::read(&run.console).context("reading the console log")?;
            Ok((String::from_utf8_lossy(&bytes).into_owned(), run.outcome))
        };
        let (tally, note) = match run() {
            Err(e) => (
                Tally {
                    failed: 1,
                    ..Tally::default()
                },
                Some(format!("{e:#}")),
            ),
            Ok((console, outcome)) => {
                for line in console.lines().filter(|line| line.contains("not ok ")) {
                    self.lane.print(format!("{line}\n").as_bytes());
                }
                let tally = Tally::of_ktap(&console);
                let outcome = if outcome == Outcome::Passed {
                    Ok(())
                } else {
                    Err(outcome.to_string())
                };
                complete(tally, outcome)
            }
        };
        self.lane.print(format!("{tally}\n").as_bytes());
        self.note(&name, tally, start, note);
    }

    fn note(&mut self, name: &str, tally: Tally, start: Instant, note: Option<String>) {
        self.done.push(Done {
            name: name.into(),
            tally,
            time: start.elapsed(),
            note,
        });
    }

    fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        for done in &self.done {
            sum += done.tally;
        }
        sum
    }

    fn table(&self) {
        for Done {
            name,
            tally,
            time,
            note,
        } in &self.done
        {
            print!("{name:<32} {:>5} s  {tally}", time.as_secs());
            match note {
                Some(note) => println!("  ({note})"),
                None => println!(),
            }
        }
    }
}

/// What a step counts for.
fn judge(output: &str, outcome: Result<(), String>, says: Says) -> (Tally, Option<String>) {
    match (says, outcome) {
        (Says::Nothing, Ok(())) => (
            Tally {
                passed: 1,
                ..Tally::default()
            },
            None,
        ),
        (Says::Nothing, Err(why)) => (
            Tally {
                failed: 1,
                ..Tally::default()
            },
            Some(why),
        ),
        (Says::Libtest, outcome) => complete(Tally::of_libtest(output), outcome),
        (Says::Ktap, outcome) => complete(Tally::of_ktap(output), outcome),
    }
}

/// A program that fails without a failed test has failed by itself, and so has one without any test.
fn complete(mut tally: Tally, outcome: Result<(), String>) -> (Tally, Option<String>) {
    match outcome {
        Err(why) => {
            tally.failed = tally.failed.max(1);
            (tally, Some(why))
        }
        Ok(()) if tally == Tally::default() => {
            tally.failed = 1;
            (tally, Some("there was no test".into()))
        }
        Ok(()) => (tally, None),
    }
}

fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// A program to be run in a guest, by this program as it was built last.
fn in_guest(config: KernelConfig, options: &[&str], path: &Path) -> Command {
    let mut command = Command::new(program("usertrace-vm"));
    command
        .args(["guest", "--config", &config.to_string()])
        // What hangs is silent, which ends the step; all tests take as long as the machine's other work lets them.
        .args(["--timeout", "7200"])
        .args(options)
        .arg("--")
        .arg(path);
    command
}

/// Somebody's kernel is used, for which nothing is built.
fn has_own_kernel() -> bool {
    std::env::var_os("USERTRACE_KERNEL").is_some_and(|path| !path.is_empty())
}

/// Begins to build kernels, one after the other: who needs one waits for its lock, and says what went wrong if it could
/// not be built.
fn build_meanwhile(kernels: Vec<KernelConfig>) {
    let build = move || {
        for config in kernels {
            let mut build = script("kernel", &["build", "--config", &config.to_string()]);
            // SAFETY: a system call, which is all that is done between fork and exec.
            unsafe {
                build.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?));
            }
            lane::build(build);
        }
    };
    // It lives as long as this process: what it waits for ends with it.
    drop(std::thread::spawn(build));
}

fn script(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("scripts").join(name));
    command.args(args);
    command
}

fn program(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// Whether the cache can be made, before an hour's work depends on it.
pub(crate) fn check_place() -> Result<()> {
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_OF_EACH: &str =
        "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out";
    const TWO: &str = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn what_tests_say_is_counted() {
        assert_eq!(judge(TWO, Ok(()), Says::Libtest), (tally(2, 0, 0), None));
        assert_eq!(
            judge(ONE_OF_EACH, Err("x".into()), Says::Libtest).0,
            tally(1, 1, 1)
        );
    }

    #[test]
    fn a_program_that_breaks_or_tests_nothing_fails() {
        assert_eq!(
            judge(TWO, Err("signal".into()), Says::Libtest).0,
            tally(2, 1, 0)
        );
        assert_eq!(
            judge("", Err("signal".into()), Says::Libtest).0,
            tally(0, 1, 0)
        );
        assert_eq!(judge("", Ok(()), Says::Libtest).0, tally(0, 1, 0));
    }

    #[test]
    fn a_step_without_tests_is_one() {
        assert_eq!(judge("", Ok(()), Says::Nothing).0, tally(1, 0, 0));
        assert_eq!(judge(TWO, Err("x".into()), Says::Nothing).0, tally(0, 1, 0));
    }
}
