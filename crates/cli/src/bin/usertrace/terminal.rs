//! A terminal that a command has to itself: keys, its size, and what it was like before, however
//! the command ends.
//!
//! There is one table and a line or two to draw, which takes a few escape sequences. A crate for
//! that, as `ratatui`, would add some 50 others, 16 seconds of building, and 380 KiB to the
//! command.

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

/// Another screen, no cursor, and lines that are too long are cut.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// How long the rest of a key's escape sequence may take to come.
const ESCAPE: Duration = Duration::from_millis(50);

/// What the terminal was like, while it is not like that.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Signals that end the command, those that stop it, and the one that says that the size is another
/// one.
const TAKEN: [Signal; 6] = [
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
    /// With the control key.
    Control(char),
    /// One that means nothing here.
    Other,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Key(Key),
    /// The size may be another one, or the screen was somebody else's meanwhile.
    Redraw,
    /// The terminal is gone.
    Gone,
    /// Nothing, in that time.
    Nothing,
}

/// The terminal, as long as this lives.
pub(crate) struct Terminal {
    signals: SignalFd,
    mask: SigSet,
    /// What was typed and not looked at.
    typed: Vec<u8>,
}

fn input() -> BorrowedFd<'static> {
    // SAFETY: nobody closes standard input.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

fn before() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn enter() -> io::Result<()> {
    let was = tcgetattr(input())?;
    let mut raw = was.clone();
    cfmakeraw(&mut raw);
    before().get_or_insert(was);
    tcsetattr(input(), SetArg::TCSADRAIN, &raw)?;
    write(ENTER.as_bytes())
}

/// Makes the terminal what it was.
fn leave() {
    if let Some(was) = before().take() {
        // There is nobody to tell.
        let _ = write(LEAVE.as_bytes());
        let _ = tcsetattr(input(), SetArg::TCSADRAIN, &was);
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

impl Terminal {
    /// Takes it, in a process of one thread.
    pub(crate) fn new() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        // What a panic says is not to be on the screen that goes.
        HOOK.call_once(|| {
            let tell = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                leave();
                tell(info);
            }));
        });
        let mask: SigSet = TAKEN.into_iter().collect();
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
        let terminal = Self {
            signals,
            mask,
            typed: Vec::new(),
        };
        enter()?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        // SAFETY: zeros are a size.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one of these.
        let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
        match (done, size.ws_col, size.ws_row) {
            (0, columns @ 1.., rows @ 1..) => (columns.into(), rows.into()),
            _ => (80, 24),
        }
    }

    /// Shows these lines, and nothing else. The `strong` one stands out.
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

    /// Waits so long for what comes. Signals that end the command do that here.
    pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<Came> {
        let until = Instant::now() + patience;
        loop {
            if let Some(key) = key(&mut self.typed, false) {
                return Ok(Came::Key(key));
            }
            // It may have been the key Escape by itself.
            let pending = !self.typed.is_empty();
            let left = match pending {
                true => ESCAPE,
                false => until.saturating_duration_since(Instant::now()),
            };
            let mut fds = [
                PollFd::new(input(), PollFlags::POLLIN),
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            ];
            let millis = left.as_micros().div_ceil(1000);
            let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(0) if pending => {
                    let key = key(&mut self.typed, true);
                    return Ok(key.map_or(Came::Nothing, Came::Key));
                }
                Ok(0) => return Ok(Came::Nothing),
                Ok(_) => {}
            }
            let [keys, signals] = fds.map(|fd| fd.any().unwrap_or(false));
            if signals && let Some(came) = self.take_signals()? {
                return Ok(came);
            }
            if keys {
                let mut room = [0; 256];
                match read(input(), &mut room) {
                    Ok(0) | Err(Errno::EIO) => return Ok(Came::Gone),
                    Ok(len) => self.typed.extend_from_slice(&room[..len]),
                    Err(Errno::EINTR | Errno::EAGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    fn take_signals(&mut self) -> io::Result<Option<Came>> {
        let mut came = None;
        while let Some(info) = self.signals.read_signal()? {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGWINCH) => came = Some(Came::Redraw),
                Ok(Signal::SIGTSTP) => {
                    self.stop()?;
                    came = Some(Came::Redraw);
                }
                Ok(signal) => {
                    leave();
                    self.die(signal);
                }
                Err(_) => {}
            }
        }
        Ok(came)
    }

    /// Stops, as by the key for that, until somebody has it go on.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        leave();
        raise(Signal::SIGSTOP)?;
        enter()
    }

    /// Ends as the signal has it, so that who waits for this process sees it.
    fn die(&self, signal: Signal) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler of this process's.
        let _ = unsafe { sigaction(signal, &default) };
        let _ = raise(signal);
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&self.mask), None);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&self.mask), None);
    }
}

/// Takes the first key of what was typed. `all`: nothing more belongs to it. None: there is none,
/// or it is not there as a whole.
fn key(typed: &mut Vec<u8>, all: bool) -> Option<Key> {
    let (key, len) = match typed[..] {
        [] => return None,
        [0x1b] if all => (Key::Escape, 1),
        [0x1b] => return None,
        [0x1b, b'[' | b'O', ..] => {
            // Parameters, and a letter or `~`.
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
    fn keys_are_told_from_what_terminals_send() {
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
    fn what_is_not_there_as_a_whole_is_waited_for() {
        for bytes in [&b"\x1b"[..], b"\x1b[", b"\x1b[5", b"\xc3"] {
            let mut typed = bytes.to_vec();
            assert_eq!(key(&mut typed, false), None);
            assert_eq!(typed, bytes);
        }
    }
}
