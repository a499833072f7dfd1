//! Finds the rule of an instruction in the unwind tables of its object: `.eh_frame_hdr` and
//! `.eh_frame`.
//!
//! `gimli` parses the tables. Its interpreter keeps the rules of all registers, which takes
//! kilobytes of stack, and events may be written on small signal stacks. The one here follows the
//! two registers that a walk needs. A test compares both.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, EhFrame, EhFrameHdr, Encoding,
    EndianSlice, Expression, FrameDescriptionEntry, NativeEndian, Operation, Register,
    UnwindExpression, UnwindSection,
};

use super::rule::{Base, Rule, Saved, TableRule};
use crate::os::linker::UnwindTables;

/// The numbers of registers in tables: frame pointer, stack pointer, and the return address.
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const FRAME_POINTER: u16 = 6;
    pub(super) const STACK_POINTER: u16 = 7;
    pub(super) const RETURN_ADDRESS: u16 = 16;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const FRAME_POINTER: u16 = 29;
    pub(super) const STACK_POINTER: u16 = 31;
    pub(super) const RETURN_ADDRESS: u16 = 30;
}

const FRAME_POINTER: Register = Register(number::FRAME_POINTER);
const STACK_POINTER: Register = Register(number::STACK_POINTER);
const RETURN_ADDRESS: Register = Register(number::RETURN_ADDRESS);

/// The head of `.eh_frame_hdr` that linkers make: the version, the encodings of the address of
/// `.eh_frame` (any), of the number of entries (4 bytes), and of the entries (two offsets of 4
/// bytes from this head).
const VERSION: u8 = 1;
const COUNT_ENCODING: u8 = 0x03;
const ENTRY_ENCODING: u8 = 0x3b;
/// Longest table that is read for an instruction. Those of compilers are much shorter.
const MAX_INSTRUCTIONS: usize = 1 << 14;
/// Rows that a table may remember at a time. Those of compilers remember one.
const MAX_REMEMBERED: usize = 4;

const WORD: i64 = size_of::<usize>() as i64;

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// The rule of the instruction at `address`, by the tables of the object that has it. None if they
/// have no rule for it, or one that is not supported.
///
/// Async-signal-safe. The tables may contain anything.
pub(super) fn find(address: usize, tables: &UnwindTables<'_>) -> Option<Rule> {
    let start = tables.segment.as_ptr().addr();
    let head = tables.segment.get(tables.head.checked_sub(start)?..)?;
    let &[VERSION, _, COUNT_ENCODING, ENTRY_ENCODING, ..] = head else {
        return None;
    };
    // Offsets are from the begin of the segment: entries refer to each other.
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(tables.head as u64)
        .set_eh_frame(start as u64);
    let word = size_of::<usize>() as u8;
    let parsed = EhFrameHdr::new(head, NativeEndian).parse(&bases, word);
    let parsed = parsed.ok()?;
    let entry = parsed.table()?.lookup(address as u64, &bases).ok()?;
    let offset = entry.direct().ok()?.checked_sub(start as u64)?;
    let mut section = EhFrame::new(tables.segment, NativeEndian);
    section.set_address_size(word);
    section.set_vendor(VENDOR);
    let offset = usize::try_from(offset).ok()?.into();
    let entry = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset);
    let entry = entry.ok().filter(|entry| entry.contains(address as u64))?;
    rule(&section, &bases, &entry, address as u64)
}

#[cfg(target_arch = "x86_64")]
const VENDOR: gimli::Vendor = gimli::Vendor::Default;
#[cfg(target_arch = "aarch64")]
const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;

/// Where a table says that the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unchanged,
    /// The register has no value: nobody called the function.
    None,
    /// Bytes from the canonical address.
    Offset(i64),
    At(UnwindExpression<usize>),
    Unsupported,
}

/// Where a table says that the canonical address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Canonical {
    Offset(Register, i64),
    Is(UnwindExpression<usize>),
}

/// What a table says for a range of instructions.
#[derive(Clone, Copy, Debug)]
struct Row {
    canonical: Option<Canonical>,
    frame_pointer: Place,
    return_address: Place,
}

impl Row {
    /// The place of a register that a walk needs.
    fn place(&mut self, register: Register) -> Option<&mut Place> {
        match register {
            FRAME_POINTER => Some(&mut self.frame_pointer),
            RETURN_ADDRESS => Some(&mut self.return_address),
            _ => None,
        }
    }

    fn set(&mut self, register: Register, place: Place) {
        if let Some(of) = self.place(register) {
            *of = place;
        }
    }
}

/// The interpreter of a table, up to the row of an address.
#[derive(Debug)]
struct Interpreter {
    row: Row,
    /// The row of the entry that others share, which this one begins with.
    initial: Row,
    remembered: [Row; MAX_REMEMBERED],
    nr_remembered: usize,
    location: u64,
    code_factor: u64,
    data_factor: i64,
    budget: usize,
}

impl Interpreter {
    fn new(entry: &FrameDescriptionEntry<Bytes<'_>>) -> Self {
        let row = Row {
            canonical: None,
            frame_pointer: Place::Unchanged,
            return_address: Place::Unchanged,
        };
        Self {
            row,
            initial: row,
            remembered: [row; MAX_REMEMBERED],
            nr_remembered: 0,
            location: entry.initial_address(),
            code_factor: entry.cie().code_alignment_factor(),
            data_factor: entry.cie().data_alignment_factor(),
            budget: MAX_INSTRUCTIONS,
        }
    }

    /// Runs instructions, until a row begins behind `address`. None if one is invalid.
    fn run(
        &mut self,
        mut instructions: CallFrameInstructionIter<'_, Bytes<'_>>,
        address: u64,
    ) -> Option<()> {
        while let Some(instruction) = instructions.next().ok()? {
            self.budget = self.budget.checked_sub(1)?;
            match instruction {
                CallFrameInstruction::SetLoc { address } => self.location = address,
                CallFrameInstruction::AdvanceLoc { delta } => {
                    let delta = u64::from(delta).wrapping_mul(self.code_factor);
                    self.location = self.location.wrapping_add(delta);
                }
                other => {
                    self.change(other)?;
                    continue;
                }
            }
            if self.location > address {
                break;
            }
        }
        Some(())
    }

    fn change(&mut self, instruction: CallFrameInstruction<usize>) -> Option<()> {
        use CallFrameInstruction as I;
        let factored = |offset: i64| offset.wrapping_mul(self.data_factor);
        match instruction {
            I::DefCfa { register, offset } => {
                self.row.canonical = Some(Canonical::Offset(register, offset as i64));
            }
            I::DefCfaSf {
                register,
                factored_offset,
            } => {
                let offset = factored(factored_offset);
                self.row.canonical = Some(Canonical::Offset(register, offset));
            }
            I::DefCfaRegister { register } => match &mut self.row.canonical {
                Some(Canonical::Offset(of, _)) => *of = register,
                _ => return None,
            },
            I::DefCfaOffset { offset } => self.set_offset(offset as i64)?,
            I::DefCfaOffsetSf { factored_offset } => self.set_offset(factored(factored_offset))?,
            I::DefCfaExpression { expression } => {
                self.row.canonical = Some(Canonical::Is(expression));
            }
            I::Undefined { register } => self.row.set(register, Place::None),
            I::SameValue { register } => self.row.set(register, Place::Unchanged),
            I::Offset {
                register,
                factored_offset,
            } => {
                let offset = factored(factored_offset as i64);
                self.row.set(register, Place::Offset(offset));
            }
            I::OffsetExtendedSf {
                register,
                factored_offset,
            } => {
                let offset = factored(factored_offset);
                self.row.set(register, Place::Offset(offset));
            }
            I::Expression {
                register,
                expression,
            } => self.row.set(register, Place::At(expression)),
            I::ValOffset { register, .. }
            | I::ValOffsetSf { register, .. }
            | I::ValExpression { register, .. } => self.row.set(register, Place::Unsupported),
            I::Register { dest_register, .. } => self.row.set(dest_register, Place::Unsupported),
            I::Restore { register } => {
                if let Some(&mut initial) = self.initial.place(register) {
                    self.row.set(register, initial);
                }
            }
            I::RememberState => {
                *self.remembered.get_mut(self.nr_remembered)? = self.row;
                self.nr_remembered += 1;
            }
            I::RestoreState => {
                self.nr_remembered = self.nr_remembered.checked_sub(1)?;
                self.row = self.remembered[self.nr_remembered];
            }
            // Signatures of return addresses are left out in any case.
            I::ArgsSize { .. } | I::NegateRaState | I::Nop => {}
            I::SetLoc { .. } | I::AdvanceLoc { .. } => {}
        }
        Some(())
    }

    fn set_offset(&mut self, new: i64) -> Option<()> {
        match &mut self.row.canonical {
            Some(Canonical::Offset(_, offset)) => *offset = new,
            _ => return None,
        }
        Some(())
    }
}

/// The rule of the instruction at `address` by an entry that contains it.
fn rule<'a>(
    section: &EhFrame<Bytes<'a>>,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Bytes<'a>>,
    address: u64,
) -> Option<Rule> {
    let cie = entry.cie();
    if cie.return_address_register() != RETURN_ADDRESS {
        return None;
    }
    let mut table = Interpreter::new(entry);
    table.run(cie.instructions(section, bases), u64::MAX)?;
    table.initial = table.row;
    table.location = entry.initial_address();
    table.run(entry.instructions(section, bases), address)?;
    let row = table.row;
    let expression = |expression: UnwindExpression<usize>| {
        let expression = expression.get(section).ok()?;
        simple(expression, cie.encoding())
    };
    let saved = |place| match place {
        Place::Offset(offset) => saved(Base::Cfa, offset),
        Place::At(place) => match expression(place)? {
            (register, offset, false) => saved(base(register)?, offset),
            _ => None,
        },
        Place::Unchanged | Place::None | Place::Unsupported => None,
    };
    if row.return_address == Place::None {
        return Some(Rule::End);
    }
    let (register, offset, is_indirect) = match row.canonical? {
        Canonical::Offset(register, offset) => (register, offset, false),
        Canonical::Is(place) => expression(place)?,
    };
    if offset % WORD != 0 {
        return None;
    }
    Some(Rule::Table(TableRule {
        is_by_frame: base(register)? == Base::FramePointer,
        offset: (offset / WORD).try_into().ok()?,
        is_indirect,
        frame_pointer: match row.frame_pointer {
            Place::Unchanged | Place::None => None,
            place => Some(saved(place)?),
        },
        return_address: saved(row.return_address)?,
        is_signal: entry.is_signal_trampoline(),
    }))
}

fn base(register: Register) -> Option<Base> {
    match register {
        FRAME_POINTER => Some(Base::FramePointer),
        STACK_POINTER => Some(Base::StackPointer),
        _ => None,
    }
}

fn saved(base: Base, offset: i64) -> Option<Saved> {
    let is_word = offset % WORD == 0;
    let offset = (offset / WORD).try_into().ok()?;
    is_word.then_some(Saved { base, offset })
}

/// An expression of a register and an offset, and whether the address at that place is meant.
/// Compilers use no others, but for the linker's stubs.
fn simple(expression: Expression<Bytes<'_>>, encoding: Encoding) -> Option<(Register, i64, bool)> {
    let mut operations = expression.operations(encoding);
    let Some(Operation::RegisterOffset {
        register, offset, ..
    }) = operations.next().ok()?
    else {
        return None;
    };
    let is_indirect = match operations.next().ok()? {
        None => return Some((register, offset, false)),
        Some(Operation::Deref { size, .. }) => size == encoding.address_size,
        Some(_) => false,
    };
    (is_indirect && operations.next().ok()?.is_none()).then_some((register, offset, true))
}

#[cfg(test)]
mod tests {
    use gimli::{CfaRule, CieOrFde, RegisterRule, UnwindContext, UnwindTableRow};

    use super::*;
    use crate::os::linker;

    /// The tables of all loaded objects, for a test that runs while they stay loaded.
    fn each_table(mut visit: impl FnMut(UnwindTables<'_>)) {
        linker::prepare();
        let mut bases = Vec::new();
        linker::each_object(|_, object| {
            bases.push(object.base);
            true
        });
        for base in bases {
            linker::find_unwind_tables(base, &mut visit);
        }
    }

    /// The rule by the rows of `gimli`'s own interpreter.
    fn by_gimli(
        section: &EhFrame<Bytes<'_>>,
        row: &UnwindTableRow<usize>,
        (encoding, is_signal): (Encoding, bool),
    ) -> Option<Rule> {
        let place = |register| {
            let at = match row.register(register) {
                Some(RegisterRule::Offset(offset)) => saved(Base::Cfa, offset),
                Some(RegisterRule::Expression(place)) => {
                    let (register, offset, is_indirect) =
                        simple(place.get(section).unwrap(), encoding)?;
                    assert!(!is_indirect);
                    saved(base(register)?, offset)
                }
                Some(RegisterRule::Undefined | RegisterRule::SameValue) | None => None,
                Some(_) => return None,
            };
            Some(at)
        };
        if row.register(RETURN_ADDRESS) == Some(RegisterRule::Undefined) {
            return Some(Rule::End);
        }
        let (register, offset, is_indirect) = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => (*register, *offset, false),
            CfaRule::Expression(place) => simple(place.get(section).unwrap(), encoding)?,
        };
        Some(Rule::Table(TableRule {
            is_by_frame: base(register)? == Base::FramePointer,
            offset: (offset / WORD) as i32,
            is_indirect,
            frame_pointer: place(FRAME_POINTER)?,
            return_address: place(RETURN_ADDRESS)??,
            is_signal,
        }))
    }

    /// Each row of each table of all loaded objects has the same rule by `gimli`'s interpreter,
    /// which also walks the tables another way.
    #[test]
    fn rules_are_those_of_another_interpreter() {
        let (mut rows, mut rules, mut signals, mut ends) = (0, 0, 0, 0);
        each_table(|tables| {
            let start = tables.segment.as_ptr().addr();
            let bases = BaseAddresses::default()
                .set_eh_frame_hdr(tables.head as u64)
                .set_eh_frame(start as u64);
            let head = EhFrameHdr::new(&tables.segment[tables.head - start..], NativeEndian);
            let parsed = head.parse(&bases, 8).unwrap();
            let first = parsed.eh_frame_ptr().direct().unwrap() as usize;
            // Entries that are searched for refer to others from the begin of the section.
            let bases = bases.set_eh_frame(first as u64);
            let section = EhFrame::new(&tables.segment[first - start..], NativeEndian);
            let mut context = UnwindContext::new();
            let mut entries = section.entries(&bases);
            while let Ok(Some(entry)) = entries.next() {
                let CieOrFde::Fde(partial) = entry else {
                    continue;
                };
                let entry = partial.parse(EhFrame::cie_from_offset).unwrap();
                let kind = (entry.cie().encoding(), entry.is_signal_trampoline());
                let mut table = entry.rows(&section, &bases, &mut context).unwrap();
                while let Some(row) = table.next_row().unwrap() {
                    if row.start_address() >= row.end_address() {
                        continue;
                    }
                    let expected = by_gimli(&section, row, kind);
                    for address in [row.start_address(), row.end_address() - 1] {
                        let rule = find(address as usize, &tables);
                        assert_eq!(rule, expected, "{address:#x}: {row:?}");
                    }
                    // On AArch64, a function that calls none need not store its return address.
                    let is_stored = !matches!(
                        row.register(RETURN_ADDRESS),
                        None | Some(RegisterRule::SameValue)
                    );
                    rows += usize::from(is_stored);
                    rules += usize::from(expected.is_some());
                    signals +=
                        usize::from(matches!(expected, Some(Rule::Table(rule)) if rule.is_signal));
                    ends += usize::from(expected == Some(Rule::End));
                }
            }
        });
        println!("{rules} rules in {rows} rows, {signals} of signals, {ends} ends");
        if linker::can_find_object() {
            assert!(
                rules > 10_000 && rules * 100 > rows * 99,
                "{rules} of {rows}"
            );
            // Where signals return to is in no object under qemu-user.
            assert!(signals > 0 || cfg!(not(target_arch = "x86_64")));
            assert!(ends > 0);
        }
    }

    /// No table makes the parser panic, read elsewhere, or go on for long.
    #[test]
    fn tables_may_contain_anything() {
        let mut random = 0x2545_f491_4f6c_dd1du64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        each_table(|tables| {
            let start = tables.segment.as_ptr().addr();
            let at = tables.head - start;
            let len = (tables.segment.len() - at).min(64 << 10);
            let copy = tables.segment[at..at + len].to_vec();
            for round in 0..400 {
                let mut changed = copy.clone();
                match round % 4 {
                    0 => changed.iter_mut().for_each(|byte| *byte = next() as u8),
                    1 => changed.truncate(next() as usize % len),
                    _ => {}
                }
                for _ in 0..(1 << (round % 12)) {
                    let at = next() as usize % len;
                    if let Some(byte) = changed.get_mut(at) {
                        *byte = next() as u8;
                    }
                }
                // Else nothing of it is read.
                if let Some(head) = changed.first_chunk_mut() {
                    let encoding = copy[1];
                    *head = [VERSION, encoding, COUNT_ENCODING, ENTRY_ENCODING];
                }
                let tables = UnwindTables {
                    head: changed.as_ptr().addr(),
                    segment: &changed,
                };
                for _ in 0..20 {
                    let address = tables.head.wrapping_add_signed(next() as i32 as isize >> 8);
                    let _ = find(address, &tables);
                }
            }
        });
        for bytes in [
            &[][..],
            &[1],
            &[1, 0x1b, 3, 0x3b],
            &[0xff; 64],
            &[1, 0xff, 3, 0x3b, 0, 0, 0],
        ] {
            let head = bytes.as_ptr().addr();
            let segment = bytes;
            assert_eq!(find(head, &UnwindTables { head, segment }), None);
            let head = usize::MAX;
            assert_eq!(find(1, &UnwindTables { head, segment }), None);
        }
    }
}
