//! Full-screen terminal of a command: keys, size, and restoring the terminal's state however the
//! command ends.
//!
//! The command draws one table and a line or two, which takes a few escape sequences. A crate such
//! as `ratatui` would add some 50 others, 16 seconds of building, and 380 KiB to the command.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
use nix::sys::signal::{raise, sigaction, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::read;

use crate::output;

/// Switches to the alternate screen, hides the cursor, and turns line wrapping off.
const SETUP: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes [`SETUP`].
const RESTORE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Longest time between the bytes of a key's escape sequence.
const ESCAPE: Duration = Duration::from_millis(50);

/// The terminal's original state, while raw mode is set.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);

/// Signals that end or stop the command, and SIGWINCH for a new size. The terminal reads them from
/// a descriptor.
const SIGNALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
];

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Backspace,
    Escape,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// A letter with the control key.
    Control(char),
    /// A key without a meaning here.
    Other,
}

/// Result of waiting for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Key(Key),
    /// The size may have changed, or another program drew on the screen.
    Redraw,
    /// The terminal has hung up.
    Closed,
    /// The time is over.
    Timeout,
}

/// The terminal in raw mode; dropping this restores its state.
pub(crate) struct Terminal {
    signals: SignalFd,
    mask: SigSet,
    /// Bytes that were read and not yet decoded.
    typed: Vec<u8>,
}

fn stdin() -> BorrowedFd<'static> {
    // SAFETY: no code of this command closes standard input.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

fn saved() -> std::sync::MutexGuard<'static, Option<Termios>> {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Saves the terminal's state, and sets raw mode.
fn set_up() -> io::Result<()> {
    let was = tcgetattr(stdin())?;
    let mut raw = was.clone();
    cfmakeraw(&mut raw);
    saved().get_or_insert(was);
    tcsetattr(stdin(), SetArg::TCSADRAIN, &raw)?;
    write(SETUP.as_bytes())
}

/// Restores the terminal's state, if it was changed.
fn restore() {
    if let Some(was) = saved().take() {
        // A failure cannot be reported anywhere.
        let _ = write(RESTORE.as_bytes());
        let _ = tcsetattr(stdin(), SetArg::TCSADRAIN, &was);
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

/// Columns and rows of the terminal at a descriptor; 80 and 24 if unknown.
pub(crate) fn size_of(descriptor: i32) -> (usize, usize) {
    // SAFETY: `winsize` consists of integers, so zeros are a valid value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one `winsize`, which `size` has room for.
    let done = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) };
    match (done, size.ws_col, size.ws_row) {
        (0, columns @ 1.., rows @ 1..) => (columns.into(), rows.into()),
        _ => (80, 24),
    }
}

impl Terminal {
    /// Sets the terminal up. The process must have a single thread, since signals are blocked for
    /// this thread only.
    pub(crate) fn new() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        // A panic's message must not be on the alternate screen, which vanishes.
        HOOK.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                report(info);
            }));
        });
        let mask: SigSet = SIGNALS.into_iter().collect();
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
        let terminal = Self {
            signals,
            mask,
            typed: Vec::new(),
        };
        set_up()?;
        Ok(terminal)
    }

    /// The terminal's columns and rows; 80 and 24 if unknown.
    pub(crate) fn size(&self) -> (usize, usize) {
        size_of(libc::STDOUT_FILENO)
    }

    /// Replaces the screen's contents by these lines. Line `strong` is highlighted.
    pub(crate) fn show(&self, lines: &[String], strong: usize) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().enumerate() {
            let line = output::readable(line);
            if n > 0 {
                text.push_str("\r\n");
            }
            match n == strong {
                true => text.push_str(&format!("\x1b[7m{line}\x1b[0m\x1b[K")),
                false => text.push_str(&format!("{line}\x1b[K")),
            }
        }
        text.push_str("\x1b[J");
        write(text.as_bytes())
    }

    /// Waits for input, at most for `timeout`. Signals that end the command do so in here.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<Input> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(key) = key(&mut self.typed, false) {
                return Ok(Input::Key(key));
            }
            // An incomplete sequence may be the Escape key by itself.
            let pending = !self.typed.is_empty();
            let left = match pending {
                true => ESCAPE,
                false => until.saturating_duration_since(Instant::now()),
            };
            let mut fds = [
                PollFd::new(stdin(), PollFlags::POLLIN),
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            ];
            let millis = left.as_micros().div_ceil(1000);
            let poll_timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, poll_timeout) {
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(0) if pending => {
                    let key = key(&mut self.typed, true);
                    return Ok(key.map_or(Input::Timeout, Input::Key));
                }
                Ok(0) => return Ok(Input::Timeout),
                Ok(_) => {}
            }
            let [keys, signals] = fds.map(|fd| fd.any().unwrap_or(false));
            if signals && let Some(input) = self.take_signals()? {
                return Ok(input);
            }
            if keys {
                let mut buffer = [0; 256];
                match read(stdin(), &mut buffer) {
                    Ok(0) | Err(Errno::EIO) => return Ok(Input::Closed),
                    Ok(len) => self.typed.extend_from_slice(&buffer[..len]),
                    Err(Errno::EINTR | Errno::EAGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    fn take_signals(&mut self) -> io::Result<Option<Input>> {
        let mut input = None;
        while let Some(info) = self.signals.read_signal()? {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGWINCH) => input = Some(Input::Redraw),
                Ok(Signal::SIGTSTP) => {
                    self.stop()?;
                    input = Some(Input::Redraw);
                }
                Ok(signal) => {
                    restore();
                    self.die(signal);
                }
                Err(_) => {}
            }
        }
        Ok(input)
    }

    /// Stops the process as Ctrl-Z does, and sets the terminal up again when it continues.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        restore();
        raise(Signal::SIGSTOP)?;
        set_up()
    }

    /// Ends the process by the signal, so that its parent sees it.
    fn die(&self, signal: Signal) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: SIG_DFL runs no code of this process.
        let _ = unsafe { sigaction(signal, &default) };
        let _ = raise(signal);
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&self.mask), None);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&self.mask), None);
    }
}

/// Removes the first key from the typed bytes. `all`: no more bytes belong to it. `None`: there is
/// no complete key.
fn key(typed: &mut Vec<u8>, all: bool) -> Option<Key> {
    let (key, len) = match typed[..] {
        [] => return None,
        [0x1b] if all => (Key::Escape, 1),
        [0x1b] => return None,
        [0x1b, b'[' | b'O', ..] => {
            // A sequence has parameters, then a letter or `~`.
            let end = typed[2..]
                .iter()
                .position(|byte| (0x40..=0x7e).contains(byte));
            let Some(end) = end else {
                if all {
                    typed.clear();
                    return Some(Key::Other);
                }
                return None;
            };
            let key = match &typed[2..=end + 2] {
                b"A" => Key::Up,
                b"B" => Key::Down,
                b"H" | b"1~" | b"7~" => Key::Home,
                b"F" | b"4~" | b"8~" => Key::End,
                b"5~" => Key::PageUp,
                b"6~" => Key::PageDown,
                _ => Key::Other,
            };
            (key, end + 3)
        }
        [0x1b, ..] => (Key::Escape, 1),
        [b'\r' | b'\n', ..] => (Key::Enter, 1),
        [0x7f | 0x08, ..] => (Key::Backspace, 1),
        [control @ 1..=26, ..] => (Key::Control((control + b'a' - 1) as char), 1),
        [first, ..] => {
            let len = match first {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 1,
            };
            let Some(bytes) = typed.get(..len) else {
                if all {
                    typed.clear();
                }
                return None;
            };
            let text = std::str::from_utf8(bytes).ok();
            let typed_char = text.and_then(|text| text.chars().next());
            let shown = typed_char.filter(|c| !c.is_control());
            (shown.map_or(Key::Other, Key::Char), len)
        }
    };
    typed.drain(..len);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut typed = bytes.to_vec();
        let mut keys = Vec::new();
        while !typed.is_empty() {
            keys.extend(key(&mut typed, true));
        }
        keys
    }

    #[test]
    fn escape_sequences_are_decoded() {
        use Key::*;
        assert_eq!(keys(b"q\x1b"), [Char('q'), Escape]);
        assert_eq!(
            keys("ü€\u{1f600}".as_bytes()),
            ['ü', '€', '\u{1f600}'].map(Char)
        );
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[5~\x1b[6~"),
            [Up, Down, PageUp, PageDown]
        );
        assert_eq!(keys(b"\x1b[H\x1b[4~\x1b[1;5C"), [Home, End, Other]);
        assert_eq!(
            keys(b"\x03\x1a\r\x7f"),
            [Control('c'), Control('z'), Enter, Backspace]
        );
        assert_eq!(keys(b"\x1bq"), [Escape, Char('q')]);
        assert_eq!(keys(b"\x1b[12"), [Other]);
        assert_eq!(keys(b"\xff\xc3"), [Other]);
    }

    #[test]
    fn incomplete_sequences_wait_for_the_rest() {
        for bytes in [&b"\x1b"[..], b"\x1b[", b"\x1b[5", b"\xc3"] {
            let mut typed = bytes.to_vec();
            assert_eq!(key(&mut typed, false), None);
            assert_eq!(typed, bytes);
        }
    }
}
