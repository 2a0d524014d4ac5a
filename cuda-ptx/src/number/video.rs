//! The video instructions: scalar (`vadd`) and packed (`vadd2`, `vadd4`).
//!
//! Operands are extended and the result is exact before it is saturated or truncated.

use super::Comparison;
use super::integer::Overflow;

/// The part of a register that an operand names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// The register.
    #[default]
    Word,
    /// One of four bytes: `.b0` to `.b3`.
    Byte(u8),
    /// One of two halfwords: `.h0`, `.h1`.
    Half(u8),
}

impl Part {
    /// Returns the position of the lowest bit and the width.
    #[inline(always)]
    fn bits(self) -> (u32, u32) {
        match self {
            Self::Word => (0, 32),
            Self::Byte(index) => (u32::from(index & 3) * 8, 8),
            Self::Half(index) => (u32::from(index & 1) * 16, 16),
        }
    }
}

/// An operand's part and its extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// The part of the register.
    pub part: Part,
    /// Whether the part is extended with its sign.
    pub signed: bool,
}

impl Source {
    /// Returns the value of an operand.
    #[inline(always)]
    pub fn value(self, register: u32) -> i64 {
        let (position, width) = self.part.bits();
        extended(register >> position, width, self.signed)
    }
}

/// The operation of a scalar or packed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `vadd`.
    Add,
    /// `vsub`.
    Sub,
    /// `vabsdiff`.
    AbsDiff,
    /// `vmin`.
    Min,
    /// `vmax`.
    Max,
    /// `vavrg2`, `vavrg4`: the mean, rounded to nearest, ties up for sums that are not negative.
    Average,
    /// `vshl`.
    ShiftLeft(Overflow),
    /// `vshr`.
    ShiftRight(Overflow),
    /// `vset`: 1 if the comparison holds, otherwise 0.
    Set(Comparison),
}

impl Operation {
    #[inline(always)]
    fn apply(self, a: i64, b: i64) -> i128 {
        let (a, b) = (i128::from(a), i128::from(b));
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::AbsDiff => (a - b).abs(),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Average => (a + b + i128::from(a + b >= 0)) >> 1,
            Self::ShiftLeft(overflow) => a << shift(b, overflow),
            Self::ShiftRight(overflow) => a >> shift(b, overflow),
            Self::Set(comparison) => comparison.holds(a, b).into(),
        }
    }
}

#[inline(always)]
fn shift(b: i128, overflow: Overflow) -> u32 {
    match overflow {
        Overflow::Clamp => (b as u32).min(32),
        Overflow::Wrap => b as u32 & 31,
    }
}

/// The second operation of a scalar instruction, with its third operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Second {
    /// None.
    #[default]
    None,
    /// Adds the third operand: `.add`.
    Add,
    /// Takes the lesser one: `.min`.
    Min,
    /// Takes the greater one: `.max`.
    Max,
    /// Inserts the result into a part of the third operand.
    Merge(Part),
}

/// A scalar video instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// The operation.
    pub operation: Operation,
    /// The first operand.
    pub a: Source,
    /// The second operand.
    pub b: Source,
    /// Whether the result is signed.
    pub signed: bool,
    /// Whether the result is clamped to the range of the result, or of the part it is merged into. An
    /// unsigned result of 32 bits is clamped only at zero.
    pub saturate: bool,
    /// The second operation.
    pub second: Second,
}

impl Scalar {
    /// Runs the instruction.
    #[inline]
    pub fn run(self, a: u32, b: u32, c: u32) -> u32 {
        let result = self.operation.apply(self.a.value(a), self.b.value(b));
        let (position, width) = match self.second {
            Second::Merge(part) => part.bits(),
            _ => (0, 32),
        };
        let result = match (self.saturate, self.signed, self.second) {
            (false, _, _) => result,
            // GPUs clamp an unsigned result only at zero, against the manual.
            (true, false, Second::None | Second::Add | Second::Min | Second::Max) => result.max(0),
            (true, signed, _) => clamped(result, width, signed),
        };
        let result = result as u32;
        let lesser = if self.signed { (result as i32) < (c as i32) } else { result < c };
        match self.second {
            Second::None => result,
            Second::Add => result.wrapping_add(c),
            Second::Min => {
                if lesser {
                    result
                } else {
                    c
                }
            }
            Second::Max => {
                if lesser {
                    c
                } else {
                    result
                }
            }
            Second::Merge(_) => inserted(c, result, position, width),
        }
    }
}

/// The modifiers of `vmad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mad {
    /// The first factor.
    pub a: Source,
    /// The second factor.
    pub b: Source,
    /// Whether the product is negated.
    pub negate_product: bool,
    /// Whether the addend is negated.
    pub negate_addend: bool,
    /// Whether one is added: `.po`.
    pub plus_one: bool,
    /// The shift to the right: 0, 7 or 15.
    pub shift: u8,
    /// Whether the addend and the result are signed.
    pub signed: bool,
    /// Whether the result is clamped.
    pub saturate: bool,
}

impl Mad {
    /// Runs the instruction.
    #[inline]
    pub fn run(self, a: u32, b: u32, c: u32) -> u32 {
        let product = i128::from(self.a.value(a)) * i128::from(self.b.value(b));
        let addend = i128::from(extended(c, 32, self.signed));
        let product = if self.negate_product { -product } else { product };
        let addend = if self.negate_addend { -addend } else { addend };
        let sum = (product + addend + i128::from(self.plus_one)) >> (self.shift & 15);
        (if self.saturate { clamped(sum, 32, self.signed) } else { sum }) as u32
    }
}

/// A packed video instruction on two halfwords or four bytes. Lanes are counted from the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed<const LANES: usize> {
    /// The operation. Shifts have no packed form.
    pub operation: Operation,
    /// For each lane, the lane of the pair b, a that is the first operand. Those of a come first.
    pub a: [u8; LANES],
    /// For each lane, the lane of the pair b, a that is the second operand.
    pub b: [u8; LANES],
    /// Whether the lanes of the first operand are signed.
    pub a_signed: bool,
    /// Whether the lanes of the second operand are signed.
    pub b_signed: bool,
    /// Whether the lanes of the result are signed.
    pub signed: bool,
    /// Whether the lanes of the result are clamped.
    pub saturate: bool,
    /// Whether the lanes are added to the third operand: `.add`.
    pub add: bool,
    /// The lanes that are written or added. Others keep those of the third operand.
    pub mask: [bool; LANES],
}

impl<const LANES: usize> Packed<LANES> {
    /// Runs the instruction.
    #[inline]
    pub fn run(&self, a: u32, b: u32, c: u32) -> u32 {
        let width = if LANES == 2 { 16 } else { 8 };
        let pair = u64::from(a) | u64::from(b) << 32;
        let lane = |index: u8, signed| {
            let position = u32::from(index) * width % 64;
            extended((pair >> position) as u32, width, signed)
        };
        let mut result = c;
        for (i, ((&a, &b), _)) in
            self.a.iter().zip(&self.b).zip(self.mask).enumerate().filter(|(_, (_, mask))| *mask)
        {
            let value = self.operation.apply(lane(a, self.a_signed), lane(b, self.b_signed));
            let value = if self.saturate { clamped(value, width, self.signed) } else { value };
            result = if self.add {
                result.wrapping_add(value as u32)
            } else {
                inserted(result, value as u32, i as u32 * width % 32, width)
            };
        }
        result
    }
}

/// Extends the low `width` bits.
#[inline(always)]
fn extended(bits: u32, width: u32, signed: bool) -> i64 {
    let unused = 32 - width;
    if signed {
        i64::from((bits << unused) as i32 >> unused)
    } else {
        i64::from(bits << unused >> unused)
    }
}

/// Clamps a value to the range of an integer.
#[inline(always)]
fn clamped(value: i128, width: u32, signed: bool) -> i128 {
    if signed {
        value.clamp(-(1 << (width - 1)), (1 << (width - 1)) - 1)
    } else {
        value.clamp(0, (1 << width) - 1)
    }
}

/// Replaces `width` bits of a register.
#[inline(always)]
fn inserted(register: u32, bits: u32, position: u32, width: u32) -> u32 {
    let mask = (u32::MAX >> (32 - width)) << position;
    (register & !mask) | ((bits << position) & mask)
}
