//! One guest, from its description to its end.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use usertrace_init::{
    BOOT_TAG, BYE, DUMP_NAME, Dump, Job, OUT_TAG, PORT_STATUS, PORT_STDERR, PORT_STDIN,
    PORT_STDOUT, ROOT_TAG, Report, Share,
};

use crate::console::Console;
use crate::counter;
use crate::gdb::Debugger;
use crate::image::{ImageFormat, Monitor, processors};
use crate::monitor::{self, Event, Limits};
use crate::outcome::Outcome;
use crate::paths::{KernelConfig, cache_dir, kernel_image, repository, target_dir};
use crate::qemu::{GuestClock, Machine, Qemu};
use crate::run_dir::RunDir;
use crate::shell::RawTerminal;
use crate::splat::Scanner;
use crate::streams::{Output, Sink, Streams, start_input};
use crate::{initramfs, shell};

/// The 9p share that another initramfs mounts as its root, in a crash kernel.
pub const CRASH_ROOT: &str = "crash-root";
/// The file of that initramfs, beside the harness's own.
const CRASH_INITRAMFS: &str = "crash-initramfs";
/// The initramfs of the harness.
const INITRAMFS: &str = "initramfs";

/// The logs of the guest's console, and of QEMU.
const CONSOLE_LOG: &str = "console.log";
const QEMU_LOG: &str = "qemu.log";
/// How many lines of the console's end are shown.
const END_LINES: usize = 25;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The description of a guest.
#[derive(Clone, Debug)]
pub struct Guest {
    config: KernelConfig,
    kernel: PathBuf,
    smp: u32,
    memory_mib: Option<u64>,
    memory_file: Option<PathBuf>,
    restarts: bool,
    time: GuestClock,
    turns: bool,
    crash: bool,
    crash_argv: Vec<OsString>,
    crash_memory_mib: Option<u64>,
    crash_initramfs: Option<CrashInitramfs>,
    images: Vec<(ImageFormat, PathBuf)>,
    has_vmcoreinfo: bool,
    give_monitor: Option<Sender<Monitor>>,
    give_debugger: Option<Sender<Debugger>>,
    timeout: Option<Duration>,
    silence: Option<Duration>,
    out: Option<PathBuf>,
    append: String,
    allowed: Vec<String>,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
}

/// Another initramfs for the crash kernel, and its root directory.
#[derive(Clone, Debug)]
struct CrashInitramfs {
    initramfs: PathBuf,
    root: PathBuf,
    append: String,
}

/// The result of a guest's run.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub outcome: Outcome,
    /// The command's own status, if it ended, even if the outcome is another one.
    pub status: Option<u8>,
    /// The command's standard output, if it was captured.
    pub stdout: Vec<u8>,
    /// The command's standard error, if it was captured.
    pub stderr: Vec<u8>,
    /// The directory of this run: the console log, QEMU's messages, the outcome, and the
    /// processors' registers of a guest that hung or took too long.
    pub dir: PathBuf,
    /// The console log.
    pub console: PathBuf,
    /// The host's side of `/out`.
    pub out: PathBuf,
    /// The dump, or why it was not saved. None: no dump was expected.
    pub dump: Option<Result<PathBuf, String>>,
    /// The kernel's reports of its own errors.
    pub splats: Vec<String>,
    /// The last lines of the console.
    pub console_end: String,
}

impl Run {
    /// Explains an outcome that is not the command's own.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut text = String::new();
        if !self.console_end.is_empty() {
            text += &format!("--- the end of the console ---\n{}---\n", self.console_end);
        }
        for splat in &self.splats {
            text += &format!("the kernel reports: {splat}\n");
        }
        if let Some(status) = self.status {
            text += &format!("the command's own status: {status}\n");
        }
        match &self.dump {
            Some(Ok(path)) => text += &format!("dump: {}\n", path.display()),
            Some(Err(why)) => text += &format!("no dump: {why}\n"),
            None => {}
        }
        text + &format!(
            "console log: {}\noutcome: {}\n",
            self.console.display(),
            self.outcome
        )
    }
}

impl Guest {
    /// A guest with this kernel.
    ///
    /// # Errors
    /// The kernel is not built, or there is no current directory.
    pub fn new(config: KernelConfig) -> Result<Self> {
        Ok(Self::with_kernel(config, kernel_image(config)?))
    }

    /// A guest with the kernel in a file, which was built with this configuration.
    #[must_use]
    pub fn with_kernel(config: KernelConfig, kernel: PathBuf) -> Self {
        Self {
            config,
            kernel,
            smp: 2,
            memory_mib: None,
            memory_file: None,
            restarts: false,
            time: GuestClock::Host,
            turns: false,
            crash: false,
            crash_argv: Vec::new(),
            crash_memory_mib: None,
            crash_initramfs: None,
            images: Vec::new(),
            has_vmcoreinfo: false,
            give_monitor: None,
            give_debugger: None,
            timeout: None,
            silence: None,
            out: None,
            append: String::new(),
            allowed: Vec::new(),
            argv: Vec::new(),
            env: Vec::new(),
            cwd: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        }
    }

    /// The number of processors.
    #[must_use]
    pub fn smp(mut self, processors: u32) -> Self {
        self.smp = processors;
        self
    }

    /// The size of its memory.
    #[must_use]
    pub fn memory_mib(mut self, size: u64) -> Self {
        self.memory_mib = Some(size);
        self
    }

    /// Keeps its memory in a file, byte by byte from address 0, if it has less than 2 GiB. A guest
    /// that starts with another guest's file finds that guest's memory, as after a reset.
    #[must_use]
    pub fn memory_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.memory_file = Some(path.into());
        self
    }

    /// Whether a reset restarts the guest with its memory as it is. The command runs again then. It
    /// must not print anything before the reset, because only the last run's count of output is
    /// compared.
    #[must_use]
    pub fn restarts(mut self, yes: bool) -> Self {
        self.restarts = yes;
        self
    }

    /// Whether the guest's time-stamp counter counts instructions, one by one, rather than time.
    #[must_use]
    pub fn count_instructions(mut self, yes: bool) -> Self {
        self.time = if yes {
            GuestClock::Instructions
        } else {
            GuestClock::Host
        };
        self
    }

    /// Whether emulated processors take turns on one of the host's. That is slower, but avoids
    /// QEMU's errors with parallel processors.
    #[must_use]
    pub fn take_turns(mut self, yes: bool) -> Self {
        self.turns = yes;
        self
    }

    /// Whether a panic saves a dump.
    #[must_use]
    pub fn crash(mut self, armed: bool) -> Self {
        self.crash = armed;
        self
    }

    /// Runs a command in the crash kernel before the dump is saved. Its output will be in `/out`.
    /// If it fails, there is no dump.
    #[must_use]
    pub fn in_crash_kernel<A: Into<OsString>>(mut self, argv: impl IntoIterator<Item = A>) -> Self {
        self.crash_argv = argv.into_iter().map(Into::into).collect();
        self
    }

    /// The size of the crash kernel's memory.
    #[must_use]
    pub fn crash_memory_mib(mut self, size: u64) -> Self {
        self.crash_memory_mib = Some(size);
        self
    }

    /// Boots another initramfs in the crash kernel, with more kernel options. It must mount the
    /// share [`CRASH_ROOT`], which is this directory of the host, as its root, and start the init
    /// there, which saves the dump.
    #[must_use]
    pub fn crash_initramfs(
        mut self,
        initramfs: impl Into<PathBuf>,
        root: impl Into<PathBuf>,
        append: &str,
    ) -> Self {
        self.crash_initramfs = Some(CrashInitramfs {
            initramfs: initramfs.into(),
            root: root.into(),
            append: append.into(),
        });
        self
    }

    /// Makes QEMU save the guest's memory to these files when the kernel panics and no crash kernel
    /// takes over.
    #[must_use]
    pub fn save_memory(mut self, images: impl IntoIterator<Item = (ImageFormat, PathBuf)>) -> Self {
        self.images = images.into_iter().collect();
        self
    }

    /// Whether the guest has QEMU's `vmcoreinfo` device, by which QEMU's dumps contain the kernel's
    /// vmcoreinfo.
    #[must_use]
    pub fn vmcoreinfo_device(mut self, yes: bool) -> Self {
        self.has_vmcoreinfo = yes;
        self
    }

    /// Sends QEMU's monitor to another thread when the guest is started.
    #[must_use]
    pub fn give_monitor(mut self, to: Sender<Monitor>) -> Self {
        self.give_monitor = Some(to);
        self
    }

    /// Sends QEMU's debugger stub to another thread. The guest boots only when the debugger starts
    /// it.
    #[must_use]
    pub fn give_debugger(mut self, to: Sender<Debugger>) -> Self {
        self.give_debugger = Some(to);
        self
    }

    /// How long the whole run may take.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// How long the guest may show no sign of life.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = Some(limit);
        self
    }

    /// The host's directory for the guest's `/out` [default: one in the run's directory].
    #[must_use]
    pub fn out(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out = Some(dir.into());
        self
    }

    /// Adds arguments to the kernel's command line.
    #[must_use]
    pub fn append(mut self, args: &str) -> Self {
        self.append.push(' ');
        self.append.push_str(args);
        self
    }

    /// Ignores lines of the console with this text in the search for splats.
    #[must_use]
    pub fn allow_splat(mut self, text: impl Into<String>) -> Self {
        self.allowed.push(text.into());
        self
    }

    /// The command and its arguments. Without one, the guest runs a shell on this process's
    /// terminal.
    #[must_use]
    pub fn command<A: Into<OsString>>(mut self, argv: impl IntoIterator<Item = A>) -> Self {
        self.argv = argv.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a variable to the command's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The command's working directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = dir.into();
        self
    }

    /// Boots the guest, runs the command, and ends the guest.
    ///
    /// # Errors
    /// The guest could not be started. Everything that goes wrong later is an [`Outcome`].
    pub fn run(self, streams: Streams) -> Result<Run> {
        let run_dir = RunDir::new(&cache_dir()?.join("runs"))?;
        let dir = run_dir.path().to_owned();
        let out = match &self.out {
            Some(out) => out.clone(),
            None => dir.join("out"),
        };
        fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
        let out = out.canonicalize()?;
        let (mut run, is_qemus_own) = self.run_once(&dir, &out, &streams)?;
        // Once in some hundred starts, QEMU 7.2 fails an assertion in its `msix.c` while the guest
        // probes its devices. The command has not started then, and no input was consumed, so a
        // second start is safe: but not with a monitor or debugger, which may have been used.
        if is_qemus_own && self.give_monitor.is_none() && self.give_debugger.is_none() {
            eprintln!("usertrace-vm: {}; it is started once more", run.outcome);
            for log in [CONSOLE_LOG, QEMU_LOG] {
                fs::rename(dir.join(log), dir.join(format!("{log}.aborted")))?;
            }
            run = self.run_once(&dir, &out, &streams)?.0;
        }
        fs::write(
            run.dir.join("outcome"),
            format!("{} {}\n", run.outcome.code(), run.outcome),
        )?;
        Ok(run)
    }

    /// Runs the guest once. Returns whether QEMU failed by itself before the guest was up.
    fn run_once(&self, dir: &Path, out: &Path, streams: &Streams) -> Result<(Run, bool)> {
        // Large, so it is removed after the run.
        let boot = tempfile::Builder::new().prefix("boot-").tempdir_in(dir)?;
        let parts = self.start(dir, out, boot.path(), streams)?;
        self.finish(parts, dir.to_owned(), out.to_owned())
    }

    /// Writes the initramfs, and what a crash kernel boots.
    fn write_boot_files(&self, job: &Job, boot: &Path) -> Result<()> {
        fs::write(boot.join(INITRAMFS), initramfs::pack(job, &self.cmdline())?)
            .context("writing the initramfs")?;
        if self.crash {
            fs::copy(&self.kernel, boot.join("kernel")).context("copying the kernel")?;
        }
        if let Some(crash) = &self.crash_initramfs {
            fs::copy(&crash.initramfs, boot.join(CRASH_INITRAMFS))
                .context("copying the crash kernel's initramfs")?;
            initramfs::lay_out(job, &crash.root)
                .with_context(|| format!("making a root of {}", crash.root.display()))?;
        }
        Ok(())
    }

    /// The machine, with its devices and shares, and the host's ends of its streams.
    fn machine(&self, job: &Job, out: &Path, boot: &Path) -> Result<(Machine, Ports)> {
        let mut machine = Machine::new(self.smp, self.memory(), self.time, self.turns);
        machine.boot(&self.kernel, &boot.join(INITRAMFS), &self.cmdline());
        let console = machine.serial()?;
        let hmp = machine.monitor()?;
        let status = machine.port(PORT_STATUS)?;
        let stdin = machine.port(PORT_STDIN)?;
        let stdout = machine.port(PORT_STDOUT)?;
        let stderr = machine.port(PORT_STDERR)?;
        if !self.restarts {
            machine.no_reboot();
        }
        if let Some(path) = &self.memory_file {
            machine.memory_file(path, self.memory());
        }
        if self.has_vmcoreinfo {
            machine.vmcoreinfo();
        }
        let stub = match self.give_debugger {
            Some(_) => Some(machine.debugger()?),
            None => None,
        };
        machine.share(ROOT_TAG, Path::new("/"), false);
        machine.share(OUT_TAG, out, true);
        for share in &job.shares {
            let from = if share.tag == BOOT_TAG {
                boot
            } else {
                &share.path
            };
            machine.share(&share.tag, from, share.writable);
        }
        if let Some(crash) = &self.crash_initramfs {
            machine.share(CRASH_ROOT, &crash.root, true);
        }
        let ports = Ports {
            console,
            hmp,
            status,
            stdin,
            stdout,
            stderr,
            stub,
        };
        Ok((machine, ports))
    }

    /// Writes the files that the guest boots, and starts QEMU and the threads that carry its
    /// streams.
    fn start(
        &self,
        dir: &Path,
        out: &Path,
        boot: &Path,
        streams: &Streams,
    ) -> Result<RunningGuest> {
        let nonce = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let job = self.job(&nonce);
        self.write_boot_files(&job, boot)?;
        let (machine, ports) = self.machine(&job, out, boot)?;
        let (events, seen) = channel();
        let console = Console::start(
            ports.console.try_clone()?,
            &dir.join(CONSOLE_LOG),
            Scanner::new(self.allowed.clone()),
            events.clone(),
        )?;
        let sinks = if streams.output {
            [own(std::io::stdout())?, own(std::io::stderr())?]
        } else {
            [Sink::memory(), Sink::memory()]
        };
        let [out_sink, err_sink] = sinks.clone();
        let outputs = [
            Output::start(ports.stdout, out_sink, events.clone())?,
            Output::start(ports.stderr, err_sink, events.clone())?,
        ];
        let qemu = machine.start(&dir.join(QEMU_LOG))?;
        if let Some(to) = &self.give_monitor {
            // The receiver may be gone.
            let _ = to.send(Monitor::new(ports.hmp.try_clone()?, self.memory())?);
        }
        if let (Some(to), Some(stub)) = (&self.give_debugger, ports.stub) {
            let _ = to.send(Debugger::new(stub)?);
        }
        let (give_terminal, terminal) = channel();
        let (mut idle_stdin, mut input) = (None, None);
        let (reports, to_reports) = (ports.status.try_clone()?, events.clone());
        if self.argv.is_empty() {
            self.start_shell(
                &console,
                ports.console,
                ports.status.try_clone()?,
                nonce,
                events,
                give_terminal,
            )?;
            idle_stdin = Some(ports.stdin);
        } else if streams.stdin {
            input = Some(ports.stdin);
        }
        // Otherwise the stream is closed here, and the command reads end-of-file.
        start_reports(reports, input, to_reports)?;
        Ok(RunningGuest {
            qemu,
            hmp: ports.hmp,
            console,
            seen,
            status: ports.status,
            outputs,
            sinks,
            _idle_stdin: idle_stdin,
            terminal,
        })
    }

    /// Starts a thread that waits for the shell, because the monitor must not wait.
    fn start_shell(
        &self,
        console: &Console,
        stream: UnixStream,
        status: UnixStream,
        nonce: String,
        events: Sender<Event>,
        give: Sender<RawTerminal>,
    ) -> Result<()> {
        let listener = console.listener();
        let limit = self.limits().total;
        std::thread::Builder::new().spawn(move || {
            match shell::hand_over(&listener, stream, status, &nonce, limit) {
                Ok(terminal) => drop(give.send(terminal)),
                Err(e) => drop(events.send(Event::Harness(format!("{e:#}")))),
            }
        })?;
        Ok(())
    }

    fn finish(&self, parts: RunningGuest, dir: PathBuf, out: PathBuf) -> Result<(Run, bool)> {
        let RunningGuest {
            mut qemu,
            hmp,
            mut console,
            seen,
            status,
            mut outputs,
            sinks,
            _idle_stdin,
            terminal,
        } = parts;
        let mut link = MonitorLink {
            status,
            outputs: &outputs,
        };
        let limits = self.limits();
        let mut verdict = monitor::watch(&seen, limits, self.crash, &mut link);
        if matches!(verdict.outcome, Outcome::Hung(_) | Outcome::TimedOut(_)) {
            fs::write(dir.join("processors"), processors(&hmp))
                .context("writing where the processors are")?;
        }
        if matches!(verdict.outcome, Outcome::Panicked(_)) && !self.images.is_empty() {
            let monitor = Monitor::new(hmp, self.memory())?;
            monitor.stop()?;
            for (format, path) in &self.images {
                monitor.save(*format, path)?;
            }
            qemu.kill();
        }
        let died = qemu.wait(Duration::from_secs(5))?;
        qemu.kill();
        // Restores the terminal after the shell.
        drop(terminal.try_recv());
        console.join();
        for output in &mut outputs {
            output.join();
        }
        let mut is_qemus_own = false;
        if let Outcome::Infra(why) = &mut verdict.outcome {
            is_qemus_own =
                !verdict.was_up && died.and_then(|died| died.signal()) == Some(libc::SIGABRT);
            if let Some(died) = died.filter(|status| !status.success()) {
                *why += &format!("; QEMU: {died}");
            }
            let messages = qemu.messages();
            if !messages.is_empty() {
                *why += &format!("; QEMU says: {messages}");
            }
        }
        let [stdout, stderr] = sinks.map(|sink| sink.take());
        let run = Run {
            status: verdict
                .status
                .filter(|_| !verdict.outcome.is_commands_own()),
            outcome: verdict.outcome,
            stdout,
            stderr,
            console: dir.join(CONSOLE_LOG),
            dump: verdict.dump.map(|dump| dump.map(|_| out.join(DUMP_NAME))),
            dir,
            out,
            splats: verdict.splats,
            console_end: console.end(END_LINES),
        };
        Ok((run, is_qemus_own))
    }

    fn job(&self, nonce: &str) -> Job {
        let mut env: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), PATH.into()),
            ("HOME".into(), "/root".into()),
            ("USER".into(), "root".into()),
            ("LANG".into(), "C.UTF-8".into()),
            // Tells programs that they run in the guest.
            ("USERTRACE_GUEST".into(), self.config.to_string().into()),
        ];
        env.push((
            "TERM".into(),
            std::env::var_os("TERM").unwrap_or_else(|| "dumb".into()),
        ));
        env.extend(self.env.iter().cloned());
        // The host's root may show neither: it has its own /tmp, and a file system may be mounted
        // over it.
        let mut shares = vec![Share {
            tag: "repository".into(),
            path: repository().into(),
            writable: false,
        }];
        let target = target_dir();
        if !target.starts_with(repository()) && target.is_dir() {
            shares.push(Share {
                tag: "target".into(),
                path: target,
                writable: false,
            });
        }
        let dump = self.crash.then(|| {
            let boot = PathBuf::from("/run/usertrace-boot");
            shares.push(Share {
                tag: BOOT_TAG.into(),
                path: boot.clone(),
                writable: false,
            });
            let mut cmdline = crash_cmdline() + &self.frequency();
            let initramfs = match &self.crash_initramfs {
                Some(crash) => {
                    cmdline = format!("{cmdline} {}", crash.append);
                    CRASH_INITRAMFS
                }
                None => "initramfs",
            };
            Dump {
                kernel: boot.join("kernel"),
                initramfs: boot.join(initramfs),
                cmdline,
                argv: self.crash_argv.clone(),
            }
        });
        Job {
            argv: self.argv.clone(),
            env,
            cwd: self.cwd.clone(),
            shares,
            dump,
            nonce: nonce.into(),
        }
    }

    fn memory(&self) -> u64 {
        self.memory_mib.unwrap_or(match self.config {
            KernelConfig::Release => 1024,
            // A third more for shadow memory and records of every lock and object.
            KernelConfig::Debug => 2048,
        })
    }

    fn cmdline(&self) -> String {
        let mut line = String::from("console=ttyS0 oops=panic");
        // A guest whose memory is saved must not reboot.
        line += if self.images.is_empty() {
            " panic=-1"
        } else {
            " panic=0"
        };
        // All emulated time-stamp counters are one clock of the host. On a busy host, the kernel's
        // clock watchdog would still call them unstable, as its reference device is slow to read.
        line += " tsc=reliable";
        line += &self.frequency();
        if std::env::var_os("USERTRACE_RANDOM_ADDRESSES").is_none() {
            // QEMU 7.2 translates a program's code again for each address that it is at: without
            // this, `true` takes 2.5 times as long.
            line += " norandmaps";
        }
        if self.crash {
            let size = self.crash_memory_mib.unwrap_or(match self.config {
                KernelConfig::Release => 160,
                KernelConfig::Debug => 512,
            });
            line += &format!(" crashkernel={size}M");
        }
        if self.config == KernelConfig::Debug {
            line += " kmemleak=on";
            // While the kernel asks the first processor what it can, it forgets for a moment that
            // it uses page tables of five levels, of which KASAN computes where its shadow begins:
            // an interrupt then is called a wild access.
            line += " no5lvl";
        }
        if self.time == GuestClock::Instructions {
            // Each repetition of a string instruction counts. The kernel is to clear a page in
            // steps of 8 bytes, not by 4096 of one, which the emulated processor claims to be fast
            // at.
            line += " clearcpuid=erms";
        }
        line + &self.append
    }

    /// The frequency of the time-stamp counter, as an argument of the kernel. The kernel would
    /// measure it by a timer that QEMU emulates; on a busy host it has come to 193 MHz of 2600, and
    /// the guest's time passed 13 times too fast.
    fn frequency(&self) -> String {
        let khz = match self.time {
            GuestClock::Host => counter::frequency(),
            // The emulated timers go by the same clock.
            GuestClock::Instructions => None,
        };
        khz.map_or_else(String::new, |khz| format!(" tsc_early_khz={khz}"))
    }

    fn limits(&self) -> Limits {
        // How much slower the debug kernel is.
        let factor = match self.config {
            KernelConfig::Release => 1,
            KernelConfig::Debug => 4,
        };
        let seconds = |s: u32| Duration::from_secs(1) * s * factor;
        Limits {
            total: self.timeout.unwrap_or(seconds(600)),
            silence: self.silence.unwrap_or(seconds(45)),
            beat: self.silence.unwrap_or(seconds(30)),
            // After a panic without a restart: the rest of its output, and
            // that the other processors stop.
            grace: seconds(if self.images.is_empty() { 15 } else { 2 }),
        }
    }
}

/// The crash kernel needs one processor, and neither its own dump nor an address of its own choice.
fn crash_cmdline() -> String {
    "console=ttyS0 panic=-1 oops=panic nr_cpus=1 reset_devices nokaslr norandmaps".into()
}

/// The host's ends of a machine's streams.
struct Ports {
    console: UnixStream,
    hmp: UnixStream,
    status: UnixStream,
    stdin: UnixStream,
    stdout: UnixStream,
    stderr: UnixStream,
    stub: Option<UnixStream>,
}

/// A guest that runs, and the threads that carry its streams.
#[derive(Debug)]
struct RunningGuest {
    qemu: Qemu,
    hmp: UnixStream,
    console: Console,
    seen: Receiver<Event>,
    status: UnixStream,
    outputs: [Output; 2],
    sinks: [Sink; 2],
    _idle_stdin: Option<UnixStream>,
    terminal: Receiver<RawTerminal>,
}

struct MonitorLink<'a> {
    status: UnixStream,
    outputs: &'a [Output; 2],
}

impl monitor::Guest for MonitorLink<'_> {
    fn bye(&mut self) {
        // A guest that is gone needs no answer.
        let _ = self.status.write_all(BYE);
    }

    fn carried(&self) -> (u64, u64) {
        (self.outputs[0].count(), self.outputs[1].count())
    }
}

/// A sink for a stream of this process, without the standard library's buffers.
fn own(stream: impl std::os::fd::AsFd) -> Result<Sink> {
    Ok(Sink::File(Arc::new(
        stream.as_fd().try_clone_to_owned()?.into(),
    )))
}

/// Starts the thread that reads the reports of the guest's first process. Input is carried to
/// `input` only after the first report.
fn start_reports(
    from: UnixStream,
    mut input: Option<UnixStream>,
    events: Sender<Event>,
) -> Result<()> {
    std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line);
            let event = Report::parse(&line)
                .map_or_else(|| Event::Garbage(line.to_string()), Event::Report);
            if event == Event::Report(Report::Hello)
                && let Some(Err(e)) = input.take().map(start_input)
            {
                let _ = events.send(Event::Harness(format!("carrying the input: {e}")));
            }
            if events.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
