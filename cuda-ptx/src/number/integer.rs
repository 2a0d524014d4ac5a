//! The integer instructions that are not an operator of Rust.
//!
//! Functions on several widths are generic over Rust's integers; the others take bit patterns.

/// An integer type of PTX.
pub trait Integer: Copy + Ord {
    /// The number of bits.
    const BITS: u32;
    /// The value with all bits set.
    const ALL: Self;
    /// Whether the type is signed.
    const SIGNED: bool;
    /// Returns the low bits of a value.
    fn from_wide(value: i128) -> Self;
    /// Returns the value.
    fn wide(self) -> i128;
    /// Returns a / b. `b` must not be 0.
    fn quotient(self, b: Self) -> Self;
    /// Returns a − (a / b) b. `b` must not be 0.
    fn remainder(self, b: Self) -> Self;
    /// Returns a + b, clamped to the range of the type.
    fn sum_clamped(self, b: Self) -> Self;
    /// Returns a − b, clamped to the range of the type.
    fn difference_clamped(self, b: Self) -> Self;
    /// Returns the bits as an unsigned number.
    fn pattern(self) -> u64;
    /// Returns the type's value of the low bits.
    fn from_pattern(bits: u64) -> Self;
}

macro_rules! integers {
    ($($type:ident $unsigned:ident),*) => {
        $(impl Integer for $type {
            const BITS: u32 = Self::BITS;
            const ALL: Self = !0;
            #[allow(unused_comparisons)]
            const SIGNED: bool = Self::MIN < 0;
            #[inline(always)]
            fn from_wide(value: i128) -> Self {
                value as Self
            }
            #[inline(always)]
            fn wide(self) -> i128 {
                self as i128
            }
            #[inline(always)]
            fn quotient(self, b: Self) -> Self {
                self.checked_div(b).unwrap_or(self)
            }
            #[inline(always)]
            fn remainder(self, b: Self) -> Self {
                self.checked_rem(b).unwrap_or(0)
            }
            #[inline(always)]
            fn sum_clamped(self, b: Self) -> Self {
                self.saturating_add(b)
            }
            #[inline(always)]
            fn difference_clamped(self, b: Self) -> Self {
                self.saturating_sub(b)
            }
            #[inline(always)]
            fn pattern(self) -> u64 {
                u64::from(self as $unsigned)
            }
            #[inline(always)]
            fn from_pattern(bits: u64) -> Self {
                bits as Self
            }
        })*
    };
}
integers!(i8 u8, i16 u16, i32 u32, i64 u64, u8 u8, u16 u16, u32 u32, u64 u64);

/// Returns a / b. The quotient by 0 has all bits set; the least number divided by −1 is itself.
#[inline(always)]
pub fn div<T: Integer>(a: T, b: T) -> T {
    if b.pattern() == 0 { T::ALL } else { a.quotient(b) }
}

/// Returns the remainder of a / b with the sign of a. The remainder by 0 has all bits set.
#[inline(always)]
pub fn rem<T: Integer>(a: T, b: T) -> T {
    if b.pattern() == 0 { T::ALL } else { a.remainder(b) }
}

/// Returns the upper half of a × b.
#[inline(always)]
pub fn mul_hi<T: Integer>(a: T, b: T) -> T {
    // The product of two `u64` has 128 bits; as an `i128` it wraps to the same bits.
    T::from_wide(a.wide().wrapping_mul(b.wide()) >> T::BITS)
}

/// Returns a + b, clamped to the range of the type (`add.sat.s32`).
#[inline(always)]
pub fn add_sat<T: Integer>(a: T, b: T) -> T {
    a.sum_clamped(b)
}

/// Returns a − b, clamped to the range of the type (`sub.sat.s32`).
#[inline(always)]
pub fn sub_sat<T: Integer>(a: T, b: T) -> T {
    a.difference_clamped(b)
}

/// Returns the upper half of a × b, plus c, clamped to the range of the type (`mad.hi.sat.s32`).
#[inline(always)]
pub fn mad_hi_sat<T: Integer>(a: T, b: T, c: T) -> T {
    mul_hi(a, b).sum_clamped(c)
}

/// Returns c + |a − b|.
#[inline(always)]
pub fn sad<T: Integer>(a: T, b: T, c: T) -> T {
    T::from_wide(c.wide() + (a.wide() - b.wide()).abs())
}

/// Shifts to the left. A shift by the width or more gives 0.
#[inline(always)]
pub fn shl<T: Integer>(a: T, shift: u32) -> T {
    if shift < T::BITS { T::from_pattern(a.pattern() << shift) } else { T::from_pattern(0) }
}

/// Shifts to the right. A shift by the width or more gives 0, or the sign of a signed type.
#[inline(always)]
pub fn shr<T: Integer>(a: T, shift: u32) -> T {
    if T::SIGNED {
        // The value of a signed type fits 64 bits.
        T::from_pattern(((a.wide() as i64) >> shift.min(63)) as u64)
    } else if shift < T::BITS {
        T::from_pattern(a.pattern() >> shift)
    } else {
        T::from_pattern(0)
    }
}

/// Returns a + b + `carry` and whether the sum wrapped.
#[inline(always)]
pub fn add_carry<T: Integer>(a: T, b: T, carry: bool) -> (T, bool) {
    let sum = u128::from(a.pattern()) + u128::from(b.pattern()) + u128::from(carry);
    (T::from_pattern(sum as u64), sum >> T::BITS != 0)
}

/// Returns a − b − (1 − `carry`) and the new carry, which is set if there was no borrow.
#[inline(always)]
pub fn sub_carry<T: Integer>(a: T, b: T, carry: bool) -> (T, bool) {
    add_carry(a, T::from_pattern(!b.pattern()), carry)
}

/// Increments for `atom.inc`: an old value at the limit or above becomes 0.
#[inline(always)]
pub fn increment(old: u32, limit: u32) -> u32 {
    if old >= limit { 0 } else { old + 1 }
}

/// Decrements for `atom.dec`: an old value of 0 or above the limit becomes the limit.
#[inline(always)]
pub fn decrement(old: u32, limit: u32) -> u32 {
    if old == 0 || old > limit { limit } else { old - 1 }
}

#[inline(always)]
fn low24(a: u32, signed: bool) -> i64 {
    if signed { i64::from((a << 8) as i32 >> 8) } else { i64::from(a & 0x00ff_ffff) }
}

/// Returns the product of the low 24 bits, its bits 0 to 31, or 16 to 47 with `high`.
#[inline(always)]
pub fn mul24(a: u32, b: u32, signed: bool, high: bool) -> u32 {
    let product = low24(a, signed) * low24(b, signed);
    (if high { product >> 16 } else { product }) as u32
}

/// Returns [`mul24`] plus c.
#[inline(always)]
pub fn mad24(a: u32, b: u32, c: u32, signed: bool, high: bool) -> u32 {
    mul24(a, b, signed, high).wrapping_add(c)
}

/// Returns the signed [`mul24`] with `high` plus c, clamped (`mad24.hi.sat.s32`).
#[inline(always)]
pub fn mad24_hi_sat(a: u32, b: u32, c: u32) -> u32 {
    (mul24(a, b, true, true) as i32).saturating_add(c as i32) as u32
}

/// Extracts `length` bits from `position`. Missing bits are 0, or the sign of the field in a signed
/// type.
///
/// Only the low 8 bits of position and length count.
#[inline(always)]
pub fn bfe<T: Integer>(a: T, position: u32, length: u32) -> T {
    let (position, length) = (position & 0xff, length & 0xff);
    let bits = a.pattern();
    let mask = if length < 64 { (1u64 << length) - 1 } else { !0 };
    let field = bits.checked_shr(position).unwrap_or(0) & mask;
    if !T::SIGNED || length == 0 {
        return T::from_pattern(field);
    }
    let sign = bits >> (position + length - 1).min(T::BITS - 1) & 1 != 0;
    let present = length.min(T::BITS.saturating_sub(position));
    let extension = if present < 64 { !0 << present } else { 0 };
    T::from_pattern(if sign { field | extension } else { field })
}

/// Inserts the low `length` bits of a into b from `position`.
///
/// Only the low 8 bits of position and length count.
#[inline(always)]
pub fn bfi<T: Integer>(a: T, b: T, position: u32, length: u32) -> T {
    let (position, length) = (position & 0xff, length & 0xff);
    let mask = if length < 64 { (1u64 << length) - 1 } else { !0 };
    let mask = mask.checked_shl(position).unwrap_or(0);
    let field = a.pattern().checked_shl(position).unwrap_or(0);
    T::from_pattern((b.pattern() & !mask) | (field & mask))
}

/// Returns the position of the highest bit that differs from the sign (signed) or from 0
/// (unsigned), or `ffffffff` if all bits are equal to it. With `shift_amount`, returns the shift
/// that moves it to the highest position.
#[inline(always)]
pub fn bfind<T: Integer>(a: T, shift_amount: bool) -> u32 {
    let bits = if T::SIGNED && a.wide() < 0 { !a.wide() as u64 } else { a.pattern() };
    if bits == 0 {
        return u32::MAX;
    }
    let position = 63 - bits.leading_zeros();
    if shift_amount { T::BITS - 1 - position } else { position }
}

/// How a mode treats positions, widths and shifts of 32 and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// They count as 32.
    Clamp,
    /// Their low 5 bits count.
    Wrap,
}

/// Returns a mask of `width` bits from `position`.
#[inline(always)]
pub fn bmsk(position: u32, width: u32, overflow: Overflow) -> u32 {
    let (position, width) = match overflow {
        Overflow::Clamp => (position.min(32), width.min(32)),
        Overflow::Wrap => (position & 31, width & 31),
    };
    ((((1u64 << width) - 1) << position) & 0xffff_ffff) as u32
}

/// Extends the low `width` bits with zeros, or with their sign.
#[inline(always)]
pub fn szext(a: u32, width: u32, overflow: Overflow, signed: bool) -> u32 {
    let width = match overflow {
        Overflow::Clamp => width.min(32),
        Overflow::Wrap => width & 31,
    };
    if width == 0 {
        return 0;
    }
    let unused = 32 - width;
    if signed { ((a << unused) as i32 >> unused) as u32 } else { a << unused >> unused }
}

/// Shifts the pair `high`, `low` to the left and returns its upper word (`shf.l`).
#[inline(always)]
pub fn shf_l(low: u32, high: u32, shift: u32, overflow: Overflow) -> u32 {
    ((pair(low, high) << amount(shift, overflow)) >> 32) as u32
}

/// Shifts the pair `high`, `low` to the right and returns its lower word (`shf.r`).
#[inline(always)]
pub fn shf_r(low: u32, high: u32, shift: u32, overflow: Overflow) -> u32 {
    (pair(low, high) >> amount(shift, overflow)) as u32
}

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline(always)]
fn amount(shift: u32, overflow: Overflow) -> u32 {
    match overflow {
        Overflow::Clamp => shift.min(32),
        Overflow::Wrap => shift & 31,
    }
}

/// Applies the Boolean function with the truth table `table` to each bit.
#[inline(always)]
pub fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        let term = if row & 4 != 0 { a } else { !a }
            & if row & 2 != 0 { b } else { !b }
            & if row & 1 != 0 { c } else { !c };
        result |= if table >> row & 1 != 0 { term } else { 0 };
    }
    result
}

/// How `prmt` selects bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permutation {
    /// Each nibble of the selector names a byte; its highest bit replicates that byte's sign.
    Index,
    /// Four bytes in ascending order: `.f4e`.
    Forward,
    /// Four bytes in descending order: `.b4e`.
    Backward,
    /// One byte four times: `.rc8`.
    Replicate8,
    /// Clamps to the left edge: `.ecl`.
    ClampLeft,
    /// Clamps to the right edge: `.ecr`.
    ClampRight,
    /// One halfword twice: `.rc16`.
    Replicate16,
}

/// Selects four bytes from the pair `b`, `a`.
#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32, permutation: Permutation) -> u32 {
    let bytes = pair(a, b);
    let byte = |index: u32| (bytes >> (8 * (index & 7))) as u8;
    let c = selector & 3;
    let from = |f: &dyn Fn(u32) -> u32| u32::from_le_bytes([0, 1, 2, 3].map(|i| byte(f(i))));
    match permutation {
        Permutation::Index => {
            let mut result = 0;
            for i in 0..4 {
                let nibble = selector >> (4 * i);
                let selected = byte(nibble);
                let sign = ((selected as i8) >> 7) as u8;
                let chosen = if nibble & 8 != 0 { sign } else { selected };
                result |= u32::from(chosen) << (8 * i);
            }
            result
        }
        Permutation::Forward => from(&|i| c + i),
        Permutation::Backward => from(&|i| c.wrapping_sub(i)),
        Permutation::Replicate8 => from(&|_| c),
        Permutation::ClampLeft => from(&|i| i.max(c)),
        Permutation::ClampRight => from(&|i| i.min(c)),
        Permutation::Replicate16 => from(&|i| (c & 1) * 2 + (i & 1)),
    }
}

/// Returns the position of the n-th set bit of `mask` from `base`, or `ffffffff`.
///
/// A positive `offset` counts upward, a negative one downward; 0 tests the bit at `base`.
#[inline]
pub fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == i32::MIN {
        return 0;
    }
    let mut left = offset.unsigned_abs().max(1);
    let mut position = base;
    while position < 32 {
        if mask >> position & 1 != 0 {
            left -= 1;
            if left == 0 {
                return position;
            }
        }
        position = match offset {
            0 => break,
            1.. => position + 1,
            _ => position.wrapping_sub(1),
        };
    }
    u32::MAX
}

#[inline(always)]
fn extended8(byte: u8, signed: bool) -> i32 {
    if signed { i32::from(byte as i8) } else { i32::from(byte) }
}

#[inline(always)]
fn extended16(half: u16, signed: bool) -> i32 {
    if signed { i32::from(half as i16) } else { i32::from(half) }
}

/// Returns c plus the dot product of four bytes.
#[inline(always)]
pub fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let mut sum = c as i32;
    for (a, b) in a.into_iter().zip(b) {
        sum = sum.wrapping_add(extended8(a, a_signed) * extended8(b, b_signed));
    }
    sum as u32
}

/// Returns c plus the dot product of the halfwords of a and two bytes of b, the upper ones with
/// `high`.
#[inline(always)]
pub fn dp2a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool, high: bool) -> u32 {
    let b = if high { b >> 16 } else { b };
    let first = extended16(a as u16, a_signed) * extended8(b as u8, b_signed);
    let second = extended16((a >> 16) as u16, a_signed) * extended8((b >> 8) as u8, b_signed);
    c.wrapping_add(first as u32).wrapping_add(second as u32)
}
