//! Watches a running guest, and decides how its run ended.
//!
//! It sees the guest only through [`Event`]s, so tests can simulate any guest.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use usertrace_init::Report;

use crate::outcome::Outcome;

/// An observation of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The console printed something.
    ConsoleBytes,
    /// The console is closed: QEMU has ended, or is about to.
    ConsoleClosed,
    /// The kernel panics.
    Panic(String),
    /// The kernel reports an error of its own.
    Splat(String),
    /// A report of the first process.
    Report(Report),
    /// A line on the port of reports that is no report.
    Garbage(String),
    /// Output has reached its sink.
    Moved,
    /// Output cannot be written to its sink.
    SinkBroken(String),
    /// The harness cannot do its part.
    Harness(String),
}

/// Time limits of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For the whole run.
    pub(crate) total: Duration,
    /// Without a byte on the console, before the guest's hello and after a panic.
    pub(crate) silence: Duration,
    /// Without a heartbeat.
    pub(crate) beat: Duration,
    /// After the end: for the power-off, a restart after a panic, and output that is on its way.
    pub(crate) grace: Duration,
}

/// The monitor's access to the guest.
pub(crate) trait Guest {
    /// Allows the guest to power off.
    fn bye(&mut self);
    /// How many bytes of standard output and standard error have reached their sinks.
    fn carried(&self) -> (u64, u64);
}

/// The result of watching a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    /// The size of the dump, or why it was not saved. None: no dump was expected.
    pub(crate) dump: Option<Result<u64, String>>,
    /// The kernel's reports of its own errors.
    pub(crate) splats: Vec<String>,
    /// The command's status, if it is known.
    pub(crate) status: Option<u8>,
    /// Whether the first process ran.
    pub(crate) was_up: bool,
}

/// The observations so far.
#[derive(Debug, Default)]
struct GuestState {
    hello: bool,
    panic: Option<String>,
    splats: Vec<String>,
    exit: Option<(u8, u64, u64)>,
    trouble: Option<String>,
    dump_started: bool,
    dump: Option<Result<u64, String>>,
    /// When the end began, after which only [`Limits::grace`] is left.
    ending: Option<Instant>,
}

/// Watches until the guest has ended, or must be killed.
pub(crate) fn watch(
    events: &Receiver<Event>,
    limits: Limits,
    crash: bool,
    guest: &mut impl Guest,
) -> Verdict {
    let start = Instant::now();
    let mut life = start;
    let mut seen = GuestState::default();
    let stopped = loop {
        let now = Instant::now();
        let allowed = if beats(&seen) {
            limits.beat
        } else {
            limits.silence
        };
        if now >= start + limits.total {
            break Some(Outcome::TimedOut(format!(
                "not over after {} s",
                limits.total.as_secs()
            )));
        }
        match seen.ending {
            Some(at) if now >= at + limits.grace => break None,
            None if now >= life + allowed => {
                break Some(Outcome::Hung(format!(
                    "no sign of life for {} s",
                    allowed.as_secs()
                )));
            }
            _ => {}
        }
        let next = match seen.ending {
            Some(at) => at + limits.grace,
            None => life + allowed,
        };
        let wait = next
            .min(start + limits.total)
            .saturating_duration_since(now);
        let event = match events.recv_timeout(wait) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break None,
        };
        if is_life(&event, &seen) {
            life = Instant::now();
        }
        if event == Event::ConsoleClosed {
            break None;
        }
        take(event, &mut seen);
        if seen.ending.is_none() && is_ending(&seen, crash, guest) {
            guest.bye();
            seen.ending = Some(Instant::now());
        }
    };
    verdict(seen, stopped, crash, guest)
}

/// Whether heartbeats are expected: not before the first process runs, nor between a panic and the
/// crash kernel's first process.
fn beats(seen: &GuestState) -> bool {
    if seen.panic.is_some() {
        seen.dump_started
    } else {
        seen.hello
    }
}

/// Whether an event is a sign of life. Once the first process runs, output on the console is none.
fn is_life(event: &Event, seen: &GuestState) -> bool {
    match event {
        Event::Report(_) | Event::Moved | Event::Panic(_) => true,
        Event::ConsoleBytes => !beats(seen),
        _ => false,
    }
}

fn take(event: Event, seen: &mut GuestState) {
    match event {
        Event::Panic(why) => {
            seen.panic.get_or_insert(why);
        }
        // Output of a panicking kernel belongs to its panic.
        Event::Splat(text) if seen.panic.is_none() => seen.splats.push(text),
        Event::Report(Report::Hello) => seen.hello = true,
        Event::Report(Report::Exit {
            status,
            stdout,
            stderr,
        }) => seen.exit = Some((status, stdout, stderr)),
        Event::Report(Report::Trouble(why)) | Event::SinkBroken(why) | Event::Harness(why) => {
            seen.trouble.get_or_insert(why);
        }
        Event::Report(Report::DumpStarted) => seen.dump_started = true,
        Event::Report(Report::DumpSaved(bytes)) => seen.dump = Some(Ok(bytes)),
        Event::Report(Report::DumpFailed(why)) => seen.dump = Some(Err(why)),
        // A panic may cut a line off. Otherwise the port is broken.
        Event::Garbage(line) if seen.panic.is_none() => {
            seen.trouble
                .get_or_insert(format!("not a report: {line:?}"));
        }
        _ => {}
    }
}

fn is_ending(seen: &GuestState, crash: bool, guest: &impl Guest) -> bool {
    if seen.panic.is_some() {
        return !crash || seen.dump.is_some();
    }
    match seen.exit {
        Some((_, stdout, stderr)) => guest.carried() == (stdout, stderr) || seen.trouble.is_some(),
        None => seen.trouble.is_some(),
    }
}

fn verdict(seen: GuestState, stopped: Option<Outcome>, crash: bool, guest: &impl Guest) -> Verdict {
    let status = seen.exit.map(|(status, ..)| status);
    let own = |status| {
        if status == 0 {
            Outcome::Passed
        } else {
            Outcome::Failed(status)
        }
    };
    let outcome = match (seen.panic, stopped, seen.trouble, seen.exit) {
        // A dead kernel explains everything that came after.
        (Some(why), ..) => Outcome::Panicked(why),
        (None, Some(stopped), ..) => stopped,
        (None, None, Some(why), _) => Outcome::Infra(why),
        (None, None, None, None) => {
            Outcome::Infra("the guest ended without a word about the command".into())
        }
        (None, None, None, Some((_, stdout, stderr))) if guest.carried() != (stdout, stderr) => {
            Outcome::Infra(format!(
                "output lost: {:?} of {:?} bytes came",
                guest.carried(),
                (stdout, stderr)
            ))
        }
        (None, None, None, Some((status, ..))) => match seen.splats.first() {
            Some(text) => Outcome::Splat(text.clone()),
            None => own(status),
        },
    };
    let dump = match (&outcome, crash, seen.dump) {
        (Outcome::Panicked(_), true, None) => {
            Some(Err("the crash kernel did not get so far".into()))
        }
        (_, _, dump) => dump,
    };
    Verdict {
        outcome,
        dump,
        splats: seen.splats,
        status,
        was_up: seen.hello,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    struct FakeGuest {
        carried: (u64, u64),
        byes: u32,
    }

    impl Guest for FakeGuest {
        fn bye(&mut self) {
            self.byes += 1;
        }
        fn carried(&self) -> (u64, u64) {
            self.carried
        }
    }

    /// Limits that no guest reaches, however slow this machine is. Only the grace period is short.
    fn limits() -> Limits {
        let long = Duration::from_secs(600);
        Limits {
            total: long,
            silence: long,
            beat: long,
            grace: Duration::from_millis(100),
        }
    }

    /// Limits by which a silent guest hangs soon, but not because this machine is busy.
    fn soon() -> Limits {
        let short = Duration::from_millis(500);
        Limits {
            silence: short,
            beat: short,
            ..limits()
        }
    }

    /// The outcome of a guest with these events and no more, whose console is closed or stays open.
    fn run_with(
        seen: &[Event],
        closed: bool,
        crash: bool,
        limits: Limits,
        carried: (u64, u64),
    ) -> (Verdict, u32) {
        let (to, from): (Sender<Event>, _) = channel();
        for event in seen {
            to.send(event.clone()).unwrap();
        }
        if closed {
            to.send(Event::ConsoleClosed).unwrap();
        }
        let mut guest = FakeGuest { carried, byes: 0 };
        let verdict = watch(&from, limits, crash, &mut guest);
        drop(to);
        (verdict, guest.byes)
    }

    fn run(seen: &[Event], closed: bool) -> Outcome {
        run_with(seen, closed, false, limits(), (0, 0)).0.outcome
    }

    const HELLO: Event = Event::Report(Report::Hello);

    fn exit(status: u8) -> Event {
        Event::Report(Report::Exit {
            status,
            stdout: 0,
            stderr: 0,
        })
    }

    fn panic() -> Event {
        Event::Panic("why".into())
    }

    #[test]
    fn the_commands_status_passes_through() {
        assert_eq!(run(&[HELLO, exit(0)], true), Outcome::Passed);
        assert_eq!(run(&[HELLO, exit(7)], true), Outcome::Failed(7));
        assert_eq!(run(&[HELLO, exit(121)], true), Outcome::Failed(121));
    }

    #[test]
    fn a_guest_that_does_not_power_off_has_still_ended_its_command() {
        assert_eq!(run(&[HELLO, exit(3)], false), Outcome::Failed(3));
    }

    #[test]
    fn a_silent_guest_hangs_at_each_stage() {
        for seen in [
            &[][..],
            &[Event::ConsoleBytes],
            &[HELLO, Event::Report(Report::Started)],
        ] {
            let (verdict, _) = run_with(seen, false, false, soon(), (0, 0));
            assert!(matches!(verdict.outcome, Outcome::Hung(_)), "{verdict:?}");
        }
    }

    #[test]
    fn after_hello_the_console_is_no_sign_of_life() {
        let (to, from) = channel();
        to.send(HELLO).unwrap();
        let chatter = std::thread::spawn(move || {
            while to.send(Event::ConsoleBytes).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let verdict = watch(
            &from,
            soon(),
            false,
            &mut FakeGuest {
                carried: (0, 0),
                byes: 0,
            },
        );
        assert!(matches!(verdict.outcome, Outcome::Hung(_)), "{verdict:?}");
        drop(from);
        chatter.join().unwrap();
    }

    #[test]
    fn a_guest_that_lives_too_long_times_out() {
        let (to, from) = channel();
        let beats = std::thread::spawn(move || {
            while to.send(Event::Report(Report::Beat)).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // Without beats, the guest would hang before that.
        let limits = Limits {
            total: Duration::from_millis(700),
            ..soon()
        };
        let verdict = watch(
            &from,
            limits,
            false,
            &mut FakeGuest {
                carried: (0, 0),
                byes: 0,
            },
        );
        assert!(
            matches!(verdict.outcome, Outcome::TimedOut(_)),
            "{verdict:?}"
        );
        drop(from);
        beats.join().unwrap();
    }

    #[test]
    fn a_panic_is_a_panic_whatever_follows() {
        let panicked = Outcome::Panicked("why".into());
        assert_eq!(run(&[HELLO, panic()], true), panicked);
        assert_eq!(run(&[HELLO, panic()], false), panicked);
        assert_eq!(run(&[panic(), Event::Garbage("be".into())], true), panicked);
        assert_eq!(run(&[HELLO, exit(0), panic()], true), panicked);
    }

    #[test]
    fn the_monitor_waits_for_the_dump() {
        let saved = [
            HELLO,
            panic(),
            Event::Report(Report::DumpStarted),
            Event::Report(Report::DumpSaved(9)),
        ];
        let (verdict, byes) = run_with(&saved, true, true, limits(), (0, 0));
        assert_eq!(
            (verdict.outcome, verdict.dump, byes),
            (Outcome::Panicked("why".into()), Some(Ok(9)), 1)
        );
        let (verdict, _) = run_with(&saved[..3], false, true, soon(), (0, 0));
        assert!(
            matches!(verdict.outcome, Outcome::Panicked(_)),
            "{verdict:?}"
        );
        assert!(matches!(verdict.dump, Some(Err(_))), "{verdict:?}");
    }

    #[test]
    fn harness_errors_are_no_failures_of_the_command() {
        assert!(matches!(run(&[], true), Outcome::Infra(_)));
        assert!(matches!(run(&[HELLO], true), Outcome::Infra(_)));
        assert!(matches!(
            run(&[HELLO, Event::Report(Report::Trouble("x".into()))], false),
            Outcome::Infra(_)
        ));
        assert!(matches!(
            run(&[HELLO, Event::Garbage("x".into())], false),
            Outcome::Infra(_)
        ));
        assert!(matches!(
            run(&[HELLO, Event::SinkBroken("x".into()), exit(0)], true),
            Outcome::Infra(_)
        ));
    }

    #[test]
    fn missing_output_is_an_error() {
        let exit = Event::Report(Report::Exit {
            status: 0,
            stdout: 5,
            stderr: 0,
        });
        let (verdict, byes) = run_with(&[HELLO, exit.clone()], true, false, limits(), (4, 0));
        assert!(matches!(verdict.outcome, Outcome::Infra(_)));
        assert_eq!(byes, 0);
        let (verdict, byes) = run_with(&[HELLO, exit], true, false, limits(), (5, 0));
        assert_eq!((verdict.outcome, byes), (Outcome::Passed, 1));
    }

    #[test]
    fn a_splat_is_not_a_pass() {
        let splat = Event::Splat("WARNING: x".into());
        let (verdict, _) = run_with(&[HELLO, splat, exit(0)], true, false, limits(), (0, 0));
        assert_eq!(verdict.outcome, Outcome::Splat("WARNING: x".into()));
        assert_eq!(verdict.status, Some(0));
    }
}
