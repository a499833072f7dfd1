//! How functions and events are declared.

/// Defines functions that stand in front of others: `interpose! { pub fn NAME(…) -> … = FUNCTION; …
/// }`.
///
/// `FUNCTION` is called in place of `NAME`, with one argument more: the address that the call
/// returns to, which says who called. The compiler has no stable way to ask for that, so that a
/// jump with it is all that `NAME` is. The stack is as the caller left it; unwinding and backtraces
/// work as without it.
#[macro_export]
macro_rules! interpose {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $told:path;
    )*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        /// As the function's that it stands in front of.
        #[unsafe(naked)]
        $visibility unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            // The function that is told has the type of this one, and the address as its last
            // argument.
            const _: unsafe extern "C-unwind" fn($($type,)* usize) $(-> $result)? = $told;
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                ::core::concat!("mov ", $crate::interpose!(@register $($argument)*), ", [rsp]"),
                "jmp {told}",
                told = sym $told,
            );
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                ::core::concat!("mov ", $crate::interpose!(@register $($argument)*), ", x30"),
                "b {told}",
                told = sym $told,
            );
        }
    )*};
    // The register of the argument behind these.
    (@register $a:ident) => { $crate::register!("rsi", "x1") };
    (@register $a:ident $b:ident) => { $crate::register!("rdx", "x2") };
    (@register $a:ident $b:ident $c:ident) => { $crate::register!("rcx", "x3") };
    (@register $a:ident $b:ident $c:ident $d:ident) => { $crate::register!("r8", "x4") };
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

/// Declares functions of other libraries; `NAME(…)` calls one, and `ALL` has all of them.
///
/// A function is looked for in the libraries behind the caller's; with `from First`, where the
/// program finds it. `replaced` has its versions, where the C library has two. `else` names what is
/// called where there is none, and by what the lookup itself calls. Without it nothing is: that is
/// for functions that no lookup needs.
#[macro_export]
macro_rules! next {
    ($(
        $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?
        $(, from $from:ident)? $(, replaced $replaced:expr)? $(, else $own:path)?;
    )*) => {
        /// All of them.
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
                let finds = super::finds::$name as super::types::$name;
                $crate::Next::new(name, from, replaced, finds as *mut ::core::ffi::c_void)
            };)*
        }

        #[allow(non_camel_case_types, reason = "named as the functions")]
        mod types {
            #[allow(unused_imports, reason = "for the types of arguments")]
            use super::*;

            // Threads may be cancelled in them, which unwinds.
            $(pub(super) type $name = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;)*
        }

        /// What stands in until they are found.
        mod finds {
            #[allow(unused_imports, reason = "for the types of arguments")]
            use super::*;

            $(
                #[cold]
                pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
                    match super::statics::$name.found(super::ALL) {
                        // SAFETY: the dynamic linker found it under this name, so it has this type;
                        // and the arguments are the program's.
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
            /// As the C function's.
            #[inline(always)]
            pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: the function, or what finds it and calls it, has this type; and the
                // arguments are the program's.
                unsafe {
                    ::core::mem::transmute::<*mut ::core::ffi::c_void, types::$name>(
                        statics::$name.address(),
                    )($($argument),*)
                }
            }
        )*
    };
    (@from) => { $crate::Where::Behind };
    (@from $from:ident) => { $crate::Where::$from };
    (@replaced) => { None };
    (@replaced $replaced:expr) => { $replaced };
    (@else $name:ident($($argument:ident),*)) => {{
        $(let _ = $argument;)*
        $crate::missing(::core::stringify!($name))
    }};
    // SAFETY: the arguments are the program's.
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
