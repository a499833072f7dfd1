//! Files that actors read into their areas, and write from there.

use syscalls::Sysno;

use crate::actor::{Actor, CallResult, call};
use crate::kinds::Kind;
use crate::scene::SPARE;

/// The descriptor of a disk, opened with O_DIRECT, in all actors. Closed if there is no disk.
pub(crate) const DISK_FD: i32 = 201;
/// Both ends of a socket by which consumers pass descriptors to traced programs.
pub(crate) const SOCKET_FDS: [i32; 2] = [202, 203];

/// Creates a file in memory with words of this program.
pub(crate) fn own(words: usize) -> CallResult {
    let name = c"own".as_ptr() as usize;
    let fd = call(Sysno::memfd_create, [name, libc::MFD_CLOEXEC as usize])?;
    let written = call(Sysno::pwrite64, [fd, words, SPARE, 0]);
    written.map(|_| fd).inspect_err(|_| {
        let _ = call(Sysno::close, [fd]);
    })
}

/// Opens the disk, before any actor starts.
pub(crate) fn open_disk() -> bool {
    let path = c"/dev/ram0".as_ptr();
    // SAFETY: The path is a C string, and the rest are numbers.
    unsafe {
        let fd = libc::open(path, libc::O_RDWR | libc::O_DIRECT);
        fd >= 0 && libc::dup2(fd, DISK_FD) == DISK_FD && libc::close(fd) == 0
    }
}

/// Makes the socket.
pub(crate) fn make_socket() {
    let mut ends = [0; 2];
    // SAFETY: It writes two numbers.
    let made = unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
        libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
    };
    assert_eq!(made, 0, "socketpair");
    for (end, fd) in ends.into_iter().zip(SOCKET_FDS) {
        // SAFETY: Numbers only; the descriptors are this function's.
        unsafe {
            libc::dup2(end, fd);
            libc::close(end);
        }
    }
}

/// The length of a control message with one descriptor, in words: two of header, and the number.
const CONTROL: usize = 3;

/// `struct msghdr` for `words`, and `control`.
fn message(vector: &mut [usize; 2], control: &mut [usize; CONTROL], len: usize) -> libc::msghdr {
    // SAFETY: zeros are an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vector.as_mut_ptr().cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = len;
    message
}

/// Passes on a descriptor of a consumer file of process `pid`.
pub(crate) fn pass(actor: &Actor, fd: usize, pid: u32) {
    let mut pid = u64::from(pid);
    let mut vector = [&raw mut pid as usize, 8];
    // The length, the level and the type, the descriptor.
    let rights = (libc::SOL_SOCKET as usize) | (libc::SCM_RIGHTS as usize) << 32;
    let mut control = [8 * CONTROL - 4, rights, fd];
    let message = message(&mut vector, &mut control, 8 * CONTROL);
    let _ = actor.call(
        Kind::Pass,
        Sysno::sendmsg,
        [
            SOCKET_FDS[0] as usize,
            &raw const message as usize,
            libc::MSG_DONTWAIT as usize,
        ],
    );
}

/// Receives a descriptor, and the process that its file belongs to.
pub(crate) fn receive(actor: &Actor) -> Option<(usize, u32)> {
    let mut pid = 0_u64;
    let mut vector = [&raw mut pid as usize, 8];
    let mut control = [0; CONTROL];
    let mut message = message(&mut vector, &mut control, 8 * CONTROL);
    actor
        .call(
            Kind::PassReceive,
            Sysno::recvmsg,
            [
                SOCKET_FDS[1] as usize,
                &raw mut message as usize,
                (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as usize,
            ],
        )
        .ok()?;
    let has_one = std::hint::black_box(message).msg_controllen >= 8 * CONTROL - 4;
    let [_, _, fd] = std::hint::black_box(control);
    has_one.then_some((fd & 0xffff_ffff, std::hint::black_box(pid) as u32))
}

/// Closes the descriptors that nobody received: they keep their files alive.
pub(crate) fn drain(actor: &Actor) {
    while let Some((fd, _)) = receive(actor) {
        let _ = call(Sysno::close, [fd]);
    }
}
