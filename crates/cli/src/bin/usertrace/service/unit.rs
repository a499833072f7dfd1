//! A service's unit: its files, and what they set.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use usertrace_os::files;

use super::name::ServiceName;
use super::unit_file::{service_settings, words};

/// Where systemd looks for units, the ones that win first.
const DIRECTORIES: [&str; 9] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// Where an administrator's drop-ins are.
const ADMINISTRATOR: &str = "etc/systemd/system";
/// The variable of the dynamic linker.
const LD_PRELOAD: &str = "LD_PRELOAD";
/// A longer chain of aliases is a loop.
const MAX_ALIASES: usize = 8;

/// A root directory with the files of systemd.
#[derive(Clone, Debug)]
pub(super) struct SystemdFiles {
    root: PathBuf,
}

/// A setting, and the file that has it.
#[derive(Clone, Debug)]
struct Setting {
    name: String,
    value: String,
    file: PathBuf,
}

/// What the files of a service set.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: ServiceName,
    settings: Vec<Setting>,
}

impl SystemdFiles {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Finds a service by its name or an alias, and reads what its files set, without the drop-in
    /// `left_out`.
    pub(super) fn unit(&self, name: &ServiceName, left_out: &str) -> anyhow::Result<Unit> {
        let (name, file) = self.find(name)?;
        let mut settings = self.read(&file)?;
        for file in self.drop_ins(&name, left_out)? {
            settings.extend(self.read(&file)?);
        }
        Ok(Unit { name, settings })
    }

    /// Whether there is a file of that name.
    pub(super) fn has(&self, name: &ServiceName) -> bool {
        self.find(name).is_ok()
    }

    /// The directory for an administrator's drop-ins to a service.
    ///
    /// # Errors
    ///
    /// There is no root directory, or a link in it leads out of it. An image could so have files of
    /// this machine changed.
    pub(super) fn drop_in_directory(&self, name: &ServiceName) -> anyhow::Result<PathBuf> {
        let directory = self.root.join(ADMINISTRATOR).join(format!("{name}.d"));
        let root = fs::canonicalize(&self.root)
            .with_context(|| format!("cannot read {}", self.root.display()))?;
        let existing = directory
            .ancestors()
            .find_map(|path| fs::canonicalize(path).ok());
        if let Some(place) = existing.filter(|place| !place.starts_with(&root)) {
            bail!(
                "{} is at {}, which is not below {}",
                directory.display(),
                place.display(),
                self.root.display()
            );
        }
        Ok(directory)
    }

    /// The services for which an administrator has a drop-in of this name.
    pub(super) fn with_drop_in(&self, drop_in: &str) -> anyhow::Result<Vec<ServiceName>> {
        let directory = self.root.join(ADMINISTRATOR);
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("cannot read {}", directory.display()))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", directory.display()))?;
            let entry = entry.file_name();
            let Some(name) = entry.to_str().and_then(|name| name.strip_suffix(".d")) else {
                continue;
            };
            let name = name
                .ends_with(".service")
                .then(|| ServiceName::new(name).ok());
            if let Some(name) = name.flatten()
                && self
                    .drop_in_directory(&name)?
                    .join(drop_in)
                    .symlink_metadata()
                    .is_ok()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The service's own name, and its file.
    fn find(&self, wanted: &ServiceName) -> anyhow::Result<(ServiceName, PathBuf)> {
        let mut name = wanted.clone();
        'aliases: for _ in 0..MAX_ALIASES {
            for candidate in std::iter::once(name.clone()).chain(name.template()) {
                for directory in DIRECTORIES {
                    let file = self.root.join(directory).join(candidate.as_str());
                    let Ok(metadata) = file.symlink_metadata() else {
                        continue;
                    };
                    let target = fs::read_link(&file).ok();
                    let is_null = target.as_deref() == Some(Path::new("/dev/null"));
                    if is_null || (metadata.is_file() && metadata.len() == 0) {
                        bail!(
                            "service {:?} is masked by {} (systemctl unmask {name})",
                            wanted.as_str(),
                            file.display()
                        );
                    }
                    let target = target.as_deref().and_then(Path::file_name);
                    let target = target.and_then(|target| ServiceName::new(target.to_str()?).ok());
                    match target {
                        // A link to a template of the same name, or to a file elsewhere.
                        Some(target)
                            if target != candidate && Some(&target) != name.template().as_ref() =>
                        {
                            name = target;
                            continue 'aliases;
                        }
                        _ => return Ok((name, file)),
                    }
                }
            }
            bail!(
                "there is no service {:?} (systemctl list-unit-files --type=service lists them)",
                name.as_str()
            );
        }
        bail!(
            "the aliases of service {:?} lead to each other",
            wanted.as_str()
        )
    }

    /// The drop-ins of a service, in the order in which systemd applies them.
    fn drop_ins(&self, name: &ServiceName, left_out: &str) -> anyhow::Result<Vec<PathBuf>> {
        let mut found: BTreeMap<_, PathBuf> = BTreeMap::new();
        for specific in name.drop_in_directories() {
            for directory in DIRECTORIES {
                let directory = self.root.join(directory).join(&specific);
                let entries = match fs::read_dir(&directory) {
                    Ok(entries) => entries,
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("cannot read {}", directory.display()));
                    }
                };
                for entry in entries {
                    let entry =
                        entry.with_context(|| format!("cannot read {}", directory.display()))?;
                    let name = entry.file_name();
                    let is_drop_in = name.as_encoded_bytes().ends_with(b".conf");
                    if is_drop_in && name != left_out {
                        // The same name elsewhere replaces it.
                        found.entry(name).or_insert_with(|| entry.path());
                    }
                }
            }
        }
        let is_masked = |file: &PathBuf| {
            fs::read_link(file).is_ok_and(|target| target == Path::new("/dev/null"))
        };
        Ok(found
            .into_values()
            .filter(|file| !is_masked(file))
            .collect())
    }

    fn read(&self, file: &Path) -> anyhow::Result<Vec<Setting>> {
        // A link leads to another place below the root.
        let target = fs::read_link(file)
            .ok()
            .filter(|target| target.is_absolute());
        let target = target.map_or_else(|| file.to_owned(), |target| self.below(&target));
        let text = read(&target).with_context(|| format!("cannot read {}", target.display()))?;
        let text = String::from_utf8_lossy(&text);
        let setting = |(name, value)| Setting {
            name,
            value,
            file: file.to_owned(),
        };
        Ok(service_settings(&text).into_iter().map(setting).collect())
    }

    /// A path of the machine, below the root directory.
    pub(super) fn below(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Fails if a unit sets or removes the variable with the libraries to preload.
    pub(super) fn check_preload(&self, unit: &Unit) -> anyhow::Result<()> {
        let assigns = |word: &str| {
            word.split_once('=')
                .is_some_and(|(name, _)| name == LD_PRELOAD)
        };
        let refuse = |how: String| {
            bail!(
                "service {:?} {how}, which would hide this one's libraries (remove it there first)",
                unit.name.as_str()
            )
        };
        for setting in unit.last_ones("Environment") {
            if let Some(word) = words(&setting.value).into_iter().find(|word| assigns(word)) {
                return refuse(format!("sets {word} in {}", setting.file.display()));
            }
        }
        for setting in unit.last_ones("UnsetEnvironment") {
            if words(&setting.value)
                .iter()
                .any(|word| word == LD_PRELOAD || assigns(word))
            {
                return refuse(format!(
                    "removes {LD_PRELOAD} in {}",
                    setting.file.display()
                ));
            }
        }
        for setting in unit.last_ones("EnvironmentFile") {
            let file = self.below(Path::new(setting.value.trim_start_matches('-')));
            // Patterns are rare, and a file that is not there sets nothing.
            let Ok(text) = read(&file) else { continue };
            let text = String::from_utf8_lossy(&text);
            if let Some(line) = text.lines().map(str::trim).find(|line| assigns(line)) {
                return refuse(format!("sets {line} in {}", file.display()));
            }
        }
        Ok(())
    }
}

impl Unit {
    /// The values of a setting in order, after the last empty one, which removes those before.
    fn last_ones<'a>(&'a self, name: &str) -> Vec<&'a Setting> {
        let mut values = Vec::new();
        for setting in self.settings.iter().filter(|setting| setting.name == name) {
            match setting.value.is_empty() {
                true => values.clear(),
                false => values.push(setting),
            }
        }
        values
    }

    /// All assignments of system calls that are allowed or refused.
    pub(super) fn system_call_filter(&self) -> Vec<&str> {
        let values = self.last_ones("SystemCallFilter");
        values
            .iter()
            .map(|setting| setting.value.as_str())
            .collect()
    }

    /// Whether the service sees another root directory, or file systems in place of parts of it.
    pub(super) fn has_other_root(&self) -> bool {
        let names = ["RootDirectory", "RootImage", "TemporaryFileSystem"];
        names.iter().any(|name| !self.last_ones(name).is_empty())
    }

    /// Whether the service may execute and map only certain files.
    pub(super) fn restricts_execution(&self) -> bool {
        !self.last_ones("NoExecPaths").is_empty()
    }

    /// The programs of the service.
    pub(super) fn programs(&self) -> Vec<String> {
        let values = self.last_ones("ExecStart");
        let commands = values
            .iter()
            .filter_map(|setting| words(&setting.value).into_iter().next());
        commands
            .map(|program| {
                program
                    .trim_start_matches(['@', '-', ':', '+', '!', '|'])
                    .to_owned()
            })
            .collect()
    }
}

/// Reads a regular file. An image may have anything in its place.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    files::open(OpenOptions::new().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SHIPPED: &str = "usr/lib/systemd/system";

    struct Root(tempfile::TempDir);

    impl Root {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn link(&self, path: &str, target: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
            self
        }

        fn files(&self) -> SystemdFiles {
            SystemdFiles::new(self.0.path().to_owned())
        }

        fn unit(&self, name: &str) -> anyhow::Result<Unit> {
            let unit = self
                .files()
                .unit(&ServiceName::new(name)?, "usertrace.conf")?;
            self.files().check_preload(&unit)?;
            Ok(unit)
        }

        fn error(&self, name: &str) -> String {
            self.unit(name).unwrap_err().to_string()
        }
    }

    #[test]
    fn services_are_found_by_aliases_and_templates() {
        let root = Root::new();
        let unit = "[Service]\nExecStart=-/usr/bin/a --b\n";
        root.write(&format!("{SHIPPED}/a.service"), unit)
            .write(&format!("{SHIPPED}/t@.service"), unit)
            .link(
                "etc/systemd/system/b.service",
                "/usr/lib/systemd/system/a.service",
            )
            .link("etc/systemd/system/loop.service", "pool.service")
            .link("etc/systemd/system/pool.service", "loop.service");
        for (name, own) in [
            ("a", "a.service"),
            ("b", "a.service"),
            ("t@1", "t@1.service"),
            ("t@", "t@.service"),
        ] {
            let found = root.unit(name).unwrap();
            assert_eq!(found.name.as_str(), own);
            assert_eq!(found.programs(), ["/usr/bin/a"]);
        }
        assert!(
            root.error("c")
                .contains("there is no service \"c.service\"")
        );
        assert!(root.error("loop").contains("lead to each other"));
    }

    /// An image has no files of this machine changed, by a link at any level.
    #[test]
    fn drop_ins_stay_below_the_root() {
        let name = ServiceName::new("a").unwrap();
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().to_str().unwrap();
        let links = [
            "etc",
            "etc/systemd/system",
            "etc/systemd/system/a.service.d",
        ];
        for link in links {
            let root = Root::new();
            assert!(root.files().drop_in_directory(&name).is_ok(), "{link}");
            root.link(link, target);
            let error = root.files().drop_in_directory(&name).unwrap_err();
            assert!(error.to_string().contains("which is not below"), "{error}");
        }
        let root = Root::new();
        root.write("usr/systemd/x", "").link("etc", "usr");
        assert!(root.files().drop_in_directory(&name).is_ok());
        let none = SystemdFiles::new(outside.path().join("none"));
        assert!(none.drop_in_directory(&name).is_err());
    }

    #[test]
    fn masked_services_are_refused() {
        let root = Root::new();
        root.write(&format!("{SHIPPED}/a.service"), "[Service]\n")
            .link("etc/systemd/system/a.service", "/dev/null")
            .write("run/systemd/system/empty.service", "");
        assert!(root.error("a").contains("is masked by"));
        assert!(root.error("empty").contains("is masked by"));
    }

    #[test]
    fn a_service_with_a_preload_of_its_own_is_refused() {
        let root = Root::new();
        let unit = |name: &str, text: &str| {
            root.write(
                &format!("{SHIPPED}/{name}.service"),
                &format!("[Service]\n{text}\n"),
            );
        };
        unit("sets", "Environment=A=1 \"LD_PRELOAD=/lib/x.so\"");
        unit("removes", "UnsetEnvironment=LD_PRELOAD");
        unit("file", "EnvironmentFile=-/etc/default/file");
        unit("reset", "Environment=LD_PRELOAD=/lib/x.so\nEnvironment=");
        unit("other", "Environment=XLD_PRELOAD=1 LD_PRELOADS=2");
        root.write("etc/default/file", "# comment\nLD_PRELOAD=/lib/y.so\n");
        assert!(root.error("sets").contains("sets LD_PRELOAD=/lib/x.so in"));
        assert!(root.error("removes").contains("removes LD_PRELOAD in"));
        assert!(root.error("file").contains("/etc/default/file"));
        assert!(root.unit("reset").is_ok() && root.unit("other").is_ok());
        // In a drop-in, also of the prefix; but not in this command's own.
        root.write(
            "etc/systemd/system/other.service.d/usertrace.conf",
            "[Service]\nEnvironment=LD_PRELOAD=/l\n",
        );
        assert!(root.unit("other").is_ok());
        root.write(
            "run/systemd/system/other.service.d/z.conf",
            "[Service]\nEnvironment=LD_PRELOAD=/z\n",
        );
        assert!(root.error("other").contains("sets LD_PRELOAD=/z in"));
        // A file of the same name in a directory that comes first replaces it.
        root.link("etc/systemd/system/other.service.d/z.conf", "/dev/null");
        assert!(root.unit("other").is_ok());
    }

    #[test]
    fn filters_are_read_in_order() {
        let root = Root::new();
        root.write(
            &format!("{SHIPPED}/a.service"),
            "[Service]\nSystemCallFilter=read\nSystemCallFilter=\nSystemCallFilter=@system-service\nRootDirectory=/srv\nNoExecPaths=/\n",
        )
        .write("etc/systemd/system/a.service.d/b.conf", "[Service]\nSystemCallFilter=~@resources\n");
        let unit = root.unit("a").unwrap();
        assert_eq!(
            unit.system_call_filter(),
            ["@system-service", "~@resources"]
        );
        assert!(unit.has_other_root() && unit.restricts_execution());
    }
}
