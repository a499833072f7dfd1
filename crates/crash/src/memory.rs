//! Physical memory, as far as a dump has it.

/// How much of what was asked for a dump has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// All of it.
    Whole,
    /// Some of it was left out when the dump was made: because it was zeros, or by the choice of
    /// who made it.
    Excluded,
    /// Some of it is not in the dump: it was cut short, or there was no such memory.
    Missing,
}

/// Physical memory.
pub trait PhysicalMemory {
    /// Copies `buffer.len()` bytes at `address`. What is not there becomes zeros, and the worst of
    /// it is returned.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence;
}
