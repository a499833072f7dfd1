//! All kinds of calls, and the expected result of each.

/// The expected result of a kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Often succeeds. A run in which it never does tests too little.
    Succeeds,
    /// May succeed or fail, depending on the kernel and on other actors.
    Either,
    /// Never succeeds.
    Refused,
}

macro_rules! kinds {
    ($($kind:ident $expect:ident $name:literal,)*) => {
        /// A kind of calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Kind { $($kind),* }

        /// Each kind's name and expected result.
        const ALL: &[(Kind, &str, Expect)] = &[$((Kind::$kind, $name, Expect::$expect)),*];
    };
}

kinds! {
    // The three calls.
    Alloc Succeeds "alloc_tracebuf",
    AllocWrong Refused "alloc_tracebuf, wrong",
    UpdateNext Succeeds "ltt_update, next",
    UpdateOf Succeeds "ltt_update, of a buffer",
    UpdateWrong Refused "ltt_update, wrong",
    Switch Succeeds "ltt_switch",
    SwitchWrong Refused "ltt_switch, wrong",
    // Accesses by the processor.
    Read Succeeds "read of a word",
    Write Succeeds "write of a word",
    WriteControl Succeeds "write of a control block",
    Commit Succeeds "commit",
    Info Succeeds "read of the info area",
    Check Succeeds "check of pages written before",
    // Mappings.
    Unmap Succeeds "munmap, an area",
    UnmapPart Either "munmap, any part",
    UnmapTwo Succeeds "munmap, two of three areas",
    RemapSame Either "mremap, in place",
    RemapMove Either "mremap, MREMAP_MAYMOVE",
    RemapFixed Either "mremap, MREMAP_FIXED",
    RemapKeep Either "mremap, MREMAP_DONTUNMAP",
    RemapOnto Either "mremap, other memory onto an area",
    RemapPages Either "remap_file_pages",
    RemapPagesAfter Either "remap_file_pages, after the other areas went",
    FixedArea Succeeds "mmap, MAP_FIXED over an area",
    FixedPart Either "mmap, MAP_FIXED over a part",
    FixedNoReplace Either "mmap, MAP_FIXED_NOREPLACE",
    Protect Succeeds "mprotect, an area as it is",
    ProtectOther Either "mprotect, any rights, any part",
    ProtectKey Either "pkey_mprotect",
    Lock Either "mlock2",
    Unlock Either "munlock",
    LockAll Either "mlockall, munlockall",
    InCore Either "mincore",
    Sync Either "msync",
    Seal Either "mseal",
    NameArea Either "prctl, PR_SET_VMA",
    // madvise.
    AdviseNormal Either "madvise, MADV_NORMAL",
    AdviseRandom Either "madvise, MADV_RANDOM",
    AdviseSequential Either "madvise, MADV_SEQUENTIAL",
    AdviseWillNeed Either "madvise, MADV_WILLNEED",
    AdviseDontNeed Either "madvise, MADV_DONTNEED",
    AdviseFree Either "madvise, MADV_FREE",
    AdviseRemove Either "madvise, MADV_REMOVE",
    AdviseDontFork Either "madvise, MADV_DONTFORK",
    AdviseDoFork Either "madvise, MADV_DOFORK",
    AdviseMergeable Either "madvise, MADV_MERGEABLE",
    AdviseUnmergeable Either "madvise, MADV_UNMERGEABLE",
    AdviseHugePage Either "madvise, MADV_HUGEPAGE",
    AdviseNoHugePage Either "madvise, MADV_NOHUGEPAGE",
    AdviseDontDump Either "madvise, MADV_DONTDUMP",
    AdviseDoDump Either "madvise, MADV_DODUMP",
    AdviseWipeOnFork Either "madvise, MADV_WIPEONFORK",
    AdviseKeepOnFork Either "madvise, MADV_KEEPONFORK",
    AdviseCold Either "madvise, MADV_COLD",
    AdvisePageOut Either "madvise, MADV_PAGEOUT",
    AdvisePopulateRead Either "madvise, MADV_POPULATE_READ",
    AdvisePopulateWrite Either "madvise, MADV_POPULATE_WRITE",
    AdviseDontNeedLocked Either "madvise, MADV_DONTNEED_LOCKED",
    AdviseCollapse Either "madvise, MADV_COLLAPSE",
    AdvisePoison Either "madvise, MADV_HWPOISON",
    AdviseSoftOffline Either "madvise, MADV_SOFT_OFFLINE",
    AdviseGuardInstall Either "madvise, MADV_GUARD_INSTALL",
    AdviseGuardRemove Either "madvise, MADV_GUARD_REMOVE",
    AdviseUnknown Refused "madvise, no advice",
    ProcessAdvise Either "process_madvise",
    // Other ways to the pages.
    UserFault Succeeds "userfaultfd",
    UserFaultRegister Either "userfaultfd, UFFDIO_REGISTER",
    UserFaultCopy Either "userfaultfd, UFFDIO_COPY, UFFDIO_ZEROPAGE",
    MapFiles Either "open of /proc/self/map_files",
    MemRead Either "read of /proc/self/mem",
    MemWrite Either "write to /proc/self/mem",
    VmRead Either "process_vm_readv",
    VmWrite Either "process_vm_writev",
    ReadInto Succeeds "read(2) into an area",
    WriteFrom Succeeds "write(2) from an area",
    DirectRead Either "O_DIRECT read into an area",
    DirectWrite Either "O_DIRECT write from an area",
    Splice Either "vmsplice",
    RingSetup Succeeds "io_uring_setup",
    RingRegister Either "io_uring, registered buffers",
    RingRead Succeeds "io_uring, read",
    PidfdGetfd Either "pidfd_getfd",
    Ptrace Either "ptrace of a child",
    Futex Either "futex in an area",
    // Lives of processes.
    Fork Succeeds "fork",
    ForkAreas Succeeds "fork, areas in the child",
    ForkGrandchild Succeeds "fork, the parent of the child dies",
    Vfork Succeeds "vfork",
    SharerArguments Succeeds "clone, CLONE_VM",
    SharerExec Succeeds "clone, CLONE_VM, and exec",
    Exec Succeeds "exec",
    ExecPending Succeeds "exec, with an update signal on its way",
    Core Succeeds "core dump",
    Killed Succeeds "kill of a child in its calls",
    Namespaces Either "a user namespace, and mount",
    Limit Succeeds "alloc_tracebuf, little RLIMIT_AS",
    Handler Succeeds "handler of the update signal",
    Sender Either "kill of a sibling",
    // A page of memory fails in the middle of a call.
    FailNth Either "fail-nth",
    // Consumers.
    List Succeeds "list of consumer files",
    Open Succeeds "consumer: open",
    OpenWrite Succeeds "consumer: open for writing",
    Reopen Either "consumer: open of /proc/self/fd",
    IocInfo Succeeds "LTT_IOC_INFO",
    IocPositions Succeeds "LTT_IOC_POSITIONS",
    IocConsume Succeeds "LTT_IOC_CONSUME",
    IocEnd Succeeds "LTT_IOC_END_SUBBUF",
    IocWrong Refused "ioctl, wrong",
    Poll Succeeds "consumer: poll",
    Epoll Succeeds "consumer: epoll",
    Watch Succeeds "inotify",
    Map Succeeds "consumer: mmap",
    MapAny Either "consumer: mmap, any length and offset",
    MapWrite Refused "consumer: mmap, writable",
    MapPrivate Refused "consumer: mmap, private",
    MapExec Refused "consumer: mmap, executable",
    MapRead Succeeds "consumer: read of the mapping",
    MapWriteFrom Succeeds "consumer: write(2) from the mapping",
    MapProtect Refused "consumer: mprotect, more rights",
    MapProtectLess Either "consumer: mprotect, fewer rights",
    MapRemap Either "consumer: mremap",
    MapRemapPages Either "consumer: remap_file_pages",
    MapUnmap Succeeds "consumer: munmap",
    MapUnmapPart Either "consumer: munmap, a part",
    MapAdvise Either "consumer: madvise",
    MapLock Either "consumer: mlock",
    MapRegister Either "consumer: io_uring, registered buffers",
    MapVmRead Either "consumer: process_vm_readv",
    MapFork Succeeds "consumer: fork",
    Transfer Either "consumer: read, write, truncate",
    Pass Succeeds "consumer: passes a descriptor",
    PassReceive Succeeds "a traced program gets a descriptor",
    PassUse Either "a traced program maps it",
    Close Succeeds "consumer: close",
    // Control.
    Mkdir Succeeds "mkdir of a trace",
    MkdirWrong Refused "mkdir, wrong name",
    Rmdir Succeeds "rmdir of a trace",
    MkdirChannel Succeeds "mkdir of a channel",
    RmdirChannel Succeeds "rmdir of a channel",
    Geometry Succeeds "subbuf_size, subbuf_count",
    Scope Succeeds "scope, global",
    Mode Succeeds "mode, flight",
    Prefault Succeeds "prefault",
    Filter Succeeds "filter",
    Mask Succeeds "filter_mask",
    Contexts Succeeds "contexts",
    Allocate Succeeds "allocate",
    Start Succeeds "start",
    Stop Succeeds "stop",
    ControlWrong Either "control files, any bytes",
    ControlRead Succeeds "control files, read",
    ControlLimit Succeeds "limits",
    ControlMode Succeeds "chmod, chgrp",
    ControlOdd Either "rename, link, unlink in the tree",
    GroupMkdir Succeeds "group: mkdir of a trace",
    GroupRmdir Succeeds "group: rmdir of a trace",
    OthersAdvise Either "root: process_madvise of a traced program",
    OthersMem Either "root: /proc/PID/mem",
    OthersMapFiles Either "root: /proc/PID/map_files",
    OthersMapFilesMap Either "root: mmap of /proc/PID/map_files",
    OthersFd Either "root: pidfd_getfd",
    OthersVm Either "root: process_vm_readv, process_vm_writev",
    OthersPtrace Either "root: ptrace",
    // The environment.
    Pressure Succeeds "memory.high, memory.max",
    Compact Either "compaction, dropped caches",
    Offline Either "CPU goes",
    Online Either "CPU comes",
    Kill Either "kill of an actor",
    Freeze Either "SIGSTOP, SIGCONT",
    FailRate Either "failslab, fail_page_alloc, fail_usercopy",
    VictimFill Succeeds "victim: fills memory",
    VictimCheck Succeeds "victim: finds its memory as it was",
}

/// The number of kinds.
pub(crate) const KINDS: usize = ALL.len();

impl Kind {
    /// All kinds, in order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|(kind, ..)| *kind)
    }

    /// The kind with this number.
    pub(crate) fn of(number: usize) -> Option<Self> {
        ALL.get(number).map(|(kind, ..)| *kind)
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        ALL[self as usize].1
    }

    /// Its expected result.
    pub(crate) fn expect(self) -> Expect {
        ALL[self as usize].2
    }
}

/// Each advice of `madvise()`.
pub(crate) const ADVICE: &[(Kind, i32)] = &[
    (Kind::AdviseNormal, 0),
    (Kind::AdviseRandom, 1),
    (Kind::AdviseSequential, 2),
    (Kind::AdviseWillNeed, 3),
    (Kind::AdviseDontNeed, 4),
    (Kind::AdviseFree, 8),
    (Kind::AdviseRemove, 9),
    (Kind::AdviseDontFork, 10),
    (Kind::AdviseDoFork, 11),
    (Kind::AdviseMergeable, 12),
    (Kind::AdviseUnmergeable, 13),
    (Kind::AdviseHugePage, 14),
    (Kind::AdviseNoHugePage, 15),
    (Kind::AdviseDontDump, 16),
    (Kind::AdviseDoDump, 17),
    (Kind::AdviseWipeOnFork, 18),
    (Kind::AdviseKeepOnFork, 19),
    (Kind::AdviseCold, 20),
    (Kind::AdvisePageOut, 21),
    (Kind::AdvisePopulateRead, 22),
    (Kind::AdvisePopulateWrite, 23),
    (Kind::AdviseDontNeedLocked, 24),
    (Kind::AdviseCollapse, 25),
    (Kind::AdvisePoison, 100),
    (Kind::AdviseSoftOffline, 101),
    (Kind::AdviseGuardInstall, 102),
    (Kind::AdviseGuardRemove, 103),
    (Kind::AdviseUnknown, 999),
];
