//! Sums of products as the matrix instructions compute them.
//!
//! The order and the rounding are not stated by PTX. They were measured on an H200:
//!
//! - Tensor cores ([`dot`]) make exact products, and shift them and the summand to the greatest exponent among them.
//!   The bits below 2⁻²⁵, where the exponent has the value 1, are cut off. The exponent of a product is the sum of
//!   those of the factors, so that its significand is below 4. The sum of all is exact. It is cut off to a single, or
//!   rounded to the nearest half.
//! - Factors of 8 bits ([`dot_bytes`]) become halves. Tensor cores sum the products of the low halves of registers, and
//!   then add those of the high halves. An addition of its own adds the summand.
//! - `mma.m8n8k4` of halves ([`dot_quad`]) is a sequence of operations on singles.
//!
//! A sum of tensor cores that is zero is positive, and NaN is canonical.

use super::convert::f32_to_f16;
use super::soft::{Layout, Number, Value};
use super::{Format, Mode, Rounding, convert_float, f16 as half, f32 as single};
use std::ops::Range;

/// The bits that are kept below the place of the greatest exponent.
const KEPT: i32 = 25;

const NEGATIVE_ZERO: u32 = 0x8000_0000;

/// A factor of a product: `significand` × 2^(`exponent` − `fraction`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Factor {
    significand: i64,
    exponent: i32,
    fraction: i32,
    special: Option<Special>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Nan,
    Infinity { is_negative: bool },
}

impl Factor {
    /// Decodes a number. One of 8 bits becomes a half.
    pub fn of(format: Format, bits: u64) -> Self {
        let (format, bits) = match format {
            Format::E4m3 | Format::E5m2 => {
                (Format::F16, convert_float(format, Format::F16, bits, Mode::EXACT, false))
            }
            _ => (format, bits),
        };
        let fraction = match format {
            Format::F32 => 23,
            Format::Bf16 => 7,
            _ => 10,
        };
        match Layout::of(format).decode(bits) {
            Value::Nan => Self { special: Some(Special::Nan), ..Self::default() },
            Value::Infinite { negative } => {
                let special = Special::Infinity { is_negative: negative };
                let significand = if negative { -1 } else { 1 };
                Self { special: Some(special), significand, ..Self::default() }
            }
            Value::Finite(number) => {
                let magnitude = number.significand as i64;
                let significand = if number.negative { -magnitude } else { magnitude };
                Self { significand, exponent: number.exponent + fraction, fraction, special: None }
            }
        }
    }

    fn times(self, other: Self) -> Self {
        let significand = self.significand * other.significand;
        let special = match (self.special, other.special) {
            (None, None) => None,
            (Some(Special::Nan), _) | (_, Some(Special::Nan)) => Some(Special::Nan),
            _ if significand == 0 => Some(Special::Nan),
            _ => Some(Special::Infinity { is_negative: significand < 0 }),
        };
        Self {
            significand,
            exponent: self.exponent + other.exponent,
            fraction: self.fraction + other.fraction,
            special,
        }
    }
}

/// Returns the sum of the products of factors and of a number `c`, in the format of `c`: `f32` or `f16`. A tensor core
/// has up to 16 products.
pub fn dot(a: &[Factor], b: &[Factor], c: u64, format: Format) -> u64 {
    dot_of(a.iter().zip(b), c, format)
}

fn dot_of<'a>(
    factors: impl Iterator<Item = (&'a Factor, &'a Factor)> + Clone,
    c: u64,
    format: Format,
) -> u64 {
    let layout = Layout::of(format);
    let summands = factors.map(|(a, b)| a.times(*b)).chain([Factor::of(format, c)]);
    let mut greatest = None;
    let mut special = None;
    for its in summands.clone() {
        if its.special.is_some() {
            special = match special {
                None => its.special,
                _ if special == its.special => special,
                Some(_) => Some(Special::Nan),
            };
        } else if its.significand != 0 {
            greatest = greatest.max(Some(its.exponent));
        }
    }
    match special {
        Some(Special::Nan) => return nan(format),
        Some(Special::Infinity { is_negative: true }) => return layout.infinity() | layout.sign(),
        Some(Special::Infinity { is_negative: false }) => return layout.infinity(),
        None => {}
    }
    let Some(greatest) = greatest else { return 0 };
    let lowest = greatest - KEPT;
    let aligned = summands.map(|its| {
        let shift = its.exponent - its.fraction - lowest;
        let magnitude = its.significand.unsigned_abs();
        // A zero may have any exponent.
        let magnitude = match shift {
            0.. => magnitude.checked_shl(shift as u32),
            _ => magnitude.checked_shr(shift.unsigned_abs()),
        };
        let magnitude = magnitude.unwrap_or(0);
        its.significand.signum() * magnitude as i64
    });
    let sum: i64 = aligned.sum();
    let number =
        Number { negative: sum < 0, exponent: lowest, significand: sum.unsigned_abs().into() };
    let is_half = format == Format::F16;
    let magnitude = match lowest + sum.unsigned_abs().checked_ilog2().map_or(0, |bits| bits as i32)
    {
        128.. if !is_half => layout.infinity(),
        _ => {
            let rounding = if is_half { Rounding::NearestEven } else { Rounding::Zero };
            layout.encode(number, rounding) & !layout.sign()
        }
    };
    if sum < 0 && magnitude != 0 { magnitude | layout.sign() } else { magnitude }
}

/// Returns the sum of the products of factors of 8 bits and of a number `c`, in the format of `c`: `f32` or `f16`.
pub fn dot_bytes(a: &[Factor], b: &[Factor], c: u64, format: Format) -> u64 {
    let part = |is_high| {
        let all = a.iter().zip(b).enumerate();
        all.filter(move |(index, _)| (index % 4 >= 2) == is_high).map(|(_, factors)| factors)
    };
    let sum = dot_of(part(true), dot_of(part(false), 0, format), format);
    match format {
        Format::F16 => half::add(sum as u16, c as u16, Mode::EXACT).into(),
        _ => single::add(sum as u32, c as u32, Mode::EXACT).into(),
    }
}

/// Returns the sum of four products of singles and of a single. `is_half` says whether the result is a half.
pub fn dot_quad(a: &[u32], b: &[u32], c: u32, is_half: bool) -> u32 {
    let add = |a, b| single::add(a, b, Mode::EXACT);
    let sum = |range: Range<usize>, first| {
        let factors = a[range.clone()].iter().zip(&b[range]);
        factors.fold(first, |sum, (a, b)| single::fma(*a, *b, sum, Mode::EXACT))
    };
    match is_half {
        // A product that is −0 stays it.
        true => f32_to_f16(add(add(sum(0..2, NEGATIVE_ZERO), c), sum(2..4, NEGATIVE_ZERO))).into(),
        false => add(sum(0..4, 0), c),
    }
}

fn nan(format: Format) -> u64 {
    match format {
        Format::F16 => 0x7fff,
        _ => 0x7fff_ffff,
    }
}
