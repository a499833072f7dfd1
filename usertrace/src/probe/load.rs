//! Libraries of probes that are loaded on command.

use std::ffi::{CStr, c_char, c_void};

use super::{Call, Error, opened, register_of, table, unregister};
use crate::runtime::registry;

/// The symbol by which a library says which probes it has: an array of [`Declaration`], which ends
/// with one that has no name. So it need not be linked with anything.
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
    /// There is no place for another library, or no memory.
    Library(Error),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Linker(text) => f.write_str(text),
            Self::Probe(name, error) => write!(f, "its probe {name:?}: {error}"),
            Self::Library(error) => write!(f, "the library: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Why a library of probes was not unloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnloadError {
    /// No library of that name was loaded by [`load`].
    NotLoaded,
    /// What the dynamic linker says.
    Linker(String),
    /// It has a probe that cannot be taken out: its name, and why.
    Probe(String, Error),
}

impl std::fmt::Display for UnloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotLoaded => f.write_str("no library of that name was loaded for its probes"),
            Self::Linker(text) => f.write_str(text),
            Self::Probe(name, error) => write!(f, "its probe {name:?}: {error}"),
        }
    }
}

impl std::error::Error for UnloadError {}

fn linker_error() -> String {
    // SAFETY: a text of this thread's, until the next call.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_default()
}

/// Loads a library, registers the probes that its symbol `usertrace_probes` lists, and says how
/// many these are. What it registers by itself when it is loaded is not among them. It stays loaded
/// until [`unload`].
///
/// Not to be called from a signal handler.
///
/// # Errors
/// When the dynamic linker does not load it, or one of its probes cannot be registered: then none
/// of them is.
///
/// # Safety
/// The library's constructors run, and its probes must be what they say.
pub unsafe fn load(path: &CStr) -> Result<usize, LoadError> {
    // SAFETY: the library's constructors may run here, as this function's caller promises.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(LoadError::Linker(linker_error()));
    }
    let entered =
        opened().and_then(|(table, mut held)| table.lists(&mut held).add_library(library.addr()));
    if let Err(error) = entered {
        // SAFETY: nothing of it is used.
        unsafe { libc::dlclose(library) };
        return Err(LoadError::Library(error));
    }
    // SAFETY: the library is there.
    let list = unsafe { libc::dlsym(library, SYMBOL.as_ptr()) }.cast::<Declaration>();
    let mut count = 0;
    while !list.is_null() {
        // SAFETY: the array goes up to one without a name, as `load`'s caller promises.
        let Some((name, probe)) = (unsafe { named(list.add(count)) }) else {
            break;
        };
        let done = match probe.call {
            // SAFETY: the library stays.
            Some(call) => unsafe { register_of(&name, call, probe.data, library.addr()) },
            None => Err(Error::NoProbe),
        };
        if let Err(error) = done {
            for n in 0..count {
                // SAFETY: as above.
                if let Some((name, _)) = unsafe { named(list.add(n)) } {
                    let _ = unregister(&name);
                }
            }
            leave(library.addr());
            // SAFETY: nothing of it is used any more.
            unsafe { libc::dlclose(library) };
            return Err(LoadError::Probe(name, error));
        }
        count += 1;
    }
    Ok(count)
}

/// The library is none that was loaded any more; says whether it was one.
fn leave(library: usize) -> bool {
    let (Some(table), Some(mut held)) = (table(), registry::hold()) else {
        return false;
    };
    table.lists(&mut held).remove_library(library)
}

/// Unloads what [`load`] has loaded: takes its probes out, with their connections, waits until
/// nobody is in one of them, and closes the library. Says how many probes these were. It is named
/// by the path that it was loaded by, or by another one of the same file.
///
/// Not to be called from a signal handler, or from a probe.
///
/// # Errors
/// When it was not loaded so, or the dynamic linker does not close it.
///
/// # Safety
/// The library's destructors run. What else uses it, such as probes that it has registered by
/// itself, these must end.
pub unsafe fn unload(path: &CStr) -> Result<usize, UnloadError> {
    let flags = libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
    // SAFETY: it is there already, or is not loaded. It stays, as it has been opened before, or is
    // none of ours.
    let library = unsafe {
        let library = libc::dlopen(path.as_ptr(), flags);
        if library.is_null() {
            return Err(UnloadError::NotLoaded);
        }
        libc::dlclose(library);
        library
    };
    let table = table().ok_or(UnloadError::NotLoaded)?;
    let mut count = 0;
    loop {
        let mut held = registry::hold().ok_or(UnloadError::NotLoaded)?;
        let lists = table.lists(&mut held);
        if !lists.has_library(library.addr()) {
            return Err(UnloadError::NotLoaded);
        }
        let Some(name) = lists.probe_of(library.addr()).map(str::to_owned) else {
            break;
        };
        drop(held);
        match unregister(&name) {
            Ok(()) => count += 1,
            // Somebody else was first.
            Err(Error::NoProbe) => {}
            Err(error) => return Err(UnloadError::Probe(name, error)),
        }
    }
    if !leave(library.addr()) {
        return Err(UnloadError::NotLoaded);
    }
    // SAFETY: who takes it off the list closes it: it was opened when it came there.
    match unsafe { libc::dlclose(library) } {
        0 => Ok(count),
        _ => Err(UnloadError::Linker(linker_error())),
    }
}

/// # Safety
/// It must be one, with a name that is a text or NULL.
unsafe fn named(probe: *const Declaration) -> Option<(String, &'static Declaration)> {
    // SAFETY: the declaration is there, with a name that is a text or NULL, as this function's
    // caller promises.
    unsafe {
        let probe = &*probe;
        let name = (!probe.name.is_null()).then(|| CStr::from_ptr(probe.name))?;
        Some((name.to_string_lossy().into_owned(), probe))
    }
}
