//! Registers that hold a value for each lane of a warp.

pub(super) use crate::program::Slot;

/// The number of lanes of a warp.
pub(crate) const LANES: usize = 32;
/// The mask of all lanes.
pub(crate) const ALL: u32 = u32::MAX;

/// The registers of a warp, in three banks: values of at most 32 bits, values of 64 bits, and predicates, with a bit
/// for each lane. Constants and special registers are registers that no instruction writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    pub(crate) narrow: Vec<[u32; LANES]>,
    pub(crate) wide: Vec<[u64; LANES]>,
    pub(crate) predicates: Vec<u32>,
}

/// A type of the value of a lane.
pub(crate) trait Lane: Copy + Default {
    /// The word of the bank.
    type Word: Copy;
    fn bank(registers: &Registers) -> &[[Self::Word; LANES]];
    fn bank_mut(registers: &mut Registers) -> &mut [[Self::Word; LANES]];
    fn of(word: Self::Word) -> Self;
    /// Returns the word of a register with this value. Bits beyond the type are zero.
    fn word(self) -> Self::Word;
}

macro_rules! lanes {
    ($($ty:ty, $unsigned:ty, $word:ty, $bank:ident;)*) => {$(
        impl Lane for $ty {
            type Word = $word;
            #[inline(always)]
            fn bank(registers: &Registers) -> &[[$word; LANES]] {
                &registers.$bank
            }
            #[inline(always)]
            fn bank_mut(registers: &mut Registers) -> &mut [[$word; LANES]] {
                &mut registers.$bank
            }
            #[inline(always)]
            fn of(word: $word) -> Self {
                word as Self
            }
            #[inline(always)]
            fn word(self) -> $word {
                self as $unsigned as $word
            }
        }
    )*};
}

lanes! {
    u8, u8, u32, narrow;
    i8, u8, u32, narrow;
    u16, u16, u32, narrow;
    i16, u16, u32, narrow;
    u32, u32, u32, narrow;
    i32, u32, u32, narrow;
    u64, u64, u64, wide;
    i64, u64, u64, wide;
}

/// Calls `f` with each lane of a mask, in ascending order.
#[inline(always)]
pub(crate) fn each_lane(mask: u32, mut f: impl FnMut(usize)) {
    let mut rest = mask;
    while rest != 0 {
        f(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
}

impl Registers {
    #[inline(always)]
    pub(crate) fn get<T: Lane>(&self, slot: Slot) -> &[T::Word; LANES] {
        &T::bank(self)[slot as usize]
    }

    #[inline(always)]
    pub(crate) fn get_mut<T: Lane>(&mut self, slot: Slot) -> &mut [T::Word; LANES] {
        &mut T::bank_mut(self)[slot as usize]
    }

    /// Sets the lanes of a register in `mask`.
    #[inline(always)]
    pub(crate) fn set<T: Lane>(&mut self, mask: u32, d: Slot, f: impl Fn(usize) -> T) {
        let to = self.get_mut::<T>(d);
        if mask == ALL {
            // For each element of an iterator, Miri executes several calls, half of all that a kernel takes.
            let mut lane = 0;
            while lane < LANES {
                to[lane] = f(lane).word();
                lane += 1;
            }
        } else {
            each_lane(mask, |lane| to[lane] = f(lane).word());
        }
    }

    #[inline(always)]
    pub(crate) fn unary<A: Lane, D: Lane>(
        &mut self,
        mask: u32,
        d: Slot,
        a: Slot,
        f: impl Fn(A) -> D,
    ) {
        let a = *self.get::<A>(a);
        self.set(mask, d, |lane| f(A::of(a[lane])));
    }

    #[inline(always)]
    pub(crate) fn binary<A: Lane, B: Lane, D: Lane>(
        &mut self,
        mask: u32,
        d: Slot,
        [a, b]: [Slot; 2],
        f: impl Fn(A, B) -> D,
    ) {
        let (a, b) = (*self.get::<A>(a), *self.get::<B>(b));
        self.set(mask, d, |lane| f(A::of(a[lane]), B::of(b[lane])));
    }

    #[inline(always)]
    pub(crate) fn ternary<A: Lane, B: Lane, C: Lane, D: Lane>(
        &mut self,
        mask: u32,
        d: Slot,
        [a, b, c]: [Slot; 3],
        f: impl Fn(A, B, C) -> D,
    ) {
        let (a, b, c) = (*self.get::<A>(a), *self.get::<B>(b), *self.get::<C>(c));
        self.set(mask, d, |lane| f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane])));
    }

    /// Returns the lanes in which `f` is true.
    #[inline(always)]
    pub(crate) fn test<T: Lane>(&self, [a, b]: [Slot; 2], f: impl Fn(T, T) -> bool) -> u32 {
        let (a, b) = (self.get::<T>(a), self.get::<T>(b));
        let (mut found, mut lane) = (0, 0);
        while lane < LANES {
            found |= u32::from(f(T::of(a[lane]), T::of(b[lane]))) << lane;
            lane += 1;
        }
        found
    }

    /// Sets the lanes of a predicate in `mask`.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, mask: u32, d: Slot, lanes: u32) {
        let to = &mut self.predicates[d as usize];
        *to = *to & !mask | lanes & mask;
    }
}
