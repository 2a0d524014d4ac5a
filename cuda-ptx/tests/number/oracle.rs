//! Operands at the edges of formats, and the rounding modes of the oracle.

use cuda_ptx::number::Rounding;
use rustc_apfloat::Round;

/// The rounding modes of arithmetic, with their names in the oracle.
pub(crate) const ROUNDINGS: [(Rounding, Round); 4] = [
    (Rounding::NearestEven, Round::NearestTiesToEven),
    (Rounding::Zero, Round::TowardZero),
    (Rounding::Down, Round::TowardNegative),
    (Rounding::Up, Round::TowardPositive),
];

/// Returns patterns of both signs around zero, the least normal number, one, two and the greatest
/// number, with ties of narrower formats, infinity, and NaNs.
pub(crate) fn edges(exponent_bits: u32, fraction_bits: u32) -> Vec<u64> {
    let normal = 1u64 << fraction_bits;
    let infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    let one = (infinity >> 1) & !(normal - 1);
    let mut magnitudes =
        vec![0, infinity, infinity + 1, infinity + normal / 2 + 5, one + normal / 2];
    for center in [0, normal, one, one + normal, infinity, one + normal * 2 / 3 + 1] {
        magnitudes.extend((0..4).map(|i| center + i).filter(|&bits| bits < infinity));
        magnitudes.extend((1..3).filter_map(|i| center.checked_sub(i)));
    }
    // A one in the last place of the fraction relative to the other operand, and half of it.
    for distance in [fraction_bits, fraction_bits + 1, fraction_bits + 2] {
        magnitudes.push(one.saturating_sub(u64::from(distance) << fraction_bits));
        magnitudes.push(one.saturating_sub(u64::from(distance) << fraction_bits) + 1);
    }
    magnitudes.sort_unstable();
    magnitudes.dedup();
    let sign = 1 << (exponent_bits + fraction_bits);
    magnitudes.iter().flat_map(|&bits| [bits, bits | sign]).collect()
}

/// A xorshift generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
