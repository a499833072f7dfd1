//! `usertrace extract`: takes traces out of the dump of a crashed kernel, or out of reserved
//! memory.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use serde::Serialize;
use usertrace_consumer::{CONTROL_FS, ControlFs};
use usertrace_crash::{
    Candidate, DanglingRoot, Directory, Dump, ExtractOptions, Extraction, Problems, RootLocation,
    RootSearch, RootTarget, Vmcoreinfo, extract,
};
use usertrace_ctf::{Crash, Version};

use crate::kernel_commands::PREVIOUS_BOOT;
use crate::output::{self, Totals};
use crate::status::DAMAGED;

const NO_TRACE: u8 = 4;

/// Take the traces out of the dump of a kernel that crashed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace extract /var/crash/vmcore
  usertrace extract /proc/vmcore -o /var/crash/traces      # in the crash kernel
  usertrace extract vmcore -o traces && usertrace view traces | tail
  usertrace extract vmcore --trace 'net*' --process nginx,1234 --last 10s
  usertrace extract --raw vmcore.raw                        # QEMU: pmemsave 0 SIZE vmcore.raw
  usertrace extract --previous-boot -o traces               # after a reset, without any dump

The dump is an ELF file (/proc/vmcore, or what makedumpfile -E or QEMU's dump-guest-memory made of one), or in the compressed format
of kdump (makedumpfile -c, -l, -p, -z, and QEMU's); flattened ones (makedumpfile -F) are read as well. /proc/kcore is
the running machine. With --raw it is memory from address 0 on, without any header. Neither symbols nor debug
information are needed. With --previous-boot it is what the boot before this one has left in memory
that was reserved for traces (reserve_mem=SIZE:4096:ltt on the kernel's command line); a copy of that file,
/sys/kernel/ltt/previous_boot, is read as a dump is. For each trace there will be a directory, with a CTF trace for each
process. A summary, and what could not be read, is printed on standard error. Where the disk is full, events that find no room
are counted and named by process, what fits is written, and the status is 3.

Some dumps do not say where the traces are: an image of memory, and QEMU's without its vmcoreinfo device. Then extract
searches for the root page. It looks into the kernel's image first, which it finds on x86-64 only, and else at each page.
A program can fill its memory with forged root pages, which lead to forged events. So the summary says where the root
page was found, and whether it may be forged; traces that may be forged say so, too (may_be_forged in their environment).
If several root pages are equally good, extract lists them and stops: --root-page says which one is right.

Exit status: 0 if all traces were extracted, 1 if that failed, 2 for a wrong command line, 3 if something of them
is damaged or missing, 4 if there is no trace in the dump.")]
pub(crate) struct Args {
    /// The dump
    #[arg(required_unless_present = "previous_boot")]
    vmcore: Option<PathBuf>,

    /// What the previous boot has left in reserved memory
    #[arg(long, conflicts_with_all = ["vmcore", "raw", "root_page"])]
    previous_boot: bool,

    /// The dump is memory as it was, from address 0 on, without a header
    #[arg(long)]
    raw: bool,

    /// Physical address of the root page, if the dump does not say it and has several [default:
    /// what the dump says, or what a search finds]. It is that of the kernel's symbol
    /// ltt_crash_root
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    root_page: Option<u64>,

    /// Only these traces: NAME, * for any characters, ? for any one; several with commas between
    /// them
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    trace: Vec<String>,

    /// Only these processes: PID, or NAME, as above
    #[arg(short, long, value_name = "PROCESS", value_delimiter = ',')]
    process: Vec<String>,

    /// Only events of so long before the crash: 10s, 200ms. Where the dump does not say when that
    /// was, `usertrace view --last` counts from the last event
    #[arg(short, long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    last: Option<Duration>,

    /// Directory for the traces; must be new or empty [default: usertrace-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Version of CTF: 1.8, or 2, which babeltrace2 2.1 and later read
    #[arg(long, value_name = "VERSION", default_value = "1.8")]
    ctf: Version,

    /// Write the summary as JSON, to standard output or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Summary of an extraction, as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    vmcore: &'a Path,
    directory: &'a Path,
    kernel: Option<&'a str>,
    crash_time: Option<i64>,
    crash_cpu: Option<u32>,
    crash_thread: Option<u32>,
    root: &'a Root,
    #[serde(flatten)]
    extraction: &'a Extraction,
}

/// How a root page was found.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum FoundBy {
    /// The dump's vmcoreinfo names it.
    Vmcoreinfo,
    /// It is in the first page of reserved memory.
    ReservedMemory,
    /// The command line names it.
    Option,
    /// A search found it.
    Search,
}

/// The root page, and how far it can be trusted.
#[derive(Serialize)]
struct Root {
    address: u64,
    found_by: FoundBy,
    /// A program may have forged it.
    may_be_forged: bool,
    /// Where a search found it.
    place: Option<RootLocation>,
    /// Pages with the mark of a root page, if there was a search.
    candidates: Option<u64>,
    /// Different directories that these lead to, if there was a search. A kernel leaves one.
    consistent: Option<u64>,
}

impl Root {
    fn known(address: u64, found_by: FoundBy) -> Self {
        Self {
            address,
            found_by,
            may_be_forged: false,
            place: None,
            candidates: None,
            consistent: None,
        }
    }

    fn found(root: Candidate, search: &RootSearch) -> Self {
        Self {
            address: root.address,
            found_by: FoundBy::Search,
            may_be_forged: !root.is_certain(),
            place: Some(root.location),
            candidates: Some(search.candidates),
            consistent: Some(search.consistent),
        }
    }

    /// Reports how the root page was found, and whether it may be forged.
    fn report(&self) {
        let how = match (self.found_by, self.place) {
            (FoundBy::Vmcoreinfo, _) => "named by the dump's vmcoreinfo".to_owned(),
            (FoundBy::ReservedMemory, _) => "in the first page of reserved memory".to_owned(),
            (FoundBy::Option, _) => "named by --root-page".to_owned(),
            (FoundBy::Search, Some(RootLocation::ReadOnlyImage)) => {
                "found in the kernel's image, in memory that no program can have had".to_owned()
            }
            (FoundBy::Search, place) => {
                let place = match place {
                    Some(RootLocation::Image) => " in the kernel's image",
                    _ => "",
                };
                let [candidates, consistent] =
                    [self.candidates, self.consistent].map(Option::unwrap_or_default);
                let candidates = output::count(candidates as usize, "candidate", "candidates");
                format!(
                    "found by a search{place}: {candidates}, {consistent} consistent; it may be forged by a program of that \
                     machine"
                )
            }
        };
        output::say(format_args!("root page at {:#x}: {how}", self.address));
    }
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(self.try_run())
    }

    fn try_run(self) -> anyhow::Result<u8> {
        let vmcore = match &self.vmcore {
            Some(vmcore) => vmcore.clone(),
            None => match previous_boot(Path::new(CONTROL_FS))? {
                Some(memory) => memory,
                None => return Ok(NO_TRACE),
            },
        };
        let name = vmcore.display();
        let open = if self.raw { Dump::open_raw } else { Dump::open };
        let dump = open(&vmcore).with_context(|| format!("cannot read {name}"))?;
        if dump.is_cut_short() {
            output::say(format_args!(
                "{name} is cut short: it has less than its headers say"
            ));
        }
        let vmcoreinfo = dump.vmcoreinfo();
        if vmcoreinfo.is_some_and(|info| info.is_from_damaged_notes) {
            output::say(format_args!(
                "{name} has a note whose length is wrong: its vmcoreinfo was found by its name"
            ));
        }
        let Some(root) = self.root(&vmcore, &dump)? else {
            return Ok(NO_TRACE);
        };
        let Vmcoreinfo {
            release, mut crash, ..
        } = dump.vmcoreinfo().cloned().unwrap_or_default();
        crash.may_be_forged = root.may_be_forged;
        let options = ExtractOptions {
            crash,
            version: self.ctf,
            traces: self.trace.clone(),
            processes: self.process.clone(),
            last: self.last,
        };
        let directory = output::Directory::new(self.output)?;
        let directory = directory.path();
        create(directory).with_context(|| format!("cannot write to {}", directory.display()))?;
        let extraction = extract(&dump, root.address, &options, directory)
            .with_context(|| format!("cannot extract the traces of {name}"))?;
        let kernel = match &dump {
            Dump::Reserved(memory) => format!("boot {} of this machine", memory.boot()),
            _ => format!(
                "kernel {}",
                release.as_deref().unwrap_or("of unknown version")
            ),
        };
        root.report();
        report(&extraction, &kernel, &crash);
        if let Some(to) = &self.json {
            let summary = Summary {
                vmcore: &vmcore,
                directory,
                kernel: release.as_deref(),
                crash_time: crash.time,
                crash_cpu: crash.cpu,
                crash_thread: crash.thread,
                root: &root,
                extraction: &extraction,
            };
            output::json(to, &summary)?;
        }
        Ok(if extraction.is_damaged() {
            DAMAGED
        } else if extraction.traces.is_empty() {
            NO_TRACE
        } else {
            0
        })
    }

    /// The root page. `None`: the dump has no trace, and a message said so.
    fn root(&self, vmcore: &Path, dump: &Dump) -> anyhow::Result<Option<Root>> {
        let name = vmcore.display();
        if let Some(address) = self.root_page {
            return Ok(Some(Root::known(address, FoundBy::Option)));
        }
        if let Some(address) = dump.root() {
            let found_by = match dump {
                Dump::Reserved(_) => FoundBy::ReservedMemory,
                _ => FoundBy::Vmcoreinfo,
            };
            return Ok(Some(Root::known(address, found_by)));
        }
        if dump.vmcoreinfo().is_some() {
            output::say(format_args!(
                "{name} has no trace: its kernel has no trace buffers (there is no ltt_root in the dump's vmcoreinfo)"
            ));
            return Ok(None);
        }
        output::say(format_args!(
            "{name} does not say where the directory of traces is: searching for its root page"
        ));
        let search = dump.find_roots();
        if let Some(root) = search.root() {
            return Ok(Some(Root::found(root, &search)));
        }
        if let (true, Some(nowhere)) = (search.best.is_empty(), search.dangling) {
            anyhow::bail!("{}", describe_nowhere(&name, &search, nowhere, self.raw));
        }
        if search.best.is_empty() {
            output::say(format_args!(
                "{name} has no trace: there is no root page in it"
            ));
            return Ok(None);
        }
        for candidate in &search.best {
            output::say(describe(candidate, dump));
        }
        let candidates = output::count(search.candidates as usize, "page says", "pages say");
        anyhow::bail!(
            "{candidates} that they are the root page of {name}, and several are equally good: they are of kernels that ran before, or \
             forged by programs. Name the right one by --root-page; it has the address of the kernel's symbol ltt_crash_root"
        )
    }
}

/// Describes a root page whose directory is not in the dump.
fn describe_nowhere(
    name: &impl fmt::Display,
    search: &RootSearch,
    nowhere: DanglingRoot,
    is_raw: bool,
) -> String {
    let others = match search.candidates {
        1 => String::new(),
        candidates => format!(", nor are those of {} more", candidates - 1),
    };
    // A raw image without the holes of the machine's devices has memory at wrong offsets.
    let why = match is_raw {
        true => "an image must have each byte at its physical address, with the machine's holes",
        false => "it was left out, or the page is forged",
    };
    format!(
        "the root page at {:#x} of {name} leads to a directory at {:#x}, which is not there{others} ({why})",
        nowhere.address, nowhere.directory
    )
}

/// Limit of trace names in the description of a candidate.
const MAX_NAMES: usize = 8;

/// Names the traces that a root page leads to, for people.
fn describe_traces(address: u64, dump: &Dump) -> String {
    let directory = Directory::read(dump, address, &mut Problems::default());
    let Ok(directory) = directory else {
        return String::new();
    };
    let mut names: Vec<_> = directory.trace_names().collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    match (names.is_empty(), more) {
        (true, _) => ", and no trace".to_owned(),
        (false, 0) => format!(", of traces {}", names.join(", ")),
        (false, more) => format!(", of traces {} and {more} more", names.join(", ")),
    }
}

/// Describes a candidate for the root page, for people.
fn describe(candidate: &Candidate, dump: &Dump) -> String {
    let place = match candidate.location {
        RootLocation::Image | RootLocation::ReadOnlyImage => ", in the kernel's image,",
        _ => "",
    };
    let directory = match candidate.leads_to {
        RootTarget::Directory => "a consistent directory",
        RootTarget::Damaged => "a damaged directory",
        RootTarget::Nothing => "no directory: there was no trace yet",
        _ => "nowhere",
    };
    let buffers = match candidate.buffers {
        0 => String::new(),
        buffers => format!(
            " with {}",
            output::count(buffers as usize, "buffer", "buffers")
        ),
    };
    let traces = match candidate.leads_to {
        RootTarget::Directory | RootTarget::Damaged => describe_traces(candidate.address, dump),
        _ => String::new(),
    };
    format!(
        "candidate {:#x}{place} leads to {directory}{buffers}{traces}",
        candidate.address
    )
}

/// The file with the previous boot's reserved memory. `None`: that boot left nothing, and a message
/// said so.
fn previous_boot(control_fs: &Path) -> anyhow::Result<Option<PathBuf>> {
    ControlFs::open(control_fs).map_err(|error| PREVIOUS_BOOT.explain(error, control_fs))?;
    let path = control_fs.join("reserved");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            anyhow::bail!("this kernel has no buffers in reserved memory: it is older than that")
        }
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(key, value)| (key == name).then_some(value))
    };
    if value("size") == Some("0") {
        anyhow::bail!(
            "no memory was reserved for traces when this kernel was booted: reserve_mem=SIZE:4096:ltt on its command \
             line does that, for the boot before and this one"
        );
    }
    match value("previous_boot") {
        Some("none") => {
            output::say(
                "the previous boot has left nothing: it had no memory reserved for traces, or the machine has lost its \
                 memory since",
            );
            Ok(None)
        }
        Some(state) if state.starts_with("not intact") => {
            anyhow::bail!(
                "what the previous boot has left in reserved memory is {state} ({})",
                control_fs.join("previous_boot").display()
            )
        }
        _ => {
            let path = control_fs.join("previous_boot");
            let opened = fs::File::open(&path);
            // No permission of files gives this error.
            if opened.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
                anyhow::bail!(
                    "cannot read {}: the kernel is locked down (confidentiality), and the memory \
                     may have belonged to anything; boot with lockdown=integrity",
                    path.display()
                );
            }
            Ok(Some(path))
        }
    }
}

/// Parses an address in hexadecimal digits, with or without `0x`.
fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

/// Creates the directory for the traces. An existing one must be empty, so that its contents belong
/// together.
fn create(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    match fs::read_dir(directory)?.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        Some(Err(error)) => Err(error),
    }
}

/// When and where the kernel crashed, as far as the dump tells.
fn crash_details(extraction: &Extraction, crash: &Crash) -> String {
    let since_1970 = |since: Option<Duration>| UNIX_EPOCH.checked_add(since?);
    let exactly = extraction.crash_ns.and_then(|ns| u64::try_from(ns).ok());
    let to_the_second = crash.time.and_then(|time| u64::try_from(time).ok());
    let mut details = if let Some(time) = since_1970(exactly.map(Duration::from_nanos)) {
        format!(", crashed at {}", humantime::format_rfc3339_nanos(time))
    } else if let Some(time) = since_1970(to_the_second.map(Duration::from_secs)) {
        format!(", crashed at {}", humantime::format_rfc3339_seconds(time))
    } else {
        String::new()
    };
    if let Some(cpu) = crash.cpu {
        details += &format!(" on CPU {cpu}");
    }
    if let Some(thread) = crash.thread {
        details += &format!(", in thread {thread}");
    }
    details
}

fn report(extraction: &Extraction, kernel: &str, crash: &Crash) {
    let problems = &extraction.problems;
    for problem in &problems.messages {
        output::say(problem);
    }
    if let Some(more) = problems
        .count
        .checked_sub(problems.messages.len() as u64)
        .filter(|&more| more > 0)
    {
        output::say(format_args!("and {more} more of that"));
    }
    if extraction.traces.is_empty() {
        if !problems.is_empty() {
            output::say("no trace was extracted; what could not be read may have been one");
        } else if extraction.others.is_empty() {
            output::say("there was no trace when the kernel crashed");
        } else {
            let others = extraction.others.join(", ");
            output::say(format_args!("no such trace: there are {others}"));
        }
        return;
    }
    output::say(format_args!("{kernel}{}", crash_details(extraction, crash)));
    for trace in &extraction.traces {
        let totals = Totals::of(&trace.processes);
        let earlier = match totals.earlier {
            0 => String::new(),
            earlier => format!(", {earlier} earlier ones left out"),
        };
        output::report(format_args!(
            "trace {}{}: {} events of {}{earlier}, {} lost, {} holes, {} damaged; {} bytes\n",
            trace.name,
            if trace.active { "" } else { " (not active)" },
            totals.events,
            output::count(trace.processes.len(), "process", "processes"),
            totals.lost,
            totals.holes,
            totals.damaged,
            totals.bytes,
        ));
        if !trace.processes.is_empty() {
            output::report(output::processes(&trace.processes));
        }
    }
}
