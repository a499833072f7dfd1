//! Safe access to files in directories that other users may write to.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Number of attempts to get a lock, and the pause between them.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// Opens a regular file that exists, and rejects everything else. It follows symbolic links, so the
/// path may lead to a FIFO, or to a device that does something when it is opened: neither is.
///
/// # Errors
/// Those of opening, or if it is not a regular file.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let place = open_with(OpenOptions::new().read(true), libc::O_PATH, path)?;
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    match open_with(options, 0, Path::new(&again)) {
        // There is no `/proc`.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_with(options, 0, path),
        file => file,
    }
}

/// Opens a regular file for writing. Also rejects symbolic links, which could lead to any file of
/// this user.
///
/// # Errors
/// As for [`open`].
pub fn open_to_write(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_with(options, libc::O_NOFOLLOW, path)
}

/// Opens a regular file in a directory for reading. Follows no symbolic link, neither at the
/// directory nor at the file: the owner of the directory cannot make this user read something else.
///
/// # Errors
/// As for [`open`], or if the directory is none.
pub fn open_in(directory: &Path, name: &str) -> io::Result<File> {
    let directory = open_directory(directory)?;
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let options = &mut OpenOptions::new();
    open_with(
        options.read(true),
        libc::O_NOFOLLOW,
        &Path::new(&path).join(name),
    )
}

fn open_with(options: &mut OpenOptions, flags: libc::c_int, path: &Path) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
    let flags = flags | libc::O_NONBLOCK;
    let file = match options.custom_flags(flags).open(path) {
        // A FIFO without a reader, a socket, or a link that was not followed.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ELOOP)) => {
            return Err(other());
        }
        file => file?,
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(other()),
    }
}

/// Opens a directory, but not through a symbolic link.
///
/// # Errors
/// Those of opening, or if it is not a directory.
pub fn open_directory(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    options.read(true).custom_flags(flags).open(path)
}

/// The room of a disk for this user, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free bytes that this user may take.
    pub free: u64,
    /// Size of the disk.
    pub all: u64,
}

/// The room of the disk with this path.
///
/// # Errors
/// If the disk does not say.
pub fn room(path: &Path) -> io::Result<Room> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut disk = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a NUL, and the C library stores a whole structure, or fails.
    let disk = unsafe {
        if libc::statvfs(path.as_ptr(), disk.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        disk.assume_init()
    };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Ok(Room {
        free: bytes(disk.f_bavail),
        all: bytes(disk.f_blocks),
    })
}

/// Locks a whole file, as long as the description is open here or in a child of `fork`.
///
/// # Errors
/// If another process holds the lock, or the file system has no locks.
pub fn lock(file: &File) -> io::Result<()> {
    ask(file, libc::F_OFD_SETLK).map(drop)
}

/// Locks a file, shared (`LOCK_SH`) or exclusively (`LOCK_EX`), as long as the description is open
/// here or in a child of `fork`. Read access is sufficient.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another process holds the lock; others if the file system has
/// no locks.
pub fn flock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: the call accesses no memory, and `file` keeps the descriptor open.
    match unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a process has a lock of [`flock`] on the file. Does not take it: another process could
/// then not take its own. Does not find processes that this one's PID namespace does not have.
///
/// # Errors
/// If the list of locks cannot be read.
pub fn is_flocked(file: &File) -> io::Result<bool> {
    let of = file.metadata()?;
    let (major, minor) = (libc::major(of.dev()), libc::minor(of.dev()));
    let id = format!("{major:02x}:{minor:02x}:{}", of.ino());
    let locks = std::fs::read_to_string("/proc/locks")?;
    Ok(locks.lines().any(|line| {
        let has = |word: &str| line.split_ascii_whitespace().any(|of| of == word);
        has("FLOCK") && has(&id)
    }))
}

/// Retries to get a lock that others hold only briefly, for up to a second.
///
/// # Errors
/// The last one of `lock`.
pub fn retry_lock(lock: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < TRIES => tries += 1,
            done => return done,
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether another process holds the lock. Does not take it.
///
/// # Errors
/// If the file system has no locks.
pub fn is_locked(file: &File) -> io::Result<bool> {
    let found = ask(file, libc::F_OFD_GETLK)?;
    Ok(found.l_type != libc::F_UNLCK as libc::c_short)
}

fn ask(file: &File, what: libc::c_int) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        // Up to the end of the file, even if it grows.
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: both commands read and write one `flock`, and `lock` is valid for that.
    match unsafe { libc::fcntl(file.as_raw_fd(), what, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for options in [
            OpenOptions::new().read(true),
            OpenOptions::new().append(true),
            OpenOptions::new().read(true).write(true),
        ] {
            let error = open(options, &fifo).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(open(options, directory.path()).is_err());
            let file = directory.path().join("file");
            std::fs::write(&file, "").unwrap();
            assert!(open(options, &file).is_ok());
        }
    }

    /// Whoever waits at a FIFO does not notice, and no device does.
    #[test]
    fn other_files_are_not_even_opened() {
        use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

        let directory = tempfile::tempdir().unwrap();
        let [fifo, link, file] = ["fifo", "link", "file"].map(|name| directory.path().join(name));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        std::fs::write(&file, "").unwrap();
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        watch.add_watch(&fifo, AddWatchFlags::IN_OPEN).unwrap();
        for path in [&fifo, &link] {
            assert!(open(OpenOptions::new().read(true), path).is_err());
        }
        assert_eq!(watch.read_events().unwrap_err(), nix::errno::Errno::EAGAIN);
        watch.add_watch(&file, AddWatchFlags::IN_OPEN).unwrap();
        assert!(open(OpenOptions::new().read(true), &file).is_ok());
        assert_eq!(watch.read_events().unwrap().len(), 1);
    }

    #[test]
    fn links_are_followed_to_read_only() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open(OpenOptions::new().read(true), &link).is_ok());
        let error = open_to_write(OpenOptions::new().append(true), &link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(open_to_write(OpenOptions::new().append(true), &file).is_ok());
    }

    #[test]
    fn links_are_not_followed_in_directories_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let [own, linked] = ["own", "linked"].map(|name| directory.path().join(name));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&own, &linked).unwrap();
        std::os::unix::fs::symlink(own.join("file"), own.join("link")).unwrap();
        assert!(open_in(&own, "file").is_ok());
        let error = open_in(&own, "link").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(open_in(&linked, "file").is_err());
    }

    #[test]
    fn locks_of_others_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true);
            options.open(directory.path().join("file")).unwrap()
        };
        assert!(!is_flocked(&open()).unwrap());
        let locked = open();
        for how in [libc::LOCK_SH, libc::LOCK_EX] {
            flock(&locked, how).unwrap();
            assert!(is_flocked(&open()).unwrap());
        }
        drop(locked);
        assert!(!is_flocked(&open()).unwrap());
    }

    #[test]
    fn is_locked_does_not_take_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path());
        let (first, second) = (open().unwrap(), File::open(file.path()).unwrap());
        for _ in 0..2 {
            assert!(!is_locked(&second).unwrap());
        }
        lock(&first).unwrap();
        assert!(is_locked(&second).unwrap());
        assert!(lock(&open().unwrap()).is_err());
        drop(first);
        assert!(!is_locked(&second).unwrap());
    }
}
