//! A person's shell in the guest: this terminal becomes the guest's console.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use usertrace_init::GO;

use crate::console::{ConsoleReader, Listener};

/// Waits until the guest is about to start the shell, then connects the terminal to it. Dropping
/// the returned guard restores the terminal.
pub(crate) fn hand_over(
    listener: &Arc<Mutex<Listener>>,
    console: UnixStream,
    mut status: UnixStream,
    nonce: &str,
    limit: Duration,
) -> Result<RawTerminal> {
    let (to, from) = channel();
    *listener.lock().unwrap_or_else(PoisonError::into_inner) = Listener::Expect(to);
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let mut session =
        rexpect::spawn_stream(ConsoleReader::new(from), console.try_clone()?, Some(millis));
    // Only this run knows the nonce, so no other text of the guest is taken for
    // the line.
    session
        .exp_string(&format!("usertrace: shell {nonce}"))
        .context("waiting for the guest's shell")?;
    let terminal = RawTerminal::enter()?;
    *listener.lock().unwrap_or_else(PoisonError::into_inner) = Listener::Terminal;
    carry_keys(console)?;
    status.write_all(GO).context("status port")?;
    Ok(terminal)
}

/// Carries keys to the guest. Nobody joins the thread: it may wait for a key for ever.
fn carry_keys(mut to: UnixStream) -> io::Result<()> {
    std::thread::Builder::new().spawn(move || {
        let mut buf = [0; 1024];
        while let Ok(n @ 1..) = io::stdin().lock().read(&mut buf) {
            if to.write_all(&buf[..n]).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// This process's terminal, raw while this lives.
#[derive(Debug)]
pub(crate) struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    fn enter() -> Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let before = tcgetattr(&stdin).context("reading the terminal's state")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw).context("making the terminal raw")?;
        Ok(Self {
            before: Some(before),
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, before);
        }
    }
}
