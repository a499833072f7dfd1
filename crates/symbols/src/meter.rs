//! Limits what reading DWARF costs.
//!
//! DWARF refers to its own parts: many functions may have the same list of a million ranges, and
//! many units the same line program. So a small file can ask for any amount of time and memory, and
//! inlined functions that are nested deeply for any amount of stack. Each read goes through a
//! [`MeteredReader`], which counts it, and fails when the budget is used up.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use gimli::{EndianReader, Error, LittleEndian, Reader, ReaderOffsetId, Result};

/// Bytes of stack that one lookup may use.
const MAX_STACK: usize = 512 << 10;
/// Bytes that are searched or copied at the cost of one read.
const BYTES_PER_READ: u64 = 16;
/// Additional cost of a number of variable length. An entry begins with one, and may consist of
/// nothing else, but an inlined function takes more than 100 bytes of memory.
const NUMBER: u64 = 7;

/// A budget of reads.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    left: Cell<u64>,
    /// Reads since the start.
    spent: Cell<u64>,
    /// Address of the stack when the budget was given.
    stack: Cell<usize>,
}

impl Meter {
    /// Gives a new budget, to be used by calls from this function on.
    pub(crate) fn allow(&self, reads: u64) {
        self.left.set(reads);
        self.stack.set(stack_address());
    }

    /// Whether the budget was used up.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// All reads until now.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    #[inline]
    fn charge(&self, reads: u64) -> Result<()> {
        let left = self.left.get().saturating_sub(reads);
        self.left.set(left);
        self.spent.set(self.spent.get().saturating_add(reads));
        if left == 0 || self.stack.get().abs_diff(stack_address()) > MAX_STACK {
            self.left.set(0);
            return Err(Error::UnexpectedEof(ReaderOffsetId(0)));
        }
        Ok(())
    }
}

/// Where the stack is now, approximately.
#[inline(always)]
fn stack_address() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

type Inner = EndianReader<LittleEndian, Rc<[u8]>>;

/// A reader of a section that counts what it reads.
#[derive(Clone, Debug)]
pub(crate) struct MeteredReader {
    inner: Inner,
    meter: Rc<Meter>,
    /// Cost of a read in this section: how much memory it may take.
    weight: u64,
}

impl MeteredReader {
    pub(crate) fn new(bytes: Rc<[u8]>, meter: &Rc<Meter>, weight: u64) -> Self {
        Self {
            inner: EndianReader::new(bytes, LittleEndian),
            meter: Rc::clone(meter),
            weight,
        }
    }

    #[inline]
    fn charge(&self, reads: u64) -> Result<()> {
        self.meter.charge(reads * self.weight)
    }

    fn charge_bytes(&self, bytes: usize) -> Result<()> {
        self.charge(1 + bytes as u64 / BYTES_PER_READ)
    }
}

impl Reader for MeteredReader {
    type Endian = LittleEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        self.inner.len()
    }

    #[inline]
    fn empty(&mut self) {
        self.inner.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        self.inner.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        self.inner.offset_from(&base.inner)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.inner.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.inner.lookup_offset_id(id)
    }

    #[inline]
    fn find(&self, byte: u8) -> Result<usize> {
        let found = self.inner.find(byte);
        let searched = *found.as_ref().unwrap_or(&self.inner.len());
        self.charge_bytes(searched)?;
        found
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        self.charge(1)?;
        self.inner.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Self> {
        self.charge(1)?;
        Ok(Self {
            inner: self.inner.split(len)?,
            meter: Rc::clone(&self.meter),
            weight: self.weight,
        })
    }

    #[inline]
    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.charge_bytes(self.inner.len())?;
        self.inner.to_slice()
    }

    #[inline]
    fn to_string(&self) -> Result<Cow<'_, str>> {
        self.charge_bytes(self.inner.len())?;
        self.inner.to_string()
    }

    #[inline]
    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        self.charge_bytes(self.inner.len())?;
        self.inner.to_string_lossy()
    }

    #[inline]
    fn read_slice(&mut self, buf: &mut [u8]) -> Result<()> {
        self.charge(1)?;
        self.inner.read_slice(buf)
    }

    #[inline]
    fn read_uleb128(&mut self) -> Result<u64> {
        self.charge(NUMBER)?;
        gimli::leb128::read::unsigned(self)
    }
}
