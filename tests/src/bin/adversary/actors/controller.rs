//! Root: creates, changes and removes traces, and inspects the traced programs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use syscalls::Sysno;
use usertrace_tests::control::ROOT;
use usertrace_tests::random::Random;

use crate::actor::{Actor, CallResult, call, exit};
use crate::actors::{Weighted, choose};
use crate::kinds::{ADVICE, Kind};
use crate::plan::{one_in, pick};
use crate::scene::{PAGE, Range, SCENE};
use crate::supervisor::GROUP;

/// Traces of the controllers together: fewer than there may be, so that the group finds a place.
const TRACES: u64 = 9;

type Step = fn(&mut Controller, &Actor, &mut Random);

const STEPS: &[Weighted<Step>] = &[
    (30, Controller::make),
    (5, Controller::make_wrong),
    (16, Controller::remove),
    (14, Controller::make_channel),
    (6, Controller::remove_channel),
    (30, Controller::geometry),
    (20, Controller::rules),
    (20, Controller::mode),
    (60, Controller::start),
    (20, Controller::allocate),
    (30, Controller::read),
    (12, Controller::wrong),
    (8, Controller::limit),
    (6, Controller::change_mode),
    (4, Controller::odd),
    (4, Controller::hold),
    (10, Controller::advise),
    (10, Controller::memory),
    (10, Controller::map_files),
    (6, Controller::descriptor),
    (6, Controller::vm),
    (3, Controller::ptrace),
];

#[derive(Default)]
struct Controller {
    held: Vec<File>,
    /// The trace that is being created.
    making: Option<PathBuf>,
}

/// Changes of a trace before it is started.
const CHANGES: &[Weighted<Step>] = &[
    (6, Controller::make_channel),
    (3, Controller::remove_channel),
    (6, Controller::geometry),
    (3, Controller::rules),
    (1, Controller::mode),
];

/// The result of a file operation as that of a call.
fn called<T>(result: io::Result<T>) -> CallResult {
    result
        .map(|_| 0)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

fn write(path: &Path, text: &str) -> CallResult {
    let file = OpenOptions::new().write(true).open(path);
    called(file.and_then(|mut file| file.write_all(text.as_bytes())))
}

/// A traced program or a reader, if there is one.
fn other(actor: &Actor, random: &mut Random) -> Option<usize> {
    let at = random.below(actor.run.pids.len() as u64) as usize;
    (0..actor.run.pids.len())
        .map(|more| (at + more) % actor.run.pids.len())
        .filter(|&at| at != actor.who.actor)
        .map(|at| actor.run.pids[at].load(Ordering::Relaxed))
        .find(|&pid| pid > 1)
        .map(|pid| pid as usize)
}

/// A trace area of the process.
fn area_of(pid: usize, random: &mut Random) -> Option<Range> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let all: Vec<_> = text
        .lines()
        .filter(|line| line.contains("[ltt]") || line.contains("/ltt/"))
        .filter_map(|line| {
            let (range, _) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            let (start, end) = (number(start)?, number(end)?);
            Some(Range {
                start,
                len: end - start,
            })
        })
        .collect();
    let at = random.below(all.len().max(1) as u64) as usize;
    all.get(at).copied()
}

impl Controller {
    fn trace(&self, random: &mut Random) -> PathBuf {
        match &self.making {
            Some(path) => path.clone(),
            None => Path::new(ROOT).join(format!("t{}", random.below(TRACES))),
        }
    }

    fn channel(&self, random: &mut Random) -> PathBuf {
        let name = pick(random, &["main", "main", "main", "a", "b", "control"]);
        self.trace(random).join(name)
    }

    fn make(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.trace(random);
        let made = actor.around(Kind::Mkdir, || called(fs::create_dir(&path)));
        if made.is_ok() {
            // So small that thousands of programs can have some.
            let size = pick(random, &["4096", "4096", "8192", "16384"]);
            let count = pick(random, &["2", "4", "16"]);
            for channel in ["main", "control"] {
                let _ = write(&path.join(channel).join("subbuf_size"), "4096");
                let _ = write(&path.join(channel).join("subbuf_count"), count);
                let _ = write(&path.join(channel).join("subbuf_size"), size);
            }
            self.making = Some(path.clone());
            for _ in 0..random.below(8) {
                let (_, change) = choose(random, CHANGES);
                change(self, actor, random);
            }
            self.making = None;
            if one_in(random, 2) {
                let _ = actor.around(Kind::Start, || write(&path.join("start"), "1"));
            }
        }
    }

    fn make_wrong(&mut self, actor: &Actor, random: &mut Random) {
        let name = pick(
            random,
            &[
                "a name",
                "n#",
                "this-name-is-longer-than-all-that-there-may-be",
                "ä",
                "abi",
                "limit_user",
            ],
        );
        let path = Path::new(ROOT).join(name);
        let _ = actor.around(Kind::MkdirWrong, || called(fs::create_dir(&path)));
    }

    fn remove(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.trace(random);
        let _ = actor.around(Kind::Rmdir, || called(fs::remove_dir(&path)));
    }

    fn make_channel(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.trace(random).join(pick(random, &["a", "b"]));
        let made = actor.around(Kind::MkdirChannel, || called(fs::create_dir(&path)));
        if made.is_ok() {
            let _ = write(&path.join("subbuf_size"), "4096");
            let _ = write(&path.join("subbuf_count"), "4");
        }
    }

    fn remove_channel(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.trace(random).join(pick(random, &["a", "b"]));
        let _ = actor.around(Kind::RmdirChannel, || called(fs::remove_dir(&path)));
    }

    fn geometry(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.channel(random);
        let (kind, file, text) = match random.below(5) {
            0 => (
                Kind::Geometry,
                "subbuf_size",
                pick(random, &["4096", "8192", "65536"]),
            ),
            1 => (
                Kind::Geometry,
                "subbuf_count",
                pick(random, &["2", "4", "8", "16"]),
            ),
            2 => (
                Kind::Scope,
                "scope",
                pick(random, &["cpu", "mm_cid", "thread", "global"]),
            ),
            3 => (Kind::Scope, "global", pick(random, &["0", "1"])),
            _ => (
                Kind::Prefault,
                "prefault",
                pick(random, &["0", "0", "0", "1"]),
            ),
        };
        let _ = actor.around(kind, || write(&path.join(file), text));
    }

    fn rules(&mut self, actor: &Actor, random: &mut Random) {
        let directory = if one_in(random, 2) {
            self.trace(random)
        } else {
            self.channel(random)
        };
        let (kind, file, text) = match random.below(4) {
            0 => (
                Kind::Mask,
                "filter_mask",
                pick(random, &["0xffffffff", "0", "4096", "0xff"]),
            ),
            1 => (
                Kind::Contexts,
                "contexts",
                pick(
                    random,
                    &[
                        "vtid",
                        "vtid procname",
                        "cpu_id ip app.request",
                        "vpid mnt_ns",
                    ],
                ),
            ),
            _ => (
                Kind::Filter,
                "filter",
                pick(
                    random,
                    &["1", "0", "libc:*", "!libc:free", "a:b c:d ?x*", "free"],
                ),
            ),
        };
        let directory = if kind == Kind::Contexts {
            self.channel(random)
        } else {
            directory
        };
        let _ = actor.around(kind, || write(&directory.join(file), text));
    }

    fn mode(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.channel(random);
        let (file, text) = match random.below(3) {
            0 => ("flight", pick(random, &["0", "1"])),
            _ => ("mode", pick(random, &["discard", "overwrite", "block"])),
        };
        let _ = actor.around(Kind::Mode, || write(&path.join(file), text));
    }

    fn start(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.trace(random).join("start");
        if random.below(3) == 0 {
            let _ = actor.around(Kind::Stop, || write(&path, "0"));
        } else {
            let _ = actor.around(Kind::Start, || write(&path, "1"));
        }
    }

    fn allocate(&mut self, actor: &Actor, random: &mut Random) {
        let path = self.trace(random).join("allocate");
        let _ = actor.around(Kind::Allocate, || write(&path, "1"));
    }

    fn read(&mut self, actor: &Actor, random: &mut Random) {
        let path = match random.below(8) {
            0 => Path::new(ROOT).join(pick(
                random,
                &["abi", "memory", "reserved", "limit_user", "limit_dead"],
            )),
            1..4 => self.trace(random).join("stats"),
            4 => self.trace(random).join(pick(
                random,
                &["start", "allocate", "filter", "filter_mask"],
            )),
            5 => {
                let path = self.channel(random);
                let _ = actor.around(Kind::ControlRead, || {
                    called(fs::read_dir(&path).map(Iterator::count))
                });
                return;
            }
            _ => self.channel(random).join(pick(
                random,
                &[
                    "subbuf_size",
                    "scope",
                    "mode",
                    "prefault",
                    "contexts",
                    "filter",
                ],
            )),
        };
        let _ = actor.around(Kind::ControlRead, || {
            called(File::open(&path).and_then(|mut file| {
                let mut text = Vec::new();
                if one_in(random, 4) {
                    // Only the beginning.
                    text = vec![0; 100];
                    return file.read(&mut text);
                }
                file.read_to_end(&mut text)
            }))
        });
    }

    /// Writes bytes that a control file should refuse, or almost.
    fn wrong(&mut self, actor: &Actor, random: &mut Random) {
        let directory = match random.below(3) {
            0 => self.trace(random),
            _ => self.channel(random),
        };
        let file = pick(
            random,
            &[
                "start",
                "stats",
                "allocate",
                "filter",
                "filter_mask",
                "subbuf_size",
                "subbuf_count",
                "scope",
                "mode",
                "prefault",
                "contexts",
                "flight",
            ],
        );
        let mut bytes = vec![0_u8; 1 + random.below(200) as usize];
        match random.below(3) {
            0 => bytes.fill_with(|| random.word() as u8),
            1 => bytes.fill_with(|| b"01 *?!abc:._-\n"[random.below(14) as usize]),
            _ => bytes = format!("{}", random.word() >> random.below(64)).into_bytes(),
        }
        let path = directory.join(file);
        // No large sizes: they only take memory from the others.
        let is_large = file.starts_with("subbuf") && bytes.len() < 12;
        if is_large {
            return;
        }
        let _ = actor.around(Kind::ControlWrong, || {
            let file = OpenOptions::new().write(true).open(&path);
            called(file.and_then(|mut file| file.write_all(&bytes)))
        });
    }

    fn limit(&mut self, actor: &Actor, random: &mut Random) {
        let (file, least) = pick(
            random,
            &[
                ("limit_total", 16_u64 << 20),
                ("limit_user", 4 << 20),
                ("limit_process", 1 << 20),
                ("limit_dead", 1 << 20),
            ],
        );
        let path = Path::new(ROOT).join(file);
        let text = match random.below(8) {
            0 => "0".to_owned(),
            1 => (least / 4).to_string(),
            // Back to where nobody is held up by it.
            _ => (4 * least).to_string(),
        };
        let _ = actor.around(Kind::ControlLimit, || write(&path, &text));
    }

    fn change_mode(&mut self, actor: &Actor, random: &mut Random) {
        let path = if one_in(random, 2) {
            self.trace(random)
        } else {
            self.channel(random)
        };
        let mut name = path.into_os_string().into_encoded_bytes();
        name.push(0);
        let at = name.as_ptr() as usize;
        let group = pick(random, &[GROUP, GROUP, 0]) as usize;
        let mode = pick(random, &[0o770_usize, 0o750, 0o700, 0o770]);
        let _ = actor.around(Kind::ControlMode, || {
            call(Sysno::chmod, [at, mode])?;
            call(Sysno::chown, [at, usize::MAX, group])
        });
    }

    fn odd(&mut self, actor: &Actor, random: &mut Random) {
        let (from, to) = (self.trace(random), self.trace(random));
        let channel = self.channel(random);
        let _ = actor.around(Kind::ControlOdd, || {
            called(match random.below(5) {
                0 => fs::rename(&from, &to),
                1 => fs::rename(channel.join("mode"), channel.join("other")),
                2 => fs::hard_link(from.join("start"), from.join("link")),
                3 => fs::remove_file(from.join("start")),
                _ => fs::write(channel.join("new"), "1"),
            })
        });
    }

    /// Keeps files open while their traces are removed.
    fn hold(&mut self, _actor: &Actor, random: &mut Random) {
        if self.held.len() > 8 {
            self.held.clear();
        }
        let path = match random.below(3) {
            0 => self.trace(random),
            1 => self.channel(random),
            _ => self.trace(random).join("stats"),
        };
        self.held.extend(File::open(path));
        for file in &self.held {
            let mut text = [0; 64];
            let _ = (&*file).read(&mut text);
        }
    }

    fn advise(&mut self, actor: &Actor, random: &mut Random) {
        let Some(pid) = other(actor, random) else {
            return;
        };
        let Some(area) = area_of(pid, random) else {
            return;
        };
        let Ok(pidfd) = call(Sysno::pidfd_open, [pid, 0]) else {
            return;
        };
        let vector = [area.start, area.len];
        let (_, advice) = pick(random, ADVICE);
        let advice = if advice == 23 { 21 } else { advice };
        let _ = actor.call(
            Kind::OthersAdvise,
            Sysno::process_madvise,
            [pidfd, vector.as_ptr() as usize, 1, advice as usize, 0],
        );
        let _ = call(Sysno::close, [pidfd]);
    }

    fn memory(&mut self, actor: &Actor, random: &mut Random) {
        let Some(pid) = other(actor, random) else {
            return;
        };
        let Some(area) = area_of(pid, random) else {
            return;
        };
        let path = format!("/proc/{pid}/mem\0");
        let cwd = libc::AT_FDCWD as usize;
        let open = [cwd, path.as_ptr() as usize, libc::O_RDWR as usize, 0];
        let Ok(fd) = call(Sysno::openat, open) else {
            return;
        };
        let at = area.start + PAGE * random.below((area.len / PAGE) as u64) as usize;
        let name = pick(random, &[Sysno::pread64, Sysno::pwrite64]);
        let own = SCENE.scratch();
        let done = actor.call(Kind::OthersMem, name, [fd, own, PAGE, at]);
        self.judge(actor, pid, "/proc/PID/mem", area, done);
        let _ = call(Sysno::close, [fd]);
    }

    /// Reports an access from outside that succeeded, if the address is still in an area.
    fn judge(&self, actor: &Actor, pid: usize, what: &str, area: Range, done: CallResult) {
        if done.is_err() {
            return;
        }
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let range = format!("{:x}-{:x} ", area.start, area.start + area.len);
        let is_there = text
            .lines()
            .any(|line| line.starts_with(&range) && line.contains("[ltt]"));
        if is_there {
            actor.find(&format!(
                "{what} reaches an area of process {pid}, {area:x?}"
            ));
        }
    }

    fn map_files(&mut self, actor: &Actor, random: &mut Random) {
        let Some(pid) = other(actor, random) else {
            return;
        };
        let Some(Range { start, len }) = area_of(pid, random) else {
            return;
        };
        let path = format!("/proc/{pid}/map_files/{start:x}-{:x}\0", start + len);
        let cwd = libc::AT_FDCWD as usize;
        let flags = pick(random, &[libc::O_RDONLY, libc::O_RDWR, libc::O_PATH]) as usize;
        let done = actor.call(
            Kind::OthersMapFiles,
            Sysno::openat,
            [cwd, path.as_ptr() as usize, flags, 0],
        );
        let Ok(fd) = done else {
            return;
        };
        let rights = pick(random, &[1_usize, 3]);
        let offset = pick(random, &[0, len, PAGE]);
        let again = actor.call(
            Kind::OthersMapFilesMap,
            Sysno::mmap,
            [0, len, rights, libc::MAP_SHARED as usize, fd, offset],
        );
        if let Ok(at) = again {
            let is_area = crate::scene::is_area(at);
            if is_area {
                actor.find(&format!(
                    "the file of an area of process {pid} is mapped by /proc/PID/map_files"
                ));
            }
            let _ = crate::probe::read(at);
            let _ = call(Sysno::munmap, [at, len]);
        }
        let _ = call(Sysno::close, [fd]);
    }

    fn descriptor(&mut self, actor: &Actor, random: &mut Random) {
        let Some(pid) = other(actor, random) else {
            return;
        };
        let Ok(pidfd) = call(Sysno::pidfd_open, [pid, 0]) else {
            return;
        };
        let fd = 3 + random.below(20) as usize;
        if let Ok(got) = actor.call(Kind::OthersFd, Sysno::pidfd_getfd, [pidfd, fd, 0]) {
            let rights = [got, 2 * PAGE, 1, libc::MAP_SHARED as usize];
            let [fd, len, read, shared] = rights;
            if let Ok(at) = call(Sysno::mmap, [0, len, read, shared, fd, 0]) {
                let _ = crate::probe::read(at);
                let _ = call(Sysno::munmap, [at, len]);
            }
            let _ = call(Sysno::close, [got]);
        }
        let _ = call(Sysno::close, [pidfd]);
    }

    fn vm(&mut self, actor: &Actor, random: &mut Random) {
        let Some(pid) = other(actor, random) else {
            return;
        };
        let Some(area) = area_of(pid, random) else {
            return;
        };
        let local = [SCENE.scratch(), PAGE];
        let remote = [area.start, PAGE];
        let name = pick(random, &[Sysno::process_vm_readv, Sysno::process_vm_writev]);
        let done = actor.call(
            Kind::OthersVm,
            name,
            [
                pid,
                local.as_ptr() as usize,
                1,
                remote.as_ptr() as usize,
                1,
                0,
            ],
        );
        self.judge(
            actor,
            pid,
            "process_vm_readv or process_vm_writev",
            area,
            done,
        );
    }

    fn ptrace(&mut self, actor: &Actor, random: &mut Random) {
        let Some(pid) = other(actor, random) else {
            return;
        };
        const SEIZE: usize = 0x4206;
        const INTERRUPT: usize = 0x4207;
        const DETACH: usize = 17;
        const PEEKDATA: usize = 2;
        /// Milliseconds that a process may take to stop. On a busy host it takes long.
        const SEIZED: usize = 100_000;
        let Some(area) = area_of(pid, random) else {
            return;
        };
        let done = actor.around(Kind::OthersPtrace, || {
            call(Sysno::ptrace, [SEIZE, pid, 0, 0])?;
            let stopped = call(Sysno::ptrace, [INTERRUPT, pid, 0, 0]);
            let mut status = 0_i32;
            let mut peeked = Err(libc::EAGAIN);
            // A process that is left seized and running would stop later, for good.
            for _ in 0..SEIZED {
                let flags = (libc::__WALL | libc::WNOHANG) as usize;
                let found = call(Sysno::wait4, [pid, &raw mut status as usize, flags, 0]);
                if found != Ok(0) {
                    let mut word = 0_u64;
                    let to = &raw mut word as usize;
                    peeked = call(Sysno::ptrace, [PEEKDATA, pid, area.start, to]);
                    let _ = std::hint::black_box(word);
                    break;
                }
                crate::actor::nap(1);
            }
            let _ = std::hint::black_box(status);
            let _ = call(Sysno::ptrace, [DETACH, pid, 0, 0]);
            stopped.and(peeked)
        });
        self.judge(actor, pid, "ptrace", area, done);
    }
}

/// Runs the controller until its end.
pub(crate) fn run(actor: &Actor) {
    let pid = std::process::id();
    SCENE.begin(pid);
    let mut controller = Controller::default();
    let mut random = actor.stream(u64::MAX);
    for number in 0..200 + random.below(2000) {
        if !actor.begin_step() {
            break;
        }
        let mut random = actor.stream(number);
        let (which, step) = choose(&mut random, STEPS);
        step(&mut controller, actor, &mut random);
        actor.end_step(number, which);
        if !actor.plan.turns {
            // Lets programs run between two changes.
            crate::actor::nap(random.below(4));
        }
    }
    let _ = actor.wait_for_turn();
    exit(0);
}
