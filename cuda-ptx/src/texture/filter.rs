//! The weights of texels, and their weighted sum.

use super::format::{Format, Number};
use crate::number::convert::f16_to_f32;

/// The steps between two texels, or between two levels.
pub(super) const STEPS: i64 = 256;

/// The weight of the upper texel along each axis, in steps.
pub(super) type Weights = [u32; 3];

/// Returns a number in steps, rounded to the nearest.
pub(super) fn steps(number: f64) -> i64 {
    libm::floor(number * STEPS as f64 + 0.5) as i64
}

/// Returns the weights of the eight corners in steps, which add up to `total`. Bit 0 of a corner says whether it is
/// the upper one along the first axis. Each product of weights is rounded.
pub(super) fn of_corners([x, y, z]: Weights, total: u32) -> [u32; 8] {
    let plane = |z: u32| {
        let right = (x * z + 128) / 256;
        let left = z - right;
        let [upper_left, upper_right] = [(left * y + 127) / 256, (right * y + 128) / 256];
        [left - upper_left, right - upper_right, upper_left, upper_right]
    };
    let z = (z * total + 127) / 256;
    let [near, far] = [plane(total - z), plane(z)];
    [near[0], near[1], near[2], near[3], far[0], far[1], far[2], far[3]]
}

/// Texels, or one of their channels, with their weights in steps.
type Weighted<T> = [(T, u32); 16];

/// Returns the sums of weighted texels: numbers of f32 for each channel.
pub(super) fn blend(format: &Format, texels: &Weighted<u128>) -> [u32; 4] {
    std::array::from_fn(|channel| {
        let channel = channel as u32;
        if channel >= format.channels {
            return 0;
        }
        let unused = 32 - format.bits;
        let words = texels.map(|(texel, weight)| {
            ((texel >> (channel * format.bits)) as u32 & u32::MAX >> unused, weight)
        });
        match format.number {
            Number::Float if format.bits == 16 => {
                let halves = words.map(|(word, weight)| (f16_to_f32(word as u16), weight));
                float(&halves, Precision::HALF)
            }
            Number::UnsignedFraction if format.is_curved(channel) => {
                let decoded = |texel| format.decode(texel)[channel as usize];
                let intensities = texels.map(|(texel, weight)| (decoded(texel), weight));
                float(&intensities, Precision::SRGB)
            }
            Number::UnsignedFraction => {
                let widen = if format.bits == 8 { 257 } else { 1 };
                let sum = weighted(words.map(|(word, weight)| (i64::from(word * widen), weight)));
                (((sum + STEPS / 2) / STEPS) as f32 / 65535.0).to_bits()
            }
            Number::SignedFraction => {
                let least = -(i64::from(u32::MAX >> unused) / 2);
                let sum = weighted(words.map(|(word, weight)| {
                    (i64::from((word << unused) as i32 >> unused).max(least), weight)
                }));
                let fraction = match format.bits {
                    // From 127 to 32,767. The rounding of a GPU is not known.
                    8 => sum.signum() * ((sum.abs() * 33025 + (1 << 14) - 1) >> 15),
                    _ => (sum + STEPS / 2).div_euclid(STEPS),
                };
                (fraction as f32 / 32767.0).to_bits()
            }
            _ => float(&words, Precision::SINGLE),
        }
    })
}

fn weighted(texels: Weighted<i64>) -> i64 {
    texels.into_iter().map(|(texel, weight)| texel * i64::from(weight)).sum()
}

/// The precision of a sum.
#[derive(Clone, Copy)]
struct Precision {
    /// The bits of the fraction of a texel.
    texel: i32,
    /// The bits of the fraction of a sum.
    mantissa: i32,
    /// The least exponent of a normal number.
    least: i32,
}

impl Precision {
    const SINGLE: Self = Self { texel: 27, mantissa: 23, least: -126 };
    const HALF: Self = Self { texel: 14, mantissa: 10, least: -14 };
    const SRGB: Self = Self { texel: 7, mantissa: 10, least: -14 };
}

/// A sum of weighted numbers, as a multiple of a power of two.
#[derive(Clone, Copy, Default)]
struct Sum {
    units: i128,
    exponent: i32,
}

/// Returns the sum of weighted numbers of f32, rounded to the nearest, and away from zero halfway.
fn float(texels: &Weighted<u32>, precision: Precision) -> u32 {
    let used = texels.iter().filter(|(_, weight)| *weight != 0);
    if used.clone().any(|(bits, _)| !f32::from_bits(*bits).is_finite()) {
        let sum: f32 = used.map(|(bits, weight)| f32::from_bits(*bits) * *weight as f32).sum();
        return if sum.is_nan() { f32::NAN.to_bits() } else { sum.to_bits() };
    }
    let quads = texels.chunks_exact(4).map(|pairs| quad(pairs, precision));
    rounded(quads.fold(Sum::default(), add), precision)
}

/// Returns the sum of four weighted numbers. Each is cut off at a bit of the greatest one.
fn quad(pairs: &[(u32, u32)], precision: Precision) -> Sum {
    let exponent = |bits: u32| (bits >> 23 & 0xff).max(1);
    let used = pairs.iter().copied().filter(|(bits, weight)| *weight != 0 && bits << 1 != 0);
    let Some(greatest) = used.clone().map(|(bits, _)| exponent(bits)).max() else {
        return Sum::default();
    };
    // The bits after the 23 of a fraction.
    let more = precision.texel - 23;
    let units = used.map(|(bits, weight)| {
        let hidden = if bits >> 23 & 0xff == 0 { 0 } else { 1 << 23 };
        let fraction = i128::from(bits & 0x7f_ffff | hidden) << 16;
        let shift = (greatest - exponent(bits)) as i32 + 16 - more;
        let cut = fraction >> shift.min(127);
        i128::from(weight) * if bits >> 31 == 1 { -cut } else { cut }
    });
    Sum { units: units.sum(), exponent: greatest as i32 - 150 - more - 8 }
}

/// Returns a sum. A much smaller number only decides its sign.
fn add(a: Sum, b: Sum) -> Sum {
    if a.units == 0 || b.units == 0 {
        return if a.units == 0 { b } else { a };
    }
    let (high, low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let distance = high.exponent - low.exponent;
    let shift = distance.min(60);
    let low = match low.units >> (distance - shift).min(127) {
        0 => low.units.signum(),
        units => units,
    };
    Sum { units: (high.units << shift) + low, exponent: high.exponent - shift }
}

fn rounded(sum: Sum, precision: Precision) -> u32 {
    let size = sum.units.unsigned_abs();
    let length = 128 - size.leading_zeros() as i32;
    let last = (sum.exponent + length - 1).max(precision.least) - precision.mantissa;
    let drop = last - sum.exponent;
    let size = match drop {
        ..=0 => size,
        1..=126 => (size + (1 << (drop - 1))) >> drop,
        _ => 0,
    };
    let exponent = sum.exponent + drop.max(0);
    let value = libm::ldexp(size as f64, exponent) as f32;
    (if sum.units < 0 { -value } else { value }).to_bits()
}
