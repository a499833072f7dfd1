//! Events of `dlopen` and the like, with a simulated kernel: this program interposes its own
//! functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::ExitCode;
use std::ptr::null;

use usertrace::fake::Sizes;
use usertrace_tests_preload::{Event, Traced, isolated};

// Links the library, and with it its constructor and functions.
use usertrace_dl as _;

const NOW: c_int = libc::RTLD_NOW;

/// Base address and path of the C library.
fn libc_object() -> (u64, String) {
    // SAFETY: zeros are a valid `Dl_info`, which the call fills in.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(
            libc::dladdr(libc::strlen as *const c_void, &raw mut info),
            0
        );
        let path = CStr::from_ptr(info.dli_fname).to_str().unwrap().to_owned();
        (info.dli_fbase.addr() as u64, path)
    }
}

/// Stops tracing. Returns the events, without the callers' addresses.
fn stop(traced: Traced) -> Vec<(String, Vec<u64>, Vec<String>)> {
    let events = traced.stop().into_iter().map(|event| {
        let Event {
            name,
            mut numbers,
            texts,
        } = event;
        if name.ends_with("open_req") {
            numbers.pop();
        }
        (name, numbers, texts)
    });
    events.collect()
}

fn event(name: &str, numbers: &[u64], texts: &[&str]) -> (String, Vec<u64>, Vec<String>) {
    let texts = texts.iter().map(|text| (*text).to_owned());
    (format!("dl:{name}"), numbers.to_vec(), texts.collect())
}

fn each_function_is_an_event() {
    let traced = Traced::new(Sizes::default());
    let now = NOW as u64;
    let (c_library, itself, new) = unsafe {
        // SAFETY: the names are C strings, and the loaded libraries have harmless constructors.
        let c_library = libc::dlopen(c"libc.so.6".as_ptr(), NOW);
        let itself = libc::dlopen(null(), NOW);
        assert!(libc::dlopen(c"/no/such/library.so".as_ptr(), NOW).is_null());
        let error = CStr::from_ptr(libc::dlerror());
        assert!(error.to_str().unwrap().starts_with("/no/such/library.so:"));
        assert_eq!(libc::dlclose(c_library), 0);
        let new = libc::dlmopen(libc::LM_ID_NEWLM, c"libm.so.6".as_ptr(), NOW);
        assert!(libc::dlerror().is_null());
        (
            c_library.addr() as u64,
            itself.addr() as u64,
            new.addr() as u64,
        )
    };
    let (base, path) = libc_object();
    let events = stop(traced);
    let none = "/no/such/library.so";
    let expected = [
        event("dlopen_req", &[now], &["libc.so.6"]),
        event("dlopen", &[now, c_library, base], &["libc.so.6", &path]),
        event("dlopen_req", &[now], &[""]),
    ];
    assert_eq!(events[..3], expected);
    // The program's own handle.
    assert_eq!((&*events[3].0, events[3].1[1]), ("dl:dlopen", itself));
    let new_namespace = libc::LM_ID_NEWLM.cast_unsigned();
    let expected = [
        event("dlopen_req", &[now], &[none]),
        event("dlopen", &[now, 0, 0], &[none, ""]),
        event("dlclose_req", &[c_library], &[]),
        event("dlclose", &[c_library, 0], &[]),
        event("dlmopen_req", &[new_namespace, now], &["libm.so.6"]),
    ];
    assert_eq!(events[4..9], expected);
    assert_eq!(events[9].0, "dl:dlmopen");
    assert_eq!(events[9].1[..3], [new_namespace, now, new]);
    assert!(events[9].2[1].ends_with("/libm.so.6"));
    assert_eq!(events.len(), 10);
}

fn names_need_not_be_text() {
    let traced = Traced::new(Sizes::default());
    // SAFETY: the name is a C string of a missing library.
    unsafe { libc::dlopen(c"/a/\xff/b".as_ptr(), NOW) };
    let expected = [
        event("dlopen_req", &[NOW as u64], &["/a/"]),
        event("dlopen", &[NOW as u64, 0, 0], &["/a/", ""]),
    ];
    assert_eq!(stop(traced), expected);
}

/// If the caller matters, there is no event of the result. `preload/tests` checks that the caller
/// gets the right result; here the caller is the library.
fn results_that_depend_on_the_caller_are_not_seen() {
    let traced = Traced::new(Sizes::default());
    // SAFETY: the names are C strings of missing libraries.
    unsafe {
        libc::dlopen(c"$ORIGIN/no/such/library.so".as_ptr(), NOW);
        libc::dlmopen(libc::LM_ID_BASE, c"$LIB/none.so".as_ptr(), NOW);
    }
    let now = NOW as u64;
    let expected = [
        event("dlopen_req", &[now], &["$ORIGIN/no/such/library.so"]),
        event("dlmopen_req", &[0, now], &["$LIB/none.so"]),
    ];
    assert_eq!(stop(traced), expected);
}

/// Machine code that calls its third argument with the other two.
#[cfg(target_arch = "x86_64")]
const CALLS: &[u8] = b"\x48\x83\xec\x08\xff\xd2\x48\x83\xc4\x08\xc3";
#[cfg(target_arch = "aarch64")]
const CALLS: &[u8] = b"\xfd\x7b\xbf\xa9\x40\x00\x3f\xd6\xfd\x7b\xc1\xa8\xc0\x03\x5f\xd6";

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Generated code is in no object: the C library searches on behalf of the program, and this
/// library could only search on its own. So there is an event of the result only for a path, which
/// is the same for every caller.
fn callers_in_no_object() {
    let traced = Traced::new(Sizes::default());
    let (_, path) = libc_object();
    let full = CString::new(path.clone()).unwrap();
    // SAFETY: the code is written to a new mapping before it runs, and has the type `By`.
    let (start, handles) = unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        memory.cast::<u8>().copy_from(CALLS.as_ptr(), CALLS.len());
        assert_eq!(
            libc::mprotect(memory, 4096, libc::PROT_READ | libc::PROT_EXEC),
            0
        );
        type By = unsafe extern "C" fn(*const c_char, c_int, Dlopen) -> *mut c_void;
        let by: By = std::mem::transmute(memory);
        let open = |name: &CStr| by(name.as_ptr(), NOW, libc::dlopen);
        (memory.addr() as u64, [open(c"libc.so.6"), open(&full)])
    };
    // The result is the same as without the library.
    assert!(!handles[0].is_null() && handles[0] == handles[1]);
    let events = traced.stop();
    let names: Vec<_> = events
        .iter()
        .map(|event| (event.name.as_str(), event.texts[0].as_str()))
        .collect();
    let expected = [
        ("dl:dlopen_req", "libc.so.6"),
        ("dl:dlopen_req", &*path),
        ("dl:dlopen", &*path),
    ];
    assert_eq!(names, expected);
    for event in &events[..2] {
        let caller = event.numbers[1];
        assert!((start..start + 4096).contains(&caller), "{caller:#x}");
    }
}

static TESTS: [(&str, fn()); 4] = [
    ("each_function_is_an_event", each_function_is_an_event),
    ("names_need_not_be_text", names_need_not_be_text),
    ("callers_in_no_object", callers_in_no_object),
    (
        "results_that_depend_on_the_caller_are_not_seen",
        results_that_depend_on_the_caller_are_not_seen,
    ),
];

fn main() -> ExitCode {
    isolated(&TESTS)
}
