//! The malloc family as events, on a kernel that is not there: this program interposes its own malloc.

use std::ffi::c_void;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use usertrace::Status;
use usertrace::fake::{Fake, Seen, Sizes};
use usertrace::runtime::init_with;

// Links the library in, and with it its constructor and its malloc.
use usertrace_malloc as _;

fn update() {
    // SAFETY: the runtime's handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
}

/// A process whose allocations go into one trace. The control ring has room for the events of the tests, too.
fn traced(sizes: Sizes) -> (&'static Fake, usize) {
    let fake = Fake::new(sizes);
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    (fake, slot)
}

/// An event's name, and its fields as numbers.
fn fields(seen: &Seen) -> (String, Vec<u64>) {
    let mut rest = &seen.payload[..];
    let mut values = Vec::new();
    for field in &seen.event.fields {
        let len = if seen.event.name == "libc:posix_memalign" && field.name == "result" {
            4
        } else {
            8
        };
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&rest[..len]);
        values.push(u64::from_le_bytes(bytes));
        rest = &rest[len..];
    }
    assert!(rest.is_empty());
    (seen.event.name.clone(), values)
}

fn events(fake: &Fake, process: usize, slot: usize) -> Vec<(String, Vec<u64>)> {
    let mut seen = fake.events(process, slot);
    seen.sort_by_key(|seen| seen.time);
    seen.iter().map(fields).collect()
}

fn child(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: one thread forks.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    pid
}

fn wait(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn each_function_is_an_event() {
    let (fake, slot) = traced(Sizes::default());
    // SAFETY: the C library's contracts are kept.
    let expected = unsafe {
        let a = libc::malloc(1001);
        let b = libc::calloc(3, 1003);
        let c = libc::realloc(a, 100_005);
        let mut d: *mut c_void = std::ptr::null_mut();
        assert_eq!(libc::posix_memalign(&raw mut d, 64, 1007), 0);
        let e = libc::aligned_alloc(128, 1280);
        let f = libc::memalign(256, 1009);
        let mut g: *mut c_void = std::ptr::null_mut();
        assert_eq!(libc::posix_memalign(&raw mut g, 3, 1011), libc::EINVAL);
        assert!(d.addr().is_multiple_of(64));
        assert!(e.addr().is_multiple_of(128));
        assert!(f.addr().is_multiple_of(256));
        [b, c, d, e, f].iter().for_each(|ptr| libc::free(*ptr));
        let at = |ptr: *mut c_void| ptr.addr() as u64;
        vec![
            ("libc:malloc", vec![1001, at(a)]),
            ("libc:calloc", vec![3, 1003, at(b)]),
            ("libc:realloc", vec![at(a), 100_005, at(c)]),
            ("libc:posix_memalign", vec![64, 1007, 0, at(d)]),
            ("libc:aligned_alloc", vec![128, 1280, at(e)]),
            ("libc:memalign", vec![256, 1009, at(f)]),
            ("libc:posix_memalign", vec![3, 1011, libc::EINVAL as u64, 0]),
            ("libc:free", vec![at(b)]),
            ("libc:free", vec![at(c)]),
            ("libc:free", vec![at(d)]),
            ("libc:free", vec![at(e)]),
            ("libc:free", vec![at(f)]),
        ]
    };
    fake.stop(slot);
    update();
    let events = events(fake, 0, slot);
    let first = events
        .iter()
        .position(|(_, values)| values[0] == 1001)
        .unwrap();
    for (event, (name, values)) in events[first..].iter().zip(expected) {
        assert_eq!((event.0.as_str(), &event.1), (name, &values));
    }
}

/// F2: neither an event nor a lost one changes errno.
fn errno_stays() {
    let (fake, slot) = traced(Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [4, 2],
    });
    for n in 0..2000 {
        // SAFETY: a thread's own number; memory that is freed at once.
        unsafe {
            *libc::__errno_location() = 77;
            libc::free(libc::malloc(n + 1));
            assert_eq!(*libc::__errno_location(), 77);
        }
    }
    assert!(fake.lost(0, slot) > 0);
}

fn threads_and_children() {
    let (fake, slot) = traced(Sizes {
        subbuf_size: [4096, 65536],
        subbuf_count: [4, 512],
    });
    let work = || {
        for n in 0..20_000usize {
            let text = format!("{n}").repeat(n % 7 + 1);
            assert!(!text.is_empty());
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(work)));
        assert_eq!(wait(child(work)), 0);
    });
    // Reading the events back allocates, too.
    fake.stop(slot);
    update();
    assert_eq!(fake.processes(), 2);
    let balance = |process: usize| {
        let events = events(fake, process, slot);
        assert!(events.len() > 20_000);
        assert_eq!(fake.lost(process, slot), 0);
    };
    balance(0);
    balance(1);
}

/// Updates in signal handlers in the middle of malloc, in several threads.
fn updates_inside_malloc() {
    let fake = Fake::new(Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [4, 2],
    });
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut n = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    n = (n + 1) % 1000;
                    drop(vec![0u8; n + 1]);
                }
            });
        }
        for _ in 0..300 {
            let slot = fake.create();
            slot.iter().for_each(|slot| fake.start(*slot));
            // SAFETY: the handler is installed; the signal goes to any thread of this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGRTMIN() + 3) };
            std::thread::yield_now();
            slot.iter().for_each(|slot| fake.destroy(*slot));
            update();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

const TESTS: [(&str, fn()); 4] = [
    ("each_function_is_an_event", each_function_is_an_event),
    ("errno_stays", errno_stays),
    ("threads_and_children", threads_and_children),
    ("updates_inside_malloc", updates_inside_malloc),
];

/// Says which test this process is.
const VARIABLE: &str = "USERTRACE_MALLOC_TEST";

fn main() -> ExitCode {
    if let Some((_, test)) = std::env::var_os(VARIABLE)
        .and_then(|wanted| TESTS.into_iter().find(|(name, _)| wanted == *name))
    {
        test();
        return ExitCode::SUCCESS;
    }
    if usertrace::status() == Status::Attached {
        eprintln!("skipped: this kernel has trace buffers of its own");
        return ExitCode::SUCCESS;
    }
    let trials = TESTS
        .into_iter()
        .map(|(name, _)| {
            Trial::test(name, move || {
                let program = std::env::current_exe()?;
                let status = std::process::Command::new(program)
                    .env(VARIABLE, name)
                    .status()?;
                if status.success() {
                    Ok(())
                } else {
                    Err(Failed::from(status.to_string()))
                }
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
