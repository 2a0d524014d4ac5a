//! Reads of textures: the texels at coordinates, and their weights.

use super::filter::{self, STEPS, Weights};
use super::{AddressMode, Level, Texture};

/// A read of a texture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Read {
    /// The number of coordinates: 1, 2 or 3.
    pub axes: usize,
    /// Whether the coordinates are a direction from the center of a cube.
    pub is_cubemap: bool,
    /// The layer, if the instruction has one.
    pub layer: Option<u32>,
    /// The coordinates.
    pub at: Coordinates,
    /// The level.
    pub lod: Lod,
    /// The texels that are added to the coordinates.
    pub offset: [i32; 3],
    /// Whether the four texels of a linear filter are read.
    pub is_gather: bool,
}

impl Read {
    /// Returns a read of the first level at coordinates, without a layer.
    pub fn new(axes: usize, at: Coordinates) -> Self {
        Self {
            axes,
            is_cubemap: false,
            layer: None,
            at,
            lod: Lod::Base,
            offset: [0; 3],
            is_gather: false,
        }
    }
}

/// The coordinates of a read. Those that it does not have are ignored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coordinates {
    /// Numbers, which the sampler turns into texels.
    Number([f32; 3]),
    /// The indices of a texel.
    Index([i32; 3]),
}

/// The level of a read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lod {
    /// The first.
    Base,
    /// A number, which may be between two levels.
    Number(f32),
    /// The index of a level.
    Index(i32),
    /// The changes of the coordinates along two directions, from which the level follows.
    Gradient([[f32; 3]; 2]),
}

/// The steps between two values of a normalized coordinate.
const NORMALIZED_STEPS: f64 = (1 << 21) as f64;

/// A read of one level, along each axis: the lower of two texels, and the weight of the upper one in steps.
#[derive(Clone, Copy, Debug, Default)]
struct Footprint {
    lower: [i64; 3],
    weights: Weights,
    slice: u32,
}

impl Texture {
    /// Reads the texture. `fetch` loads bytes at an address. Returns the bits of the four channels: integers, or
    /// numbers of f32.
    ///
    /// # Errors
    /// The first error of `fetch`.
    pub fn read<E>(
        &self,
        read: &Read,
        fetch: &mut dyn FnMut(u64, u32) -> Result<u128, E>,
    ) -> Result<[u32; 4], E> {
        let Coordinates::Number(at) = read.at else { return self.read_index(read, fetch) };
        let is_flat = self.texels.layers == 0 && !self.texels.is_cubemap && read.axes < 3;
        if is_flat && self.texels.levels.first().is_some_and(|level| level.extent[2] > 0) {
            return Ok([0; 4]);
        }
        let (lower, weight) = self.levels(read);
        let format = &self.texels.format;
        let is_linear = self.sampler.is_linear && !format.is_integer();
        if weight == 0 && !is_linear {
            let Some(level) = self.texels.levels.get(lower) else { return Ok([0; 4]) };
            let its = self.footprint(level, read, at, false);
            return self.texel(level, read, its.lower, its.slice, fetch);
        }
        // The weights of two levels are those of the two planes of a volume.
        let mut texels = [(0, 0); 16];
        for (upper, parts) in texels.chunks_exact_mut(8).enumerate() {
            let total = if upper == 0 { STEPS as u32 - weight } else { weight };
            let level = self.texels.levels.get(lower + upper);
            let Some(level) = level.filter(|_| total > 0) else { continue };
            let its = self.footprint(level, read, at, is_linear);
            let weights = filter::of_corners(its.weights, total);
            for (corner, (part, weight)) in parts.iter_mut().zip(weights).enumerate() {
                if weight > 0 {
                    let upper = |axis: usize| (corner >> axis & 1) as i64;
                    let at =
                        std::array::from_fn(|axis| its.lower[axis].saturating_add(upper(axis)));
                    *part = (self.stored(level, read, at, its.slice, fetch)?, weight);
                }
            }
        }
        Ok(filter::blend(format, &texels))
    }

    /// Reads the channel of the four texels that a linear filter would interpolate, from the lower left one on against
    /// the clock.
    ///
    /// # Errors
    /// The first error of `fetch`.
    pub fn gather<E>(
        &self,
        read: &Read,
        channel: usize,
        fetch: &mut dyn FnMut(u64, u32) -> Result<u128, E>,
    ) -> Result<[u32; 4], E> {
        let (Coordinates::Number(at), Some(level)) = (read.at, self.texels.levels.first()) else {
            return Ok([0; 4]);
        };
        let footprint = self.footprint(level, read, at, true);
        let mut found = [0; 4];
        for (found, corner) in found.iter_mut().zip([[0, 1], [1, 1], [1, 0], [0, 0]]) {
            let [x, y] = corner;
            let at =
                [footprint.lower[0].saturating_add(x), footprint.lower[1].saturating_add(y), 0];
            let texel = self.texel(level, read, at, footprint.slice, fetch)?;
            *found = texel.get(channel).copied().unwrap_or(0);
        }
        Ok(found)
    }

    /// Returns a level, and the weight of the next one in steps.
    fn levels(&self, read: &Read) -> (usize, u32) {
        let last = self.texels.levels.len().saturating_sub(1);
        if last == 0 {
            return (0, 0);
        }
        let lod = match read.lod {
            Lod::Number(lod) if lod.is_nan() => 0.0,
            Lod::Base => 0.0,
            Lod::Number(lod) => cut(f64::from(lod)),
            Lod::Index(lod) => f64::from(lod),
            Lod::Gradient(changes) => self.lod(read, changes),
        };
        let sampler = &self.sampler;
        let [least, greatest] = sampler.levels.map(f64::from);
        // A sampler stores its bias in steps.
        let has_bias = !matches!(read.lod, Lod::Base);
        let bias = if has_bias { cut(f64::from(sampler.level_bias)) } else { 0.0 };
        let lod = (lod + bias).min(greatest).max(least);
        let steps = libm::floor(lod.min(last as f64).max(0.0) * STEPS as f64) as i64;
        match sampler.is_mipmap_linear {
            true => ((steps / STEPS) as usize, (steps % STEPS) as u32),
            false => (((steps + STEPS / 2) / STEPS) as usize, 0),
        }
    }

    /// Returns the level whose texels are as far apart as the coordinates of neighbours: the logarithm of the longest
    /// axis of the ellipse that the changes of the coordinates span, as a GPU estimates it.
    fn lod(&self, read: &Read, changes: [[f32; 3]; 2]) -> f64 {
        let Some(level) = self.texels.levels.first() else { return 0.0 };
        let Coordinates::Number(at) = read.at else { return 0.0 };
        let [x, y]: [[f64; 3]; 2] = changes.map(|mut change| {
            // In a volume, a GPU subtracts the coordinates of neighbours, which are rounded.
            if read.axes == 3 {
                change = std::array::from_fn(|axis| match at[axis] {
                    at if at.is_nan() => 0.0,
                    at if (at * level.extent[axis] as f32).is_infinite() => f32::INFINITY,
                    at => at + change[axis] - at,
                });
            }
            std::array::from_fn(|axis| {
                let extent = level.extent[axis].max(1);
                let scale = if self.is_normalized(read) { f64::from(extent) } else { 1.0 };
                if axis < read.axes { f64::from(change[axis]) * scale } else { 0.0 }
            })
        });
        let sum = std::array::from_fn(|axis| x[axis] + y[axis]);
        let difference = std::array::from_fn(|axis| x[axis] - y[axis]);
        let diagonal = 11.0 / 16.0 * length(sum).max(length(difference));
        libm::log2(diagonal.max(length(x)).max(length(y)))
    }

    /// Returns whether coordinates from 0 to 1 cover the texture. Directions always do so.
    fn is_normalized(&self, read: &Read) -> bool {
        self.sampler.is_normalized || read.is_cubemap
    }

    /// Returns the number of axes of a level that coordinates decide.
    fn axes(&self, read: &Read, is_linear: bool) -> usize {
        match read.is_cubemap {
            true => 2,
            // A line is a plane with one row, whose coordinate is 0.
            false if read.axes == 1 && is_linear && self.texels.layers == 0 => 2,
            false => read.axes,
        }
    }

    /// Returns the texels at coordinates in a level.
    fn footprint(&self, level: &Level, read: &Read, at: [f32; 3], is_linear: bool) -> Footprint {
        let mut footprint = Footprint::default();
        let (at, face) = match read.is_cubemap {
            true => face(at),
            false => (at.map(f64::from), 0),
        };
        for axis in 0..self.axes(read, is_linear) {
            let len = level.extent[axis].max(1);
            let mode = self.sampler.address_modes[axis];
            let at = if axis < read.axes { at[axis] } else { 0.0 };
            let place = place(at, len, mode, self.is_normalized(read));
            if is_linear {
                let mut steps = filter::steps(place - 0.5);
                if is_clamp(mode, self.is_normalized(read)) && !read.is_gather {
                    steps = steps.clamp(0, i64::from(len - 1) * STEPS);
                }
                footprint.lower[axis] = steps / STEPS - i64::from(steps % STEPS < 0);
                footprint.weights[axis] = steps.rem_euclid(STEPS) as u32;
            } else {
                footprint.lower[axis] = libm::floor(place) as i64;
            }
            footprint.lower[axis] =
                footprint.lower[axis].saturating_add(i64::from(read.offset[axis]));
        }
        footprint.slice = self.slice(level, read, face);
        footprint
    }

    /// Returns the slice of a layer and face.
    fn slice(&self, level: &Level, read: &Read, face: u32) -> u32 {
        let faces = if self.texels.is_cubemap { 6 } else { 1 };
        let layers = self.texels.slices(level) / faces;
        let layer = match self.texels.layers {
            0 => 0,
            _ => read.layer.unwrap_or(0).min(layers.saturating_sub(1)),
        };
        layer * faces + if faces == 6 { face } else { 0 }
    }

    /// Returns the channels of the texel with these indices, which may be outside.
    fn texel<E>(
        &self,
        level: &Level,
        read: &Read,
        at: [i64; 3],
        slice: u32,
        fetch: &mut dyn FnMut(u64, u32) -> Result<u128, E>,
    ) -> Result<[u32; 4], E> {
        let texel = self.stored(level, read, at, slice, fetch)?;
        Ok(self.texels.format.decode(texel))
    }

    /// Returns the bytes of the texel with these indices. Outside they are those of the border.
    fn stored<E>(
        &self,
        level: &Level,
        read: &Read,
        at: [i64; 3],
        slice: u32,
        fetch: &mut dyn FnMut(u64, u32) -> Result<u128, E>,
    ) -> Result<u128, E> {
        let format = &self.texels.format;
        let mut indices = [0; 3];
        for axis in 0..3 {
            // A point read has no coordinates along the other axes.
            if axis >= if read.is_cubemap { 2 } else { read.axes } && at[axis] == 0 {
                continue;
            }
            let mode = self.sampler.address_modes[axis];
            match index(at[axis], level.extent[axis].max(1), mode, self.is_normalized(read)) {
                Some(index) => indices[axis] = index,
                None => return Ok(format.border(self.sampler.border)),
            }
        }
        if self.texels.layers > 0 || self.texels.is_cubemap {
            indices[2] = slice;
        }
        fetch(self.texels.address(level, indices), format.bytes())
    }

    /// Reads a texel by its indices. Outside of the texture it is zero.
    fn read_index<E>(
        &self,
        read: &Read,
        fetch: &mut dyn FnMut(u64, u32) -> Result<u128, E>,
    ) -> Result<[u32; 4], E> {
        let Coordinates::Index(at) = read.at else { return Ok([0; 4]) };
        let texels = &self.texels;
        // A line is read by an index only in linear memory, and levels apply the address modes.
        let is_line = read.axes == 1 && texels.layers == 0 && !texels.is_memory;
        let is_layer = texels.layers == 0 || read.layer.is_none_or(|layer| layer < texels.layers);
        let (level, has_modes) = match read.lod {
            Lod::Index(level) => (usize::try_from(level).ok(), true),
            _ => (Some(0), false),
        };
        let level = level.and_then(|level| texels.levels.get(level));
        let Some(level) = level.filter(|_| is_layer && (has_modes || !is_line)) else {
            return Ok([0; 4]);
        };
        let mut indices = [0; 3];
        for axis in 0..read.axes {
            let len = level.extent[axis].max(1);
            let at = i64::from(at[axis]) + i64::from(read.offset[axis]);
            let mode =
                if has_modes { self.sampler.address_modes[axis] } else { AddressMode::Border };
            match index(at, len, mode, self.sampler.is_normalized) {
                Some(at) => indices[axis] = at,
                None => return Ok([0; 4]),
            }
        }
        if texels.layers > 0 {
            indices[2] = self.slice(level, read, 0);
        }
        let format = &texels.format;
        fetch(texels.address(level, indices), format.bytes()).map(|texel| format.decode(texel))
    }
}

/// Returns a coordinate in texels.
fn place(at: f64, len: u32, mode: AddressMode, is_normalized: bool) -> f64 {
    let repeats = match mode {
        AddressMode::Wrap if is_normalized => 1.0,
        AddressMode::Mirror if is_normalized => 2.0,
        _ => 0.0,
    };
    // A subnormal number is zero.
    if at.is_nan() || at.abs() < f64::from(f32::MIN_POSITIVE) || at.is_infinite() && repeats > 0.0 {
        return 0.0;
    }
    if !is_normalized {
        return at;
    }
    let at = if repeats > 0.0 { at - libm::floor(at / repeats) * repeats } else { at };
    libm::floor(at * NORMALIZED_STEPS) / NORMALIZED_STEPS * f64::from(len)
}

/// Returns the length of a vector, as a GPU estimates it.
fn length(vector: [f64; 3]) -> f64 {
    let sizes = vector.map(f64::abs);
    let greatest = sizes.into_iter().fold(0.0, f64::max);
    greatest + 11.0 / 32.0 * (sizes.iter().sum::<f64>() - greatest)
}

/// Cuts a level off to steps.
fn cut(level: f64) -> f64 {
    libm::trunc(level * STEPS as f64) / STEPS as f64
}

/// Returns whether coordinates outside stand for the nearest texel.
fn is_clamp(mode: AddressMode, is_normalized: bool) -> bool {
    match mode {
        AddressMode::Clamp => true,
        AddressMode::Wrap | AddressMode::Mirror => !is_normalized,
        AddressMode::Border => false,
    }
}

/// Returns the index of a texel along one axis, or `None` if the color is that of the border.
fn index(at: i64, len: u32, mode: AddressMode, is_normalized: bool) -> Option<u32> {
    let len = i64::from(len);
    let index = match mode {
        _ if is_clamp(mode, is_normalized) => at.clamp(0, len - 1),
        AddressMode::Wrap => at.rem_euclid(len),
        AddressMode::Mirror => {
            let at = at.rem_euclid(2 * len);
            at.min(2 * len - 1 - at)
        }
        _ if (0..len).contains(&at) => at,
        _ => return None,
    };
    u32::try_from(index).ok()
}

/// Returns the coordinates of a direction on the face of a cube, from 0 to 1, and the face.
fn face(direction: [f32; 3]) -> ([f64; 3], u32) {
    let [x, y, z] = scaled(direction);
    // NaN is less than any size.
    let [width, height, depth] = [x, y, z].map(|at| if at.is_nan() { -1.0 } else { at.abs() });
    let (face, s, t) = if depth >= width && depth >= height {
        if z < 0.0 { (5, -x, -y) } else { (4, x, -y) }
    } else if height >= width {
        if y < 0.0 { (3, x, -z) } else { (2, x, z) }
    } else {
        if x < 0.0 { (1, z, -y) } else { (0, -z, -y) }
    };
    let at = |at: f64| {
        let steps = libm::floor(if at.is_nan() { 0.0 } else { at } / 2.0 * NORMALIZED_STEPS);
        steps / NORMALIZED_STEPS + 0.5
    };
    ([at(s), at(t), 0.0], face)
}

/// Divides a direction by its greatest coordinate. The reciprocal of a number above 2^126 is zero, and so are subnormal
/// quotients.
fn scaled(direction: [f32; 3]) -> [f64; 3] {
    let greatest = direction.into_iter().map(f32::abs).fold(0.0, f32::max);
    direction.map(|at| match greatest {
        _ if at.is_nan() || at.is_infinite() || greatest < f32::MIN_POSITIVE => f64::NAN,
        _ if greatest > 2f32.powi(126) || (at / greatest).abs() < f32::MIN_POSITIVE => 0.0,
        _ => f64::from(at) / f64::from(greatest),
    })
}
