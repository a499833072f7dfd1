//! Programs that compilers make for a test, and what a trace says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_library::succeed;

/// Source in C: `here` marks the return address of `malloc` in `leak`, which is inlined into
/// `work`, and `there` that of `work` in `main`.
pub const LEAK_C: &str = r#"
#include <stdlib.h>
static inline __attribute__((always_inline)) void *leak(unsigned n)
{
	void *block = malloc(n);
	__asm__ volatile(".globl here\nhere:\n\tnop");
	return block;
}
__attribute__((noinline, noclone)) void *work(unsigned n)
{
	return leak(n + 1);
}
int main(int argc, char **argv)
{
	(void)argv;
	void *block = work(argc);
	__asm__ volatile(".globl there\nthere:\n\tnop");
	return block == 0;
}
"#;

/// The same in C++.
pub const LEAK_CPP: &str = r#"
#include <cstdlib>
namespace shop {
struct Cart {
	template <class T> static inline __attribute__((always_inline)) void *leak(T n)
	{
		void *block = std::malloc(n);
		__asm__ volatile(".globl here\nhere:\n\tnop");
		return block;
	}
	__attribute__((noinline, noclone)) void *work(unsigned n)
	{
		return leak(n + 1);
	}
};
}
int main(int argc, char **)
{
	shop::Cart cart;
	void *block = cart.work(argc);
	__asm__ volatile(".globl there\nthere:\n\tnop");
	return block == nullptr;
}
"#;

/// The same in Rust.
pub const LEAK_RUST: &str = r#"
#![allow(named_asm_labels)]
mod shop {
    #[inline(always)]
    pub fn leak(n: usize) -> *mut u8 {
        let block = Box::leak(vec![0u8; n].into_boxed_slice()).as_mut_ptr();
        unsafe { std::arch::asm!(".globl here", "here: nop") };
        block
    }
    #[inline(never)]
    pub fn work(n: usize) -> *mut u8 {
        leak(n + 1)
    }
}
fn main() {
    let block = shop::work(std::env::args().count());
    unsafe { std::arch::asm!(".globl there", "there: nop") };
    std::hint::black_box(block);
}
"#;

/// A program or library.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Its path.
    pub path: PathBuf,
    /// Its build ID in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// Address of its lowest segment in the file.
    pub lowest: u64,
    /// Size of the range that it is loaded to.
    pub size: u64,
    /// Distances of the labels `here` and `there` from the start.
    pub here: u64,
    /// 0 if there is no such label.
    pub there: u64,
}

/// Runs a program, which has to succeed, and returns its output.
///
/// # Panics
/// If it does not succeed.
pub fn run(command: &mut Command) -> String {
    succeed(&command.output().unwrap())
}

/// Compiles a source with these arguments of the compiler, as `shop` in a directory.
///
/// # Panics
/// If the source cannot be compiled.
pub fn compile(directory: &Path, source: &str, arguments: &[&str]) -> Compiled {
    let (compiler, file) = match () {
        () if source.contains("fn main") => ("rustc", "shop.rs"),
        () if source.contains("namespace") => ("g++", "shop.cc"),
        () => ("gcc", "shop.c"),
    };
    fs::write(directory.join(file), source).unwrap();
    let path = directory.join("shop");
    let mut command = Command::new(compiler);
    command.current_dir(directory);
    match compiler {
        "rustc" => command.args(["--edition=2024", "-O", "-g", "-Clink-arg=-Wl,--build-id"]),
        _ => command.args(["-O2", "-g", "-Wl,--build-id"]),
    };
    run(command.args(arguments).arg(file).arg("-o").arg(&path));
    Compiled::of(path)
}

impl Compiled {
    /// What a trace says of a program with the label `here`.
    ///
    /// # Panics
    /// If it is no such program.
    pub fn of(path: PathBuf) -> Self {
        let headers = run(Command::new("readelf").arg("-lnW").arg(&path));
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let loads = headers
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let loads: Vec<_> = loads
            .filter(|words| words.first() == Some(&"LOAD"))
            .collect();
        let lowest = loads.iter().map(|words| number(words[2])).min().unwrap();
        let end = loads
            .iter()
            .map(|words| number(words[2]) + number(words[5]))
            .max();
        let id = headers.split("Build ID:").nth(1);
        let id = id.and_then(|id| id.split_whitespace().next());
        let symbols = run(Command::new("nm").arg(&path));
        let label = |name: &str| {
            let line = symbols
                .lines()
                .find(|line| line.split_whitespace().last() == Some(name));
            line.map(|line| number(line.split_whitespace().next().unwrap()) - lowest)
        };
        Self {
            build_id: id.map(str::to_owned),
            lowest,
            size: end.unwrap() - lowest,
            here: label("here").unwrap(),
            there: label("there").unwrap_or(0),
            path,
        }
    }

    /// The line in the control channel when it was loaded at an address.
    #[must_use]
    pub fn loaded_at(&self, base: u64) -> String {
        let path = self.path.to_str().unwrap();
        let path: String = path
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            })
            .collect();
        let is_pic = u8::from(self.lowest == 0);
        let id = self.build_id.as_deref().unwrap_or("-");
        format!("+{base:x} {:x} {is_pic} {id} - - {path}", self.size)
    }

    /// Moves the debug information into a file of its own, and returns its path.
    ///
    /// # Panics
    /// If that fails.
    pub fn split(&self) -> PathBuf {
        let debug = self.path.with_extension("dbg");
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(&self.path)
            .arg(&debug));
        run(Command::new("strip").arg(&self.path));
        debug
    }

    /// Path of its debug file below a directory for debug files.
    ///
    /// # Panics
    /// If it has no build ID.
    #[must_use]
    pub fn debug_path(&self) -> PathBuf {
        let id = self.build_id.as_deref().unwrap();
        PathBuf::from(".build-id")
            .join(&id[..2])
            .join(format!("{}.debug", &id[2..]))
    }
}
