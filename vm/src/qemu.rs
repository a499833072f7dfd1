//! QEMU: its command line and its process, which ends with this one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{SndBuf, SndBufForce};

/// The emulator's name, or `USERTRACE_QEMU`.
fn program() -> OsString {
    std::env::var_os("USERTRACE_QEMU")
        .filter(|v| !v.is_empty())
        .unwrap_or_else(|| "qemu-system-x86_64".into())
}

/// The clock of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GuestClock {
    /// The host's time.
    #[default]
    Host,
    /// One nanosecond, and one tick of the time-stamp counter, for each instruction. So `rdtsc`
    /// counts instructions, and the same work takes the same time on every host, however busy it
    /// is.
    Instructions,
}

/// The accelerator. If processors take turns, they run in one thread of the host.
///
/// KVM is not the default: a machine may have `/dev/kvm` and yet fail to run an ordinary guest. TCG
/// runs everywhere. `USERTRACE_ACCEL=kvm` selects KVM.
fn accelerator(time: GuestClock, turns: bool) -> &'static str {
    match std::env::var_os("USERTRACE_ACCEL") {
        // Only TCG counts instructions, and only in one thread.
        _ if time == GuestClock::Instructions => "tcg,thread=single",
        Some(v) if v == "kvm" => "kvm",
        _ if turns => "tcg,thread=single",
        _ => "tcg,thread=multi",
    }
}

/// Enlarges a stream's buffer. QEMU drops a serial port's output while its stream is full, and a
/// single byte takes most of a kilobyte of the buffer. Without this, the console would lose
/// characters when its reader waits for a processor.
fn hold_more(stream: &UnixStream) {
    const SIZE: usize = 16 << 20;
    // Only root may exceed the system's limit. Others get the limit.
    if setsockopt(stream, SndBufForce, &SIZE).is_err() {
        let _ = setsockopt(stream, SndBuf, &SIZE);
    }
}

/// The description of a machine.
#[derive(Debug)]
pub(crate) struct Machine {
    args: Vec<OsString>,
    /// The guest's ends of the streams, which QEMU inherits.
    inherited: Vec<UnixStream>,
    shares: usize,
}

impl Machine {
    pub(crate) fn new(smp: u32, memory_mib: u64, time: GuestClock, turns: bool) -> Self {
        let mut machine = Self {
            args: Vec::new(),
            inherited: Vec::new(),
            shares: 0,
        };
        machine.options([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-machine",
            "q35",
            "-cpu",
            "max",
        ]);
        machine.options(["-accel", accelerator(time, turns)]);
        if time == GuestClock::Instructions {
            // Without sleep: an idle guest's time jumps to its next timer, rather than to wait for
            // the host's.
            machine.options(["-icount", "shift=0,sleep=off"]);
        }
        machine.options(["-smp", &smp.to_string(), "-m", &format!("{memory_mib}M")]);
        machine.options([
            "-device",
            "virtio-rng-pci",
            "-device",
            "virtio-serial-pci,max_ports=8",
        ]);
        machine
    }

    fn options<'a>(&mut self, options: impl IntoIterator<Item = &'a str>) {
        self.args.extend(options.into_iter().map(OsString::from));
    }

    /// Sets the kernel, its initramfs and its command line.
    pub(crate) fn boot(&mut self, kernel: &Path, initramfs: &Path, cmdline: &str) {
        self.args.extend([
            "-kernel".into(),
            kernel.into(),
            "-initrd".into(),
            initramfs.into(),
        ]);
        self.options(["-append", cmdline]);
    }

    /// Adds a serial port, and returns the host's end.
    pub(crate) fn serial(&mut self) -> Result<UnixStream> {
        let stream = self.stream("console")?;
        if let Some(theirs) = self.inherited.last() {
            hold_more(theirs);
        }
        self.options(["-serial", "chardev:console"]);
        Ok(stream)
    }

    /// Adds a virtio-serial port, and returns the host's end.
    pub(crate) fn port(&mut self, name: &str) -> Result<UnixStream> {
        let stream = self.stream(name)?;
        self.options([
            "-device",
            &format!("virtserialport,chardev={name},name={name}"),
        ]);
        Ok(stream)
    }

    /// Adds QEMU's monitor, by which a silent guest can be inspected.
    pub(crate) fn monitor(&mut self) -> Result<UnixStream> {
        let stream = self.stream("monitor")?;
        self.options(["-mon", "chardev=monitor,mode=readline"]);
        Ok(stream)
    }

    /// Adds the debugger stub. The guest does not run until the debugger starts it.
    pub(crate) fn debugger(&mut self) -> Result<UnixStream> {
        let stream = self.stream("debugger")?;
        self.options(["-gdb", "chardev:debugger", "-S"]);
        Ok(stream)
    }

    /// Adds a stream. A socket pair has no limited path, unlike a socket in the file system, and it
    /// ends with QEMU.
    fn stream(&mut self, id: &str) -> Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair().context("making a socket pair")?;
        self.options([
            "-chardev",
            &format!("socket,id={id},fd={}", theirs.as_raw_fd()),
        ]);
        self.inherited.push(theirs);
        Ok(ours)
    }

    /// Adds the device by which the kernel publishes the address of its vmcoreinfo.
    pub(crate) fn vmcoreinfo(&mut self) {
        self.options(["-device", "vmcoreinfo"]);
    }

    /// Makes a reset end QEMU. By default it restarts the guest with its memory as it is.
    pub(crate) fn no_reboot(&mut self) {
        self.options(["-no-reboot"]);
    }

    /// Keeps the guest's memory in a file. The next machine with that file starts with this memory,
    /// as after a reset.
    pub(crate) fn memory_file(&mut self, path: &Path, memory_mib: u64) {
        let mut object = OsString::from(format!(
            "memory-backend-file,id=memory,share=on,size={memory_mib}M,mem-path="
        ));
        object.push(double_commas(path.as_os_str()));
        self.args.extend(["-object".into(), object]);
        self.options(["-machine", "memory-backend=memory"]);
    }

    /// Shares a directory of the host.
    pub(crate) fn share(&mut self, tag: &str, path: &Path, writable: bool) {
        let id = format!("share{}", self.shares);
        self.shares += 1;
        let mut fsdev =
            OsString::from(format!("local,id={id},security_model=none,multidevs=remap"));
        fsdev.push(if writable {
            ",path="
        } else {
            ",readonly=on,path="
        });
        fsdev.push(double_commas(path.as_os_str()));
        self.args.extend(["-fsdev".into(), fsdev]);
        self.options([
            "-device",
            &format!("virtio-9p-pci,fsdev={id},mount_tag={tag}"),
        ]);
    }

    /// Starts QEMU. Its messages go to `log`, which begins with the command line.
    pub(crate) fn start(self, log: &Path) -> Result<Qemu> {
        use std::io::Write;
        let program = program();
        let mut file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let line: Vec<_> = std::iter::once(&program)
            .chain(&self.args)
            .map(|a| format!("{a:?}"))
            .collect();
        writeln!(file, "{}", line.join(" "))?;

        let mut command = Command::new(&program);
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let fds: Vec<RawFd> = self.inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let parent = nix::unistd::getpid();
        // SAFETY: the closure only makes system calls on numbers prepared before, which is all that
        // may happen between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // If the harness is killed, its guest dies, too.
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                if nix::unistd::getppid() != parent {
                    return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
                }
                for &fd in &fds {
                    let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
                    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
                }
                Ok(())
            });
        }
        let child = command.spawn().with_context(|| {
            format!("starting {} (scripts/setup installs it)", program.display())
        })?;
        Ok(Qemu {
            child,
            log: log.into(),
        })
    }
}

/// In QEMU's options a comma within a value is doubled.
fn double_commas(value: &OsStr) -> OsString {
    let mut out = Vec::new();
    for &byte in value.as_bytes() {
        out.push(byte);
        if byte == b',' {
            out.push(byte);
        }
    }
    OsString::from_vec(out)
}

/// A running QEMU. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Qemu {
    child: Child,
    log: PathBuf,
}

impl Qemu {
    /// Waits for QEMU's end, up to `limit`. None: it still runs.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().context("waiting for QEMU")? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills QEMU.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// QEMU's messages, without the command line.
    pub(crate) fn messages(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.split_once('\n')
            .map_or("", |(_, rest)| rest)
            .trim()
            .to_string()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_console_that_is_not_read_holds_a_screen() {
        let mut machine = Machine::new(1, 64, GuestClock::Host, false);
        let _console = machine.serial().expect("a stream");
        let mut theirs = &machine.inherited[0];
        theirs.set_nonblocking(true).expect("a flag");
        let held = std::iter::from_fn(|| theirs.write(b"x").ok()).take(10_000);
        // By default it is not 300.
        assert!(held.count() > 400);
    }

    #[test]
    fn a_comma_in_a_path_is_doubled() {
        assert_eq!(
            double_commas(OsStr::new("/a,b c/,")),
            OsString::from("/a,,b c/,,")
        );
    }
}
