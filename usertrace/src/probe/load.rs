//! Loads and unloads libraries of probes on command.

use std::ffi::{CStr, c_char, c_void};

use super::{Call, Error, opened, register_of, table, unregister};
use crate::runtime::registry;

/// The symbol of a library's list of probes: an array of [`Declaration`] that ends with one without
/// a name. So the library need not be linked with this crate.
const SYMBOL: &CStr = c"usertrace_probes";

/// The declaration of a probe in a library: `struct usertrace_probe` in C.
#[derive(Debug)]
#[repr(C)]
pub struct Declaration {
    /// The probe's name; NULL: the end of the list.
    pub name: *const c_char,
    /// The function that events call.
    pub call: Option<Call>,
    /// The function's second argument.
    pub data: *mut c_void,
}

// SAFETY: declarations are immutable statics; the author of the probe is responsible for its data.
unsafe impl Sync for Declaration {}

/// Why a library of probes was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The message of the dynamic linker.
    Linker(String),
    /// A probe of the library cannot be registered: its name, and why.
    Probe(String, Error),
    /// The table of libraries is full, or there is no memory.
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
#[non_exhaustive]
pub enum UnloadError {
    /// [`load`] loaded no library of that name.
    NotLoaded,
    /// The message of the dynamic linker.
    Linker(String),
    /// A probe of the library cannot be removed: its name, and why.
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
    // SAFETY: the string belongs to this thread, and is valid until the next call of the dynamic
    // linker.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_default()
}

/// Loads a library, and registers the probes that its symbol `usertrace_probes` lists. Returns
/// their number, which does not include probes that its constructors register. The library stays
/// loaded until [`unload`].
///
/// Signal handlers must not call this.
///
/// # Errors
/// If the dynamic linker does not load the library, or one of its probes cannot be registered. No
/// probe of the list stays registered then.
///
/// # Safety
/// The library's constructors run, and its declarations of probes must be valid.
pub unsafe fn load(path: &CStr) -> Result<usize, LoadError> {
    // SAFETY: the contract of this function: the library's constructors may run.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(LoadError::Linker(linker_error()));
    }
    let entered =
        opened().and_then(|(table, mut held)| table.lists(&mut held).add_library(library.addr()));
    if let Err(error) = entered {
        // SAFETY: nothing of the library is in use.
        unsafe { libc::dlclose(library) };
        return Err(LoadError::Library(error));
    }
    // SAFETY: the library is loaded, and the symbol ends with NUL.
    let list = unsafe { libc::dlsym(library, SYMBOL.as_ptr()) }.cast::<Declaration>();
    let mut count = 0;
    while !list.is_null() {
        // SAFETY: the contract of this function: the array ends with a declaration without a name.
        let Some((name, probe)) = (unsafe { named(list.add(count)) }) else {
            break;
        };
        let done = match probe.call {
            // SAFETY: the library stays loaded until its probes are removed, below or by `unload`.
            Some(call) => unsafe { register_of(&name, call, probe.data, library.addr()) },
            None => Err(Error::NoProbe),
        };
        if let Err(error) = done {
            for n in 0..count {
                // SAFETY: the loop above has read this declaration.
                if let Some((name, _)) = unsafe { named(list.add(n)) } {
                    let _ = unregister(&name);
                }
            }
            forget(library.addr());
            // SAFETY: all its probes were unregistered above.
            unsafe { libc::dlclose(library) };
            return Err(LoadError::Probe(name, error));
        }
        count += 1;
    }
    Ok(count)
}

/// Removes a library from the table; returns true if it was there.
fn forget(library: usize) -> bool {
    let (Some(table), Some(mut held)) = (table(), registry::hold()) else {
        return false;
    };
    table.lists(&mut held).remove_library(library)
}

/// Unloads a library that [`load`] loaded: removes its probes and their connections, waits until no
/// thread executes them, and closes the library. Returns the number of these probes. The path may
/// be another one of the same file.
///
/// Signal handlers and probes must not call this.
///
/// # Errors
/// If [`load`] did not load the library, or the dynamic linker does not close it.
///
/// # Safety
/// The library's destructors run. They must end all other use of the library, such as probes that
/// its constructors registered.
pub unsafe fn unload(path: &CStr) -> Result<usize, UnloadError> {
    let flags = libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
    // SAFETY: `RTLD_NOLOAD` runs no code. The library stays loaded after `dlclose`, because another
    // `dlopen` holds it.
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
            // Another thread removed it first.
            Err(Error::NoProbe) => {}
            Err(error) => return Err(UnloadError::Probe(name, error)),
        }
    }
    if !forget(library.addr()) {
        return Err(UnloadError::NotLoaded);
    }
    // SAFETY: the call that removes the library from the table closes the handle that `load`
    // opened.
    match unsafe { libc::dlclose(library) } {
        0 => Ok(count),
        _ => Err(UnloadError::Linker(linker_error())),
    }
}

/// # Safety
/// The pointer must be to a declaration whose name is a string or NULL.
unsafe fn named(probe: *const Declaration) -> Option<(String, &'static Declaration)> {
    // SAFETY: the contract of this function: the declaration is mapped, with a string or NULL as
    // its name.
    unsafe {
        let probe = &*probe;
        let name = (!probe.name.is_null()).then(|| CStr::from_ptr(probe.name))?;
        Some((name.to_string_lossy().into_owned(), probe))
    }
}
