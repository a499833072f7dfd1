//! `scripts/test`: every test there is, and one sum over all.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use nix::sys::signal::{SigHandler, Signal, killpg};
use nix::unistd::Pid;
use usertrace_vm::tally::Tally;
use usertrace_vm::{Guest, KernelConfig, Outcome, Streams, cache_dir, repository, target_dir};

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
    let mut suite = Suite {
        debug_follows: sections.contains(&Section::Debug),
        ..Suite::default()
    };
    for &section in sections {
        match section {
            Section::Host => suite.host(),
            Section::Series => suite.series(),
            Section::Harness => suite.harness(),
            Section::Guest => suite.guest(KernelConfig::Release),
            Section::Crash => suite.crash(),
            Section::Debug => suite.guest(KernelConfig::Debug),
            Section::Cross => suite.cross(),
            Section::Compare => suite.compare(),
        }
    }
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

#[derive(Debug, Default)]
struct Suite {
    done: Vec<Done>,
    /// The tests on the debug kernel are asked for.
    debug_follows: bool,
}

impl Suite {
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
        if config == KernelConfig::Release && self.debug_follows {
            build_meanwhile(KernelConfig::Debug);
        }
        self.kunit(config);
        self.kselftest(config);
        self.step(
            &format!("guest tests, {config} kernel"),
            in_guest(config, &program("guest-tests")),
            Says::Libtest,
        );
        self.boot_trace(config);
        // The debug kernel's checkers take most of its instructions.
        if config == KernelConfig::Release {
            self.instructions();
        }
    }

    /// A trace that the kernel starts before the first process, which is traced.
    fn boot_trace(&mut self, config: KernelConfig) {
        let mut command = Command::new(program("usertrace-vm"));
        command
            .args(["guest", "--config", &config.to_string(), "--append"])
            .arg("ltt.boot=early,flight,subbuf_size=8192,subbuf_count=4 rdinit=/first")
            .arg("--")
            .arg(program("boot-tests"));
        let name = format!("trace from boot, {config} kernel");
        self.step(&name, command, Says::Libtest);
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

    /// The series' own test program in C, built from the patched tree.
    fn kselftest(&mut self, config: KernelConfig) {
        let kernels = match cache_dir() {
            Ok(cache) => cache.join("kernel"),
            // Then there is no kernel either, which was said before.
            Err(_) => return,
        };
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
        if !self.prepare("kselftest", make) {
            return;
        }
        self.step(
            &format!("kselftest, {config} kernel"),
            in_guest(config, &built.join("ltt_test")),
            Says::Ktap,
        );
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
        let (output, possible) = tee("aarch64", script("cross", &["possible"]), LIMIT);
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
        // One by one, each within the limit of a step.
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
        // One by one, each within the limit of a step.
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
        if std::env::var_os("USERTRACE_KERNEL").is_some_and(|v| !v.is_empty()) {
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
        let (_, outcome) = tee(name, command, LIMIT);
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
        let (output, outcome) = tee(name, command, LIMIT);
        let (tally, note) = judge(&output, outcome, says);
        self.note(name, tally, start, note);
    }

    /// The kernel's own unit tests, which run at boot and report on the console.
    fn kunit(&mut self, config: KernelConfig) {
        let name = format!("KUnit, {config} kernel");
        let start = Instant::now();
        println!("\n=== {name}");
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
                    println!("{line}");
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
        println!("{tally}");
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
fn in_guest(config: KernelConfig, path: &Path) -> Command {
    let mut command = Command::new(program("usertrace-vm"));
    command
        .args(["guest", "--config", &config.to_string()])
        // All tests take about ten minutes on a machine that has other work to do, or on the debug kernel.
        .args(["--timeout", "1800", "--"])
        .arg(path);
    command
}

/// Begins to build a kernel, as a guest leaves a processor idle: who needs it later waits for its lock, and says what went
/// wrong if it could not be built.
fn build_meanwhile(config: KernelConfig) {
    let mut build = script("kernel", &["build", "--config", &config.to_string()]);
    build
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: a system call, which is all that is done between fork and exec.
    unsafe {
        build.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?));
    }
    // What cannot be begun, is begun later.
    drop(build.spawn());
}

fn script(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("scripts").join(name));
    command.args(args);
    command
}

fn program(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// Runs the command in the repository. What it prints is shown as it comes, and returned; with its status, or why it
/// has none.
fn tee(name: &str, mut command: Command, limit: Duration) -> (String, Result<(), String>) {
    let line: Vec<OsString> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(Into::into)
        .collect();
    println!(
        "\n=== {name}: {}",
        line.join(" ".as_ref()).to_string_lossy()
    );
    let spawned = command
        .current_dir(repository())
        .stdin(Stdio::null())
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => return (String::new(), Err(e.to_string())),
    };
    let group = Group::of(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (over, rest) = channel::<()>();
    let mut late = false;
    let output = std::thread::scope(|scope| {
        scope.spawn(|| stderr.map(show));
        let group = &group;
        let watch = scope.spawn(move || {
            let late = rest.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if late {
                group.kill();
            }
            late
        });
        // The summaries are on standard output; what a test writes to standard error cannot pass for one.
        let output = stdout.map(show).unwrap_or_default();
        drop(over);
        late = watch.join().unwrap_or(false);
        output
    });
    let outcome = match child.wait() {
        _ if late => Err(format!("not over after {} s", limit.as_secs())),
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(e) => Err(e.to_string()),
    };
    (String::from_utf8_lossy(&output).into_owned(), outcome)
}

/// How long one step may take: a test that hangs must not take the sum of all others along. The longest step is the
/// debug kernel's build.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The process group of the running step; 0 between steps.
static GROUP: AtomicI32 = AtomicI32::new(0);

/// The processes of a step. They are a group of their own, so that they can be ended together.
struct Group(Pid);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().cast_signed();
        // Relaxed: the handler runs on a thread of this process, and needs no other store.
        GROUP.store(pid, Ordering::Relaxed);
        Self(Pid::from_raw(pid))
    }

    fn kill(&self) {
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        GROUP.store(0, Ordering::Relaxed);
    }
}

/// Ends the running step, then this process: Ctrl-C does not reach the step's group by itself.
extern "C" fn end(signal: libc::c_int) {
    let group = GROUP.load(Ordering::Relaxed);
    if group > 0 {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    // SAFETY: _exit may be called in a signal handler, and does not return.
    unsafe { libc::_exit(128 + signal) }
}

/// Makes Ctrl-C and a polite kill end the running step, too.
pub(crate) fn catch_signals() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only calls functions that may be called in one.
        unsafe { nix::sys::signal::signal(signal, SigHandler::Handler(end)) }
            .context("catching signals")?;
    }
    Ok(())
}

fn show(mut from: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buf = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buf) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&buf[..n]).and_then(|()| out.flush());
        all.extend_from_slice(&buf[..n]);
    }
    all
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

    #[test]
    fn a_program_that_cannot_be_started_fails() {
        let (_, outcome) = tee("nothing", Command::new("/no/such/program"), LIMIT);
        assert!(outcome.is_err());
        let (output, outcome) = tee("sh", sh("echo a; echo b >&2; exit 3"), LIMIT);
        assert_eq!((output.as_str(), outcome.is_err()), ("a\n", true));
    }

    #[test]
    fn a_step_that_hangs_is_ended_with_all_its_processes() {
        // The inner shell holds the pipe: the output would not end before it.
        let (output, outcome) = tee(
            "sh",
            sh("echo a; sh -c 'sleep 1000; true'; true"),
            Duration::from_millis(300),
        );
        assert_eq!(
            (output.as_str(), outcome),
            ("a\n", Err("not over after 0 s".into()))
        );
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }
}
