//! The events.

macro_rules! events {
    ($($module:ident $name:literal { $($field:ident: $type:ident),* })*) => {$(
        usertrace::tracepoint! {
            #[doc = concat!("A call of `", $name, "`.")]
            pub(crate) mod $module {
                provider: "libc",
                name: $name,
                loglevel: DebugFunction,
                fields: { $($field: $type),* }
            }
        }
    )*};
}

events! {
    malloc "malloc" { size: u64, ptr: x64 }
    calloc "calloc" { nmemb: u64, size: u64, ptr: x64 }
    realloc "realloc" { in_ptr: x64, size: u64, ptr: x64 }
    free "free" { ptr: x64 }
    posix_memalign "posix_memalign" { alignment: u64, size: u64, result: i32, ptr: x64 }
    aligned_alloc "aligned_alloc" { alignment: u64, size: u64, ptr: x64 }
    memalign "memalign" { alignment: u64, size: u64, ptr: x64 }
}
