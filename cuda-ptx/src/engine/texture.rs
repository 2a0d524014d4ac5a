//! Reads of textures, and accesses of surfaces.

use super::access::{Context, Place, after};
use super::atomic::apply;
use super::fault::{FaultKind, Raise};
use super::registers::{LANES, Slot};
use super::warp::{Warp, lanes_of};
use crate::device::Access;
use crate::number::convert::f32_to_f16;
use crate::program::{
    AtomicFunction, Int, LevelOf, Sample, SurfaceAccess, SurfaceFunction, TexelPlace,
};
use crate::texture::{Coordinates, Format, Lod, Number, Read, Texels, Texture};
use std::sync::Arc;

/// Returns the object of a handle: the one that was used last, or the one that the device finds.
fn last_or<T>(
    last: &mut Option<(u64, Arc<T>)>,
    lane: usize,
    handle: u64,
    find: impl FnOnce() -> Result<Arc<T>, String>,
) -> Result<Arc<T>, Raise> {
    match last {
        Some((its, object)) if *its == handle => Ok(object.clone()),
        _ => {
            let found = find().map_err(|text| Raise::new(FaultKind::IllegalAddress, lane, text))?;
            *last = Some((handle, found.clone()));
            Ok(found)
        }
    }
}

impl Warp {
    /// Returns the texture of a handle.
    fn texture_of(
        cx: &mut Context<'_, '_>,
        lane: usize,
        handle: u64,
    ) -> Result<Arc<Texture>, Raise> {
        last_or(&mut cx.regions.texture, lane, handle, || cx.device.texture(handle))
    }

    /// Returns the surface of a handle.
    fn surface_of(
        cx: &mut Context<'_, '_>,
        lane: usize,
        handle: u64,
    ) -> Result<Arc<Texels>, Raise> {
        last_or(&mut cx.regions.surface, lane, handle, || cx.device.surface(handle))
    }

    /// Returns the values of three registers in a lane.
    fn three(&self, lane: usize, slots: [Slot; 3]) -> [u32; 3] {
        slots.map(|slot| self.registers.narrow[slot as usize][lane])
    }

    fn layer(&self, lane: usize, place: &TexelPlace) -> Option<u32> {
        place.layer.map(|slot| self.registers.narrow[slot as usize][lane])
    }

    pub(super) fn sample(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        sample: &Sample,
    ) -> Result<(), Raise> {
        let mut results = [[0u32; 4]; LANES];
        for lane in lanes_of(mask) {
            let handle = self.registers.wide[sample.place.object as usize][lane];
            let texture = Self::texture_of(cx, lane, handle)?;
            let read = self.read_of(lane, sample);
            let mut fetch = |address: u64, bytes: u32| self.fetch(cx, lane, address, bytes);
            results[lane] = match sample.gather {
                Some(channel) => texture.gather(&read, channel, &mut fetch)?,
                None => texture.read(&read, &mut fetch)?,
            };
            if sample.bits == 16 && !texture.texels.format.is_integer() {
                results[lane] = results[lane].map(|bits| u32::from(f32_to_f16(bits)));
            }
        }
        if let [low, high] = sample.d[..] {
            for (index, d) in [low, high].into_iter().enumerate() {
                self.registers.set_element(mask, d, |lane| {
                    let halves = [results[lane][2 * index], results[lane][2 * index + 1]];
                    u64::from(halves[0] & 0xffff | halves[1] << 16)
                });
            }
        } else {
            for (channel, d) in sample.d.iter().enumerate() {
                self.registers.set_element(mask, *d, |lane| u64::from(results[lane][channel]));
            }
        }
        if let Some(p) = sample.resident {
            self.registers.set_predicate(mask, p, mask);
        }
        Ok(())
    }

    /// Returns what a lane reads.
    fn read_of(&self, lane: usize, sample: &Sample) -> Read {
        let TexelPlace { axes, is_cubemap, .. } = sample.place;
        let number = |slot: Slot| f32::from_bits(self.registers.narrow[slot as usize][lane]);
        let at = self.three(lane, sample.place.at);
        let lod = match sample.level {
            LevelOf::Base => Lod::Base,
            LevelOf::Slot(slot) if sample.is_index => {
                Lod::Index(self.registers.narrow[slot as usize][lane] as i32)
            }
            LevelOf::Slot(slot) => Lod::Number(number(slot)),
            LevelOf::Gradient(slots) => Lod::Gradient(slots.map(|slots| slots.map(number))),
        };
        let offset = sample.offset.map(|slots| self.three(lane, slots));
        Read {
            axes,
            is_cubemap,
            layer: self.layer(lane, &sample.place),
            at: match sample.is_index {
                true => Coordinates::Index(at.map(|at| at as i32)),
                false => Coordinates::Number(at.map(f32::from_bits)),
            },
            lod,
            offset: offset.unwrap_or_default().map(offset_of),
            is_gather: sample.gather.is_some(),
        }
    }

    /// Loads the bytes of a texel.
    fn fetch(
        &self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        address: u64,
        bytes: u32,
    ) -> Result<u128, Raise> {
        let region = self.region(cx, lane, address, u64::from(bytes), Access::Read)?;
        let mut texel = 0;
        for at in (0..bytes).step_by(8) {
            let word = super::access::read_word(region, address + u64::from(at), bytes.min(8));
            texel |= u128::from(word) << (8 * at);
        }
        Ok(texel)
    }

    pub(super) fn surface(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        access: &SurfaceAccess,
    ) -> Result<(), Raise> {
        let mut results = [0u128; LANES];
        for lane in lanes_of(mask) {
            let handle = self.registers.wide[access.place.object as usize][lane];
            let texels = Self::surface_of(cx, lane, handle)?;
            let size = match (access.is_formatted, &access.function) {
                // The coordinate counts words, also if a texel has several (measured).
                (true, SurfaceFunction::Reduce(_)) => texels.format.bytes().min(access.size),
                (true, _) => texels.format.bytes(),
                (false, _) => access.size * access.elements.len() as u32,
            };
            let Some(address) = self.surface_address(lane, access, &texels, size)? else {
                continue;
            };
            let place = Place::Global(address);
            match access.function {
                SurfaceFunction::Load => results[lane] = self.fetch(cx, lane, address, size)?,
                SurfaceFunction::Store => {
                    let value = self.stored(lane, access, &texels.format);
                    for at in (0..size).step_by(8) {
                        let word = (value >> (8 * at)) as u64;
                        self.write(cx, lane, after(place, at as usize), size.min(8), word)?;
                    }
                }
                SurfaceFunction::Reduce(function) => {
                    let function = match access.is_formatted {
                        true => of_format(function, &texels.format),
                        false => function,
                    };
                    let value = self.stored(lane, access, &texels.format) as u64;
                    self.update(cx, lane, place, size.min(8), |old, is_global| {
                        apply(function, old, value, 0, is_global)
                    })?;
                }
            }
        }
        if access.function == SurfaceFunction::Load {
            let field = u64::MAX >> (64 - 8 * access.size);
            for (index, d) in access.elements.iter().enumerate() {
                let shift = 8 * access.size * index as u32;
                self.registers
                    .set_element(mask, *d, |lane| (results[lane] >> shift) as u64 & field);
            }
        }
        Ok(())
    }

    /// Returns the address of the bytes that a lane accesses, after checks of bounds and alignment.
    fn surface_address(
        &self,
        lane: usize,
        access: &SurfaceAccess,
        texels: &Texels,
        size: u32,
    ) -> Result<Option<u64>, Raise> {
        let place = &access.place;
        let mut at = self.three(lane, place.at).map(|at| at as i32);
        at.iter_mut().skip(place.axes).for_each(|at| *at = 0);
        if access.is_formatted {
            at[0] = at[0].saturating_mul(size as i32);
        } else if at[0] & (size as i32 - 1) != 0 {
            let text = format!("{size} bytes at the byte {} of a row of a surface", at[0]);
            return Err(Raise::new(FaultKind::MisalignedAddress, lane, text));
        }
        if let Some(layer) = self.layer(lane, place) {
            at[2] = layer as i32;
        }
        texels
            .place(at, size, access.boundary)
            .map_err(|text| Raise::new(FaultKind::IllegalAddress, lane, text))
    }

    /// Returns the bytes that a lane stores.
    fn stored(&self, lane: usize, access: &SurfaceAccess, format: &Format) -> u128 {
        let mut bytes = 0;
        let mut channels = [0; 4];
        for (index, element) in access.elements.iter().enumerate() {
            let value = self.registers.element(*element)[lane];
            channels[index] = value as u32;
            let value = value & u64::MAX >> (64 - 8 * access.size);
            bytes |= u128::from(value) << (8 * access.size * index as u32);
        }
        match access.is_formatted {
            true => format.encode(channels),
            false => bytes,
        }
    }

    pub(super) fn query(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        (is_surface, axis): (bool, usize),
        (object, level): (Slot, Option<Slot>),
        d: Slot,
    ) -> Result<(), Raise> {
        let mut results = [0; LANES];
        for lane in lanes_of(mask) {
            let handle = self.registers.wide[object as usize][lane];
            let level = level.map_or(0, |slot| self.registers.narrow[slot as usize][lane]);
            results[lane] = match is_surface {
                true => extent(&*Self::surface_of(cx, lane, handle)?, axis, level, true),
                false => extent(&Self::texture_of(cx, lane, handle)?.texels, axis, level, false),
            };
        }
        self.registers.set(mask, d, |lane| results[lane]);
        Ok(())
    }
}

/// Returns an offset. Only its low 4 bits count.
fn offset_of(bits: u32) -> i32 {
    (bits << 28) as i32 >> 28
}

/// Returns a reduction of texels of this format.
fn of_format(function: AtomicFunction, format: &Format) -> AtomicFunction {
    let ty = if format.number == Number::Signed { Int::S32 } else { Int::U32 };
    match function {
        AtomicFunction::Min(_) => AtomicFunction::Min(ty),
        AtomicFunction::Max(_) => AtomicFunction::Max(ty),
        function => function,
    }
}

/// Returns the extent along an axis. Layers are the last one. A line has a height of one row as a texture, and none as a
/// surface or in linear memory.
fn extent(texels: &Texels, axis: usize, level: u32, is_surface: bool) -> u32 {
    let Some(level) = texels.levels.get(level as usize) else { return 0 };
    let is_line = level.extent[1] == 0 && level.extent[2] == 0;
    match (axis, is_line) {
        (1, true) if texels.layers > 0 => texels.layers,
        (1, true) => u32::from(!texels.is_memory && !is_surface),
        (2, false) if texels.layers > 0 => texels.layers,
        _ => level.extent[axis],
    }
}
