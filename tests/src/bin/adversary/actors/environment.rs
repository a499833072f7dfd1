//! The environment of programs: memory pressure, CPU hot-plug, kills, and failing allocations.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use syscalls::Sysno;
use usertrace_tests::random::Random;

use crate::actor::{Actor, CallResult, exit, nap};
use crate::actors::{Role, Weighted, choose};
use crate::kinds::Kind;
use crate::plan::pick;
use crate::supervisor::{self, CGROUP};

type Step = fn(&Actor, &mut Random);

const STEPS: &[Weighted<Step>] = &[
    (10, pressure),
    (2, compact),
    (6, hotplug),
    (14, kill),
    (8, freeze),
    (10, fail),
];

/// The kernel's fault injections.
const INJECTED: &[&str] = &["failslab", "fail_page_alloc", "fail_usercopy"];
const DEBUG: &str = "/sys/kernel/debug";

fn write(path: impl AsRef<Path>, text: &str) -> CallResult {
    fs::write(path, text)
        .map(|()| 0)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// Leaves the traced programs hardly any memory for a moment.
fn pressure(actor: &Actor, random: &mut Random) {
    let group = Path::new(CGROUP);
    let (file, least) = pick(
        random,
        &[
            ("memory.high", 1_u64 << 20),
            ("memory.high", 8 << 20),
            ("memory.max", 48 << 20),
        ],
    );
    if actor.plan.turns && file == "memory.max" {
        // Which process the kernel kills does not follow from the seed.
        return;
    }
    let text = (least + random.below(16 << 20)).to_string();
    let _ = actor.around(Kind::Pressure, || write(group.join(file), &text));
    nap(random.below(60));
    let _ = write(group.join(file), "max");
}

fn compact(actor: &Actor, random: &mut Random) {
    let path = pick(
        random,
        &["/proc/sys/vm/compact_memory", "/proc/sys/vm/drop_caches"],
    );
    let _ = actor.around(Kind::Compact, || write(path, "1"));
}

/// Takes a CPU offline, and online again.
fn hotplug(actor: &Actor, random: &mut Random) {
    if !actor.plan.hotplug {
        return;
    }
    let cpus = supervisor::cpus().max(2);
    let path = format!(
        "/sys/devices/system/cpu/cpu{}/online",
        1 + random.below(cpus as u64 - 1)
    );
    let _ = actor.around(Kind::Offline, || write(&path, "0"));
    nap(random.below(100));
    let _ = actor.around(Kind::Online, || write(&path, "1"));
}

/// A random program that is not root's.
fn anybody(actor: &Actor, random: &mut Random) -> Option<i32> {
    let roles = supervisor::roles(&actor.plan);
    let at = random.below(roles.len() as u64) as usize;
    let is_meant = matches!(roles[at], Role::Traced | Role::Consumer);
    let pid = actor.run.pids[at].load(Ordering::Relaxed);
    (is_meant && pid > 1).then_some(pid)
}

fn kill(actor: &Actor, random: &mut Random) {
    let Some(pid) = anybody(actor, random) else {
        return;
    };
    let _ = actor.call(
        Kind::Kill,
        Sysno::kill,
        [pid as usize, libc::SIGKILL as usize],
    );
    if actor.plan.turns {
        await_death(pid);
    }
}

/// Waits until a process has ended, but not for long.
pub(crate) fn await_death(pid: i32) {
    for _ in 0..5000 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return;
        }
        nap(1);
    }
}

fn freeze(actor: &Actor, random: &mut Random) {
    let Some(pid) = anybody(actor, random) else {
        return;
    };
    let _ = actor.around(Kind::Freeze, || {
        let stopped = crate::actor::call(Sysno::kill, [pid as usize, libc::SIGSTOP as usize]);
        nap(random.below(30));
        let _ = crate::actor::call(Sysno::kill, [pid as usize, libc::SIGCONT as usize]);
        stopped
    });
}

/// Injects faults into calls of traced programs for a moment.
fn fail(actor: &Actor, random: &mut Random) {
    let directory = Path::new(DEBUG).join(pick(random, INJECTED));
    let probability = pick(random, &["1", "5", "20"]);
    let done = actor.around(Kind::FailRate, || {
        write(directory.join("times"), "100")?;
        write(directory.join("probability"), probability)
    });
    nap(random.below(100));
    if done.is_ok() {
        let _ = write(directory.join("probability"), "0");
    }
}

/// The address range of the tracer's functions, without those that the linker put elsewhere.
fn tracer() -> Option<Range<u64>> {
    let text = fs::read_to_string("/proc/kallsyms").ok()?;
    let mut functions: Vec<(u64, bool)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some("t" | "T"), Some(name)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).ok()?;
        functions.push((address, name.contains("ltt_main")));
    }
    functions.sort_unstable();
    // The longest run of them.
    let runs = functions.chunk_by(|one, other| one.1 == other.1);
    let run = runs.filter(|run| run[0].1).max_by_key(|run| run.len())?;
    Some(run[0].0..run[run.len() - 1].0)
}

/// Whether the kernel can inject faults below the tracer's functions only.
pub(crate) fn can_fail() -> bool {
    // The supervisor calls this first, because only root sees the files.
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        Path::new(DEBUG)
            .join(INJECTED[0])
            .join("require-start")
            .exists()
    })
}

/// Configures the fault injections, without turning them on.
pub(crate) fn prepare_failures() {
    if !can_fail() {
        return;
    }
    let tracer = tracer().expect("/proc/kallsyms has the tracer's functions");
    for name in INJECTED {
        let directory = Path::new(DEBUG).join(name);
        let set = |file: &str, text: &str| {
            let path = directory.join(file);
            fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        };
        set("require-start", &format!("{:#x}", tracer.start));
        set("require-end", &format!("{:#x}", tracer.end));
        set("task-filter", "Y");
        set("verbose", "0");
        // Allocations that may wait, which most are, and those of one page fail, too.
        for file in ["ignore-gfp-wait", "ignore-gfp-highmem"] {
            let _ = write(directory.join(file), "N");
        }
        let _ = write(directory.join("min-order"), "0");
    }
}

/// Turns the fault injections and limits off.
pub(crate) fn calm() {
    for name in INJECTED {
        let _ = write(Path::new(DEBUG).join(name).join("probability"), "0");
    }
    for file in ["memory.high", "memory.max"] {
        let _ = write(Path::new(CGROUP).join(file), "max");
    }
    for cpu in 1..supervisor::cpus() {
        let _ = write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
    }
}

/// Runs the environment until its end.
pub(crate) fn run(actor: &Actor) {
    for number in 0..1000 {
        if !actor.begin_step() {
            break;
        }
        let mut random = actor.stream(number);
        let (which, step) = choose(&mut random, STEPS);
        step(actor, &mut random);
        actor.end_step(number, which);
        nap(20 + random.below(80));
    }
    let _ = actor.wait_for_turn();
    exit(0);
}
