//! Operations at multicast addresses, on the memory of several devices.
//!
//! The manual does not say in which order `multimem.ld_reduce` combines values. Here it is the order of the devices, one
//! value after another, by the rules of `add`, `min`, `max`, `and`, `or` and `xor` on registers.

use super::access::{Context, Place, Writer, illegal, read_word, verb};
use super::atomic::{apply, update_word};
use super::fault::{FaultKind, Raise};
use super::warp::{Warp, lanes_of};
use super::watch::thread_of;
use crate::check::SiteId;
use crate::device::{Access, Region};
use crate::number::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::number::{Mode, f32 as single};
use crate::program::{AtomicFunction, Float, Multimem, MultimemFunction, Space};

impl MultimemFunction {
    pub(super) fn access(self) -> Access {
        match self {
            Self::LoadReduce { .. } => Access::Read,
            Self::Store => Access::Write,
            Self::Reduce(_) => Access::Atomic,
        }
    }
}

impl Warp {
    pub(super) fn multimem(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        its: &Multimem,
    ) -> Result<(), Raise> {
        let Multimem { address, function, size, .. } = *its;
        // A result may be in the register of the address.
        let addresses = self.addresses(&address);
        for lane in lanes_of(mask) {
            let regions = self.multicast(cx, lane, (address.space, addresses[lane]), its)?;
            if let Some(watch) = &mut cx.watch {
                let starts: Vec<u64> = regions.iter().map(|region| region.start).collect();
                watch.multimem(self, (cx.rank, cx.shared), (lane, &starts), its);
            }
            for (index, slot) in its.elements.iter().enumerate() {
                let slot = *slot as usize;
                let at = |region: &Region<'_>| region.start + index as u64 * u64::from(size);
                let value = match size {
                    8 => self.registers.wide[slot][lane],
                    _ => u64::from(self.registers.narrow[slot][lane]),
                };
                match function {
                    MultimemFunction::LoadReduce { function, is_single } => {
                        let values = regions.iter().map(|its| read_word(its, at(its), size));
                        let result = combine(function, is_single, values);
                        match size {
                            8 => self.registers.wide[slot][lane] = result,
                            _ => self.registers.narrow[slot][lane] = result as u32,
                        }
                    }
                    MultimemFunction::Store => {
                        for region in &regions {
                            let mut writer = Writer::default();
                            writer.write(region, at(region), size, value);
                            writer.flush();
                        }
                    }
                    MultimemFunction::Reduce(function) => {
                        for region in &regions {
                            update_word(region, at(region), size, |old| {
                                apply(function, old, value, 0, false)
                            });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the memory of each device that an operation of a lane reaches, after checks of the address.
    fn multicast<'d>(
        &self,
        cx: &Context<'_, 'd>,
        lane: usize,
        place: (Space, u64),
        its: &Multimem,
    ) -> Result<Vec<Region<'d>>, Raise> {
        let (len, access) = (u64::from(its.bytes()), its.function.access());
        let verb = verb(access);
        let Place::Global(address) = self.place(cx, lane, place, len, access)? else {
            let (_, address) = place;
            let text = format!("{verb} {len} bytes at {address:#x}, which is not in global memory");
            return Err(Raise::new(FaultKind::InvalidAddressSpace, lane, text).at(address));
        };
        let by = SiteId { block: cx.id, thread: thread_of(self.index, lane), pc: self.pc };
        let found = cx.device.multicast(address, len, access, by).and_then(|regions| {
            let is_there = |its: &Region<'_>| its.contains(its.start, len, access);
            match regions.iter().all(is_there) {
                true => Ok(regions),
                false => Err("nothing is there".to_owned()),
            }
        });
        found.map_err(|what| {
            illegal(lane, address, format!("{verb} {len} bytes at {address:#x}: {what}"))
        })
    }
}

/// Combines the values of all devices.
fn combine(
    function: AtomicFunction,
    is_single: bool,
    values: impl Iterator<Item = u64> + Clone,
) -> u64 {
    match function {
        AtomicFunction::AddFloat(ty) if is_single => match ty {
            Float::F16 | Float::Bf16 => sum(ty, values, 0),
            _ => sum(ty, values.clone(), 0) | sum(ty, values, 16),
        },
        _ => values.reduce(|all, value| apply(function, all, value, 0, false)).unwrap_or(0),
    }
}

/// Adds the halves at a bit of each value as singles, and rounds the sum.
fn sum(ty: Float, values: impl Iterator<Item = u64>, shift: u32) -> u64 {
    let is_brain = matches!(ty, Float::Bf16 | Float::Bf16x2);
    let singles = values.map(|value| {
        let half = (value >> shift) as u16;
        if is_brain { bf16_to_f32(half) } else { f16_to_f32(half) }
    });
    let sum = singles.reduce(|all, value| single::add(all, value, Mode::EXACT)).unwrap_or(0);
    let half = if is_brain { f32_to_bf16(sum) } else { f32_to_f16(sum) };
    u64::from(half) << shift
}
