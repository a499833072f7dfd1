//! Clocks with known errors: the true times are within the errors that are said.

use proptest::prelude::*;

use super::fit::Messages;
use super::placement::{Contradiction, Pairs, Placement, place};

/// A clock: its time at true time 0, and its speed minus 1.
#[derive(Clone, Copy, Debug)]
struct TrueClock {
    offset: i64,
    drift: f64,
}

impl TrueClock {
    fn at(self, time: i64) -> i64 {
        self.offset + time + (time as f64 * self.drift).floor() as i64
    }
}

/// A message: the hosts, the true time, and how long it takes.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: usize,
    to: usize,
    sent: i64,
    delay: i64,
}

fn clocks(count: usize) -> impl Strategy<Value = Vec<TrueClock>> {
    // Up to an hour, or up to decades, which no clock is wrong by.
    prop::sample::select(&[1i64 << 42, 1 << 60]).prop_flat_map(move |most| {
        let offsets = prop_oneof![-10_000i64..10_000, -most..most];
        let clock = (offsets, -4e-4..4e-4).prop_map(|(offset, drift)| TrueClock { offset, drift });
        prop::collection::vec(clock, count)
    })
}

fn messages(hosts: usize, most: usize) -> impl Strategy<Value = Vec<Message>> {
    let length = prop_oneof![
        Just(1_000_000i64),
        Just(10_000_000_000),
        Just(86_400_000_000_000)
    ];
    length.prop_flat_map(move |length| {
        let message = (0..hosts, 1..hosts, 0..length, 20..2_000_000i64);
        let message = message.prop_map(move |(from, by, sent, delay)| Message {
            from,
            to: (from + by) % hosts,
            sent,
            delay,
        });
        prop::collection::vec(message, 1..most)
    })
}

/// The true time of the last event.
fn end(messages: &[Message]) -> i64 {
    let ends = messages.iter().map(|message| message.sent + message.delay);
    ends.max().unwrap_or(0)
}

/// What the hosts' traces have of the messages, and their first and last times.
fn traced(clocks: &[TrueClock], messages: &[Message]) -> (Pairs, Vec<(i64, i64)>) {
    let mut pairs = Pairs::new();
    let end = end(messages);
    for message in messages {
        let sent = clocks[message.from].at(message.sent);
        let received = clocks[message.to].at(message.sent + message.delay);
        let of = pairs.entry((message.from.min(message.to), message.from.max(message.to)));
        let of: &mut Messages = of.or_default();
        match message.from < message.to {
            true => of.add(sent, received, true),
            false => of.add(received, sent, false),
        }
    }
    let spans = clocks.iter().map(|clock| (clock.at(0), clock.at(end)));
    (pairs, spans.collect())
}

fn corrected(placement: &Placement, host: usize, ns: i64) -> Option<i64> {
    Some(placement.hosts[host].as_ref()?.correction.apply(ns))
}

/// Checks that all placed hosts' times are as far from the reference's as is said.
fn check_errors(
    placement: &Placement,
    clocks: &[TrueClock],
    end: i64,
) -> Result<(), TestCaseError> {
    let mut hosts = placement.hosts.iter();
    let reference = hosts.position(|placed| placed.as_ref().is_some_and(|p| p.neighbour.is_none()));
    let reference = clocks[reference.unwrap()];
    for (host, clock) in clocks.iter().enumerate() {
        let error = placement.hosts[host]
            .as_ref()
            .and_then(|placed| placed.error);
        let Some(error) = error else { continue };
        for time in [0, end / 3, end] {
            let here = corrected(placement, host, clock.at(time)).unwrap();
            let off = (i128::from(here) - i128::from(reference.at(time))).abs();
            prop_assert!(
                off as f64 <= error + 1.0,
                "host {host} at {time}: {off} > {error}"
            );
        }
    }
    Ok(())
}

/// Whether messages contradict the corrections by no more than the errors of both hosts.
fn errors_explain_contradictions(placement: &Placement) -> bool {
    // The reference has none.
    let error = |host: usize| {
        let placed = placement.hosts[host].as_ref();
        placed.and_then(|placed| placed.error).unwrap_or(0.0)
    };
    let explained = |contradiction: &Contradiction| {
        let (a, b) = contradiction.hosts;
        !contradiction.is_unused && contradiction.by <= error(a) + error(b) + 1.0
    };
    placement.contradictions.iter().all(explained)
}

fn check_order(
    placement: &Placement,
    clocks: &[TrueClock],
    messages: &[Message],
) -> Result<(), TestCaseError> {
    for message in messages {
        let time = |host: usize, time| corrected(placement, host, clocks[host].at(time));
        let sent = time(message.from, message.sent);
        let received = time(message.to, message.sent + message.delay);
        if let Some((sent, received)) = sent.zip(received) {
            prop_assert!(sent < received, "{message:?}: {sent} {received}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Messages between two hosts are received after they were sent, and the clocks' true
    /// difference is within the error.
    #[test]
    fn two_clocks_agree_within_the_error(clocks in clocks(2), messages in messages(2, 60)) {
        let (pairs, spans) = traced(&clocks, &messages);
        let placement = place(&pairs, &spans);
        prop_assert_eq!(&placement.contradictions, &[]);
        prop_assert!(placement.hosts.iter().all(Option::is_some));
        check_order(&placement, &clocks, &messages)?;
        check_errors(&placement, &clocks, end(&messages))?;
        let goes_both_ways = messages.iter().any(|message| message.from == 0)
            && messages.iter().any(|message| message.from == 1);
        for placed in placement.hosts.iter().flatten() {
            prop_assert!(placed.neighbour.is_none() || placed.error.is_some() == goes_both_ways);
        }
    }

    /// Likewise of several hosts. If clocks differ by decades, or messages go one way only, they
    /// may contradict the corrections, but then that is said. So may others, by what the errors of
    /// both hosts explain.
    #[test]
    fn several_clocks_agree_within_the_errors(clocks in clocks(4), messages in messages(4, 120)) {
        let (pairs, spans) = traced(&clocks, &messages);
        let placement = place(&pairs, &spans);
        check_errors(&placement, &clocks, end(&messages))?;
        // Clocks that are wrong by at most an hour, and messages in both directions.
        let is_near = clocks.iter().all(|clock| clock.offset.abs() <= 1 << 42);
        let mut placed = placement.hosts.iter().flatten();
        if is_near && placed.all(|placed| placed.is_accurate) {
            prop_assert!(errors_explain_contradictions(&placement), "{placement:?}");
        }
        if placement.contradictions.is_empty() {
            check_order(&placement, &clocks, &messages)?;
        }
    }

    /// Any times at all, as in a trace that somebody made up.
    #[test]
    fn any_times_are_accepted(
        all in prop::collection::vec((0..3usize, 1..3usize, any::<i64>(), any::<i64>()), 0..40),
        spans in prop::collection::vec(any::<(i64, i64)>(), 3),
    ) {
        let mut pairs = Pairs::new();
        for (from, by, sent, received) in all {
            let to = (from + by) % 3;
            let of = pairs.entry((from.min(to), from.max(to))).or_default();
            match from < to {
                true => of.add(sent, received, true),
                false => of.add(received, sent, false),
            }
        }
        let placement = place(&pairs, &spans);
        prop_assert_eq!(placement.hosts.len(), 3);
    }
}

/// The error shrinks to half of the shortest round trip, and drift is found, also one that is
/// larger than that of any crystal.
#[test]
fn many_messages_give_a_small_error() {
    for drift in [5e-5, -3e-4, 0.2, -0.2] {
        let reference = TrueClock {
            offset: 0,
            drift: 0.0,
        };
        let clocks = [
            reference,
            TrueClock {
                offset: 7_000_000_000,
                drift,
            },
        ];
        let mut random = 1u64;
        let messages: Vec<Message> = (0..20_000i64)
            .map(|n| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let (from, sent) = ((n % 2) as usize, n * 1_000_000);
                Message {
                    from,
                    to: 1 - from,
                    sent,
                    delay: 20_000 + (random >> 44) as i64,
                }
            })
            .collect();
        let (pairs, spans) = traced(&clocks, &messages);
        let placement = place(&pairs, &spans);
        let placed = placement.hosts[1].as_ref().unwrap();
        let error = placed.error.unwrap();
        assert!((19_000.0..40_000.0).contains(&error), "{error}");
        let found = 1.0 / (1.0 + placed.correction.drift()) - 1.0;
        assert!((found - drift).abs() < 1e-6, "{found}");
        check_order(&placement, &clocks, &messages).unwrap();
        check_errors(&placement, &clocks, end(&messages)).unwrap();
    }
}

/// One message in each direction is enough for an error that is finite: no crystal is far off.
#[test]
fn drift_is_limited_without_many_messages() {
    let mut pairs = Pairs::new();
    let of = pairs.entry((0, 1)).or_default();
    of.add(1000, 1500, true);
    of.add(3000, 2500, false);
    let hour = 3_600_000_000_000;
    let placement = place(&pairs, &[(0, hour); 2]);
    let error = placement.hosts[1].as_ref().unwrap().error.unwrap();
    // A millisecond in each second.
    assert!((3.6e9..3.7e9).contains(&error), "{error}");
}

/// Messages in both directions at the end say little about the beginning, hours earlier. A message
/// there can contradict the corrections, by what the errors explain.
#[test]
fn messages_far_from_others_contradict_within_the_errors() {
    let slow = TrueClock {
        offset: 0,
        drift: -0.000_226_113_163_283_629_76,
    };
    let right = TrueClock {
        offset: 0,
        drift: 0.0,
    };
    let clocks = [right, slow, right, right];
    let messages = [
        (2, 3, 0, 20),
        (1, 3, 14_903_949_048_920, 20),
        (3, 0, 0, 20),
        (2, 1, 14_903_925_214_900, 958_881),
        (1, 2, 14_855_489_516_223, 20),
        (0, 3, 0, 20),
        (3, 1, 967_549_585_941, 20),
    ];
    let messages = messages.map(|(from, to, sent, delay)| Message {
        from,
        to,
        sent,
        delay,
    });
    let (pairs, spans) = traced(&clocks, &messages);
    let placement = place(&pairs, &spans);
    assert!(!placement.contradictions.is_empty(), "{placement:?}");
    assert!(errors_explain_contradictions(&placement), "{placement:?}");
    check_errors(&placement, &clocks, end(&messages)).unwrap();
}

/// A key that repeats, or a clock that was set, makes messages that contradict each other. They are
/// not used, and the other hosts are synchronized.
#[test]
fn contradictory_messages_are_not_used() {
    let mut pairs = Pairs::new();
    for n in 0..10 {
        let of = pairs.entry((0, 1)).or_default();
        of.add(n * 1000, n * 1000 + 50, true);
        of.add(n * 1000 + 500, n * 1000 + 400, false);
        let of = pairs.entry((1, 2)).or_default();
        of.add(n * 1000, n * 1000 - 2_000_000, true);
        of.add(n * 1000 + 500, n * 1000 + 5_000_000, false);
    }
    let placement = place(&pairs, &[(0, 10_000); 3]);
    assert!(placement.hosts[1].is_some() && placement.hosts[2].is_none());
    let [contradiction] = placement.contradictions[..] else {
        panic!("{:?}", placement.contradictions);
    };
    assert!(contradiction.is_unused && contradiction.hosts == (1, 2));
    assert!(contradiction.by > 1e6);
}
