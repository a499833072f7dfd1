//! The packets on the socket: text of limited length.
//!
//! Each packet starts with the version, `1`, and a space. The program answers each request with one
//! packet, in order:
//!
//! | request | answer |
//! |---|---|
//! | `list FROM` | `ok GENERATION`, and a line for each event from number FROM on: `1` if it is enabled, else `0`, and its description. If GENERATION changes, so do events and numbers |
//! | `probes FROM` | `ok`, and lines `probe NAME`, and `connection EVENTS PROBE active` or `inactive` |
//! | `connect EVENTS PROBE`, `disconnect` …, `activate` …, `deactivate` … | `ok COUNT`: the number of matching events now |
//! | `load PATH` | `ok COUNT`: the number of the library's probes |
//! | `unload PATH` | `ok COUNT`: likewise, for a library that `load` has loaded |
//! | `filter` | `ok`, and the patterns of events that it writes, if its trace is the fallback's |
//! | `filter set WORDS`, `filter add WORDS` | `ok`: it writes these events, or also these. `WORDS` have the syntax of a trace's file `filter` |
//! | `flush`, `initialise`, `finalise` | `ok` |
//! | `watch` | `ok kernel`, `ok none`, `ok null`, or `ok fast DIRECTORY`: the back end. Reports follow from then on |
//!
//! or with `error TEXT`. A list ends with the line `next NUMBER` if there is more of it, or else
//! with `end`. A report is `report` and one of:
//!
//! - `full SLOT CHANNEL LOST`: a full ring dropped an event; LOST is the total so far. At most ten
//!   times a second.
//! - `appeared` or `disappeared`, and a line for each event: `PROVIDER:NAME`
//! - `ending`: the program is about to end
//! - `closing`: the program is about to close the channel
//! - `missed COUNT`: this number of reports is missing here, because the controller read too slowly

/// Maximum length of a request in bytes.
pub const REQUEST_MAX: usize = 4608;

/// Maximum length of an answer or a report in bytes. Any line fits.
pub const ANSWER_MAX: usize = 16 << 10;

/// The start of each packet: the version and a space.
pub const VERSION: &str = "1 ";

/// The name of a process's socket, between the NUL and the process id.
pub const NAME: &str = "usertrace/control/";

/// A parsed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// List events, from this number on.
    List(usize),
    /// List probes and connections, from this number on.
    Probes(usize),
    /// Make events, by a pattern, call a probe.
    Connect(&'a str, &'a str),
    /// Remove a connection.
    Disconnect(&'a str, &'a str),
    /// Make a connection call its probe again.
    Activate(&'a str, &'a str),
    /// Keep a connection, but do not call its probe.
    Deactivate(&'a str, &'a str),
    /// Load a library of probes, by its absolute path.
    Load(&'a str),
    /// Unload a library that `Load` has loaded.
    Unload(&'a str),
    /// Show the patterns of events that the program writes.
    Filter,
    /// Write these events only.
    SetFilter(&'a str),
    /// Write these events as well.
    AddFilter(&'a str),
    /// Make everything visible to readers that was written so far.
    Flush,
    /// Resume writing events.
    Initialise,
    /// Stop writing events until `Initialise`.
    Finalise,
    /// Send reports.
    Watch,
}

impl<'a> Request<'a> {
    /// Parses a packet.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn parse(packet: &'a [u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(packet).map_err(|_| "the request is no text")?;
        let text = text.strip_prefix(VERSION).ok_or("not version 1")?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = || rest.parse().map_err(|_| "this takes a number");
        let two = || match rest.split_once(' ') {
            Some((events, probe)) if !probe.contains(' ') => Ok((events, probe)),
            _ => Err("this takes events and a probe"),
        };
        let path = || match rest.starts_with('/') && !rest.contains('\0') {
            true => Ok(rest),
            false => Err("this takes an absolute path"),
        };
        let alone = |request| match rest {
            "" => Ok(request),
            _ => Err("this takes nothing"),
        };
        match word {
            "list" => Ok(Self::List(number()?)),
            "probes" => Ok(Self::Probes(number()?)),
            "connect" => two().map(|(events, probe)| Self::Connect(events, probe)),
            "disconnect" => two().map(|(events, probe)| Self::Disconnect(events, probe)),
            "activate" => two().map(|(events, probe)| Self::Activate(events, probe)),
            "deactivate" => two().map(|(events, probe)| Self::Deactivate(events, probe)),
            "load" => path().map(Self::Load),
            "unload" => path().map(Self::Unload),
            "filter" => match rest.split_once(' ') {
                None if rest.is_empty() => Ok(Self::Filter),
                Some(("set", words)) => Ok(Self::SetFilter(words)),
                Some(("add", words)) => Ok(Self::AddFilter(words)),
                _ => Err("this takes nothing, or set or add and patterns"),
            },
            "flush" => alone(Self::Flush),
            "initialise" => alone(Self::Initialise),
            "finalise" => alone(Self::Finalise),
            "watch" => alone(Self::Watch),
            _ => Err("there is no such request"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_are_parsed() {
        for (text, request) in [
            ("1 list 10", Ok(Request::List(10))),
            ("1 connect a:* p", Ok(Request::Connect("a:*", "p"))),
            ("1 load /a b", Ok(Request::Load("/a b"))),
            ("1 flush", Ok(Request::Flush)),
            ("1 filter", Ok(Request::Filter)),
            ("1 filter set 0 a:*", Ok(Request::SetFilter("0 a:*"))),
            ("1 filter add !b", Ok(Request::AddFilter("!b"))),
            (
                "1 filter a:*",
                Err("this takes nothing, or set or add and patterns"),
            ),
            ("1 flush now", Err("this takes nothing")),
            ("1 load a", Err("this takes an absolute path")),
            ("1 load /a\0b", Err("this takes an absolute path")),
            ("1 unload /a b", Ok(Request::Unload("/a b"))),
            ("1 unload a", Err("this takes an absolute path")),
            ("1 connect a", Err("this takes events and a probe")),
            ("1 activate a b c", Err("this takes events and a probe")),
            ("1 list", Err("this takes a number")),
            ("1 list -1", Err("this takes a number")),
            ("2 list 0", Err("not version 1")),
            ("", Err("not version 1")),
            ("1 ", Err("there is no such request")),
        ] {
            assert_eq!(Request::parse(text.as_bytes()), request, "{text}");
        }
    }

    proptest! {
        #[test]
        fn requests_may_be_anything(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
        }
    }
}
