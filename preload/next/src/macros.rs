//! Macros that declare interposed functions and events.

/// Defines functions that interpose others: `interpose! { pub fn NAME(…) -> … = FUNCTION; … }`.
///
/// `FUNCTION` runs in place of `NAME`, with an additional last argument: the call's return address,
/// which identifies the caller, and the frame pointer. The compiler has no stable way to get them,
/// so `NAME` is nothing but a jump that passes both. The stack is the caller's; unwinding and
/// backtraces work as usual.
#[macro_export]
macro_rules! interpose {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $target:path;
    )*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// As for the interposed function.
        #[unsafe(naked)]
        $visibility unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            // The target has the type of this function, with the caller as an additional argument,
            // which takes two registers.
            const _: unsafe extern "C-unwind" fn($($type,)* $crate::Caller) $(-> $result)? = $target;
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                ::core::concat!("mov ", $crate::interpose!(@register $($argument)*), ", [rsp]"),
                ::core::concat!("mov ", $crate::interpose!(@register $($argument)* and), ", rbp"),
                "jmp {target}",
                ".cfi_endproc",
                target = sym $target,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                ::core::concat!("mov ", $crate::interpose!(@register $($argument)*), ", x30"),
                ::core::concat!("mov ", $crate::interpose!(@register $($argument)* and), ", x29"),
                "b {target}",
                ".cfi_endproc",
                target = sym $target,
            );
        }
    )*};
    // The register of the argument after these.
    (@register $a:ident) => { $crate::register!("rsi", "x1") };
    (@register $a:ident $b:ident) => { $crate::register!("rdx", "x2") };
    (@register $a:ident $b:ident $c:ident) => { $crate::register!("rcx", "x3") };
    (@register $a:ident $b:ident $c:ident $d:ident) => { $crate::register!("r8", "x4") };
    (@register $a:ident $b:ident $c:ident $d:ident $e:ident) => { $crate::register!("r9", "x5") };
}

/// The register of an argument, as the processor calls it.
#[doc(hidden)]
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! register {
    ($x86_64:literal, $aarch64:literal) => {
        $x86_64
    };
}

/// The register of an argument, as the processor calls it.
#[doc(hidden)]
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! register {
    ($x86_64:literal, $aarch64:literal) => {
        $aarch64
    };
}

/// Declares interposed functions: `NAME(…)` calls one, and `ALL` has all of them.
///
/// A function is searched for in the libraries after the caller's, or with `from Default` where the
/// program finds it. `replaced` has its versions, if the C library has two. `else` names a
/// replacement for a missing function, and for calls within the lookup itself. Functions that no
/// lookup calls need none.
#[macro_export]
macro_rules! next {
    ($(
        $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?
        $(, from $from:ident)? $(, replaced $replaced:expr)? $(, else $own:path)?;
    )*) => {
        /// All functions of this list.
        pub(crate) static ALL: &[&$crate::Next] = &[$(&statics::$name),*];

        #[allow(non_upper_case_globals, reason = "named as the functions")]
        pub(crate) mod statics {
            #[allow(unused_imports, reason = "not all functions have replaced versions")]
            use super::*;

            $(pub(crate) static $name: $crate::Next = {
                const NAME: &str = ::core::concat!(::core::stringify!($name), "\0");
                let name = match ::core::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => ::core::unreachable!(),
                };
                let from = $crate::next!(@from $($from)?);
                let replaced = $crate::next!(@replaced $($replaced)?);
                let resolver = super::resolvers::$name as super::types::$name;
                $crate::Next::new(name, from, replaced, resolver as *mut ::core::ffi::c_void)
            };)*
        }

        #[allow(non_camel_case_types, reason = "named as the functions")]
        mod types {
            #[allow(unused_imports, reason = "for the types of arguments")]
            use super::*;

            // Cancelling a thread inside of such a function unwinds it.
            $(pub(super) type $name = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;)*
        }

        /// Functions that are called until the real ones are found.
        mod resolvers {
            #[allow(unused_imports, reason = "for the types of arguments")]
            use super::*;

            $(
                #[cold]
                pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
                    match super::statics::$name.found(super::ALL) {
                        // SAFETY: the function of this name has this type, and the arguments are
                        // the program's.
                        Some(address) => unsafe {
                            ::core::mem::transmute::<*mut ::core::ffi::c_void, super::types::$name>(address)(
                                $($argument),*
                            )
                        },
                        None => $crate::next!(@else $name($($argument),*) $($own)?),
                    }
                }
            )*
        }

        $(
            /// # Safety
            /// As for the C function.
            #[inline(always)]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the function and its resolver have this type, and the arguments are the
                // program's.
                unsafe {
                    ::core::mem::transmute::<*mut ::core::ffi::c_void, types::$name>(
                        statics::$name.address(),
                    )($($argument),*)
                }
            }
        )*
    };
    (@from) => { $crate::SearchScope::Next };
    (@from $from:ident) => { $crate::SearchScope::$from };
    (@replaced) => { None };
    (@replaced $replaced:expr) => { $replaced };
    (@else $name:ident($($argument:ident),*)) => {{
        $(let _ = $argument;)*
        $crate::missing(::core::stringify!($name))
    }};
    // SAFETY: the replacement has the function's type, and the arguments are the program's.
    (@else $name:ident($($argument:ident),*) $own:path) => { unsafe { $own($($argument),*) } };
}

/// Declares the events of a provider: `events! { "PROVIDER": NAME "NAME" { FIELD: TYPE, … } … }`.
#[macro_export]
macro_rules! events {
    ($provider:literal: $($module:ident $name:literal { $($field:ident: $type:ident),* })*) => {$(
        usertrace::tracepoint! {
            #[doc = ::core::concat!("The event `", $provider, ":", $name, "`.")]
            pub(crate) mod $module {
                provider: $provider,
                name: $name,
                loglevel: DebugFunction,
                fields: { $($field: $type),* }
            }
        }
    )*};
}
