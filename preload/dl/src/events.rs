//! The events.

usertrace_next::events! { "dl":
    dlopen_req "dlopen_req" { name: str, flags: x32, caller: x64 }
    dlopen "dlopen" { name: str, flags: x32, handle: x64, base: x64, path: str }
    dlmopen_req "dlmopen_req" { namespace: i64, name: str, flags: x32, caller: x64 }
    dlmopen "dlmopen" { namespace: i64, name: str, flags: x32, handle: x64, base: x64, path: str }
    dlclose_req "dlclose_req" { handle: x64 }
    dlclose "dlclose" { handle: x64, result: i32 }
}
