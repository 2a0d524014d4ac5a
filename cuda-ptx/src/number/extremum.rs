//! Minima and maxima of numbers whose NaN results are canonical.

/// Defines `min` and `max` on patterns of `$bits`. The module has `SIGN`, `INFINITY`, `NAN` and `flushed`.
macro_rules! extrema {
    ($bits:ident, $signed:ident) => {
        /// Maps a pattern to an integer of the same order, −0 before +0.
        #[inline(always)]
        fn key(a: $bits) -> $signed {
            (a ^ (((a as $signed) >> ($bits::BITS - 1)) as $bits >> 1)) as $signed
        }

        #[inline(always)]
        fn select(
            a: $bits,
            b: $bits,
            nan: bool,
            first: impl Fn($signed, $signed) -> bool,
        ) -> $bits {
            let (a_nan, b_nan) = (a & !SIGN > INFINITY, b & !SIGN > INFINITY);
            let chosen = if first(key(a), key(b)) { a } else { b };
            let chosen = if a_nan { b } else { chosen };
            let chosen = if b_nan { a } else { chosen };
            if (a_nan & b_nan) | (nan & (a_nan | b_nan)) { NAN } else { chosen }
        }

        /// Applies `.xorsign.abs` to the operands and result of a minimum or maximum.
        #[inline(always)]
        fn xorsign(
            a: $bits,
            b: $bits,
            xorsign_abs: bool,
            f: impl Fn($bits, $bits) -> $bits,
        ) -> $bits {
            if xorsign_abs {
                let result = f(a & !SIGN, b & !SIGN);
                if result == NAN { NAN } else { result | ((a ^ b) & SIGN) }
            } else {
                f(a, b)
            }
        }

        /// Returns the lesser operand. A NaN operand is ignored, or returned with `nan` (`.NaN`).
        #[inline(always)]
        pub fn min(a: $bits, b: $bits, flush: bool, nan: bool, xorsign_abs: bool) -> $bits {
            xorsign(flushed(a, flush), flushed(b, flush), xorsign_abs, |a, b| {
                select(a, b, nan, |a, b| a < b)
            })
        }

        /// Returns the greater operand. A NaN operand is ignored, or returned with `nan` (`.NaN`).
        #[inline(always)]
        pub fn max(a: $bits, b: $bits, flush: bool, nan: bool, xorsign_abs: bool) -> $bits {
            xorsign(flushed(a, flush), flushed(b, flush), xorsign_abs, |a, b| {
                select(a, b, nan, |a, b| a > b)
            })
        }
    };
}

pub(super) use extrema;
