//! The arithmetic of reductions: in the type of the elements, in the order of the ranks.
//!
//! A GPU may combine the ranks in another order, so sums of floating point numbers that are not exact can differ in
//! their last bits. Numbers of 8 and 16 bits are combined as `f32` and rounded after each step.

use cuda_ptx::number::convert;

/// The size of an element of each type, by its number in C.
pub(crate) fn size(data_type: u32) -> Option<usize> {
    Some(match data_type {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// Returns whether a type is one of the floating point numbers of 8 bits.
pub(crate) fn is_of_8_bits(data_type: u32) -> bool {
    matches!(data_type, 10 | 11)
}

/// The operations, by their numbers in C.
pub(crate) const SUM: u32 = 0;
const PRODUCT: u32 = 1;
const MAX: u32 = 2;
const MIN: u32 = 3;
pub(crate) const AVERAGE: u32 = 4;

/// Combines the elements of all ranks.
pub(crate) fn reduce(data_type: u32, op: u32, inputs: &[&[u8]]) -> Vec<u8> {
    let mut inputs_left = inputs.iter();
    let Some(first) = inputs_left.next() else {
        return Vec::new();
    };
    let mut result = first.to_vec();
    for input in inputs_left {
        each(data_type, &mut result, input, |own, other| match op {
            PRODUCT => own.times(other),
            MAX => own.max(other),
            MIN => own.min(other),
            _ => own.plus(other),
        });
    }
    if op == AVERAGE {
        let count = inputs.len() as u64;
        let none = result.clone();
        each(data_type, &mut result, &none, |sum, _| sum.over(count));
    }
    result
}

/// Multiplies each element with a factor of the same type.
pub(crate) fn scale(data_type: u32, elements: &mut [u8], factor: &[u8]) {
    let width = factor.len();
    let factors = factor.repeat(elements.len() / width.max(1));
    each(data_type, elements, &factors, Number::times);
}

/// A value of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Signed(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
}

impl Number {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.wrapping_add(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.wrapping_add(b)),
            (Self::Single(a), Self::Single(b)) => Self::Single(a + b),
            (Self::Double(a), Self::Double(b)) => Self::Double(a + b),
            _ => self,
        }
    }

    fn times(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.wrapping_mul(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.wrapping_mul(b)),
            (Self::Single(a), Self::Single(b)) => Self::Single(a * b),
            (Self::Double(a), Self::Double(b)) => Self::Double(a * b),
            _ => self,
        }
    }

    fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.max(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.max(b)),
            (Self::Single(a), Self::Single(b)) => Self::Single(a.max(b)),
            (Self::Double(a), Self::Double(b)) => Self::Double(a.max(b)),
            _ => self,
        }
    }

    fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.min(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.min(b)),
            (Self::Single(a), Self::Single(b)) => Self::Single(a.min(b)),
            (Self::Double(a), Self::Double(b)) => Self::Double(a.min(b)),
            _ => self,
        }
    }

    /// Divides by the number of ranks.
    fn over(self, count: u64) -> Self {
        match self {
            Self::Signed(a) => Self::Signed(a / count as i64),
            Self::Unsigned(a) => Self::Unsigned(a / count),
            Self::Single(a) => Self::Single(a / count as f32),
            Self::Double(a) => Self::Double(a / count as f64),
        }
    }
}

/// Replaces each element of `own` by the combination with that of `other`.
fn each(data_type: u32, own: &mut [u8], other: &[u8], combine: impl Fn(Number, Number) -> Number) {
    let Some(width) = size(data_type) else { return };
    for (own, other) in own.chunks_exact_mut(width).zip(other.chunks_exact(width)) {
        let combined = combine(read(data_type, own), read(data_type, other));
        write(data_type, combined, own);
    }
}

fn read(data_type: u32, bytes: &[u8]) -> Number {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    match data_type {
        0 => Number::Signed(i64::from(word as i8)),
        2 => Number::Signed(i64::from(word as i32)),
        4 => Number::Signed(word as i64),
        6 => Number::Single(f32::from_bits(convert::f16_to_f32(word as u16))),
        7 => Number::Single(f32::from_bits(word as u32)),
        8 => Number::Double(f64::from_bits(word)),
        9 => Number::Single(f32::from_bits(convert::bf16_to_f32(word as u16))),
        10 => Number::Single(Small::E4M3.decode(word as u8)),
        11 => Number::Single(Small::E5M2.decode(word as u8)),
        _ => Number::Unsigned(word),
    }
}

fn write(data_type: u32, number: Number, bytes: &mut [u8]) {
    let word = match number {
        Number::Signed(value) => value as u64,
        Number::Unsigned(value) => value,
        Number::Double(value) => value.to_bits(),
        Number::Single(value) => match data_type {
            6 => convert::f32_to_f16(value.to_bits()).into(),
            9 => convert::f32_to_bf16(value.to_bits()).into(),
            10 => Small::E4M3.encode(value).into(),
            11 => Small::E5M2.encode(value).into(),
            _ => value.to_bits().into(),
        },
    };
    bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
}

/// The formats of floating point numbers of 8 bits.
#[derive(Clone, Copy, Debug)]
enum Small {
    E4M3,
    E5M2,
}

impl Small {
    fn decode(self, bits: u8) -> f32 {
        let (mantissa_bits, bias) = match self {
            Self::E4M3 => (3, 7),
            Self::E5M2 => (2, 15),
        };
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from(bits & 0x7f) >> mantissa_bits;
        let mantissa = f32::from(bits & ((1 << mantissa_bits) - 1));
        let scale = (1 << mantissa_bits) as f32;
        match self {
            Self::E4M3 if bits & 0x7f == 0x7f => return f32::NAN,
            Self::E5M2 if exponent == 31 && mantissa == 0.0 => return sign * f32::INFINITY,
            Self::E5M2 if exponent == 31 => return f32::NAN,
            _ => {}
        }
        match exponent {
            0 => sign * mantissa / scale * 2_f32.powi(1 - bias),
            _ => sign * (1.0 + mantissa / scale) * 2_f32.powi(exponent - bias),
        }
    }

    /// Returns the nearest number. Of two, it is the one whose last bit is 0; too large ones become the largest.
    fn encode(self, value: f32) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let largest = match self {
            Self::E4M3 => 0x7e,
            Self::E5M2 => 0x7b,
        };
        if value.is_nan() {
            return sign | 0x7f;
        }
        let magnitude = value.abs();
        // The numbers are in the order of their bits.
        let mut nearest = 0_u8;
        for bits in 0..=largest {
            let distance = (self.decode(bits) - magnitude).abs();
            let best = (self.decode(nearest) - magnitude).abs();
            if distance < best || (distance == best && bits % 2 == 0) {
                nearest = bits;
            }
        }
        sign | nearest
    }
}

#[cfg(test)]
mod tests {
    use super::{AVERAGE, MAX, MIN, PRODUCT, SUM, Small, reduce, scale};

    fn bytes<const N: usize>(values: &[[u8; N]]) -> Vec<u8> {
        values.concat()
    }

    #[test]
    fn integers_wrap_and_averages_are_truncated() {
        let a = bytes(&[100_i8.to_le_bytes(), (-7_i8).to_le_bytes()]);
        let b = bytes(&[100_i8.to_le_bytes(), 2_i8.to_le_bytes()]);
        let both: [&[u8]; 2] = [&a, &b];
        assert_eq!(reduce(0, SUM, &both), bytes(&[(-56_i8).to_le_bytes(), (-5_i8).to_le_bytes()]));
        assert_eq!(reduce(0, MAX, &both), bytes(&[100_i8.to_le_bytes(), 2_i8.to_le_bytes()]));
        assert_eq!(reduce(0, MIN, &both), bytes(&[100_i8.to_le_bytes(), (-7_i8).to_le_bytes()]));
        assert_eq!(reduce(0, PRODUCT, &both)[1], 242);
        let (a, b) = (7_u64.to_le_bytes(), 4_u64.to_le_bytes());
        assert_eq!(reduce(5, AVERAGE, &[&a, &b]), 5_u64.to_le_bytes());
        let (a, b) = ((-7_i32).to_le_bytes(), 4_i32.to_le_bytes());
        assert_eq!(reduce(2, AVERAGE, &[&a, &b]), (-1_i32).to_le_bytes());
    }

    #[test]
    fn floats_of_every_width_are_added_and_scaled() {
        // One and a half in each format.
        for (data_type, one_and_half, three) in [
            (6, vec![0x00, 0x3e], vec![0x00, 0x42]),
            (9, vec![0xc0, 0x3f], vec![0x40, 0x40]),
            (10, vec![0x3c], vec![0x44]),
            (11, vec![0x3e], vec![0x42]),
            (7, 1.5_f32.to_le_bytes().to_vec(), 3_f32.to_le_bytes().to_vec()),
            (8, 1.5_f64.to_le_bytes().to_vec(), 3_f64.to_le_bytes().to_vec()),
        ] {
            assert_eq!(
                reduce(data_type, SUM, &[&one_and_half, &one_and_half]),
                three,
                "{data_type}"
            );
            let mut average = reduce(data_type, AVERAGE, &[&three, &three]);
            assert_eq!(average, three);
            // Half of it, and twice that.
            let half: Vec<u8> = match data_type {
                6 => vec![0x00, 0x38],
                9 => vec![0x00, 0x3f],
                10 => vec![0x30],
                11 => vec![0x38],
                7 => 0.5_f32.to_le_bytes().to_vec(),
                _ => 0.5_f64.to_le_bytes().to_vec(),
            };
            scale(data_type, &mut average, &half);
            assert_eq!(average, one_and_half, "{data_type}");
        }
    }

    #[test]
    fn every_number_of_8_bits_is_encoded_as_itself() {
        for format in [Small::E4M3, Small::E5M2] {
            for bits in 0..=u8::MAX {
                let value = format.decode(bits);
                if value.is_finite() && value != 0.0 {
                    assert_eq!(format.encode(value), bits, "{format:?} {value}");
                }
            }
        }
        assert_eq!(Small::E4M3.encode(1e9), 0x7e);
        assert_eq!(Small::E4M3.decode(0x7e), 448.0);
        assert_eq!(Small::E5M2.decode(0x7b), 57344.0);
    }
}
