//! Reports to the program whether it is traced, and by which back end.

use std::sync::atomic::Ordering;

use usertrace_sys::Errno;

use super::current::{FAILURE, SETUP, state};
use super::state::State;
use super::status::{Backend, Report, Status};

/// Whether this process can be traced, and if not, why.
#[must_use]
pub fn status() -> Status {
    match (SETUP.get(), state()) {
        (None, _) | (_, None) => FAILURE
            .try_lock()
            .map_or(Status::NotInitialised, |status| *status),
        (Some(_), Some(state)) => match (state.bad_area(), state.error.load(Ordering::Relaxed)) {
            (Some(bad), _) => Status::BadArea(bad),
            _ if state.is_attached() => Status::Attached,
            (None, 0) => Status::Forked,
            (None, errno) => Status::NoBuffers(Errno::new(errno)),
        },
    }
}

/// The back end of this process, and why it was chosen.
#[must_use]
pub fn report() -> Report {
    let setup = SETUP.get();
    let report = Report {
        status: status(),
        backend: setup.map(|_| Backend::Kernel),
        no_kernel: setup.and_then(|setup| setup.no_kernel),
        output: None,
        daemons: [0; 2],
        error: None,
        limited: state().and_then(State::limited),
    };
    #[cfg(feature = "fallback")]
    if let Some(fast) = setup.and_then(|setup| setup.fast) {
        return Report {
            backend: Some(Backend::Fast),
            output: fast.directory().map(std::path::Path::to_owned),
            daemons: fast.daemons(),
            error: fast.error(),
            limited: fast.limited(),
            ..report
        };
    }
    report
}
