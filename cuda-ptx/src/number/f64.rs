//! Double precision, on bit patterns. It has neither `.ftz` nor `.sat`: of a [`Mode`], only the
//! rounding counts.

use super::soft::{self, Layout};
use super::{Comparison, Format, Mode, Property, Rounding};

/// The NaN of an invalid operation without a NaN operand.
pub const NAN: u64 = 0xfff8_0000_0000_0000;
const SIGN: u64 = 1 << 63;
const QUIET: u64 = 1 << 51;
const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const ONE: u64 = 0x3ff0_0000_0000_0000;
const NORMAL: u64 = 1 << 52;
const LAYOUT: Layout = Layout::of(Format::F64);

#[inline(always)]
fn is_nan(a: u64) -> bool {
    a & !SIGN > INFINITY
}

/// Returns `result`, or the first NaN among the operands with its quiet bit set.
#[inline(always)]
fn propagate<const N: usize>(result: u64, operands: [u64; N]) -> u64 {
    let mut nan = NAN;
    for &operand in operands.iter().rev() {
        nan = if is_nan(operand) { operand | QUIET } else { nan };
    }
    if is_nan(result) { nan } else { result }
}

/// Returns a + b.
#[inline(always)]
pub fn add(a: u64, b: u64, mode: Mode) -> u64 {
    let result = match mode.rounding {
        Rounding::NearestEven => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        rounding => soft::add(LAYOUT, a, b, rounding).unwrap_or(NAN),
    };
    propagate(result, [b, a])
}

/// Returns a − b.
#[inline(always)]
pub fn sub(a: u64, b: u64, mode: Mode) -> u64 {
    let result = match mode.rounding {
        Rounding::NearestEven => (f64::from_bits(a) - f64::from_bits(b)).to_bits(),
        rounding => soft::add(LAYOUT, a, b ^ SIGN, rounding).unwrap_or(NAN),
    };
    propagate(result, [b, a])
}

/// Returns a × b.
#[inline(always)]
pub fn mul(a: u64, b: u64, mode: Mode) -> u64 {
    let result = match mode.rounding {
        Rounding::NearestEven => (f64::from_bits(a) * f64::from_bits(b)).to_bits(),
        rounding => soft::mul(LAYOUT, a, b, rounding).unwrap_or(NAN),
    };
    propagate(result, [b, a])
}

/// Returns a / b.
#[inline(always)]
pub fn div(a: u64, b: u64, mode: Mode) -> u64 {
    let result = match mode.rounding {
        Rounding::NearestEven => (f64::from_bits(a) / f64::from_bits(b)).to_bits(),
        rounding => soft::div(LAYOUT, a, b, rounding).unwrap_or(NAN),
    };
    propagate(result, [a, b])
}

/// Returns a × b + c with one rounding.
#[inline(always)]
pub fn fma(a: u64, b: u64, c: u64, mode: Mode) -> u64 {
    let result = match mode.rounding {
        Rounding::NearestEven => {
            f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
        }
        rounding => soft::fma(LAYOUT, a, b, c, rounding).unwrap_or(NAN),
    };
    propagate(result, [b, c, a])
}

/// Returns 1 / a.
#[inline(always)]
pub fn rcp(a: u64, mode: Mode) -> u64 {
    div(ONE, a, mode)
}

/// Returns the square root of a.
#[inline(always)]
pub fn sqrt(a: u64, mode: Mode) -> u64 {
    let result = match mode.rounding {
        Rounding::NearestEven => f64::from_bits(a).sqrt().to_bits(),
        rounding => soft::sqrt(LAYOUT, a, rounding).unwrap_or(NAN),
    };
    propagate(result, [a])
}

/// Maps a pattern to an integer of the same order, −0 before +0.
#[inline(always)]
fn key(a: u64) -> i64 {
    (a ^ (((a as i64) >> 63) as u64 >> 1)) as i64
}

#[inline(always)]
fn select(a: u64, b: u64, first: bool) -> u64 {
    let chosen = if first { a } else { b };
    let chosen = if is_nan(a) { b } else { chosen };
    let chosen = if is_nan(b) { a } else { chosen };
    if is_nan(a) & is_nan(b) { b | QUIET } else { chosen }
}

/// Returns the lesser operand. A NaN operand is ignored.
#[inline(always)]
pub fn min(a: u64, b: u64) -> u64 {
    select(a, b, key(a) < key(b))
}

/// Returns the greater operand. A NaN operand is ignored.
#[inline(always)]
pub fn max(a: u64, b: u64) -> u64 {
    select(a, b, key(a) > key(b))
}

/// Returns the absolute value. A NaN keeps its sign.
#[inline(always)]
pub fn abs(a: u64) -> u64 {
    propagate(if is_nan(a) { a } else { a & !SIGN }, [a])
}

/// Returns −a. A NaN keeps its sign.
#[inline(always)]
pub fn neg(a: u64) -> u64 {
    propagate(a ^ SIGN, [a])
}

/// Returns the magnitude of b with the sign of a.
#[inline(always)]
pub fn copysign(a: u64, b: u64) -> u64 {
    (a & SIGN) | (b & !SIGN)
}

/// Compares two numbers.
#[inline(always)]
pub fn compare(comparison: Comparison, a: u64, b: u64) -> bool {
    comparison.holds(f64::from_bits(a), f64::from_bits(b))
}

/// Tests a property of a number.
#[inline(always)]
pub fn testp(property: Property, a: u64) -> bool {
    property.holds(a & !SIGN, INFINITY, NORMAL)
}

/// Clamps a value to [0, 1]. NaN and −0 become +0.
#[inline(always)]
pub(super) fn saturated(a: u64) -> u64 {
    if (a as i64) < 0 || a > INFINITY { 0 } else { a.min(ONE) }
}

/// Returns the operand of a function that reads the high word and flushes denormals.
#[inline(always)]
fn high_word(a: u64) -> f64 {
    let a = a & !0xffff_ffff;
    f64::from_bits(if a & !SIGN < NORMAL { a & SIGN } else { a })
}

/// Truncates a result to its high word and flushes denormals. NaN becomes canonical.
///
/// The table of an H200 gives the truncated word for 19 of 20 operands and the next one for the
/// others.
#[inline(always)]
fn to_high_word(result: f64) -> u64 {
    let bits = result.to_bits();
    if is_nan(bits) {
        return 0x7fff_ffff_0000_0000;
    }
    let result = bits & !0xffff_ffff;
    if result & !SIGN < NORMAL { result & SIGN } else { result }
}

/// Returns 1 / a (`rcp.approx.ftz.f64`), from the high word of a and with a low word of zero.
#[inline(always)]
pub fn rcp_approx_ftz(a: u64) -> u64 {
    to_high_word(1.0 / high_word(a))
}

/// Returns 1 / √a (`rsqrt.approx.f64`). The payload of a NaN is kept.
#[inline(always)]
pub fn rsqrt_approx(a: u64) -> u64 {
    let magnitude = a & !SIGN;
    match magnitude {
        0 => a & SIGN | INFINITY,
        _ if magnitude > INFINITY => a | 1 << 51,
        _ if a & SIGN != 0 => INFINITY | SIGN | 1 << 51,
        _ => (1.0 / f64::from_bits(a).sqrt()).to_bits(),
    }
}

/// Returns 1 / √a (`rsqrt.approx.ftz.f64`), from the high word of a and with a low word of zero.
#[inline(always)]
pub fn rsqrt_approx_ftz(a: u64) -> u64 {
    to_high_word(1.0 / high_word(a).sqrt())
}
