//! Names of services, as systemd has them.

use std::fmt;

use anyhow::bail;

const SUFFIX: &str = ".service";
/// The suffixes of other units.
const OTHERS: [&str; 10] = [
    "automount",
    "device",
    "mount",
    "path",
    "scope",
    "slice",
    "socket",
    "swap",
    "target",
    "timer",
];
/// The longest name of a unit, in bytes.
const MAX_LENGTH: usize = 255;

/// The name of a service, with its suffix. It is a valid name of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceName(String);

impl ServiceName {
    /// Checks a name, and adds the suffix if there is none.
    pub(super) fn new(text: &str) -> anyhow::Result<Self> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || ":_.\\-@".contains(c);
        if let Some((_, suffix)) = text.rsplit_once('.')
            && OTHERS.contains(&suffix)
        {
            bail!("{text:?} is a {suffix}, and only services can be traced");
        }
        let name = match text.ends_with(SUFFIX) {
            true => text.to_owned(),
            false => format!("{text}{SUFFIX}"),
        };
        let prefix = name.strip_suffix(SUFFIX).unwrap_or_default();
        let begins_well = !prefix.is_empty() && !prefix.starts_with(['.', '@']);
        if !begins_well || !name.chars().all(is_valid) || name.len() > MAX_LENGTH {
            bail!("{text:?} is no name of a service (like \"nginx\" or \"openvpn@office\")");
        }
        Ok(Self(name))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The template of which this is an instance.
    pub(super) fn template(&self) -> Option<Self> {
        let (prefix, instance) = self.0.strip_suffix(SUFFIX)?.split_once('@')?;
        (!instance.is_empty()).then(|| Self(format!("{prefix}@{SUFFIX}")))
    }

    /// The template of the same name, if this is neither a template nor an instance.
    pub(super) fn namesake_template(&self) -> Option<Self> {
        let prefix = self.0.strip_suffix(SUFFIX)?;
        (!prefix.contains('@')).then(|| Self(format!("{prefix}@{SUFFIX}")))
    }

    /// The pattern that names the units of this service for systemctl: all instances of a template.
    pub(super) fn pattern(&self) -> String {
        self.0.replace("@.service", "@*.service")
    }

    /// The names of directories with drop-ins for this service, the most specific ones first.
    pub(super) fn drop_in_directories(&self) -> Vec<String> {
        let own = std::iter::once(self.clone()).chain(self.template());
        let mut names: Vec<_> = own.map(|name| format!("{name}.d")).collect();
        // `a-b-c.service` also has those of `a-b-.service` and `a-.service`.
        let prefix = self.0.split(['@', '.']).next().unwrap_or_default();
        let dashes = prefix.char_indices().rev().filter(|(_, c)| *c == '-');
        names.extend(
            dashes
                .map(|(at, _)| format!("{}{SUFFIX}.d", &prefix[..=at]))
                .filter(|name| *name != format!("{}.d", self.0)),
        );
        names.push("service.d".to_owned());
        names
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        ServiceName::new(text).unwrap().0
    }

    #[test]
    fn names_get_a_suffix() {
        assert_eq!(name("nginx"), "nginx.service");
        assert_eq!(name("nginx.service"), "nginx.service");
        assert_eq!(name("postgresql@17-main"), "postgresql@17-main.service");
        assert_eq!(
            name("dbus-org.freedesktop.resolve1"),
            "dbus-org.freedesktop.resolve1.service"
        );
    }

    #[test]
    fn other_names_are_refused() {
        for text in [
            "", ".service", "../x", "a/b", "a b", "a\nb", "@x", "é", "..",
        ] {
            let error = ServiceName::new(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        assert!(ServiceName::new(&"a".repeat(247)).is_ok());
        assert!(ServiceName::new(&"a".repeat(248)).is_err());
        let error = ServiceName::new("ssh.socket").unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"ssh.socket\" is a socket, and only services can be traced"
        );
    }

    #[test]
    fn drop_ins_are_those_of_templates_and_prefixes_too() {
        let directories = |text| ServiceName::new(text).unwrap().drop_in_directories();
        assert_eq!(directories("nginx"), ["nginx.service.d", "service.d"]);
        assert_eq!(
            directories("a-b@c-d"),
            [
                "a-b@c-d.service.d",
                "a-b@.service.d",
                "a-.service.d",
                "service.d"
            ]
        );
    }
}
