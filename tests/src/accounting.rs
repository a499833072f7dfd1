//! The kernel's accounting of processes and control groups.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use nix::unistd::Pid;

use usertrace_testing::wait;

const CGROUPS: &str = "/sys/fs/cgroup";

/// A control group.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a control group, and moves this process into it.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn enter(name: &str) -> Self {
        let group = Self::new(name);
        group.join();
        group
    }

    /// Creates a control group.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn new(name: &str) -> Self {
        fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+memory")
            .expect("the kernel has CONFIG_MEMCG");
        let path = PathBuf::from(CGROUPS).join(name);
        // A group that an earlier test left behind will do: tests compare values before and after.
        let _ = fs::create_dir(&path);
        Self { path }
    }

    /// Moves this process into it.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn join(&self) {
        fs::write(self.path.join("cgroup.procs"), "0").expect("this is root");
    }

    /// Creates a control group for which the kernel also counts input and output.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn with_io(name: &str) -> Self {
        fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+io")
            .expect("the kernel has CONFIG_BLK_CGROUP");
        Self::new(name)
    }

    /// Runs `body`, whose child processes stay in this group. Then moves this process to the root
    /// group.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn around<T>(&self, body: impl FnOnce() -> T) -> T {
        self.join();
        let value = body();
        fs::write(format!("{CGROUPS}/cgroup.procs"), "0").expect("this is root");
        value
    }

    /// Returns the bytes that the group wrote to block devices.
    ///
    /// # Panics
    /// If the file is not what it should be.
    #[must_use]
    pub fn bytes_to_disk(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("io.stat")).expect("io.stat");
        let words = text.split_whitespace();
        words
            .filter_map(|word| word.strip_prefix("wbytes="))
            .map(|bytes| bytes.parse::<u64>().expect("a number"))
            .sum()
    }

    /// Returns the CPU time of the group's processes, in microseconds.
    ///
    /// # Panics
    /// If the file is not what it should be.
    #[must_use]
    pub fn time(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("cpu.stat")).expect("cpu.stat");
        let mut lines = text.lines();
        let time = lines.find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        time.expect("a number")
    }

    /// Sets the group's limit to this much more than its current usage. None: no limit.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn allow_more(&self, bytes: Option<u64>) {
        let limit = match bytes {
            Some(bytes) => {
                let text = fs::read_to_string(self.path.join("memory.current"));
                let now: u64 = text
                    .expect("memory.current")
                    .trim()
                    .parse()
                    .expect("a number");
                (now + bytes).to_string()
            }
            None => "max".to_owned(),
        };
        fs::write(self.path.join("memory.max"), limit).expect("memory.max");
    }

    /// Throttles its processes while they have more memory than this (`memory.high`).
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn slow_down_above(&self, bytes: u64) {
        fs::write(self.path.join("memory.high"), bytes.to_string()).expect("memory.high");
    }

    /// Kills all its processes, and waits until they are gone.
    ///
    /// # Panics
    /// If they do not end.
    pub fn kill(&self) {
        fs::write(self.path.join("cgroup.kill"), "1").expect("cgroup.kill");
        wait::until("all processes of a group end", || {
            let events = fs::read_to_string(self.path.join("cgroup.events"));
            events.expect("cgroup.events").contains("populated 0")
        });
    }

    /// Pages of the kernel's memory that are charged to the group, without page tables.
    ///
    /// The kernel updates its sums late, so the number may be a few hundred pages off.
    ///
    /// # Panics
    /// If the file is not what it should be.
    #[must_use]
    pub fn kernel_pages(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("memory.stat")).expect("memory.stat");
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
                .unwrap_or_else(|| panic!("no {name} in {text}"))
        };
        let (kernel, tables): (u64, u64) = (value("kernel"), value("pagetables"));
        kernel.saturating_sub(tables) / 4096
    }
}

/// Returns the values in a process's `/proc/PID/io`, by their names.
///
/// # Panics
/// If the file is not what it should be.
#[must_use]
pub fn io(pid: Pid) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))
        .expect("the kernel has CONFIG_TASK_IO_ACCOUNTING");
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect()
}

/// This process's resident memory, in pages.
///
/// # Panics
/// If the file is not what it should be.
#[must_use]
pub fn resident_pages() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    text.split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number")
}
