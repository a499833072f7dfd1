//! The kernel's lockdown, and what it demands of a crash kernel.

use std::fmt;
use std::fs;
use std::path::Path;

/// How far the kernel is locked down (kernel_lockdown(7)), often by Secure Boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lockdown {
    /// Not at all.
    None,
    /// Nobody changes the running kernel.
    Integrity,
    /// Nor reads secrets from it.
    Confidentiality,
}

impl fmt::Display for Lockdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Integrity => "integrity",
            Self::Confidentiality => "confidentiality",
        })
    }
}

impl Lockdown {
    /// Reads it from `securityfs`. Kernels without lockdown have no such file.
    pub(crate) fn of(system: &Path) -> Self {
        let path = system.join("sys/kernel/security/lockdown");
        fs::read_to_string(path).map_or(Self::None, |text| Self::parse(&text))
    }

    /// The file lists all levels, with the current one in brackets.
    fn parse(text: &str) -> Self {
        let current = text.split_whitespace().find_map(|word| {
            let word = word.strip_prefix('[')?;
            word.strip_suffix(']')
        });
        match current {
            Some("integrity") => Self::Integrity,
            Some("confidentiality") => Self::Confidentiality,
            _ => Self::None,
        }
    }
}

/// A rule by which the kernel refuses crash kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KexecRule {
    /// The demand, and its reason.
    pub(crate) what: String,
    /// How to load one all the same.
    pub(crate) remedy: &'static str,
}

/// Finds the rule by which this kernel refuses a crash kernel that others would take.
pub(crate) fn kexec_rule(system: &Path) -> Option<KexecRule> {
    let is_set = |file: &str| {
        let text = fs::read_to_string(system.join("proc/sys/kernel").join(file));
        text.is_ok_and(|text| text.trim() == "1")
    };
    if is_set("kexec_load_disabled") {
        return Some(KexecRule {
            what: "none can be until a restart (kernel.kexec_load_disabled is 1)".to_owned(),
            remedy: "set kernel.kexec_load_disabled only after the crash kernel is loaded (see \
                     /etc/sysctl.d), and restart",
        });
    }
    let why = match Lockdown::of(system) {
        Lockdown::None if wants_signature(system) => "CONFIG_KEXEC_SIG_FORCE".to_owned(),
        Lockdown::None => return None,
        level => format!("lockdown: {level}"),
    };
    Some(KexecRule {
        what: format!("only a signed one can be ({why})"),
        remedy: "as root: kexec -p -s, with an image signed by a key that the kernel trusts; \
                 kdump-tools: KDUMP_KEXEC_ARGS=-s in /etc/default/kdump-tools (docs/how-to/kernel-package.md)",
    })
}

/// Whether the running kernel was built to refuse unsigned images in any case.
fn wants_signature(system: &Path) -> bool {
    let Ok(release) = fs::read_to_string(system.join("proc/sys/kernel/osrelease")) else {
        return false;
    };
    let config = system.join(format!("boot/config-{}", release.trim()));
    let config = fs::read_to_string(config).unwrap_or_default();
    config
        .lines()
        .any(|line| line == "CONFIG_KEXEC_SIG_FORCE=y")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root directory with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const LOCKDOWN: &str = "sys/kernel/security/lockdown";
    const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "7.3.4-ltt\n");

    #[test]
    fn level_is_the_one_in_brackets() {
        for (text, level) in [
            ("[none] integrity confidentiality\n", Lockdown::None),
            ("none [integrity] confidentiality\n", Lockdown::Integrity),
            (
                "none integrity [confidentiality]\n",
                Lockdown::Confidentiality,
            ),
            ("", Lockdown::None),
            ("[", Lockdown::None),
        ] {
            let root = system(&[(LOCKDOWN, text)]);
            assert_eq!(Lockdown::of(root.path()), level, "{text:?}");
        }
        assert_eq!(Lockdown::of(Path::new("/nowhere")), Lockdown::None);
    }

    #[test]
    fn rule_is_named() {
        let what = |files: &[(&str, &str)]| {
            let root = system(files);
            kexec_rule(root.path()).map_or_else(String::new, |rule| rule.what)
        };
        assert_eq!(what(&[]), "");
        assert_eq!(
            what(&[(LOCKDOWN, "[none] integrity confidentiality\n")]),
            ""
        );
        let integrity = (LOCKDOWN, "none [integrity] confidentiality\n");
        assert!(what(&[integrity]).contains("lockdown: integrity"));
        // It stops signed ones, too, so it comes first.
        let disabled = ("proc/sys/kernel/kexec_load_disabled", "1\n");
        assert!(what(&[integrity, disabled]).contains("kexec_load_disabled"));
        let allowed = ("proc/sys/kernel/kexec_load_disabled", "0\n");
        assert_eq!(what(&[allowed]), "");
        let config = "boot/config-7.3.4-ltt";
        let forced = what(&[RELEASE, (config, "CONFIG_KEXEC_SIG_FORCE=y\n")]);
        assert!(forced.contains("CONFIG_KEXEC_SIG_FORCE"));
        let not = (config, "# CONFIG_KEXEC_SIG_FORCE is not set\n");
        assert_eq!(what(&[RELEASE, not]), "");
        // That of another kernel says nothing.
        let other = ("boot/config-6.12", "CONFIG_KEXEC_SIG_FORCE=y\n");
        assert_eq!(what(&[RELEASE, other]), "");
    }
}
