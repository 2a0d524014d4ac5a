//! Floating-point arithmetic in integers, for each format and rounding mode.
//!
//! A number is a 128-bit significand times a power of two. Operations keep at least two bits more
//! than the widest format has; bits below them are combined into the lowest one ("sticky"), so that
//! one rounding at the end is correct.

use super::{Format, Rounding};

/// The encoding of a format.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The number of bits of the significand with the hidden one.
    precision: u32,
    bias: i32,
    /// The magnitude of the greatest finite number.
    greatest: u64,
    /// The position of the sign.
    sign: u32,
    specials: Specials,
    /// The number of unused low bits.
    shift: u32,
    /// Whether results below the least normal number become zero.
    flush: bool,
}

/// How a format represents infinity and NaN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Specials {
    /// The greatest exponent is infinity and NaN.
    Ieee,
    /// The pattern with all bits set is NaN.
    NanOnly,
    None,
}

impl Layout {
    /// Returns the layout of a format with a sign. `Ue8m0` has none and is handled by its
    /// conversions.
    pub(super) const fn of(format: Format) -> Self {
        let (exponent_bits, fraction_bits, specials, shift) = match format {
            Format::F16 => (5, 10, Specials::Ieee, 0),
            Format::Bf16 => (8, 7, Specials::Ieee, 0),
            Format::F32 => (8, 23, Specials::Ieee, 0),
            Format::F64 => (11, 52, Specials::Ieee, 0),
            Format::Tf32 => (8, 10, Specials::Ieee, 13),
            Format::E4m3 => (4, 3, Specials::NanOnly, 0),
            Format::E5m2 => (5, 2, Specials::Ieee, 0),
            Format::E2m3 => (2, 3, Specials::None, 0),
            Format::E3m2 => (3, 2, Specials::None, 0),
            Format::E2m1 => (2, 1, Specials::None, 0),
            Format::Ue8m0 => (8, 0, Specials::None, 0),
        };
        let all = (1u64 << (exponent_bits + fraction_bits)) - 1;
        let greatest = match specials {
            Specials::Ieee => all - (1 << fraction_bits),
            Specials::NanOnly => all - 1,
            Specials::None => all,
        };
        Self {
            precision: fraction_bits + 1,
            bias: (1 << (exponent_bits - 1)) - 1,
            greatest,
            sign: exponent_bits + fraction_bits,
            specials,
            shift,
            flush: false,
        }
    }

    /// Returns the layout whose results are flushed to zero if they are below the least normal
    /// number after rounding to the precision of normal numbers. A denormal result could round up
    /// to that number.
    pub(super) const fn flushing(self, flush: bool) -> Self {
        Self { flush, ..self }
    }

    /// Returns the magnitude of the greatest finite number.
    pub(super) const fn greatest(self) -> u64 {
        self.greatest << self.shift
    }

    /// Returns the mask of the sign.
    pub(super) const fn sign(self) -> u64 {
        1 << (self.sign + self.shift)
    }

    /// Returns the magnitude of infinity of a format that has it.
    pub(super) const fn infinity(self) -> u64 {
        (self.greatest + 1) << self.shift
    }

    /// Returns the pattern of one.
    pub(super) const fn one(self) -> u64 {
        (self.bias as u64) << (self.precision - 1 + self.shift)
    }

    /// Decodes a pattern.
    pub(super) fn decode(self, bits: u64) -> Value {
        let bits = bits >> self.shift;
        let negative = (bits >> self.sign) & 1 != 0;
        let magnitude = bits & ((1 << self.sign) - 1);
        if magnitude > self.greatest {
            return if self.specials == Specials::Ieee && magnitude == self.greatest + 1 {
                Value::Infinite { negative }
            } else {
                Value::Nan
            };
        }
        let fraction_bits = self.precision - 1;
        let fraction = magnitude & ((1 << fraction_bits) - 1);
        let exponent = (magnitude >> fraction_bits) as i32;
        let hidden = u64::from(exponent != 0) << fraction_bits;
        Value::Finite(Number {
            negative,
            exponent: exponent.max(1) - self.bias - fraction_bits as i32,
            significand: u128::from(fraction | hidden),
        })
    }

    /// Rounds a number to a pattern. In a format without infinity, a number that is too large
    /// becomes the greatest finite one.
    pub(super) fn encode(self, number: Number, rounding: Rounding) -> u64 {
        let Number { negative, exponent, significand } = number;
        let sign = u64::from(negative) << self.sign;
        if significand == 0 {
            return sign << self.shift;
        }
        let fraction_bits = self.precision as i32 - 1;
        let leading = exponent + 127 - significand.leading_zeros() as i32;
        let binade = if self.flush { leading } else { leading.max(1 - self.bias) };
        let dropped = binade - fraction_bits - exponent;
        let (kept, rest) = if dropped <= 0 {
            // The kept bits are those of a format, at most 53.
            (significand.checked_shl(dropped.unsigned_abs()).unwrap_or(0), Rest::None)
        } else if dropped < 128 {
            let half = 1u128 << (dropped - 1);
            let rest = significand & (half | (half - 1));
            let rest = match rest {
                0 => Rest::None,
                _ if rest < half => Rest::BelowHalf,
                _ if rest == half => Rest::Half,
                _ => Rest::AboveHalf,
            };
            (significand >> dropped, rest)
        } else {
            (0, if dropped == 128 { half_of(significand) } else { Rest::BelowHalf })
        };
        let away = match rounding {
            Rounding::NearestEven => {
                rest == Rest::AboveHalf || (rest == Rest::Half && kept & 1 != 0)
            }
            Rounding::NearestAway => matches!(rest, Rest::Half | Rest::AboveHalf),
            Rounding::Zero => false,
            Rounding::Down => negative && rest != Rest::None,
            Rounding::Up => !negative && rest != Rest::None,
        };
        // The hidden bit of a normal number adds one to the exponent, and so does a carry.
        let magnitude = if binade < 1 - self.bias {
            let carries = kept as u64 + u64::from(away) == 1 << self.precision;
            u64::from(carries && binade == -self.bias) << fraction_bits
        } else if binade > self.bias + 1 {
            u64::MAX >> 1
        } else {
            (((binade + self.bias - 1) as u64) << fraction_bits) + kept as u64 + u64::from(away)
        };
        let magnitude = if magnitude <= self.greatest {
            magnitude
        } else {
            let to_greatest = match rounding {
                Rounding::NearestEven | Rounding::NearestAway => false,
                Rounding::Zero => true,
                Rounding::Down => !negative,
                Rounding::Up => negative,
            };
            self.greatest + u64::from(!to_greatest && self.specials == Specials::Ieee)
        };
        (sign | magnitude) << self.shift
    }
}

/// The bits below the last kept one, relative to half of its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    None,
    BelowHalf,
    Half,
    AboveHalf,
}

fn half_of(significand: u128) -> Rest {
    match significand.cmp(&(1 << 127)) {
        std::cmp::Ordering::Less => Rest::BelowHalf,
        std::cmp::Ordering::Equal => Rest::Half,
        std::cmp::Ordering::Greater => Rest::AboveHalf,
    }
}

/// A decoded pattern.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Nan,
    Infinite { negative: bool },
    Finite(Number),
}

/// A finite number: `significand` × 2^`exponent`.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u128,
}

impl Number {
    /// Moves the highest bit to `position`, which must not lose bits. Zero stays zero.
    fn normalized(self, position: u32) -> Self {
        if self.significand == 0 {
            return self;
        }
        let shift = self.significand.leading_zeros() as i32 - (127 - position as i32);
        let significand = if shift >= 0 {
            self.significand << shift
        } else {
            self.significand >> shift.unsigned_abs()
        };
        Self { significand, exponent: self.exponent - shift, ..self }
    }

    fn product(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            exponent: self.exponent + other.exponent,
            significand: self.significand * other.significand,
        }
    }

    /// Adds numbers of at most 106 and 53 bits.
    fn sum(self, other: Self, rounding: Rounding) -> Self {
        if self.significand == 0 && other.significand == 0 {
            let negative = if self.negative == other.negative {
                self.negative
            } else {
                rounding == Rounding::Down
            };
            return Self { negative, ..self };
        }
        if self.significand == 0 {
            return other;
        }
        if other.significand == 0 {
            return self;
        }
        // With the highest bits at 125, the low 20 bits are zero. If the shift to the right loses
        // bits, the difference has at least 124 bits and the sticky bit is far below its rounding
        // position.
        let (a, b) = (self.normalized(125), other.normalized(125));
        let (a, b) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
        let b_significand = shift_right_sticky(b.significand, (a.exponent - b.exponent) as u32);
        if a.negative == b.negative {
            return Self { significand: a.significand + b_significand, ..a };
        }
        let (negative, significand) = if a.significand >= b_significand {
            (a.negative, a.significand - b_significand)
        } else {
            (b.negative, b_significand - a.significand)
        };
        let negative = if significand == 0 { rounding == Rounding::Down } else { negative };
        Self { negative, significand, exponent: a.exponent }
    }
}

fn shift_right_sticky(significand: u128, shift: u32) -> u128 {
    if shift == 0 {
        significand
    } else if shift < 128 {
        significand >> shift | u128::from(significand << (128 - shift) != 0)
    } else {
        u128::from(significand != 0)
    }
}

/// Returns a + b, or `None` for NaN.
pub(super) fn add(layout: Layout, a: u64, b: u64, rounding: Rounding) -> Option<u64> {
    sum(layout, layout.decode(a), layout.decode(b), rounding)
}

/// Returns a × b, or `None` for NaN.
pub(super) fn mul(layout: Layout, a: u64, b: u64, rounding: Rounding) -> Option<u64> {
    match product(layout.decode(a), layout.decode(b)) {
        Value::Nan => None,
        Value::Infinite { negative } => Some(infinity(layout, negative)),
        Value::Finite(number) => Some(layout.encode(number, rounding)),
    }
}

/// Returns a × b + c, or `None` for NaN.
pub(super) fn fma(layout: Layout, a: u64, b: u64, c: u64, rounding: Rounding) -> Option<u64> {
    sum(layout, product(layout.decode(a), layout.decode(b)), layout.decode(c), rounding)
}

/// Returns a / b, or `None` for NaN.
pub(super) fn div(layout: Layout, a: u64, b: u64, rounding: Rounding) -> Option<u64> {
    match (layout.decode(a), layout.decode(b)) {
        (Value::Nan, _) | (_, Value::Nan) => None,
        (Value::Infinite { .. }, Value::Infinite { .. }) => None,
        (Value::Infinite { negative }, Value::Finite(b)) => {
            Some(infinity(layout, negative != b.negative))
        }
        (Value::Finite(a), Value::Infinite { negative }) => Some(
            layout
                .encode(Number { significand: 0, negative: a.negative != negative, ..a }, rounding),
        ),
        (Value::Finite(a), Value::Finite(b)) => {
            let negative = a.negative != b.negative;
            if b.significand == 0 {
                return (a.significand != 0).then(|| infinity(layout, negative));
            }
            // The quotient of 127 and 53 bits has at least 74.
            let a = a.normalized(126);
            let (quotient, rest) = (a.significand / b.significand, a.significand % b.significand);
            let number = Number {
                negative,
                exponent: a.exponent - b.exponent,
                significand: quotient | u128::from(rest != 0),
            };
            Some(layout.encode(number, rounding))
        }
    }
}

/// Returns the square root of a, or `None` for NaN.
pub(super) fn sqrt(layout: Layout, a: u64, rounding: Rounding) -> Option<u64> {
    match layout.decode(a) {
        Value::Nan | Value::Infinite { negative: true } => None,
        Value::Infinite { negative: false } => Some(layout.infinity()),
        Value::Finite(a) if a.significand == 0 => Some(layout.encode(a, rounding)),
        Value::Finite(a) if a.negative => None,
        Value::Finite(a) => {
            // The root of 125 or 126 bits has 63. Its exponent is half of an even one.
            let mut a = a.normalized(125);
            if a.exponent % 2 != 0 {
                a = a.normalized(124);
            }
            let root = a.significand.isqrt();
            let number = Number {
                negative: false,
                exponent: a.exponent / 2,
                significand: root << 1 | u128::from(root * root != a.significand),
            };
            Some(layout.encode(Number { exponent: number.exponent - 1, ..number }, rounding))
        }
    }
}

fn product(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(a.product(b)),
        (Value::Infinite { negative: a }, Value::Infinite { negative: b }) => {
            Value::Infinite { negative: a != b }
        }
        (Value::Infinite { negative }, Value::Finite(number))
        | (Value::Finite(number), Value::Infinite { negative }) => {
            if number.significand == 0 {
                Value::Nan
            } else {
                Value::Infinite { negative: negative != number.negative }
            }
        }
    }
}

fn sum(layout: Layout, a: Value, b: Value, rounding: Rounding) -> Option<u64> {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => None,
        (Value::Infinite { negative: a }, Value::Infinite { negative: b }) => {
            (a == b).then(|| infinity(layout, a))
        }
        (Value::Infinite { negative }, _) | (_, Value::Infinite { negative }) => {
            Some(infinity(layout, negative))
        }
        (Value::Finite(a), Value::Finite(b)) => Some(layout.encode(a.sum(b, rounding), rounding)),
    }
}

fn infinity(layout: Layout, negative: bool) -> u64 {
    layout.infinity() | if negative { layout.sign() } else { 0 }
}
