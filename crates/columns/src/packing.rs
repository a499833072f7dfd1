//! Numbers as Parquet packs them. The source is Parquet's format, `Encodings.md`: "RLE /
//! bit-packing hybrid", and `DELTA_BINARY_PACKED`.

/// Differences in a block of [`delta`]: its least one is subtracted from all.
const BLOCK: usize = 256;
/// Differences that are packed with the same number of bits. Packed, they are whole words.
const PART: usize = 64;

/// Appends numbers of so many bits, 1 to 32: as runs, or packed if that is shorter.
pub(crate) fn hybrid(to: &mut Vec<u8>, bits: u32, runs: impl Iterator<Item = (u32, u32)> + Clone) {
    let (mut numbers, mut of_runs) = (0, 0);
    for (_, rows) in runs.clone() {
        numbers += u64::from(rows);
        of_runs += varint_len(u64::from(rows) << 1) + bits.div_ceil(8) as u64;
    }
    // Groups of eight numbers, the last one filled up with zeros.
    let groups = numbers.div_ceil(8);
    let header = groups << 1 | 1;
    if groups * u64::from(bits) + varint_len(header) >= of_runs {
        for (number, rows) in runs {
            varint(to, u64::from(rows) << 1);
            to.extend(&number.to_le_bytes()[..bits.div_ceil(8) as usize]);
        }
        return;
    }
    varint(to, header);
    let end = to.len() + groups as usize * bits as usize;
    let numbers = runs.flat_map(|(number, rows)| std::iter::repeat_n(number, rows as usize));
    pack(to, bits, numbers.map(u64::from));
    to.resize(end, 0);
}

/// Appends numbers like [`hybrid`].
pub(crate) fn hybrid_of(to: &mut Vec<u8>, bits: u32, numbers: &[u32]) {
    if numbers.is_empty() {
        return;
    }
    let runs = 1 + numbers.windows(2).filter(|two| two[0] != two[1]).count() as u64;
    let groups = (numbers.len() as u64).div_ceil(8);
    // No run is shorter than this. So packed numbers mostly need no look at the runs.
    if groups * u64::from(bits) <= runs * (1 + u64::from(bits.div_ceil(8))) {
        varint(to, groups << 1 | 1);
        let end = to.len() + groups as usize * bits as usize;
        pack(to, bits, numbers.iter().map(|&number| number.into()));
        to.resize(end, 0);
        return;
    }
    let runs = numbers.chunk_by(|a, b| a == b);
    hybrid(to, bits, runs.map(|run| (run[0], run.len() as u32)));
}

/// Appends the lowest bits of numbers, one behind the other, and fills up the last word with zeros.
/// The numbers have no other bits. `bits`: 1 to 64.
#[inline]
fn pack(to: &mut Vec<u8>, bits: u32, numbers: impl Iterator<Item = u64>) {
    let (mut word, mut len) = (0u64, 0);
    for number in numbers {
        word |= number << len;
        len += bits;
        if len >= u64::BITS {
            to.extend(word.to_le_bytes());
            len -= u64::BITS;
            // The bits that were not in the word. If there are none, all of them would be shifted.
            word = number.checked_shr(bits - len).unwrap_or(0);
        }
    }
    if len > 0 {
        to.extend(word.to_le_bytes());
    }
}

/// A number of 32 or 64 bits.
pub(crate) trait Integer: Copy {
    /// The difference to the number before, in the arithmetic of its width, as readers add it.
    fn difference(self, before: Self) -> i64;
    /// Sign-extended.
    fn wide(self) -> i64;
}

impl Integer for i32 {
    #[inline]
    fn difference(self, before: Self) -> i64 {
        self.wrapping_sub(before).into()
    }

    #[inline]
    fn wide(self) -> i64 {
        self.into()
    }
}

impl Integer for i64 {
    #[inline]
    fn difference(self, before: Self) -> i64 {
        self.wrapping_sub(before)
    }

    #[inline]
    fn wide(self) -> i64 {
        self
    }
}

/// Appends numbers as differences, in as few bits as those of their part need.
pub(crate) fn delta<T: Integer>(to: &mut Vec<u8>, numbers: &[T]) {
    varint(to, BLOCK as u64);
    varint(to, (BLOCK / PART) as u64);
    varint(to, numbers.len() as u64);
    signed_varint(to, numbers.first().map_or(0, |first| first.wide()));
    let mut before = &numbers[..numbers.len().saturating_sub(1)];
    let mut after = numbers.get(1..).unwrap_or_default();
    let mut differences = [0u64; BLOCK];
    while !after.is_empty() {
        let len = after.len().min(BLOCK);
        let mut least = i64::MAX;
        for ((to, after), before) in differences.iter_mut().zip(&after[..len]).zip(before) {
            let difference = after.difference(*before);
            least = least.min(difference);
            *to = difference.cast_unsigned();
        }
        // In the arithmetic of 64 bits, no difference is less than the least one.
        for difference in &mut differences[..len] {
            *difference = difference.wrapping_sub(least.cast_unsigned());
        }
        differences[len..].fill(0);
        signed_varint(to, least);
        let parts = differences.chunks_exact(PART);
        let widths = parts.clone().map(|part| {
            let all = part.iter().fold(0, |all, difference| all | difference);
            u64::BITS - all.leading_zeros()
        });
        to.extend(widths.clone().map(|bits| bits as u8));
        // A part without numbers has no bits.
        for (part, bits) in parts.zip(widths).filter(|(_, bits)| *bits > 0) {
            pack(to, bits, part.iter().copied());
        }
        (before, after) = (&before[len..], &after[len..]);
    }
}

/// Appends a number, seven bits in each byte, the lowest first.
fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends a number whose lowest bit is its sign, so that those near zero are short.
fn signed_varint(to: &mut Vec<u8>, number: i64) {
    varint(to, (number << 1 ^ number >> 63).cast_unsigned());
}

fn varint_len(number: u64) -> u64 {
    u64::from((64 - number.leading_zeros()).div_ceil(7).max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take_varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn take_signed(bytes: &mut &[u8]) -> i64 {
        let number = take_varint(bytes);
        (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
    }

    /// The numbers of so many bits in packed bytes.
    fn unpacked(packed: &[u8], bits: usize) -> impl Iterator<Item = u64> {
        let bit = |n: usize| u64::from(packed[n / 8] >> (n % 8) & 1);
        (0..packed.len() * 8 / bits)
            .map(move |n| (0..bits).fold(0, |number, k| number | bit(n * bits + k) << k))
    }

    /// Reads the encoding as the format describes it.
    fn decoded(mut bytes: &[u8], bits: u32, count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let header = take_varint(&mut bytes);
            let groups = (header >> 1) as usize;
            if header & 1 == 0 {
                let (number, rest) = bytes.split_at(bits.div_ceil(8) as usize);
                bytes = rest;
                let mut four = [0; 4];
                four[..number.len()].copy_from_slice(number);
                numbers.extend(std::iter::repeat_n(u32::from_le_bytes(four), groups));
                continue;
            }
            let (packed, rest) = bytes.split_at(groups * bits as usize);
            bytes = rest;
            numbers.extend(unpacked(packed, bits as usize).map(|number| number as u32));
        }
        assert_eq!(bytes, [] as [u8; 0]);
        numbers.truncate(count);
        numbers
    }

    /// Reads differences as the format describes them.
    fn added(mut bytes: &[u8]) -> Vec<i64> {
        let block = take_varint(&mut bytes) as usize;
        let parts = take_varint(&mut bytes) as usize;
        let count = take_varint(&mut bytes) as usize;
        let mut last = take_signed(&mut bytes);
        let mut numbers = vec![last];
        while numbers.len() < count {
            let least = take_signed(&mut bytes);
            let (widths, rest) = bytes.split_at(parts);
            bytes = rest;
            for &bits in widths {
                if numbers.len() >= count {
                    assert_eq!(bits, 0);
                    continue;
                }
                let (packed, rest) = bytes.split_at(usize::from(bits) * block / parts / 8);
                bytes = rest;
                let differences: Vec<_> = match bits {
                    0 => vec![0; block / parts],
                    bits => unpacked(packed, bits.into()).collect(),
                };
                for difference in differences {
                    last = last
                        .wrapping_add(least)
                        .wrapping_add(difference.cast_signed());
                    numbers.push(last);
                }
            }
        }
        assert_eq!(bytes, [] as [u8; 0]);
        numbers.truncate(count);
        numbers
    }

    proptest! {
        /// Readers find the numbers again, in as few bytes as the shorter of the two forms.
        #[test]
        fn numbers_are_encoded_as_the_format_says(
            bits in 1u32..=20,
            runs in prop::collection::vec((any::<u32>(), 1u32..40), 0..60),
        ) {
            let runs = runs.into_iter().map(|(number, rows)| (number & ((1 << bits) - 1), rows));
            let runs: Vec<_> = runs.collect();
            let numbers: Vec<u32> = runs
                .iter()
                .flat_map(|&(number, rows)| std::iter::repeat_n(number, rows as usize))
                .collect();
            let mut bytes = Vec::new();
            hybrid(&mut bytes, bits, runs.iter().copied());
            prop_assert!(bytes.len() <= numbers.len().div_ceil(8) * bits as usize + 10);
            prop_assert!(bytes.len() <= runs.len() * 4 + 10);
            prop_assert_eq!(decoded(&bytes, bits, numbers.len()), numbers.clone());
            let mut bytes = Vec::new();
            hybrid_of(&mut bytes, bits, &numbers);
            prop_assert!(bytes.len() <= numbers.len().div_ceil(8) * bits as usize + 10);
            prop_assert!(bytes.len() <= runs.len() * 4 + 10);
            prop_assert_eq!(decoded(&bytes, bits, numbers.len()), numbers);
        }

        /// Readers add the differences up to the numbers, also where they overflow.
        #[test]
        fn differences_are_encoded_as_the_format_says(
            bits in 0u32..=64,
            numbers in prop::collection::vec(any::<i64>(), 1..1000),
        ) {
            let numbers: Vec<_> = numbers
                .into_iter()
                .map(|number| number.checked_shr(64 - bits).unwrap_or(0))
                .collect();
            let mut bytes = Vec::new();
            delta(&mut bytes, &numbers);
            prop_assert!(bytes.len() * 8 <= (numbers.len() + 320) * (bits as usize + 2) + 1000);
            prop_assert_eq!(added(&bytes), numbers.clone());
            let narrow: Vec<_> = numbers.iter().map(|&number| number as i32).collect();
            let mut bytes = Vec::new();
            delta(&mut bytes, &narrow);
            let found: Vec<_> = added(&bytes).into_iter().map(|number| number as i32).collect();
            prop_assert_eq!(found, narrow);
        }
    }
}
