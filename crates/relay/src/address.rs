//! The address of a relay.

use std::fmt;
use std::str::FromStr;

/// Default port of the control connection.
const CONTROL: u16 = 5342;
/// Default port of the data connection.
const DATA: u16 = 5343;

/// The address of a relay: `tcp://HOST[:PORT[:PORT]]`, with the ports for control and for data. An
/// IPv6 address is in brackets. A slash may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address of the host.
    pub host: String,
    /// Port of the control connection.
    pub control: u16,
    /// Port of the data connection.
    pub data: u16,
}

/// Why a text is not the address of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It has no scheme, or an unknown one.
    #[error("not an address like tcp://HOST or tcp://HOST:CONTROL_PORT:DATA_PORT")]
    Scheme,
    /// There is no host, or none that can be one.
    #[error("no host, as in tcp://HOST (an IPv6 address is in brackets: tcp://[::1])")]
    Host,
    /// Something follows the host and its ports.
    #[error("a relay has no path: only tcp://HOST or tcp://HOST:CONTROL_PORT:DATA_PORT")]
    Path,
    /// A port is not a number from 1 to 65535.
    #[error("a port is not a number from 1 to 65535")]
    Port,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("tcp") {
            return Err(AddressError::Scheme);
        }
        let rest = match rest.split_once('/') {
            Some((rest, "")) => rest,
            Some(_) => return Err(AddressError::Path),
            None => rest,
        };
        let (host, ports) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(AddressError::Host)?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        if host.is_empty() || host.contains(['@', '\0']) || host.contains(char::is_whitespace) {
            return Err(AddressError::Host);
        }
        let mut given = Vec::new();
        if !ports.is_empty() {
            let ports = ports.strip_prefix(':').ok_or(AddressError::Port)?;
            for port in ports.split(':') {
                let port: u16 = port.parse().map_err(|_| AddressError::Port)?;
                given.push(port);
            }
        }
        if given.len() > 2 || given.contains(&0) {
            return Err(AddressError::Port);
        }
        Ok(Self {
            host: host.to_owned(),
            control: given.first().copied().unwrap_or(CONTROL),
            data: given.get(1).copied().unwrap_or(DATA),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = match self.host.contains(':') {
            true => ("[", "]"),
            false => ("", ""),
        };
        write!(f, "tcp://{open}{}{close}", self.host)?;
        match (self.control, self.data) {
            (CONTROL, DATA) => Ok(()),
            (control, DATA) => write!(f, ":{control}"),
            (control, data) => write!(f, ":{control}:{data}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_default_ports() {
        for (text, host, control, data) in [
            ("tcp://relay", "relay", 5342, 5343),
            ("tcp://10.0.0.1:7000", "10.0.0.1", 7000, 5343),
            ("tcp://relay.example:7000:7001", "relay.example", 7000, 7001),
            ("tcp://[fe80::1]", "fe80::1", 5342, 5343),
            ("tcp://[::1]:1:2", "::1", 1, 2),
        ] {
            let address: Address = text.parse().unwrap();
            let expected = Address {
                host: host.into(),
                control,
                data,
            };
            assert_eq!(address, expected);
            assert_eq!(address.to_string(), text);
            let other = format!("TCP{}/", &text[3..]);
            assert_eq!(other.parse(), Ok(expected));
        }
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for (text, error) in [
            ("relay", AddressError::Scheme),
            ("net://relay", AddressError::Scheme),
            ("tcp://", AddressError::Host),
            ("tcp://:5342", AddressError::Host),
            ("tcp://[::1", AddressError::Host),
            ("tcp://a b", AddressError::Host),
            ("tcp://user@a", AddressError::Host),
            ("tcp://::1", AddressError::Host),
            ("tcp4://relay", AddressError::Scheme),
            ("tcp://a/b", AddressError::Path),
            ("tcp://a//", AddressError::Path),
            ("tcp://relay:", AddressError::Port),
            ("tcp://relay:0", AddressError::Port),
            ("tcp://relay:65536", AddressError::Port),
            ("tcp://relay:1:2:3", AddressError::Port),
            ("tcp://[::1]5342", AddressError::Port),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }
}
