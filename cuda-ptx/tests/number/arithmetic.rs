use crate::oracle::{ROUNDINGS, Random, edges};
use cuda_ptx::number::{
    Comparison, Mode, Property, Rounding, bf16, f16, f32 as single, f64 as double,
};
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, Round};

/// Applies `check` to pairs of the edges and of random patterns.
fn pairs(exponent_bits: u32, fraction_bits: u32, mut check: impl FnMut(u64, u64)) {
    let edges = edges(exponent_bits, fraction_bits);
    for &a in &edges {
        for &b in &edges {
            check(a, b);
        }
    }
    let mut random = Random::new();
    let mask = u64::MAX >> (63 - exponent_bits - fraction_bits);
    for _ in 0..20_000 {
        let (a, b) = (random.next() & mask, random.next() & mask);
        check(a, b);
        // With exponents that differ little, sums are inexact and cancel.
        let near = (1 << fraction_bits) - 1;
        check(a, a ^ (b & (near << 3 | 7 | 1 << (exponent_bits + fraction_bits))));
    }
}

/// Applies `check` to triples of some edges and of random patterns whose product and addend are
/// close.
fn triples(exponent_bits: u32, fraction_bits: u32, mut check: impl FnMut(u64, u64, u64)) {
    let edges = edges(exponent_bits, fraction_bits);
    for (i, &a) in edges.iter().enumerate() {
        for &b in edges.iter().skip(i % 2).step_by(2) {
            for &c in edges.iter().skip(i % 3).step_by(3) {
                check(a, b, c);
            }
        }
    }
    let mut random = Random::new();
    let mask = u64::MAX >> (63 - exponent_bits - fraction_bits);
    let bias = (1u64 << (exponent_bits - 1)) - 1;
    for _ in 0..50_000 {
        let (a, b, c) = (random.next() & mask, random.next() & mask, random.next() & mask);
        check(a, b, c);
        // The exponent of the addend is that of the product, more or less.
        let exponent = |x: u64| x >> fraction_bits & ((1 << exponent_bits) - 1);
        let product = (exponent(a) + exponent(b)).saturating_sub(bias);
        let near = (product + (random.next() % 64)).saturating_sub(32).min(2 * bias);
        let kept = c & ((1 << fraction_bits) - 1) | c & 1 << (exponent_bits + fraction_bits);
        check(a, b, kept | near << fraction_bits);
    }
}

/// Defines the comparison of one format's arithmetic with the oracle.
macro_rules! rounds_correctly {
    (
        $name:ident, $module:ident, $bits:ident, $oracle:ident,
        $exponent:literal, $fraction:literal, $nan:expr
    ) => {
        #[test]
        fn $name() {
            let bits = |a: u64| $oracle::from_bits(a.into());
            let expect = |value: $oracle, operands: &[$bits]| -> $bits {
                let nan: fn(&[$bits]) -> $bits = $nan;
                if value.is_nan() { nan(operands) } else { value.to_bits() as $bits }
            };
            for (rounding, round) in ROUNDINGS {
                let mode = Mode::rounded(rounding);
                pairs($exponent, $fraction, |a, b| {
                    let (x, y) = (bits(a), bits(b));
                    let operands = [b as $bits, a as $bits];
                    for (name, result, oracle) in [
                        ("add", $module::add(a as _, b as _, mode), x.add_r(y, round).value),
                        ("sub", $module::sub(a as _, b as _, mode), x.sub_r(y, round).value),
                        ("mul", $module::mul(a as _, b as _, mode), x.mul_r(y, round).value),
                    ] {
                        let expected = expect(oracle, &operands);
                        assert_eq!(
                            result, expected,
                            "{name} {a:x} {b:x} {rounding:?}: {result:x} {expected:x}"
                        );
                    }
                });
                triples($exponent, $fraction, |a, b, c| {
                    let oracle = bits(a).mul_add_r(bits(b), bits(c), round).value;
                    let expected = expect(oracle, &[b as _, c as _, a as _]);
                    let result = $module::fma(a as _, b as _, c as _, mode);
                    assert_eq!(
                        result, expected,
                        "fma {a:x} {b:x} {c:x} {rounding:?}: {result:x} {expected:x}"
                    );
                });
            }
        }
    };
}

rounds_correctly!(f16_rounds_once_in_each_mode, f16, u16, Half, 5, 10, |_| f16::NAN);
rounds_correctly!(bf16_rounds_once_in_each_mode, bf16, u16, BFloat, 8, 7, |_| bf16::NAN);
rounds_correctly!(f32_rounds_once_in_each_mode, single, u32, Single, 8, 23, |_| single::NAN);
rounds_correctly!(f64_rounds_once_in_each_mode, double, u64, Double, 11, 52, first_nan);

/// Returns the first NaN with its quiet bit set.
fn first_nan(operands: &[u64]) -> u64 {
    let nan = operands.iter().find(|&&operand| f64::from_bits(operand).is_nan());
    nan.map_or(double::NAN, |nan| nan | 1 << 51)
}

#[test]
fn quotients_round_once_in_each_mode() {
    for (rounding, round) in ROUNDINGS {
        let mode = Mode::rounded(rounding);
        pairs(8, 23, |a, b| {
            let value = Single::from_bits(a.into()).div_r(Single::from_bits(b.into()), round).value;
            let expected = if value.is_nan() { single::NAN } else { value.to_bits() as u32 };
            assert_eq!(single::div(a as u32, b as u32, mode), expected, "{a:x} {b:x} {rounding:?}");
        });
        pairs(11, 52, |a, b| {
            let value = Double::from_bits(a.into()).div_r(Double::from_bits(b.into()), round).value;
            let expected = if value.is_nan() { first_nan(&[a, b]) } else { value.to_bits() as u64 };
            assert_eq!(double::div(a, b, mode), expected, "{a:x} {b:x} {rounding:?}");
        });
    }
}

#[test]
fn directed_square_roots_enclose_the_exact_one() {
    pairs(8, 23, |a, _| {
        let exact = f64::from(f32::from_bits(a as u32));
        let root = |rounding| single::sqrt(a as u32, Mode::rounded(rounding));
        if exact.is_nan() || exact < 0.0 {
            assert_eq!(root(Rounding::Down), single::NAN, "{a:x}");
            return;
        }
        let [down, zero, up] = [Rounding::Down, Rounding::Zero, Rounding::Up].map(root);
        assert_eq!(down, zero);
        // Squares of singles are exact in double precision.
        let square = |bits: u32| f64::from(f32::from_bits(bits)).powi(2);
        assert!(square(down) <= exact && exact <= square(up), "{a:x} {down:x} {up:x}");
        assert_eq!(up - down, u32::from(square(down) != exact), "{a:x}");
    });
    pairs(11, 52, |a, _| {
        let root = |rounding| double::sqrt(a, Mode::rounded(rounding));
        let [down, nearest, up] = [Rounding::Down, Rounding::NearestEven, Rounding::Up].map(root);
        if f64::from_bits(nearest).is_nan() {
            assert_eq!((down, up), (nearest, nearest));
        } else if (1u64 << 58..0x7ff << 52).contains(&a) {
            let error =
                |bits| f64::from_bits(bits).mul_add(f64::from_bits(bits), -f64::from_bits(a));
            assert!(error(down) <= 0.0 && error(up) >= 0.0, "{a:x}");
            assert_eq!(up - down, u64::from(error(down) != 0.0), "{a:x}");
        }
        assert!(down == nearest || up == nearest, "{a:x}");
    });
}

#[test]
fn nans_of_singles_are_canonical_even_of_abs_and_neg() {
    for nan in [0x7f80_0001, 0xffc0_1234, 0x7fff_ffff] {
        assert_eq!(single::add(nan, 0x3f80_0000, Mode::EXACT), 0x7fff_ffff);
        assert_eq!(single::abs(nan, false), 0x7fff_ffff);
        assert_eq!(single::neg(nan, false), 0x7fff_ffff);
        assert_eq!(single::sqrt(nan, Mode::EXACT), 0x7fff_ffff);
        assert_eq!(single::ex2_approx(nan, false), 0x7fff_ffff);
    }
    assert_eq!(single::copysign(0x8000_0000, 0x7f80_0001), 0xff80_0001);
    assert_eq!(f16::neg(0xfc01, false), 0x7fff);
    assert_eq!(bf16::abs(0xff81, false), 0x7fff);
}

#[test]
fn nans_of_doubles_keep_sign_and_payload() {
    let (a, b, c) = (0x7ff0_0000_0000_0001, 0xfff0_0000_0000_0002, 0x7ff0_0000_0000_0003);
    let quiet = |bits: u64| bits | 1 << 51;
    let one = 1.0f64.to_bits();
    assert_eq!(double::add(a, b, Mode::EXACT), quiet(b));
    assert_eq!(double::sub(a, b, Mode::EXACT), quiet(b));
    assert_eq!(double::mul(a, b, Mode::EXACT), quiet(b));
    assert_eq!(double::min(a, b), quiet(b));
    assert_eq!(double::max(a, b), quiet(b));
    assert_eq!(double::div(a, b, Mode::EXACT), quiet(a));
    assert_eq!(double::fma(a, b, c, Mode::EXACT), quiet(b));
    assert_eq!(double::fma(a, one, c, Mode::EXACT), quiet(c));
    assert_eq!(double::fma(a, one, one, Mode::EXACT), quiet(a));
    assert_eq!(double::abs(b), quiet(b));
    assert_eq!(double::neg(b), quiet(b));
    assert_eq!(double::mul(0, f64::INFINITY.to_bits(), Mode::EXACT), 0xfff8_0000_0000_0000);
    assert_eq!(double::sqrt((-1.0f64).to_bits(), Mode::EXACT), 0xfff8_0000_0000_0000);
}

#[test]
fn ftz_replaces_denormal_operands_and_results_with_signed_zeros() {
    let flush = Mode { flush: true, ..Mode::EXACT };
    let (denormal, normal) = (0x007f_ffff, 0x0080_0000);
    assert_eq!(single::add(denormal, denormal, flush), 0);
    assert_eq!(single::add(denormal, denormal, Mode::EXACT), 0x00ff_fffe);
    assert_eq!(single::sub(normal, normal + 1, flush), 0x8000_0000);
    assert_eq!(single::sub(normal, normal + 1, Mode::EXACT), 0x8000_0001);
    assert_eq!(single::rcp(denormal, flush), 0x7f80_0000);
    assert_eq!(single::sqrt(0x8000_0001, flush), 0x8000_0000);
    assert_eq!(single::abs(0x8000_0001, true), 0);
    assert_eq!(single::neg(0x8000_0001, true), 0);
    assert_eq!(f16::mul(0x0400, 0x3800, flush), 0);
    assert_eq!(f16::mul(0x0400, 0x3800, Mode::EXACT), 0x0200);
    assert!(single::compare(Comparison::Eq, denormal, 0x8000_0000, true));
    assert!(!single::compare(Comparison::Eq, denormal, 0x8000_0000, false));
}

#[test]
fn ftz_compares_after_rounding_to_the_precision_of_normal_numbers() {
    let flush = Mode { flush: true, ..Mode::EXACT };
    // 2^-126 − 2^-150 is flushed, although the nearest denormal rounds up to 2^-126.
    assert_eq!(single::mul(0x3f7f_ffff, 0x0080_0000, flush), 0);
    assert_eq!(single::mul(0x3f7f_ffff, 0x0080_0000, Mode::EXACT), 0x0080_0000);
    assert_eq!(single::mul(0x3f7f_fffe, 0x0080_0001, flush), 0x0080_0000);
    assert_eq!(single::fma(0x3f7f_ffff, 0x0080_0000, 0, flush), 0);
    assert_eq!(single::div(0x00ff_ffff, 0x4000_0000, flush), 0);
    assert_eq!(f16::mul(0x3bfe, 0x0401, flush), 0x0400);
    assert_eq!(f16::mul(0x3bff, 0x0400, flush), 0);
    assert_eq!(f16::fma(0x3bff, 0x0400, 0, flush), 0);
    let least = Single::from_bits(0x0080_0000);
    let mut random = Random::new();
    for (rounding, round) in ROUNDINGS {
        let mode = Mode { rounding, flush: true, ..Mode::EXACT };
        let mut flushed = 0;
        for _ in 0..20_000 {
            // The product is near the least normal number. A scaled one is far from it and rounds
            // alike.
            let a = Single::from_bits((random.next() as u32 & 0x803f_ffff | 0x3f00_0000).into());
            let nearly = least.div_r(a, Round::NearestTiesToEven).value.to_bits() as u32;
            let b = Single::from_bits((nearly - 1 + (random.next() as u32 & 3)).into());
            let scaled = b.scalbn(64).mul_r(a, round).value;
            let unscaled = scaled.scalbn(-64).to_bits() as u32;
            let tiny = scaled.abs() < least.scalbn(64);
            flushed += u32::from(tiny);
            let expected = if tiny { unscaled & 1 << 31 } else { unscaled };
            let (a, b) = (a.to_bits() as u32, b.to_bits() as u32);
            assert_eq!(single::mul(a, b, mode), expected, "{a:x} {b:x} {rounding:?}");
            let zero = (a ^ b) & 1 << 31;
            assert_eq!(single::fma(a, b, zero, mode), expected, "{a:x} {b:x} {rounding:?}");
        }
        assert!((1000..19_000).contains(&flushed), "{flushed}");
    }
}

#[test]
fn sat_clamps_and_relu_removes_negatives() {
    let saturate = Mode { saturate: true, ..Mode::EXACT };
    let relu = Mode { relu: true, ..Mode::EXACT };
    let (one, two) = (1.0f32.to_bits(), 2.0f32.to_bits());
    assert_eq!(single::add(one, two, saturate), one);
    assert_eq!(single::sub(one, two, saturate), 0);
    assert_eq!(single::mul(0x8000_0000, one, saturate), 0);
    assert_eq!(single::mul(0x7f80_0000, 0, saturate), 0);
    assert_eq!(f16::fma(0x3c00, 0x4000, 0, saturate), 0x3c00);
    assert_eq!(f16::fma(0xbc00, 0x4000, 0, relu), 0);
    assert_eq!(f16::fma(0x7c00, 0, 0, relu), 0x7fff);
    assert_eq!(bf16::fma(0x3f80, 0x4000, 0, relu), 0x4000);
}

#[test]
fn min_and_max_order_zeros_and_ignore_nan_unless_asked() {
    let (minus, plus, nan, one) = (0x8000_0000, 0, 0x7f80_0001, 0x3f80_0000);
    assert_eq!(single::min(plus, minus, false, false, false), minus);
    assert_eq!(single::max(minus, plus, false, false, false), plus);
    assert_eq!(single::min(nan, one, false, false, false), one);
    assert_eq!(single::max(one, nan, false, false, false), one);
    assert_eq!(single::min(nan, nan, false, false, false), single::NAN);
    assert_eq!(single::max(one, nan, false, true, false), single::NAN);
    // |−2| > |1|, and the signs differ.
    assert_eq!(single::max(0xc000_0000, one, false, false, true), 0xc000_0000);
    assert_eq!(single::min(0xc000_0000, one, false, false, true), 0xbf80_0000);
    assert_eq!(f16::min(0, 0x8000, false, false, false), 0x8000);
    assert_eq!(double::min(0, 1 << 63), 1 << 63);
    assert_eq!(double::max(double::NAN, 7), 7);
}

#[test]
fn comparisons_with_nan_hold_only_if_unordered() {
    use Comparison::{Eq, Equ, Ge, Geu, Gt, Gtu, Le, Leu, Lt, Ltu, Nan, Ne, Neu, Num};
    let (nan, one, two) = (single::NAN, 1.0f32.to_bits(), 2.0f32.to_bits());
    for comparison in [Eq, Ne, Lt, Le, Gt, Ge, Num] {
        assert!(!single::compare(comparison, nan, one, false), "{comparison:?}");
        assert!(!single::compare(comparison, one, nan, false), "{comparison:?}");
    }
    for comparison in [Equ, Neu, Ltu, Leu, Gtu, Geu, Nan] {
        assert!(single::compare(comparison, nan, one, false), "{comparison:?}");
        assert!(single::compare(comparison, one, nan, false), "{comparison:?}");
    }
    for comparison in [Ne, Lt, Le, Neu, Ltu, Leu, Num] {
        assert!(single::compare(comparison, one, two, false), "{comparison:?}");
        assert!(f16::compare(comparison, 0x3c00, 0x4000, false), "{comparison:?}");
        assert!(double::compare(comparison, 1, 2), "{comparison:?}");
    }
    for comparison in [Eq, Gt, Ge, Equ, Gtu, Geu, Nan] {
        assert!(!single::compare(comparison, one, two, false), "{comparison:?}");
        assert!(!bf16::compare(comparison, 0x3f80, 0x4000, false), "{comparison:?}");
    }
}

#[test]
fn testp_agrees_with_the_classes_of_rust_but_for_zero() {
    use std::num::FpCategory;
    for bits in edges(8, 23) {
        let category = f32::from_bits(bits as u32).classify();
        for (property, expected) in [
            (Property::Finite, !matches!(category, FpCategory::Infinite | FpCategory::Nan)),
            (Property::Infinite, category == FpCategory::Infinite),
            (Property::Number, category != FpCategory::Nan),
            (Property::NotANumber, category == FpCategory::Nan),
            (Property::Normal, matches!(category, FpCategory::Normal | FpCategory::Zero)),
            (Property::Subnormal, category == FpCategory::Subnormal),
        ] {
            assert_eq!(single::testp(property, bits as u32), expected, "{property:?} {bits:x}");
        }
    }
}

#[test]
fn approximate_functions_have_the_special_values_of_the_manual() {
    const INFINITY: u32 = 0x7f80_0000;
    const MINUS: u32 = 0x8000_0000;
    let nan = single::NAN;
    assert_eq!(single::rcp_approx(MINUS, false), MINUS | INFINITY);
    assert_eq!(single::rcp_approx(MINUS | INFINITY, false), MINUS);
    assert_eq!(single::rsqrt_approx(MINUS, false), MINUS | INFINITY);
    assert_eq!(single::rsqrt_approx(INFINITY, false), 0);
    assert_eq!(single::rsqrt_approx(0xbf80_0000, false), nan);
    assert_eq!(single::sqrt_approx(MINUS, false), MINUS);
    assert_eq!(single::sin_approx(MINUS, false), MINUS);
    assert_eq!(single::sin_approx(1, false), 0);
    assert_eq!(single::sin_approx(INFINITY, false), nan);
    assert_eq!(single::cos_approx(1, false), 0x3f80_0000);
    assert_eq!(single::lg2_approx(MINUS, false), MINUS | INFINITY);
    assert_eq!(single::lg2_approx(1, false), (-149.0f32).to_bits());
    assert_eq!(single::lg2_approx(1, true), MINUS | INFINITY);
    assert_eq!(single::ex2_approx(MINUS | INFINITY, false), 0);
    assert_eq!(single::ex2_approx((-149.0f32).to_bits(), false), 1);
    assert_eq!(single::ex2_approx((-149.0f32).to_bits(), true), 0);
    assert_eq!(single::tanh_approx(MINUS | INFINITY), 0xbf80_0000);
    assert_eq!(single::tanh_approx(1), 1);
    let (large, one) = (0x7e80_0001, 0x3f80_0000);
    assert_eq!(single::div_approx(one, large, false), 0);
    assert_eq!(single::div_approx(INFINITY, large, false), nan);
    assert_eq!(single::div_approx(one, MINUS | large, false), MINUS);
    assert_ne!(single::div_approx(one, large - 1, false), 0);
    assert_ne!(single::div_full(one, large, false), 0);
    assert_eq!(f16::ex2_approx(0x4000, false), 0x4400);
    assert_eq!(bf16::tanh_approx(0xff80), 0xbf80);
}

#[test]
fn approximate_functions_of_doubles_use_the_high_word() {
    assert_eq!(double::rcp_approx_ftz(0x7ff0_0000_0000_0001), 0);
    assert_eq!(double::rcp_approx_ftz(0x4000_0000_ffff_ffff), 0.5f64.to_bits());
    assert_eq!(double::rcp_approx_ftz(1), f64::INFINITY.to_bits());
    assert_eq!(double::rcp_approx_ftz(f64::MAX.to_bits()), 0);
    assert_eq!(double::rsqrt_approx_ftz(4.0f64.to_bits()), 0.5f64.to_bits());
    for (a, reciprocal) in [
        (0xfff8_0000_0000_0123, 0x7fff_ffff_0000_0000),
        (0x7ff0_0001_0000_0000, 0x7fff_ffff_0000_0000),
        (0x4008_0000_0000_0000, 0x3fd5_5555_0000_0000),
        (0x7fef_ffff_ffff_ffff, 0),
        (0x3ff0_0001_0000_0000, 0x3fef_fffe_0000_0000),
        (0x3ff5_5555_0000_0000, 0x3fe8_0000_0000_0000),
        (0xbff1_2345_0000_0000, 0xbfed_e022_0000_0000),
    ] {
        assert_eq!(double::rcp_approx_ftz(a), reciprocal, "{a:x}");
    }
    for (a, root) in [
        (0xfff8_0000_0000_0123, 0x7fff_ffff_0000_0000),
        (0xbff0_0000_0000_0000, 0x7fff_ffff_0000_0000),
        (0x8000_0000_0000_0000, 0xfff0_0000_0000_0000),
        (0x4000_0000_0000_0000, 0x3fe6_a09e_0000_0000),
        (0x4008_0000_0000_0000, 0x3fe2_79a7_0000_0000),
    ] {
        assert_eq!(double::rsqrt_approx_ftz(a), root, "{a:x}");
    }
}
