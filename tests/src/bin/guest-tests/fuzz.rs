//! Random operations of several processes on the control file system and on consumer files (F2,
//! F4).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use usertrace::Outcome;
use usertrace_sys::uapi::{LTT_IOC_CONSUME, LTT_IOC_END_SUBBUF, LTT_IOC_INFO, LTT_IOC_POSITIONS};
use usertrace_testing::wait;
use usertrace_tests::areas::Areas;
use usertrace_tests::child::{self, Child};
use usertrace_tests::control::{self, ROOT};
use usertrace_tests::guest::{from_env, is_debug};
use usertrace_tests::random::Random;
use usertrace_tests::{event, raw};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![fuzzed_control_files_do_no_harm];

/// The variable for the duration in seconds. Ten minutes were run on the debug kernel.
const SECONDS: &str = "USERTRACE_FUZZ_SECONDS";
const WORKERS: usize = 4;
const PAGE: usize = 4096;
/// The most rings whose positions are requested.
const RINGS: usize = 200;
/// How often a worker is restarted: it keeps files and buffers.
const TURN: Duration = Duration::from_secs(2);

/// Few names, so that workers conflict.
const TRACES: [&str; 5] = ["a", "b", "c", "a.b-c_d", "x"];
const CHANNELS: [&str; 6] = ["main", "control", "one", "two", "three", "a"];
const FILES: [&str; 21] = [
    "start",
    "allocate",
    "stats",
    "filter",
    "filter_mask",
    "subbuf_size",
    "subbuf_count",
    "scope",
    "prefault",
    "mode",
    "flight",
    "global",
    "abi",
    "memory",
    "reserved",
    "limit_total",
    "limit_user",
    "limit_process",
    "limit_dead",
    "",
    "nothing",
];
/// Valid words, and almost valid ones.
const WORDS: [&str; 44] = [
    "0",
    "1",
    "2",
    "-1",
    "max",
    "4096",
    "8192",
    "65536",
    "1048576",
    "33554432",
    "67108864",
    "4097",
    "18446744073709551615",
    "18446744073709551616",
    "0x0",
    "0xffffffff",
    "0x100000000",
    "cpu",
    "mm_cid",
    "thread",
    "global",
    "discard",
    "overwrite",
    "block",
    "*",
    "!*",
    "a",
    "!a",
    "a:b",
    "*:*",
    "?",
    "test:*",
    "!test:numbered",
    "numbered",
    "a b c",
    "a\tb\n",
    "",
    "\n",
    " 1 ",
    "1 1",
    "%s%n",
    "/",
    "..",
    "\u{e9}",
];

fn one_of<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[random.below(words.len() as u64) as usize]
}

/// A path of some depth, which may not exist.
fn path(random: &mut Random) -> PathBuf {
    let mut path = PathBuf::from(ROOT);
    let depth = random.below(4);
    if depth > 0 {
        path.push(one_of(random, &TRACES));
    }
    if depth > 1 {
        path.push(one_of(random, &CHANNELS));
    }
    if depth != 1 || random.below(2) == 0 {
        path.push(one_of(random, &FILES));
    }
    path
}

/// Text to write: a word, several words, or random bytes.
fn text(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0..5 => one_of(random, &WORDS).into(),
        5 => {
            let count = random.below(300);
            let words = (0..count).map(|_| one_of(random, &WORDS));
            words.collect::<Vec<_>>().join(" ").into()
        }
        6 => (0..random.below(64)).map(|_| random.word() as u8).collect(),
        _ => vec![b'a' + random.below(26) as u8; random.below(5000) as usize],
    }
}

/// A consumer file, if there is one.
fn consumer_file(random: &mut Random) -> Option<PathBuf> {
    let directory = Path::new(ROOT)
        .join(one_of(random, &TRACES))
        .join(one_of(random, &CHANNELS));
    let entries = fs::read_dir(directory).ok()?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(|first: char| first.is_ascii_digit())
        })
        .collect();
    (!files.is_empty()).then(|| files.swap_remove(random.below(files.len() as u64) as usize))
}

/// An ioctl with a known or a random request, and a random argument.
fn ioctl(random: &mut Random, file: &File) {
    let request = match random.below(6) {
        0 => LTT_IOC_INFO,
        1 => LTT_IOC_POSITIONS,
        2 | 3 => LTT_IOC_CONSUME,
        4 => LTT_IOC_END_SUBBUF,
        _ => 0x4c00 | random.word() as u32 & 0xffff_00ff,
    };
    // The kernel writes as much as the request's size says (14 bits), and as many strides (of at
    // most a page) as there is said to be room for.
    let mut argument = vec![0u64; (1 << 14) / size_of::<u64>()];
    let mut rings = vec![0u64; RINGS * PAGE / size_of::<u64>()];
    for word in &mut argument[..64] {
        *word = match random.below(4) {
            0 => random.word(),
            1 => random.below(4),
            2 => random.below(1 << 17) & !7,
            _ => 0,
        };
    }
    if random.below(2) == 0 {
        // Where positions can be stored.
        argument[0] = rings.as_mut_ptr().expose_provenance() as u64;
        argument[1] = random.below(RINGS as u64);
        if random.below(2) == 0 {
            argument[2] = 8 * random.below(1 + PAGE as u64 / 8);
        }
    }
    let address = match random.below(8) {
        0 => random.word() as usize,
        _ => argument.as_mut_ptr().expose_provenance(),
    };
    // The kernel writes to the address in a random argument 0, whatever the request's size: only
    // allowed where this one's own memory is.
    if request & 0xff == LTT_IOC_POSITIONS & 0xff && argument[0] != rings.as_ptr().addr() as u64 {
        argument[0] = [0, u64::MAX, 1 << 63][random.below(3) as usize];
    }
    if address != argument.as_ptr().addr() && request & 0x8000_0000 != 0 {
        // Likewise.
        return;
    }
    // SAFETY: what the kernel may write to are the arrays, or addresses that no process can have.
    unsafe { libc::ioctl(file.as_raw_fd(), request.into(), address) };
}

/// Maps a part of the rings, and reads there.
fn map(random: &mut Random, file: &File) {
    let len = (1 + random.below(64) as usize) * 4096;
    let offset = random.below(256) as i64 * 4096;
    let protection = [
        libc::PROT_READ,
        libc::PROT_READ,
        libc::PROT_READ | libc::PROT_WRITE,
    ];
    let flags = [libc::MAP_SHARED, libc::MAP_SHARED, libc::MAP_PRIVATE];
    // SAFETY: a new mapping, read byte by byte, and unmapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            len,
            protection[random.below(3) as usize],
            flags[random.below(3) as usize],
            file.as_raw_fd(),
            offset,
        );
        if at != libc::MAP_FAILED {
            for page in (0..len).step_by(4096) {
                at.cast::<u8>().add(page).read_volatile();
            }
            libc::munmap(at, len);
        }
    }
}

/// Runs a traced process for a moment, which behaves well or not.
fn traced(random: &mut Random) {
    let seed = random.word();
    let child = Child::spawn(|_| {
        let areas = Areas::map(0);
        let slots: Vec<_> = std::iter::from_fn(|| areas.next()).collect();
        for (slot, _) in &slots {
            // A trace may go at any time, and its pages are then those of another one, or of none.
            let channels = 1 + seed % 3;
            for channel in 0..channels as usize {
                let ring = slot.ring(channel, 0);
                if ring.len == 0 {
                    continue;
                }
                ring.write_records(1 + seed % 100);
                if seed.is_multiple_of(5) {
                    ring.head()
                        .store(seed, std::sync::atomic::Ordering::Relaxed);
                }
            }
            let _ = raw::switch(&areas.calls, slot.address);
            let _ = raw::switch(&areas.calls, seed as usize);
        }
    });
    let mut child = child;
    child.wait();
}

/// Does random operations for a while.
fn disturb(seed: u64, until: Instant) {
    let mut random = Random::with(seed);
    let mut files: Vec<File> = Vec::new();
    while Instant::now() < until {
        match random.below(16) {
            0 => drop(fs::create_dir(
                Path::new(ROOT).join(one_of(&mut random, &TRACES)),
            )),
            1 => drop(fs::create_dir(path(&mut random))),
            2 if random.below(4) == 0 => drop(fs::remove_dir(path(&mut random))),
            3 => {
                let trace = Path::new(ROOT).join(one_of(&mut random, &TRACES));
                drop(fs::write(trace.join("start"), "1"));
            }
            4 => traced(&mut random),
            5..9 => {
                if let Ok(mut file) = OpenOptions::new().write(true).open(path(&mut random)) {
                    let _ = file.write(&text(&mut random));
                }
            }
            9 | 10 => {
                if let Ok(file) = File::open(path(&mut random)) {
                    let mut read = Vec::new();
                    let _ = file.take(1 << 20).read_to_end(&mut read);
                }
            }
            11 => {
                let opened = consumer_file(&mut random)
                    .and_then(|path| OpenOptions::new().read(true).write(true).open(path).ok());
                if let Some(file) = opened {
                    files.push(file);
                }
                if files.len() > 8 {
                    files.swap_remove(0);
                }
            }
            12 => drop(fs::remove_dir(
                Path::new(ROOT).join(one_of(&mut random, &TRACES)),
            )),
            _ if files.is_empty() => {}
            13 => {
                let file = &files[random.below(files.len() as u64) as usize];
                map(&mut random, file);
            }
            _ => {
                let file = &files[random.below(files.len() as u64) as usize];
                ioctl(&mut random, file);
            }
        }
    }
}

/// Requirements: F2, F4
fn fuzzed_control_files_do_no_harm() {
    let limits =
        ["limit_total", "limit_user", "limit_process", "limit_dead"].map(control::Limit::new);
    wait::until("nothing is held", || control::memory().total == 0);
    let seconds = from_env(SECONDS, if is_debug() { 60 } else { 15 });
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random::new();
    while Instant::now() < end {
        let until = end.min(Instant::now() + TURN);
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let seed = random.word();
                Child::spawn(move |_| disturb(seed, until))
            })
            .collect();
        workers.into_iter().for_each(Child::join);
    }
    control::remove_all();
    drop(limits);
    wait::until("the memory is back", || {
        let memory = control::memory();
        (memory.total, memory.dead) == (0, 0)
    });
    // Tracing still works.
    let trace = control::Trace::started("after");
    child::run(|| {
        event::attach();
        assert_eq!(event::write(0, 0), Outcome::Recorded);
    });
    wait::until("there is something", || {
        !trace.consumer_files("main").is_empty()
    });
}
