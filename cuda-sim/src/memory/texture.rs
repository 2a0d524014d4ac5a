//! Texture and surface objects, and what kernels read and write through them.

use super::format::{Format, Number};
use super::{Memory, Use};
use std::collections::{BTreeMap, BTreeSet};

/// The greatest number of objects of a context. Measured.
const MOST: usize = 1_040_383;

/// Texels in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texels {
    pub(crate) address: u64,
    pub(crate) format: Format,
    /// In texels. Height and depth are 0 if the texels have fewer dimensions.
    pub(crate) extent: [usize; 3],
    /// Bytes from a row to the next, and from a slice to the next.
    pub(crate) pitch: usize,
    pub(crate) slice: usize,
    /// Whether the last dimension counts layers, between which there is no filter.
    pub(crate) is_layered: bool,
}

/// What happens to coordinates outside of a texture, as in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    Wrap,
    Clamp,
    Mirror,
    Border,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    pub(crate) outside: [Outside; 3],
    pub(crate) is_linear: bool,
    pub(crate) as_integers: bool,
    pub(crate) is_normalized: bool,
    pub(crate) border: [f32; 4],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) texels: Texels,
    /// `None` for a surface.
    pub(crate) sampler: Option<Sampler>,
}

/// The objects of all contexts. Their handles are small numbers of a context.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    alive: BTreeMap<(usize, u64), Object>,
    /// The last number of each context, and how many of its objects are alive. Numbers are not used again,
    /// so stale ones are detected.
    contexts: BTreeMap<usize, (u64, usize)>,
    surfaces: BTreeSet<(usize, u64)>,
}

impl Objects {
    /// Adds an object of a context. Returns its number, or `None` if there are too many.
    pub(crate) fn add(&mut self, context: usize, object: Object) -> Option<u64> {
        let (last, count) = self.contexts.entry(context).or_default();
        if *count >= MOST {
            return None;
        }
        *last += 1;
        *count += 1;
        self.alive.insert((context, *last), object);
        if object.sampler.is_none() {
            self.surfaces.insert((context, *last));
        }
        Some(*last)
    }

    pub(crate) fn get(&self, context: usize, number: u64) -> Option<&Object> {
        self.alive.get(&(context, number))
    }

    pub(crate) fn remove(&mut self, context: usize, number: u64) {
        if self.alive.remove(&(context, number)).is_some() {
            if let Some((_, count)) = self.contexts.get_mut(&context) {
                *count -= 1;
            }
        }
        self.surfaces.remove(&(context, number));
    }

    /// Removes the objects of a context that is destroyed.
    pub(crate) fn remove_of(&mut self, context: usize) {
        let its = self.alive.range((context, 0)..=(context, u64::MAX));
        for (_, number) in its.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(context, number);
        }
        self.contexts.remove(&context);
    }

    /// Returns the numbers of textures and of surfaces.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let surfaces = self.surfaces.len();
        [self.alive.len() - surfaces, surfaces]
    }
}

/// Returns the index of a texel along one dimension, or `None` if it is outside of the texture and has the
/// color of the border.
fn index(at: i64, len: usize, outside: Outside, is_normalized: bool) -> Option<usize> {
    let len = i64::try_from(len.max(1)).unwrap_or(i64::MAX);
    let index = match outside {
        Outside::Wrap if is_normalized => at.rem_euclid(len),
        Outside::Mirror if is_normalized => {
            let at = at.rem_euclid(2 * len);
            at.min(2 * len - 1 - at)
        }
        Outside::Border if !(0..len).contains(&at) => return None,
        // Without normalized coordinates the others clamp too.
        _ => at.clamp(0, len - 1),
    };
    usize::try_from(index).ok()
}

impl Memory {
    fn object(&self, context: usize, number: u64, is_texture: bool) -> Result<Object, String> {
        let what = if is_texture { "texture" } else { "surface" };
        let found = self.objects.get(context, number).copied();
        let found = found.filter(|its| its.sampler.is_some() == is_texture);
        found.ok_or_else(|| {
            format!(
                "{number:#x} is not a {what} object of the kernel's context, or was destroyed; a real \
                 driver reads or writes other memory"
            )
        })
    }

    fn texel(&mut self, texels: &Texels, [x, y, z]: [usize; 3]) -> Result<&mut [u8], String> {
        let format = &texels.format;
        let offset = z * texels.slice + y * texels.pitch + x * format.bytes;
        self.bytes(texels.address + offset as u64, format.bytes)
    }

    /// Reads the texel with these indices, which are inside.
    fn decode(&mut self, object: &Object, at: [Option<usize>; 3]) -> Result<[f64; 4], String> {
        let as_integers = object.sampler.is_some_and(|its| its.as_integers);
        let [Some(x), Some(y), Some(z)] = at else {
            let border = object.sampler.map_or([0.0; 4], |its| its.border);
            return Ok(border.map(f64::from));
        };
        let format = object.texels.format;
        let bytes = self.texel(&object.texels, [x, y, z])?;
        Ok(format.decode(bytes, as_integers))
    }

    /// Reads a texture at coordinates, with its filter.
    pub(crate) fn sample(
        &mut self,
        context: usize,
        number: u64,
        at: [f32; 3],
    ) -> Result<[f64; 4], String> {
        let object = self.object(context, number, true)?;
        let Some(sampler) = object.sampler else {
            return Ok([0.0; 4]);
        };
        if object.texels.format.number == Number::Opaque {
            return Err("the texels of this format cannot be sampled here".to_owned());
        }
        let extent = object.texels.extent;
        // Along each dimension: the lower of two texels, and the weight of the upper one.
        let mut lower = [0; 3];
        let mut weights = [0.0; 3];
        for axis in 0..3 {
            if extent[axis] == 0 {
                continue;
            }
            let mut place = f64::from(at[axis]);
            if axis == 2 && object.texels.is_layered {
                #[allow(clippy::cast_possible_truncation, reason = "an index")]
                let layer = place.round() as i64;
                lower[axis] = layer.clamp(0, extent[axis] as i64 - 1);
                continue;
            }
            if sampler.is_normalized {
                place *= extent[axis] as f64;
            }
            #[allow(clippy::cast_possible_truncation, reason = "an index")]
            if sampler.is_linear {
                let place = place - 0.5;
                lower[axis] = place.floor() as i64;
                // The hardware has 8 bits for the fraction.
                weights[axis] = ((place - place.floor()) * 256.0).round() / 256.0;
            } else {
                lower[axis] = place.floor() as i64;
            }
        }
        let mut sum = [0.0; 4];
        for corner in 0..8 {
            let mut weight = 1.0;
            let mut indices = [Some(0); 3];
            for axis in 0..3 {
                let upper = i64::from(corner >> axis & 1);
                weight *= match upper {
                    0 => 1.0 - weights[axis],
                    _ => weights[axis],
                };
                let outside = sampler.outside[axis];
                let at = lower[axis] + upper;
                indices[axis] = match extent[axis] {
                    0 => Some(0),
                    len => index(at, len, outside, sampler.is_normalized),
                };
            }
            if weight == 0.0 {
                continue;
            }
            let texel = self.decode(&object, indices)?;
            for (sum, channel) in sum.iter_mut().zip(texel) {
                *sum += weight * channel;
            }
        }
        Ok(sum)
    }

    /// Reads a texel of a texture of linear memory by its index. Outside of the object it is zero.
    pub(crate) fn fetch(
        &mut self,
        context: usize,
        number: u64,
        at: i32,
    ) -> Result<[f64; 4], String> {
        let object = self.object(context, number, true)?;
        match usize::try_from(at) {
            Ok(at) if at < object.texels.extent[0] => {
                self.decode(&object, [Some(at), Some(0), Some(0)])
            }
            _ => Ok([0.0; 4]),
        }
    }

    /// Returns `size` bytes of a surface. The first coordinate is in bytes. Coordinates outside of the
    /// surface are an error.
    pub(crate) fn surface(
        &mut self,
        context: usize,
        number: u64,
        [x, y, z]: [usize; 3],
        size: usize,
        wanted: Use,
    ) -> Result<&mut [u8], String> {
        let texels = self.object(context, number, false)?.texels;
        let [width, height, depth] = texels.extent;
        let end = x.checked_add(size);
        let fits = end.is_some_and(|end| end <= width * texels.format.bytes);
        if !fits || y >= height.max(1) || z >= depth.max(1) {
            return Err(format!("{size} bytes at ({x}, {y}, {z}) are outside of a surface"));
        }
        let offset = z * texels.slice + y * texels.pitch + x;
        self.bytes_for(texels.address + offset as u64, size, wanted)
    }
}
