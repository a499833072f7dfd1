//! The first process of the guest of `scripts/cross boot`. It runs the programs in `/tests/list`,
//! which has one a line, after variables of its environment. Then it ends QEMU with a status that
//! tells whether all succeeded.
//!
//! `scripts/cross` compiles this file alone, without any crate.

use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
use std::path::Path;
use std::process::Command;

/// The status of success. QEMU's status is 0 if it ends for another reason.
const SUCCEEDED: u64 = 100;
const FAILED: u64 = 101;

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
}

fn mount_kind(kind: &str, target: &str) -> Result<(), String> {
    let text = |text| CString::new(text).map_err(|e| format!("{e}"));
    let (kind, place) = (text(kind)?, text(target)?);
    std::fs::create_dir_all(Path::new(target)).map_err(|e| format!("{target}: {e}"))?;
    // SAFETY: strings that end with NUL, and no data.
    let result = unsafe {
        mount(
            kind.as_ptr(),
            place.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(format!("{target}: {}", std::io::Error::last_os_error())),
    }
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace().peekable();
    let mut environment = Vec::new();
    while let Some(variable) = words.next_if(|word| word.contains('=')) {
        environment.extend(variable.split_once('='));
    }
    let program = words.next().ok_or("no program")?;
    println!("cross: {line}");
    let status = Command::new(program)
        .args(words)
        .envs(environment)
        .env("PATH", "/bin")
        .env("HOME", "/tmp")
        .current_dir("/tmp")
        .status()
        .map_err(|e| format!("{program}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program}: {status}"))
    }
}

fn run_all() -> Result<(), String> {
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        mount_kind(kind, target)?;
    }
    mount_kind("tmpfs", "/dev/shm")?;
    let list = std::fs::read_to_string("/tests/list").map_err(|e| format!("/tests/list: {e}"))?;
    let mut result = Ok(());
    for line in list.lines() {
        if let Err(why) = run(line) {
            println!("cross: {why}");
            result = Err("some failed".into());
        }
    }
    result
}

/// Ends QEMU: the semihosting call SYS_EXIT, with ADP_Stopped_ApplicationExit.
fn end(status: u64) -> ! {
    let block = [0x2_0026, status];
    loop {
        // SAFETY: the call reads the block, and does not return.
        unsafe {
            std::arch::asm!("hlt #0xf000", in("x0") 0x18u64, in("x1") block.as_ptr());
        }
    }
}

fn main() {
    let result =
        std::panic::catch_unwind(run_all).unwrap_or_else(|_| Err("the first process".into()));
    end(match result {
        Ok(()) => SUCCEEDED,
        Err(why) => {
            println!("cross: {why}");
            FAILED
        }
    })
}
