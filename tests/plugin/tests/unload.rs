//! A program that unloads a library in Rust with events.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

/// The test runs this program again with this variable: then it loads the library.
const LOADS: &str = "USERTRACE_PLUGIN_TEST";

/// A library that traces has a signal handler, destructors of threads, and sequences that the
/// kernel knows. So `dlclose` does not unload it.
#[test]
fn a_library_that_traces_is_not_unloaded() {
    if std::env::var_os(LOADS).is_some() {
        return;
    }
    for (output, stays) in [(true, true), (false, false)] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "loads", "--nocapture"])
            .env(LOADS, if stays { "stays" } else { "goes" });
        if output {
            command.env("USERTRACE_OUTPUT", directory.path());
        }
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "traced: {output}: {said}");
    }
}

/// The program, when the other test runs it.
#[test]
fn loads() {
    let Ok(expected) = std::env::var(LOADS) else {
        return;
    };
    let program = std::env::current_exe().unwrap();
    let path = program.with_file_name("libusertrace_tests_plugin.so");
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the library may be loaded, and has the function.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
        let call = libc::dlsym(library, c"plugin_call".as_ptr());
        assert!(!call.is_null());
        let call = std::mem::transmute::<*mut c_void, extern "C" fn(u32) -> bool>(call);
        // In a thread that ends: the C library keeps what has destructors in a thread.
        let recorded = std::thread::spawn(move || call(1)).join().unwrap();
        assert_eq!(recorded, expected == "stays");
        assert_eq!(libc::dlclose(library), 0);
        let again = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert_eq!(!again.is_null(), expected == "stays");
    }
}
