//! The operands of a form: edge cases of each kind, their combinations, and random values.

use crate::common::random::Random;
use crate::form::{Form, Kind};

/// Returns the number of rows for a form with this many operands, at least, and the number of edge cases
/// of each operand that are combined.
fn amounts(operands: usize) -> (usize, usize) {
    match operands {
        0 => (32, 0),
        1 => (512, usize::MAX),
        2 => (640, 20),
        3 => (768, 8),
        4 => (512, 4),
        _ => (512, 3),
    }
}

/// Returns the operands of all threads of a form: a row for each thread. The same kinds have the same
/// operands in all forms.
pub(crate) fn rows(form: &Form) -> Vec<Vec<u64>> {
    if !form.rows.is_empty() {
        return form.rows.clone();
    }
    let kinds = &form.operands;
    let (mut count, combined) = amounts(kinds.len());
    let lists: Vec<Vec<u64>> = kinds.iter().map(|kind| edges(*kind)).collect();
    let mut rows = Vec::new();
    if !kinds.is_empty() {
        let extents = lists.iter().map(|list| list.len().min(combined));
        let extents: Vec<usize> = extents.collect();
        for mut index in 0..extents.iter().product() {
            let mut row = Vec::new();
            for (list, extent) in lists.iter().zip(&extents) {
                row.push(list[index % extent]);
                index /= extent;
            }
            rows.push(row);
        }
    }
    match form.shape {
        Some(shape) => count = shape.threads(),
        None => count = count.max(rows.len()).next_multiple_of(32),
    }
    rows.truncate(count);
    let seed = kinds.iter().fold(36, |seed: u64, kind| seed.wrapping_mul(31) + *kind as u64);
    let mut random = Random(seed);
    while rows.len() < count {
        let mut row: Vec<u64> = kinds.iter().map(|kind| any(*kind, &mut random)).collect();
        // Near operands cancel each other and round at the last bit.
        if row.len() > 1 && kinds[0] == kinds[1] && random.below(4) == 0 {
            row[1] = (row[0] ^ (random.next() & 0x7)) & mask(kinds[1]);
        }
        // So does an exact product and its rounded value.
        if row.len() == 3 && random.below(8) == 0 {
            row[2] = product(kinds, &row).unwrap_or(row[2]);
        }
        rows.push(row);
    }
    rows
}

/// Returns the operands as the kernel reads them: 8 bytes each.
pub(crate) fn input(rows: &[Vec<u64>]) -> Vec<u8> {
    rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect()
}

fn mask(kind: Kind) -> u64 {
    match kind {
        Kind::Pred | Kind::Bit => 1,
        _ => u64::MAX >> (64 - 8 * kind.bytes()),
    }
}

/// Returns the negated, rounded product of the first two operands, if all three are of one float type.
fn product(kinds: &[Kind], row: &[u64]) -> Option<u64> {
    let [a, b] = [row[0], row[1]];
    match kinds {
        [Kind::F32, Kind::F32, Kind::F32] => {
            let [a, b] = [a, b].map(|bits| f32::from_bits(bits as u32));
            Some(u64::from((-(a * b)).to_bits())).filter(|_| (a * b).is_finite())
        }
        [Kind::F64, Kind::F64, Kind::F64] => {
            let [a, b] = [a, b].map(f64::from_bits);
            Some((-(a * b)).to_bits()).filter(|_| (a * b).is_finite())
        }
        _ => None,
    }
}

/// Returns a random value of a kind.
fn any(kind: Kind, random: &mut Random) -> u64 {
    let bits = random.next();
    // Floats of similar size meet in half of the cases.
    let near = |mantissa: u32, exponents: u64, bias: u64, bits: u64, random: &mut Random| {
        let sign = bits >> 63 << (mantissa + exponents as u32);
        let exponent = bias - 12 + random.below(24) as u64;
        match random.below(2) {
            0 => bits & mask_of(mantissa + exponents as u32 + 1),
            _ => sign | exponent << mantissa | bits & mask_of(mantissa),
        }
    };
    match kind {
        Kind::F16 => near(10, 5, 15, bits, random),
        Kind::Bf16 => near(7, 8, 127, bits, random),
        Kind::F32 => near(23, 8, 127, bits, random),
        Kind::F64 => near(52, 11, 1023, bits, random),
        Kind::F16x2 => any(Kind::F16, random) | any(Kind::F16, random) << 16,
        Kind::Bf16x2 => any(Kind::Bf16, random) | any(Kind::Bf16, random) << 16,
        Kind::Shift => bits % 72,
        Kind::Lane => bits % 40,
        Kind::Few32 | Kind::Few64 => edges(kind)[bits as usize % 3],
        // Integers of all sizes, of both signs.
        _ => ((bits as i64) >> random.below(8 * kind.bytes().min(8))) as u64 & mask(kind),
    }
}

fn mask_of(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Returns the edge cases of a kind, the most important first.
fn edges(kind: Kind) -> Vec<u64> {
    match kind {
        Kind::Pred | Kind::Bit => vec![0, 1],
        Kind::S8 | Kind::U8 => (0..256).collect(),
        Kind::S16 | Kind::U16 => integers(16),
        Kind::S32 | Kind::U32 => integers(32),
        Kind::S64 | Kind::U64 => integers(64),
        Kind::F16 => F16.to_vec(),
        Kind::Bf16 => BF16.to_vec(),
        Kind::F32 => F32.iter().map(|bits| u64::from(*bits)).collect(),
        Kind::F64 => doubles(),
        Kind::F16x2 => pairs(&F16),
        Kind::Bf16x2 => pairs(&BF16),
        // Each encoding in the low half once, and in the high half once.
        Kind::Fp8x2 => (0..256).map(|low| low | (((low * 37 + 11) % 256) << 8)).collect(),
        Kind::Shift => SHIFTS.to_vec(),
        Kind::Lane => vec![0, 1, 2, 5, 16, 31, 32, 33, 63, 64, 0xffff_ffff, 0x8000_0001],
        Kind::Few32 => vec![0, 0xffff_ffff, 0x1234_5678],
        Kind::Few64 => vec![0, 0xffff_ffff_0000_0000, 0x1234_5678_9abc_def0],
    }
}

const SHIFTS: [u64; 22] = [
    0,
    1,
    31,
    32,
    33,
    8,
    64,
    15,
    16,
    17,
    63,
    65,
    5,
    24,
    255,
    256,
    0xffff_ffff,
    0x8000_0000,
    127,
    128,
    257,
    0x10001,
];

/// Returns integers of a width.
fn integers(width: u32) -> Vec<u64> {
    let top = 1 << (width - 1);
    let all = mask_of(width);
    let mut list = vec![0, 1, all, top, top - 1, 0x5555_5555_5555_5555, 2];
    list.extend([all - 1, top + 1, 0xaaaa_aaaa_aaaa_aaaa, 0x7f, 0x80, 0xff, 0x100]);
    list.extend([0x1_0000, 0xffff_ffff, 3, 10, 0x7fff, 0x8000, 0xffff, !0x7f, !0x80, !0x7fff]);
    list.extend([!0x8000, 0x7fff_ffff, 0x8000_0000, 0x1_0000_0000, !0x7fff_ffff, !0x8000_0000]);
    list.extend([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x00ff_00ff_00ff_00ff]);
    // Halves between two values of bf16, f16, f32 and f64, below and above, with one bit more.
    for bits in [8, 11, 24, 53].into_iter().filter(|bits| bits + 2 < width) {
        let (tie, up): (u64, u64) = (2 << bits | 2, 2 << bits | 6);
        list.extend([1 << bits, (1 << bits) + 1, (1 << bits) + 3, tie, up, tie - 1, tie + 1]);
        list.extend([tie.wrapping_neg(), (tie + 1).wrapping_neg(), up.wrapping_neg()]);
    }
    // The largest values of f16, and the first that is rounded to infinity.
    list.extend([65504, 65519, 65520, 65535, 65536, 65504u64.wrapping_neg(), !65519]);
    list.extend((0..width).map(|bit| 1 << bit));
    for value in &mut list {
        *value &= all;
    }
    let mut seen = std::collections::HashSet::new();
    list.retain(|value| seen.insert(*value));
    list
}

const F16: [u64; 58] = [
    0x3c00, 0x8000, 0xfe23, 0x7c00, 0x0001, 0xfbff,
    0x7d01, // 1, -0, NaN, inf, least, -max, sNaN
    0x0000, 0xbc00, 0xfc00, 0x3800, 0x3e00, 0x4100, 0x03ff, 0x0400,
    0x8001, // 0, -1, -inf, ½, 1½, 2½ …
    0x7bff, 0x3c01, 0x3bff, 0x4200, 0xbe00, 0xb800, 0xc100, 0x6400, 0x6401, 0x63ff, 0x6800, 0x6801,
    0x57f0, 0x57f8, 0x5800, 0x5bf8, 0x5bfc, 0x5c00, 0xd800, 0xd804, 0xd808, 0x77ff, 0x7800, 0xf800,
    0xf801, 0x7fff, 0xffff, 0x7c01, 0xfc01, 0x7e00, 0x2400, 0x1400, 0x0800, 0x83ff, 0x8400, 0x5f00,
    0x5f40, 0x7700, 0x37ff, 0x3801, 0x4500, 0x3555,
];

const BF16: [u64; 54] = [
    0x3f80, 0x8000, 0xffc3, 0x7f80, 0x0001, 0xff7f,
    0x7f81, // 1, -0, NaN, inf, least, -max, sNaN
    0x0000, 0xbf80, 0xff80, 0x3f00, 0x3fc0, 0x4020, 0x007f, 0x0080,
    0x8001, // 0, -1, -inf, ½, 1½, 2½ …
    0x7f7f, 0x3f81, 0x3f7f, 0x4040, 0xbfc0, 0xbf00, 0xc020, 0x4300, 0x4301, 0x42ff, 0x42fe, 0x437f,
    0x4380, 0xc300, 0xc301, 0x4700, 0x46ff, 0x4780, 0x477f, 0xc700, 0xc701, 0x4f00, 0x4eff, 0x4f80,
    0xcf00, 0xcf01, 0x5f00, 0x5eff, 0x5f80, 0xdf00, 0x7fff, 0xffff, 0x7fc0, 0xff81, 0x3380, 0x3880,
    0x3eab, 0x7e80,
];

const F32: [u32; 144] = [
    0x3f80_0000,
    0x8000_0000,
    0xffc1_2345,
    0x7f80_0000,
    1,
    0xff7f_ffff,
    0x7f81_2345, // as above
    0,
    0xbf80_0000,
    0xff80_0000,
    0x3f00_0000,
    0x3fc0_0000,
    0x4020_0000,
    0x007f_ffff,
    0x0080_0000,
    0x8000_0001, // 0, -1, -inf, ½, 1½, 2½, the largest denormal, the least normal, -least
    0x7f7f_ffff,
    0x3f80_0001,
    0x3f7f_ffff,
    0x4040_0000,
    0xbfc0_0000,
    0xbf00_0000,
    0xc020_0000,
    0x807f_ffff,
    0x8080_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x7f80_0001,
    0xff80_0001,
    0x7fc0_0000,
    0xffc0_0000, // NaNs
    0x4af0_0001,
    0x4b00_0001,
    0x4b7f_ffff,
    0x4b80_0000,
    0x3eff_ffff,
    0x3f00_0001,
    0x4060_0000,
    0x4090_0000, // near and between integers
    0x42fe_0000,
    0x42ff_0000,
    0x4300_0000,
    0x437f_0000,
    0x437f_8000,
    0x4380_0000,
    0xc300_0000,
    0xc300_8000,
    0xc301_0000, // limits of 8 bits
    0x46ff_fe00,
    0x46ff_ff00,
    0x4700_0000,
    0x477f_ff00,
    0x477f_ff80,
    0x4780_0000,
    0xc700_0000,
    0xc700_0080,
    0xc700_0100, // limits of 16 bits
    0x4eff_ffff,
    0x4f00_0000,
    0x4f00_0001,
    0x4f7f_ffff,
    0x4f80_0000,
    0xcf00_0000,
    0xcf00_0001,
    0x5eff_ffff,
    0x5f00_0000,
    0x5f7f_ffff,
    0x5f80_0000,
    0xdf00_0000,
    0xdf00_0001, // 32 and 64 bits
    0x477f_e000,
    0x477f_efff,
    0x477f_f000,
    0x477f_f001,
    0x3380_0000,
    0x3300_0000,
    0x3300_0001,
    0x32ff_ffff,
    0x3880_0000,
    0x387f_c000,
    0x387f_e000,
    0x387f_f000,
    0x3f80_1000,
    0x3f80_3000,
    0x3f80_1001,
    0x3f80_0fff,
    0xc77f_f000,
    0xb300_0001, // limits and ties of f16
    0x3f80_8000,
    0x3f81_8000,
    0x3f80_8001,
    0x3f80_7fff,
    0x7f7f_7fff,
    0x7f7f_8000,
    0x0000_8000,
    0x0000_8001,
    0x0001_8000,
    0x0000_7fff, // of bf16
    0x43e0_0000,
    0x43e8_0000,
    0x43e8_0001,
    0x43f0_0000,
    0x3b00_0000,
    0x3a80_0000,
    0x3a80_0001,
    0x3c80_0000,
    0x3c70_0000,
    0x3f88_0000,
    0x3f98_0000,
    0x3f88_0001,
    0xc3e8_0000, // of e4m3
    0x4760_0000,
    0x4770_0000,
    0x4770_0001,
    0x3780_0000,
    0x3700_0000,
    0x3700_0001,
    0x3f90_0000,
    0x3fb0_0000,
    0x3f90_0001,
    0xc770_0000, // of e5m2
    0x3f80_5000,
    0x7f7f_f000,
    0x7f7f_efff,
    0x0000_1000,
    0x0000_1001, // of tf32
    0x4049_0fdb,
    0x3fc9_0fdb,
    0x40c9_0fdb,
    0xc0c9_0fdb,
    0x4248_0000,
    0x439d_1463,
    0x3f49_0fdb,
    0x4680_0000, // multiples of π
    0x4300_0000,
    0x42fc_0000,
    0xc2fc_0000,
    0xc315_0000,
    0xc316_0000,
    0x7e80_0000,
    0x7f00_0000,
    0x7e80_0001,
    0x4110_0000,
    0x3eaa_aaab, // exponents
];

/// Returns values of f64: those of f32, and ties and limits of the conversions of f64.
fn doubles() -> Vec<u64> {
    let first: [u64; 16] = [
        0x3ff0_0000_0000_0000,
        0x8000_0000_0000_0000,
        0xfff8_1234_5678_9abc,
        0x7ff0_0000_0000_0000,
        1,
        0xffef_ffff_ffff_ffff,
        0x7ff4_1234_5678_9abc,
        0,
        0xbff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x3fe0_0000_0000_0000,
        0x3ff8_0000_0000_0000,
        0x4004_0000_0000_0000,
        0x000f_ffff_ffff_ffff,
        0x0010_0000_0000_0000,
        0x8000_0000_0000_0001,
    ];
    let more: [u64; 46] = [
        0x7fef_ffff_ffff_ffff,
        0x3ff0_0000_0000_0001,
        0x3fef_ffff_ffff_ffff,
        0x7ff0_0000_0000_0001,
        0x7fff_ffff_ffff_ffff,
        0xfff0_0000_0000_0001,
        0xffff_ffff_ffff_ffff,
        0x7ff8_0000_0000_0000,
        0x7ff0_0000_2000_0000,
        0x7ff0_0400_0000_0000,
        0xfff7_ffff_ffff_ffff,
        0x3fdf_ffff_ffff_ffff,
        0x3fe0_0000_0000_0001,
        0x800f_ffff_ffff_ffff,
        0x432f_ffff_ffff_ffff,
        0x4330_0000_0000_0001,
        0x4340_0000_0000_0000, // NaNs, near ½ and near integers
        0x41df_ffff_ffc0_0000,
        0x41df_ffff_ffe0_0000,
        0x41df_ffff_fff0_0000,
        0xc1e0_0000_0010_0000,
        0xc1e0_0000_0020_0000,
        0x41ef_ffff_ffe0_0000,
        0x41ef_ffff_fff0_0000,
        0x43df_ffff_ffff_ffff,
        0x43ef_ffff_ffff_ffff,
        0xc3e0_0000_0000_0001, // limits of 32 and 64 bits
        0x3ff0_0000_1000_0000,
        0x3ff0_0000_3000_0000,
        0x3ff0_0000_1000_0001,
        0x3ff0_0000_0fff_ffff,
        0x47ef_ffff_e000_0000,
        0x47ef_ffff_efff_ffff,
        0x47ef_ffff_f000_0000,
        0x3690_0000_0000_0000,
        0x3690_0000_0000_0001,
        0x368f_ffff_ffff_ffff,
        0x3800_0000_0000_0000,
        0x380f_ffff_ffff_ffff,
        0x380f_ffff_f000_0000, // limits and ties of f32
        0x3ff0_0200_0000_0000,
        0x3ff0_0200_0000_0001,
        0x3ff0_0200_0000_1000,
        0x3ff0_1000_0000_0000,
        0x3ff0_1000_0000_0001,
        0x3ff0_01ff_ffff_ffff, // ties of f16 and bf16, which f32 would hide
    ];
    let singles = F32.iter().map(|bits| f32::from_bits(*bits)).filter(|value| value.is_finite());
    let singles = singles.map(|value| f64::from(value).to_bits());
    let mut list: Vec<u64> = first.into_iter().chain(more).chain(singles).collect();
    let mut seen = std::collections::HashSet::new();
    list.retain(|value| seen.insert(*value));
    list
}

/// Returns pairs of halves: each value in the low half once, and in the high half once.
fn pairs(halves: &[u64]) -> Vec<u64> {
    let high = |index: usize| halves[(index * 5 + 3) % halves.len()];
    halves.iter().enumerate().map(|(index, low)| low | high(index) << 16).collect()
}
