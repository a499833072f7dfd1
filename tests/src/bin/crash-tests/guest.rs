//! A guest that panics, and its dump.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use usertrace_tests::program;
use usertrace_vm::{Guest, KernelConfig, Outcome, Streams};

use crate::traces::{Dump, Expected, Writer};

/// How a kernel is to be panicked.
#[derive(Debug)]
pub(crate) struct Crash {
    script: String,
}

/// What a panicked guest left.
#[derive(Debug)]
pub(crate) struct Crashed {
    directory: TempDir,
    vmcore: PathBuf,
    console: PathBuf,
}

impl Crash {
    /// In a guest with an active trace `crash`, whose main channel has this size and count of sub-buffers.
    pub(crate) fn of((subbuf_size, subbuf_count): (u64, u64)) -> Self {
        let crash = Self::without_trace();
        crash.before(&format!(
            "mkdir $ltt/crash; cd $ltt/crash
             echo 4096 > main/subbuf_size
             echo {subbuf_count} > main/subbuf_count
             echo {subbuf_size} > main/subbuf_size
             echo 1 > start"
        ))
    }

    /// In a guest that never had a trace.
    pub(crate) fn without_trace() -> Self {
        Self {
            script: "set -e; numbered=$1; ltt=/sys/kernel/ltt; shift\n".into(),
        }
    }

    /// Something that the shell is to do before.
    pub(crate) fn before(mut self, line: &str) -> Self {
        self.script += line;
        self.script.push('\n');
        self
    }

    /// Runs `numbered`, which must panic the kernel.
    pub(crate) fn numbered(self, arguments: &[&str]) -> Crashed {
        let numbered = program::path("numbered");
        let directory = tempfile::tempdir().expect("a directory");
        let script = self.script + "exec \"$numbered\" \"$@\"";
        let mut command = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
        command.push(numbered.into_os_string());
        command.extend(arguments.iter().map(Into::into));
        let run = Guest::new(KernelConfig::Release)
            .expect("a kernel")
            .crash(true)
            .memory_mib(512)
            .timeout(Duration::from_secs(300))
            .out(directory.path())
            .command(command)
            .run(Streams::capture())
            .expect("a guest");
        let said = format!(
            "{}{}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr),
            run.explain()
        );
        assert!(matches!(run.outcome, Outcome::Panicked(_)), "{said}");
        let vmcore = match run.dump {
            Some(Ok(vmcore)) => vmcore,
            _ => panic!("there is no dump: {said}"),
        };
        Crashed {
            directory,
            vmcore,
            console: run.console,
        }
    }
}

impl Crashed {
    /// Checks the dump, and the same after `makedumpfile` has filtered it as far as it can.
    fn check(&self, check: impl Fn(&Dump)) {
        let whole = Dump::extract(&self.vmcore, &self.directory.path().join("whole"));
        check(&whole);
        let filtered = self.directory.path().join("vmcore-filtered");
        filter(&self.vmcore, &filtered);
        let filtered = Dump::extract(&filtered, &self.directory.path().join("filtered"));
        assert_eq!(
            filtered, whole,
            "makedumpfile -d 31 took nothing of the traces away"
        );
    }

    /// The dump must have the same traces in each format that `makedumpfile` has, at the lowest level and at the highest.
    pub(crate) fn is_the_same_in_each_format(&self) {
        let whole = Dump::extract(&self.vmcore, &self.directory.path().join("as-it-is"));
        for (name, format) in FORMATS {
            for level in ["0", "31"] {
                let name = format!("{name}-{level}");
                let dump = self.directory.path().join(&name);
                makedumpfile(&[&["-d", level][..], format].concat(), &self.vmcore, &dump);
                let extracted =
                    Dump::extract(&dump, &self.directory.path().join(name.clone() + "-traces"));
                assert_eq!(extracted, whole, "{name}");
                // Each has as many bytes as the guest has memory.
                std::fs::remove_file(&dump).expect("a dump");
            }
        }
    }

    /// There must be one trace with one process, which wrote this.
    pub(crate) fn expect(&self, expected: &Expected) {
        self.check(|dump| dump.check(expected));
    }

    /// There must be one trace with one process, which wrote this, and may have lost more.
    pub(crate) fn expect_at_least(&self, writers: &[Writer]) {
        self.check(|dump| dump.check_writers(writers));
    }

    /// There must be these traces: name, whether it is active, and the events of each process that has any.
    pub(crate) fn expect_traces(&self, traces: &[(&str, bool, &[u64])]) {
        self.check(|dump| dump.check_traces(traces));
    }

    /// There must be no trace.
    pub(crate) fn expect_nothing(&self) {
        self.check(Dump::check_nothing);
    }
}

impl Drop for Crashed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the console's log: {}", self.console.display());
        }
    }
}

/// What `makedumpfile` is told for a format.
const FORMATS: [(&str, &[&str]); 7] = [
    ("elf", &["-E"]),
    ("zlib", &["-c"]),
    ("lzo", &["-l"]),
    ("snappy", &["-p"]),
    ("zstd", &["-z"]),
    ("flattened-elf", &["-E", "-F"]),
    ("flattened-zlib", &["-c", "-F"]),
];

/// Leaves out all pages that are free, zero, cached, or a user's.
fn filter(from: &Path, to: &Path) {
    makedumpfile(&["-d", "31", "-E"], from, to);
    let bytes = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).expect("a dump").blocks() * 512
    };
    assert!(bytes(to) < bytes(from), "it did filter");
}

fn makedumpfile(options: &[&str], from: &Path, to: &Path) {
    let mut command = Command::new("makedumpfile");
    command.args(options).arg(from);
    if options.contains(&"-F") {
        // Flattened ones are written to pipes.
        command.stdout(std::fs::File::create(to).expect("a file"));
    } else {
        command.arg(to);
    }
    let output = command
        .output()
        .expect("makedumpfile (Debian package makedumpfile) must be installed to run this test");
    assert!(
        output.status.success(),
        "makedumpfile {options:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
