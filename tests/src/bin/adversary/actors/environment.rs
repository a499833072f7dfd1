//! What goes on around programs: memory pressure, CPUs that go and come, kills, and allocations that fail.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use syscalls::Sysno;
use usertrace_tests::random::Random;

use crate::actor::{Actor, Called, exit, nap};
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

/// Where the kernel lets allocations and accesses fail.
const INJECTED: &[&str] = &["failslab", "fail_page_alloc", "fail_usercopy"];
const DEBUG: &str = "/sys/kernel/debug";

fn write(path: impl AsRef<Path>, text: &str) -> Called {
    fs::write(path, text)
        .map(|()| 0)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// The traced programs have hardly any memory for a moment.
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
        // Whom the kernel kills for it follows from no seed.
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

/// A CPU goes, and comes.
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

/// A program that is not one of root's.
fn anybody(actor: &Actor, random: &mut Random) -> Option<i32> {
    let roles = supervisor::roles(&actor.plan);
    let at = random.below(roles.len() as u64) as usize;
    let is_meant = matches!(roles[at], Role::Traced | Role::Consumer);
    let pid = actor.ledger.pids[at].load(Ordering::Relaxed);
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

/// Waits until a process has ended, for a while.
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

/// For a moment, some of what traced programs ask of the kernel fails.
fn fail(actor: &Actor, random: &mut Random) {
    let directory = Path::new(DEBUG).join(pick(random, INJECTED));
    let probability = pick(random, &["1", "5", "20"]);
    let done = actor.around(Kind::FailRate, || {
        write(directory.join("task-filter"), "Y")?;
        write(directory.join("verbose"), "0")?;
        // The kernel's name for allocations that may wait: most of them.
        let _ = write(directory.join("ignore-gfp-wait"), "N");
        let _ = write(directory.join("min-order"), "0");
        write(directory.join("times"), "100")?;
        write(directory.join("probability"), probability)
    });
    nap(random.below(100));
    if done.is_ok() {
        let _ = write(directory.join("probability"), "0");
    }
}

/// Whether the kernel can let calls fail.
pub(crate) fn can_fail() -> bool {
    Path::new(DEBUG).join(INJECTED[0]).exists()
}

/// Whether it can do so by `/proc/PID/fail-nth`; and has it forget what is asked of it by a rate.
pub(crate) fn calm() {
    for name in INJECTED {
        let directory = Path::new(DEBUG).join(name);
        let _ = write(directory.join("probability"), "0");
        let _ = write(directory.join("verbose"), "0");
        let _ = write(directory.join("ignore-gfp-wait"), "N");
        let _ = write(directory.join("min-order"), "0");
    }
    for file in ["memory.high", "memory.max"] {
        let _ = write(Path::new(CGROUP).join(file), "max");
    }
    for cpu in 1..supervisor::cpus() {
        let _ = write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
    }
}

/// Its life.
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
