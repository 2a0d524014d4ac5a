//! Operations on registers.

use super::registers::{LANES, Lane, Registers, Slot};
use crate::number::{
    Comparison, Format, Mode, Rounding, bf16, convert, convert_float, f16, f32 as single,
    f64 as double, float_to_int, int_to_float, integer, packed1, packed2, packed3,
    round_to_integral,
};
use crate::program::{
    Approximate, Bank, Binary, Compare, Compared, Condition, Convert, Element, Extremum, Float,
    Int, Logic, Number, SlctBy, Ternary, Unary, Video,
};

/// Calls the body with `$T` as the Rust type of a type of integers.
macro_rules! by_int {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            Int::U8 => {
                type $T = u8;
                $body
            }
            Int::S8 => {
                type $T = i8;
                $body
            }
            Int::U16 => {
                type $T = u16;
                $body
            }
            Int::S16 => {
                type $T = i16;
                $body
            }
            Int::U32 => {
                type $T = u32;
                $body
            }
            Int::S32 => {
                type $T = i32;
                $body
            }
            Int::U64 => {
                type $T = u64;
                $body
            }
            Int::S64 => {
                type $T = i64;
                $body
            }
        }
    };
}

/// The same for the unsigned type of the bits.
macro_rules! by_bits {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty.bits() {
            8 => {
                type $T = u8;
                $body
            }
            16 => {
                type $T = u16;
                $body
            }
            32 => {
                type $T = u32;
                $body
            }
            _ => {
                type $T = u64;
                $body
            }
        }
    };
}

/// Evaluates an expression with a constant mode, if the mode is the commonest one, so that loops are compiled for it.
macro_rules! by_mode {
    ($mode:expr, $m:ident => $body:expr) => {
        if $mode == Mode::EXACT {
            const $m: Mode = Mode::EXACT;
            $body
        } else if $mode == FLUSHING {
            const $m: Mode = FLUSHING;
            $body
        } else {
            #[allow(non_snake_case)]
            let $m = $mode;
            $body
        }
    };
}

/// Calls `neg` or `abs` for each type of floating-point numbers.
macro_rules! sign_of_float {
    ($registers:expr, $f:ident, $ty:expr, ($mask:expr, $d:expr, $a:expr), $flush:expr) => {
        match $ty {
            Float::F16 => $registers.unary($mask, $d, $a, |a| f16::$f(a, $flush)),
            Float::Bf16 => $registers.unary($mask, $d, $a, |a| bf16::$f(a, $flush)),
            Float::F16x2 => {
                $registers.unary($mask, $d, $a, |a| packed1(a, |a| f16::$f(a, $flush)));
            }
            Float::Bf16x2 => {
                $registers.unary($mask, $d, $a, |a| packed1(a, |a| bf16::$f(a, $flush)));
            }
            Float::F32 => $registers.unary($mask, $d, $a, |a| single::$f(a, $flush)),
            Float::F32x2 => {
                $registers.unary($mask, $d, $a, |a| singles2(a, a, |a, _| single::$f(a, $flush)));
            }
            Float::F64 => $registers.unary($mask, $d, $a, double::$f),
        }
    };
}

/// Calls `add`, `sub` or `mul` for each type of floating-point numbers.
macro_rules! sum_of_floats {
    ($registers:expr, $f:ident, $ty:expr, ($mask:expr, $d:expr, $ab:expr), $mode:ident) => {
        match $ty {
            Float::F32 => $registers.binary($mask, $d, $ab, |a, b| single::$f(a, b, $mode)),
            Float::F64 => $registers.binary($mask, $d, $ab, |a, b| double::$f(a, b, $mode)),
            Float::F16 => $registers.binary($mask, $d, $ab, |a, b| f16::$f(a, b, $mode)),
            Float::Bf16 => $registers.binary($mask, $d, $ab, |a, b| bf16::$f(a, b, $mode)),
            Float::F16x2 => {
                let both = |a, b| packed2(a, b, |a, b| f16::$f(a, b, $mode));
                $registers.binary($mask, $d, $ab, both);
            }
            Float::Bf16x2 => {
                let both = |a, b| packed2(a, b, |a, b| bf16::$f(a, b, $mode));
                $registers.binary($mask, $d, $ab, both);
            }
            Float::F32x2 => {
                let both = |a, b| singles2(a, b, |a, b| single::$f(a, b, $mode));
                $registers.binary($mask, $d, $ab, both);
            }
        }
    };
}

/// `.rn.ftz`, which compilers emit with `--use_fast_math`.
const FLUSHING: Mode = Mode { flush: true, ..Mode::EXACT };

/// Calls a function of singles for each half of 64 bits.
fn singles2(a: u64, b: u64, f: impl Fn(u32, u32) -> u32) -> u64 {
    u64::from(f(a as u32, b as u32)) | u64::from(f((a >> 32) as u32, (b >> 32) as u32)) << 32
}

impl Registers {
    /// Returns the lanes in which a condition is true.
    #[inline(always)]
    pub(super) fn condition(&self, condition: Condition) -> u32 {
        let lanes = self.predicates[condition.slot as usize];
        if condition.is_negated { !lanes } else { lanes }
    }

    pub(super) fn copy(&mut self, mask: u32, bank: Bank, d: Slot, a: Slot) {
        match bank {
            Bank::Narrow => self.unary(mask, d, a, |a: u32| a),
            Bank::Wide => self.unary(mask, d, a, |a: u64| a),
            Bank::Predicate => self.set_predicate(mask, d, self.predicates[a as usize]),
        }
    }

    pub(super) fn compute1(&mut self, mask: u32, f: Unary, d: Slot, a: Slot) {
        match f {
            Unary::Neg(ty) => by_bits!(ty, T => self.unary(mask, d, a, |a: T| a.wrapping_neg())),
            Unary::Abs(ty) => match ty.bits() {
                8 => self.unary(mask, d, a, |a: i8| a.wrapping_abs()),
                16 => self.unary(mask, d, a, |a: i16| a.wrapping_abs()),
                32 => self.unary(mask, d, a, |a: i32| a.wrapping_abs()),
                _ => self.unary(mask, d, a, |a: i64| a.wrapping_abs()),
            },
            Unary::Not(ty) => by_bits!(ty, T => self.unary(mask, d, a, |a: T| !a)),
            Unary::Cnot(ty) => {
                by_bits!(ty, T => self.unary(mask, d, a, |a: T| T::from(a == 0)));
            }
            Unary::Popc(ty) => by_bits!(ty, T => self.unary(mask, d, a, |a: T| a.count_ones())),
            Unary::Clz(ty) => by_bits!(ty, T => self.unary(mask, d, a, |a: T| a.leading_zeros())),
            Unary::Brev(ty) => by_bits!(ty, T => self.unary(mask, d, a, |a: T| a.reverse_bits())),
            Unary::Bfind(ty, shift) => {
                by_int!(ty, T => self.unary(mask, d, a, |a: T| integer::bfind(a, shift)));
            }
            Unary::NegFloat(ty, flush) => sign_of_float!(self, neg, ty, (mask, d, a), flush),
            Unary::AbsFloat(ty, flush) => sign_of_float!(self, abs, ty, (mask, d, a), flush),
            Unary::Rcp(Float::F64, mode) => self.unary(mask, d, a, |a| double::rcp(a, mode)),
            Unary::Rcp(_, mode) => self.unary(mask, d, a, |a| single::rcp(a, mode)),
            Unary::Sqrt(Float::F64, mode) => self.unary(mask, d, a, |a| double::sqrt(a, mode)),
            Unary::Sqrt(_, mode) => self.unary(mask, d, a, |a| single::sqrt(a, mode)),
            Unary::Approximate(function, ty, flush) => {
                self.approximate(mask, function, ty, flush, d, a);
            }
            Unary::AddConstant(amount) => {
                self.unary(mask, d, a, |a: u64| a.wrapping_add(amount));
            }
        }
    }

    fn approximate(
        &mut self,
        mask: u32,
        function: Approximate,
        ty: Float,
        flush: bool,
        d: Slot,
        a: Slot,
    ) {
        use Approximate::{Cos, Ex2, Lg2, Rcp, Rsqrt, Sin, Sqrt, Tanh};
        match (function, ty) {
            (Rcp, Float::F64) => self.unary(mask, d, a, double::rcp_approx_ftz),
            (Rsqrt, Float::F64) if flush => self.unary(mask, d, a, double::rsqrt_approx_ftz),
            (Rsqrt, Float::F64) => self.unary(mask, d, a, double::rsqrt_approx),
            (Rcp, _) => self.unary(mask, d, a, |a| single::rcp_approx(a, flush)),
            (Sqrt, _) => self.unary(mask, d, a, |a| single::sqrt_approx(a, flush)),
            (Rsqrt, _) => self.unary(mask, d, a, |a| single::rsqrt_approx(a, flush)),
            (Sin, _) => self.unary(mask, d, a, |a| single::sin_approx(a, flush)),
            (Cos, _) => self.unary(mask, d, a, |a| single::cos_approx(a, flush)),
            (Lg2, _) => self.unary(mask, d, a, |a| single::lg2_approx(a, flush)),
            (Ex2, Float::F16) => self.unary(mask, d, a, |a| f16::ex2_approx(a, flush)),
            (Ex2, Float::Bf16) => self.unary(mask, d, a, |a| bf16::ex2_approx(a, flush)),
            (Ex2, Float::F16x2) => {
                self.unary(mask, d, a, |a| packed1(a, |a| f16::ex2_approx(a, flush)));
            }
            (Ex2, Float::Bf16x2) => {
                self.unary(mask, d, a, |a| packed1(a, |a| bf16::ex2_approx(a, flush)));
            }
            (Ex2, _) => self.unary(mask, d, a, |a| single::ex2_approx(a, flush)),
            (Tanh, Float::F16) => self.unary(mask, d, a, f16::tanh_approx),
            (Tanh, Float::Bf16) => self.unary(mask, d, a, bf16::tanh_approx),
            (Tanh, Float::F16x2) => self.unary(mask, d, a, |a| packed1(a, f16::tanh_approx)),
            (Tanh, Float::Bf16x2) => self.unary(mask, d, a, |a| packed1(a, bf16::tanh_approx)),
            (Tanh, _) => self.unary(mask, d, a, single::tanh_approx),
        }
    }

    pub(super) fn compute2(&mut self, mask: u32, f: Binary, d: Slot, ab: [Slot; 2]) {
        match f {
            Binary::Add(ty) => {
                by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a.wrapping_add(b)));
            }
            Binary::Sub(ty) => {
                by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a.wrapping_sub(b)));
            }
            Binary::AddSat => self.binary(mask, d, ab, |a: i32, b: i32| a.saturating_add(b)),
            Binary::SubSat => self.binary(mask, d, ab, |a: i32, b: i32| a.saturating_sub(b)),
            Binary::Mul(ty) => {
                by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a.wrapping_mul(b)));
            }
            Binary::MulHi(ty) => {
                by_int!(ty, T => self.binary(mask, d, ab, |a: T, b: T| integer::mul_hi(a, b)));
            }
            Binary::MulWide(ty) => match ty {
                Int::U8 | Int::U16 => {
                    self.binary(mask, d, ab, |a: u16, b: u16| u32::from(a) * u32::from(b));
                }
                Int::S8 | Int::S16 => {
                    self.binary(mask, d, ab, |a: i16, b: i16| i32::from(a) * i32::from(b));
                }
                Int::U32 | Int::U64 => {
                    self.binary(mask, d, ab, |a: u32, b: u32| u64::from(a) * u64::from(b));
                }
                Int::S32 | Int::S64 => {
                    self.binary(mask, d, ab, |a: i32, b: i32| i64::from(a) * i64::from(b));
                }
            },
            Binary::Mul24(ty, is_high) => {
                let signed = ty.is_signed();
                self.binary(mask, d, ab, |a, b| integer::mul24(a, b, signed, is_high));
            }
            Binary::Div(ty) => {
                by_int!(ty, T => self.binary(mask, d, ab, |a: T, b: T| integer::div(a, b)));
            }
            Binary::Rem(ty) => {
                by_int!(ty, T => self.binary(mask, d, ab, |a: T, b: T| integer::rem(a, b)));
            }
            Binary::Min(Int::S32, true) => {
                self.binary(mask, d, ab, |a: i32, b: i32| a.min(b).max(0));
            }
            Binary::Max(Int::S32, true) => {
                self.binary(mask, d, ab, |a: i32, b: i32| a.max(b).max(0));
            }
            Binary::Min(ty, _) => {
                by_int!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a.min(b)));
            }
            Binary::Max(ty, _) => {
                by_int!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a.max(b)));
            }
            Binary::Extremum16x2(is_max, is_signed, relu) => {
                let one = move |a: u16, b: u16| {
                    let (a, b) = match is_signed {
                        true => (i32::from(a as i16), i32::from(b as i16)),
                        false => (i32::from(a), i32::from(b)),
                    };
                    let chosen = if is_max { a.max(b) } else { a.min(b) };
                    (if relu { chosen.max(0) } else { chosen }) as u16
                };
                self.binary(mask, d, ab, |a, b| packed2(a, b, one));
            }
            Binary::Add16x2 => self.binary(mask, d, ab, |a, b| packed2(a, b, u16::wrapping_add)),
            Binary::And(ty) => by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a & b)),
            Binary::Or(ty) => by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a | b)),
            Binary::Xor(ty) => by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: T| a ^ b)),
            Binary::Shl(ty) => {
                by_bits!(ty, T => self.binary(mask, d, ab, |a: T, b: u32| integer::shl(a, b)));
            }
            Binary::Shr(ty) => {
                by_int!(ty, T => self.binary(mask, d, ab, |a: T, b: u32| integer::shr(a, b)));
            }
            Binary::Bmsk(how) => self.binary(mask, d, ab, |a, b| integer::bmsk(a, b, how)),
            Binary::Szext(signed, how) => {
                self.binary(mask, d, ab, |a, b| integer::szext(a, b, how, signed));
            }
            Binary::AddFloat(ty, mode) => {
                by_mode!(mode, MODE => sum_of_floats!(self, add, ty, (mask, d, ab), MODE));
            }
            Binary::SubFloat(ty, mode) => {
                by_mode!(mode, MODE => sum_of_floats!(self, sub, ty, (mask, d, ab), MODE));
            }
            Binary::MulFloat(ty, mode) => {
                by_mode!(mode, MODE => sum_of_floats!(self, mul, ty, (mask, d, ab), MODE));
            }
            Binary::DivFloat(ty, mode) => by_mode!(mode, MODE => match ty {
                Float::F64 => self.binary(mask, d, ab, |a, b| double::div(a, b, MODE)),
                _ => self.binary(mask, d, ab, |a, b| single::div(a, b, MODE)),
            }),
            Binary::DivApproximate(flush) => {
                self.binary(mask, d, ab, |a, b| single::div_approx(a, b, flush));
            }
            Binary::DivFull(flush) => {
                self.binary(mask, d, ab, |a, b| single::div_full(a, b, flush));
            }
            Binary::Extremum(ty, how) => self.extremum(mask, ty, how, d, ab),
            Binary::Copysign(Float::F64) => self.binary(mask, d, ab, double::copysign),
            Binary::Copysign(_) => self.binary(mask, d, ab, single::copysign),
        }
    }

    fn extremum(&mut self, mask: u32, ty: Float, how: Extremum, d: Slot, ab: [Slot; 2]) {
        let Extremum { is_max, flush, nan, xorsign_abs: xor } = how;
        let half = move |a, b| match is_max {
            true => f16::max(a, b, flush, nan, xor),
            false => f16::min(a, b, flush, nan, xor),
        };
        let brain = move |a, b| match is_max {
            true => bf16::max(a, b, flush, nan, xor),
            false => bf16::min(a, b, flush, nan, xor),
        };
        match (ty, is_max) {
            (Float::F64, true) => self.binary(mask, d, ab, double::max),
            (Float::F64, false) => self.binary(mask, d, ab, double::min),
            (Float::F16, _) => self.binary(mask, d, ab, half),
            (Float::Bf16, _) => self.binary(mask, d, ab, brain),
            (Float::F16x2, _) => self.binary(mask, d, ab, |a, b| packed2(a, b, half)),
            (Float::Bf16x2, _) => self.binary(mask, d, ab, |a, b| packed2(a, b, brain)),
            (_, true) => self.binary(mask, d, ab, |a, b| single::max(a, b, flush, nan, xor)),
            (_, false) => self.binary(mask, d, ab, |a, b| single::min(a, b, flush, nan, xor)),
        }
    }

    pub(super) fn compute3(&mut self, mask: u32, f: Ternary, d: Slot, abc: [Slot; 3]) {
        match f {
            Ternary::Mad(ty) => by_bits!(ty, T => {
                self.ternary(mask, d, abc, |a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c));
            }),
            Ternary::MadHi(ty) => by_int!(ty, T => {
                self.ternary(mask, d, abc, |a: T, b: T, c: T| {
                    integer::mul_hi(a, b).wrapping_add(c)
                });
            }),
            Ternary::MadHiSat => {
                self.ternary(mask, d, abc, |a: i32, b, c| integer::mad_hi_sat(a, b, c));
            }
            Ternary::MadWide(ty) => match ty {
                Int::U8 | Int::U16 => {
                    self.ternary(mask, d, abc, |a: u16, b: u16, c: u32| {
                        (u32::from(a) * u32::from(b)).wrapping_add(c)
                    });
                }
                Int::S8 | Int::S16 => {
                    self.ternary(mask, d, abc, |a: i16, b: i16, c: i32| {
                        (i32::from(a) * i32::from(b)).wrapping_add(c)
                    });
                }
                Int::U32 | Int::U64 => {
                    self.ternary(mask, d, abc, |a: u32, b: u32, c: u64| {
                        (u64::from(a) * u64::from(b)).wrapping_add(c)
                    });
                }
                Int::S32 | Int::S64 => {
                    self.ternary(mask, d, abc, |a: i32, b: i32, c: i64| {
                        (i64::from(a) * i64::from(b)).wrapping_add(c)
                    });
                }
            },
            Ternary::Mad24(ty, is_high, is_sat) => {
                let signed = ty.is_signed();
                self.ternary(mask, d, abc, |a, b, c| match is_sat {
                    true => integer::mad24_hi_sat(a, b, c),
                    false => integer::mad24(a, b, c, signed, is_high),
                });
            }
            Ternary::Sad(ty) => by_int!(ty, T => {
                self.ternary(mask, d, abc, |a: T, b: T, c: T| integer::sad(a, b, c));
            }),
            Ternary::Bfe(ty) => by_int!(ty, T => {
                self.ternary(mask, d, abc, |a: T, b, c| integer::bfe(a, b, c));
            }),
            Ternary::Prmt(integer::Permutation::Index) => {
                const INDEX: integer::Permutation = integer::Permutation::Index;
                self.ternary(mask, d, abc, |a, b, c| integer::prmt(a, b, c, INDEX));
            }
            Ternary::Prmt(how) => {
                self.ternary(mask, d, abc, |a, b, c| integer::prmt(a, b, c, how));
            }
            Ternary::Lop3(lut) => {
                self.ternary(mask, d, abc, |a, b, c| integer::lop3(a, b, c, lut));
            }
            Ternary::Shf(true, how) => {
                self.ternary(mask, d, abc, |a, b, c| integer::shf_l(a, b, c, how));
            }
            Ternary::Shf(false, how) => {
                self.ternary(mask, d, abc, |a, b, c| integer::shf_r(a, b, c, how));
            }
            Ternary::Fma(ty, mode) => by_mode!(mode, MODE => match ty {
                Float::F32 => self.ternary(mask, d, abc, |a, b, c| single::fma(a, b, c, MODE)),
                Float::F64 => self.ternary(mask, d, abc, |a, b, c| double::fma(a, b, c, MODE)),
                Float::F16 => self.ternary(mask, d, abc, |a, b, c| f16::fma(a, b, c, MODE)),
                Float::Bf16 => self.ternary(mask, d, abc, |a, b, c| bf16::fma(a, b, c, MODE)),
                Float::F16x2 => self.ternary(mask, d, abc, |a, b, c| {
                    packed3(a, b, c, |a, b, c| f16::fma(a, b, c, MODE))
                }),
                Float::Bf16x2 => self.ternary(mask, d, abc, |a, b, c| {
                    packed3(a, b, c, |a, b, c| bf16::fma(a, b, c, MODE))
                }),
                Float::F32x2 => self.ternary(mask, d, abc, |a: u64, b: u64, c: u64| {
                    let low = single::fma(a as u32, b as u32, c as u32, MODE);
                    let high =
                        single::fma((a >> 32) as u32, (b >> 32) as u32, (c >> 32) as u32, MODE);
                    u64::from(low) | u64::from(high) << 32
                }),
            }),
            Ternary::Dp4a(x, y) => {
                self.ternary(mask, d, abc, |a, b, c| integer::dp4a(a, b, c, x, y));
            }
            Ternary::Dp2a(x, y, is_high) => {
                self.ternary(mask, d, abc, |a, b, c| integer::dp2a(a, b, c, x, y, is_high));
            }
            Ternary::Fns => {
                self.ternary(mask, d, abc, |a, b, c: i32| integer::fns(a, b, c));
            }
            Ternary::Slct(bank, by) => self.slct(mask, bank, by, d, abc),
            Ternary::Extremum3(how) => {
                let Extremum { is_max, flush, nan, xorsign_abs: xor } = how;
                self.ternary(mask, d, abc, |a, b, c| match is_max {
                    true => single::max(single::max(a, b, flush, nan, xor), c, flush, nan, xor),
                    false => single::min(single::min(a, b, flush, nan, xor), c, flush, nan, xor),
                });
            }
        }
    }

    fn slct(&mut self, mask: u32, bank: Bank, by: SlctBy, d: Slot, abc: [Slot; 3]) {
        let is_a = move |c: u32| match by {
            SlctBy::Signed => c as i32 >= 0,
            SlctBy::Single(flush) => single::compare(Comparison::Ge, c, 0, flush),
        };
        match bank {
            Bank::Wide => {
                self.ternary(mask, d, abc, |a: u64, b: u64, c| if is_a(c) { a } else { b });
            }
            _ => self.ternary(mask, d, abc, |a: u32, b: u32, c| if is_a(c) { a } else { b }),
        }
    }

    pub(super) fn bfi(&mut self, mask: u32, bits: u32, d: Slot, [a, b, c, e]: [Slot; 4]) {
        let (c, e) = (self.narrow[c as usize], self.narrow[e as usize]);
        if bits == 64 {
            let (a, b) = (self.wide[a as usize], self.wide[b as usize]);
            self.set(mask, d, |i| integer::bfi(a[i], b[i], c[i], e[i]));
        } else {
            let (a, b) = (self.narrow[a as usize], self.narrow[b as usize]);
            self.set(mask, d, |i| integer::bfi(a[i], b[i], c[i], e[i]));
        }
    }

    /// Computes in each lane with the carry bit, which is taken, given or both.
    pub(super) fn carry(
        &mut self,
        mask: u32,
        ty: Int,
        (is_sub, takes, gives): (bool, bool, bool),
        carry: Slot,
        d: Slot,
        [a, b]: [Slot; 2],
    ) {
        let before = self.predicates[carry as usize];
        // Without a carry that is taken, a subtraction has no borrow, which is a set bit.
        let taken = if takes {
            before
        } else if is_sub {
            u32::MAX
        } else {
            0
        };
        let gives = gives.then_some(carry);
        by_bits!(ty, T => {
            let (a, b) = (*self.get::<T>(a), *self.get::<T>(b));
            self.set_with_carry(mask, d, gives, |lane| {
                let (a, b, taken) = (T::of(a[lane]), T::of(b[lane]), taken >> lane & 1 != 0);
                match is_sub {
                    true => integer::sub_carry(a, b, taken),
                    false => integer::add_carry(a, b, taken),
                }
            });
        });
    }

    /// Adds a product and the carry bit in each lane.
    pub(super) fn mad_carry(
        &mut self,
        mask: u32,
        (ty, is_high): (Int, bool),
        (takes, gives): (bool, bool),
        carry: Slot,
        d: Slot,
        [a, b, c]: [Slot; 3],
    ) {
        let taken = if takes { self.predicates[carry as usize] } else { 0 };
        let gives = gives.then_some(carry);
        by_int!(ty, T => {
            let (a, b) = (*self.get::<T>(a), *self.get::<T>(b));
            let c = *self.get::<T>(c);
            self.set_with_carry(mask, d, gives, |lane| {
                let (a, b) = (T::of(a[lane]), T::of(b[lane]));
                let product = match is_high {
                    true => integer::mul_hi(a, b),
                    false => a.wrapping_mul(b),
                };
                integer::add_carry(product, T::of(c[lane]), taken >> lane & 1 != 0)
            });
        });
    }

    /// Sets a register, and the carry bit of each lane if there is a predicate for it.
    fn set_with_carry<T: Lane>(
        &mut self,
        mask: u32,
        d: Slot,
        carry: Option<Slot>,
        f: impl Fn(usize) -> (T, bool),
    ) {
        let results: [(T, bool); LANES] = std::array::from_fn(f);
        self.set(mask, d, |lane| results[lane].0);
        if let Some(carry) = carry {
            let lanes = results.iter().enumerate();
            let after = lanes.fold(0, |all, (lane, (_, out))| all | u32::from(*out) << lane);
            self.set_predicate(mask, carry, after);
        }
    }

    /// Compares in each lane, and returns the result and that of the opposite, combined with a predicate.
    fn compare(&self, compare: &Compare) -> (u32, u32) {
        let Compare { ty, comparison, operands, combine } = *compare;
        let found = match ty {
            Compared::Int(ty) => by_int!(ty, T => match comparison {
                Comparison::Eq | Comparison::Equ => self.test(operands, |a: T, b: T| a == b),
                Comparison::Ne | Comparison::Neu => self.test(operands, |a: T, b: T| a != b),
                Comparison::Lt | Comparison::Ltu => self.test(operands, |a: T, b: T| a < b),
                Comparison::Le | Comparison::Leu => self.test(operands, |a: T, b: T| a <= b),
                Comparison::Gt | Comparison::Gtu => self.test(operands, |a: T, b: T| a > b),
                Comparison::Ge | Comparison::Geu => self.test(operands, |a: T, b: T| a >= b),
                Comparison::Num => u32::MAX,
                Comparison::Nan => 0,
            }),
            Compared::Float(ty, flush) => match ty {
                Float::F64 => self.test(operands, |a, b| double::compare(comparison, a, b)),
                Float::F16 | Float::F16x2 => {
                    self.test(operands, |a, b| f16::compare(comparison, a, b, flush))
                }
                Float::Bf16 | Float::Bf16x2 => {
                    self.test(operands, |a, b| bf16::compare(comparison, a, b, flush))
                }
                Float::F32 | Float::F32x2 => {
                    self.test(operands, |a, b| single::compare(comparison, a, b, flush))
                }
            },
        };
        self.combined(found, combine)
    }

    fn combined(&self, found: u32, combine: Option<(Logic, Condition)>) -> (u32, u32) {
        match combine {
            None => (found, !found),
            Some((logic, condition)) => {
                let other = self.condition(condition);
                (apply(logic, found, other), apply(logic, !found, other))
            }
        }
    }

    pub(super) fn setp(&mut self, mask: u32, compare: &Compare, p: Option<Slot>, q: Option<Slot>) {
        let (found, opposite) = self.compare(compare);
        if let Some(p) = p {
            self.set_predicate(mask, p, found);
        }
        if let Some(q) = q {
            self.set_predicate(mask, q, opposite);
        }
    }

    pub(super) fn set_number(&mut self, mask: u32, compare: &Compare, d: Slot, one: u32) {
        let (found, _) = self.compare(compare);
        self.set(mask, d, |lane| if found >> lane & 1 != 0 { one } else { 0u32 });
    }

    /// Compares both halves of packed numbers.
    fn compare_packed(&self, compare: &Compare) -> [u32; 2] {
        let Compare { ty, comparison, operands, .. } = *compare;
        let (flush, is_brain) = match ty {
            Compared::Float(of, flush) => (flush, of == Float::Bf16x2),
            Compared::Int(_) => (false, false),
        };
        [0, 16].map(|shift: u32| {
            self.test(operands, |a: u32, b: u32| {
                let (a, b) = ((a >> shift) as u16, (b >> shift) as u16);
                match is_brain {
                    true => bf16::compare(comparison, a, b, flush),
                    false => f16::compare(comparison, a, b, flush),
                }
            })
        })
    }

    pub(super) fn setp_packed(
        &mut self,
        mask: u32,
        compare: &Compare,
        p: Option<Slot>,
        q: Option<Slot>,
    ) {
        let found = self.compare_packed(compare);
        let [low, high] = found.map(|found| self.combined(found, compare.combine).0);
        if let Some(p) = p {
            self.set_predicate(mask, p, low);
        }
        if let Some(q) = q {
            self.set_predicate(mask, q, high);
        }
    }

    pub(super) fn set_packed(&mut self, mask: u32, compare: &Compare, d: Slot, one: u16) {
        let found = self.compare_packed(compare);
        let [low, high] = found.map(|found| self.combined(found, compare.combine).0);
        let one = u32::from(one);
        self.set(mask, d, |lane| ((low >> lane & 1) * one) | (((high >> lane & 1) * one) << 16));
    }

    pub(super) fn selp(&mut self, mask: u32, bank: Bank, d: Slot, ab: [Slot; 2], p: Condition) {
        let p = self.condition(p);
        match bank {
            Bank::Wide => self.select::<u64>(mask, d, ab, p),
            _ => self.select::<u32>(mask, d, ab, p),
        }
    }

    fn select<T: Lane>(&mut self, mask: u32, d: Slot, [a, b]: [Slot; 2], p: u32) {
        let (a, b) = (*self.get::<T>(a), *self.get::<T>(b));
        self.set(mask, d, |lane| T::of(if p >> lane & 1 != 0 { a[lane] } else { b[lane] }));
    }

    pub(super) fn logic(&mut self, mask: u32, logic: Logic, d: Slot, [a, b]: [Condition; 2]) {
        let (a, b) = (self.condition(a), self.condition(b));
        self.set_predicate(mask, d, apply(logic, a, b));
    }

    pub(super) fn testp(
        &mut self,
        mask: u32,
        ty: Float,
        kind: crate::number::Property,
        d: Slot,
        a: Slot,
    ) {
        let ab = [a, a];
        let found = match ty {
            Float::F64 => self.test(ab, |a, _| double::testp(kind, a)),
            _ => self.test(ab, |a, _| single::testp(kind, a)),
        };
        self.set_predicate(mask, d, found);
    }

    fn read_bank(&self, bank: Bank, slot: Slot) -> [u64; LANES] {
        match bank {
            Bank::Wide => self.wide[slot as usize],
            _ => {
                let narrow = &self.narrow[slot as usize];
                std::array::from_fn(|lane| narrow[lane].into())
            }
        }
    }

    fn write_bank(&mut self, mask: u32, bank: Bank, slot: Slot, f: impl Fn(usize) -> u64) {
        match bank {
            Bank::Wide => self.set(mask, slot, f),
            _ => self.set(mask, slot, |lane| f(lane) as u32),
        }
    }

    pub(super) fn convert(&mut self, mask: u32, how: &Convert, d: Slot, a: Slot) {
        use Number::{Float as F, Int as I};
        let both = (how.from_bank, how.to_bank);
        let is_exact = how.mode == Mode::EXACT && !how.is_finite && !how.is_integral;
        // The commonest conversions, in loops of their own.
        if is_exact {
            let nn = both == (Bank::Narrow, Bank::Narrow);
            let nw = both == (Bank::Narrow, Bank::Wide);
            let wn = both == (Bank::Wide, Bank::Narrow);
            let ww = both == (Bank::Wide, Bank::Wide);
            match (how.from, how.to) {
                (I(Int::U32), I(Int::U64 | Int::S64)) if nw => {
                    return self.unary(mask, d, a, |a: u32| u64::from(a));
                }
                (I(Int::S32), I(Int::U64 | Int::S64)) if nw => {
                    return self.unary(mask, d, a, |a: i32| i64::from(a));
                }
                (I(Int::U64 | Int::S64), I(Int::U32 | Int::S32)) if wn => {
                    return self.unary(mask, d, a, |a: u64| a as u32);
                }
                (I(Int::S32), F(Format::F32)) if nn => {
                    return self.unary(mask, d, a, |a: i32| (a as f32).to_bits());
                }
                (I(Int::U32), F(Format::F32)) if nn => {
                    return self.unary(mask, d, a, |a: u32| (a as f32).to_bits());
                }
                (I(Int::S32), F(Format::F64)) if nw => {
                    return self.unary(mask, d, a, |a: i32| f64::from(a).to_bits());
                }
                (I(Int::U32), F(Format::F64)) if nw => {
                    return self.unary(mask, d, a, |a: u32| f64::from(a).to_bits());
                }
                (I(Int::S64), F(Format::F64)) if ww => {
                    return self.unary(mask, d, a, |a: i64| (a as f64).to_bits());
                }
                (I(Int::U64), F(Format::F64)) if ww => {
                    return self.unary(mask, d, a, |a: u64| (a as f64).to_bits());
                }
                (F(Format::F32), F(Format::F64)) if nw => {
                    return self.unary(mask, d, a, convert::f32_to_f64);
                }
                (F(Format::F64), F(Format::F32)) if wn => {
                    return self.unary(mask, d, a, convert::f64_to_f32);
                }
                (F(Format::F16), F(Format::F32)) if nn => {
                    return self.unary(mask, d, a, convert::f16_to_f32);
                }
                (F(Format::F32), F(Format::F16)) if nn => {
                    return self.unary(mask, d, a, convert::f32_to_f16);
                }
                (F(Format::Bf16), F(Format::F32)) if nn => {
                    return self.unary(mask, d, a, convert::bf16_to_f32);
                }
                (F(Format::F32), F(Format::Bf16)) if nn => {
                    return self.unary(mask, d, a, convert::f32_to_bf16);
                }
                _ => {}
            }
        }
        if how.from == F(Format::F32)
            && how.to == I(Int::S32)
            && both == (Bank::Narrow, Bank::Narrow)
            && how.mode == Mode::rounded(Rounding::Zero)
        {
            return self.unary(mask, d, a, |a: u32| f32::from_bits(a) as i32);
        }
        let from = self.read_bank(how.from_bank, a);
        self.write_bank(mask, how.to_bank, d, |lane| convert_one(how, from[lane]));
    }

    pub(super) fn convert_packed(&mut self, mask: u32, how: &Convert, d: Slot, [a, b]: [Slot; 2]) {
        let (a, b) = (self.narrow[a as usize], self.narrow[b as usize]);
        let bits = bits_of(how.to);
        self.write_bank(mask, how.to_bank, d, |lane| {
            convert_one(how, u64::from(a[lane])) << bits | convert_one(how, u64::from(b[lane]))
        });
    }

    pub(super) fn convert_unpacked(&mut self, mask: u32, how: &Convert, d: Slot, a: Slot) {
        let a = self.read_bank(how.from_bank, a);
        let (from, to) = (bits_of(how.from), bits_of(how.to));
        let low = (1u64 << from) - 1;
        self.write_bank(mask, how.to_bank, d, |lane| {
            let a = a[lane];
            convert_one(how, a >> from & low) << to | convert_one(how, a & low)
        });
    }

    pub(super) fn cvt_pack(
        &mut self,
        mask: u32,
        (bits, is_signed): (u32, bool),
        from: Int,
        d: Slot,
        abc: [Slot; 3],
    ) {
        let (least, most) = match is_signed {
            true => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
            false => (0, (1i64 << bits) - 1),
        };
        let field = (1u64 << bits) - 1;
        let clamp = move |value: u32| {
            let value = match from.is_signed() {
                true => i64::from(value as i32),
                false => i64::from(value),
            };
            value.clamp(least, most) as u64 & field
        };
        self.ternary(mask, d, abc, |a: u32, b: u32, c: u32| {
            (u64::from(c) << (2 * bits) | clamp(a) << bits | clamp(b)) as u32
        });
    }

    pub(super) fn video(&mut self, mask: u32, how: &Video, d: Slot, abc: [Slot; 3]) {
        match how {
            Video::Scalar(its) => self.ternary(mask, d, abc, |a, b, c| its.run(a, b, c)),
            Video::Mad(its) => self.ternary(mask, d, abc, |a, b, c| its.run(a, b, c)),
            Video::Pair(its) => self.ternary(mask, d, abc, |a, b, c| its.run(a, b, c)),
            Video::Quad(its) => self.ternary(mask, d, abc, |a, b, c| its.run(a, b, c)),
        }
    }

    /// Splits values into parts, from the lowest bits on.
    pub(super) fn unpack(&mut self, mask: u32, part: u32, d: &[Element], a: &[Element]) {
        let parts = 64u32.div_ceil(part) as usize;
        let words: Vec<[u64; LANES]> = a.iter().map(|a| self.element(*a)).collect();
        let per_word = match a.first() {
            Some(Element::Wide(_)) => parts,
            _ => 32u32.div_ceil(part) as usize,
        };
        for (index, d) in d.iter().enumerate() {
            let Some(word) = words.get(index / per_word) else { continue };
            let shift = part * (index % per_word) as u32;
            let field = u64::MAX >> (64 - part.min(64));
            self.set_element(mask, *d, |lane| word[lane] >> shift & field);
        }
    }

    /// Joins parts, the first into the lowest bits.
    pub(super) fn pack(&mut self, mask: u32, part: u32, d: &[Element], a: &[Element]) {
        let parts: Vec<[u64; LANES]> = a.iter().map(|a| self.element(*a)).collect();
        let per_word = (parts.len() / d.len().max(1)).max(1);
        // A register of 8 bits can hold the sign above them.
        let of_part = u64::MAX >> (64 - part.clamp(1, 64));
        for (d, parts) in d.iter().zip(parts.chunks(per_word)) {
            self.set_element(mask, *d, |lane| {
                let bits = parts.iter().enumerate();
                bits.fold(0, |all, (index, of)| all | (of[lane] & of_part) << (part * index as u32))
            });
        }
    }

    pub(super) fn element(&self, element: Element) -> [u64; LANES] {
        match element {
            Element::Discard => [0; LANES],
            Element::Narrow(slot) => self.read_bank(Bank::Narrow, slot),
            Element::Wide(slot) => self.read_bank(Bank::Wide, slot),
        }
    }

    pub(super) fn set_element(&mut self, mask: u32, d: Element, f: impl Fn(usize) -> u64) {
        match d {
            Element::Discard => {}
            Element::Narrow(slot) => self.write_bank(mask, Bank::Narrow, slot, f),
            Element::Wide(slot) => self.write_bank(mask, Bank::Wide, slot, f),
        }
    }
}

fn apply(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

fn bits_of(number: Number) -> u32 {
    match number {
        Number::Int(ty) => ty.bits(),
        Number::Float(Format::F64) => 64,
        Number::Float(Format::F32 | Format::Tf32) => 32,
        Number::Float(Format::F16 | Format::Bf16) => 16,
        Number::Float(Format::E2m1) => 4,
        Number::Float(_) => 8,
    }
}

/// Converts one number. A result that is an integer is extended to 64 bits.
fn convert_one(how: &Convert, bits: u64) -> u64 {
    let width = bits_of(how.from);
    let bits = bits & (u64::MAX >> (64 - width));
    match (how.from, how.to) {
        (Number::Int(from), Number::Int(to)) => {
            let value = extend(from, bits);
            let value = if how.mode.saturate { clamp(to, value) } else { value };
            extend(to, value as u64 & (u64::MAX >> (64 - to.bits()))) as u64
        }
        (Number::Int(from), Number::Float(to)) => int_to_float(to, extend(from, bits), how.mode),
        (Number::Float(from), Number::Int(to)) => {
            let value = float_to_int(from, bits, to.bits(), to.is_signed(), how.mode);
            extend(to, value) as u64
        }
        (Number::Float(from), Number::Float(to)) => {
            if how.is_integral && from == to {
                round_to_integral(from, bits, how.mode)
            } else {
                convert_float(from, to, bits, how.mode, how.is_finite)
            }
        }
    }
}

fn extend(ty: Int, bits: u64) -> i128 {
    by_int!(ty, T => i128::from(bits as T))
}

fn clamp(ty: Int, value: i128) -> i128 {
    by_int!(ty, T => value.clamp(i128::from(T::MIN), i128::from(T::MAX)))
}
