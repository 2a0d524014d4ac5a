//! Bulk copies of tensors.

use super::access::{Context, Place};
use super::bulk::{check_blocks, reduce};
use super::fault::{FaultKind, Raise};
use super::warp::{Warp, lanes_of};
use crate::device::Access;
use crate::program::{
    Address, AtomicFunction, Float, Int, Space, TensorAccess, TensorCopy, TensorReduction,
};
use crate::tensor_map::{Element, Interleave, Pieces, TensorMap, UNIT};

/// The alignment of the box of a copy in shared memory.
const ALIGNMENT: u64 = 128;

/// What a lane copies.
pub(super) struct Plan {
    pub(super) map: TensorMap,
    pub(super) pieces: Pieces,
}

impl Warp {
    /// Copies between a tensor and shared memory, or combines elements with those of the tensor.
    pub(super) fn copy_tensor(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        copy: &TensorCopy,
    ) -> Result<(), Raise> {
        for lane in lanes_of(mask) {
            let plan = self.plan(cx, lane, copy)?;
            match copy.access {
                TensorAccess::Load { to, barrier, bytes, multicast } => {
                    let to = self.box_at(lane, &to)?;
                    check_blocks(cx, lane, self.blocks(lane, multicast))?;
                    for to in self.targets(lane, to, multicast) {
                        self.load_tensor(cx, lane, to, &plan)?;
                    }
                    self.registers.narrow[bytes as usize][lane] = plan.pieces.bytes as u32;
                    self.complete_copy(cx, lane, (&barrier, multicast), bytes)?;
                }
                TensorAccess::Store { from, function } => {
                    let from = self.box_at(lane, &from)?;
                    let element = plan.map.element;
                    let function = function.map(|function| of_element(function, element));
                    let Ok(function) = function.map(|its| its.ok_or(())).transpose() else {
                        let text = format!("a tensor of {element:?} does not have this reduction");
                        return Err(Raise::new(FaultKind::IllegalInstruction, lane, text));
                    };
                    self.store_tensor(cx, lane, (from, function), &plan)?;
                }
                TensorAccess::Prefetch => {}
            }
        }
        Ok(())
    }

    /// Returns what each lane copies, except for those whose copy ends the kernel.
    pub(super) fn plans(
        &self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        copy: &TensorCopy,
    ) -> Vec<(usize, Plan)> {
        lanes_of(mask).filter_map(|lane| Some((lane, self.plan(cx, lane, copy).ok()?))).collect()
    }

    /// Returns what a lane copies.
    fn plan(
        &self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        copy: &TensorCopy,
    ) -> Result<Plan, Raise> {
        let address = self.addresses(&copy.map)[lane];
        let mut words = [0; 16];
        for (at, word) in (0..).step_by(8).zip(&mut words) {
            let place = (copy.map.space, address.wrapping_add(at));
            let place = self.place(cx, lane, place, 8, Access::Read)?;
            *word = self.read(cx, lane, place, 8)?;
        }
        let illegal = |text: String| Raise::new(FaultKind::IllegalInstruction, lane, text);
        let Some(mut map) = TensorMap::decode(&words) else {
            return Err(illegal(format!("there is no tensor map at {address:#x}")).at(address));
        };
        let is_store = matches!(copy.access, TensorAccess::Store { .. });
        if is_store {
            map = map.of_units();
        }
        let narrow = &self.registers.narrow;
        let coordinates: Vec<i32> =
            copy.coordinates.iter().map(|slot| narrow[*slot as usize][lane] as i32).collect();
        let offsets: Option<Vec<u16>> = copy.offsets.as_ref().map(|offsets| {
            offsets.iter().map(|slot| narrow[*slot as usize][lane] as u16).collect()
        });
        let first = i64::from(coordinates.first().copied().unwrap_or(0));
        let start = first * map.element.bytes() as i64;
        if map.interleave == Interleave::None && start % UNIT as i64 != 0 {
            let text = "which is not a multiple of 16 bytes";
            return Err(illegal(format!("a copy from the innermost coordinate {first}, {text}")));
        }
        match map.pieces(&coordinates, offsets.as_deref()) {
            Some(pieces) if is_store && pieces.is_below => {
                Err(illegal("a store before the first element of a dimension".to_owned()))
            }
            Some(pieces) if pieces.is_outside_box => {
                let text = "is outside of the bounding box";
                Err(illegal(format!("a copy whose first pixel, {coordinates:?}, {text}")))
            }
            Some(pieces) => Ok(Plan { map, pieces }),
            None => Err(illegal(format!(
                "the tensor map is for other copies: it has {} dimensions and the mode {:?}",
                map.rank, map.mode
            ))),
        }
    }

    /// Returns the address of the box of a lane in shared memory.
    fn box_at(&self, lane: usize, address: &Address) -> Result<u64, Raise> {
        let at = self.addresses(address)[lane];
        match at % ALIGNMENT {
            0 => Ok(at),
            _ => {
                let text = format!("a box at {at:#x}, which is not a multiple of {ALIGNMENT}");
                Err(Raise::new(FaultKind::MisalignedAddress, lane, text).at(at))
            }
        }
    }

    fn load_tensor(
        &mut self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        to: u64,
        plan: &Plan,
    ) -> Result<(), Raise> {
        let Plan { map, pieces } = plan;
        let size = map.element.bytes();
        for piece in &pieces.list {
            for offset in (0..piece.bytes).step_by(size as usize) {
                let value = match piece.address {
                    None => map.fill(),
                    Some(address) => {
                        let place = Place::Global(address.wrapping_add(offset));
                        map.element.loaded(self.read(cx, lane, place, size as u32)?)
                    }
                };
                let target = map.swizzle.place(to + piece.offset + offset);
                let target = (Space::Shared, target);
                let target = self.place(cx, lane, target, size, Access::Write)?;
                self.write(cx, lane, target, size as u32, value)?;
            }
        }
        Ok(())
    }

    fn store_tensor(
        &mut self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        (from, function): (u64, Option<AtomicFunction>),
        plan: &Plan,
    ) -> Result<(), Raise> {
        let Plan { map, pieces } = plan;
        let size = map.element.bytes();
        let is_ftz = matches!(map.element, Element::F32Ftz | Element::Tf32Ftz);
        for piece in &pieces.list {
            let Some(address) = piece.address else { continue };
            for offset in (0..piece.bytes).step_by(size as usize) {
                let source = map.swizzle.place(from + piece.offset + offset);
                let source = self.place(cx, lane, (Space::Shared, source), size, Access::Read)?;
                let value = self.read(cx, lane, source, size as u32)?;
                let target = Place::Global(address.wrapping_add(offset));
                match function {
                    None => self.write(cx, lane, target, size as u32, value)?,
                    Some(function) => {
                        self.update(cx, lane, target, size as u32, |old, is_global| {
                            reduce(function, is_ftz, (old, value), is_global)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the function of a reduction of elements, if they have it.
fn of_element(function: TensorReduction, element: Element) -> Option<AtomicFunction> {
    let int = match element {
        Element::U32 => Some(Int::U32),
        Element::S32 => Some(Int::S32),
        Element::U64 => Some(Int::U64),
        Element::S64 => Some(Int::S64),
        _ => None,
    };
    let float = match element {
        Element::F16 => Some(Float::F16),
        Element::Bf16 => Some(Float::Bf16),
        Element::F32 | Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz => Some(Float::F32),
        Element::F64 => Some(Float::F64),
        _ => None,
    };
    Some(match (function, int, float) {
        // An H200 has no others.
        (
            TensorReduction::Add
            | TensorReduction::And
            | TensorReduction::Or
            | TensorReduction::Xor,
            Some(Int::S64),
            _,
        ) => return None,
        (TensorReduction::Add, Some(int), _) => AtomicFunction::Add(int),
        (TensorReduction::Add, _, Some(float)) => AtomicFunction::AddFloat(float),
        (TensorReduction::Min, Some(int), _) => AtomicFunction::Min(int),
        (TensorReduction::Max, Some(int), _) => AtomicFunction::Max(int),
        (TensorReduction::Min, _, Some(float @ (Float::F16 | Float::Bf16))) => {
            AtomicFunction::MinFloat(float)
        }
        (TensorReduction::Max, _, Some(float @ (Float::F16 | Float::Bf16))) => {
            AtomicFunction::MaxFloat(float)
        }
        (TensorReduction::Inc, Some(Int::U32), _) => AtomicFunction::Inc,
        (TensorReduction::Dec, Some(Int::U32), _) => AtomicFunction::Dec,
        (TensorReduction::And, Some(_), _) => AtomicFunction::And,
        (TensorReduction::Or, Some(_), _) => AtomicFunction::Or,
        (TensorReduction::Xor, Some(_), _) => AtomicFunction::Xor,
        _ => return None,
    })
}
