//! Events of the malloc family, with a simulated kernel: this program interposes its own malloc.

use std::ffi::c_void;
use std::process::ExitCode;

use usertrace::__private::init_with;
use usertrace::Status;
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Sizes};
use usertrace_tests_preload::{Event, Traced, isolated, update};

// Links the library, and with it its constructor and malloc.
use usertrace_malloc as _;

// Functions that the crate `libc` does not declare.
unsafe extern "C" {
    fn free_sized(ptr: *mut c_void, size: usize);
    fn free_aligned_sized(ptr: *mut c_void, alignment: usize, size: usize);
    fn valloc(size: usize) -> *mut c_void;
    fn pvalloc(size: usize) -> *mut c_void;
}

/// The names and numbers of events, from the first one of this size on.
fn from_size(events: Vec<Event>, size: u64) -> impl Iterator<Item = (String, Vec<u64>)> {
    events
        .into_iter()
        .map(|event| (event.name, event.numbers))
        .skip_while(move |(_, numbers)| numbers[0] != size)
}

fn each_function_is_an_event() {
    let traced = Traced::new(Sizes::default());
    // SAFETY: each block is freed once, and all arguments are valid for the C library.
    let expected = unsafe {
        let a = libc::malloc(1001);
        let b = libc::calloc(3, 1003);
        let c = libc::realloc(a, 100_005);
        let mut d: *mut c_void = std::ptr::null_mut();
        assert_eq!(libc::posix_memalign(&raw mut d, 64, 1007), 0);
        let e = libc::aligned_alloc(128, 1280);
        let f = libc::memalign(256, 1009);
        let g = valloc(1013);
        let h = pvalloc(1015);
        let i = libc::reallocarray(std::ptr::null_mut(), 3, 1017);
        assert!(d.addr().is_multiple_of(64));
        assert!(e.addr().is_multiple_of(128));
        assert!(f.addr().is_multiple_of(256));
        assert!(g.addr().is_multiple_of(4096) && h.addr().is_multiple_of(4096));
        [b, c, d, e, f, g].iter().for_each(|ptr| libc::free(*ptr));
        free_sized(h, 1015);
        free_aligned_sized(i, 16, 3051);
        let at = |ptr: *mut c_void| ptr.addr() as u64;
        vec![
            ("libc:malloc", vec![1001, at(a)]),
            ("libc:calloc", vec![3, 1003, at(b)]),
            ("libc:realloc", vec![at(a), 100_005, at(c)]),
            ("libc:posix_memalign", vec![64, 1007, 0, at(d)]),
            ("libc:aligned_alloc", vec![128, 1280, at(e)]),
            ("libc:memalign", vec![256, 1009, at(f)]),
            ("libc:valloc", vec![1013, at(g)]),
            ("libc:pvalloc", vec![1015, at(h)]),
            ("libc:realloc", vec![0, 3051, at(i)]),
            ("libc:free", vec![at(b)]),
            ("libc:free", vec![at(c)]),
            ("libc:free", vec![at(d)]),
            ("libc:free", vec![at(e)]),
            ("libc:free", vec![at(f)]),
            ("libc:free", vec![at(g)]),
            ("libc:free", vec![at(h)]),
            ("libc:free", vec![at(i)]),
        ]
    };
    let mut events = from_size(traced.stop(), 1001);
    for (name, numbers) in expected {
        assert_eq!(events.next(), Some((name.to_owned(), numbers)));
    }
}

/// Calls fail as they do without the library, and the events have the results.
///
/// Requirements: F2
fn failures_are_unchanged() {
    const HUGE: usize = isize::MAX as usize;
    let traced = Traced::new(Sizes::default());
    // SAFETY: each block is freed once, and all arguments are valid for the C library.
    unsafe {
        let errno = libc::__errno_location();
        let fails = |call: &dyn Fn() -> *mut c_void| {
            *errno = 0;
            assert!(call().is_null());
            assert_eq!(*errno, libc::ENOMEM);
        };
        let small = libc::malloc(1001);
        fails(&|| libc::malloc(HUGE));
        fails(&|| libc::calloc(HUGE, 3));
        fails(&|| libc::realloc(small, HUGE));
        fails(&|| libc::reallocarray(small, HUGE, HUGE));
        fails(&|| libc::aligned_alloc(64, HUGE));
        fails(&|| libc::memalign(64, HUGE));
        fails(&|| valloc(HUGE));
        fails(&|| pvalloc(HUGE));
        // This function returns the error instead of setting errno.
        *errno = 77;
        let mut out = std::ptr::without_provenance_mut(5);
        assert_eq!(libc::posix_memalign(&raw mut out, 3, 1003), libc::EINVAL);
        assert_eq!(*errno, 77);
        assert_eq!(libc::posix_memalign(&raw mut out, 64, HUGE), libc::ENOMEM);
        assert_eq!(out.addr(), 5);
        *errno = 77;
        libc::free(std::ptr::null_mut());
        libc::free(small);
        assert_eq!(*errno, 77);
        let (huge, at) = (HUGE as u64, small.addr() as u64);
        let expected = [
            ("libc:malloc", vec![1001, at]),
            ("libc:malloc", vec![huge, 0]),
            ("libc:calloc", vec![huge, 3, 0]),
            ("libc:realloc", vec![at, huge, 0]),
            ("libc:aligned_alloc", vec![64, huge, 0]),
            ("libc:memalign", vec![64, huge, 0]),
            ("libc:valloc", vec![huge, 0]),
            ("libc:pvalloc", vec![huge, 0]),
            ("libc:posix_memalign", vec![3, 1003, libc::EINVAL as u64, 0]),
            (
                "libc:posix_memalign",
                vec![64, huge, libc::ENOMEM as u64, 0],
            ),
            ("libc:free", vec![0]),
            ("libc:free", vec![at]),
        ];
        let mut events = from_size(traced.stop(), 1001);
        for (name, numbers) in expected {
            assert_eq!(events.next(), Some((name.to_owned(), numbers)));
        }
    }
}

/// Neither an event nor a lost one changes errno.
///
/// Requirements: F2
fn errno_stays() {
    let traced = Traced::new(Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [4, 2],
    });
    for n in 0..2000 {
        // SAFETY: `__errno_location` returns the thread's own variable; the block is freed once.
        unsafe {
            *libc::__errno_location() = 77;
            libc::free(libc::malloc(n + 1));
            assert_eq!(*libc::__errno_location(), 77);
        }
    }
    assert!(traced.fake.lost(0, traced.slot) > 0);
}

fn threads_and_children() {
    let traced = Traced::new(Sizes {
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
    // Reading the events back also allocates.
    let own = traced.stop();
    assert_eq!(traced.fake.processes(), 2);
    for (process, events) in [own, traced.events(1)].iter().enumerate() {
        assert!(events.len() > 20_000);
        assert_eq!(traced.fake.lost(process, traced.slot), 0);
    }
}

/// Signal handlers make updates in the middle of malloc, in several threads.
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
            // SAFETY: the runtime has installed a handler, which may run in any thread.
            unsafe { libc::kill(libc::getpid(), libc::SIGRTMIN() + 3) };
            std::thread::yield_now();
            slot.iter().for_each(|slot| fake.destroy(*slot));
            update();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

static TESTS: [(&str, fn()); 5] = [
    ("failures_are_unchanged", failures_are_unchanged),
    ("each_function_is_an_event", each_function_is_an_event),
    ("errno_stays", errno_stays),
    ("threads_and_children", threads_and_children),
    ("updates_inside_malloc", updates_inside_malloc),
];

fn main() -> ExitCode {
    isolated(&TESTS)
}
