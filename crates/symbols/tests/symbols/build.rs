//! What traces say of compiled programs, and what is found there.

use std::path::Path;

use usertrace_symbols::{BuildId, DebugLink, Module, Options, Symbols};
use usertrace_testing::compiled::Compiled;

/// Lines of the labels in the sources.
pub(crate) const FRAMES_C: [&str; 2] = ["leak shop.c:6", "work shop.c:11"];

/// The build ID of a program.
pub(crate) fn id(program: &Compiled) -> Option<BuildId> {
    let digits = program.build_id.as_deref()?.as_bytes().chunks(2);
    let byte = |two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    BuildId::new(&digits.map(byte).collect::<Vec<_>>())
}

/// What a trace says of a program.
pub(crate) fn module(program: &Compiled) -> Module {
    Module::new(0, &program.path, id(program), None)
}

/// What a trace says of a program that has a debug link, but no build ID.
pub(crate) fn linked(program: &Compiled, name: &str, crc: u32) -> Module {
    let link = DebugLink {
        name: name.as_bytes().into(),
        crc,
    };
    Module::new(0, &program.path, None, Some(link))
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
