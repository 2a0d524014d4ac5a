use crate::oracle::{ROUNDINGS, Random, edges};
use cuda_ptx::number::{
    Format, Mode, Rounding, convert, convert_float, f32 as single, float_to_int, int_to_float,
    round_to_integral,
};
use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

fn nearest(from: Format, to: Format, bits: u64) -> u64 {
    convert_float(from, to, bits, Mode::EXACT, false)
}

/// Compares conversions of `patterns` that are not NaN with the oracle.
fn agrees<F: FloatConvert<T>, T: Float>(
    from: Format,
    to: Format,
    patterns: impl IntoIterator<Item = u64>,
    finite: bool,
) {
    for bits in patterns {
        let value = F::from_bits(bits.into());
        if value.is_nan() {
            continue;
        }
        for (rounding, round) in ROUNDINGS {
            let expected: T = value.convert_r(round, &mut false).value;
            let beyond = finite && !expected.is_finite();
            let largest = if value.is_negative() { -T::largest() } else { T::largest() };
            let expected = if beyond { largest } else { expected }.to_bits() as u64;
            let result = convert_float(from, to, bits, Mode::rounded(rounding), finite);
            assert_eq!(result, expected, "{from:?} {to:?} {bits:x} {rounding:?}");
        }
    }
}

fn halves() -> impl Iterator<Item = u64> {
    0..1 << 16
}

/// Returns the edges of singles, each half's and bfloat's value, and the patterns around ties
/// between them.
fn singles() -> Vec<u64> {
    let mut patterns = edges(8, 23);
    for bits in halves() {
        let half = nearest(Format::F16, Format::F32, bits);
        let bfloat = bits << 16;
        patterns.extend([half, half ^ 0x1000, half ^ 0x1001, half ^ 0x0fff]);
        patterns.extend([bfloat, bfloat ^ 0x8000, bfloat ^ 0x8001, bfloat ^ 0x7fff]);
    }
    patterns
}

fn doubles() -> Vec<u64> {
    let mut patterns = edges(11, 52);
    for bits in singles().into_iter().step_by(13) {
        let double = nearest(Format::F32, Format::F64, bits);
        patterns.extend([double, double ^ 1, double ^ 0x1000_0000, double ^ 0x1000_0001]);
    }
    let mut random = Random::new();
    patterns.extend((0..20_000).map(|_| random.next()));
    patterns
}

#[test]
fn conversions_to_wider_formats_are_exact() {
    agrees::<Half, Single>(Format::F16, Format::F32, halves(), false);
    agrees::<BFloat, Single>(Format::Bf16, Format::F32, halves(), false);
    agrees::<Half, Double>(Format::F16, Format::F64, halves(), false);
    agrees::<Single, Double>(Format::F32, Format::F64, singles().into_iter().step_by(11), false);
    agrees::<Float8E4M3FN, Half>(Format::E4m3, Format::F16, 0..256, false);
    agrees::<Float8E5M2, Half>(Format::E5m2, Format::F16, 0..256, false);
}

#[test]
fn conversions_to_narrower_formats_round_once() {
    agrees::<Single, Half>(Format::F32, Format::F16, singles(), false);
    agrees::<Single, BFloat>(Format::F32, Format::Bf16, singles(), false);
    agrees::<Double, Single>(Format::F64, Format::F32, doubles(), false);
    agrees::<Double, Half>(Format::F64, Format::F16, doubles(), false);
    agrees::<Double, BFloat>(Format::F64, Format::Bf16, doubles(), false);
    agrees::<BFloat, Half>(Format::Bf16, Format::F16, halves(), false);
    agrees::<Half, BFloat>(Format::F16, Format::Bf16, halves(), false);
}

#[test]
fn satfinite_clamps_to_the_greatest_number() {
    agrees::<Single, Float8E4M3FN>(
        Format::F32,
        Format::E4m3,
        singles().into_iter().step_by(3),
        true,
    );
    agrees::<Single, Float8E5M2>(Format::F32, Format::E5m2, singles().into_iter().step_by(3), true);
    agrees::<Half, Float8E4M3FN>(Format::F16, Format::E4m3, halves(), true);
    agrees::<Half, Float8E5M2>(Format::F16, Format::E5m2, halves(), true);
    agrees::<Single, Half>(Format::F32, Format::F16, singles().into_iter().step_by(3), true);
    agrees::<Single, BFloat>(Format::F32, Format::Bf16, singles().into_iter().step_by(3), true);
}

/// Returns the value of a small format, from the definition of its fields.
fn small_value(bits: u64, fraction_bits: u32, exponent_bits: u32) -> f32 {
    let fraction = (bits & ((1 << fraction_bits) - 1)) as f32 / (1 << fraction_bits) as f32;
    let exponent = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let magnitude = if exponent == 0 {
        fraction * 2f32.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2f32.powi(exponent - bias)
    };
    if bits >> (fraction_bits + exponent_bits) != 0 { -magnitude } else { magnitude }
}

#[test]
fn formats_without_infinity_round_to_the_nearest_of_all_values() {
    for (format, exponent_bits, fraction_bits) in
        [(Format::E2m3, 2, 3), (Format::E3m2, 3, 2), (Format::E2m1, 2, 1)]
    {
        let all = 1 << (1 + exponent_bits + fraction_bits);
        let values: Vec<f32> =
            (0..all).map(|i| small_value(i, fraction_bits, exponent_bits)).collect();
        for (bits, value) in values.iter().enumerate() {
            assert_eq!(
                nearest(format, Format::F32, bits as u64) as u32,
                value.to_bits(),
                "{format:?}"
            );
        }
        for step in -2000..2000 {
            let value = step as f32 / 64.0;
            let result =
                convert_float(Format::F32, format, value.to_bits().into(), Mode::EXACT, true);
            let distance = |bits: u64| (values[bits as usize] - value).abs();
            for other in 0..all {
                let even_of_tie = result & 1 == 0 || distance(other) > distance(result);
                let same = values[other as usize] == values[result as usize];
                assert!(
                    distance(result) < distance(other)
                        || same
                        || even_of_tie && distance(result) == distance(other)
                        || distance(result) == distance(other)
                            && value.abs() > values[all as usize / 2 - 1],
                    "{format:?} {value} {result:x} {other:x}"
                );
            }
        }
        assert_eq!(nearest(Format::F32, format, single::NAN.into()), all / 2 - 1);
    }
}

#[test]
fn tf32_has_eleven_bits_and_its_own_nan() {
    let convert = |bits: u32, rounding, finite| {
        convert_float(Format::F32, Format::Tf32, bits.into(), Mode::rounded(rounding), finite)
            as u32
    };
    let (away, even, zero) = (Rounding::NearestAway, Rounding::NearestEven, Rounding::Zero);
    assert_eq!(convert(0x3f80_1000, away, false), 0x3f80_2000);
    assert_eq!(convert(0x3f80_1000, even, false), 0x3f80_0000);
    assert_eq!(convert(0x3f80_3000, even, false), 0x3f80_4000);
    assert_eq!(convert(0xbf80_1fff, zero, false), 0xbf80_0000);
    assert_eq!(convert(0x7f7f_ffff, even, false), 0x7f80_0000);
    assert_eq!(convert(0x7f7f_ffff, even, true), 0x7f7f_e000);
    assert_eq!(convert(0x7f80_0001, away, false), 0x7f80_0000);
    assert_eq!(convert(0x7f80_0001, away, true), 0x7f7f_e000);
    assert_eq!(convert(0xffff_ffff, away, false), 0xffff_e000);
    assert_eq!(convert(0x7fff_ffff, away, true), 0x7fff_c000);
    assert_eq!(convert(0xffc0_0000, away, true), 0xffbf_e000);
    assert_eq!(convert(0x7f80_0001, even, false), 0x7fff_e000);
    assert_eq!(convert(0x7f80_0001, zero, false), 0x7fff_e000);
}

#[test]
fn ue8m0_is_a_power_of_two() {
    let convert = |value: f32, rounding| {
        convert_float(
            Format::F32,
            Format::Ue8m0,
            value.to_bits().into(),
            Mode::rounded(rounding),
            true,
        )
    };
    assert_eq!(convert(1.0, Rounding::Up), 127);
    assert_eq!(convert(1.5, Rounding::Up), 128);
    assert_eq!(convert(1.5, Rounding::Zero), 127);
    assert_eq!(convert(0.0, Rounding::Up), 0);
    assert_eq!(convert(f32::MAX, Rounding::Up), 254);
    assert_eq!(convert(f32::NAN, Rounding::Up), 255);
    for bits in 0..255 {
        let value = nearest(Format::Ue8m0, Format::F64, bits);
        assert_eq!(f64::from_bits(value), 2f64.powi(bits as i32 - 127));
        assert_eq!(nearest(Format::F64, Format::Ue8m0, value), bits);
    }
}

#[test]
fn nans_are_converted_as_on_the_hardware() {
    use Format::{Bf16, E4m3, E5m2, F16, F32, F64};
    assert_eq!(nearest(F32, F16, 0xff80_0001), 0x7fff);
    assert_eq!(nearest(F32, Bf16, 0xff80_0001), 0x7fff);
    assert_eq!(nearest(F16, F32, 0xfc01), 0x7fff_ffff);
    assert_eq!(nearest(Bf16, F32, 0xff81), 0xff81_0000);
    assert_eq!(nearest(F32, F32, 0xff80_0001), 0xff80_0001);
    assert_eq!(nearest(F32, F64, 0xffc1_2345), 0xfff8_2468_a000_0000);
    assert_eq!(nearest(F16, F64, 0x7c01), 0x7ff8_0400_0000_0000);
    assert_eq!(nearest(Bf16, F64, 0xff81), 0xfff8_2000_0000_0000);
    assert_eq!(nearest(F16, Bf16, 0xfc01), 0x7fff);
    assert_eq!(nearest(F64, F32, 0xfff4_0000_2000_0001), 0xffe0_0001);
    assert_eq!(nearest(F64, F16, 0xfff1_0000_0000_0001), 0xfe40);
    assert_eq!(nearest(F64, Bf16, 0x7ff0_2000_0000_0000), 0x7fc1);
    assert_eq!(convert_float(F32, E4m3, 0xff80_0001, Mode::EXACT, true), 0x7f);
    assert_eq!(convert_float(F32, E5m2, 0xff80_0001, Mode::EXACT, true), 0x7f);
    let saturate = Mode { saturate: true, ..Mode::EXACT };
    assert_eq!(convert_float(F32, F32, 0xff80_0001, saturate, false), 0);
    assert_eq!(convert_float(F64, F64, 0xfff0_0000_0000_0001, saturate, false), 0);
}

#[test]
fn specialised_conversions_equal_the_generic_ones() {
    for bits in halves() {
        assert_eq!(
            u64::from(convert::f16_to_f32(bits as u16)),
            nearest(Format::F16, Format::F32, bits)
        );
        assert_eq!(
            u64::from(convert::bf16_to_f32(bits as u16)),
            nearest(Format::Bf16, Format::F32, bits)
        );
        // Each value survives the way through a wider format.
        let half = convert::f32_to_f16(convert::f16_to_f32(bits as u16));
        assert_eq!(half, if bits & 0x7fff > 0x7c00 { 0x7fff } else { bits as u16 });
        let double = nearest(Format::F16, Format::F64, bits);
        if bits & 0x7fff <= 0x7c00 {
            assert_eq!(nearest(Format::F64, Format::F16, double), bits);
        }
    }
}

#[test]
fn floats_to_integers_round_and_clamp() {
    let patterns: Vec<u64> = doubles()
        .into_iter()
        .step_by(16)
        .chain(
            (-40..40)
                .flat_map(|i| {
                    [
                        f64::from(i) / 4.0,
                        2147483648.0 + f64::from(i) / 4.0,
                        -128.0 + f64::from(i) / 4.0,
                    ]
                })
                .map(f64::to_bits),
        )
        .collect();
    for (rounding, round) in ROUNDINGS {
        for &bits in &patterns {
            let value = Double::from_bits(bits.into());
            if value.is_nan() {
                continue;
            }
            // The bits of a single: the upper half is a pattern of its own.
            let single = Single::from_bits((bits >> 32).into());
            for width in [8, 16, 32, 64] {
                let mask = u64::MAX >> (64 - width);
                let mode = Mode::rounded(rounding);
                let signed = value.to_i128_r(width as usize, round, &mut false).value as u64 & mask;
                assert_eq!(
                    float_to_int(Format::F64, bits, width, true, mode),
                    signed,
                    "{bits:x} {width} {rounding:?}"
                );
                let unsigned = value.to_u128_r(width as usize, round, &mut false).value as u64;
                assert_eq!(
                    float_to_int(Format::F64, bits, width, false, mode),
                    unsigned,
                    "{bits:x} {width} {rounding:?}"
                );
                if !single.is_nan() {
                    let signed =
                        single.to_i128_r(width as usize, round, &mut false).value as u64 & mask;
                    assert_eq!(
                        float_to_int(Format::F32, bits >> 32, width, true, mode),
                        signed,
                        "{bits:x} {width} {rounding:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn nan_to_an_integer_is_zero_or_the_highest_bit() {
    let nan = u64::from(single::NAN);
    for width in [8, 16, 32] {
        for signed in [false, true] {
            assert_eq!(float_to_int(Format::F32, nan, width, signed, Mode::EXACT), 0);
            assert_eq!(
                float_to_int(Format::F16, 0x7fff, width, signed, Mode::rounded(Rounding::Zero)),
                0
            );
            assert_eq!(
                float_to_int(Format::F64, u64::MAX, width, signed, Mode::EXACT),
                1 << (width - 1)
            );
        }
    }
    for signed in [false, true] {
        assert_eq!(float_to_int(Format::F32, nan, 64, signed, Mode::EXACT), 1 << 63);
        assert_eq!(float_to_int(Format::Bf16, 0x7fff, 64, signed, Mode::EXACT), 1 << 63);
        assert_eq!(float_to_int(Format::F64, u64::MAX, 64, signed, Mode::EXACT), 1 << 63);
    }
}

/// Compares conversions of integers with the oracle.
fn converts_integers<T: Float>(format: Format, values: &[i128]) {
    for &value in values {
        for (rounding, round) in ROUNDINGS {
            let expected = T::from_i128_r(value, round).value.to_bits() as u64;
            let result = int_to_float(format, value, Mode::rounded(rounding));
            assert_eq!(result, expected, "{format:?} {value} {rounding:?}");
        }
    }
}

#[test]
fn integers_to_floats_round_once() {
    let mut values = vec![0, i128::from(u64::MAX), i128::from(i64::MIN), i128::from(i64::MAX)];
    for bit in 1..64 {
        for low in 0..bit {
            let value = (1i128 << bit) + (1 << low);
            values.extend([value, value - 1, value + 1, -value]);
        }
    }
    values.retain(|&value| value >= i128::from(i64::MIN) && value <= i128::from(u64::MAX));
    converts_integers::<Half>(Format::F16, &values);
    converts_integers::<BFloat>(Format::Bf16, &values);
    converts_integers::<Single>(Format::F32, &values);
    converts_integers::<Double>(Format::F64, &values);
}

/// Compares the rounding to integral values with the oracle.
fn rounds_to_integral<T: Float>(format: Format, patterns: impl IntoIterator<Item = u64>) {
    for bits in patterns {
        let value = T::from_bits(bits.into());
        let away = (Rounding::NearestAway, Round::NearestTiesToAway);
        for (rounding, round) in ROUNDINGS.into_iter().chain([away]) {
            if !value.is_nan() {
                let expected = value.round_to_integral(round).value.to_bits() as u64;
                let result = round_to_integral(format, bits, Mode::rounded(rounding));
                assert_eq!(result, expected, "{format:?} {bits:x} {rounding:?}");
            }
        }
    }
}

#[test]
fn integral_values_keep_the_format_and_the_sign_of_zero() {
    rounds_to_integral::<Half>(Format::F16, halves());
    rounds_to_integral::<BFloat>(Format::Bf16, halves());
    rounds_to_integral::<Single>(Format::F32, singles().into_iter().step_by(11));
    rounds_to_integral::<Double>(Format::F64, doubles());
    assert_eq!(round_to_integral(Format::F32, 0xff80_0001, Mode::EXACT), 0x7fff_ffff);
    assert_eq!(
        round_to_integral(Format::F64, 0xfff0_0000_0000_0001, Mode::EXACT),
        0xfff8_0000_0000_0001
    );
    let flush = Mode { flush: true, rounding: Rounding::Up, ..Mode::EXACT };
    assert_eq!(round_to_integral(Format::F32, 1, flush), 0);
}
