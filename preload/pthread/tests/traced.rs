//! Events of mutexes, locks, conditions and threads, with a simulated kernel: this program
//! interposes its own functions.

use std::ffi::{c_int, c_void};
use std::process::ExitCode;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use usertrace::fake::Sizes;
use usertrace_tests_preload::{Event, Traced, isolated};

// Links the library, and with it its constructor and functions.
use usertrace_pthread as _;

// These functions may unwind: they end the thread, or are cancellation points.
unsafe extern "C-unwind" {
    fn pause() -> c_int;
    fn pthread_exit(result: *mut c_void) -> !;
}

// Functions that the crate `libc` does not declare.
unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
    fn pthread_rwlock_timedrdlock(
        rwlock: *mut libc::pthread_rwlock_t,
        until: *const libc::timespec,
    ) -> c_int;
    fn pthread_rwlock_timedwrlock(
        rwlock: *mut libc::pthread_rwlock_t,
        until: *const libc::timespec,
    ) -> c_int;
    fn pthread_rwlock_clockrdlock(
        rwlock: *mut libc::pthread_rwlock_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
    fn pthread_rwlock_clockwrlock(
        rwlock: *mut libc::pthread_rwlock_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
    fn pthread_cond_clockwait(
        cond: *mut libc::pthread_cond_t,
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
}

const PAST: libc::timespec = libc::timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

fn own() -> u64 {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() }
}

/// A mutex that reports errors.
fn mutex() -> *mut libc::pthread_mutex_t {
    let mutex = Box::into_raw(Box::new(libc::PTHREAD_MUTEX_INITIALIZER));
    // SAFETY: the objects are valid for initialisation, and no other thread has them.
    unsafe {
        let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attr);
        libc::pthread_mutexattr_settype(&raw mut attr, libc::PTHREAD_MUTEX_ERRORCHECK);
        libc::pthread_mutex_init(mutex, &raw const attr);
    }
    mutex
}

/// Asserts the events of one address, or of a thread. Numbers are address, thread, and result.
fn check(events: Vec<Event>, address: u64, expected: &[(&str, &[u64])]) {
    let events = events.into_iter();
    let events = events.filter(|event| event.numbers[0] == address);
    let events: Vec<_> = events
        .map(|event| (event.name, event.numbers[1..].to_vec()))
        .collect();
    let expected = expected.iter();
    let expected: Vec<_> = expected
        .map(|(name, numbers)| (format!("pthread:{name}"), numbers.to_vec()))
        .collect();
    assert_eq!(events, expected);
}

const DEADLOCK: u64 = libc::EDEADLK as u64;
const BUSY: u64 = libc::EBUSY as u64;
const TIMED_OUT: u64 = libc::ETIMEDOUT as u64;
const NOT_OURS: u64 = libc::EPERM as u64;

fn mutexes() {
    let mutex = mutex();
    let traced = Traced::new(Sizes::default());
    // SAFETY: the object is initialised, and stays so.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(mutex), 0);
        assert_eq!(libc::pthread_mutex_lock(mutex), libc::EDEADLK);
        assert_eq!(libc::pthread_mutex_trylock(mutex), libc::EBUSY);
        assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
        assert_eq!(libc::pthread_mutex_unlock(mutex), libc::EPERM);
        assert_eq!(libc::pthread_mutex_trylock(mutex), 0);
        assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
        assert_eq!(libc::pthread_mutex_timedlock(mutex, &PAST), 0);
        assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
        assert_eq!(
            pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, &PAST),
            0
        );
        assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
    }
    let own = own();
    check(
        traced.stop(),
        mutex.addr() as u64,
        &[
            ("mutex_lock_req", &[own]),
            ("mutex_lock_acq", &[own, 0]),
            ("mutex_lock_req", &[own]),
            ("mutex_lock_acq", &[own, DEADLOCK]),
            ("mutex_trylock", &[own, BUSY]),
            ("mutex_unlock", &[own]),
            ("mutex_unlock", &[own]),
            ("mutex_unlock_failed", &[own, NOT_OURS]),
            ("mutex_trylock", &[own, 0]),
            ("mutex_unlock", &[own]),
            ("mutex_timedlock_req", &[own]),
            ("mutex_timedlock_acq", &[own, 0]),
            ("mutex_unlock", &[own]),
            ("mutex_clocklock_req", &[own]),
            ("mutex_clocklock_acq", &[own, 0]),
            ("mutex_unlock", &[own]),
        ],
    );
}

fn rwlocks() {
    let rwlock = Box::into_raw(Box::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    let traced = Traced::new(Sizes::default());
    // SAFETY: the object is initialised, and stays so.
    unsafe {
        assert_eq!(libc::pthread_rwlock_rdlock(rwlock), 0);
        assert_eq!(libc::pthread_rwlock_trywrlock(rwlock), libc::EBUSY);
        assert_eq!(libc::pthread_rwlock_tryrdlock(rwlock), 0);
        assert_eq!(pthread_rwlock_timedwrlock(rwlock, &PAST), libc::ETIMEDOUT);
        assert_eq!(
            pthread_rwlock_clockwrlock(rwlock, libc::CLOCK_MONOTONIC, &PAST),
            libc::ETIMEDOUT
        );
        assert_eq!(libc::pthread_rwlock_unlock(rwlock), 0);
        assert_eq!(libc::pthread_rwlock_unlock(rwlock), 0);
        assert_eq!(libc::pthread_rwlock_wrlock(rwlock), 0);
        assert_eq!(libc::pthread_rwlock_tryrdlock(rwlock), libc::EBUSY);
        assert_eq!(pthread_rwlock_timedrdlock(rwlock, &PAST), libc::EDEADLK);
        assert_eq!(
            pthread_rwlock_clockrdlock(rwlock, libc::CLOCK_MONOTONIC, &PAST),
            libc::EDEADLK
        );
        assert_eq!(libc::pthread_rwlock_unlock(rwlock), 0);
    }
    let own = own();
    check(
        traced.stop(),
        rwlock.addr() as u64,
        &[
            ("rwlock_rdlock_req", &[own]),
            ("rwlock_rdlock_acq", &[own, 0]),
            ("rwlock_trywrlock", &[own, BUSY]),
            ("rwlock_tryrdlock", &[own, 0]),
            ("rwlock_timedwrlock_req", &[own]),
            ("rwlock_timedwrlock_acq", &[own, TIMED_OUT]),
            ("rwlock_clockwrlock_req", &[own]),
            ("rwlock_clockwrlock_acq", &[own, TIMED_OUT]),
            ("rwlock_unlock", &[own]),
            ("rwlock_unlock", &[own]),
            ("rwlock_wrlock_req", &[own]),
            ("rwlock_wrlock_acq", &[own, 0]),
            ("rwlock_tryrdlock", &[own, BUSY]),
            ("rwlock_timedrdlock_req", &[own]),
            ("rwlock_timedrdlock_acq", &[own, DEADLOCK]),
            ("rwlock_clockrdlock_req", &[own]),
            ("rwlock_clockrdlock_acq", &[own, DEADLOCK]),
            ("rwlock_unlock", &[own]),
        ],
    );
}

fn conditions() {
    let mutex = mutex();
    let cond = Box::into_raw(Box::new(libc::PTHREAD_COND_INITIALIZER));
    let traced = Traced::new(Sizes::default());
    // SAFETY: all objects are initialised before use, and stay so.
    unsafe {
        let mut attr: libc::pthread_condattr_t = std::mem::zeroed();
        libc::pthread_condattr_init(&raw mut attr);
        libc::pthread_condattr_setclock(&raw mut attr, libc::CLOCK_MONOTONIC);
        assert_eq!(libc::pthread_cond_init(cond, &raw const attr), 0);
        assert_eq!(libc::pthread_mutex_lock(mutex), 0);
        let timed_out = libc::pthread_cond_timedwait(cond, mutex, &PAST);
        assert_eq!(timed_out, libc::ETIMEDOUT);
        let timed_out = pthread_cond_clockwait(cond, mutex, libc::CLOCK_MONOTONIC, &PAST);
        assert_eq!(timed_out, libc::ETIMEDOUT);
        assert_eq!(libc::pthread_cond_signal(cond), 0);
        assert_eq!(libc::pthread_cond_broadcast(cond), 0);
        assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
    }
    let (own, mutex) = (own(), mutex.addr() as u64);
    check(
        traced.stop(),
        cond.addr() as u64,
        &[
            ("cond_timedwait_req", &[mutex, own]),
            ("cond_timedwait_acq", &[mutex, own, TIMED_OUT]),
            ("cond_clockwait_req", &[mutex, own]),
            ("cond_clockwait_acq", &[mutex, own, TIMED_OUT]),
            ("cond_signal", &[own]),
            ("cond_broadcast", &[own]),
        ],
    );
}

/// The state that two threads share.
struct Shared {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    /// The other thread holds the mutex, and releases it only to wait.
    waits: AtomicBool,
    /// The condition, changed only with the mutex held.
    ready: AtomicBool,
    /// Wait by the newest function, which has one version.
    by_clock: bool,
}

/// A distant time on the monotonic clock.
fn far() -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::MAX,
        tv_nsec: 0,
    }
}

extern "C" fn waits(shared: *mut c_void) -> *mut c_void {
    let shared = shared.cast::<Shared>();
    // SAFETY: `shared` stays, and only its atomic fields change.
    unsafe {
        libc::pthread_mutex_lock((*shared).mutex);
        (*shared).waits.store(true, Ordering::Relaxed);
        while !(*shared).ready.load(Ordering::Relaxed) {
            match (*shared).by_clock {
                false => libc::pthread_cond_wait((*shared).cond, (*shared).mutex),
                true => {
                    let clock = libc::CLOCK_MONOTONIC;
                    pthread_cond_clockwait((*shared).cond, (*shared).mutex, clock, &far())
                }
            };
        }
        libc::pthread_mutex_unlock((*shared).mutex);
    }
    std::ptr::without_provenance_mut(5)
}

fn threads() {
    two_threads(false);
}

/// The C library has two incompatible versions of some functions of conditions.
fn conditions_are_of_one_version() {
    two_threads(true);
}

/// In the trace, too, no thread owns a mutex before another one released it, and no thread wakes up
/// before another one woke it.
fn two_threads(by_clock: bool) {
    let shared = Box::into_raw(Box::new(Shared {
        mutex: mutex(),
        cond: Box::into_raw(Box::new(libc::PTHREAD_COND_INITIALIZER)),
        waits: AtomicBool::new(false),
        ready: AtomicBool::new(false),
        by_clock,
    }));
    let traced = Traced::new(Sizes::default());
    let mut thread = 0;
    let mut result = null_mut();
    // SAFETY: `shared` is never freed, and its mutex and condition are initialised.
    unsafe {
        let (mutex, cond) = ((*shared).mutex, (*shared).cond);
        assert_eq!(
            libc::pthread_create(&raw mut thread, null(), waits, shared.cast()),
            0
        );
        while !(*shared).waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        libc::pthread_mutex_lock(mutex);
        (*shared).ready.store(true, Ordering::Relaxed);
        libc::pthread_cond_broadcast(cond);
        libc::pthread_mutex_unlock(mutex);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
        assert_eq!(result.addr(), 5);
    }
    let events = traced.stop();
    let start = waits as extern "C" fn(*mut c_void) -> *mut c_void as usize as u64;
    // The begin and end of the other thread are not part of this check.
    let mut of_this = events.clone();
    of_this.retain(|event| !["pthread:start", "pthread:end"].contains(&&*event.name));
    check(
        of_this,
        thread,
        &[
            ("create", &[start, own(), 0]),
            ("join_req", &[own()]),
            ("join_done", &[own(), 0]),
        ],
    );
    // SAFETY: `shared` is never freed.
    let (mutex, cond) = unsafe { ((*shared).mutex.addr() as u64, (*shared).cond.addr() as u64) };
    let (mut held, mut woken) = (None, false);
    for Event { name, numbers, .. } in events {
        match (name.strip_prefix("pthread:"), numbers[0]) {
            (Some("mutex_lock_acq"), at) if at == mutex => {
                assert_eq!(held.replace(numbers[1]), None);
            }
            (Some("mutex_unlock"), at) if at == mutex => assert_eq!(held.take(), Some(numbers[1])),
            (Some("cond_wait_req" | "cond_clockwait_req"), at) if at == cond => {
                assert_eq!(held.take(), Some(numbers[2]));
            }
            (Some("cond_wait_acq" | "cond_clockwait_acq"), at) if at == cond => {
                assert!(woken);
                assert_eq!(held.replace(numbers[2]), None);
            }
            (Some("cond_broadcast"), at) if at == cond => woken = true,
            _ => {}
        }
    }
    assert!(woken);
    assert_eq!(held, None);
}

extern "C-unwind" fn returns(result: *mut c_void) -> *mut c_void {
    result
}

extern "C-unwind" fn exits(result: *mut c_void) -> *mut c_void {
    // SAFETY: the thread's stack has no values that need to be dropped.
    unsafe { pthread_exit(result) }
}

extern "C-unwind" fn is_cancelled(_: *mut c_void) -> *mut c_void {
    loop {
        // SAFETY: the thread's stack has no values that need to be dropped if it is cancelled here.
        unsafe { pause() };
    }
}

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Like `pthread_create` of the crate `libc`, whose type of routine cannot unwind.
fn create(start: Routine, arg: usize) -> libc::pthread_t {
    let mut thread = 0;
    // SAFETY: both types have the same calling convention.
    unsafe {
        let start: extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute(start);
        let arg = std::ptr::without_provenance_mut(arg);
        assert_eq!(libc::pthread_create(&raw mut thread, null(), start, arg), 0);
    }
    thread
}

/// A thread has both events however it ends, and its result is unchanged.
fn threads_begin_and_end() {
    let before = create(is_cancelled, 0);
    let traced = Traced::new(Sizes::default());
    // `PTHREAD_CANCELED`
    let cancelled = usize::MAX;
    let mut expected = Vec::new();
    let mut threads = Vec::new();
    for (start, arg, result) in [
        (returns as Routine, 17, 17),
        (exits, 18, 18),
        (is_cancelled, 19, cancelled),
        (returns, 20, 20),
    ] {
        let thread = create(start, arg);
        threads.push((thread, start as usize as u64));
        let mut given = null_mut();
        // SAFETY: the thread is joined once.
        unsafe {
            if result == cancelled {
                assert_eq!(pthread_cancel(thread), 0);
            }
            assert_eq!(libc::pthread_join(thread, &raw mut given), 0);
        }
        assert_eq!(given.addr(), result);
        expected.extend([("start", thread), ("end", thread), ("join_done", thread)]);
    }
    // Of this thread, only joining makes events: no trace wanted others when it began.
    // SAFETY: the thread is joined once.
    unsafe {
        assert_eq!(pthread_cancel(before), 0);
        assert_eq!(libc::pthread_join(before, null_mut()), 0);
    }
    expected.push(("join_done", before));
    let events = traced.stop();
    let mut starts = threads.into_iter();
    let seen: Vec<_> = events
        .iter()
        .filter_map(|event| Some((event.name.strip_prefix("pthread:")?, &event.numbers)))
        .filter(|(name, _)| ["start", "end", "join_done"].contains(name))
        .inspect(|(name, numbers)| {
            if *name == "start" {
                assert_eq!(starts.next(), Some((numbers[0], numbers[1])));
            }
        })
        .map(|(name, numbers)| (name, numbers[0]))
        .collect();
    assert_eq!(seen, expected);
}

/// The arguments of a thread that cannot be made are freed.
fn threads_that_are_refused() {
    let traced = Traced::new(Sizes::default());
    let create = || {
        let mut thread = 0;
        // SAFETY: `attr` is valid for initialisation. The stack is larger than memory, so no
        // thread is made.
        unsafe {
            let mut attr: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&raw mut attr);
            libc::pthread_attr_setstacksize(&raw mut attr, 1 << 50);
            let start: extern "C" fn(*mut c_void) -> *mut c_void =
                std::mem::transmute(returns as Routine);
            libc::pthread_create(&raw mut thread, &raw const attr, start, null_mut())
        }
    };
    assert_ne!(create(), 0);
    // SAFETY: `mallinfo2` has no preconditions.
    let used = || unsafe { libc::mallinfo2() }.uordblks;
    let before = used();
    for _ in 0..1000 {
        assert_ne!(create(), 0);
    }
    assert!(
        used() < before + 10_000,
        "{} bytes, {before} before",
        used()
    );
    let events = traced.stop();
    assert!(
        events
            .iter()
            .any(|event| event.name == "pthread:create" && event.numbers[3] != 0)
    );
    assert!(events.iter().all(|event| event.name != "pthread:start"));
}

/// Signal handlers make updates in the middle of these functions, in several threads, while events
/// are lost.
fn updates_while_threads_lock() {
    let traced = Traced::new(Sizes {
        subbuf_size: [4096, 4096],
        subbuf_count: [4, 2],
    });
    let fake = traced.fake;
    let (stop, mutex) = (AtomicBool::new(false), mutex().expose_provenance());
    let mut count = 0u64;
    let at = (&raw mut count).expose_provenance();
    let added = std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| {
            scope.spawn(|| {
                let mutex = std::ptr::with_exposed_provenance_mut(mutex);
                let count = std::ptr::with_exposed_provenance_mut::<u64>(at);
                let mut added = 0;
                while !stop.load(Ordering::Relaxed) {
                    // SAFETY: the mutex protects the number.
                    unsafe {
                        assert_eq!(libc::pthread_mutex_lock(mutex), 0);
                        *count += 1;
                        added += 1;
                        assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
                    }
                }
                added
            })
        });
        for _ in 0..300 {
            let slot = fake.create();
            slot.iter().for_each(|slot| fake.start(*slot));
            // SAFETY: the runtime has installed a handler, which may run in any thread.
            unsafe { libc::kill(libc::getpid(), libc::SIGRTMIN() + 3) };
            std::thread::yield_now();
            slot.iter().for_each(|slot| fake.destroy(*slot));
            usertrace_tests_preload::update();
        }
        stop.store(true, Ordering::Relaxed);
        threads
            .map(|thread| thread.join().unwrap())
            .iter()
            .sum::<u64>()
    });
    assert_eq!(count, added);
    assert!(fake.lost(0, traced.slot) > 0);
}

static TESTS: [(&str, fn()); 8] = [
    ("mutexes", mutexes),
    ("rwlocks", rwlocks),
    ("conditions", conditions),
    ("threads", threads),
    ("threads_begin_and_end", threads_begin_and_end),
    ("threads_that_are_refused", threads_that_are_refused),
    (
        "conditions_are_of_one_version",
        conditions_are_of_one_version,
    ),
    ("updates_while_threads_lock", updates_while_threads_lock),
];

fn main() -> ExitCode {
    isolated(&TESTS)
}
