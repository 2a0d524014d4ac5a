//! Atomic operations.

use super::access::{Context, Place, after};
use super::fault::Raise;
use super::registers::{LANES, Slot};
use super::warp::{Warp, lanes_of};
use crate::device::{Access, Region};
use crate::number::{Mode, bf16, f16, f32 as single, f64 as double, integer, packed2};
use crate::program::{Atomic, AtomicFunction, AtomicWide, Float, Int};
use std::sync::{Mutex, PoisonError};

impl Warp {
    pub(super) fn atomic(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        atomic: &Atomic,
    ) -> Result<(), Raise> {
        let Atomic { address, function, size, d, value, new, .. } = *atomic;
        let addresses = self.addresses(&address);
        let of = |registers: &super::registers::Registers, slot: u32| -> [u64; LANES] {
            match size {
                8 => registers.wide[slot as usize],
                _ => registers.narrow[slot as usize].map(u64::from),
            }
        };
        let values = of(&self.registers, value);
        let new = new.map(|new| of(&self.registers, new));
        let mut olds = [0u64; LANES];
        for lane in lanes_of(mask) {
            let place = (address.space, addresses[lane]);
            let place = self.place(cx, lane, place, u64::from(size), Access::Atomic)?;
            let new = new.map_or(0, |new| new[lane]);
            olds[lane] = self.update(cx, lane, place, size, |old, is_global| {
                apply(function, old, values[lane], new, is_global)
            })?;
        }
        if let Some(watch) = &mut cx.watch {
            let is_changed = |lane: &usize| {
                function != AtomicFunction::CompareAndSwap || olds[*lane] == values[*lane]
            };
            let changed = lanes_of(mask).filter(is_changed).fold(0, |all, lane| all | 1 << lane);
            watch.atomic(self, (cx.rank, cx.shared), (mask, changed), atomic);
        }
        if let Some(d) = d {
            match size {
                8 => self.registers.set(mask, d, |lane| olds[lane]),
                _ => self.registers.set(mask, d, |lane| olds[lane] as u32),
            }
        }
        Ok(())
    }

    /// Replaces the value at a place by a function of it, and returns the old one. The function is told whether the
    /// place is in global memory.
    pub(super) fn update(
        &mut self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        place: Place,
        size: u32,
        f: impl Fn(u64, bool) -> u64,
    ) -> Result<u64, Raise> {
        let Place::Global(address) = place else {
            let old = self.read(cx, lane, place, size)?;
            self.write(cx, lane, place, size, f(old, false))?;
            return Ok(old);
        };
        let region = self.region(cx, lane, address, u64::from(size), Access::Atomic)?;
        Ok(update_word(region, address, size, |old| f(old, true)))
    }

    /// Exchanges 128 bits, or compares and exchanges them.
    pub(super) fn atomic_wide(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        atomic: &AtomicWide,
    ) -> Result<(), Raise> {
        /// Two words are not exchanged at once, so one thread of the host does it at a time.
        static ONE: Mutex<()> = Mutex::new(());
        let AtomicWide { address, d, compare, value, .. } = *atomic;
        let addresses = self.addresses(&address);
        let of = |warp: &Self, slots: [Slot; 2], lane: usize| {
            slots.map(|slot| warp.registers.wide[slot as usize][lane])
        };
        for lane in lanes_of(mask) {
            let place = (address.space, addresses[lane]);
            let low = self.place(cx, lane, place, 16, Access::Atomic)?;
            let high = after(low, 8);
            let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
            let old = [self.read(cx, lane, low, 8)?, self.read(cx, lane, high, 8)?];
            if compare.is_none_or(|compare| of(self, compare, lane) == old) {
                let new = of(self, value, lane);
                self.write(cx, lane, low, 8, new[0])?;
                self.write(cx, lane, high, 8, new[1])?;
            }
            for (slot, old) in d.iter().flatten().zip(old) {
                self.registers.wide[*slot as usize][lane] = old;
            }
        }
        Ok(())
    }
}

/// Replaces the value at an address of a region by a function of it, and returns the old one.
pub(super) fn update_word(
    region: &Region<'_>,
    address: u64,
    size: u32,
    f: impl Fn(u64) -> u64,
) -> u64 {
    let shift = 8 * (address & 7);
    let field = u64::MAX >> (64 - 8 * size);
    let of = |word: u64| word >> shift & field;
    of(region.update(address, |old| old & !(field << shift) | (f(of(old)) & field) << shift))
}

/// Returns the new value. Additions of f32 flush denormals in global memory, and not in shared memory.
pub(super) fn apply(
    function: AtomicFunction,
    old: u64,
    value: u64,
    new: u64,
    is_global: bool,
) -> u64 {
    let (a, b) = (old as u32, value as u32);
    let halves = (old as u16, value as u16);
    match function {
        AtomicFunction::And => old & value,
        AtomicFunction::Or => old | value,
        AtomicFunction::Xor => old ^ value,
        AtomicFunction::Exchange => value,
        AtomicFunction::CompareAndSwap => {
            if old == value {
                new
            } else {
                old
            }
        }
        AtomicFunction::Add(_) => old.wrapping_add(value),
        AtomicFunction::Inc => u64::from(integer::increment(a, b)),
        AtomicFunction::Dec => u64::from(integer::decrement(a, b)),
        AtomicFunction::Min(ty) => extremum(ty, old, value, false),
        AtomicFunction::Max(ty) => extremum(ty, old, value, true),
        // In global memory, a NaN keeps its bits.
        AtomicFunction::AddFloat(Float::F64) => match [value, old].map(f64::from_bits) {
            [value, _] if is_global && value.is_nan() => value.to_bits(),
            [_, old] if is_global && old.is_nan() => old.to_bits(),
            _ => double::add(value, old, Mode::EXACT),
        },
        AtomicFunction::AddFloat(ty) => match ty {
            Float::F32 => {
                let mode = Mode { flush: is_global, ..Mode::EXACT };
                u64::from(single::add(a, b, mode))
            }
            Float::F16 => u64::from(f16::add(halves.0, halves.1, Mode::EXACT)),
            Float::Bf16 => u64::from(bf16::add(halves.0, halves.1, Mode::EXACT)),
            Float::F16x2 => u64::from(packed2(a, b, |a, b| f16::add(a, b, Mode::EXACT))),
            _ => u64::from(packed2(a, b, |a, b| bf16::add(a, b, Mode::EXACT))),
        },
        AtomicFunction::MinFloat(ty) => float_extremum(ty, old, value, false),
        AtomicFunction::MaxFloat(ty) => float_extremum(ty, old, value, true),
    }
}

fn extremum(ty: Int, a: u64, b: u64, is_max: bool) -> u64 {
    let is_less = match ty {
        Int::S64 => (a as i64) < b as i64,
        Int::S32 => (a as i32) < b as i32,
        _ => a < b,
    };
    if is_less == is_max { b } else { a }
}

fn float_extremum(ty: Float, a: u64, b: u64, is_max: bool) -> u64 {
    let half = |a: u16, b: u16| match is_max {
        true => f16::max(a, b, false, false, false),
        false => f16::min(a, b, false, false, false),
    };
    let brain = |a: u16, b: u16| match is_max {
        true => bf16::max(a, b, false, false, false),
        false => bf16::min(a, b, false, false, false),
    };
    match ty {
        Float::F16 => u64::from(half(a as u16, b as u16)),
        Float::Bf16 => u64::from(brain(a as u16, b as u16)),
        Float::F16x2 => u64::from(packed2(a as u32, b as u32, half)),
        _ => u64::from(packed2(a as u32, b as u32, brain)),
    }
}
