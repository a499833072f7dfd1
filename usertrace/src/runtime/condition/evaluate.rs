//! Evaluates conditions on an event that is about to be recorded. Async-signal-safe: nothing here
//! allocates, locks, waits, or changes `errno`.

use usertrace_expression::{Integer as Number, Source, Value, evaluate_words};
use usertrace_sys::description::{Integer, Scalar, label_of};
use usertrace_sys::word::decoded;

use super::build::Decision;
use super::payload_bytes::{PayloadBytes, WINDOW};
use super::place::{PLACE_WORDS, Part, Place, Step};
use super::quick_place::QuickPlace;
use super::quick_test::{QuickAnswer, QuickTest};
use super::table::{Bank, ConditionTable};
use super::trigger_list::{self, TriggerList};
use crate::context::{ContextSources, ContextValue};
use crate::event::{Callsite, FirstWords};
use crate::writer::{CountKey, Counted, CountedValue, Payload};

/// Bytes of texts that the conditions of an event may read, apart from [`PER_BYTE`]. A pattern can
/// retry at each byte of a text.
const READS: usize = 16 << 10;

/// Bytes that they may read for each byte of the event.
const PER_BYTE: usize = 8;

/// Attempts to evaluate conditions that updates replace meanwhile.
const TRIES: usize = 8;

/// The answer of one comparison, without which the conditions of a decision refuse an event. Most
/// events that they refuse need nothing else. `first` are the first words of the payload,
/// which has no others if `all` is none. `is_current` says whether the call site still has the
/// decision.
#[inline(always)]
pub(in crate::runtime) fn test_quickly(
    table: &ConditionTable,
    decision: u16,
    (first, all): (FirstWords, Option<&[u64]>),
    is_current: impl FnOnce() -> bool,
) -> QuickAnswer {
    if decision == 0 {
        return QuickAnswer::Unknown;
    }
    let (bank, at) = table.find(decision);
    let test = bank.read(
        #[inline(always)]
        || QuickTest::load(bank, at + Decision::QUICK_TEST),
    );
    // As in `lets`.
    match test {
        Some(test) if is_current() => test.answer(first, all),
        _ => QuickAnswer::Unknown,
    }
}

/// Whether the conditions of a slot's trace let an event through. `contexts` has the values of
/// contexts.
///
/// If updates replace the conditions again and again, or the conditions read too many bytes, the
/// event is let through.
#[inline]
pub(in crate::runtime) fn lets(
    table: &ConditionTable,
    callsite: &Callsite,
    slot: usize,
    payload: Payload<'_>,
    contexts: &ContextSources<'_>,
) -> bool {
    for _ in 0..TRIES {
        let decision = callsite.decision(slot);
        if decision == 0 {
            return true;
        }
        let (bank, at) = table.find(decision);
        let description = callsite.description();
        let lets = bank.read(|| decide(bank, at, payload, contexts, description).unwrap_or(true));
        // If the bank was filled again since the decision was loaded, the call site had another one
        // before: an update begins with a bank only when no call site refers to it. `read` has a
        // fence between the words and this load.
        if callsite.decision(slot) == decision
            && let Some(lets) = lets
        {
            return lets;
        }
    }
    true
}

/// Finds the triggers that an event fires. `contexts` has the values of contexts.
///
/// If updates replace the triggers again and again, there are none. A trigger whose condition reads
/// too many bytes is left out.
#[inline(never)]
pub(in crate::runtime) fn find_fired(
    table: &ConditionTable,
    callsite: &Callsite,
    payload: Payload<'_>,
    contexts: &ContextSources<'_>,
    fired: &mut TriggerList,
) {
    for _ in 0..TRIES {
        fired.clear();
        let list = callsite.triggers();
        if list == 0 {
            return;
        }
        let (bank, at) = table.find(list);
        let collect = || {
            let triggers = trigger_list::stored(bank, at);
            let matching =
                triggers.filter(|entry| fires(bank, entry.decision, payload, contexts, callsite));
            matching.for_each(|entry| fired.push(entry));
        };
        let is_whole = bank.read(collect).is_some();
        // As in `lets`.
        if is_whole && callsite.triggers() == list {
            return;
        }
    }
    fired.clear();
}

/// Whether an event fires a trigger with this decision.
fn fires(
    bank: &Bank,
    decision: u16,
    payload: Payload<'_>,
    contexts: &ContextSources<'_>,
    callsite: &Callsite,
) -> bool {
    let at = usize::from(decision);
    if at == 0 {
        return true;
    }
    let quick = match payload {
        Payload::Words(words) => {
            let test = QuickTest::load(bank, at + Decision::QUICK_TEST);
            test.answer(FirstWords::of(words), Some(words))
        }
        Payload::Made { .. } => QuickAnswer::Unknown,
    };
    match quick {
        QuickAnswer::Refused => false,
        QuickAnswer::Accepted => true,
        QuickAnswer::Unknown => {
            decide(bank, at, payload, contexts, callsite.description()) == Some(true)
        }
    }
}

/// Whether all conditions of a decision let the event through; none if they read too many bytes.
#[inline]
fn decide(
    bank: &Bank,
    at: usize,
    payload: Payload<'_>,
    contexts: &ContextSources<'_>,
    description: &str,
) -> Option<bool> {
    with_bytes(payload, |bytes| {
        all_let(bank, at, contexts, description, bytes)
    })
}

/// Calls `read` with the bytes of a payload.
#[inline]
fn with_bytes<T>(payload: Payload<'_>, read: impl FnOnce(PayloadBytes<'_>) -> T) -> T {
    match payload {
        Payload::Words(words) => read(PayloadBytes::words(words)),
        Payload::Made { len, fill } => {
            let mut window = [0; WINDOW];
            read(PayloadBytes::made(len, fill, &mut window))
        }
    }
}

/// What a channel of a slot's trace counts of an event. `contexts` has the values of contexts.
///
/// If an update has just moved the event to this channel, that is the event alone. None if updates
/// replace the places again and again.
#[inline]
pub(in crate::runtime) fn counted(
    table: &ConditionTable,
    callsite: &Callsite,
    (slot, channel): (usize, usize),
    payload: Payload<'_>,
    contexts: &ContextSources<'_>,
) -> Option<Counted> {
    for _ in 0..TRIES {
        let decision = callsite.decision(slot);
        if decision == 0 {
            return Some(Counted::PLAIN);
        }
        let (bank, at) = table.find(decision);
        let description = callsite.description();
        let take = || {
            with_bytes(payload, |bytes| {
                counted_at(bank, (at, channel), contexts, description, bytes)
            })
        };
        let counted = bank.read(take);
        // As in `lets`.
        if callsite.decision(slot) == decision && counted.is_some() {
            return counted;
        }
    }
    None
}

/// What a channel counts of an event by a decision, if value and key are integers at constant
/// offsets. `is_current` says whether the call site still has the decision. None: [`counted`] finds
/// it.
#[inline]
pub(in crate::runtime) fn counted_quickly(
    table: &ConditionTable,
    decision: u16,
    channel: usize,
    payload: &[u64],
    is_current: impl FnOnce() -> bool,
) -> Option<Counted> {
    if decision == 0 {
        return Some(Counted::PLAIN);
    }
    let (bank, at) = table.find(decision);
    let take = || {
        let read = Decision::read(bank, at);
        let Some(places) = read.counts(at, channel) else {
            return Some(Counted::PLAIN);
        };
        let places = places + 2 * PLACE_WORDS;
        let quick = |n| QuickPlace::from_word(bank.word(places + n)).value(payload);
        let value = quick(0)?.map(|(of, bits)| CountedValue {
            bits,
            signed: of.signed,
        });
        let key = quick(1)?.map_or(CountKey::NONE, |(_, bits)| CountKey::number(bits));
        Some(Counted { value, key })
    };
    let counted = bank.read(take)?;
    // As in `lets`.
    counted.filter(|_| is_current())
}

/// What a decision says that a channel counts of an event.
#[inline]
fn counted_at(
    bank: &Bank,
    (at, channel): (usize, usize),
    contexts: &ContextSources<'_>,
    description: &str,
    bytes: PayloadBytes<'_>,
) -> Counted {
    let decision = Decision::read(bank, at);
    let Some(places) = decision.counts(at, channel) else {
        return Counted::PLAIN;
    };
    let values = &mut Values {
        left: READS.saturating_add(bytes.len().saturating_mul(PER_BYTE)),
        bank,
        contexts,
        places,
        steps: decision.steps(at),
        step_count: decision.step_count(),
        bytes,
        description,
    };
    let value = match values.value(0) {
        Value::Signed(number) => Some((number.cast_unsigned(), true)),
        Value::Unsigned(number) => Some((number, false)),
        Value::Bool(is) => Some((is.into(), false)),
        Value::Enumeration(Number::Signed(number), _) => Some((number.cast_unsigned(), true)),
        Value::Enumeration(Number::Unsigned(number), _) => Some((number, false)),
        _ => None,
    };
    let key = match values.value(1) {
        Value::Signed(number) | Value::Enumeration(Number::Signed(number), _) => {
            CountKey::number(number.cast_unsigned())
        }
        Value::Unsigned(number) | Value::Enumeration(Number::Unsigned(number), _) => {
            CountKey::number(number)
        }
        Value::Bool(is) => CountKey::number(is.into()),
        Value::Text(text) => {
            let bytes = (0..).map_while(|at| values.byte(text, at));
            CountKey::text(bytes)
        }
        _ => CountKey::NONE,
    };
    Counted {
        value: value.map(|(bits, signed)| CountedValue { bits, signed }),
        key,
    }
}

/// As [`decide`].
#[inline(never)]
fn all_let(
    bank: &Bank,
    at: usize,
    contexts: &ContextSources<'_>,
    description: &str,
    bytes: PayloadBytes<'_>,
) -> Option<bool> {
    let left = READS.saturating_add(bytes.len().saturating_mul(PER_BYTE));
    let values = &mut Values {
        left,
        bank,
        contexts,
        places: 0,
        steps: 0,
        step_count: 0,
        bytes,
        description,
    };
    let decision = Decision::read(bank, at);
    (values.steps, values.step_count) = (decision.steps(at), decision.step_count());
    let mut at = decision.conditions(at);
    for _ in 0..decision.condition_count() {
        let condition = decision.condition(bank, at);
        values.places = at + 1;
        let answer = evaluate_words(bank.part(condition.expression), values);
        if values.left == 0 {
            return None;
        }
        if answer.is_match() == condition.refuses {
            return Some(false);
        }
        at += 1 + PLACE_WORDS * condition.references;
    }
    Some(true)
}

/// The values of an event.
struct Values<'a> {
    /// How many bytes of texts may still be read.
    left: usize,
    bank: &'a Bank,
    contexts: &'a ContextSources<'a>,
    /// Where the bank has the places of the condition that is evaluated.
    places: usize,
    /// Where it has the variable fields of the event, and how many.
    steps: usize,
    step_count: usize,
    bytes: PayloadBytes<'a>,
    description: &'a str,
}

/// A text of an event.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    /// Bytes of the payload up to a NUL, at most these.
    Field { start: usize, len: usize },
    /// The label of an enumeration, encoded.
    Label(&'a str),
    /// A name of a thread.
    Name([u8; 16]),
    /// Bytes of the bank.
    Words { start: usize, len: usize },
}

/// The labels of an enumeration's value, in the description.
#[derive(Clone, Copy, Debug)]
struct Labels<'a> {
    rest: &'a str,
    value: i128,
}

impl<'a> Source for Values<'a> {
    type Text = Text<'a>;
    type Labels = Labels<'a>;

    #[inline]
    fn value(&mut self, reference: usize) -> Value<Text<'a>, Labels<'a>> {
        let at = self.places + PLACE_WORDS * reference;
        let words = std::array::from_fn(|n| self.bank.word(at + n));
        match Place::from_words(words) {
            Place::Missing => Value::Missing,
            Place::Field { part, steps, at } => {
                self.field(part, steps, at).unwrap_or(Value::Missing)
            }
            Place::Context(kind) => match self.contexts.value(kind) {
                ContextValue::Number(number) => Value::Unsigned(number),
                ContextValue::Name(name) => Value::Text(Text::Name(name)),
            },
            Place::Host { at, len } => Value::Text(Text::Words {
                start: 4 * usize::from(at),
                len: len.into(),
            }),
        }
    }

    #[inline]
    fn byte(&mut self, text: Text<'a>, at: usize) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        let byte = match text {
            Text::Field { start, len } if at < len => self.bytes.byte(start.checked_add(at)?),
            Text::Field { .. } => None,
            Text::Label(label) => decoded(label).nth(at)?,
            Text::Name(name) => name.get(at).copied(),
            Text::Words { start, len } if at < len => {
                let at = start + at;
                let word = self.bank.word(at / 4).to_le_bytes();
                word.get(at % 4).copied()
            }
            Text::Words { .. } => None,
        };
        byte.filter(|byte| *byte != 0)
    }

    fn next_label(&mut self, labels: &mut Labels<'a>) -> Option<Text<'a>> {
        let (label, rest) = label_of(labels.rest, labels.value)?;
        labels.rest = rest;
        Some(Text::Label(label))
    }
}

impl<'a> Values<'a> {
    #[inline]
    fn field(&mut self, part: Part, steps: u8, at: u32) -> Option<Value<Text<'a>, Labels<'a>>> {
        let start = match steps {
            0 => at as usize,
            steps => self.walk(steps.into())?.checked_add(at as usize)?,
        };
        Some(match part {
            Part::Number(of) => self.number(of, start),
            Part::Text => Value::Text(Text::Field {
                start,
                len: usize::MAX,
            }),
            Part::Array { len } => Value::Text(Text::Field {
                start,
                len: len.into(),
            }),
            Part::Sequence => Value::Text(Text::Field {
                start: start.checked_add(4)?,
                len: self.count(start),
            }),
            Part::Count => Value::Unsigned(self.count(start) as u64),
            Part::Element { of, index } => {
                let index = index as usize;
                if index >= self.count(start) {
                    return None;
                }
                let at = start.checked_add(4)?;
                self.number(of, at.checked_add(index.checked_mul(of.size())?)?)
            }
            Part::Enumeration { of, at, len } => {
                let at = usize::from(at);
                let labels = self.description.get(at..at + usize::from(len));
                let rest = labels.unwrap_or_default();
                let bits = self.integer(of, start);
                let (number, value) = match of.signed {
                    true => (
                        Number::Signed(bits.cast_signed()),
                        bits.cast_signed().into(),
                    ),
                    false => (Number::Unsigned(bits), bits.into()),
                };
                Value::Enumeration(number, Labels { rest, value })
            }
        })
    }

    /// The offset behind fields of variable length.
    #[inline(never)]
    fn walk(&mut self, steps: usize) -> Option<usize> {
        let mut at = 0usize;
        for n in 0..steps.min(self.step_count) {
            let step = Step::from_word(self.bank.word(self.steps + n));
            at = at.checked_add(step.before as usize)?;
            if step.element == 0 {
                while self.bytes.byte(at)? != 0 {
                    self.left = self.left.checked_sub(1)?;
                    at += 1;
                }
                at += 1;
            } else {
                let len = self.count(at).checked_mul(step.element.into())?;
                at = at.checked_add(4)?.checked_add(len)?;
            }
            if at > self.bytes.len() {
                return None;
            }
        }
        Some(at)
    }

    /// The number of elements of a sequence.
    fn count(&mut self, at: usize) -> usize {
        u32::from_ne_bytes(self.bytes.take(at)) as usize
    }

    #[inline]
    fn number(&mut self, of: Scalar, at: usize) -> Value<Text<'a>, Labels<'a>> {
        match of {
            Scalar::Integer(of) if of.signed => Value::Signed(self.integer(of, at).cast_signed()),
            Scalar::Integer(of) => Value::Unsigned(self.integer(of, at)),
            Scalar::Bool => Value::Bool(self.bytes.take::<1>(at) != [0]),
            Scalar::Float { len: 4 } => {
                Value::Float(f32::from_ne_bytes(self.bytes.take(at)).into())
            }
            Scalar::Float { .. } => Value::Float(f64::from_ne_bytes(self.bytes.take(at))),
        }
    }

    /// An integer, sign-extended.
    #[inline]
    fn integer(&mut self, of: Integer, at: usize) -> u64 {
        let word = u64::from_le_bytes(self.bytes.take(at));
        let unused = 64 - 8 * u32::from(of.len.clamp(1, 8));
        let word = match of.big_endian {
            true => word.swap_bytes() >> unused,
            false => word,
        };
        match of.signed {
            true => ((word << unused).cast_signed() >> unused).cast_unsigned(),
            false => word << unused >> unused,
        }
    }
}
