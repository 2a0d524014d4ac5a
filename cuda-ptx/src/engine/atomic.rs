//! Atomic operations.

use super::access::{Context, Place};
use super::fault::Raise;
use super::registers::LANES;
use super::warp::{Warp, lanes_of};
use crate::device::Access;
use crate::number::{Mode, bf16, f16, f32 as single, f64 as double, integer, packed2};
use crate::program::{Atomic, AtomicFunction, Float, Int};
use std::sync::atomic::Ordering;

impl Warp {
    pub(super) fn atomic(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        atomic: &Atomic,
    ) -> Result<(), Raise> {
        let Atomic { address, function, size, d, value, new } = *atomic;
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
            olds[lane] = match place {
                Place::Global(address) => {
                    let len = u64::from(size);
                    let region = Self::region(cx, lane, address, len, Access::Atomic)?;
                    let Some(word) = region.atomic(address) else { continue };
                    let shift = 8 * (address & 7);
                    let field = u64::MAX >> (64 - 8 * size);
                    let mut old = word.load(Ordering::Relaxed);
                    loop {
                        let its = old >> shift & field;
                        let next = apply(function, its, values[lane], new, true) & field;
                        let next = old & !(field << shift) | next << shift;
                        let order = Ordering::Relaxed;
                        match word.compare_exchange_weak(old, next, order, order) {
                            Ok(_) => break its,
                            Err(other) => old = other,
                        }
                    }
                }
                place => {
                    let old = self.read(cx, lane, place, size)?;
                    let next = apply(function, old, values[lane], new, false);
                    self.write(cx, lane, place, size, next)?;
                    old
                }
            };
        }
        if let Some(d) = d {
            match size {
                8 => self.registers.set(mask, d, |lane| olds[lane]),
                _ => self.registers.set(mask, d, |lane| olds[lane] as u32),
            }
        }
        Ok(())
    }
}

/// Returns the new value. Additions of f32 flush denormals in global memory, and not in shared memory.
fn apply(function: AtomicFunction, old: u64, value: u64, new: u64, is_global: bool) -> u64 {
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
        AtomicFunction::AddFloat(Float::F64, _) => {
            // A NaN that is added keeps its bits.
            if f64::from_bits(value).is_nan() {
                value
            } else {
                double::add(old, value, Mode::EXACT)
            }
        }
        AtomicFunction::AddFloat(ty, _) => match ty {
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
        Int::S64 => a.cast_signed() < b.cast_signed(),
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
