//! Programs of a test's own that run beside it.

use std::process::{Child, Command, ExitStatus};

use usertrace_testing::wait;

/// Killed if it has not ended when this is dropped.
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
    /// If that does not come.
    pub fn wait(&mut self) -> ExitStatus {
        wait::until_some("a program ends", || self.0.try_wait().expect("a child"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
