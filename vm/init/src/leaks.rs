//! The kernel's own search for leaks (kmemleak), if it has one.

use std::fs;
use std::path::Path;
use std::time::Duration;

const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// Objects younger than this are not reported yet (`MSECS_MIN_AGE` in mm/kmemleak.c).
const MIN_AGE: Duration = Duration::from_secs(5);

/// Searches for leaks, and prints them to the console, where the host finds them.
pub(crate) fn look() {
    let path = Path::new(KMEMLEAK);
    if !path.exists() {
        return;
    }
    // The first scan only remembers what it suspects; what is still unreachable in a later one is
    // reported.
    for _ in 0..2 {
        std::thread::sleep(MIN_AGE);
        if let Err(e) = fs::write(path, "scan") {
            eprintln!("usertrace-init: BUG: kmemleak cannot scan: {e}");
            return;
        }
    }
    match fs::read_to_string(path) {
        Ok(found) if found.is_empty() => println!("usertrace-init: kmemleak: no leaks"),
        Ok(found) => println!("usertrace-init: kmemleak found:\n{found}"),
        Err(e) => eprintln!("usertrace-init: BUG: kmemleak cannot be read: {e}"),
    }
}
