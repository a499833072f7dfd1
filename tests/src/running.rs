//! Programs that a test starts and that run beside it.

use std::process::{Child, Command, ExitStatus};

use usertrace_testing::wait;

/// A program that runs. Dropping this kills it.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let started = command.spawn();
        Self(started.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If the program does not end.
    pub fn wait(&mut self) -> ExitStatus {
        wait::until_some("a program ends", || self.0.try_wait().expect("a child"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
