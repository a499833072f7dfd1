//! Discovery of the system calls by programs (F3).

use std::fs;
use std::mem::size_of;

use syscalls::Errno;
use usertrace_sys::uapi::{LTT_ABI_VERSION, LttAbi};
use usertrace_tests::areas::calls;
use usertrace_tests::control;
use usertrace_tests::raw::{self, KERNEL_ADDRESS, Pages};

use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    prctl_returns_the_abi,
    prctl_fills_the_known_part_of_a_newer_struct,
    prctl_rejects_bad_arguments_and_writes_nothing,
    abi_file_agrees_with_the_prctl,
];

/// Requirements: F3
fn prctl_returns_the_abi() {
    let abi = *calls().abi();
    assert_eq!(abi.size as usize, size_of::<LttAbi>());
    assert_eq!(abi.version, LTT_ABI_VERSION);
    assert_eq!((abi.features, abi.reserved), (0, 0));
    let mut numbers = [abi.nr_alloc_tracebuf, abi.nr_ltt_update, abi.nr_ltt_switch];
    numbers.sort_unstable();
    // Neither numbers of other calls on x86-64, nor the same one twice.
    assert!(numbers[0] > 450, "{numbers:?}");
    assert!(
        numbers[0] < numbers[1] && numbers[1] < numbers[2],
        "{numbers:?}"
    );
}

/// Requirements: F3
fn prctl_fills_the_known_part_of_a_newer_struct() {
    let mut words = [u64::MAX; 16];
    // SAFETY: the words may be overwritten.
    let ret = unsafe { raw::get_abi(words.as_mut_ptr() as usize, size_of_val(&words), 0, 0) };
    assert_eq!(ret, Ok(0));
    assert_eq!(words[0] as u32 as usize, size_of::<LttAbi>());
    let known = size_of::<LttAbi>() / 8;
    assert!(words[known..].iter().all(|&word| word == u64::MAX));
}

/// Requirements: F3
fn prctl_rejects_bad_arguments_and_writes_nothing() {
    let size = size_of::<LttAbi>();
    let mut words = [u64::MAX; 8];
    let good = words.as_mut_ptr() as usize;
    let read_only = Pages::new(1, libc::PROT_READ);
    let unmapped = Pages::new(1, libc::PROT_NONE);
    for (what, abi, size, arg4, arg5, errno) in [
        ("size 0", good, 0, 0, 0, Errno::EINVAL),
        ("a size too small", good, size - 1, 0, 0, Errno::EINVAL),
        ("a fourth argument", good, size, 1, 0, Errno::EINVAL),
        ("a fifth argument", good, size, 0, 1, Errno::EINVAL),
        ("NULL", 0, size, 0, 0, Errno::EFAULT),
        (
            "an unmapped address",
            unmapped.address(),
            size,
            0,
            0,
            Errno::EFAULT,
        ),
        (
            "a read-only address",
            read_only.address(),
            size,
            0,
            0,
            Errno::EFAULT,
        ),
        (
            "a kernel address",
            KERNEL_ADDRESS,
            size,
            0,
            0,
            Errno::EFAULT,
        ),
    ] {
        // SAFETY: what may be written is `words`, which may be overwritten.
        let ret = unsafe { raw::get_abi(abi, size, arg4, arg5) };
        assert_eq!(ret, Err(errno), "{what}");
        // SAFETY: an array of this function's; volatile, because the kernel was given its address
        // as a number.
        let now = unsafe { (good as *const [u64; 8]).read_volatile() };
        assert_eq!(now, [u64::MAX; 8], "{what}");
    }
}

/// Requirements: F3
fn abi_file_agrees_with_the_prctl() {
    let abi = *calls().abi();
    let text = fs::read_to_string(format!("{}/abi", control::ROOT)).expect("abi");
    let expected = format!(
        "version {}\nfeatures {:#x}\nalloc_tracebuf {}\nltt_update {}\nltt_switch {}\n",
        abi.version, abi.features, abi.nr_alloc_tracebuf, abi.nr_ltt_update, abi.nr_ltt_switch
    );
    assert_eq!(text, expected);
}
