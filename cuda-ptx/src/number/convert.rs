//! Conversions between formats, from and to integers, and to integral values.
//!
//! The generic functions choose a branch-free function for the commonest conversions if formats and
//! mode are constants.

use super::soft::{Layout, Number, Value};
use super::{Format, Mode, Rounding, f32 as single, f64 as double, half};

/// Returns the single that a double is nearest to. The upper part of a NaN's payload is kept.
#[inline(always)]
pub fn f64_to_f32(a: u64) -> u32 {
    let nearest = (f64::from_bits(a) as f32).to_bits();
    let nan = ((a >> 32) as u32 & 0x8000_0000) | 0x7fc0_0000 | ((a >> 29) as u32 & 0x003f_ffff);
    if a & !(1 << 63) > 0x7ff0_0000_0000_0000 { nan } else { nearest }
}

/// Returns the double of a single. The payload of a NaN is kept.
#[inline(always)]
pub fn f32_to_f64(a: u32) -> u64 {
    let exact = f64::from(f32::from_bits(a)).to_bits();
    let nan = (u64::from(a & 0x8000_0000) << 32)
        | 0x7ff8_0000_0000_0000
        | (u64::from(a & 0x003f_ffff) << 29);
    if a & 0x7fff_ffff > 0x7f80_0000 { nan } else { exact }
}

/// Returns the single of a half. NaN becomes canonical.
#[inline(always)]
pub fn f16_to_f32(a: u16) -> u32 {
    let exact = half::from_f16(a).to_bits();
    if a & 0x7fff > 0x7c00 { single::NAN } else { exact }
}

/// Returns the half that a single is nearest to. NaN becomes canonical.
#[inline(always)]
pub fn f32_to_f16(a: u32) -> u16 {
    half::to_f16(f32::from_bits(a))
}

/// Returns the single of a bfloat. NaN keeps its bits.
#[inline(always)]
pub fn bf16_to_f32(a: u16) -> u32 {
    u32::from(a) << 16
}

/// Returns the bfloat that a single is nearest to. NaN becomes canonical.
#[inline(always)]
pub fn f32_to_bf16(a: u32) -> u16 {
    half::to_bf16(f32::from_bits(a))
}

/// Converts between floating-point formats.
///
/// `mode.flush` applies to singles only. With `finite` (`.satfinite`), infinity and numbers beyond
/// the range become the greatest finite number; formats without infinity always behave so.
#[inline(always)]
pub fn convert_float(from: Format, to: Format, bits: u64, mode: Mode, finite: bool) -> u64 {
    // Conversions to halves ignore `.ftz`.
    let bits = if mode.flush && from == Format::F32 && to != Format::F16 {
        single::flushed(bits as u32, true).into()
    } else {
        bits
    };
    let nearest = mode.rounding == Rounding::NearestEven && !finite;
    let result = match (from, to) {
        (Format::F32, Format::F64) if mode.flush => f32_to_f64(single::canonical(bits as u32)),
        (Format::F32, Format::F64) => f32_to_f64(bits as u32),
        (Format::F64, Format::F32) if nearest && !mode.flush => f64_to_f32(bits).into(),
        (Format::F16, Format::F32) => f16_to_f32(bits as u16).into(),
        (Format::Bf16, Format::F32) => bf16_to_f32(bits as u16).into(),
        (Format::F32, Format::F16) if nearest => f32_to_f16(bits as u32).into(),
        (Format::F32, Format::Bf16) if nearest => f32_to_bf16(bits as u32).into(),
        (Format::F32, Format::F32) if mode.flush => single::canonical(bits as u32).into(),
        (Format::F16, Format::F16) if bits & 0x7fff > 0x7c00 => nan(from, to, bits),
        _ if from == to => bits,
        _ => {
            let layout = Layout::of(to).flushing(mode.flush && to == Format::F32);
            convert_soft(from, to, layout, bits, mode.rounding, finite)
        }
    };
    finish(to, result, mode)
}

/// Applies `.ftz`, `.relu` and `.sat` to a rounded result.
#[inline(always)]
fn finish(format: Format, bits: u64, mode: Mode) -> u64 {
    let bits = if mode.flush && format == Format::F32 {
        single::flushed(bits as u32, true).into()
    } else {
        bits
    };
    let bits = if mode.relu { positive(format, bits) } else { bits };
    match format {
        _ if !mode.saturate => bits,
        Format::F32 => single::saturated(bits as u32).into(),
        Format::F64 => double::saturated(bits),
        _ => {
            let layout = Layout::of(format);
            if bits & layout.sign() != 0 || bits > layout.infinity() {
                0
            } else {
                bits.min(layout.one())
            }
        }
    }
}

/// Replaces a negative value with zero.
fn positive(format: Format, bits: u64) -> u64 {
    let layout = Layout::of(format);
    if bits & layout.sign() != 0 && !matches!(layout.decode(bits), Value::Nan) { 0 } else { bits }
}

#[inline(never)]
fn convert_soft(
    from: Format,
    to: Format,
    layout: Layout,
    bits: u64,
    rounding: Rounding,
    finite: bool,
) -> u64 {
    if to == Format::Tf32 && rounding == Rounding::NearestAway && from == Format::F32 {
        return to_tf32_away(bits as u32, finite).into();
    }
    let value = if from == Format::Ue8m0 { power(bits) } else { Layout::of(from).decode(bits) };
    if to == Format::Ue8m0 {
        return to_power(value, rounding);
    }
    match value {
        Value::Nan => nan(from, to, bits),
        Value::Infinite { negative } => {
            let sign = if negative { layout.sign() } else { 0 };
            sign | if finite { layout.greatest() } else { infinity_or_greatest(to) }
        }
        Value::Finite(number) => {
            let result = layout.encode(number, rounding);
            let magnitude = result & !layout.sign();
            if finite && magnitude > layout.greatest() {
                result & layout.sign() | layout.greatest()
            } else {
                result
            }
        }
    }
}

fn infinity_or_greatest(format: Format) -> u64 {
    let layout = Layout::of(format);
    match format {
        Format::E4m3 | Format::E2m3 | Format::E3m2 | Format::E2m1 => layout.greatest(),
        _ => layout.infinity(),
    }
}

/// Rounds the bits of a single to those of a tf32, ties away from zero. A NaN is rounded like a
/// number, and `.satfinite` takes the pattern before infinity or NaN.
fn to_tf32_away(bits: u32, finite: bool) -> u32 {
    let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    let rounded = ((magnitude + 0x1000) & !0x1fff).min(0x7fff_e000);
    let excess = if finite && rounded >= 0x7f80_0000 { 0x2000 } else { 0 };
    sign | (rounded - excess)
}

/// Returns the NaN that a NaN is converted to.
fn nan(from: Format, to: Format, bits: u64) -> u64 {
    match (from, to) {
        (Format::F64, Format::F16) => (bits >> 48 & 0x8000) | 0x7e00 | (bits >> 42 & 0x01ff),
        (Format::F64, Format::Bf16) => (bits >> 48 & 0x8000) | 0x7fc0 | (bits >> 45 & 0x003f),
        (Format::F64, Format::F32) => f64_to_f32(bits).into(),
        (Format::F16, Format::F64) => {
            (bits & 0x8000) << 48 | 0x7ff8_0000_0000_0000 | (bits & 0x01ff) << 42
        }
        (Format::Bf16, Format::F64) => f32_to_f64(bf16_to_f32(bits as u16)),
        (_, Format::F64) => f32_to_f64(single::NAN),
        (_, Format::F32) => single::NAN.into(),
        (_, Format::Tf32) => 0x7fff_e000,
        (_, Format::F16 | Format::Bf16) => 0x7fff,
        (_, Format::E4m3 | Format::E5m2) => 0x7f,
        (_, Format::Ue8m0) => 0xff,
        // The formats without NaN take the greatest number.
        (_, Format::E2m3 | Format::E3m2 | Format::E2m1) => Layout::of(to).greatest(),
    }
}

/// Decodes a ue8m0.
fn power(bits: u64) -> Value {
    match bits & 0xff {
        0xff => Value::Nan,
        exponent => Value::Finite(Number {
            negative: false,
            exponent: exponent as i32 - 127,
            significand: 1,
        }),
    }
}

/// Rounds the magnitude of a value to a power of two. Numbers beyond the range become the nearest
/// power.
fn to_power(value: Value, rounding: Rounding) -> u64 {
    match value {
        Value::Nan => 0xff,
        Value::Infinite { .. } => 0xfe,
        Value::Finite(Number { significand: 0, .. }) => 0,
        Value::Finite(Number { exponent, significand, .. }) => {
            let above = rounding == Rounding::Up && !significand.is_power_of_two();
            let leading = significand.ilog2() as i32 + exponent + i32::from(above);
            (leading + 127).clamp(0, 0xfe) as u64
        }
    }
}

/// Rounds a double to an integral value. The sign of zero is kept.
#[inline(always)]
fn integral(a: f64, rounding: Rounding) -> f64 {
    // Doubles from 2^52 on are integral. The sum with 2^52 is rounded to the nearest integer.
    const LARGE: f64 = 4_503_599_627_370_496.0;
    let magnitude = a.abs();
    let nearest = (magnitude + LARGE) - LARGE;
    let nearest = if magnitude < LARGE { nearest } else { magnitude };
    let down = if nearest > magnitude { nearest - 1.0 } else { nearest };
    let up = if nearest < magnitude { nearest + 1.0 } else { nearest };
    let negative = a.is_sign_negative();
    let result = match rounding {
        Rounding::NearestEven => nearest,
        Rounding::Zero => down,
        Rounding::Down => {
            if negative {
                up
            } else {
                down
            }
        }
        Rounding::Up => {
            if negative {
                down
            } else {
                up
            }
        }
        Rounding::NearestAway => {
            if magnitude - down >= 0.5 {
                down + 1.0
            } else {
                down
            }
        }
    };
    result.copysign(a)
}

/// Returns the double of a value of a 16-bit format, a single or a double, and whether it is NaN.
#[inline(always)]
fn to_double(from: Format, bits: u64, flush: bool) -> f64 {
    match from {
        Format::F64 => f64::from_bits(bits),
        Format::F32 => f64::from(f32::from_bits(single::flushed(bits as u32, flush))),
        Format::F16 => f64::from(half::from_f16(bits as u16)),
        Format::Bf16 => f64::from(half::from_bf16(bits as u16)),
        _ => f64::from_bits(convert_float(from, Format::F64, bits, Mode::EXACT, false)),
    }
}

/// Converts a floating-point number to an integer in the low `width` bits (8, 16, 32 or 64).
///
/// Numbers beyond the range are clamped. NaN becomes 0 if neither format has 64 bits, otherwise
/// only the highest bit is set.
#[inline(always)]
pub fn float_to_int(from: Format, bits: u64, width: u32, signed: bool, mode: Mode) -> u64 {
    if from == Format::F32 && width == 32 && mode.rounding == Rounding::Zero {
        // `as` truncates, clamps and turns NaN into 0.
        let a = f32::from_bits(single::flushed(bits as u32, mode.flush));
        return if signed { a as i32 as u32 } else { a as u32 }.into();
    }
    let a = to_double(from, bits, mode.flush);
    let value = integral(a, mode.rounding);
    let result = match (width, signed) {
        (8, true) => u64::from(value as i8 as u8),
        (8, false) => u64::from(value as u8),
        (16, true) => u64::from(value as i16 as u16),
        (16, false) => u64::from(value as u16),
        (32, true) => u64::from(value as i32 as u32),
        (32, false) => u64::from(value as u32),
        (_, true) => value as i64 as u64,
        (_, false) => value as u64,
    };
    // Conversions that involve 64 bits turn NaN into the highest bit, signed or not.
    let nan = if from == Format::F64 || width > 32 {
        1u64.checked_shl(width.wrapping_sub(1)).unwrap_or(0)
    } else {
        0
    };
    if a.is_nan() { nan } else { result }
}

/// Converts an integer with one rounding.
#[inline(always)]
pub fn int_to_float(to: Format, value: i128, mode: Mode) -> u64 {
    let result = match (to, mode.rounding) {
        (Format::F32, Rounding::NearestEven) => {
            match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => (value as f32).to_bits().into(),
                (_, Ok(value)) => (value as f32).to_bits().into(),
                _ => (value as f32).to_bits().into(),
            }
        }
        (Format::F64, Rounding::NearestEven) => {
            match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => (value as f64).to_bits(),
                (_, Ok(value)) => (value as f64).to_bits(),
                _ => (value as f64).to_bits(),
            }
        }
        (_, rounding) => int_to_float_soft(to, value, rounding),
    };
    finish(to, result, mode)
}

#[inline(never)]
fn int_to_float_soft(to: Format, value: i128, rounding: Rounding) -> u64 {
    let number = Number { negative: value < 0, exponent: 0, significand: value.unsigned_abs() };
    if to == Format::Ue8m0 {
        to_power(Value::Finite(number), rounding)
    } else {
        Layout::of(to).encode(number, rounding)
    }
}

/// Rounds a number to an integral value of the same format (`cvt.rni.f32.f32`).
///
/// `mode.rounding` is the direction; the sign of zero is kept.
#[inline(always)]
pub fn round_to_integral(format: Format, bits: u64, mode: Mode) -> u64 {
    let value = integral(to_double(format, bits, mode.flush), mode.rounding);
    // The rounded value is a value of the format.
    let result = match format {
        // A NaN becomes quiet.
        Format::F64 if value.is_nan() => bits | 1 << 51,
        Format::F64 => value.to_bits(),
        Format::F32 if value.is_nan() => single::NAN.into(),
        Format::F32 => (value as f32).to_bits().into(),
        Format::F16 => half::to_f16(value as f32).into(),
        Format::Bf16 => half::to_bf16(value as f32).into(),
        _ => convert_float(Format::F64, format, value.to_bits(), Mode::EXACT, false),
    };
    finish(format, result, mode)
}
