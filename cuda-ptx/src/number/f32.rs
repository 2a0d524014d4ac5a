//! Single precision, on bit patterns.

use super::soft::{self, Layout};
use super::{Comparison, Format, Mode, Property, Rounding};

/// The pattern of NaN results.
pub const NAN: u32 = 0x7fff_ffff;
const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7f80_0000;
const ONE: u32 = 0x3f80_0000;
const NORMAL: u32 = 0x0080_0000;
const LAYOUT: Layout = Layout::of(Format::F32);
/// Halfway between the least normal number and the one below it with the same precision. `.ftz`
/// flushes exact results below: the hardware rounds without a limit of the exponent and then
/// compares.
const TINY: f64 = f64::from_bits(0x380f_ffff_f000_0000);

/// Replaces a denormal with a zero of the same sign if `flush` is set.
#[inline(always)]
pub fn flushed(a: u32, flush: bool) -> u32 {
    if flush && a & !SIGN < NORMAL { a & SIGN } else { a }
}

#[inline(always)]
pub(super) fn canonical(a: u32) -> u32 {
    if a & !SIGN > INFINITY { NAN } else { a }
}

/// Clamps a value to [0, 1]. NaN and −0 become +0.
#[inline(always)]
pub(super) fn saturated(a: u32) -> u32 {
    // As a signed integer, each pattern with a sign is negative.
    if (a as i32) < 0 || a > INFINITY { 0 } else { a.min(ONE) }
}

/// Applies the modifiers to a rounded result.
#[inline(always)]
fn finish(result: u32, mode: Mode) -> u32 {
    let result = flushed(canonical(result), mode.flush);
    let result = if mode.relu && (result as i32) < 0 { 0 } else { result };
    if mode.saturate { saturated(result) } else { result }
}

#[inline(always)]
fn float(a: u32, flush: bool) -> f32 {
    f32::from_bits(flushed(a, flush))
}

/// Replaces a result that is tiny before rounding with a zero of the same sign if `flush` is set.
#[inline(always)]
fn without_tiny(result: f32, exact: impl Fn() -> f64, flush: bool) -> u32 {
    let bits = result.to_bits();
    if flush && exact().abs() < TINY { bits & SIGN } else { bits }
}

fn soft2(f: fn(Layout, u64, u64, Rounding) -> Option<u64>, a: f32, b: f32, mode: Mode) -> u32 {
    let layout = LAYOUT.flushing(mode.flush);
    let result = f(layout, a.to_bits().into(), b.to_bits().into(), mode.rounding);
    result.map_or(NAN, |bits| bits as u32)
}

/// Returns a + b.
#[inline(always)]
pub fn add(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (float(a, mode.flush), float(b, mode.flush));
    let result = match mode.rounding {
        Rounding::NearestEven => (a + b).to_bits(),
        _ => soft2(soft::add, a, b, mode),
    };
    finish(result, mode)
}

/// Returns a − b.
#[inline(always)]
pub fn sub(a: u32, b: u32, mode: Mode) -> u32 {
    add(a, b ^ SIGN, mode)
}

/// Returns a × b.
#[inline(always)]
pub fn mul(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (float(a, mode.flush), float(b, mode.flush));
    let result = match mode.rounding {
        Rounding::NearestEven => without_tiny(a * b, || f64::from(a) * f64::from(b), mode.flush),
        _ => soft2(soft::mul, a, b, mode),
    };
    finish(result, mode)
}

/// Returns a / b.
#[inline(always)]
pub fn div(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (float(a, mode.flush), float(b, mode.flush));
    let result = match mode.rounding {
        Rounding::NearestEven => without_tiny(a / b, || f64::from(a) / f64::from(b), mode.flush),
        _ => soft2(soft::div, a, b, mode),
    };
    finish(result, mode)
}

/// Returns a × b + c with one rounding.
#[inline(always)]
pub fn fma(a: u32, b: u32, c: u32, mode: Mode) -> u32 {
    let (a, b, c) = (float(a, mode.flush), float(b, mode.flush), float(c, mode.flush));
    let result = match mode.rounding {
        Rounding::NearestEven => {
            let sum = product_sum(a, b, c);
            without_tiny(sum as f32, || sum, mode.flush)
        }
        _ => fma_soft(a, b, c, mode),
    };
    finish(result, mode)
}

fn fma_soft(a: f32, b: f32, c: f32, mode: Mode) -> u32 {
    let [a, b, c] = [a, b, c].map(|a| u64::from(a.to_bits()));
    soft::fma(LAYOUT.flushing(mode.flush), a, b, c, mode.rounding).map_or(NAN, |bits| bits as u32)
}

/// Returns a × b + c rounded to odd in double precision: an inexact result has its last bit set. A
/// second rounding to a format of at most 51 bits is then correct.
#[inline(always)]
pub(super) fn product_sum(a: f32, b: f32, c: f32) -> f64 {
    // The product of two singles is exact.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The error of the sum is exact too (Knuth). It is NaN if the sum is not finite.
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    // Truncation to the side of zero, with the last bit set if the sum is inexact.
    let inexact = u64::from(error.abs() > 0.0);
    let beyond = (error.to_bits() ^ sum.to_bits()) >> 63 & inexact;
    f64::from_bits((sum.to_bits().wrapping_sub(beyond)) | inexact)
}

/// Returns 1 / a.
#[inline(always)]
pub fn rcp(a: u32, mode: Mode) -> u32 {
    div(ONE, a, mode)
}

/// Returns the square root of a.
#[inline(always)]
pub fn sqrt(a: u32, mode: Mode) -> u32 {
    let a = float(a, mode.flush);
    let result = match mode.rounding {
        Rounding::NearestEven => a.sqrt().to_bits(),
        rounding => {
            soft::sqrt(LAYOUT, a.to_bits().into(), rounding).map_or(NAN, |bits| bits as u32)
        }
    };
    finish(result, mode)
}

super::extremum::extrema!(u32, i32);

/// Returns the absolute value.
#[inline(always)]
pub fn abs(a: u32, flush: bool) -> u32 {
    canonical(flushed(a, flush)) & !SIGN
}

/// Returns −a.
#[inline(always)]
pub fn neg(a: u32, flush: bool) -> u32 {
    canonical(flushed(a, flush) ^ SIGN)
}

/// Returns the magnitude of b with the sign of a.
#[inline(always)]
pub fn copysign(a: u32, b: u32) -> u32 {
    (a & SIGN) | (b & !SIGN)
}

/// Compares two numbers.
#[inline(always)]
pub fn compare(comparison: Comparison, a: u32, b: u32, flush: bool) -> bool {
    comparison.holds(float(a, flush), float(b, flush))
}

/// Tests a property of a number.
#[inline(always)]
pub fn testp(property: Property, a: u32) -> bool {
    property.holds((a & !SIGN).into(), INFINITY.into(), NORMAL.into())
}

/// Rounds the result of an approximate function.
#[inline(always)]
fn approximate(result: f64, flush: bool) -> u32 {
    flushed(canonical(without_tiny(result as f32, || result, flush)), flush)
}

/// Returns a / b (`div.approx`): 0 if the magnitude of b is above 2^126, NaN if a is infinite then.
#[inline(always)]
pub fn div_approx(a: u32, b: u32, flush: bool) -> u32 {
    const LIMIT: u32 = 0x7e80_0000;
    let quotient = div_full(a, b, flush);
    let magnitude = b & !SIGN;
    let large = magnitude > LIMIT && magnitude < INFINITY;
    let zero = if a & !SIGN >= INFINITY { NAN } else { (a ^ b) & SIGN };
    if large { zero } else { quotient }
}

/// Returns a / b (`div.full`).
#[inline(always)]
pub fn div_full(a: u32, b: u32, flush: bool) -> u32 {
    div(a, b, Mode { flush, ..Mode::EXACT })
}

/// Returns 1 / a (`rcp.approx`).
#[inline(always)]
pub fn rcp_approx(a: u32, flush: bool) -> u32 {
    rcp(a, Mode { flush, ..Mode::EXACT })
}

/// Returns the square root of a (`sqrt.approx`).
#[inline(always)]
pub fn sqrt_approx(a: u32, flush: bool) -> u32 {
    sqrt(a, Mode { flush, ..Mode::EXACT })
}

/// Returns 1 / √a (`rsqrt.approx`).
#[inline(always)]
pub fn rsqrt_approx(a: u32, flush: bool) -> u32 {
    approximate(1.0 / f64::from(float(a, flush)).sqrt(), flush)
}

/// Returns the sine of a (`sin.approx`). A denormal operand becomes zero with and without `.ftz`.
#[inline]
pub fn sin_approx(a: u32, flush: bool) -> u32 {
    approximate(libm::sin(float(a, true).into()), flush)
}

/// Returns the cosine of a (`cos.approx`).
#[inline]
pub fn cos_approx(a: u32, flush: bool) -> u32 {
    approximate(libm::cos(float(a, true).into()), flush)
}

/// Returns the binary logarithm of a (`lg2.approx`).
#[inline]
pub fn lg2_approx(a: u32, flush: bool) -> u32 {
    approximate(libm::log2(float(a, flush).into()), flush)
}

/// Returns 2 to the power of a (`ex2.approx`).
#[inline]
pub fn ex2_approx(a: u32, flush: bool) -> u32 {
    approximate(libm::exp2(float(a, flush).into()), flush)
}

/// Returns the hyperbolic tangent of a (`tanh.approx`).
#[inline]
pub fn tanh_approx(a: u32) -> u32 {
    approximate(libm::tanh(float(a, false).into()), false)
}
