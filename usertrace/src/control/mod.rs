//! The control channel of a process: a socket by which another one lists its events, connects
//! probes, loads libraries of these, stops and flushes its buffers, and is told what happens
//! (`usertrace ctl`).
//!
//! There is none unless it is asked for: by [`start`], or by `USERTRACE_CONTROL=` `signal`,
//! `signal:N` or `thread`.
//!
//! - [`Mode::Signal`]: requests are served by the handler of a signal, `SIGIO` if no other is
//!   named. A handler that was there before is called for what is not of this channel's sockets, or
//!   may not be. What a handler cannot do, which is to load or unload a library, waits until the
//!   program calls [`serve`].
//! - [`Mode::Thread`]: a thread of its own serves all of it. It has all signals blocked.
//!
//! The socket has an abstract name with the process's id, so there is nothing in the file system.
//! The program accepts its own user and root, and nobody else; the controller checks that who
//! answers is the process, and its user. [`usertrace_control::protocol`] is what goes over it.
//!
//! A child of `fork` has a channel of its own; what is executed has what the environment says.

mod mode;
mod opened;
mod report;
mod respond;
mod signal;
mod state;
mod thread;

use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use syscalls::Errno;
use usertrace_control::{error, socket};

use crate::errno;
use crate::runtime::{env, registry};
use crate::unload;
use crate::writer;

pub use self::mode::Mode;
use self::opened::{control, place};
pub(crate) use self::report::{Change, tell, tell_full};
pub(crate) use self::state::Control;
use self::state::{Controller, Room};

/// Why there is no control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// There is one.
    Started,
    /// There is no memory.
    Memory,
    /// The socket cannot be made. `EADDRINUSE`: another process has the name.
    Socket(Errno),
    /// The signal cannot be handled.
    Signal(i32),
    /// The thread cannot be started.
    Thread(Errno),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("there is a control channel"),
            Self::Memory => f.write_str("no memory for the control channel"),
            Self::Socket(errno) => write!(f, "no socket for the control channel: {errno}"),
            Self::Signal(number) => write!(f, "signal {number} cannot be handled"),
            Self::Thread(errno) => write!(f, "no thread for the control channel: {errno}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Why the control channel was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseError {
    /// There is none.
    None,
    /// This thread is in the middle of serving it.
    Serving,
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "there is no control channel",
            Self::Serving => "this thread is serving the control channel",
        })
    }
}

impl std::error::Error for CloseError {}

/// Stands for [`Mode::Thread`].
const THREAD: i32 = -1;

/// The channel is being closed.
const CLOSING: i32 = -2;

/// Opens the control channel. Not to be called from a signal handler.
///
/// # Errors
/// When there is one, or what it needs is not to be had.
pub fn start(mode: Mode) -> Result<(), StartError> {
    let control = place().ok_or(StartError::Memory)?;
    registry::open().ok_or(StartError::Memory)?;
    let number = match mode {
        Mode::Thread => THREAD,
        Mode::Signal(number) if number > 0 => number,
        Mode::Signal(number) => return Err(StartError::Signal(number)),
    };
    control
        .mode
        .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
        .map_err(|_| StartError::Started)?;
    unload::never(after_fork as *const c_void);
    let opened = control.open(number);
    if opened.is_err() {
        control.close();
        control.mode.store(0, Ordering::Relaxed);
        return opened;
    }
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::Relaxed) {
        // SAFETY: functions for that. They stay, as their library is not unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork));
            libc::atexit(report::at_exit);
        }
    }
    Ok(())
}

/// Closes the control channel: controllers that watch are told so, and [`start`] may open another
/// one. The handler of a signal stays, and calls the one that was there before it. Not to be called
/// from a signal handler.
///
/// # Errors
/// When there is none, or when this thread is in the middle of serving it, as a library's
/// constructor may be that it loads.
pub fn close() -> Result<(), CloseError> {
    let control = control().ok_or(CloseError::None)?;
    if control.process.load(Ordering::Relaxed) != writer::process() {
        return Err(CloseError::None);
    }
    if control.server.load(Ordering::Relaxed) == writer::thread() {
        return Err(CloseError::Serving);
    }
    let begin = |mode| (mode == THREAD || mode > 0).then_some(CLOSING);
    let mode = control
        .mode
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin)
        .map_err(|_| CloseError::None)?;
    if mode == THREAD {
        // The thread may be waiting for the sockets, so it closes them itself.
        if let Some(listener) = control.listener.get() {
            socket::wake(listener);
        }
        while control.mode.load(Ordering::Acquire) == CLOSING {
            std::thread::yield_now();
        }
    } else {
        while !control.serve(false) {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Opens it if the environment asks for it. It is quiet if that cannot be done: a controller that
/// finds none says so.
pub(crate) fn start_as_asked() {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, Ordering::Relaxed) {
        return;
    }
    match env::control() {
        env::Asked::Nothing => {}
        env::Asked::Control(mode) => {
            let _ = start(mode);
        }
        // That is said with all else that is wrong with the environment.
        env::Asked::Unknown(_) => {}
    }
}

/// Serves what controllers ask for, also what a signal handler cannot do. Does nothing where there
/// is no channel. Not to be called from a signal handler.
pub fn serve() {
    let Some(control) = control() else { return };
    // With a thread, that one does all of it.
    if control.mode.load(Ordering::Relaxed) <= 0 {
        return;
    }
    // What a library's constructor asks for, who loads it does.
    while control.server.load(Ordering::Relaxed) != writer::thread() && !control.serve(true) {
        std::thread::yield_now();
    }
}

extern "C" fn after_fork() {
    let Some(control) = control() else { return };
    let mode = control.mode.load(Ordering::Relaxed);
    if mode == 0 {
        return;
    }
    let _errno = errno::keep();
    control.close();
    control.serving.reset();
    control.server.store(0, Ordering::Relaxed);
    // Another thread of the parent was closing it: there is none here either.
    if mode == CLOSING || control.open(mode).is_err() {
        control.close();
        control.mode.store(0, Ordering::Relaxed);
    }
}

impl Control {
    /// Makes the socket, and who serves it.
    fn open(&self, mode: i32) -> Result<(), StartError> {
        let process = writer::process();
        self.process.store(process, Ordering::Relaxed);
        let opening = self.openings.fetch_add(1, Ordering::Relaxed) + 1;
        if mode != THREAD && !signal::install(mode) {
            return Err(StartError::Signal(mode));
        }
        let socket = socket::listen(process).map_err(StartError::Socket)?;
        self.listener.set(socket);
        if mode == THREAD {
            return thread::start(opening).map_err(StartError::Thread);
        }
        socket::notify(socket, process, mode).map_err(StartError::Socket)?;
        // Who was quick.
        self.serve(false);
        Ok(())
    }

    /// Closes all sockets. Nobody serves them.
    fn close(&self) {
        self.listener.close();
        self.controllers.iter().for_each(Controller::close);
        self.watchers.store(0, Ordering::Relaxed);
    }

    /// Serves all that is asked for now, and says whether it did: else who is at it does it once
    /// more, as that one can.
    fn serve(&self, can_load: bool) -> bool {
        let mut done = false;
        self.serving.run(|| {
            done = true;
            self.server.store(writer::thread(), Ordering::Relaxed);
            // What was forked by other means than `fork` leaves its parent's sockets alone.
            if self.process.load(Ordering::Relaxed) == writer::process() {
                // SAFETY: only who serves comes here.
                self.serve_all(unsafe { &mut *self.room.get() }, can_load);
            }
            self.server.store(0, Ordering::Relaxed);
        });
        done
    }

    fn serve_all(&self, room: &mut Room, can_load: bool) {
        if self.mode.load(Ordering::Relaxed) == CLOSING {
            return self.finish();
        }
        while let Some(socket) = self.listener.get().and_then(socket::accept) {
            // Those who are gone make room.
            self.serve_controllers(room, can_load);
            self.welcome(socket);
        }
        self.serve_controllers(room, can_load);
    }

    fn serve_controllers(&self, room: &mut Room, can_load: bool) {
        for controller in &self.controllers {
            while let Some(socket) = controller.socket.get() {
                match respond::one(self, controller, socket, room, can_load) {
                    respond::Served::One => {}
                    respond::Served::Nothing => break,
                    respond::Served::Gone => self.dismiss(controller),
                }
            }
        }
    }

    /// Takes a controller in, if it may come.
    fn welcome(&self, socket: i32) {
        let refusal = match socket::peer(socket) {
            Ok(peer) if !socket::may_control(peer.uid) => Some("this process is another user's"),
            Err(_) => Some("it cannot be told who you are"),
            Ok(_) => {
                let free = self
                    .controllers
                    .iter()
                    .find(|one| one.socket.get().is_none());
                match free {
                    Some(free) => {
                        free.take(socket);
                        let mode = self.mode.load(Ordering::Relaxed);
                        if mode > 0 {
                            let process = self.process.load(Ordering::Relaxed);
                            // If it fails, requests wait for the next ones of others.
                            let _ = socket::notify(socket, process, mode);
                        }
                        None
                    }
                    None => Some("there are too many controllers"),
                }
            }
        };
        if let Some(refusal) = refusal {
            let mut room = [0; 128];
            let packet = error(&mut room, &refusal);
            let _ = socket::send(socket, packet);
            socket::close(socket);
        }
    }

    /// Closes all sockets, as [`close`](fn@close) has asked for.
    fn finish(&self) {
        // So that nobody is about to send a report to the sockets.
        let held = registry::hold();
        if let Some(held) = &held {
            self.report_alone(held, "closing");
        }
        self.close();
        drop(held);
        // Release pairs with who waits for it: the sockets are closed.
        self.mode.store(0, Ordering::Release);
    }

    fn dismiss(&self, controller: &Controller) {
        // So that nobody is about to send a report to the socket.
        let held = registry::hold();
        if controller.watches.load(Ordering::Relaxed) != 0 {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
        }
        controller.close();
        drop(held);
    }

    /// A socket is one of the channel's.
    fn has(&self, socket: i32) -> bool {
        let mut all = self.controllers.iter().map(|controller| &controller.socket);
        self.listener.get() == Some(socket) || all.any(|one| one.get() == Some(socket))
    }
}
