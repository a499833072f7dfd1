//! How well the kernel knows the time of day.

/// The largest error of the time of day in nanoseconds, as the kernel estimates it. None while
/// nothing such as an NTP client keeps the clock synchronized.
#[must_use]
pub fn error() -> Option<u64> {
    // SAFETY: `timex` consists of numbers, for which zeros are valid.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is valid, and `modes` is 0: the call only reads the clock's state.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    error_of(state, &timex)
}

fn error_of(state: libc::c_int, timex: &libc::timex) -> Option<u64> {
    let is_synchronized = timex.status & libc::STA_UNSYNC == 0;
    let is_known = state >= 0 && state != libc::TIME_ERROR && is_synchronized;
    let microseconds = u64::try_from(timex.maxerror).ok().filter(|_| is_known)?;
    microseconds.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_known_while_the_clock_is_synchronized() {
        // SAFETY: as in `error`.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        timex.maxerror = 2500;
        assert_eq!(error_of(libc::TIME_OK, &timex), Some(2_500_000));
        assert_eq!(error_of(libc::TIME_INS, &timex), Some(2_500_000));
        assert_eq!(error_of(libc::TIME_ERROR, &timex), None);
        assert_eq!(error_of(-1, &timex), None);
        timex.status = libc::STA_PLL | libc::STA_UNSYNC;
        assert_eq!(error_of(libc::TIME_OK, &timex), None);
        timex.status = libc::STA_PLL;
        timex.maxerror = -1;
        assert_eq!(error_of(libc::TIME_OK, &timex), None);
        timex.maxerror = libc::c_long::MAX;
        assert_eq!(error_of(libc::TIME_OK, &timex), None);
    }
}
