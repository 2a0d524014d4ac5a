//! The arithmetic of PTX on the bits of numbers, as an H200 computes it.
//!
//! Every function takes and returns bit patterns, has no state and never panics. The results are
//! the same on each host. Approximate functions (`.approx`) are computed in double precision and
//! rounded once, so they meet the error bounds of the PTX manual but do not reproduce the tables of
//! the hardware.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@f32`], [`mod@f64`] | arithmetic, comparison, approximate functions |
//! | [`mod@f16`], [`bf16`] | the same for the 16-bit formats |
//! | [`convert`] | conversions between formats, from and to integers, and to integral values |
//! | [`integer`] | division, saturation, bit fields, permutation, dot products, funnel shifts |
//! | [`video`] | scalar (`vadd`) and packed (`vadd2`, `vadd4`) video instructions |
//!
//! The rules that PTX leaves to the implementation:
//!
//! | case | result |
//! |---|---|
//! | NaN of `f32`, `f16`, `bf16` | canonical: `7fffffff`, `7fff` |
//! | NaN of `f64` | the sign and payload of an operand with the quiet bit set |
//! | `.ftz` | a denormal operand or result becomes a zero of the same sign |
//! | `.sat` | NaN and −0 become +0 |
//! | `.relu` | a negative value and −0 become +0, NaN stays NaN |
//! | −0 and +0 in `min` and `max` | −0 is the lesser |
//! | x / 0, x rem 0 of integers | all bits set |
//!
//! A result counts as denormal for `.ftz` if it is below the least normal number after rounding to
//! the precision of normal numbers: 2⁻¹²⁶ − 2⁻¹⁵⁰ is flushed, although the nearest denormal is 2⁻¹²⁶.
//!
//! Functions for the round-to-nearest mode without modifiers have no branches, so that a loop over
//! the lanes of a warp with a constant [`Mode`] can be vectorized. Other rounding modes use integer
//! arithmetic.

pub mod bf16;
pub mod convert;
mod extremum;
pub mod f16;
pub mod f32;
pub mod f64;
mod half;
pub mod integer;
pub mod matrix;
mod soft;
pub mod video;

pub use convert::{convert_float, float_to_int, int_to_float, round_to_integral};

/// A rounding mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest value, ties to an even significand: `.rn`, `.rni`.
    #[default]
    NearestEven,
    /// Toward zero: `.rz`, `.rzi`.
    Zero,
    /// Toward negative infinity: `.rm`, `.rmi`.
    Down,
    /// Toward positive infinity: `.rp`, `.rpi`.
    Up,
    /// To the nearest value, ties away from zero: `.rna`.
    NearestAway,
}

/// The modifiers of a floating-point instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mode {
    /// The rounding mode.
    pub rounding: Rounding,
    /// Whether denormal operands and results become zero: `.ftz`.
    pub flush: bool,
    /// Whether the result is clamped to [0, 1]: `.sat`.
    pub saturate: bool,
    /// Whether a negative result becomes zero: `.relu`.
    pub relu: bool,
}

impl Mode {
    /// Round to nearest even without other modifiers.
    pub const EXACT: Self =
        Self { rounding: Rounding::NearestEven, flush: false, saturate: false, relu: false };

    /// Returns the given rounding mode without other modifiers.
    pub const fn rounded(rounding: Rounding) -> Self {
        Self { rounding, ..Self::EXACT }
    }
}

/// A floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// A single with 10 bits of fraction. The lower 13 bits of the pattern are zero.
    Tf32,
    /// 4 bits of exponent, 3 of fraction, no infinity.
    E4m3,
    /// 5 bits of exponent, 2 of fraction.
    E5m2,
    /// 2 bits of exponent, 3 of fraction, neither infinity nor NaN.
    E2m3,
    /// 3 bits of exponent, 2 of fraction, neither infinity nor NaN.
    E3m2,
    /// 2 bits of exponent, 1 of fraction, neither infinity nor NaN.
    E2m1,
    /// 8 bits of exponent: a power of two without sign.
    Ue8m0,
}

/// A comparison of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal, and neither operand is NaN.
    Eq,
    /// Not equal, and neither operand is NaN.
    Ne,
    /// Less, and neither operand is NaN.
    Lt,
    /// Less or equal, and neither operand is NaN.
    Le,
    /// Greater, and neither operand is NaN.
    Gt,
    /// Greater or equal, and neither operand is NaN.
    Ge,
    /// Equal, or an operand is NaN.
    Equ,
    /// Not equal, or an operand is NaN.
    Neu,
    /// Less, or an operand is NaN.
    Ltu,
    /// Less or equal, or an operand is NaN.
    Leu,
    /// Greater, or an operand is NaN.
    Gtu,
    /// Greater or equal, or an operand is NaN.
    Geu,
    /// Neither operand is NaN.
    Num,
    /// An operand is NaN.
    Nan,
}

impl Comparison {
    /// Compares two values whose operators follow IEEE 754.
    #[inline(always)]
    fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        // `x != x` tests for NaN.
        #[allow(clippy::eq_op)]
        let ordered = (a == a) & (b == b);
        match self {
            Self::Eq => a == b,
            Self::Ne => (a != b) & ordered,
            Self::Lt => a < b,
            Self::Le => a <= b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::Equ => (a == b) | !ordered,
            Self::Neu => a != b,
            Self::Ltu => (a < b) | !ordered,
            Self::Leu => (a <= b) | !ordered,
            Self::Gtu => (a > b) | !ordered,
            Self::Geu => (a >= b) | !ordered,
            Self::Num => ordered,
            Self::Nan => !ordered,
        }
    }
}

/// A property that `testp` tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// Neither infinite nor NaN.
    Finite,
    /// Positive or negative infinity.
    Infinite,
    /// Not NaN.
    Number,
    /// NaN.
    NotANumber,
    /// Neither zero, denormal, infinite nor NaN.
    Normal,
    /// Denormal. Zero is not.
    Subnormal,
}

impl Property {
    /// Tests a magnitude, given the patterns of infinity and of the least normal number.
    #[inline(always)]
    fn holds(self, magnitude: u64, infinity: u64, normal: u64) -> bool {
        match self {
            Self::Finite => magnitude < infinity,
            Self::Infinite => magnitude == infinity,
            Self::Number => magnitude <= infinity,
            Self::NotANumber => magnitude > infinity,
            // GPUs count zero among the normal numbers.
            Self::Normal => (magnitude == 0) | (magnitude >= normal) & (magnitude < infinity),
            Self::Subnormal => (magnitude != 0) & (magnitude < normal),
        }
    }
}

/// Applies `f` to both halves of a register.
#[inline(always)]
pub fn packed1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    join(f(low(a)), f(high(a)))
}

/// Applies `f` to the corresponding halves of two registers.
#[inline(always)]
pub fn packed2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    join(f(low(a), low(b)), f(high(a), high(b)))
}

/// Applies `f` to the corresponding halves of three registers.
#[inline(always)]
pub fn packed3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    join(f(low(a), low(b), low(c)), f(high(a), high(b), high(c)))
}

#[inline(always)]
fn low(a: u32) -> u16 {
    a as u16
}

#[inline(always)]
fn high(a: u32) -> u16 {
    (a >> 16) as u16
}

#[inline(always)]
fn join(low: u16, high: u16) -> u32 {
    u32::from(low) | (u32::from(high) << 16)
}
