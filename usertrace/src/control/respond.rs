//! Serves the requests of controllers.

use std::ffi::CString;
use std::fmt::{self, Display};
use std::sync::atomic::Ordering;

use syscalls::Errno;
use usertrace_control::protocol::{REQUEST_MAX, Request, VERSION};
use usertrace_control::{Text, error, socket};
#[cfg(feature = "fallback")]
use usertrace_sys::filter::{Filter, RuleError};

use super::state::{Control, Controller, ServerBuffers};
use crate::probe::{self, Item};
#[cfg(feature = "fallback")]
use crate::runtime::RulesError;
use crate::runtime::{self, Status, registry};

/// The result of serving a controller's next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    One,
    /// There is no request, or it has to wait.
    Nothing,
    /// The controller is gone, or does not read its answers.
    Gone,
}

/// Serves one request, if there is one.
pub(super) fn serve_one(
    control: &Control,
    controller: &Controller,
    socket: i32,
    buffers: &mut ServerBuffers,
    can_load: bool,
) -> Served {
    // A request that cannot be served here stays in the socket.
    match socket::receive(socket, &mut buffers.request, libc::MSG_PEEK) {
        Err(Errno::EAGAIN) => return Served::Nothing,
        Ok(0) | Err(_) => return Served::Gone,
        Ok(len) => {
            let packet = &buffers.request[..len.min(REQUEST_MAX)];
            if matches!(
                Request::parse(packet),
                Ok(Request::Load(_) | Request::Unload(_))
            ) {
                if socket::is_peer_closed(socket) {
                    // The controller has closed its side: it no longer waits.
                    return Served::Gone;
                }
                if !can_load {
                    return Served::Nothing;
                }
            }
        }
    }
    let Ok(len) = socket::receive(socket, &mut buffers.request, 0) else {
        return Served::Gone;
    };
    let request = match buffers.request.get(..len) {
        Some(packet) => Request::parse(packet),
        None => Err("the request is too long"),
    };
    let done = match request {
        #[cfg(feature = "fallback")]
        Ok(request @ (Request::Filter | Request::SetFilter(_) | Request::AddFilter(_))) => {
            filter(request, &mut buffers.filter, &mut buffers.answer)
        }
        Ok(request) => answer(request, &mut buffers.answer),
        Err(error) => Err(Failure::Text(error)),
    };
    let packet = match done {
        Ok(len) => &buffers.answer[..len],
        Err(failure) => error(&mut buffers.answer, &failure),
    };
    let sent = if request == Ok(Request::Watch) {
        watch(control, controller, socket, packet)
    } else {
        socket::send(socket, packet)
    };
    match sent {
        Ok(()) => Served::One,
        Err(_) => Served::Gone,
    }
}

/// Answers a request for reports. No report is sent before the answer, and none is missed after it.
fn watch(
    control: &Control,
    controller: &Controller,
    socket: i32,
    packet: &[u8],
) -> Result<(), Errno> {
    if controller.watches.load(Ordering::Relaxed) == 0 {
        control.watchers.fetch_add(1, Ordering::Relaxed);
    }
    // From now on there is a watcher, so a reporting thread waits for this lock.
    let _held = registry::hold();
    controller.watches.store(1, Ordering::Relaxed);
    socket::send(socket, packet)
}

/// Why a request failed.
enum Failure {
    Text(&'static str),
    Probe(probe::Error),
    Load(probe::LoadError),
    Unload(probe::UnloadError),
    Buffers(Status),
    Errno(Errno),
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Probe(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Unload(error) => error.fmt(f),
            Self::Buffers(status) => write!(f, "this process has no buffers: {status}"),
            Self::Errno(errno) => errno.fmt(f),
        }
    }
}

impl From<fmt::Error> for Failure {
    fn from(_: fmt::Error) -> Self {
        Self::Text("the answer is too long")
    }
}

/// Executes a request, and returns the length of the answer.
fn answer(request: Request<'_>, room: &mut [u8]) -> Result<usize, Failure> {
    let count = match request {
        Request::List(from) => return list(from, room),
        Request::Probes(from) => return probes(from, room),
        Request::Watch => return output(room),
        Request::Flush | Request::Initialise | Request::Finalise => {
            buffers(request)?;
            return put_answer(room, format_args!("ok"));
        }
        Request::Filter | Request::SetFilter(_) | Request::AddFilter(_) => {
            return Err(Failure::Text(NO_FALLBACK));
        }
        Request::Load(path) => {
            // SAFETY: `accept` accepts only controllers that may run any code in this process.
            Ok(unsafe { probe::load(&name(path)?) }.map_err(Failure::Load)?)
        }
        Request::Unload(path) => {
            // SAFETY: as for `load`; and no thread serves this request inside a probe.
            Ok(unsafe { probe::unload(&name(path)?) }.map_err(Failure::Unload)?)
        }
        Request::Connect(events, name) => probe::connect(events, name),
        Request::Disconnect(events, name) => probe::disconnect(events, name),
        Request::Activate(events, name) => probe::activate(events, name),
        Request::Deactivate(events, name) => probe::deactivate(events, name),
    };
    let count = count.map_err(Failure::Probe)?;
    put_answer(room, format_args!("ok {count}"))
}

fn name(path: &str) -> Result<CString, Failure> {
    CString::new(path).map_err(|_| Failure::Text("no path"))
}

fn put_answer(room: &mut [u8], what: fmt::Arguments<'_>) -> Result<usize, Failure> {
    let mut text = Text::new(room);
    text.push(format_args!("{VERSION}{what}"))?;
    Ok(text.len())
}

/// Answers with the back end, and the directory of its traces.
fn output(room: &mut [u8]) -> Result<usize, Failure> {
    match runtime::output() {
        Some(Some(to)) => put_answer(room, format_args!("ok fast {}", to.display())),
        Some(None) => put_answer(room, format_args!("ok null")),
        None if runtime::current::is_attached() => put_answer(room, format_args!("ok kernel")),
        None => put_answer(room, format_args!("ok none")),
    }
}

const NO_FALLBACK: &str =
    "its events are not kept by the fallback; traces in the kernel have filters of their own";

/// Answers with the rules of this process, or changes them.
#[cfg(feature = "fallback")]
fn filter(request: Request<'_>, filter: &mut Filter, room: &mut [u8]) -> Result<usize, Failure> {
    let set = match request {
        Request::SetFilter(words) => runtime::set_events(filter, words, false),
        Request::AddFilter(words) => runtime::set_events(filter, words, true),
        _ => {
            let mut text = Text::new(room);
            let mut pushed = text.push(format_args!("{VERSION}ok"));
            let mut separator = " ";
            let found = runtime::events(filter, |refuses, pattern, condition| {
                let not = if refuses { "!" } else { "" };
                let pattern = std::str::from_utf8(pattern).unwrap_or_default();
                let mut push = |what: fmt::Arguments<'_>| {
                    pushed = pushed.and_then(|()| text.push(what));
                };
                push(format_args!("{separator}{not}{pattern}"));
                separator = " ";
                for piece in condition {
                    // A condition ends with its line.
                    let before = match std::mem::replace(&mut separator, "\n") {
                        " " => " if ",
                        _ => "",
                    };
                    // Pieces end with a character.
                    push(format_args!(
                        "{before}{}",
                        std::str::from_utf8(piece).unwrap_or_default()
                    ));
                }
            });
            found.ok_or(Failure::Text(NO_FALLBACK))?;
            pushed?;
            return Ok(text.len());
        }
    };
    match set {
        Ok(()) => put_answer(room, format_args!("ok")),
        Err(RulesError::NoFallback) => Err(Failure::Text(NO_FALLBACK)),
        Err(RulesError::Rule(RuleError::Condition(_) | RuleError::Unprintable)) => {
            Err(Failure::Text("a condition is no expression, or too long"))
        }
        Err(RulesError::Rule(RuleError::Pattern | RuleError::Full)) => Err(Failure::Text(
            "one of these is no pattern of events, or there is no room for it",
        )),
    }
}

fn buffers(request: Request<'_>) -> Result<(), Failure> {
    let done = match request {
        Request::Flush => runtime::flush(),
        Request::Finalise => runtime::pause(),
        _ => match runtime::resume() {
            Status::Attached => Ok(()),
            status => return Err(Failure::Buffers(status)),
        },
    };
    match done {
        Err(Errno::ENXIO) => Err(Failure::Buffers(runtime::status())),
        done => done.map_err(Failure::Errno),
    }
}

/// Bytes reserved for the last line of a list.
const LAST: usize = 32;

/// Answers with the lines from number `from` on, as many as fit. The last line gives the number to
/// continue with, or says that the list ends.
fn lines(
    room: &mut [u8],
    from: usize,
    head: fmt::Arguments<'_>,
    each: impl FnOnce(&mut dyn FnMut(fmt::Arguments<'_>)),
) -> Result<usize, Failure> {
    let front = room.len() - LAST;
    let mut text = Text::new(&mut room[..front]);
    text.push(format_args!("{VERSION}ok{head}"))?;
    let (mut at, mut next) = (0usize, None);
    each(&mut |line| {
        if at >= from && next.is_none() && text.push(format_args!("\n{line}")).is_err() {
            next = Some(at);
        }
        at += 1;
    });
    let len = text.len();
    let mut text = Text::after(room, len);
    match next {
        Some(next) => text.push(format_args!("\nnext {next}"))?,
        None => text.push(format_args!("\nend"))?,
    }
    Ok(text.len())
}

fn list(from: usize, room: &mut [u8]) -> Result<usize, Failure> {
    let held = registry::hold().ok_or(Failure::Probe(probe::Error::Busy))?;
    let generation = registry::generation();
    lines(room, from, format_args!(" {generation}"), |push| {
        for callsite in registry::callsites(&held) {
            let enabled = u8::from(callsite.is_enabled());
            push(format_args!("{enabled} {}", callsite.description()));
        }
    })
}

fn probes(from: usize, room: &mut [u8]) -> Result<usize, Failure> {
    lines(room, from, format_args!(""), |push| {
        probe::each(|item| match item {
            Item::Probe(name) => push(format_args!("probe {name}")),
            Item::Connection(events, name, active) => {
                let active = if active { "active" } else { "inactive" };
                push(format_args!("connection {events} {name} {active}"));
            }
        });
    })
}
