//! Names code addresses in traces.
//!
//! Traces describe the objects that each process had loaded ([`Modules`]). [`Symbols`] finds the
//! functions, files and lines of a place in such a module, from the binary, from separate debug
//! files, or from a symbol table, and checks the build ID of each file. [`Resolver`] does both.
//!
//! Binaries and debug files are untrusted: a traced process chooses the paths. Reading one takes
//! bounded time and memory, and a file that is damaged only has no symbols.
//!
//! ```no_run
//! use usertrace_reader::{Item, ReadError, Reader, Selection};
//! use usertrace_symbols::{AddressKind, Options, Resolver, stack};
//!
//! let selection = Selection { modules: true, ..Selection::default() };
//! let mut reader = Reader::open(&["traces".into()], selection)?;
//! let mut resolver = Resolver::new(Options::default());
//! while let Some(item) = reader.next() {
//!     let Item::Event(event) = item else { continue };
//!     if resolver.note(&event) {
//!         continue;
//!     }
//!     for address in stack(&event) {
//!         let process = event.trace.process();
//!         let frames = resolver.resolve(process, address, AddressKind::Return);
//!         for frame in frames.iter() {
//!             println!("{}", frame.function);
//!         }
//!     }
//! }
//! # Ok::<(), ReadError>(())
//! ```

mod build_id;
mod crc;
mod debuginfod;
mod demangle;
mod dwarf;
mod elf;
mod frame;
mod locate;
mod meter;
mod module;
mod modules;
mod named;
mod options;
mod resolver;
mod section;
mod stack;
mod symbol_table;
mod symbols;

pub use build_id::BuildId;
pub use frame::Frame;
pub use module::{DebugLink, Module};
pub use modules::{Found, Modules};
pub use named::{Area, NamedField};
pub use options::Options;
pub use resolver::Resolver;
pub use stack::{AddressKind, append_stack, append_stack_of, stack};
pub use symbols::Symbols;
