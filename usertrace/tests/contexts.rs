//! Tests contexts of channels (F7) on a fake kernel.
//!
//! Each part runs in a forked process, so that it has a fresh runtime.

use std::ffi::{CStr, CString};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use usertrace::__private::init_with;
use usertrace::context::{self, DefineError, NAME_MAX};
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace::{Outcome, Status, event};
use usertrace_sys::Scope;
use usertrace_testing::counts::counts;

usertrace_testing::numbered_event!(n);

usertrace::tracepoint! {
    mod text {
        provider: "test",
        name: "text",
        loglevel: Info,
        fields: { n: u8, text: str }
    }
}

const ACCEPT: u8 = 0;
const CONTEXT: u8 = 2;
const MAIN: usize = 1;

const ALL: [&str; 16] = [
    "vtid",
    "procname",
    "cpu_id",
    "ip",
    "vpid",
    "cgroup_ns",
    "ipc_ns",
    "mnt_ns",
    "net_ns",
    "pid_ns",
    "time_ns",
    "user_ns",
    "uts_ns",
    "app.request",
    "app.nobody",
    "callstack",
];

fn small() -> Sizes {
    Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [4, 16],
    }
}

fn update() {
    // SAFETY: the runtime's handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
}

/// Starts a trace whose channels have these contexts.
fn traced(fake: &'static Fake, contexts: &[(u8, &str)]) -> usize {
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().unwrap();
    ask(fake, slot, contexts);
    fake.start(slot);
    update();
    slot
}

fn ask(fake: &Fake, slot: usize, contexts: &[(u8, &str)]) {
    let mut rules = vec![(0, ACCEPT, "*")];
    rules.extend(
        contexts
            .iter()
            .map(|&(channel, name)| (channel, CONTEXT, name)),
    );
    fake.set_rules(slot, &rules);
}

/// The value of a context of an event, in a channel with these contexts.
fn value<'a>(contexts: &usertrace_ring::schema::Contexts, seen: &'a Seen, name: &str) -> &'a [u8] {
    let mut rest = &seen.contexts[..];
    for field in &contexts.fields {
        let (this, behind) = rest.split_at(field.kind.len(rest).unwrap());
        if field.name == name {
            return this;
        }
        rest = behind;
    }
    panic!("no {name}");
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[inline(never)]
fn record_here(n: u64) -> Outcome {
    event!(numbered, n)
}

fn rename(name: &CStr) {
    // SAFETY: the name ends with NUL; the call changes this thread's name.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

fn gettid() -> u64 {
    // SAFETY: the call takes no pointers.
    unsafe { libc::gettid() as u64 }
}

static REQUEST: AtomicU64 = AtomicU64::new(0);

/// Runs a part in a forked process.
fn apart(name: &str, part: impl FnOnce()) {
    assert_eq!(wait(child(part)), 0, "{name}");
}

/// All contexts have the values of the event's thread, in rings of each scope, for records of each
/// length.
fn values_are_those_of_the_event(scope: Scope) {
    let fake = Fake::with_scope(small(), scope);
    let contexts = ALL.map(|name| (MAIN as u8, name));
    let slot = traced(fake, &contexts);
    usertrace::context!("request", &REQUEST).unwrap();
    let texts = ["", "short", &"m".repeat(300), &"l".repeat(2500)];
    let thread = std::thread::spawn(move || {
        rename(c"a thread");
        REQUEST.store(17, Ordering::Relaxed);
        assert_eq!(record_here(1), Outcome::Recorded);
        REQUEST.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(record_here(2), Outcome::Recorded);
        gettid()
    });
    let tid = thread.join().unwrap();
    for text in texts {
        assert_eq!(event!(text, 3, text), Outcome::Recorded);
    }
    let described = fake.contexts(0, slot, MAIN).unwrap();
    let names: Vec<_> = described.fields.iter().map(|f| &f.name[..]).collect();
    assert_eq!(names, ALL);
    let mut events = fake.events(0, slot);
    events.sort_by_key(|seen| seen.time);
    assert_eq!(events.len(), 2 + texts.len());
    let get = |seen, name| number(value(&described, seen, name));
    for (n, (seen, request)) in events.iter().zip([17, u64::MAX]).enumerate() {
        assert_eq!(number(&seen.payload), 1 + n as u64);
        assert_eq!(get(seen, "vtid"), tid);
        assert_eq!(
            value(&described, seen, "procname"),
            b"a thread\0\0\0\0\0\0\0\0"
        );
        assert_eq!(get(seen, "app.request"), request);
        let start = record_here as *const () as u64;
        let ip = get(seen, "ip");
        assert!((start..start + 2048).contains(&ip), "{ip:#x} {start:#x}");
        let callstack = value(&described, seen, "callstack");
        let (count, addresses) = callstack.split_at(4);
        let count = u32::from_le_bytes(count.try_into().unwrap());
        assert!((1..=16).contains(&count) && addresses.len() == 8 * count as usize);
        assert_eq!(number(&addresses[..8]), ip);
    }
    for (seen, text) in events[2..].iter().zip(texts) {
        assert_eq!(seen.payload, [b"\x03", text.as_bytes(), b"\0"].concat());
        assert_eq!(get(seen, "vtid"), gettid());
    }
    for seen in &events {
        assert_eq!(get(seen, "vpid"), u64::from(std::process::id()));
        // SAFETY: the call takes no pointers.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u64;
        assert!(get(seen, "cpu_id") < cpus);
        if scope == Scope::Cpu {
            assert!(u64::from(seen.cpu) < cpus);
        }
        for name in ALL.iter().filter(|name| name.ends_with("_ns")) {
            let file = format!("/proc/self/ns/{}", name.trim_end_matches("_ns"));
            let inode = std::fs::metadata(file).unwrap().ino();
            assert_eq!(get(seen, name), inode, "{name}");
        }
        assert_eq!(get(seen, "app.nobody"), 0);
    }
}

/// Threads query their cached contexts again in a child, on request, and for a new trace.
fn cached_contexts_are_renewed() {
    let fake = Fake::new(small());
    let contexts = [(1, "procname"), (1, "vtid"), (1, "vpid")];
    let slot = traced(fake, &contexts);
    let name = |process, slot| {
        let described = fake.contexts(process, slot, MAIN).unwrap();
        let events = fake.events(process, slot);
        let last = events.iter().max_by_key(|seen| seen.time).unwrap();
        let name = value(&described, last, "procname");
        let numbers = ["vtid", "vpid"].map(|name| number(value(&described, last, name)));
        let name = CStr::from_bytes_until_nul(name).unwrap();
        (name.to_str().unwrap().to_owned(), numbers)
    };
    let own = [gettid(), u64::from(std::process::id())];
    let recorded = |n| assert_eq!(record_here(n), Outcome::Recorded);
    rename(c"first");
    recorded(1);
    assert_eq!(name(0, slot), ("first".into(), own));
    rename(c"second");
    recorded(2);
    assert_eq!(name(0, slot), ("first".into(), own));
    context::renew();
    recorded(3);
    assert_eq!(name(0, slot), ("second".into(), own));
    rename(c"third");
    let other = traced(fake, &contexts);
    recorded(4);
    assert_eq!(name(0, other), ("third".into(), own));
    rename(c"fourth");
    apart("child", || recorded(5));
    let (child, numbers) = name(1, slot);
    assert_eq!(child, "fourth");
    assert!(numbers[0] == numbers[1] && numbers[0] != own[0]);
}

/// Each thread reports its own contexts, even if there are more threads than the library has cache
/// entries, or if its entry belonged to a thread that has ended.
fn many_threads_have_their_own_contexts() {
    const AT_A_TIME: u64 = 1030;
    const LATER: u64 = 10;
    let fake = Fake::new(small());
    let slot = traced(fake, &[(1, "vtid"), (1, "procname")]);
    let name = |n: u64| format!("thread {n}");
    let start = |n, until: Arc<Barrier>| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let thread = thread.spawn(move || {
            rename(&CString::new(name(n)).unwrap());
            assert_eq!(record_here(n), Outcome::Recorded);
            until.wait();
            gettid()
        });
        thread.unwrap()
    };
    let together = Arc::new(Barrier::new(AT_A_TIME as usize));
    let threads: Vec<_> = (0..AT_A_TIME).map(|n| start(n, together.clone())).collect();
    let mut tids: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    for n in AT_A_TIME..AT_A_TIME + LATER {
        tids.push(start(n, Arc::new(Barrier::new(1))).join().unwrap());
    }
    let described = fake.contexts(0, slot, MAIN).unwrap();
    let events = fake.events(0, slot);
    assert_eq!(events.len(), tids.len());
    for seen in &events {
        let n = number(&seen.payload);
        let said = CStr::from_bytes_until_nul(value(&described, seen, "procname")).unwrap();
        let vtid = number(value(&described, seen, "vtid"));
        assert_eq!(
            (said.to_str().unwrap(), vtid),
            (&name(n)[..], tids[n as usize])
        );
    }
}

/// While threads write, records move between channels with and without contexts, and slots between
/// traces of both kinds. Each record has the contexts of its channel.
fn records_have_the_contexts_of_their_channel() {
    const WRITERS: usize = 3;
    static DONE: AtomicBool = AtomicBool::new(false);
    static LOOPS: [AtomicU64; WRITERS] = [const { AtomicU64::new(0) }; WRITERS];
    let scopes = [Scope::Global, Scope::Cpu, Scope::Thread, Scope::MmCid].map(Some);
    let fake = Fake::with_channels(small(), &scopes);
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let writers: Vec<_> = LOOPS
        .iter()
        .map(|loops| {
            std::thread::spawn(|| {
                let mut recorded = 0u64;
                while !DONE.load(Ordering::Relaxed) {
                    // Yield: on a busy machine, three writers could starve the thread that waits
                    // for them.
                    if loops.fetch_add(1, Ordering::Release) % 4 == 0 {
                        std::thread::yield_now();
                    }
                    for text in ["", "some text", &"l".repeat(2100)] {
                        recorded += u64::from(event!(text, 1, text) == Outcome::Recorded);
                    }
                    recorded += u64::from(record_here(7) == Outcome::Recorded);
                }
                recorded
            })
        })
        .collect();
    // After this, each writer has completed the event that it was writing.
    let next = || {
        for loops in &LOOPS {
            let before = loops.load(Ordering::Acquire);
            while loops.load(Ordering::Acquire) < before + 2 {
                std::thread::yield_now();
            }
        }
    };
    let mut seen = [0; 2];
    // Each set of channels with contexts is tested once, or twice.
    for round in (0..32u64).step_by(counts(2, 1) as usize) {
        let slot = fake.create().unwrap();
        let mut rules = vec![(0, ACCEPT, "*")];
        let of_channel = |channel: u8| ((1 + round) >> channel) & 1 != 0;
        for channel in (1..=4).filter(|channel| of_channel(*channel)) {
            rules.extend([(channel, CONTEXT, "vtid"), (channel, CONTEXT, "procname")]);
        }
        fake.set_rules(slot, &rules);
        fake.start(slot);
        update();
        let lasting = rules.clone();
        for to in [2, 3, 4, 1] {
            rules = lasting.clone();
            rules.push((to, ACCEPT, "*"));
            fake.set_rules(slot, &rules);
            update();
            next();
        }
        fake.stop(slot);
        update();
        next();
        for channel in 1..=4 {
            // Panics if a record does not match its channel's description.
            let events = fake.events_of(0, slot, usize::from(channel));
            for event in &events {
                let is_good = match &event.event.name[..] {
                    "test:numbered" => event.payload == 7u64.to_le_bytes(),
                    _ => event.payload[0] == 1 && event.payload.ends_with(b"\0"),
                };
                assert!(is_good, "{event:?}");
                assert_eq!(event.contexts.is_empty(), !of_channel(channel));
            }
            seen[usize::from(of_channel(channel))] += events.len();
        }
        fake.destroy(slot);
        update();
    }
    DONE.store(true, Ordering::Relaxed);
    let recorded: u64 = writers.into_iter().map(|w| w.join().unwrap()).sum();
    assert!(recorded > 0 && seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Invalid names are refused, and unknown contexts, as a later kernel may have, are left out.
fn unknown_contexts_are_left_out() {
    for bad in ["", "a.b", "a b", "\u{e9}", &"a".repeat(NAME_MAX + 1)] {
        assert_eq!(
            usertrace::context!(bad, &REQUEST),
            Err(DefineError::Name),
            "{bad}"
        );
    }
    let fake = Fake::new(small());
    let slot = traced(fake, &[(1, "of-tomorrow"), (1, "vtid"), (1, "app.")]);
    assert_eq!(record_here(1), Outcome::Recorded);
    let described = fake.contexts(0, slot, MAIN).unwrap();
    assert_eq!(described.line(), "@1 s32 vtid");
    let other = traced(fake, &[(1, "of-tomorrow"), (2, "vtid")]);
    assert_eq!(record_here(2), Outcome::Recorded);
    assert_eq!(fake.contexts(0, other, MAIN), None);
    assert_eq!(fake.events(0, other).len(), 1);
    // Fills the table, and tries one more.
    let full = || (0..1000).find(|n| usertrace::context!(&format!("n{n}"), &REQUEST).is_err());
    assert_eq!(full(), Some(64));
    assert_eq!(
        usertrace::context!("more", &REQUEST),
        Err(DefineError::TooMany)
    );
}

#[test]
fn contexts() {
    for scope in [Scope::Cpu, Scope::Thread, Scope::Global, Scope::MmCid] {
        apart(&format!("{scope:?}"), || {
            values_are_those_of_the_event(scope)
        });
    }
    apart("remembered", cached_contexts_are_renewed);
    apart("many threads", many_threads_have_their_own_contexts);
    apart("channels", records_have_the_contexts_of_their_channel);
    apart("names", unknown_contexts_are_left_out);
}
