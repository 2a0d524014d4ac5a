//! The arithmetic that the 16-bit formats share.

use super::soft::Layout;
use super::{Format, Rounding};

/// Returns the single of a half.
#[inline(always)]
pub(super) fn from_f16(a: u16) -> f32 {
    let magnitude = u32::from(a & 0x7fff) << 13;
    // The exponent moves from a bias of 15 to one of 127. That of infinity and NaN becomes the
    // greatest one.
    let special = if magnitude >= 0x0f80_0000 { 0x3800_0000 } else { 0 };
    let normal = magnitude + 0x3800_0000 + special;
    // As a number with a hidden bit, a denormal is 2^-14 too large.
    let denormal =
        (f32::from_bits(magnitude + 0x3880_0000) - f32::from_bits(0x3880_0000)).to_bits();
    let magnitude = if magnitude < 0x0080_0000 { denormal } else { normal };
    f32::from_bits(magnitude | (u32::from(a & 0x8000) << 16))
}

/// Rounds a single to the nearest half. NaN becomes `7fff`.
#[inline(always)]
pub(super) fn to_f16(a: f32) -> u16 {
    let bits = a.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // The addition of 0.5, whose last bit has the value of the last bit of a denormal half, rounds.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0x0fff + odd) >> 13;
    let result = if magnitude < 0x3880_0000 { denormal } else { normal };
    let result = if magnitude >= 0x4780_0000 { 0x7c00 } else { result };
    let result = result | (bits >> 16 & 0x8000);
    if magnitude > 0x7f80_0000 { 0x7fff } else { result as u16 }
}

/// Returns the single of a bfloat.
#[inline(always)]
pub(super) fn from_bf16(a: u16) -> f32 {
    f32::from_bits(u32::from(a) << 16)
}

/// Rounds a single to the nearest bfloat. NaN becomes `7fff`.
#[inline(always)]
pub(super) fn to_bf16(a: f32) -> u16 {
    let bits = a.to_bits();
    let odd = (bits >> 16) & 1;
    let result = (bits.wrapping_add(0x7fff + odd) >> 16) as u16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { result }
}

/// Returns a × b + c of halves, rounded to odd.
#[inline(always)]
pub(super) fn fma_f16(a: u16, b: u16, c: u16) -> f32 {
    // The product of two halves is exact. The sum is rounded to odd, see `f32::product_sum`.
    let (product, c) = (from_f16(a) * from_f16(b), from_f16(c));
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    odd(sum, error.abs() > 0.0, error.to_bits())
}

/// Returns a × b + c of bfloats, rounded to odd.
#[inline(always)]
pub(super) fn fma_bf16(a: u16, b: u16, c: u16) -> f32 {
    let sum = super::f32::product_sum(from_bf16(a), from_bf16(b), from_bf16(c));
    let single = sum as f32;
    let error = sum - f64::from(single);
    odd(single, error.abs() > 0.0, (error.to_bits() >> 32) as u32)
}

/// Rounds to odd, given the nearest single, whether it is inexact, and bits with the sign of its
/// error.
#[inline(always)]
fn odd(nearest: f32, inexact: bool, error: u32) -> f32 {
    let inexact = u32::from(inexact);
    let beyond = (error ^ nearest.to_bits()) >> 31 & inexact;
    f32::from_bits(nearest.to_bits().wrapping_sub(beyond) | inexact)
}

/// Rounds a double to a 16-bit format. NaN becomes `7fff`.
pub(super) fn from_double(to: Layout, a: f64) -> u16 {
    use super::soft::Value;
    match Layout::of(Format::F64).decode(a.to_bits()) {
        Value::Nan => 0x7fff,
        Value::Infinite { negative } => {
            (to.infinity() | if negative { to.sign() } else { 0 }) as u16
        }
        Value::Finite(number) => to.encode(number, Rounding::NearestEven) as u16,
    }
}

/// Defines the functions of a 16-bit format.
macro_rules! arithmetic {
    (
        $format:ident, $widen:ident, $narrow:ident, $fma:ident,
        $infinity:literal, $normal:literal, $one:literal, $tiny:expr
    ) => {
        use super::half::{from_double, $fma, $narrow, $widen};
        use super::soft::{self, Layout};
        use super::{Comparison, Format, Mode, Property, Rounding};

        /// The pattern of NaN results.
        pub const NAN: u16 = 0x7fff;
        const SIGN: u16 = 1 << 15;
        const INFINITY: u16 = $infinity;
        const NORMAL: u16 = $normal;
        const ONE: u16 = $one;
        const LAYOUT: Layout = Layout::of(Format::$format);
        /// Halfway between the least normal number and the one below it with the same precision,
        /// see `f32`.
        const TINY: f32 = $tiny;

        /// Replaces a denormal with a zero of the same sign if `flush` is set.
        #[inline(always)]
        pub fn flushed(a: u16, flush: bool) -> u16 {
            if flush && a & !SIGN < NORMAL { a & SIGN } else { a }
        }

        #[inline(always)]
        fn canonical(a: u16) -> u16 {
            if a & !SIGN > INFINITY { NAN } else { a }
        }

        /// Clamps a value to [0, 1]. NaN and −0 become +0.
        #[inline(always)]
        fn saturated(a: u16) -> u16 {
            if (a as i16) < 0 || a > INFINITY { 0 } else { a.min(ONE) }
        }

        /// Applies the modifiers to a rounded result.
        #[inline(always)]
        fn finish(result: u16, mode: Mode) -> u16 {
            let result = flushed(canonical(result), mode.flush);
            let result = if mode.relu && (result as i16) < 0 { 0 } else { result };
            if mode.saturate { saturated(result) } else { result }
        }

        /// Rounds a single, and flushes a tiny one if `flush` is set.
        #[inline(always)]
        fn rounded(result: f32, flush: bool) -> u16 {
            let bits = $narrow(result);
            if flush && result.abs() < TINY { bits & SIGN } else { bits }
        }

        fn soft2(
            f: fn(Layout, u64, u64, Rounding) -> Option<u64>,
            a: u16,
            b: u16,
            mode: Mode,
        ) -> u16 {
            let result = f(LAYOUT.flushing(mode.flush), a.into(), b.into(), mode.rounding);
            result.map_or(NAN, |bits| bits as u16)
        }

        /// Returns a + b.
        #[inline(always)]
        pub fn add(a: u16, b: u16, mode: Mode) -> u16 {
            let (a, b) = (flushed(a, mode.flush), flushed(b, mode.flush));
            // A single has more than twice the bits, so the second rounding is correct.
            let result = match mode.rounding {
                Rounding::NearestEven => rounded($widen(a) + $widen(b), mode.flush),
                _ => soft2(soft::add, a, b, mode),
            };
            finish(result, mode)
        }

        /// Returns a − b.
        #[inline(always)]
        pub fn sub(a: u16, b: u16, mode: Mode) -> u16 {
            add(a, b ^ SIGN, mode)
        }

        /// Returns a × b.
        #[inline(always)]
        pub fn mul(a: u16, b: u16, mode: Mode) -> u16 {
            let (a, b) = (flushed(a, mode.flush), flushed(b, mode.flush));
            let result = match mode.rounding {
                Rounding::NearestEven => rounded($widen(a) * $widen(b), mode.flush),
                _ => soft2(soft::mul, a, b, mode),
            };
            finish(result, mode)
        }

        /// Returns a × b + c with one rounding.
        #[inline(always)]
        pub fn fma(a: u16, b: u16, c: u16, mode: Mode) -> u16 {
            let [a, b, c] = [a, b, c].map(|a| flushed(a, mode.flush));
            let result = match mode.rounding {
                Rounding::NearestEven => rounded($fma(a, b, c), mode.flush),
                rounding => {
                    let layout = LAYOUT.flushing(mode.flush);
                    soft::fma(layout, a.into(), b.into(), c.into(), rounding)
                        .map_or(NAN, |bits| bits as u16)
                }
            };
            finish(result, mode)
        }

        super::extremum::extrema!(u16, i16);

        /// Returns the absolute value.
        #[inline(always)]
        pub fn abs(a: u16, flush: bool) -> u16 {
            canonical(flushed(a, flush)) & !SIGN
        }

        /// Returns −a.
        #[inline(always)]
        pub fn neg(a: u16, flush: bool) -> u16 {
            canonical(flushed(a, flush) ^ SIGN)
        }

        /// Compares two numbers.
        #[inline(always)]
        pub fn compare(comparison: Comparison, a: u16, b: u16, flush: bool) -> bool {
            comparison.holds($widen(flushed(a, flush)), $widen(flushed(b, flush)))
        }

        /// Tests a property of a number.
        #[inline(always)]
        pub fn testp(property: Property, a: u16) -> bool {
            property.holds((a & !SIGN).into(), INFINITY.into(), NORMAL.into())
        }

        /// Returns the hyperbolic tangent of a (`tanh.approx`).
        #[inline]
        pub fn tanh_approx(a: u16) -> u16 {
            from_double(LAYOUT, libm::tanh($widen(a).into()))
        }

        /// Returns 2 to the power of a (`ex2.approx`).
        #[inline]
        pub fn ex2_approx(a: u16, flush: bool) -> u16 {
            flushed(from_double(LAYOUT, libm::exp2($widen(flushed(a, flush)).into())), flush)
        }
    };
}
pub(super) use arithmetic;
