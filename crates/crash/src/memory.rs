//! The physical memory in a dump.

/// Whether a dump has the requested memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The dump has all of it.
    Whole,
    /// Some of it was excluded when the dump was made: pages of zeros, or unwanted ones.
    Excluded,
    /// Some of it is missing: the dump is incomplete, or the machine had no such memory.
    Missing,
}

/// Access to physical memory.
pub trait PhysicalMemory {
    /// Copies `buffer.len()` bytes at `address`. Absent bytes become zeros. Returns the worst
    /// presence of all bytes.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Presence;
}

/// Reads memory piece by piece. `read_piece` gets an address and the rest of the buffer; it fills
/// at least one byte, and returns how many and whether the dump has them.
pub(super) fn read_pieces(
    address: u64,
    buffer: &mut [u8],
    mut read_piece: impl FnMut(u64, &mut [u8]) -> (usize, Presence),
) -> Presence {
    let mut presence = Presence::Whole;
    let mut done = 0;
    while done < buffer.len() {
        let Some(at) = address.checked_add(done as u64) else {
            buffer[done..].fill(0);
            return Presence::Missing;
        };
        let (len, of_piece) = read_piece(at, &mut buffer[done..]);
        presence = presence.max(of_piece);
        done += len;
    }
    presence
}
