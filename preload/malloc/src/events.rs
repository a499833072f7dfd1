//! The events.

usertrace_next::events! { "libc":
    malloc "malloc" { size: u64, ptr: x64 }
    calloc "calloc" { nmemb: u64, size: u64, ptr: x64 }
    realloc "realloc" { in_ptr: x64, size: u64, ptr: x64 }
    free "free" { ptr: x64 }
    posix_memalign "posix_memalign" { alignment: u64, size: u64, result: i32, ptr: x64 }
    aligned_alloc "aligned_alloc" { alignment: u64, size: u64, ptr: x64 }
    memalign "memalign" { alignment: u64, size: u64, ptr: x64 }
    valloc "valloc" { size: u64, ptr: x64 }
    pvalloc "pvalloc" { size: u64, ptr: x64 }
}
