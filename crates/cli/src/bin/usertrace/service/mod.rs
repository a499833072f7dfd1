//! `usertrace service`: traces services of systemd as they are.

mod calls;
mod drop_in;
mod name;
mod own_filter;
mod systemd;
mod unit;
mod unit_file;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

use self::drop_in::DropIn;
use self::name::ServiceName;
use self::unit::{SystemdFiles, Unit};
use crate::preload::Wanted;
use crate::status::{NOT_ENABLED, WRONG_COMMAND_LINE};
use crate::{obstacle, output};

/// Debian's program that starts PostgreSQL, with no variables but those of a file of its own.
const PG_CTLCLUSTER: &str = "pg_ctlcluster";
/// Programs of units that only group others.
const NO_PROGRAMS: [&str; 2] = ["/bin/true", "/usr/bin/true"];

/// Preload the tracing libraries into services of systemd
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace service enable --malloc --pthread redis-server
  usertrace service status redis-server
  usertrace service list
  usertrace service disable redis-server

A service is traced from its next start on: systemd then preloads the libraries into its programs. A trace must select their
events, for example usertrace start web -e 'libc:*'. docs/how-to/services.md has the whole way.

Exit status: 0, 1 for an error, 2 for a wrong command line, 3 from status if the service is not enabled.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Enable(Enable),
    Disable(Disable),
    Status(Status),
    List(List),
}

/// Make systemd preload the tracing libraries into a service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace service enable --malloc redis-server
  usertrace service enable --malloc --pthread --dl openvpn@     # all instances of the template

It writes a drop-in, /etc/systemd/system/UNIT.service.d/usertrace.conf, and reloads systemd. If the unit allows only certain
system calls, the drop-in adds those of the library. It restarts nothing: the last line that it prints is the command that does.

Exit status: 0, 1 if the service cannot be traced so, 2 for a wrong command line.")]
struct Enable {
    /// Name of the service; an instance or a template has an @
    #[arg(value_name = "UNIT")]
    service: String,

    #[command(flatten)]
    wanted: Wanted,

    #[command(flatten)]
    root: Root,
}

/// Remove what enable has made
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace service disable redis-server
  usertrace service disable --all       # as the removal of the package does

A service that runs is traced until it is restarted.

Exit status: 0, 1 if the service is not enabled, 2 for a wrong command line.")]
struct Disable {
    /// Name of the service
    #[arg(
        value_name = "UNIT",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    service: Option<String>,

    /// All services that are enabled
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    root: Root,
}

/// Say whether a service is enabled, and whether its process is traced
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace service status redis-server

Exit status: 0 if the service is enabled, 1 for an error, 2 for a wrong command line, 3 if it is not enabled.")]
struct Status {
    /// Name of the service
    #[arg(value_name = "UNIT")]
    service: String,

    #[command(flatten)]
    root: Root,
}

/// List the services that are enabled
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  usertrace service list

Exit status: 0, also if there is none, 1 for an error, 2 for a wrong command line.")]
struct List {
    #[command(flatten)]
    root: Root,
}

/// The root directory with systemd's files.
#[derive(Debug, clap::Args)]
struct Root {
    /// Change the files below DIR, and ask no systemd: for images
    #[arg(long = "root", value_name = "DIR", default_value = "/")]
    path: PathBuf,
}

impl Root {
    fn files(&self) -> SystemdFiles {
        SystemdFiles::new(self.path.clone())
    }

    /// Whether the files are those of a systemd that runs.
    fn is_live(&self) -> bool {
        self.path == Path::new("/") && systemd::is_running()
    }
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        output::exit_code(match self.command {
            Command::Enable(args) => args.run(),
            Command::Disable(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::List(args) => args.run(),
        })
    }
}

impl Enable {
    fn run(self) -> anyhow::Result<u8> {
        let libraries = self.wanted.installed()?;
        if libraries.is_empty() {
            output::say("choose libraries to preload: --malloc, --pthread, --dl or --function");
            return Ok(WRONG_COMMAND_LINE);
        }
        let files = self.root.files();
        let unit = files.unit(&ServiceName::new(&self.service)?, drop_in::FILE)?;
        let directory = files.drop_in_directory(&unit.name)?;
        if let Some(libraries) = drop_in::libraries(&directory)? {
            bail!(
                "service {:?} is enabled already, with {} (usertrace service disable {} first)",
                unit.name.as_str(),
                libraries.join(", "),
                unit.name
            );
        }
        files.check_preload(&unit)?;
        self.check_programs(&unit, &files)?;
        let filter = unit.system_call_filter();
        // A unit without a filter needs no answer of systemd.
        let has_names = !filter.is_empty() && systemd::has_names()?;
        let text = DropIn {
            libraries: &libraries,
            calls: calls::assignments(&filter, has_names),
            bind: unit.has_other_root(),
            execute: unit.restricts_execution(),
        };
        let file = drop_in::write(&directory, &text.text()?)?;
        output::print(&format!("made {}\n", file.display()))?;
        for program in unit.programs() {
            if own_filter::may_install(&files.below(Path::new(&program))) {
                output::say(format_args!(
                    "{program:?} can install a system call filter of its own, which may kill it for calls of the library \
                     (record it in a trace without contexts, or switch the filter off)"
                ));
            }
        }
        if !self.root.is_live() {
            return Ok(0);
        }
        systemd::reload()?;
        restart(&unit.name, "it is traced from its next start on")
    }

    /// Reports programs that ignore `LD_PRELOAD`.
    fn check_programs(&self, unit: &Unit, files: &SystemdFiles) -> anyhow::Result<()> {
        let programs = unit.programs();
        let has_none = !programs.is_empty()
            && programs
                .iter()
                .all(|program| NO_PROGRAMS.contains(&program.as_str()));
        if has_none {
            let name = unit.name.as_str();
            match unit
                .name
                .namesake_template()
                .filter(|template| files.has(template))
            {
                Some(template) => bail!(
                    "service {name:?} runs no program of its own (name its instances: \"{template}\")"
                ),
                None => bail!("service {name:?} runs no program: {}", programs.join(", ")),
            }
        }
        let is_cluster = |program: &String| Path::new(program).ends_with(PG_CTLCLUSTER);
        if programs.iter().any(is_cluster) {
            let libraries: Vec<_> = self
                .wanted
                .installed()?
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            bail!(
                "service {:?} is started by {PG_CTLCLUSTER}, which passes no variables on (add the line LD_PRELOAD = '{}' to \
                 /etc/postgresql/VERSION/CLUSTER/environment)",
                unit.name.as_str(),
                libraries.join(":")
            );
        }
        if self.root.path == Path::new("/") {
            for program in programs {
                if let Some(found) = obstacle::of(OsStr::new(&program), true) {
                    bail!("{found}");
                }
            }
        }
        Ok(())
    }
}

impl Disable {
    fn run(self) -> anyhow::Result<u8> {
        let files = self.root.files();
        let names = match &self.service {
            None => enabled(&files)?.into_iter().map(|(name, _)| name).collect(),
            Some(service) => vec![own_name(&files, &ServiceName::new(service)?)],
        };
        for name in &names {
            drop_in::remove(&files.drop_in_directory(name)?, name)?;
            output::print(&format!("removed the drop-in of {name}\n"))?;
        }
        if names.is_empty() || !self.root.is_live() {
            return Ok(0);
        }
        systemd::reload()?;
        for name in &names {
            restart(name, "it is traced until then")?;
        }
        Ok(0)
    }
}

impl Status {
    fn run(self) -> anyhow::Result<u8> {
        let files = self.root.files();
        let name = own_name(&files, &ServiceName::new(&self.service)?);
        // An instance may be enabled by its template.
        let candidates = std::iter::once(name.clone()).chain(name.template());
        for candidate in candidates {
            let Some(libraries) = drop_in::libraries(&files.drop_in_directory(&candidate)?)? else {
                continue;
            };
            let mut text = format!("{name}: enabled with {}\n", libraries.join(", "));
            if self.root.is_live() {
                for line in states(&name, &libraries)? {
                    text.push_str(&format!("{line}\n"));
                }
            }
            output::print(&text)?;
            return Ok(0);
        }
        // A name that is wrong is an error.
        files.unit(&name, drop_in::FILE)?;
        output::print(&format!("{name}: not enabled\n"))?;
        Ok(NOT_ENABLED)
    }
}

impl List {
    fn run(self) -> anyhow::Result<u8> {
        let files = self.root.files();
        let mut rows = vec![["UNIT", "LIBRARIES"].map(str::to_owned)];
        rows.extend(
            enabled(&files)?
                .into_iter()
                .map(|(name, libraries)| [name.to_string(), libraries.join(", ")]),
        );
        if rows.len() == 1 {
            output::say("no service is enabled (usertrace service enable --malloc UNIT)");
            return Ok(0);
        }
        output::print(&output::table(&rows))?;
        Ok(0)
    }
}

/// The services that are enabled, with their libraries. A drop-in of somebody else's is none.
fn enabled(files: &SystemdFiles) -> anyhow::Result<Vec<(ServiceName, Vec<String>)>> {
    let mut services = Vec::new();
    for name in files.with_drop_in(drop_in::FILE)? {
        match drop_in::libraries(&files.drop_in_directory(&name)?) {
            Ok(Some(libraries)) => services.push((name, libraries)),
            Ok(None) => {}
            Err(error) => output::error(&error),
        }
    }
    Ok(services)
}

/// The service's own name, if this is an alias. A unit that is gone has no other.
fn own_name(files: &SystemdFiles, name: &ServiceName) -> ServiceName {
    files
        .unit(name, drop_in::FILE)
        .map_or_else(|_| name.clone(), |unit| unit.name)
}

/// Says which command makes a change take effect.
fn restart(name: &ServiceName, until_then: &str) -> anyhow::Result<u8> {
    let is_active = systemd::states(name)?.iter().any(|state| state.is_active);
    if is_active {
        let pattern = output::shell_word(&name.pattern()).into_owned();
        output::print(&format!(
            "{name} runs, and {until_then}: systemctl restart {pattern}\n"
        ))?;
    }
    Ok(0)
}

/// Describes the units that run.
fn states(name: &ServiceName, libraries: &[String]) -> anyhow::Result<Vec<String>> {
    let describe = |state: systemd::UnitState| {
        let unit = state.name;
        match (state.is_active, state.main_pid) {
            (false, _) => format!("  {unit}: not running"),
            (true, None) => format!("  {unit}: running, without a main process"),
            (true, Some(pid)) => match systemd::has_libraries(pid, libraries) {
                Some(true) => format!("  {unit}: running, process {pid} has the libraries"),
                Some(false) => {
                    let unit = output::shell_word(&unit);
                    format!(
                        "  {unit}: running, process {pid} has no library: systemctl restart {unit}"
                    )
                }
                None => format!("  {unit}: running, process {pid}, whose libraries only root sees"),
            },
        }
    };
    Ok(systemd::states(name)?.into_iter().map(describe).collect())
}
