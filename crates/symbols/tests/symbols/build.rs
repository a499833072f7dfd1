//! Builds programs, and looks up addresses in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use usertrace_symbols::{BuildId, DebugLink, Module, Options, Symbols};

/// Source in C: `here` marks an instruction in `leak`, which is inlined into `work`.
pub(crate) const C: &str = r#"
#include <stdlib.h>
static inline __attribute__((always_inline)) void *leak(unsigned n)
{
	void *block = malloc(n);
	__asm__ volatile(".globl here\nhere:\n\tnop");
	return block;
}
__attribute__((noinline)) void *work(unsigned n)
{
	return leak(n + 1);
}
int main(int argc, char **argv)
{
	(void)argv;
	return work(argc) == 0;
}
"#;

/// The same in C++.
pub(crate) const CPP: &str = r#"
#include <cstdlib>
namespace shop {
struct Cart {
	template <class T> static inline __attribute__((always_inline)) void *leak(T n)
	{
		void *block = std::malloc(n);
		__asm__ volatile(".globl here\nhere:\n\tnop");
		return block;
	}
	__attribute__((noinline)) void *work(unsigned n) { return leak(n + 1); }
};
}
int main(int argc, char **)
{
	shop::Cart cart;
	return cart.work(argc) == nullptr;
}
"#;

/// Runs a program, which has to succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A program in a directory of its own.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) build_id: Option<BuildId>,
    /// Distance of `here` from the start of the module.
    pub(crate) here: u64,
}

/// Compiles a source with `gcc` or `g++`.
pub(crate) fn compile(directory: &Path, source: &str, arguments: &[&str]) -> Program {
    let is_cpp = source.contains("namespace");
    let (compiler, name) = match is_cpp {
        true => ("g++", "shop.cc"),
        false => ("gcc", "shop.c"),
    };
    fs::write(directory.join(name), source).unwrap();
    let path = directory.join("shop");
    let mut command = Command::new(compiler);
    command
        .current_dir(directory)
        .args(["-O2", "-g", "-Wl,--build-id"]);
    run(command.args(arguments).arg(name).arg("-o").arg(&path));
    Program::of(path)
}

impl Program {
    /// A program that was built already.
    pub(crate) fn of(path: PathBuf) -> Self {
        let headers = run(Command::new("readelf").arg("-lnW").arg(&path));
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let loads = headers
            .lines()
            .filter(|line| line.trim_start().starts_with("LOAD"));
        let lowest = loads
            .map(|line| number(line.split_whitespace().nth(2).unwrap()))
            .min();
        let id = headers.split("Build ID:").nth(1);
        let id = id.map(|id| parse_id(id.split_whitespace().next().unwrap()));
        let symbols = run(Command::new("nm").arg(&path));
        let here = symbols.lines().find(|line| line.ends_with(" here"));
        let here = number(here.unwrap().split_whitespace().next().unwrap());
        Self {
            path,
            build_id: id,
            here: here - lowest.unwrap(),
        }
    }

    /// What a trace says of it.
    pub(crate) fn module(&self) -> Module {
        Module::new(0, &self.path, self.build_id.clone(), None)
    }

    /// What a trace says of it if it has no build ID.
    pub(crate) fn linked(&self, name: &str, crc: u32) -> Module {
        let link = DebugLink {
            name: name.as_bytes().into(),
            crc,
        };
        Module::new(0, &self.path, None, Some(link))
    }
}

fn parse_id(text: &str) -> BuildId {
    let digits = text.as_bytes().chunks(2);
    let bytes =
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap());
    BuildId::new(&bytes.collect::<Vec<_>>()).unwrap()
}

/// The frames at `here`, each as `FUNCTION FILE:LINE` without directories, and the messages.
pub(crate) fn resolve(
    module: &Module,
    here: u64,
    debug_dirs: &[&Path],
) -> (Vec<String>, Vec<String>) {
    let mut symbols = Symbols::new(Options {
        debug_dirs: debug_dirs.iter().map(|path| (*path).to_owned()).collect(),
        debuginfod: false,
    });
    let frames = symbols.frames(module, here);
    let text = frames.iter().map(|frame| {
        let place = frame.place().unwrap_or_else(|| "?".to_owned());
        let place = place.rsplit('/').next().unwrap_or_default();
        format!("{} {place}", frame.function)
    });
    let text = text.collect();
    let mut messages = symbols.take_messages();
    messages.extend(symbols.missing());
    (text, messages)
}
