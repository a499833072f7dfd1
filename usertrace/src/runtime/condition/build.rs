//! Compiles the conditions of traces into the table, in an update.

use usertrace_expression::{Workspace, text_of_words};
use usertrace_sys::filter::{Condition, MAX_CONDITIONS, Rules, TriggerCondition};
use usertrace_sys::limits::{RULES_LEN, SLOTS};
use usertrace_sys::uapi::{LTT_EXPR_MAX, LTT_MAX_TRIGGERS};

use super::place::{PLACE_WORDS, Place, steps};
use super::quick_place::QuickPlace;
use super::quick_test::{QUICK_TEST_WORDS, QuickTest};
use super::table::{Bank, ConditionTable};
use super::trigger_list::{TriggerEntry, TriggerList};
use crate::context::{Apps, Kind};
use crate::event::{Callsite, IntegerPlace};
use crate::os::host;

/// Conditions that the rules of a trace can have. Each takes a rule and a piece, of 4 bytes or
/// more.
const CONDITIONS: usize = RULES_LEN / 8;

/// Chains of decisions by which equal ones are found.
const CHAINS: usize = 64;

/// Words of a decision before its conditions.
const HEAD: usize = Decision::QUICK_TEST + QUICK_TEST_WORDS;

/// A bit of a decision: it needs the address of the event.
const WANTS_IP: u32 = 1 << 31;

/// A bit of a decision: it has the places of a value and of a key.
const COUNTS: u32 = 1 << 30;

/// A bit of a [`TriggerList`] in the place of [`WANTS_IP`]'s word. No decision equals one with it.
const LIST: u32 = 1 << 29;

/// In the place of the expression of a trigger: it has none, and fires for any event.
const ANY: u16 = u16::MAX;

/// The bits of a decision with the next one of its chain.
const NEXT: u32 = 0xffff;

/// Memory that the compilation needs. All zeros is valid.
#[derive(Debug)]
#[repr(C)]
pub(in crate::runtime) struct Scratch {
    /// The expressions of each slot's trace: their offsets in the bank; 0: none.
    expressions: [[u16; CONDITIONS]; SLOTS],
    /// Those of its triggers; [`ANY`]: there is none; 0: it is unusable.
    triggers: [[u16; LTT_MAX_TRIGGERS]; SLOTS],
    /// The text of one expression, and its parser, which would take too much of a signal stack.
    text: [u8; LTT_EXPR_MAX],
    workspace: Workspace,
}

impl Scratch {
    /// The conditions of an event in a slot's trace; none if one is unusable.
    fn conditions(&self, slot: usize, conditions: &[Condition]) -> Option<Resolved> {
        let expressions = self.expressions.get(slot)?;
        let mut resolved = Resolved::default();
        for condition in conditions {
            let expression = *expressions.get(condition.number())?;
            resolved.push(expression, condition.refuses())?;
        }
        Some(resolved)
    }
}

/// The offsets of expressions that are compiled one after the other; 0: the expression is unusable.
struct Offsets<'a> {
    rest: std::slice::IterMut<'a, u16>,
    /// How many expressions are unusable.
    unusable: u32,
}

impl<'a> Offsets<'a> {
    fn of_slot<const N: usize>(all: &'a mut [[u16; N]; SLOTS], slot: usize) -> Self {
        let of_slot = all.get_mut(slot).map(<[u16; N]>::as_mut_slice);
        Self {
            rest: of_slot.unwrap_or_default().iter_mut(),
            unusable: 0,
        }
    }

    fn put(&mut self, compiled: Option<u16>) {
        self.unusable += u32::from(compiled.is_none());
        if let Some(offset) = self.rest.next() {
            *offset = compiled.unwrap_or(0);
        }
    }
}

/// Conditions with the offsets of their expressions.
#[derive(Clone, Copy, Debug, Default)]
struct Resolved {
    len: usize,
    list: [(u16, bool); MAX_CONDITIONS],
}

impl Resolved {
    /// Appends a condition: its expression, and whether it refuses. None if there is no expression.
    fn push(&mut self, expression: u16, refuses: bool) -> Option<()> {
        let place = self.list.get_mut(self.len).filter(|_| expression != 0)?;
        *place = (expression, refuses);
        self.len += 1;
        Some(())
    }

    fn list(&self) -> &[(u16, bool)] {
        self.list.get(..self.len).unwrap_or_default()
    }
}

/// What became of the conditions of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum Built {
    /// The offset of its decision in the table.
    Decision(u16),
    /// They are no expressions, or the table is full. The trace does not get the event.
    Unusable,
}

/// The words of a decision: the conditions of one event in one trace.
///
/// 1. The next decision of the chain (16 bits), the number of conditions (8), and of steps (8).
/// 2. The number of words (16 bits), the channel that counts the event (8), [`WANTS_IP`] and
///    [`COUNTS`].
/// 3. The [`QuickTest`], in [`QUICK_TEST_WORDS`].
/// 4. For each condition its expression (16 bits), the number of references (8), and whether it
///    refuses (8); then the places.
/// 5. With [`COUNTS`], the places of the value and the key that the event is counted by, and the
///    [`QuickPlace`] of each.
/// 6. The steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    head: u32,
    len: u32,
}

/// A condition of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compiled {
    /// The offset of the expression.
    pub(super) expression: usize,
    pub(super) references: usize,
    pub(super) refuses: bool,
}

impl Decision {
    /// The offset of the quick test in a decision.
    pub(super) const QUICK_TEST: usize = 2;

    #[inline]
    pub(super) fn read(table: &Bank, at: usize) -> Self {
        Self {
            head: table.word(at),
            len: table.word(at + 1),
        }
    }

    #[inline]
    fn next(self) -> u16 {
        (self.head & NEXT) as u16
    }

    #[inline]
    pub(super) fn condition_count(self) -> usize {
        (self.head >> 16 & 0xff) as usize
    }

    #[inline]
    pub(super) fn step_count(self) -> usize {
        (self.head >> 24) as usize
    }

    fn len(self) -> usize {
        usize::from(self.len as u16)
    }

    /// The offset of the first condition.
    #[inline]
    pub(super) fn conditions(self, at: usize) -> usize {
        at + HEAD
    }

    /// The offset of the steps.
    #[inline]
    pub(super) fn steps(self, at: usize) -> usize {
        (at + self.len()).saturating_sub(self.step_count())
    }

    /// The offset of the places of a value and a key, if it has these for a channel.
    #[inline]
    pub(super) fn counts(self, at: usize, channel: usize) -> Option<usize> {
        let is = self.len & COUNTS != 0 && (self.len >> 16 & 0xff) as usize == channel;
        is.then(|| self.steps(at).saturating_sub(COUNT_WORDS))
    }

    #[inline]
    pub(super) fn condition(self, table: &Bank, at: usize) -> Compiled {
        let word = table.word(at);
        Compiled {
            expression: usize::from(word as u16),
            references: (word >> 16 & 0xff) as usize,
            refuses: word >> 24 != 0,
        }
    }
}

impl ConditionTable {
    /// Whether a decision, or one of those in a list of triggers, needs the address of the event.
    pub(in crate::runtime) fn wants_ip(&self, decision: u16) -> bool {
        let (bank, at) = self.find(decision);
        Decision::read(bank, at).len & WANTS_IP != 0
    }

    /// Whether one comparison decides about most events of a decision.
    pub(in crate::runtime) fn has_quick_test(&self, decision: u16) -> bool {
        let (bank, at) = self.find(decision);
        decision != 0 && QuickTest::is_at(bank, at + Decision::QUICK_TEST)
    }

    /// Where the first words of a payload have the value and the key by which a channel counts an
    /// event. None if only an evaluation finds them.
    pub(in crate::runtime) fn integer_places(
        &self,
        decision: u16,
        channel: usize,
    ) -> Option<[IntegerPlace; 2]> {
        if decision == 0 {
            return Some([IntegerPlace::NONE; 2]);
        }
        let (bank, at) = self.find(decision);
        let Some(places) = Decision::read(bank, at).counts(at, channel) else {
            return Some([IntegerPlace::NONE; 2]);
        };
        let place = |n| QuickPlace::from_word(bank.word(places + 2 * PLACE_WORDS + n));
        Some([place(0).to_short()?, place(1).to_short()?])
    }

    /// Whether a decision has conditions.
    pub(in crate::runtime) fn has_conditions(&self, decision: u16) -> bool {
        let (bank, at) = self.find(decision);
        Decision::read(bank, at).condition_count() > 0
    }
}

/// What a channel counts an event by.
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime) struct CountNames<'a> {
    /// The index of the channel.
    pub(in crate::runtime) channel: usize,
    /// The field whose values it adds up.
    pub(in crate::runtime) value: Option<&'a [u8]>,
    /// The field or context whose values it tells apart.
    pub(in crate::runtime) key: Option<&'a [u8]>,
}

impl CountNames<'_> {
    fn is_empty(&self) -> bool {
        self.value.is_none() && self.key.is_none()
    }
}

/// Words of the places of a value and a key, and of their quick places.
const COUNT_WORDS: usize = 2 * PLACE_WORDS + 2;

/// Compiles the conditions of all traces.
///
/// First, `compile` and `resolve` store everything in a bank that no call site refers to. After
/// `finish`, `resolve` finds the same decisions again, and call sites may refer to them.
pub(in crate::runtime) struct Builder<'a> {
    table: &'a Bank,
    /// What decisions have beside their offset.
    bank: u16,
    is_finished: bool,
    /// The first decision of each chain; 0: none.
    chains: [u16; CHAINS],
    /// The place of the host's name, if that is known.
    host: Option<(u16, u16)>,
}

impl<'a> Builder<'a> {
    /// Begins with an empty bank. Signals must be blocked as long as the builder lives.
    pub(in crate::runtime) fn new(table: &'a ConditionTable) -> Self {
        let (table, bank) = table.other();
        table.begin();
        Self {
            table,
            bank,
            is_finished: false,
            chains: [0; CHAINS],
            host: push_host(table),
        }
    }

    /// Ends the store: from now on, call sites may refer to what was built.
    pub(in crate::runtime) fn finish(&mut self) {
        self.table.finish();
        self.is_finished = true;
    }

    /// Compiles the expressions of a slot's trace. Returns how many are unusable.
    pub(in crate::runtime) fn compile(
        &mut self,
        slot: usize,
        rules: &Rules,
        scratch: &mut Scratch,
    ) -> u32 {
        let table = self.table;
        let Scratch {
            expressions,
            text,
            workspace,
            ..
        } = scratch;
        let mut offsets = Offsets::of_slot(expressions, slot);
        rules.each_expression(text, |text| {
            offsets.put(text.and_then(|text| compile(table, text, workspace)));
        });
        offsets.unusable
    }

    /// Compiles the expressions of a slot's triggers. Returns how many are unusable.
    pub(in crate::runtime) fn compile_triggers(
        &mut self,
        slot: usize,
        rules: &Rules,
        scratch: &mut Scratch,
    ) -> u32 {
        let table = self.table;
        let Scratch {
            triggers,
            text,
            workspace,
            ..
        } = scratch;
        let mut offsets = Offsets::of_slot(triggers, slot);
        rules.each_trigger(text, |condition| {
            offsets.put(match condition {
                TriggerCondition::None => Some(ANY),
                TriggerCondition::If(text) => compile(table, text, workspace),
                TriggerCondition::TooLong => None,
            });
        });
        offsets.unusable
    }

    /// Resolves the names in the conditions that a slot's trace has for an event, and those that
    /// it is counted by.
    pub(in crate::runtime) fn resolve(
        &mut self,
        slot: usize,
        callsite: &Callsite,
        (conditions, counts): (Option<&[Condition]>, Option<CountNames<'_>>),
        scratch: &mut Scratch,
        apps: &Apps,
    ) -> Built {
        let counts = counts.filter(|names| !names.is_empty());
        if counts.is_none() && conditions.is_some_and(<[_]>::is_empty) {
            return Built::Decision(0);
        }
        let conditions = conditions.and_then(|conditions| scratch.conditions(slot, conditions));
        let decision = conditions.and_then(|conditions| {
            let conditions = conditions.list();
            self.whole(|builder| builder.decision(callsite, (conditions, counts), scratch, apps))
        });
        decision.map_or(Built::Unusable, |offset| {
            Built::Decision(self.bank | offset)
        })
    }

    /// Adds a trigger of a slot's trace, whose pattern matches an event, to the triggers of that
    /// event. `index` is that of [`Rules::matching_triggers`]. A trigger whose condition is
    /// unusable is left out, because nothing fires it.
    pub(in crate::runtime) fn resolve_trigger(
        &mut self,
        (slot, index, number): (usize, usize, u8),
        callsite: &Callsite,
        scratch: &mut Scratch,
        apps: &Apps,
        list: &mut TriggerList,
    ) {
        let of_slot = scratch.triggers.get(slot);
        let expression = of_slot.and_then(|of_slot| of_slot.get(index).copied());
        let decision = match expression {
            None | Some(0) => None,
            Some(ANY) => Some(0),
            Some(expression) => {
                let conditions = [(expression, false)];
                self.whole(|builder| builder.decision(callsite, (&conditions, None), scratch, apps))
            }
        };
        if let Some(decision) = decision {
            list.push(TriggerEntry {
                slot: slot as u8,
                number,
                decision,
            });
        }
    }

    /// Stores the triggers of an event. Returns what its call site refers to them by; 0: there are
    /// none, or the table is full.
    pub(in crate::runtime) fn keep_triggers(&mut self, list: &TriggerList) -> u16 {
        if list.is_empty() {
            return 0;
        }
        let offset = self.whole(|builder| {
            let table = builder.table;
            let start = table.end();
            let wants_ip = list.entries().any(|entry| {
                let decision = usize::from(entry.decision);
                decision != 0 && Decision::read(table, decision).len & WANTS_IP != 0
            });
            let ip = if wants_ip { WANTS_IP } else { 0 };
            table.push(0)?;
            table.push(LIST | ip)?;
            for entry in list.entries() {
                table.push(entry.to_word())?;
            }
            builder.find_or_keep(start, (list.len() as u32) << 16)
        });
        offset.map_or(0, |offset| self.bank | offset)
    }

    /// Runs `build`, and removes what it has stored if it returns none.
    fn whole(&mut self, build: impl FnOnce(&mut Self) -> Option<u16>) -> Option<u16> {
        let end = self.table.end();
        let built = build(self);
        if built.is_none() {
            self.table.truncate(end);
        }
        built
    }

    /// Stores what decides about an event: expressions, and whether each refuses.
    fn decision(
        &mut self,
        callsite: &Callsite,
        (conditions, counts): (&[(u16, bool)], Option<CountNames<'_>>),
        scratch: &mut Scratch,
        apps: &Apps,
    ) -> Option<u16> {
        let table = self.table;
        let start = table.end();
        (0..HEAD).try_for_each(|_| table.push(0))?;
        let (mut step_count, mut wants_ip, mut quick) = (0u8, false, None);
        for &(expression, refuses) in conditions {
            let at = table.end();
            table.push(0)?;
            let description = callsite.description();
            let places = self.push_places(expression, description, scratch, apps)?;
            if quick.is_none() && !refuses {
                quick = places.quick;
            }
            step_count = step_count.max(places.step_count);
            wants_ip |= places.has_ip;
            let count = (table.end() - at) / PLACE_WORDS as u32;
            let word = u32::from(expression) | count << 16 | u32::from(refuses) << 24;
            table.set(at as usize, word);
        }
        let mut flags = 0;
        if let Some(names) = counts {
            flags |= COUNTS | (names.channel as u32 & 0xff) << 16;
            let mut quick = [0; 2];
            for ((name, is), quick) in [
                (names.value, Place::is_integer as fn(&Place) -> bool),
                (names.key, Place::is_key),
            ]
            .into_iter()
            .zip(&mut quick)
            {
                let description = callsite.description();
                let (places, word) = self.push_named(name, is, description, scratch, apps)?;
                step_count = step_count.max(places.step_count);
                wants_ip |= places.has_ip;
                *quick = word.to_word();
            }
            quick.into_iter().try_for_each(|word| table.push(word))?;
        }
        for step in steps(callsite.description()).take(step_count.into()) {
            table.push(step.to_word())?;
        }
        flags |= if wants_ip { WANTS_IP } else { 0 };
        table.set(start as usize + 1, (table.end() - start) | flags);
        if conditions.len() > 1 {
            quick = quick.map(QuickTest::as_part);
        }
        let quick = quick.map_or([0; QUICK_TEST_WORDS], QuickTest::to_words);
        for (at, word) in (start as usize + Decision::QUICK_TEST..).zip(quick) {
            table.set(at, word);
        }
        let head = (conditions.len() as u32) << 16 | u32::from(step_count) << 24;
        self.find_or_keep(start, head)
    }

    /// Appends the places of what an expression refers to in the event with this description.
    #[inline(never)]
    fn push_places(
        &mut self,
        expression: u16,
        description: &str,
        scratch: &mut Scratch,
        apps: &Apps,
    ) -> Option<Places> {
        let Scratch {
            text, workspace, ..
        } = scratch;
        let mut len = 0;
        for byte in text_of_words(self.table.part(expression.into())) {
            *text.get_mut(len)? = byte;
            len += 1;
        }
        let text = text.get(..len)?;
        // It was parsed before.
        let expression = workspace.parse(text).ok()?;
        let mut places = Places::default();
        let test = expression.first_test();
        for (at, reference) in (0..).zip(expression.references(text)) {
            let place = Place::resolve(&reference, description, apps, self.host);
            if let Place::Field { steps, .. } = place {
                places.step_count = places.step_count.max(steps);
            }
            if let Some(test) = test.filter(|test| test.reference == at) {
                places.quick = QuickTest::new(test, place);
            }
            places.has_ip |= place == Place::Context(Kind::Ip);
            for word in place.to_words() {
                self.table.push(word)?;
            }
        }
        Some(places)
    }

    /// Appends the place of what a name refers to in the event with this description. Other values
    /// than those that `is` accepts count as missing.
    #[inline(never)]
    fn push_named(
        &mut self,
        name: Option<&[u8]>,
        is: fn(&Place) -> bool,
        description: &str,
        scratch: &mut Scratch,
        apps: &Apps,
    ) -> Option<(Places, QuickPlace)> {
        let place = name.map_or(Place::Missing, |name| {
            // A name is an expression.
            let expression = scratch.workspace.parse(name).ok();
            let reference = expression.and_then(|expression| expression.references(name).next());
            reference.map_or(Place::Missing, |reference| {
                Place::resolve(&reference, description, apps, self.host)
            })
        });
        let place = if is(&place) { place } else { Place::Missing };
        for word in place.to_words() {
            self.table.push(word)?;
        }
        let places = Places {
            step_count: match place {
                Place::Field { steps, .. } => steps,
                _ => 0,
            },
            has_ip: place == Place::Context(Kind::Ip),
            quick: None,
        };
        Some((places, QuickPlace::new(place)))
    }

    /// The offset of a decision that is equal to the last one, which is removed then; or that of
    /// the last one. `head` completes its first word.
    fn find_or_keep(&mut self, start: u32, head: u32) -> Option<u16> {
        let table = self.table;
        let offset = u16::try_from(start).ok()?;
        let len = table.end() - start;
        let words = |at: u32| (1..len).map(move |n| table.word((at + n) as usize));
        let hash = words(start).fold(head, |hash, word| {
            (hash ^ word).wrapping_mul(0x9e37_79b1).rotate_left(15)
        });
        let chain = self.chains.get_mut(hash as usize % CHAINS)?;
        let mut known = *chain;
        while known != 0 {
            let decision = Decision::read(table, known.into());
            let is_same = decision.head & !NEXT == head;
            if is_same && words(known.into()).eq(words(start)) {
                table.truncate(start);
                return Some(known);
            }
            known = decision.next();
        }
        if self.is_finished {
            // The table was full.
            return None;
        }
        table.set(start as usize, head | u32::from(*chain));
        *chain = offset;
        Some(offset)
    }
}

/// What an expression refers to in an event.
#[derive(Debug, Default)]
struct Places {
    /// The fields of variable length before its fields.
    step_count: u8,
    /// The event's address is among them.
    has_ip: bool,
    quick: Option<QuickTest>,
}

/// Appends the name of the host. Returns its place: its words in the table, and bytes.
fn push_host(table: &Bank) -> Option<(u16, u16)> {
    let at = u16::try_from(table.end()).ok()?;
    let mut name = [0; host::NAME_LEN];
    let len = host::name(&mut name)?;
    for chunk in name.get(..len)?.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        table.push(u32::from_le_bytes(word))?;
    }
    Some((at, u16::try_from(len).ok()?))
}

/// Appends a compiled expression, and returns its offset. None if the text is no expression, or
/// the table is full.
#[inline(never)]
fn compile(table: &Bank, text: &[u8], workspace: &mut Workspace) -> Option<u16> {
    let expression = workspace.parse(text).ok()?;
    let start = table.end();
    let offset = u16::try_from(start).ok()?;
    let pushed = (expression.compile(text)).try_for_each(|word| table.push(word));
    if pushed.is_none() {
        table.truncate(start);
    }
    pushed.map(|()| offset)
}
