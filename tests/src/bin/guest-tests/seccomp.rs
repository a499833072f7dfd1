//! The system calls under seccomp filters, with auditing, and in 32-bit programs (A1, A3, F2).

use std::arch::asm;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;
use syscalls::Errno;
use usertrace::Outcome;
use usertrace_sys::uapi::{LttAbi, LttTracebuf, PR_LTT_GET_ABI};
use usertrace_testing::{seccomp, wait};
use usertrace_tests::areas::{Areas, calls};
use usertrace_tests::child::{self, Child, exit};
use usertrace_tests::control::Trace;
use usertrace_tests::event::{attach, check_prefix, write};
use usertrace_tests::parse;
use usertrace_tests::raw;

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    seccomp_sees_the_number_of_each_call,
    program_under_a_strict_filter_is_traced,
    filter_that_refuses_updates_does_no_harm,
    audit_sees_the_number_of_each_call,
    programs_of_32_bits_have_no_tracing_calls,
];

/// The numbers of the three calls.
fn numbers() -> [u32; 3] {
    let calls = calls();
    let abi = calls.abi();
    [abi.nr_alloc_tracebuf, abi.nr_ltt_update, abi.nr_ltt_switch]
}

/// Makes all three calls.
fn make_all() -> [Result<(), Errno>; 3] {
    let calls = calls();
    let mut buffer = None;
    let areas = calls.alloc_tracebuf(0).map(|_| ());
    let update = calls.update(&mut buffer).map(|_| ());
    let switch = raw::switch(&calls, buffer.map_or(0, |buffer| buffer.as_ptr() as usize));
    [areas, update, switch.map(|_| ())]
}

/// The number of the call that a filter trapped last.
static TRAPPED: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_trap(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes the structure. For SIGSYS, `si_syscall` follows the address of the
    // call.
    let number = unsafe { info.cast::<u32>().add(6).read() };
    TRAPPED.store(number, Ordering::Relaxed);
}

/// Requirements: A1
fn seccomp_sees_the_number_of_each_call() {
    let _trace = Trace::started("filtered");
    for (at, number) in numbers().into_iter().enumerate() {
        // The filter refuses one call with an error, and allows the others.
        child::run(|| {
            let refusal = libc::SECCOMP_RET_ERRNO | libc::EDOM as u32;
            seccomp::filter(&[(number, refusal)], libc::SECCOMP_RET_ALLOW);
            let all = make_all();
            assert_eq!(all[at], Err(Errno::EDOM), "{number}");
            let without_areas = at == 0;
            for (other, result) in all.iter().enumerate().filter(|&(other, _)| other != at) {
                match other {
                    // There are no areas, or no buffer was given.
                    1 if without_areas => assert_eq!(*result, Err(Errno::ENXIO)),
                    2 if without_areas => assert_eq!(*result, Err(Errno::ENXIO)),
                    2 => assert_eq!(*result, Err(Errno::EINVAL)),
                    _ => assert_eq!(*result, Ok(())),
                }
            }
        });
        child::run(|| {
            let action = SigAction::new(
                SigHandler::SigAction(note_trap),
                SaFlags::SA_SIGINFO,
                SigSet::empty(),
            );
            // SAFETY: the handler stores a number.
            unsafe { sigaction(Signal::SIGSYS, &action) }.expect("a handler");
            seccomp::filter(&[(number, libc::SECCOMP_RET_TRAP)], libc::SECCOMP_RET_ALLOW);
            let _ = make_all();
            assert_eq!(TRAPPED.load(Ordering::Relaxed), number);
        });
        child::run_to_death(Signal::SIGSYS, || {
            seccomp::filter(
                &[(number, libc::SECCOMP_RET_KILL_PROCESS)],
                libc::SECCOMP_RET_ALLOW,
            );
            let _ = make_all();
        });
    }
    child::run(|| assert_eq!(make_all(), [Ok(()); 3]));
}

/// A strict filter does not affect tracing, also from one sub-buffer to the next.
///
/// Requirements: F2
fn program_under_a_strict_filter_is_traced() {
    const EVENTS: u64 = 20_000;
    let trace = Trace::started_with("strict", 4096, 512);
    let mut child = Child::spawn(|link| {
        attach();
        let before = (0..10).all(|number| write(0, number) == Outcome::Recorded);
        let allow = |number: i64| (number as u32, libc::SECCOMP_RET_ALLOW);
        let allowed = [allow(libc::SYS_write), allow(libc::SYS_exit_group)];
        seccomp::filter(&allowed, libc::SECCOMP_RET_KILL_PROCESS);
        let mut number = 10;
        let good = before
            && (0..4).all(|part| {
                link.send(part);
                let end = number + EVENTS / 4;
                let from = std::mem::replace(&mut number, end);
                (from..end).all(|number| write(0, number) == Outcome::Recorded)
            });
        exit(i32::from(!good));
    });
    for part in 0..4 {
        assert_eq!(child.link.receive(), part);
    }
    child.join();
    assert_eq!(check_prefix(&parse::numbers(&trace)), EVENTS + 10);
}

/// The update needs system calls. If a filter refuses them, the program is not traced any more, and
/// continues.
///
/// Requirements: F2
fn filter_that_refuses_updates_does_no_harm() {
    let first = Trace::started("first");
    let mut child = Child::spawn(|link| {
        attach();
        let recorded =
            |from: u64| (from..from + 10).all(|number| write(0, number) == Outcome::Recorded);
        assert!(recorded(0));
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        seccomp::filter(
            &numbers().map(|number| (number, refusal)),
            libc::SECCOMP_RET_ALLOW,
        );
        link.send(0);
        link.receive();
        // The filter prevents the buffer of a second trace.
        assert!(recorded(10));
        link.send(0);
        link.receive();
        // The first trace is removed.
        for number in 0..10 {
            assert_ne!(write(0, number), Outcome::Recorded);
        }
        link.send(0);
        link.receive();
    });
    child.link.receive();
    let second = Trace::started("second");
    child.link.send(0);
    child.link.receive();
    let consumer = usertrace_tests::consumer::Consumer::open(&first.consumer_files("main")[0]);
    drop(first);
    child.link.send(0);
    child.link.receive();
    child.link.send(0);
    child.join();
    assert_eq!(check_prefix(&parse::threads(&consumer)[&0]), 20);
    assert!(second.stats().processes.is_empty());
}

/// The auditor's socket.
struct Audit(OwnedFd);

/// `struct audit_rule_data`, for calls by number.
#[repr(C)]
struct Rule {
    flags: u32,
    action: u32,
    field_count: u32,
    mask: [u32; 64],
    fields: [u32; 64],
    values: [u32; 64],
    field_flags: [u32; 64],
    buffer_len: u32,
}

const AUDIT_SET: u16 = 1001;
const AUDIT_ADD_RULE: u16 = 1011;
const AUDIT_DEL_RULE: u16 = 1012;
const AUDIT_SYSCALL: u16 = 1300;
const AUDIT_FILTER_EXIT: u32 = 4;
const AUDIT_ALWAYS: u32 = 2;

impl Rule {
    /// A rule that reports each of the three calls when it returns.
    fn of_the_calls() -> Self {
        let mut mask = [0; 64];
        for number in numbers() {
            mask[number as usize / 32] |= 1 << (number % 32);
        }
        Self {
            flags: AUDIT_FILTER_EXIT,
            action: AUDIT_ALWAYS,
            field_count: 0,
            mask,
            fields: [0; 64],
            values: [0; 64],
            field_flags: [0; 64],
            buffer_len: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the structure consists of words, and has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

impl Audit {
    fn open() -> Self {
        // SAFETY: no memory is concerned.
        let fd = unsafe {
            libc::socket(
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                libc::NETLINK_AUDIT,
            )
        };
        assert!(
            fd >= 0,
            "the kernel has CONFIG_AUDIT: {}",
            std::io::Error::last_os_error()
        );
        // SAFETY: all zeros is a valid value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        // The multicast group of the log's readers.
        address.nl_groups = 1;
        let len = size_of_val(&address) as u32;
        // SAFETY: the address has the given length, and the descriptor is new.
        let (ret, fd) = unsafe {
            (
                libc::bind(fd, (&raw const address).cast(), len),
                OwnedFd::from_raw_fd(fd),
            )
        };
        assert_eq!(ret, 0, "{}", std::io::Error::last_os_error());
        Self(fd)
    }

    /// Sends a message to the kernel. Its effect shows later.
    fn tell(&self, kind: u16, payload: &[u8]) {
        let len = 16 + payload.len() as u32;
        let mut message = Vec::new();
        message.extend(len.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(payload);
        // SAFETY: the message has the given length.
        let sent = unsafe {
            libc::send(
                self.0.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                0,
            )
        };
        assert_eq!(
            sent,
            message.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
    }

    /// Turns auditing on or off: one flag of `struct audit_status`.
    fn enable(&self, on: u32) {
        let mut status = [0u8; 40];
        status[..4].copy_from_slice(&1u32.to_ne_bytes());
        status[4..8].copy_from_slice(&on.to_ne_bytes());
        self.tell(AUDIT_SET, &status);
    }

    /// The next message, if there is one: its kind and text.
    fn next(&self) -> Option<(u16, String)> {
        let mut bytes = vec![0u8; 16384];
        // SAFETY: the buffer has the given length.
        let len = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
            )
        };
        let bytes = bytes.get(..usize::try_from(len).ok()?)?;
        let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
        Some((kind, String::from_utf8_lossy(&bytes[16..]).into_owned()))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.tell(AUDIT_DEL_RULE, Rule::of_the_calls().bytes());
        self.enable(0);
    }
}

/// Requirements: A1
fn audit_sees_the_number_of_each_call() {
    let audit = Audit::open();
    audit.enable(1);
    audit.tell(AUDIT_ADD_RULE, Rule::of_the_calls().bytes());
    let _trace = Trace::started("audited");
    // Processes that existed before are not audited.
    let child = Child::spawn(|_| assert_eq!(make_all(), [Ok(()); 3]));
    let pid = child.pid();
    child.join();
    let mut seen = BTreeMap::new();
    wait::until("all three were told of", || {
        while let Some((kind, text)) = audit.next() {
            if kind == AUDIT_SYSCALL
                && let Some((number, record)) = of_process(&text, pid)
            {
                seen.insert(number, record);
            }
        }
        numbers().iter().all(|number| seen.contains_key(number))
    });
    assert_eq!(seen.len(), 3, "no other call is");
    for record in seen.values() {
        assert!(
            record.contains(" arch=c000003e ") && record.contains(" success=yes "),
            "{record}"
        );
    }
}

/// The number of the call in a record, if it is of that process.
fn of_process(record: &str, pid: Pid) -> Option<(u32, String)> {
    let field = |name: &str| {
        let mut words = record.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let own = field("pid")? == pid.to_string();
    let number = field("syscall")?.parse().ok()?;
    own.then(|| (number, record.to_owned()))
}

/// Makes a call as a 32-bit program does.
///
/// # Safety
/// The call must not write to any Rust object, except one that may be overwritten.
unsafe fn int_0x80(number: u32, arguments: [u32; 5]) -> i32 {
    let [a, b, c, d, e] = arguments;
    let mut ret = number as u64;
    // SAFETY: the caller promises that no Rust object is harmed. The compiler reserves `rbx`, and
    // these calls do not keep r8 to r11.
    unsafe {
        asm!(
            "xchg rbx, {first}",
            "int 0x80",
            "xchg rbx, {first}",
            first = inout(reg) u64::from(a) => _,
            inout("rax") ret,
            in("rcx") u64::from(b),
            in("rdx") u64::from(c),
            in("rsi") u64::from(d),
            in("rdi") u64::from(e),
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    ret as i32
}

/// Requirements: A1
fn programs_of_32_bits_have_no_tracing_calls() {
    const GETPID: u32 = 20;
    const PRCTL: u32 = 172;
    const ENOSYS: i32 = -libc::ENOSYS;
    let _trace = Trace::started("compat");
    child::run(|| {
        let areas = Areas::map(0);
        let slot = areas.must_next();
        // SAFETY: no memory is concerned. A kernel without CONFIG_IA32_EMULATION kills this
        // process.
        let pid = unsafe { int_0x80(GETPID, [0; 5]) };
        assert_eq!(pid as u32, std::process::id(), "it can make such calls");
        // Memory that 32 bits can name.
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let low = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
                -1,
                0,
            )
        };
        assert_ne!(low, libc::MAP_FAILED);
        let at = u32::try_from(low as usize).expect("below 4 GiB");
        let before = usertrace_tests::maps::areas();
        let [alloc, update, switch] = numbers();
        for (what, number, arguments) in [
            (
                "alloc_tracebuf",
                alloc,
                [at, size_of::<LttTracebuf>() as u32, 0, 0, 0],
            ),
            ("ltt_update", update, [at, at + 8, at + 16, 0, 0]),
            ("ltt_switch", switch, [slot.address as u32, 0, 0, 0, 0]),
        ] {
            // SAFETY: what may be written is in the page.
            let ret = unsafe { int_0x80(number, arguments) };
            assert_eq!(ret, ENOSYS, "{what}");
        }
        // The prctl does not report the calls to 32-bit programs either.
        let abi = [PR_LTT_GET_ABI, at, size_of::<LttAbi>() as u32, 0, 0];
        // SAFETY: as above.
        let ret = unsafe { int_0x80(PRCTL, abi) };
        assert_eq!(ret, -libc::EINVAL);
        assert_eq!(usertrace_tests::maps::areas(), before);
        assert!(slot.update().is_ok());
    });
}
