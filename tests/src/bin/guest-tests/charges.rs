//! The kernel charges a recorder's work to the recorder (F10).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount, umount};
use nix::unistd::{Pid, syncfs};
use tempfile::TempDir;
use usertrace::Outcome;
use usertrace_testing::wait;
use usertrace_tests::accounting::{self, Cgroup};
use usertrace_tests::child::{Child, exit};
use usertrace_tests::control::Trace;
use usertrace_tests::event;
use usertrace_tests::guest::scaled;
use usertrace_tests::record::Recorder;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![recording_is_not_charged_to_the_program];

/// The guest's block device, which is in memory.
const DEVICE: &str = "/dev/ram0";

/// A file system on the guest's block device: the kernel counts no writes to tmpfs and 9p.
struct Disk(TempDir);

impl Disk {
    fn new() -> Self {
        let made = Command::new("/sbin/mke2fs")
            .args(["-q", "-F", DEVICE])
            .output();
        let made = made.expect("e2fsprogs is installed");
        assert!(made.status.success(), "{made:?}");
        let directory = tempfile::tempdir().expect("a directory");
        let (kind, none) = (Some("ext2"), None::<&str>);
        mount(Some(DEVICE), directory.path(), kind, MsFlags::empty(), none)
            .expect("the kernel has CONFIG_EXT2_FS");
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes all dirty pages to the device.
    fn sync(&self) {
        syncfs(File::open(self.path()).expect("its root")).expect("it is written");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount(self.path());
    }
}

/// Returns the charges of a process: its input and output, its group's bytes to disk and time.
fn charges(pid: Pid, group: &Cgroup) -> (BTreeMap<String, u64>, u64, u64) {
    (accounting::io(pid), group.bytes_to_disk(), group.time())
}

/// The program writes all events, then sleeps while the recorder works. Its charges must not
/// change.
///
/// Requirements: F10
fn recording_is_not_charged_to_the_program() {
    let count = scaled(200_000);
    let disk = Disk::new();
    let (of_program, of_recorder) = (Cgroup::with_io("program"), Cgroup::with_io("recorder"));
    let trace = Trace::started_with("charged", 1 << 20, 16);
    let mut child = Child::spawn(|link| {
        of_program.join();
        event::attach();
        for number in 0..count {
            if event::write(0, number) != Outcome::Recorded {
                exit(2);
            }
        }
        link.send(0);
        link.receive();
    });
    child.link.receive();
    let stat = format!("/proc/{}/stat", child.pid());
    wait::until("the program sleeps", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "))
    });
    let before = charges(child.pid(), &of_program);
    assert_eq!((before.0["write_bytes"], before.1), (0, 0));

    let output = disk.path().join("trace");
    let recorder = of_recorder.around(|| Recorder::start(&trace, &output));
    wait::until("all was read", || {
        let rings = trace.stats().rings;
        let mut of_events = rings.iter().filter(|ring| ring.channel == "main");
        of_events.all(|ring| ring.consumed == ring.head)
    });
    disk.sync();
    assert_eq!(charges(child.pid(), &of_program), before);

    let bytes = count * event::RECORD_LEN as u64;
    let io = accounting::io(recorder.pid());
    assert!(io["write_bytes"] >= bytes, "{bytes} in {io:?}");
    let to_disk = of_recorder.bytes_to_disk();
    assert!(to_disk >= bytes, "{bytes} in {to_disk}");
    let time = of_recorder.time();
    assert!(time > 0);

    // The recorder finishes after the program's death. Nor does that charge the program's group.
    child.link.send(0);
    child.join();
    recorder.finish(&trace);
    disk.sync();
    assert_eq!(of_program.bytes_to_disk(), 0);
}
