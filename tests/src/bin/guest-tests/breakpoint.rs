//! Stops a process at a chosen instruction of the writer's restartable sequences.
//!
//! A single step would abort the sequence. With a hardware breakpoint, it runs up to the
//! instruction.

use std::ptr;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use usertrace_tests::child::Child;

/// `struct rseq_cs`: the writer's description of a sequence for the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    len: u64,
    abort: u64,
}

unsafe extern "C" {
    /// The linker's names for the section that the descriptors are in.
    #[link_name = "__start___rseq_cs"]
    static FIRST: Descriptor;
    #[link_name = "__stop___rseq_cs"]
    static END: Descriptor;
}

/// A sequence of this program: the last instruction before `start + len` commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Sequence {
    /// The addresses of its instructions, and of the one after it.
    pub(crate) fn instructions(&self) -> Vec<u64> {
        // SAFETY: code of this program, which is never written.
        let code = unsafe {
            std::slice::from_raw_parts(
                ptr::with_exposed_provenance(self.start as usize),
                self.len as usize,
            )
        };
        let decoder = Decoder::with_ip(64, code, self.start, DecoderOptions::NONE);
        let decoded: Vec<Instruction> = decoder.into_iter().collect();
        assert!(
            decoded.iter().all(|instruction| !instruction.is_invalid()),
            "{self:?}: {decoded:?}"
        );
        let begins = decoded.iter().map(Instruction::ip);
        begins.chain([self.start + self.len]).collect()
    }
}

/// All sequences of this program.
pub(crate) fn sequences() -> Vec<Sequence> {
    let (first, end) = (&raw const FIRST, &raw const END);
    let count = (end.addr() - first.addr()) / size_of::<Descriptor>();
    (0..count)
        .map(|at| {
            // SAFETY: within the section, which consists of descriptors.
            let descriptor = unsafe { first.add(at).read() };
            Sequence {
                start: descriptor.start,
                len: descriptor.len,
            }
        })
        .collect()
}

/// In the child: lets its parent trace it, and stops.
pub(crate) fn wait_for_tracer() {
    // SAFETY: no memory is concerned.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0);
        libc::raise(libc::SIGSTOP);
    }
}

/// Runs the stopped child up to an instruction, before which it stops. Returns false if the child
/// ended before.
pub(crate) fn run_to(child: &mut Child, address: u64) -> bool {
    let pid = child.pid();
    assert_eq!(child.wait(), WaitStatus::Stopped(pid, Signal::SIGSTOP));
    let register = |number: usize| {
        std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<libc::c_ulong>()
    };
    // Register 7 enables the first breakpoint, for execution.
    for (number, value) in [(0, address), (7, 1)] {
        // SAFETY: it changes the child's debug registers.
        let ret = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, pid, register(number), value) };
        assert_eq!(ret, 0, "{}", std::io::Error::last_os_error());
    }
    // SAFETY: no memory of this process is concerned.
    let ret = unsafe { libc::ptrace(libc::PTRACE_CONT, pid, ptr::null_mut::<u8>(), 0) };
    assert_eq!(ret, 0);
    match child.wait() {
        WaitStatus::Stopped(_, Signal::SIGTRAP) => true,
        WaitStatus::Exited(_, 0) => false,
        other => panic!("{other:?}"),
    }
}
