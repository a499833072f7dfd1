//! Guests that panic, and checks of their dumps.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use usertrace_crash::find_roots;
use usertrace_testing::babeltrace;
use usertrace_testing::counts::counts;
use usertrace_tests::program;
use usertrace_vm::{Guest, ImageFormat, KernelConfig, Outcome, Run, Streams};

use crate::corrupt;
use crate::drgn;
use crate::stopped_guest;
use crate::symbols;
use crate::traces::{Dump, Expected, Writer};

/// A guest that will panic: its setup, and the kernel's options.
#[derive(Debug)]
pub(crate) struct Crash {
    script: String,
    options: &'static str,
}

/// The formats of QEMU's own dumps of a panicked guest, each with the options of its extraction.
const IMAGES: [(&str, ImageFormat, &[&str]); 3] = [
    ("qemu-elf", ImageFormat::Elf, &[]),
    ("qemu-zlib", ImageFormat::KdumpZlib, &[]),
    ("qemu-raw", ImageFormat::Raw, &["--raw"]),
];

/// The prefix of directories that `usertrace extract` creates.
pub(crate) const EXTRACTION: &str = "usertrace-";

/// The default memory of a guest.
const MEMORY_MIB: u64 = 512;

/// Bytes of memory that an extraction may have for its data.
const EXTRACTION_MEMORY: u64 = 64 << 20;

/// The cost of an extraction.
#[derive(Default)]
pub(crate) struct Cost {
    /// Bytes that were read.
    pub(crate) read: u64,
    /// For people: machines are busy.
    pub(crate) time: Duration,
    pub(crate) events: usize,
}

/// A panicked guest: its dump and its console.
#[derive(Debug)]
pub(crate) struct Crashed {
    directory: TempDir,
    vmcore: PathBuf,
    console: PathBuf,
}

impl Crash {
    /// A guest with an active trace `crash`, whose main channel has this size and count of
    /// sub-buffers.
    pub(crate) fn of(geometry: (u64, u64)) -> Self {
        Self::without_trace().with_trace("crash", geometry)
    }

    /// Adds another active trace.
    pub(crate) fn with_trace(self, name: &str, (subbuf_size, subbuf_count): (u64, u64)) -> Self {
        self.before(&format!(
            "mkdir $ltt/{name}; cd $ltt/{name}
             echo 4096 > main/subbuf_size
             echo {subbuf_count} > main/subbuf_count
             echo {subbuf_size} > main/subbuf_size
             echo 1 > start"
        ))
    }

    /// A guest that never had a trace.
    pub(crate) fn without_trace() -> Self {
        Self {
            script: "set -e; numbered=$1; ltt=/sys/kernel/ltt; shift\n".into(),
            options: "",
        }
    }

    /// Sets options of the kernel's command line.
    pub(crate) fn on_kernel_with(mut self, options: &'static str) -> Self {
        self.options = options;
        self
    }

    /// Adds a command of the shell before the panic.
    pub(crate) fn before(mut self, line: &str) -> Self {
        self.script += line;
        self.script.push('\n');
        self
    }

    /// Runs `numbered`, which must panic the kernel.
    pub(crate) fn numbered(self, arguments: &[&str]) -> Crashed {
        self.saved(arguments, |guest| guest)
    }

    /// Like [`numbered`](Self::numbered), but the crash kernel boots this initramfs, with more
    /// options and this root directory.
    pub(crate) fn numbered_and_then(
        self,
        initramfs: &Path,
        root: &Path,
        append: &str,
        arguments: &[&str],
    ) -> Crashed {
        self.saved(arguments, |guest| {
            guest.crash_initramfs(initramfs, root, append)
        })
    }

    /// Like [`numbered`](Self::numbered), but runs a command in the crash kernel before memory is
    /// saved.
    pub(crate) fn numbered_and_first(
        self,
        command: impl IntoIterator<Item = PathBuf>,
        arguments: &[&str],
    ) -> Crashed {
        self.saved(arguments, |guest| guest.in_crash_kernel(command))
    }

    fn saved(self, arguments: &[&str], set_up: impl FnOnce(Guest) -> Guest) -> Crashed {
        let directory = tempfile::tempdir().expect("a directory");
        let run = self.run(arguments, |guest| {
            set_up(guest).crash(true).out(directory.path())
        });
        let vmcore = dump(&run);
        Crashed {
            directory,
            vmcore,
            console: run.console,
        }
    }

    /// Like [`numbered`](Self::numbered), and extracts the traces in the crash kernel, which has
    /// that much memory. They must equal those of the dump.
    pub(crate) fn extracted_in_crash_kernel(self, memory_mib: u64, arguments: &[&str]) {
        let directory = tempfile::tempdir().expect("a directory");
        let usertrace = program::path("usertrace").into_os_string();
        let extract = [
            "extract",
            "/proc/vmcore",
            "-o",
            "/out/in-crash-kernel",
            "--json=/out/in-crash-kernel.json",
        ];
        let command = std::iter::once(usertrace).chain(extract.map(OsString::from));
        let run = self.run(arguments, |guest| {
            let guest = guest.crash(true).crash_memory_mib(memory_mib);
            guest.in_crash_kernel(command).out(directory.path())
        });
        let vmcore = dump(&run);
        let there = Dump::extracted(0, &directory.path().join("in-crash-kernel"));
        let here = Dump::extract(&vmcore, &directory.path().join("from-the-dump"));
        assert_eq!(there, here);
        assert!(here.events() > 0);
    }

    /// Like [`numbered`](Self::numbered), but without a crash kernel: QEMU saves the guest's memory
    /// in each format, with or without its vmcoreinfo device. Each dump must have these traces:
    /// name, whether it is active, and how many events each process has.
    pub(crate) fn saved_by_qemu(
        self,
        has_vmcoreinfo: bool,
        arguments: &[&str],
        traces: &[(&str, bool, &[u64])],
    ) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        self.run(arguments, |guest| {
            guest
                .vmcoreinfo_device(has_vmcoreinfo)
                .save_memory(IMAGES.map(|(name, format, _)| (format, path(name))))
        });
        for (name, format, options) in IMAGES {
            let to = path(&format!("{name}-traces"));
            let (dump, said) = Dump::extract_as(options, &path(name), &to);
            let says_where = has_vmcoreinfo && format != ImageFormat::Raw;
            let how = match says_where {
                true => "named by the dump's vmcoreinfo",
                false => "in the kernel's image",
            };
            assert!(said.contains(how), "{name}: {said}");
            dump.check_traces(traces);
            // Each has as many bytes as the guest has memory.
            std::fs::remove_file(path(name)).expect("a dump");
        }
    }

    /// Runs `numbered`, which must panic the kernel, beside an unprivileged program that has filled
    /// much of the memory with forged root pages and directories. QEMU's dumps do not have the
    /// address of the root page. The extraction must find the real events.
    pub(crate) fn found_among_forged(self, arguments: &[&str], traces: &[(&str, bool, &[u64])]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let filled = MEMORY_MIB / 2;
        let crash = self.before(&format!(
            "\"$(dirname \"$numbered\")/forger\" {filled} {MEMORY_MIB}"
        ));
        crash.run(arguments, |guest| {
            guest
                .vmcoreinfo_device(false)
                .save_memory(IMAGES.map(|(name, format, _)| (format, path(name))))
        });
        let vmlinux = stopped_guest::vmlinux();
        let [root, start, end] = ["ltt_crash_root", "__start_rodata", "__end_rodata"]
            .map(|symbol| symbols::address(&vmlinux, symbol));
        let is_read_only = (start..end).contains(&root);
        for (name, format, options) in IMAGES {
            let (image, to) = (path(name), path(&format!("{name}-traces")));
            if format == ImageFormat::Raw {
                // Root pages are much of what the program has, and many lead to what a kernel could
                // have left.
                let dump = usertrace_crash::Dump::open_raw(&image).expect("a dump");
                let memory = 0..MEMORY_MIB << 20;
                let all = find_roots(&dump, std::iter::once(memory), false);
                println!(
                    "{} root pages, {} consistent",
                    all.candidates, all.consistent
                );
                assert!(
                    all.candidates > filled << 6 && all.consistent > 1000,
                    "{all:x?}"
                );
                assert_eq!(all.root(), None);
            }
            let begun = Instant::now();
            let extracted = Dump::try_extract(options, &image, &to);
            let worth = if is_read_only {
                "no program can have had"
            } else {
                "may be forged"
            };
            match extracted {
                Ok((dump, said)) => {
                    assert!(said.contains(worth), "{name}: {said}");
                    dump.check_traces(traces);
                }
                // The program has memory of the image that was freed at boot, where this kernel has
                // its root page, too.
                Err(said) => {
                    assert!(
                        !is_read_only && said.contains("several are equally good"),
                        "{name}: {said}"
                    );
                }
            }
            println!("{name}: {:?}", begun.elapsed());
            std::fs::remove_file(image).expect("a dump");
        }
    }

    /// Runs `numbered`, which must panic the kernel, in a guest with that much memory. Returns the
    /// cost of extracting QEMU's dump.
    pub(crate) fn cost(self, memory_mib: u64, arguments: &[&str]) -> Cost {
        let directory = tempfile::tempdir().expect("a directory");
        let dump = directory.path().join("dump");
        self.run(arguments, |guest| {
            guest
                .memory_mib(memory_mib)
                .vmcoreinfo_device(true)
                .save_memory([(ImageFormat::KdumpZlib, dump.clone())])
        });
        let mut cost = Cost::default();
        // The first run warms the cache.
        for run in ["cold", "warm"] {
            let to = directory.path().join(run);
            let begun = Instant::now();
            // The shell's counts have those of what it waited for.
            let output = Command::new("prlimit")
                .arg(format!("--data={EXTRACTION_MEMORY}"))
                .args(["sh", "-c", "\"$@\" && cat /proc/$$/io", "sh"])
                .arg(program::path("usertrace"))
                .arg("extract")
                .args([&dump, Path::new("-o"), &to])
                .output()
                .expect("prlimit");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            let counts = String::from_utf8_lossy(&output.stdout).into_owned();
            let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
            cost = Cost {
                read: read.expect("rchar").parse().expect("a number"),
                time: begun.elapsed(),
                events: babeltrace::read(&to).events.len(),
            };
        }
        cost
    }

    /// Runs `numbered` in a guest, which must panic.
    fn run(self, arguments: &[&str], set_up: impl FnOnce(Guest) -> Guest) -> Run {
        let numbered = program::path("numbered");
        let script = self.script.clone() + "exec \"$numbered\" \"$@\"";
        let mut command = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
        command.push(numbered.into_os_string());
        command.extend(arguments.iter().map(Into::into));
        let guest = Guest::new(KernelConfig::Release)
            .expect("a kernel")
            .memory_mib(MEMORY_MIB)
            .append(self.options)
            .timeout(Duration::from_secs(1800))
            .command(command);
        let run = set_up(guest).run(Streams::capture()).expect("a guest");
        assert!(
            matches!(run.outcome, Outcome::Panicked(_)),
            "{}",
            said(&run)
        );
        run
    }
}

/// The path of a guest's dump.
fn dump(run: &Run) -> PathBuf {
    match &run.dump {
        Some(Ok(vmcore)) => vmcore.clone(),
        _ => {
            // The output of a command in the crash kernel, if there was one.
            let log = std::fs::read_to_string(run.out.join("crash-kernel.log"));
            panic!("there is no dump: {}{}", log.unwrap_or_default(), said(run))
        }
    }
}

/// The console log of a guest.
pub(crate) fn said(run: &Run) -> String {
    format!(
        "{}{}{}",
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr),
        run.explain()
    )
}

impl Crashed {
    /// Checks the dump, and the same after `makedumpfile` has filtered it as far as it can.
    fn check(&self, check: impl Fn(&Dump)) {
        let whole = Dump::extract(&self.vmcore, &self.directory.path().join("whole"));
        whole.check_crash();
        check(&whole);
        let filtered = self.directory.path().join("vmcore-filtered");
        filter(&self.vmcore, &filtered);
        let filtered = Dump::extract(&filtered, &self.directory.path().join("filtered"));
        assert_eq!(
            filtered, whole,
            "makedumpfile -d 31 took nothing of the traces away"
        );
    }

    /// The dump must have the same traces in each format that each `makedumpfile` has, at each
    /// level.
    pub(crate) fn is_the_same_in_each_format(&self) {
        let whole = Dump::extract(&self.vmcore, &self.directory.path().join("as-it-is"));
        for maker in Makedumpfile::all() {
            for (format, options) in FORMATS {
                if !maker.has(format) {
                    println!("{}: has no {format}", maker.version);
                    continue;
                }
                // A dump has one of two layouts, ELF and kdump's, and each notes in its own way
                // which pages are left out. Compression and flattening do not change that.
                let is_each = ["elf", "zlib"].contains(&format) || counts(0, 1) == 1;
                for level in LEVELS {
                    if !is_each && level != "31" {
                        continue;
                    }
                    let name = format!("{}-{format}-{level}", maker.version);
                    let dump = self.directory.path().join(&name);
                    maker.run(&[&["-d", level][..], options].concat(), &self.vmcore, &dump);
                    let extracted =
                        Dump::extract(&dump, &self.directory.path().join(name.clone() + "-traces"));
                    assert_eq!(extracted, whole, "{name}");
                    // Each has as many bytes as the guest has memory.
                    std::fs::remove_file(&dump).expect("a dump");
                }
            }
        }
    }

    /// With `--last` there must be the later half of the events of the latest trace, whose clock
    /// the crash is told by.
    pub(crate) fn is_cut_by_time(&self, trace: &str) {
        let extract = |name: &str, options: &[&str]| {
            let to = self.directory.path().join(name);
            Dump::extract_as(options, &self.vmcore, &to)
        };
        let (whole, _) = extract("uncut", &["--trace", trace]);
        let (last, later) = whole.later_half();
        let last = format!("{last}ns");
        let (cut, said) = extract("cut", &["--trace", trace, "--last", &last]);
        assert_eq!(cut.printed(), later);
        assert!(said.contains("earlier ones left out"), "{said}");
    }

    /// Returns the one directory `usertrace-TIME` in `parent`, which must have the traces of the
    /// dump.
    pub(crate) fn is_extracted_below(&self, parent: &Path) -> PathBuf {
        let extractions = entries(parent, EXTRACTION);
        let [extracted] = &extractions[..] else {
            panic!("{}: not one extraction", parent.display());
        };
        let here = Dump::extract(&self.vmcore, &self.out().join("for-comparison"));
        assert!(here.events() > 0);
        here.has_the_events_of(extracted);
        extracted.clone()
    }

    /// This dump of the same kernel must have the same traces.
    pub(crate) fn is_the_same_in(&self, dump: &Path) {
        let [there, here] = [(dump, "of-another-dump"), (&self.vmcore, "of-the-dump")]
            .map(|(dump, to)| Dump::extract(dump, &self.out().join(to)));
        assert_eq!(there, here);
    }

    /// The directory with the guest's files and the dump.
    pub(crate) fn out(&self) -> &Path {
        self.directory.path()
    }

    /// A script of drgn must find the same events of this trace.
    pub(crate) fn is_what_drgn_finds(&self, trace: &str) {
        let to = self.directory.path().join("for-drgn");
        Dump::extract(&self.vmcore, &to);
        drgn::agrees(&self.vmcore, trace, &to.join(trace));
    }

    /// Checks that extraction survives each corruption of the dump, which has two traces of these
    /// names. The dump is filtered first, to be small.
    pub(crate) fn survives_corruption(&self, names: [&str; 2]) {
        let small = self.directory.path().join("vmcore-small");
        filter(&self.vmcore, &small);
        corrupt::survives(&small, names);
    }

    /// There must be one trace with one process, which wrote this.
    pub(crate) fn expect(&self, expected: &Expected) {
        self.check(|dump| dump.check(expected));
    }

    /// There must be one trace with one process, which wrote this, and may have lost more.
    pub(crate) fn expect_at_least(&self, writers: &[Writer]) {
        self.check(|dump| dump.check_writers(writers));
    }

    /// There must be these traces: name, whether it is active, and the events of each process that
    /// has any.
    pub(crate) fn expect_traces(&self, traces: &[(&str, bool, &[u64])]) {
        self.check(|dump| dump.check_traces(traces));
    }

    /// There must be these counters of threads: the thread, how many events it had, and whether
    /// there may be more.
    pub(crate) fn expect_counts(&self, threads: &[(u64, u64, bool)]) {
        self.check(|dump| dump.check_counts(threads));
    }

    /// There must be these active traces, in which one process has the first so many of its events,
    /// and has lost the others.
    pub(crate) fn expect_rings(&self, written: u64, traces: &[(&str, u64)]) {
        self.check(|dump| dump.check_rings(written, traces));
    }

    /// Extracts all traces to a new directory of this name, and returns its path.
    pub(crate) fn extract(&self, name: &str) -> PathBuf {
        let to = self.directory.path().join(name);
        Dump::extract(&self.vmcore, &to);
        to
    }

    /// The one process with events in a trace must be this program, and each of its addresses must
    /// lead to a function there.
    pub(crate) fn expect_symbols(&self, trace: &str, program: &str, events: usize) {
        let to = self.extract("for-symbols").join(trace);
        let modules = babeltrace::modules(&to);
        let module = modules.iter().find(|event| {
            event.name == "lttng_ust_statedump:bin_info"
                && event.text("path").ends_with(&format!("/{program}"))
        });
        let module = module.unwrap_or_else(|| panic!("no {program}: {modules:?}"));
        let (base, len) = (module.address("baddr"), module.field("memsz"));
        for named in babeltrace::with_debug_info(&to) {
            assert_eq!(named.len(), events);
            for event in &named {
                let ip = event.address("ip");
                assert!((base..base + len).contains(&ip), "{event:?}");
                let first = event.element("callstack", 0).map(str::to_lowercase);
                assert_eq!(first, Some(format!("{ip:#x}")));
                for expected in [&format!("bin = \"{program}"), "func = \"", "src = \""] {
                    assert!(event.fields.contains(expected), "{event:?}");
                }
            }
        }
    }

    /// There must be no trace.
    pub(crate) fn expect_nothing(&self) {
        self.check(Dump::check_nothing);
    }
}

/// The entries of a directory whose names begin so; none, if there is no such directory.
pub(crate) fn entries(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let entries = entries.map(|entry| entry.expect("an entry"));
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect()
}

impl Drop for Crashed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the console's log: {}", self.console.display());
        }
    }
}

/// The options of `makedumpfile` for each format.
const FORMATS: [(&str, &[&str]); 7] = [
    ("elf", &["-E"]),
    ("zlib", &["-c"]),
    ("lzo", &["-l"]),
    ("snappy", &["-p"]),
    ("zstd", &["-z"]),
    ("flattened-elf", &["-E", "-F"]),
    ("flattened-zlib", &["-c", "-F"]),
];

/// Levels of `makedumpfile`: it leaves out nothing; or zero pages, the cache (without and with
/// private data), users' pages, or free pages, each alone; or all of these.
const LEVELS: [&str; 7] = ["0", "1", "2", "4", "8", "16", "31"];

/// Leaves out all pages that are free, zero, cached, or a user's.
fn filter(from: &Path, to: &Path) {
    Makedumpfile::installed().run(&["-d", "31", "-E"], from, to);
    let bytes = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).expect("a dump").blocks() * 512
    };
    assert!(bytes(to) < bytes(from), "it did filter");
}

/// A `makedumpfile`, which was built with some formats.
struct Makedumpfile {
    program: PathBuf,
    version: String,
    /// Its text about itself.
    said: String,
}

impl Makedumpfile {
    /// The installed `makedumpfile`.
    fn installed() -> Self {
        Self::of("makedumpfile".into())
    }

    /// The installed one, and that of Debian 13, which `scripts/setup` fetches if the installed one
    /// is older.
    fn all() -> Vec<Self> {
        let cache = usertrace_vm::cache_dir().expect("a cache");
        let fetched = cache.join("tools/makedumpfile-1.7.6/makedumpfile");
        let mut all = vec![Self::installed()];
        if fetched.exists() {
            all.push(Self::of(fetched));
        }
        assert!(
            all.iter().any(|maker| maker.version.starts_with("1.7.6")),
            "makedumpfile 1.7.6 (of Debian 13, fetched by scripts/setup) must be there to run this test"
        );
        all
    }

    fn of(program: PathBuf) -> Self {
        let output = Command::new(&program).arg("-v").output();
        let output = output.expect(
            "makedumpfile (Debian package makedumpfile) must be installed to run this test",
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = said.strip_prefix("makedumpfile: version ");
        let version = version.and_then(|rest| rest.split(' ').next());
        Self {
            version: version.expect("its version").to_owned(),
            program,
            said,
        }
    }

    fn has(&self, format: &str) -> bool {
        !self.said.contains(&format!("{format}\tdisabled"))
    }

    fn run(&self, options: &[&str], from: &Path, to: &Path) {
        let mut command = Command::new(&self.program);
        command.args(options).arg(from);
        if options.contains(&"-F") {
            // Flattened ones are written to pipes.
            command.stdout(std::fs::File::create(to).expect("a file"));
        } else {
            command.arg(to);
        }
        let output = command.output().expect("makedumpfile");
        assert!(
            output.status.success(),
            "makedumpfile {} {options:?}: {}{}",
            self.version,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
