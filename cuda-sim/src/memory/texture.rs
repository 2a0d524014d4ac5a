//! Texture and surface objects.

use super::Memory;
use super::format::Format;
use cuda_ptx::texture::{Level, Texels as Shape, Texture};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
}

impl Texels {
    /// Returns the texels as a level of a texture. Layers and faces are no dimension of it.
    pub(crate) fn level(&self, has_layers: bool) -> Level {
        let mut extent = self.extent.map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        if has_layers {
            extent[2] = 0;
        }
        Level { address: self.address, extent, pitch: self.pitch as u64, slice: self.slice as u64 }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Object {
    Texture(Arc<Texture>),
    Surface(Arc<Shape>),
    /// A texture or surface whose texels kernels cannot read here.
    Opaque {
        is_texture: bool,
    },
}

impl Object {
    pub(crate) fn is_texture(&self) -> bool {
        matches!(self, Self::Texture(_) | Self::Opaque { is_texture: true })
    }
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
        if !object.is_texture() {
            self.surfaces.insert((context, *last));
        }
        self.alive.insert((context, *last), object);
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

fn missing<T>(number: u64, what: &str) -> Result<T, String> {
    Err(format!(
        "{number:#x} is not a {what} object of the kernel's context, or was destroyed; a real driver reads or \
         writes other memory"
    ))
}

fn opaque<T>() -> Result<T, String> {
    Err("the texels of this format cannot be read here".to_owned())
}

impl Memory {
    /// Returns a texture that a kernel of a context reads.
    pub(crate) fn texture(&self, context: usize, number: u64) -> Result<Arc<Texture>, String> {
        match self.objects.get(context, number) {
            Some(Object::Texture(texture)) => Ok(texture.clone()),
            Some(Object::Opaque { is_texture: true }) => opaque(),
            _ => missing(number, "texture"),
        }
    }

    /// Returns a surface that a kernel of a context accesses.
    pub(crate) fn surface(&self, context: usize, number: u64) -> Result<Arc<Shape>, String> {
        match self.objects.get(context, number) {
            Some(Object::Surface(surface)) => Ok(surface.clone()),
            Some(Object::Opaque { is_texture: false }) => opaque(),
            _ => missing(number, "surface"),
        }
    }

    /// Returns the bytes of a texel.
    pub(crate) fn texel(&mut self, address: u64, len: u32) -> Result<u128, String> {
        let bytes = self.bytes(address, len as usize)?;
        let mut word = [0; 16];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(u128::from_le_bytes(word))
    }
}
