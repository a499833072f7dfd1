//! Tests that a process describes what it has loaded, on a fake kernel.
//!
//! One test, because a process has one runtime.

use std::ffi::{c_int, c_void};
use std::sync::Barrier;

use usertrace::__private::{init_with, notice_objects};
use usertrace::fake::process::{child, wait};
use usertrace::fake::{Fake, Sizes};
use usertrace::{Outcome, Status, event};
use usertrace_ring::schema::{Module, ModuleChange};

usertrace_testing::numbered_event!(n);

/// A library of the C library that this program does not use.
const LIBRARY: &std::ffi::CStr = c"libanl.so.1";

fn update() {
    // SAFETY: the runtime's handler is installed.
    assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
}

/// What is loaded after all changes.
fn loaded(fake: &Fake, process: usize, slot: usize) -> Vec<Module> {
    let mut loaded: Vec<Module> = Vec::new();
    for change in fake.modules(process, slot) {
        match change {
            ModuleChange::Loaded(module) => {
                assert!(
                    loaded.iter().all(|other| other.base != module.base),
                    "{module:?}"
                );
                loaded.push(module);
            }
            ModuleChange::Unloaded(base) => {
                let before = loaded.len();
                loaded.retain(|module| module.base != base);
                assert_eq!(loaded.len() + 1, before);
            }
        }
    }
    loaded
}

fn paths(modules: &[Module]) -> Vec<&str> {
    modules
        .iter()
        .map(|module| module.path.as_deref().unwrap())
        .collect()
}

fn has_library(modules: &[Module]) -> bool {
    paths(modules)
        .iter()
        .any(|path| path.ends_with("/libanl.so.1"))
}

/// Requirements: E6
#[test]
fn processes_describe_what_they_have_loaded() {
    let fake = Fake::new(Sizes::default());
    assert_eq!(init_with(|| Ok(fake)), Status::Attached);
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    let first = loaded(fake, 0, slot);
    let own = std::env::current_exe().unwrap();
    let program = first
        .iter()
        .find(|of| of.path.as_deref() == own.to_str())
        .unwrap();
    let here = processes_describe_what_they_have_loaded as fn() as usize as u64;
    assert!((program.base..program.base + program.size).contains(&here) && program.is_pic);
    assert!(paths(&first).contains(&"[vdso]"), "{first:?}");
    let of_libc = first
        .iter()
        .find(|of| of.path.as_deref().unwrap().contains("/libc.so"))
        .unwrap();
    assert_eq!(of_libc.build_id.len(), 20);
    assert!(!has_library(&first));

    // SAFETY: a library of the C library.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    notice_objects();
    let second = loaded(fake, 0, slot);
    assert!(has_library(&second) && second.len() > first.len());
    // Nothing changes, so nothing is described again.
    let described = fake.modules(0, slot).len();
    notice_objects();
    usertrace::init();
    assert_eq!(fake.modules(0, slot).len(), described);
    // SAFETY: nobody uses it.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    notice_objects();
    assert!(!has_library(&loaded(fake, 0, slot)));

    // Another trace has only what is loaded now.
    let other = fake.create().unwrap();
    fake.start(other);
    update();
    let changes = fake.modules(0, other);
    assert!(
        changes
            .iter()
            .all(|change| matches!(change, ModuleChange::Loaded(_))),
        "{changes:?}"
    );
    assert_eq!(loaded(fake, 0, other).len(), loaded(fake, 0, slot).len());

    // A child has its own trace.
    let of_parent = loaded(fake, 0, slot);
    let status = wait(child(|| {
        assert_eq!(record(1), Outcome::Recorded);
        let process = fake.processes() - 1;
        assert_eq!(paths(&loaded(fake, process, slot)), paths(&of_parent));
    }));
    assert_eq!(status, 0);
    updates_do_not_wait_for_the_linker(fake);
}

fn record(n: u64) -> Outcome {
    event!(numbered, n)
}

/// A thread that unwinds holds the linker's lock, and may wait for one that writes an event.
fn updates_do_not_wait_for_the_linker(fake: &'static Fake) {
    static AT: Barrier = Barrier::new(2);

    extern "C" fn visit(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        AT.wait();
        AT.wait();
        1
    }

    let thread = std::thread::spawn(|| {
        // SAFETY: the function takes no data.
        unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
    });
    AT.wait();
    let slot = fake.create().unwrap();
    fake.start(slot);
    update();
    assert_eq!(record(2), Outcome::Recorded);
    assert!(loaded(fake, 0, slot).len() > 2);
    AT.wait();
    thread.join().unwrap();
}
