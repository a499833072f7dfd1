//! Traces in reserved memory after a reset, without a crash kernel or a dump (C7).
//!
//! Each boot of a machine here is a guest of its own, which starts with the memory that the guest
//! before left. That equals a reset, but the host can read and change the memory between boots.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use usertrace_sys::crash::LTT_CRASH_RESERVED_MAGIC;
use usertrace_tests::program;
use usertrace_vm::{Guest, KernelConfig, Outcome, Run, Streams};

use crate::guest::{Crash, said};
use crate::traces::{Dump, Expected, Writer};

const MEMORY_MIB: u64 = 512;
const PAGE: u64 = 4096;
/// Without KASLR: in so little memory, the kernel itself is often where the boot before had its
/// buffers.
const RESERVE: &str = "reserve_mem=16M:4096:ltt nokaslr";

const TRACE: &str = "mkdir $ltt/crash; echo 1 > $ltt/crash/start\n";
const EXTRACT: &str =
    "\"$usertrace\" extract --previous-boot -o /out/traces --json=/out/traces.json\n";

/// A machine.
struct Machine {
    directory: TempDir,
    boots: u32,
}

/// The results of one boot.
struct Boot {
    run: Run,
    out: PathBuf,
}

impl Machine {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            boots: 0,
        }
    }

    fn memory(&self) -> PathBuf {
        self.directory.path().join("memory")
    }

    /// Boots the machine with these kernel options, and runs the script.
    fn boot(&mut self, options: &str, script: &str) -> Boot {
        let out = self.directory.path().join(self.boots.to_string());
        self.boots += 1;
        let script = format!("set -e; numbered=$1; usertrace=$2; ltt=/sys/kernel/ltt\n{script}");
        let mut command = vec!["sh".into(), "-c".into(), script.into(), "sh".into()];
        command.extend(["numbered", "usertrace"].map(|name| program::path(name).into_os_string()));
        let run = Guest::new(KernelConfig::Release)
            .expect("a kernel")
            .memory_mib(MEMORY_MIB)
            .memory_file(self.memory())
            .append(options)
            .out(&out)
            .timeout(Duration::from_secs(1800))
            .command(command)
            .run(Streams::capture())
            .expect("a guest");
        Boot { run, out }
    }

    /// Like [`boot`](Self::boot), and the script must panic the kernel.
    fn boot_and_panic(&mut self, script: &str) -> Boot {
        let boot = self.boot(RESERVE, script);
        let panicked = matches!(boot.run.outcome, Outcome::Panicked(_));
        assert!(panicked, "{}", said(&boot.run));
        boot
    }

    /// Like [`boot`](Self::boot), and the script must end with this status.
    fn boot_and_exit(&mut self, options: &str, script: &str, status: u8) -> Boot {
        let boot = self.boot(options, script);
        let ended = match boot.run.outcome {
            Outcome::Passed => Some(0),
            Outcome::Failed(status) => Some(status),
            _ => None,
        };
        assert_eq!(ended, Some(status), "{}", said(&boot.run));
        boot
    }

    /// The addresses of the parts of reserved memory that boots have used.
    fn parts(&self) -> Vec<u64> {
        let memory = File::open(self.memory()).expect("the memory");
        let pages = (0..MEMORY_MIB << 20).step_by(PAGE as usize);
        let is_part = |&page: &u64| {
            let mut word = [0; 8];
            memory.read_exact_at(&mut word, page).expect("a page");
            u64::from_le_bytes(word) == LTT_CRASH_RESERVED_MAGIC
        };
        pages.filter(is_part).collect()
    }

    /// Changes a bit.
    fn change(&self, address: u64) {
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.memory())
            .expect("the memory");
        let mut byte = [0];
        memory.read_exact_at(&mut byte, address).expect("a byte");
        memory
            .write_all_at(&[byte[0] ^ 1], address)
            .expect("a byte");
    }
}

impl Boot {
    /// The traces that the boot extracted.
    fn extracted(&self) -> Dump {
        Dump::extracted(0, &self.out.join("traces"))
    }

    /// A time from a file that the boot wrote, in nanoseconds since 1970.
    fn time(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.out.join(name)).expect("a time");
        text.trim().parse().expect("a number")
    }

    fn said(&self) -> String {
        said(&self.run)
    }

    fn console(&self) -> String {
        let console = std::fs::read(&self.run.console).expect("the console's log");
        String::from_utf8_lossy(&console).into_owned()
    }
}

fn expected(events: u64) -> Expected {
    Expected {
        lost: 0,
        writers: vec![Writer::exactly(0, events), Writer::exactly(1, events)],
    }
}

fn numbered(events: u64) -> String {
    format!("\"$numbered\" --panic --threads 2 --events {events}\n")
}

/// Each boot finds the traces of the previous one, and none of its own, although it traces, too.
///
/// Requirements: C7
pub(crate) fn each_boot_finds_the_previous_boots_traces() {
    let mut machine = Machine::new();
    // By its own clock, which may be wrong on a busy host.
    let wrote =
        "date +%s%N > /out/before; \"$numbered\" --threads 2 --events 1000; date +%s%N > /out/after
                 echo c > /proc/sysrq-trigger\n";
    let boot = machine.boot_and_panic(&(TRACE.to_owned() + wrote));
    let [before, after] = ["before", "after"].map(|name| boot.time(name));

    let copy = "cp $ltt/previous_boot /out/copy\n";
    // A block device, to which crash kernels save dumps as well.
    let from_device = "cat /out/copy >/dev/ram0
        \"$usertrace\" extract /dev/ram0 -o /out/of-device --json=/out/of-device.json\n";
    let second = machine.boot_and_panic(
        &(TRACE.to_owned()
            + "\"$numbered\" --events 3000\n"
            + EXTRACT
            + copy
            + from_device
            + "\"$numbered\" --panic --events 500\n"),
    );
    let first = second.extracted();
    let of_device = Dump::extracted(0, &second.out.join("of-device"));
    assert_eq!(of_device, first);
    first.check(&expected(1000));
    // Its times are those of its own boot.
    let (from, to) = first.times().expect("events");
    assert!(
        before <= from && to <= after,
        "{before} {from} {to} {after}"
    );
    let of_copy = Dump::extract(
        &second.out.join("copy"),
        &machine.directory.path().join("copied"),
    );
    assert_eq!(of_copy, first);

    // A boot without a trace, before anybody has read it, takes nothing away.
    machine.boot_and_exit(RESERVE, "", 0);
    let last = machine.boot_and_exit(RESERVE, EXTRACT, 0);
    last.extracted()
        .check_traces(&[("crash", true, &[3000, 500])]);
}

/// The same, in one machine that resets itself.
///
/// Requirements: C7
pub(crate) fn machine_that_resets_itself_finds_its_traces() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "set -e; numbered=$1; usertrace=$2; ltt=/sys/kernel/ltt
                  if grep -q '^previous_boot none' $ltt/reserved; then
                  mkdir $ltt/crash; echo 1 > $ltt/crash/start; \"$numbered\" --events 700 >/dev/null
                  echo b > /proc/sysrq-trigger; sleep 100; fi\n";
    let mut command = vec![
        "sh".into(),
        "-c".into(),
        (script.to_owned() + EXTRACT).into(),
    ];
    command.push("sh".into());
    command.extend(["numbered", "usertrace"].map(|name| program::path(name).into_os_string()));
    let run = Guest::new(KernelConfig::Release)
        .expect("a kernel")
        .restarts(true)
        // The kernel boots twice.
        .silence(Duration::from_secs(120))
        .append(RESERVE)
        .out(directory.path())
        .command(command)
        .run(Streams::capture())
        .expect("a guest");
    assert_eq!(run.outcome, Outcome::Passed, "{}", said(&run));
    let dump = Dump::extracted(0, &directory.path().join("traces"));
    dump.check_traces(&[("crash", true, &[700])]);
}

/// The command says why there is no previous boot.
///
/// Requirements: C7
pub(crate) fn missing_previous_boot_is_explained() {
    let said = Machine::new().boot_and_exit("", EXTRACT, 1).said();
    assert!(said.contains("no memory was reserved"), "{said}");
    // Another machine, whose memory was not reserved.
    let said = Machine::new().boot_and_exit(RESERVE, EXTRACT, 4).said();
    assert!(said.contains("has left nothing"), "{said}");
}

/// A root page that was changed is rejected, and the log and the file system say so.
///
/// Requirements: C7
pub(crate) fn changed_root_page_is_rejected_and_reported() {
    let mut machine = Machine::new();
    machine.boot_and_panic(&(TRACE.to_owned() + &numbered(1000)));
    let [part] = machine.parts()[..] else {
        panic!("not one part: {:x?}", machine.parts());
    };
    // Of its number.
    machine.change(part + 24);
    let boot = machine.boot_and_exit(RESERVE, &("cat $ltt/reserved\n".to_owned() + EXTRACT), 1);
    let said = boot.said();
    assert!(
        said.contains("previous_boot not intact: its sum is wrong"),
        "{said}"
    );
    assert!(said.contains("is not intact: its sum is wrong"), "{said}");
    let console = boot.console();
    assert!(
        console.contains("the previous boot is not intact: its sum is wrong"),
        "{console}"
    );
}

/// Full memory loses events, and reports that. All events that it has are intact.
///
/// Requirements: C7
pub(crate) fn full_reserved_memory_loses_events_and_reports_it() {
    const EVENTS: u64 = 300_000;
    let mut machine = Machine::new();
    let script = "mkdir $ltt/crash; cd $ltt/crash; echo 4194304 > main/subbuf_size; echo 8 > main/subbuf_count
                  echo 1 > start\n";
    machine.boot_and_panic(&(script.to_owned() + &numbered(EVENTS)));
    let boot = machine.boot_and_exit(RESERVE, EXTRACT, 0);
    let summary = std::fs::read(boot.out.join("traces.json")).expect("a summary");
    let summary: Value = serde_json::from_slice(&summary).expect("JSON");
    let process = &summary["traces"][0]["processes"][0];
    let number = |name: &str| process[name].as_u64().expect("a number");
    assert_eq!(number("damaged"), 0, "{process}");
    assert!(number("holes") > 0, "{process}");
    // Half of the memory is this boot's, and most of that the rings'.
    let len = usertrace_tests::event::RECORD_LEN as u64;
    let events = number("events");
    assert!(
        (6 << 20) / len < events && events < (8 << 20) / len,
        "{process}"
    );
}

/// A dump of a machine with reserved memory is extracted as any other.
///
/// Requirements: C7
pub(crate) fn dump_with_reserved_memory_is_extracted() {
    Crash::of((4096, 16))
        .on_kernel_with(RESERVE)
        .numbered(&["--panic", "--events", "100"])
        .expect(&Expected {
            lost: 0,
            writers: vec![Writer::exactly(0, 100)],
        });
}
