//! Starts the actors, restarts those that end, and detects hangs.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syscalls::Sysno;
use usertrace_tests::control::{self, ROOT, Trace};
use usertrace_tests::guest;

use crate::actor::{Actor, call, exit, nap};
use crate::actors::{Role, environment};
use crate::kinds::{Expect, Kind};
use crate::oracle::Usage;
use crate::plan::{Plan, ThreadId};
use crate::run_state::{ACTORS, RunState, millis};
use crate::{files, probe, report};

/// The group that may trace.
pub(crate) const GROUP: u32 = 4_000;
/// The control group of traced programs.
pub(crate) const CGROUP: &str = "/sys/fs/cgroup/adversary";
/// The directory of core dumps.
pub(crate) const CORES: &str = "/tmp/adversary";
/// The initial limits.
const LIMITS: &[(&str, u64)] = &[
    ("limit_total", 64 << 20),
    ("limit_user", 16 << 20),
    ("limit_process", 8 << 20),
    ("limit_dead", 8 << 20),
];
/// How often the run prints its progress.
const BEAT: Duration = Duration::from_secs(15);
/// Texts of the kernel's log that report an error of the kernel.
const SPLATS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "UBSAN: ",
    "Oops",
    "kernel BUG at",
    "refcount_t: ",
    "INFO: task ",
    "rcu: INFO: ",
    "general protection fault",
    "list_add corruption",
    "list_del corruption",
    "ODEBUG: ",
    "suspicious RCU usage",
    "possible circular locking",
    "inconsistent lock state",
    "sleeping function called",
    "panicked at ",
    "pagealloc: ",
];

/// How long a call, or the end of a killed process, may take. On a busy host, the guest's clock may
/// run several times too fast, because the kernel calibrates it at boot.
///
/// In a guest with more CPUs than its host, the holder of a lock may not run for long.
fn patience() -> Duration {
    let seconds = if guest::is_debug() { 480 } else { 180 };
    Duration::from_secs(seconds * (cpus() as u64).div_ceil(2))
}

/// The kernel's own limit for blocked tasks.
const BLOCKED: &str = "/proc/sys/kernel/hung_task_timeout_secs";

/// Makes the kernel print what its CPUs do, and which tasks are blocked.
fn show_tasks() {
    for _ in 0..3 {
        for command in ["l", "w"] {
            let _ = fs::write("/proc/sysrq-trigger", command);
        }
        nap(2000);
    }
}

/// The number of CPUs.
pub(crate) fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| {
        // SAFETY: It asks for a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        usize::try_from(cpus).unwrap_or(1).max(1)
    })
}

/// The roles of the actors.
pub(crate) fn roles(plan: &Plan) -> Vec<Role> {
    let traced = (2 * cpus()).clamp(4, 10);
    let mut roles = vec![Role::Traced; traced];
    roles.extend([
        Role::Consumer,
        Role::Consumer,
        Role::Controller,
        Role::Victim,
    ]);
    roles.push(Role::Environment);
    if cpus() > 2 && !plan.turns {
        roles.extend([Role::Consumer, Role::Controller, Role::Victim]);
    }
    assert!(roles.len() <= ACTORS);
    roles
}

/// The kernel's log, from now on.
struct Log {
    file: File,
    allowed: Vec<String>,
}

impl Log {
    fn open(allowed: Vec<String>) -> Option<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .ok()?;
        // SAFETY: Numbers only.
        unsafe {
            use std::os::fd::AsRawFd as _;
            libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END);
        }
        Some(Self { file, allowed })
    }

    /// The next report of an error of the kernel.
    fn splat(&mut self) -> Option<String> {
        let mut record = [0; 8192];
        loop {
            // An error means that there is no more, or that records were lost.
            let len = match self.file.read(&mut record) {
                Ok(len) => len,
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => continue,
                Err(_) => return None,
            };
            let text = String::from_utf8_lossy(&record[..len]);
            let text = text.split_once(';').map_or("", |(_, text)| text);
            let line = text.lines().next().unwrap_or_default();
            let is_allowed = self.allowed.iter().any(|text| line.contains(&**text));
            if !is_allowed && SPLATS.iter().any(|sign| line.contains(sign)) {
                return Some(line.to_owned());
            }
        }
    }
}

pub(crate) struct Supervisor {
    plan: Plan,
    run: &'static RunState,
    roles: Vec<Role>,
    rounds: Vec<u64>,
    log: Option<Log>,
    begun: Instant,
    /// How the processes ended, and how often.
    pub(crate) ends: BTreeMap<String, u64>,
}

fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

impl Supervisor {
    pub(crate) fn new(plan: Plan, run: &'static RunState, allowed: Vec<String>) -> Self {
        let roles = roles(&plan);
        Self {
            plan,
            run,
            rounds: vec![0; roles.len()],
            roles,
            log: Log::open(allowed),
            begun: Instant::now(),
            ends: BTreeMap::new(),
        }
    }

    /// Creates directories and limits, and sets up the kernel.
    fn prepare(&self) {
        // SAFETY: Numbers only.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let root = Path::new(ROOT);
        std::os::unix::fs::chown(root, None, Some(GROUP)).expect("chgrp of the root");
        fs::set_permissions(root, fs::Permissions::from_mode(0o1775)).expect("chmod of the root");
        write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        let _ = fs::create_dir(CGROUP);
        let _ = fs::create_dir(CORES);
        fs::set_permissions(CORES, fs::Permissions::from_mode(0o777)).expect("a directory");
        write("/proc/sys/kernel/core_pattern", &format!("{CORES}/core.%p"));
        if !files::open_disk() {
            println!("no /dev/ram0: O_DIRECT is not tried");
        }
        files::make_socket();
        for (file, bytes) in LIMITS {
            write(root.join(file), &bytes.to_string());
        }
        // A process id that is reused could match another program's words.
        write("/proc/sys/kernel/pid_max", "4194304");
        // The same limit as for calls.
        if Path::new(BLOCKED).exists() {
            write(BLOCKED, &patience().as_secs().to_string());
        }
        environment::prepare_failures();
        environment::calm();
    }

    /// Starts the process of an actor.
    fn spawn(&mut self, at: usize) {
        let role = self.roles[at];
        let who = ThreadId {
            actor: at,
            round: self.rounds[at],
            thread: 0,
        };
        self.rounds[at] += 1;
        let actor = Actor {
            run: self.run,
            plan: self.plan,
            who,
            is_child: false,
        };
        // SAFETY: This process has one thread.
        match unsafe { libc::fork() } {
            -1 => nap(10),
            0 => {
                become_actor(&actor, role);
                role.run(&actor);
                exit(0);
            }
            pid => {
                self.run.pids[at].store(pid, Ordering::Relaxed);
                self.run.now[at][0].tid.store(pid, Ordering::Relaxed);
            }
        }
    }

    /// Reaps the processes that have ended.
    fn reap(&mut self) {
        loop {
            let mut status = 0_i32;
            // SAFETY: It writes the status.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            let Some(at) =
                (0..self.roles.len()).find(|&at| self.run.pids[at].load(Ordering::Relaxed) == pid)
            else {
                // A grandchild whose parent has died.
                continue;
            };
            self.run.pids[at].store(0, Ordering::Relaxed);
            for now in &self.run.now[at] {
                now.kind.store(0, Ordering::Relaxed);
            }
            let end = if libc::WIFSIGNALED(status) {
                format!("killed by signal {}", libc::WTERMSIG(status))
            } else {
                match libc::WEXITSTATUS(status) {
                    0 => "exit".to_owned(),
                    code if code > 128 => format!("a fault, signal {}", code - 128),
                    code => {
                        self.run.find(&format!(
                            "actor {at} ({:?}) ends with status {code}: a mistake of the adversary's",
                            self.roles[at]
                        ));
                        format!("status {code}")
                    }
                }
            };
            *self.ends.entry(end).or_default() += 1;
        }
    }

    /// Describes a call that lasts too long, if there is one.
    fn hang(&self) -> Option<String> {
        let limit = patience().as_millis() as u64;
        for (at, threads) in self.run.now.iter().enumerate() {
            for now in threads {
                let kind = now.kind.load(Ordering::Acquire) as usize;
                let since = now.since.load(Ordering::Relaxed);
                if kind == 0 || millis().saturating_sub(since) < limit {
                    continue;
                }
                let tid = now.tid.load(Ordering::Relaxed);
                let name = Kind::of(kind - 1).map_or("?", Kind::name);
                return Some(format!(
                    "actor {at} has been in \"{name}\" for {} s; thread {tid}: {}",
                    millis().saturating_sub(since) / 1000,
                    whereabouts(tid)
                ));
            }
        }
        None
    }

    /// Checks actors and the kernel's log. Returns false if the run has to end.
    fn look(&mut self) -> bool {
        self.reap();
        if let Some(splat) = self.log.as_mut().and_then(Log::splat) {
            self.run.find(&format!("the kernel reports: {splat}"));
            if splat.contains("blocked for more than") {
                show_tasks();
            }
        }
        if let Some(hang) = self.hang() {
            self.run.find(&hang);
            show_tasks();
        }
        let is_over = self.begun.elapsed() >= Duration::from_secs(self.plan.seconds);
        !(is_over || self.run.has_findings() || self.run.stops())
    }

    /// Lets all actors run at the same time.
    fn run_together(&mut self) {
        let mut beat = Instant::now();
        while self.look() {
            for at in 0..self.roles.len() {
                if self.run.pids[at].load(Ordering::Relaxed) == 0 {
                    self.spawn(at);
                }
            }
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.tell();
            }
            nap(5);
        }
    }

    /// Lets one actor at a time make one step.
    fn run_in_turns(&mut self) {
        let who = ThreadId {
            actor: ACTORS,
            round: 0,
            thread: 0,
        };
        let mut beat = Instant::now();
        let mut turn = 0;
        while self.look() {
            let mut random = self.plan.stream(who, turn);
            turn += 1;
            let at = random.below(self.roles.len() as u64) as usize;
            // Those that were killed in the last turn.
            self.reap();
            if self.run.pids[at].load(Ordering::Relaxed) == 0 {
                self.spawn(at);
            }
            self.run.set_turn(at as u32 + 1);
            while self.run.turn.load(Ordering::Acquire) != 0 {
                self.reap();
                if self.run.pids[at].load(Ordering::Relaxed) == 0 {
                    // It has ended, after its last step or in the middle of one.
                    self.run.set_turn(0);
                    break;
                }
                if let Some(hang) = self.hang() {
                    self.run.find(&hang);
                    break;
                }
                self.run.sleep_while(at as u32 + 1);
            }
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.tell();
            }
        }
    }

    fn tell(&self) {
        println!(
            "{:4} s, {} steps",
            self.begun.elapsed().as_secs(),
            self.run.steps.load(Ordering::Relaxed)
        );
        let _ = std::io::stdout().flush();
    }

    /// Ends all actors. Kills those that do not end; one that survives is a finding.
    fn stop(&mut self) {
        self.run.stop.store(1, Ordering::Relaxed);
        environment::calm();
        let begun = Instant::now();
        let mut kills = 0;
        loop {
            self.reap();
            let children = children();
            if children.is_empty() {
                return;
            }
            let grace = Duration::from_secs(if guest::is_debug() { 20 } else { 5 });
            if begun.elapsed() > grace * (kills + 1) {
                kills += 1;
                for &pid in &children {
                    let _ = call(Sysno::kill, [pid as usize, libc::SIGKILL as usize]);
                }
            }
            if begun.elapsed() > grace + patience() {
                for pid in children {
                    self.run.find(&format!(
                        "process {pid} does not end although it was killed: {}",
                        whereabouts(pid)
                    ));
                }
                return;
            }
            nap(20);
        }
    }

    /// Frees what keeps traces and processes alive after all actors have ended.
    fn clear(&self) {
        files::drain(&Actor {
            run: self.run,
            plan: self.plan,
            who: ThreadId {
                actor: 0,
                round: 0,
                thread: 0,
            },
            is_child: true,
        });
        control::remove_all();
    }

    /// Waits until the kernel's usage is as before the run.
    fn settle(&self, before: &Usage) {
        self.clear();
        let begun = Instant::now();
        loop {
            let wrong = Usage::take().differences(before);
            if wrong.is_empty() {
                return;
            }
            if begun.elapsed() > patience() {
                for text in wrong {
                    self.run
                        .find(&format!("after all actors have ended, {text}"));
                }
                return;
            }
            nap(500);
        }
    }

    /// A short run that does not count, after which the kernel has filled its caches.
    fn warm_up(&mut self) {
        let seconds = std::mem::replace(
            &mut self.plan.seconds,
            if guest::is_debug() { 8 } else { 3 },
        );
        self.begun = Instant::now();
        drop(Trace::started("warm"));
        self.run_together();
        self.stop();
        self.clear();
        self.reset(seconds);
    }

    /// Resets the state for a new run.
    fn reset(&mut self, seconds: u64) {
        self.plan.seconds = seconds;
        self.run.forget();
        self.rounds.fill(0);
        self.ends.clear();
        self.begun = Instant::now();
    }

    /// Does the whole run. Returns whether it passed.
    pub(crate) fn run(&mut self) -> bool {
        self.prepare();
        self.warm_up();
        let mut well = !self.run.has_findings();
        let mut took = Duration::ZERO;
        if well {
            // Processes that end late belong to the usage before the run.
            nap(1000);
            let before = Usage::take();
            self.begun = Instant::now();
            if self.plan.turns {
                self.run_in_turns();
            } else {
                self.run_together();
            }
            took = self.begun.elapsed();
            self.stop();
            if !self.run.has_findings() {
                self.settle(&before);
            }
            // Reports of the kernel from when memory is freed.
            while let Some(splat) = self.log.as_mut().and_then(Log::splat) {
                self.run.find(&format!("the kernel reports: {splat}"));
            }
            well = report::print(self, self.run, &self.plan, took);
        } else {
            report::findings(self.run, &self.plan);
        }
        let _ = took;
        self.restore();
        well
    }

    fn restore(&self) {
        environment::calm();
        for (file, _) in LIMITS {
            let _ = fs::write(Path::new(ROOT).join(file), "max");
        }
        let root = Path::new(ROOT);
        let _ = std::os::unix::fs::chown(root, None, Some(0));
        let _ = fs::set_permissions(root, fs::Permissions::from_mode(0o755));
    }

    /// Whether this kernel can try a kind of calls.
    pub(crate) fn is_possible(&self, kind: Kind) -> bool {
        match kind {
            Kind::FailRate | Kind::FailNth => environment::can_fail(),
            Kind::Offline | Kind::Online => self.plan.hotplug,
            _ => kind.expect() == Expect::Succeeds,
        }
    }
}

/// The children of this process.
fn children() -> Vec<i32> {
    let own = std::process::id();
    let path = format!("/proc/{own}/task/{own}/children");
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // A kernel without that file.
        Err(_) => return all_children(own),
    };
    let numbers = text.split_whitespace();
    numbers.filter_map(|text| text.parse().ok()).collect()
}

fn all_children(own: u32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        rest.split(' ').nth(1) == Some(&own.to_string())
    })
    .collect()
}

/// The state and the kernel stack of a thread.
fn whereabouts(tid: i32) -> String {
    let read = |name| fs::read_to_string(format!("/proc/{tid}/{name}")).unwrap_or_default();
    let status = read("status");
    let state = status.lines().find(|line| line.starts_with("State:"));
    let stack = read("stack").lines().take(12).collect::<Vec<_>>().join(" ");
    format!(
        "{}, in {}, {stack}",
        state.unwrap_or("gone"),
        read("wchan").trim()
    )
}

/// Turns this process into an actor's.
fn become_actor(actor: &Actor, role: Role) {
    probe::init();
    // SAFETY: Numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    }
    if role == Role::Traced {
        let _ = fs::write(Path::new(CGROUP).join("cgroup.procs"), "0");
        if actor.who.round.is_multiple_of(2) {
            let _ = fs::write("/proc/self/make-it-fail", "1");
        }
    }
    let Some((uid, gid)) = role.user(actor.who.actor) else {
        return;
    };
    // SAFETY: Numbers only, and an empty list.
    let dropped = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
            // Core dumps, and files of its own in /proc.
            && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
    };
    assert!(dropped, "privileges cannot be dropped");
    // SAFETY: Numbers only. The kernel takes this back when privileges change.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Starts the run in a process of its own, and kills it if it hangs. Returns whether it passed.
pub(crate) fn watch(plan: Plan, allowed: Vec<String>) -> bool {
    let run = RunState::new();
    println!("seed {}: {}", plan.seed, plan.again());
    let _ = std::io::stdout().flush();
    // SAFETY: This process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let well = Supervisor::new(plan, run, allowed).run();
        let _ = std::io::stdout().flush();
        exit(i32::from(!well));
    }
    assert!(pid > 0, "fork");
    // The run, and its beginning and end, whose steps have limits of their own.
    let limit = Duration::from_secs(plan.seconds) + 4 * patience();
    let begun = Instant::now();
    loop {
        let mut status = 0_i32;
        // SAFETY: It writes the status.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if ended == pid {
            let well = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) > 1 {
                println!("FAILED: the supervisor ended with {status:#x}");
                report::findings(run, &plan);
            }
            return well;
        }
        if begun.elapsed() > limit {
            println!(
                "FAILED: the supervisor has not ended after {} s: {}",
                begun.elapsed().as_secs(),
                whereabouts(pid)
            );
            report::findings(run, &plan);
            let _ = call(Sysno::kill, [pid as usize, libc::SIGKILL as usize]);
            return false;
        }
        nap(100);
    }
}
