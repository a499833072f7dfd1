//! What `--sync` says: which events are of one message.

use std::fmt;
use std::str::FromStr;

use usertrace_sys::printable;

/// Most rules. Each has a place in the key of each pending message.
pub(super) const MAX_RULES: usize = 64;

/// Says which events send and receive a message, and which of their fields tell messages apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRule {
    pub(super) events: Events,
    /// Names of fields or contexts.
    pub(super) keys: Vec<String>,
}

/// The events of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Events {
    /// One event when the message is sent, and another one when it is received.
    Message { send: String, receive: String },
    /// An event that the caller writes before and after a call, and the other host twice meanwhile.
    Call(String),
}

impl SyncRule {
    /// The names of its events.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match &self.events {
            Events::Message { send, receive } => (send, Some(receive)),
            Events::Call(event) => (event, None),
        };
        std::iter::once(first).chain(second).map(|name| &**name)
    }
}

impl fmt::Display for SyncRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.events {
            Events::Message { send, receive } => write!(f, "{send}={receive}")?,
            Events::Call(event) => write!(f, "{event}")?,
        }
        write!(f, ":{}", self.keys.join(","))
    }
}

impl FromStr for SyncRule {
    type Err = String;

    /// Parses `SEND=RECEIVE:KEY,…` or `EVENT:KEY,…`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (events, keys) = text
            .rsplit_once(':')
            .ok_or("it is not SEND=RECEIVE:KEY, with events PROVIDER:NAME")?;
        let keys: Vec<String> = keys.split(',').map(str::to_owned).collect();
        if keys.iter().any(String::is_empty) {
            return Err("the name of a field is missing after the last colon".to_owned());
        }
        let is_twice = |(n, key): (usize, &String)| keys[..n].contains(key);
        if let Some((_, key)) = keys.iter().enumerate().find(|&key| is_twice(key)) {
            return Err(format!("the field \"{}\" is named twice", printable(key)));
        }
        let events = match events.split_once('=') {
            Some((send, receive)) if send == receive => {
                return Err("the events that send and receive are the same; EVENT:KEY is for an event that both hosts write twice in each call".to_owned());
            }
            Some((send, receive)) => Events::Message {
                send: event(send)?,
                receive: event(receive)?,
            },
            None => Events::Call(event(events)?),
        };
        Ok(Self { events, keys })
    }
}

/// Checks the name of an event.
fn event(name: &str) -> Result<String, String> {
    let is_complete = name
        .split_once(':')
        .is_some_and(|(provider, event)| !provider.is_empty() && !event.is_empty());
    if !is_complete {
        let name = printable(name);
        return Err(format!(
            "\"{name}\" is not an event PROVIDER:NAME; the field stands behind another colon"
        ));
    }
    if name.contains(['*', '?', '!']) {
        let name = printable(name);
        return Err(format!("\"{name}\" is a pattern; --sync takes whole names"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed() {
        for text in ["net:send=net:recv:id", "a:b=c:d:address,seq", "rpc:call:id"] {
            let rule: SyncRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        let rule: SyncRule = "rpc:call:id".parse().unwrap();
        assert_eq!(rule.events, Events::Call("rpc:call".into()));
        assert_eq!(rule.keys, ["id"]);
        // Names may have further colons.
        let rule: SyncRule = "a::b:x=c:y:id,n".parse().unwrap();
        assert_eq!(rule.names().collect::<Vec<_>>(), ["a::b:x", "c:y"]);
        assert_eq!(rule.keys, ["id", "n"]);
    }

    #[test]
    fn wrong_rules_name_the_part() {
        for (text, part) in [
            ("", "SEND=RECEIVE:KEY"),
            ("send", "SEND=RECEIVE:KEY"),
            ("net:send=net:recv", "\"net\" is not an event"),
            ("send=recv:id", "\"send\" is not an event"),
            ("net:send=recv:id", "\"recv\" is not an event"),
            ("net:send", "\"net\" is not an event"),
            ("net:send=net:recv:", "the name of a field is missing"),
            ("net:send=net:recv:id,", "the name of a field is missing"),
            ("net:send=net:recv:id,id", "\"id\" is named twice"),
            ("net:send=net:send:id", "are the same"),
            ("net:*=net:recv:id", "\"net:*\" is a pattern"),
            ("=net:recv:id", "\"\" is not an event"),
            ("net:=net:recv:id", "\"net:\" is not an event"),
        ] {
            let error = text.parse::<SyncRule>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
