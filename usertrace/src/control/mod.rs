//! The control channel of a process: a socket by which a controller (`usertrace ctl`) lists its
//! events, connects probes, loads libraries of probes, stops and flushes its buffers, and gets
//! reports.
//!
//! It is off by default; [`start`] opens it, or `USERTRACE_CONTROL=` `signal`, `signal:N` or
//! `thread`.
//!
//! - [`Mode::Signal`]: the handler of a signal serves requests, by default of `SIGIO`. A previous
//!   handler is called for signals that are not, or may not be, from this channel's sockets. A
//!   handler cannot load or unload a library; such a request waits until the program calls
//!   [`serve`].
//! - [`Mode::Thread`]: a thread serves all requests. It has all signals blocked.
//!
//! The socket has an abstract name with the process's id, so it leaves nothing in the file system.
//! The program accepts only its own user and root. The controller checks that its peer is the
//! process, and which user owns it. [`usertrace_control::protocol`] defines the messages.
//!
//! A child of `fork` has a channel of its own. A program that it executes follows the environment.

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

use crate::os::{self, errno};
use crate::runtime::{env, registry};
use crate::unload;

pub use self::mode::Mode;
use self::opened::control;
pub(crate) use self::report::{Change, report_change, report_full};
pub(crate) use self::state::Control;
use self::state::{Controller, ServerBuffers};

/// Why the control channel could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The channel is open already.
    Started,
    /// No memory.
    Memory,
    /// The socket cannot be created. `EADDRINUSE`: another process has the name.
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
    /// The channel is not open.
    None,
    /// This thread is serving the channel.
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

/// The value of `Control::mode` for [`Mode::Thread`].
const THREAD: i32 = -1;

/// The value of `Control::mode` while the channel is being closed.
const CLOSING: i32 = -2;

/// Opens the control channel. Signal handlers must not call this.
///
/// # Errors
/// If the channel is open, or a resource that it needs is not available.
pub fn start(mode: Mode) -> Result<(), StartError> {
    let control = opened::open().ok_or(StartError::Memory)?;
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
        // SAFETY: both functions stay mapped, because `unload::never` keeps their library loaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork));
            libc::atexit(report::at_exit);
        }
    }
    Ok(())
}

/// Closes the control channel, and reports that to watching controllers; [`start`] may open another
/// one. The signal handler stays installed, and calls the previous one. Signal handlers must not
/// call this.
///
/// # Errors
/// If the channel is not open, or if this thread is serving it, such as in a constructor of a
/// library that it loads.
pub fn close() -> Result<(), CloseError> {
    let control = control().ok_or(CloseError::None)?;
    if control.process.load(Ordering::Relaxed) != os::process::id() {
        return Err(CloseError::None);
    }
    if control.server.load(Ordering::Relaxed) == os::thread::id() {
        return Err(CloseError::Serving);
    }
    let begin = |mode| (mode == THREAD || mode > 0).then_some(CLOSING);
    let mode = control
        .mode
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin)
        .map_err(|_| CloseError::None)?;
    if mode == THREAD {
        // The thread may be waiting on the sockets, so it must close them itself.
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

/// Opens the channel if the environment asks for it. A failure is not reported here: a controller
/// reports it when it finds no channel.
pub(crate) fn start_as_asked() {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, Ordering::Relaxed) {
        return;
    }
    match env::control() {
        env::ControlSetting::Unset => {}
        env::ControlSetting::Mode(mode) => {
            let _ = start(mode);
        }
        // `complaint` reports invalid variables.
        env::ControlSetting::Unknown(_) => {}
    }
}

/// Serves all pending requests, including those that a signal handler cannot serve. Does nothing if
/// the channel is closed. Signal handlers must not call this.
pub fn serve() {
    let Some(control) = control() else { return };
    // In thread mode, the thread serves all requests.
    if control.mode.load(Ordering::Relaxed) <= 0 {
        return;
    }
    // A library's constructor may call this while its thread serves the load: that thread serves
    // the rest later.
    while control.server.load(Ordering::Relaxed) != os::thread::id() && !control.serve(true) {
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
    // A thread of the parent was closing the channel, so the child has none either.
    if mode == CLOSING || control.open(mode).is_err() {
        control.close();
        control.mode.store(0, Ordering::Relaxed);
    }
}

impl Control {
    /// Creates the socket, and the thread or handler that serves it.
    fn open(&self, mode: i32) -> Result<(), StartError> {
        let process = os::process::id();
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
        // Serve controllers that connected before the signal was enabled.
        self.serve(false);
        Ok(())
    }

    /// Closes all sockets; no thread may be serving them.
    fn close(&self) {
        self.listener.close();
        self.controllers.iter().for_each(Controller::close);
        self.watchers.store(0, Ordering::Relaxed);
    }

    /// Serves all pending requests, and returns true. Returns false if another thread is serving:
    /// that one then serves once more, within its abilities.
    fn serve(&self, can_load: bool) -> bool {
        let mut done = false;
        self.serving.run(|| {
            done = true;
            self.server.store(os::thread::id(), Ordering::Relaxed);
            // A child that was not created by `fork` must not use its parent's sockets.
            if self.process.load(Ordering::Relaxed) == os::process::id() {
                // SAFETY: `serving` runs one body at a time, so no other reference to the buffers
                // exists.
                self.serve_all(unsafe { &mut *self.buffers.get() }, can_load);
            }
            self.server.store(0, Ordering::Relaxed);
        });
        done
    }

    fn serve_all(&self, buffers: &mut ServerBuffers, can_load: bool) {
        if self.mode.load(Ordering::Relaxed) == CLOSING {
            return self.finish();
        }
        while let Some(socket) = self.listener.get().and_then(socket::accept) {
            // This frees the entries of controllers that are gone.
            self.serve_controllers(buffers, can_load);
            self.accept(socket);
        }
        self.serve_controllers(buffers, can_load);
    }

    fn serve_controllers(&self, buffers: &mut ServerBuffers, can_load: bool) {
        for controller in &self.controllers {
            while let Some(socket) = controller.socket.get() {
                match respond::serve_one(self, controller, socket, buffers, can_load) {
                    respond::Served::One => {}
                    respond::Served::Nothing => break,
                    respond::Served::Gone => self.disconnect(controller),
                }
            }
        }
    }

    /// Accepts a controller, if it has permission and there is a free entry.
    fn accept(&self, socket: i32) {
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
                            // On failure, its requests wait for those of other controllers.
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

    /// Completes [`close`](fn@close): closes all sockets.
    fn finish(&self) {
        // The lock keeps reports from using the sockets.
        let held = registry::hold();
        if let Some(held) = &held {
            self.report_alone(held, "closing");
        }
        self.close();
        drop(held);
        // Release pairs with the load in `close`: the sockets are closed.
        self.mode.store(0, Ordering::Release);
    }

    fn disconnect(&self, controller: &Controller) {
        // The lock keeps reports from using the socket.
        let held = registry::hold();
        if controller.watches.load(Ordering::Relaxed) != 0 {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
        }
        controller.close();
        drop(held);
    }

    /// True if the descriptor is one of the channel's sockets.
    fn has(&self, socket: i32) -> bool {
        let mut all = self.controllers.iter().map(|controller| &controller.socket);
        self.listener.get() == Some(socket) || all.any(|one| one.get() == Some(socket))
    }
}
