//! The guest's file systems.
//!
//! The root is a tmpfs with a bind mount of each directory of the host's root. So the guest can
//! have directories of its own (`/out`), and writes to the host only through the share for that.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot, sethostname};
use usertrace_init::{Job, OUT_PATH, OUT_TAG, ROOT_TAG, Share};

const HOST: &str = "/host";
const ROOT: &str = "/root";

/// Directories of which the guest has its own.
const OWN: &[&str] = &["dev", "proc", "sys", "run", "tmp", "out", "lost+found"];

struct Mount {
    kind: &'static str,
    path: &'static str,
    options: &'static str,
}

const fn m(kind: &'static str, path: &'static str, options: &'static str) -> Mount {
    Mount {
        kind,
        path,
        options,
    }
}

const KERNEL: &[Mount] = &[
    m("devtmpfs", "dev", "mode=0755"),
    m("proc", "proc", ""),
    m("sysfs", "sys", ""),
    m("devpts", "dev/pts", "mode=0620,ptmxmode=0666"),
    m("tmpfs", "dev/shm", "mode=1777"),
    m("mqueue", "dev/mqueue", ""),
    m("cgroup2", "sys/fs/cgroup", ""),
    m("debugfs", "sys/kernel/debug", ""),
    // The tracer's own; a kernel without the series has neither the type nor the directory.
    m("ltt", "sys/kernel/ltt", ""),
];

const SCRATCH: &[Mount] = &[
    m("tmpfs", "tmp", "mode=1777"),
    m("tmpfs", "run", "mode=0755"),
    m("tmpfs", "var/tmp", "mode=1777"),
];

/// Mounts the kernel's own file systems below `root`, as far as the kernel has them.
pub(crate) fn kernel_file_systems(root: &Path) -> Result<()> {
    for one in KERNEL {
        // `/proc` lists the types, and devtmpfs is mounted before it. Both types always
        // there.
        if !matches!(one.kind, "devtmpfs" | "proc") && !has_type(root, one.kind) {
            continue;
        }
        mount_one(root, one)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        match symlink(target, root.join("dev").join(name)) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(e).context("linking /dev/fd");
            }
            _ => {}
        }
    }
    Ok(())
}

fn has_type(root: &Path, kind: &str) -> bool {
    fs::read_to_string(root.join("proc/filesystems"))
        .unwrap_or_default()
        .lines()
        .any(|line| line.split('\t').nth(1) == Some(kind))
}

fn mount_one(root: &Path, one: &Mount) -> Result<()> {
    let path = root.join(one.path);
    if !path.is_dir() {
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    }
    let done = mount(
        Some(one.kind),
        &path,
        Some(one.kind),
        MsFlags::empty(),
        Some(one.options),
    );
    match done {
        // Where another initramfs has become this process, it is there.
        Err(Errno::EBUSY) => Ok(()),
        done => done.with_context(|| format!("mounting {} at {}", one.kind, path.display())),
    }
}

/// Mounts the share over 9p, and creates its directory if possible.
pub(crate) fn mount_share(root: &Path, share: &Share) -> Result<()> {
    let path = root.join(share.path.strip_prefix("/").unwrap_or(&share.path));
    if !path.is_dir() {
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    }
    // Files that cannot change under the guest are cached. Those that both sides use are not,
    // beyond what a shared mapping needs.
    let (flags, cache) = if share.writable {
        (MsFlags::empty(), "mmap")
    } else {
        (MsFlags::MS_RDONLY, "loose")
    };
    let options = format!("trans=virtio,version=9p2000.L,msize=512000,cache={cache}");
    mount(
        Some(share.tag.as_str()),
        &path,
        Some("9p"),
        flags,
        Some(options.as_str()),
    )
    .with_context(|| format!("mounting the share {} at {}", share.tag, path.display()))
}

/// The share at `/out`.
pub(crate) fn out_share() -> Share {
    Share {
        tag: OUT_TAG.into(),
        path: OUT_PATH.into(),
        writable: true,
    }
}

/// Builds the root around the host's, and makes it this process's root.
pub(crate) fn enter_root(job: &Job) -> Result<()> {
    let (host, root) = (Path::new(HOST), Path::new(ROOT));
    mount_share(
        Path::new("/"),
        &Share {
            tag: ROOT_TAG.into(),
            path: HOST.into(),
            writable: false,
        },
    )?;
    fs::create_dir_all(root)?;
    mount(
        Some("tmpfs"),
        root,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )
    .context("mounting the root")?;

    for entry in fs::read_dir(host).context("reading the host's root")? {
        let entry = entry?;
        let name = entry.file_name();
        if OWN.iter().any(|own| name == *own) {
            continue;
        }
        let target = root.join(&name);
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else if kind.is_dir() {
            fs::create_dir(&target)?;
            mount(
                Some(&entry.path()),
                &target,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
            .with_context(|| format!("binding {}", target.display()))?;
        }
    }
    for one in SCRATCH {
        mount_one(root, one)?;
    }
    // Debian's /var/lock and others point into /run.
    fs::create_dir_all(root.join("run/lock"))?;
    kernel_file_systems(root)?;
    mount_share(root, &out_share())?;
    for share in &job.shares {
        mount_share(root, share)?;
    }

    // Not by chroot alone: where the root is not that of the mounts, nobody may make a user
    // namespace.
    chdir(root)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("moving the root")?;
    chroot(".").context("entering the root")?;
    chdir("/")?;
    sethostname("guest")?;
    // Lets tests make groups of their own with a limit of memory.
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids");
    loopback_up();
    Ok(())
}

/// Brings up the loopback interface, which many tests use.
fn loopback_up() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use std::os::fd::AsRawFd;
    let Ok(fd) = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    ) else {
        return;
    };
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which `request` is, through a pointer valid for the
    // call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done != 0 {
        eprintln!(
            "usertrace-init: loopback: {}",
            std::io::Error::last_os_error()
        );
    }
}
