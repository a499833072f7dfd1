//! Libraries of probes that are loaded on command.

use std::ffi::{CStr, c_char, c_void};

use super::{Call, Error, register, unregister};

/// The symbol by which a library says which probes it has: an array of [`Declaration`], which ends with one that has no
/// name. So it need not be linked with anything.
const SYMBOL: &CStr = c"usertrace_probes";

/// A probe of a library: `struct usertrace_probe` in C.
#[derive(Debug)]
#[repr(C)]
pub struct Declaration {
    /// Its name; NULL: the end.
    pub name: *const c_char,
    /// What events call.
    pub call: Option<Call>,
    /// What it is called with.
    pub data: *mut c_void,
}

// SAFETY: it is for statics, whose data whoever wrote the probe keeps in order.
unsafe impl Sync for Declaration {}

/// Why a library of probes was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// What the dynamic linker says.
    Linker(String),
    /// It has a probe that cannot be registered: its name, and why.
    Probe(String, Error),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Linker(text) => f.write_str(text),
            Self::Probe(name, error) => write!(f, "its probe {name:?}: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

fn linker_error() -> LoadError {
    // SAFETY: a text of this thread's, until the next call.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    LoadError::Linker(text.unwrap_or_default())
}

/// Loads a library, registers the probes that its symbol `usertrace_probes` lists, and says how many these are. What it
/// registers by itself when it is loaded is not among them. It stays loaded.
///
/// Not to be called from a signal handler.
///
/// # Errors
/// When the dynamic linker does not load it, or one of its probes cannot be registered: then none of them is.
///
/// # Safety
/// The library's constructors run, and its probes must be what they say.
pub unsafe fn load(path: &CStr) -> Result<usize, LoadError> {
    // SAFETY: the caller's promise.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(linker_error());
    }
    // SAFETY: the library is there.
    let list = unsafe { libc::dlsym(library, SYMBOL.as_ptr()) }.cast::<Declaration>();
    let mut count = 0;
    while !list.is_null() {
        // SAFETY: the caller's promise: the array goes up to one without a name.
        let Some((name, probe)) = (unsafe { named(list.add(count)) }) else {
            break;
        };
        let done = match probe.call {
            // SAFETY: the library stays.
            Some(call) => unsafe { register(&name, call, probe.data) },
            None => Err(Error::NoProbe),
        };
        if let Err(error) = done {
            for n in 0..count {
                // SAFETY: as above.
                if let Some((name, _)) = unsafe { named(list.add(n)) } {
                    let _ = unregister(&name);
                }
            }
            // SAFETY: nothing of it is used any more.
            unsafe { libc::dlclose(library) };
            return Err(LoadError::Probe(name, error));
        }
        count += 1;
    }
    Ok(count)
}

/// # Safety
/// It must be one, with a name that is a text or NULL.
unsafe fn named(probe: *const Declaration) -> Option<(String, &'static Declaration)> {
    // SAFETY: the caller's promise.
    unsafe {
        let probe = &*probe;
        let name = (!probe.name.is_null()).then(|| CStr::from_ptr(probe.name))?;
        Some((name.to_string_lossy().into_owned(), probe))
    }
}
