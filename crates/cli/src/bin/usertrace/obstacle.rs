//! Finds out why a program ignores its environment's settings for tracing, including libraries to
//! preload.
//!
//! `record` checks the program of its command before it runs. `descendants.rs` checks the programs
//! that are executed meanwhile.

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::fs::{self, File, read_link};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::prctl::get_no_new_privs;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getegid, geteuid};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader as _};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// Limit of nested script interpreters, as in the kernel.
const SCRIPTS: usize = 5;
/// Longest first line of a script that the kernel reads, in bytes.
const FIRST_LINE: u64 = 256;

/// Why a program cannot be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The program has no dynamic linker.
    Static,
    /// Its dynamic linker belongs to another C library.
    OtherLinker(String),
    /// It is built for another machine, or for 32 bits; the text names it.
    OtherMachine(String),
    /// It runs with more rights than its caller; the text says what grants these.
    Privileged(&'static str),
}

impl Obstacle {
    /// Whether the obstacle concerns only preloaded libraries. Otherwise, the program ignores the
    /// `USERTRACE_…` variables, too.
    fn is_for_libraries(&self) -> bool {
        !matches!(self, Self::Privileged(_))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => write!(
                to,
                "it is linked statically, so that no dynamic linker loads them (use a build with shared libraries)"
            ),
            Self::OtherLinker(linker) => write!(
                to,
                "its dynamic linker is {linker:?}, and they are for the GNU C library (use a build for that)"
            ),
            Self::OtherMachine(machine) => write!(
                to,
                "it is a program for {machine}, and they are for {} of 64 bits (use a build for that)",
                env::consts::ARCH
            ),
            Self::Privileged(by) => write!(
                to,
                "it has {by}, and ignores the variables that say how to trace it (run it as the user whose rights it gets, \
                 or use a copy without these)"
            ),
        }
    }
}

/// A program and its obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    program: PathBuf,
    obstacle: Obstacle,
}

impl Found {
    /// Whether both are about the same program, by any path, and the same obstacle.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let paths = [self, other].map(|found| found.program.canonicalize());
        let is_same = match &paths {
            [Ok(one), Ok(other)] => one == other,
            _ => self.program == other.program,
        };
        is_same && self.obstacle == other.obstacle
    }
}

impl fmt::Display for Found {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, obstacle } = self;
        match obstacle.is_for_libraries() {
            true => write!(to, "cannot preload libraries into {program:?}: {obstacle}"),
            false => write!(to, "cannot trace {program:?}: {obstacle}"),
        }
    }
}

/// Finds the obstacle to tracing this program. `preloads`: with preloaded libraries; otherwise only
/// by variables.
///
/// `None` for a program that cannot be read or executed: executing it reports the error.
///
/// A program that cannot be read or executed has none: executing it will say what is wrong.
pub(crate) fn of(program: &OsStr, preloads: bool) -> Option<Found> {
    let mut program = find(program)?;
    for _ in 0..SCRIPTS {
        let interpreter = interpreter_of_script(&program);
        let Some(interpreter) = interpreter.filter(|path| is_executable(path)) else {
            break;
        };
        program = interpreter;
    }
    let obstacle = of_file(&program, &File::open(&program).ok()?)?;
    (preloads || !obstacle.is_for_libraries()).then_some(Found { program, obstacle })
}

/// Finds the obstacle to tracing the program that a process runs. `preloads`: as for [`of`].
///
/// `None` if the process has ended, or is just executing another program.
///
/// Nothing if the process has ended, or executes another program just now.
pub(crate) fn of_process(pid: u32, preloads: bool) -> Option<Found> {
    let file = match File::open(format!("/proc/{pid}/exe")) {
        Ok(file) => file,
        // The kernel hides the file of a process with more rights from its user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return of(&name(pid)?, false),
        Err(_) => return None,
    };
    // The descriptor keeps the file even if the process executes another one.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let obstacle = of_file(&path, &file)?;
    let program = read_link(&path).ok()?;
    (preloads || !obstacle.is_for_libraries()).then_some(Found { program, obstacle })
}

/// The first argument of a process.
fn name(pid: u32) -> Option<OsString> {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = arguments.split(|&byte| byte == 0).next()?;
    (!first.is_empty()).then(|| OsString::from_vec(first.to_owned()))
}

/// Finds the program's file, as a shell does. Only regular files count: opening a FIFO would wait.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into()).filter(|path: &PathBuf| is_executable(path));
    }
    let directories = env::var_os("PATH")?;
    let mut paths = env::split_paths(&directories).map(|directory| directory.join(program));
    paths.find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    is_file && access(path, AccessFlags::X_OK).is_ok()
}

fn interpreter_of_script(program: &Path) -> Option<PathBuf> {
    let file = BufReader::new(File::open(program).ok()?);
    let mut line = Vec::new();
    std::io::Read::take(file, FIRST_LINE)
        .read_until(b'\n', &mut line)
        .ok()?;
    let words = line.strip_prefix(b"#!")?;
    let words = words.split(|byte| matches!(byte, b' ' | b'\t' | b'\n'));
    let mut words = words.filter(|word| !word.is_empty());
    words.next().map(|path| OsStr::from_bytes(path).into())
}

/// Finds the obstacle of a program's file. `program` is a path to it.
fn of_file(program: &Path, file: &File) -> Option<Obstacle> {
    if let Some(by) = privileges(program, file) {
        return Some(Obstacle::Privileged(by));
    }
    let data = ReadCache::new(BufReader::new(file));
    match FileKind::parse(&data).ok()? {
        FileKind::Elf32 => {
            let header = FileHeader32::<Endianness>::parse(&data).ok()?;
            Some(Obstacle::OtherMachine(machine(header, 32)))
        }
        FileKind::Elf64 => of_elf(FileHeader64::<Endianness>::parse(&data).ok()?, &data),
        _ => None,
    }
}

fn of_elf<'a, R: ReadRef<'a>>(header: &FileHeader64<Endianness>, data: R) -> Option<Obstacle> {
    const OWN: u16 = if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64
    } else {
        elf::EM_X86_64
    };
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != OWN {
        return Some(Obstacle::OtherMachine(machine(header, 64)));
    }
    let segments = header.program_headers(endian, data).ok()?;
    let mut interpreters = segments
        .iter()
        .filter_map(|segment| segment.interpreter(endian, data).ok()?);
    let Some(interpreter) = interpreters.next() else {
        // A dynamic linker can be run with a program as its argument, and has no interpreter
        // itself.
        return (!is_shared_object(header, data)).then_some(Obstacle::Static);
    };
    let path = Path::new(OsStr::from_bytes(interpreter));
    let name = path.file_name().unwrap_or_default().as_bytes();
    // Any directory and any machine.
    let is_gnu =
        name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so") || name == b"ld.so.1";
    (!is_gnu).then(|| Obstacle::OtherLinker(path.to_string_lossy().into_owned()))
}

/// Whether the file has a library's name (DT_SONAME).
fn is_shared_object<'a, R: ReadRef<'a>>(header: &FileHeader64<Endianness>, data: R) -> bool {
    use object::read::elf::Dyn as _;
    let has_name = || {
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let mut entries = segments
            .iter()
            .filter_map(|segment| segment.dynamic(endian, data).ok()?);
        let entries = entries.next()?;
        entries
            .iter()
            .find(|entry| entry.tag(endian) == elf::DT_SONAME)
    };
    has_name().is_some()
}

fn machine<H: FileHeader<Endian = Endianness>>(header: &H, bits: u32) -> String {
    let machine = header.endian().map(|endian| header.e_machine(endian));
    let name = match machine.unwrap_or_default() {
        elf::EM_386 => "i386",
        elf::EM_X86_64 => "x86_64",
        elf::EM_ARM => "arm",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_RISCV => "riscv",
        other => return format!("machine {other} of {bits} bits"),
    };
    format!("{name} of {bits} bits")
}

/// What grants a program more rights than this process has.
fn privileges(program: &Path, file: &File) -> Option<&'static str> {
    let metadata = file.metadata().ok()?;
    let is_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != geteuid().as_raw();
    // Without the group's execute bit, set-group-ID means mandatory locking.
    let of_group = libc::S_ISGID | libc::S_IXGRP;
    let is_group = metadata.mode() & of_group == of_group && metadata.gid() != getegid().as_raw();
    let has_capabilities = !geteuid().is_root() && has_attribute(program, c"security.capability");
    let by = match (is_user, is_group, has_capabilities) {
        (true, ..) => "the set-user-ID bit",
        (_, true, _) => "the set-group-ID bit",
        (_, _, true) => "capabilities of its own",
        _ => return None,
    };
    (!are_ignored(program)).then_some(by)
}

fn has_attribute(path: &Path, name: &CStr) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both texts are C strings, and a length of 0 means that the kernel writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Whether the kernel ignores such bits here: the file system is mounted `nosuid`, or this process
/// has set `no_new_privs`.
fn are_ignored(program: &Path) -> bool {
    let is_mounted_so =
        || statvfs(program).is_ok_and(|system| system.flags().contains(FsFlags::ST_NOSUID));
    get_no_new_privs().unwrap_or(false) || is_mounted_so()
}
