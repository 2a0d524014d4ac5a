//! Raw Deflate data (RFC 1951).

use super::repeat;

/// The order in which the lengths of the codes for lengths are stored.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const LONGEST: usize = 15;

struct Bits<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl<'a> Bits<'a> {
    /// Returns the next bits as a number whose lowest bit is the first.
    fn next(&mut self, count: usize) -> Option<usize> {
        let mut number = 0;
        for index in 0..count {
            let byte = self.bytes.get(self.place / 8)?;
            number |= usize::from(byte >> (self.place % 8) & 1) << index;
            self.place += 1;
        }
        Some(number)
    }

    /// Skips the rest of a byte, and returns the next `len` bytes.
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let start = self.place.div_ceil(8);
        self.place = (start + len) * 8;
        self.bytes.get(start..start + len)
    }
}

/// A canonical prefix code.
struct Code {
    /// The number of codes of each length.
    counts: [usize; LONGEST + 1],
    /// The symbols in the order of their codes.
    symbols: Vec<usize>,
}

impl Code {
    fn new(lengths: &[usize]) -> Self {
        let mut counts = [0; LONGEST + 1];
        let mut symbols = Vec::new();
        for (length, count) in counts.iter_mut().enumerate().skip(1) {
            let its = (0..lengths.len()).filter(|symbol| lengths[*symbol] == length);
            let before = symbols.len();
            symbols.extend(its);
            *count = symbols.len() - before;
        }
        Self { counts, symbols }
    }

    fn next(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            code |= bits.next(1)?;
            if code < first + count {
                return self.symbols.get(index + code - first).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

pub(crate) fn decode(source: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes: source, place: 0 };
    let mut result = Vec::new();
    loop {
        let is_last = bits.next(1)? == 1;
        match bits.next(2)? {
            0 => {
                let sizes = bits.bytes(4)?;
                let size = u16::from_le_bytes([sizes[0], sizes[1]]);
                if size != !u16::from_le_bytes([sizes[2], sizes[3]]) {
                    return None;
                }
                result.extend_from_slice(bits.bytes(size.into())?);
            }
            1 => {
                let mut lengths = [8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                block(&mut bits, &Code::new(&lengths), &Code::new(&[5; 30]), &mut result)?;
            }
            2 => {
                let (literals, distances) = codes(&mut bits)?;
                block(&mut bits, &literals, &distances, &mut result)?;
            }
            _ => return None,
        }
        if is_last {
            return Some(result);
        }
    }
}

/// Reads the codes of a block: that of literals and lengths, and that of distances.
fn codes(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    let (literals, distances) = (bits.next(5)? + 257, bits.next(5)? + 1);
    let given = bits.next(4)? + 4;
    let mut of_lengths = [0; ORDER.len()];
    for place in &ORDER[..given] {
        of_lengths[*place] = bits.next(3)?;
    }
    let code = Code::new(&of_lengths);
    let mut lengths = Vec::new();
    while lengths.len() < literals + distances {
        let (length, times) = match code.next(bits)? {
            16 => (*lengths.last()?, bits.next(2)? + 3),
            17 => (0, bits.next(3)? + 3),
            18 => (0, bits.next(7)? + 11),
            length => (length, 1),
        };
        lengths.extend(std::iter::repeat_n(length, times));
    }
    let (of_literals, of_distances) = lengths.split_at(literals);
    let is_complete = of_distances.len() == distances;
    is_complete.then(|| (Code::new(of_literals), Code::new(of_distances)))
}

fn block(
    bits: &mut Bits<'_>,
    literals: &Code,
    distances: &Code,
    result: &mut Vec<u8>,
) -> Option<()> {
    loop {
        let symbol = literals.next(bits)?;
        match symbol {
            0..256 => result.extend(u8::try_from(symbol)),
            256 => return Some(()),
            285 => {
                let distance = distance(bits, distances)?;
                repeat(result, distance, 258)?;
            }
            257..285 => {
                let len = 3 + scaled(bits, symbol - 257, 2)?;
                let distance = distance(bits, distances)?;
                repeat(result, distance, len)?;
            }
            _ => return None,
        }
    }
}

fn distance(bits: &mut Bits<'_>, code: &Code) -> Option<usize> {
    match code.next(bits)? {
        symbol @ 0..30 => Some(1 + scaled(bits, symbol, 1)?),
        _ => None,
    }
}

/// Returns the number that a symbol and its extra bits stand for: the symbols count up, and from the second
/// group of 2^`bits_of_group` symbols on, each group has one more extra bit.
fn scaled(bits: &mut Bits<'_>, symbol: usize, bits_of_group: usize) -> Option<usize> {
    let group = symbol >> bits_of_group;
    if group == 0 {
        return Some(symbol);
    }
    let size = 1 << bits_of_group;
    let extra = group - 1;
    Some(((size + symbol % size) << extra) + bits.next(extra)?)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn stored_blocks_are_decoded() {
        let data = [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
        assert_eq!(decode(&data).as_deref(), Some(&b"abc"[..]));
        assert_eq!(decode(&[1, 3, 0, 0, 0, 1, 2, 3]), None);
    }

    #[test]
    fn blocks_with_fixed_codes_are_decoded() {
        let data = [75, 76, 74, 78, 68, 66, 10, 25, 169, 57, 57, 249, 200, 36, 0];
        let text = b"abcabcabcabcabc hello hello hello";
        assert_eq!(decode(&data).as_deref(), Some(&text[..]));
        assert_eq!(decode(&data[..data.len() - 1]), None);
    }

    #[test]
    fn blocks_with_their_own_codes_are_decoded() {
        let text = (0..600_usize).map(|i| (i * i % 97 % (2 + i / 100)) as u8);
        let data = [
            101, 80, 129, 22, 196, 32, 8, 82, 209, 254, 255, 147, 15, 168, 222, 182, 119, 107, 43,
            52, 64, 103, 100, 156, 165, 109, 159, 6, 252, 238, 230, 227, 160, 253, 60, 113, 188,
            168, 91, 118, 93, 158, 229, 72, 164, 138, 202, 42, 102, 4, 146, 80, 56, 203, 128, 185,
            75, 60, 220, 96, 154, 151, 162, 151, 233, 97, 105, 25, 188, 184, 121, 203, 33, 16, 133,
            66, 138, 23, 128, 236, 33, 65, 26, 31, 180, 191, 29, 31, 132, 52, 86, 227, 149, 52, 96,
            70, 185, 191, 133, 118, 75, 46, 147, 205, 208, 168, 171, 213, 129, 132, 44, 199, 156,
            55, 135, 234, 139, 215, 54, 108, 75, 44, 214, 15, 43, 148, 238, 179, 161, 71, 183, 67,
            103, 1, 106, 141, 123, 114, 102, 143, 72, 237, 239, 119, 143, 104, 120, 69, 2, 134,
            142, 26, 209, 24, 27, 0, 118, 253, 236, 144, 47, 22, 203, 76, 143, 198, 67, 205, 178,
            125, 180, 242, 189, 92, 222, 22, 138, 80, 236, 68, 37, 150, 102, 199, 241, 140, 165,
            204, 139, 101, 207, 170, 247, 33, 169, 140, 126,
        ];
        assert_eq!(decode(&data), Some(text.collect()));
    }
}
