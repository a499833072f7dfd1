//! Programs that install filters of system calls by themselves.

use std::fs::OpenOptions;
use std::path::Path;

use object::read::elf::{Dyn as _, FileHeader as _};
use object::{Endianness, ReadCache, elf};
use usertrace_os::files;

/// The library that makes such filters.
const LIBRARY: &[u8] = b"libseccomp.so";

/// Programs that make such filters without the library: OpenSSH, for whoever has not logged in yet.
const WITHOUT_LIBRARY: [&str; 1] = ["sshd"];

/// Whether a program may install a filter: it is linked with libseccomp, or known to have its own
/// code for that.
///
/// `false` for anything but a 64-bit ELF program.
pub(super) fn may_install(program: &Path) -> bool {
    if WITHOUT_LIBRARY.iter().any(|name| program.ends_with(name)) {
        return true;
    }
    let Ok(file) = files::open(OpenOptions::new().read(true), program) else {
        return false;
    };
    uses_library(&ReadCache::new(file)).unwrap_or(false)
}

fn uses_library<'a, R: object::ReadRef<'a>>(data: R) -> object::Result<bool> {
    let header = elf::FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((dynamic, strings)) = sections.dynamic(endian, data)? else {
        return Ok(false);
    };
    let strings = sections.strings(endian, data, strings)?;
    let is_needed = |entry: &elf::Dyn64<Endianness>| {
        let name = (entry.tag(endian) == elf::DT_NEEDED).then(|| entry.string(endian, strings));
        matches!(name, Some(Ok(name)) if name.starts_with(LIBRARY))
    };
    Ok(dynamic.iter().any(is_needed))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn programs_with_libseccomp_may_install_filters() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("empty.c"), "").unwrap();
        fs::write(at("main.c"), "int main(void) { return 0; }\n").unwrap();
        let gcc = |arguments: &[&str]| {
            let mut gcc = Command::new("gcc");
            gcc.current_dir(&directory).args(arguments);
            assert!(gcc.status().unwrap().success(), "{arguments:?}");
        };
        for name in ["libseccomp.so.2", "libother.so.2"] {
            let name_flag = format!("-Wl,-soname,{name}");
            gcc(&["-shared", &name_flag, "-o", name, "empty.c"]);
            gcc(&["-Wl,--no-as-needed", "-o", "main", "main.c", name]);
            assert_eq!(may_install(&at("main")), name.contains("seccomp"), "{name}");
        }
        assert!(may_install(Path::new("/usr/sbin/sshd")));
        gcc(&["-static", "-o", "static", "main.c"]);
        for other in [at("static"), at("main.c"), at("none"), at(".")] {
            assert!(!may_install(&other), "{}", other.display());
        }
    }
}
