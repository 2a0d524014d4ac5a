//! Arrays, whose texels are in memory without an address for the program.

use super::handles::{Handles, State};
use super::members::Members;
use super::{Answer, World};
use crate::account::misuse;
use crate::memory::{Format, Kind, Texels};
use crate::state::fail_if;
use cuda_sys::{
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_RESOURCE_DESC,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresult,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Array {
    pub(crate) context: usize,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) format: Format,
    /// The address of the texels.
    pub(crate) storage: u64,
    /// Whether it is a level of a mipmapped array.
    pub(crate) is_level: bool,
}

impl Array {
    pub(crate) fn texels(&self) -> Texels {
        let its = &self.descriptor;
        let (pitch, rows) = self.format.rows(its.Width, its.Height);
        Texels {
            address: self.storage,
            format: self.format,
            extent: [its.Width, its.Height, its.Depth],
            pitch,
            slice: pitch * rows,
        }
    }

    /// Returns the number of layers, or 0 without layers, and whether the slices are the faces of cubes.
    pub(crate) fn layers(&self) -> (u32, bool) {
        let its = &self.descriptor;
        let is_cubemap = its.Flags & CUDA_ARRAY3D_CUBEMAP != 0;
        let slices = u32::try_from(its.Depth).unwrap_or(u32::MAX);
        match (its.Flags & CUDA_ARRAY3D_LAYERED != 0, is_cubemap) {
            (false, _) => (0, is_cubemap),
            (true, false) => (slices, false),
            (true, true) => (slices / 6, true),
        }
    }

    /// Returns the size of the texels in bytes.
    pub(crate) fn size(&self) -> usize {
        self.texels().slice * self.descriptor.Depth.max(1)
    }
}

pub(crate) struct Mipmapped {
    pub(crate) context: usize,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) levels: Vec<usize>,
}

/// What a texture or surface object was created from, for the queries.
#[derive(Clone, Copy)]
pub(crate) struct Description {
    pub(crate) resource: CUDA_RESOURCE_DESC,
    /// `None` for a surface.
    pub(crate) texture: Option<CUDA_TEXTURE_DESC>,
    pub(crate) view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

// SAFETY: the handles in a description are never dereferenced.
unsafe impl Send for Description {}

/// The arrays of all contexts, and what their texture and surface objects were created from.
pub(crate) struct Arrays {
    pub(crate) plain: Handles<Array>,
    pub(crate) mipmapped: Handles<Mipmapped>,
    /// The arrays of each context, levels included, and its mipmapped arrays.
    plain_of: Members,
    pub(crate) mipmapped_of: Members,
    /// Arrays that were destroyed with their context.
    of_ended: BTreeSet<usize>,
    /// Number of levels among `plain`.
    levels: usize,
    /// By context and number.
    pub(crate) descriptions: BTreeMap<(usize, u64), Description>,
}

impl Arrays {
    pub(crate) fn new() -> Self {
        Self {
            plain: Handles::new(14),
            mipmapped: Handles::new(15),
            plain_of: Members::default(),
            mipmapped_of: Members::default(),
            of_ended: BTreeSet::new(),
            levels: 0,
            descriptions: BTreeMap::new(),
        }
    }

    /// Returns the numbers of arrays and of mipmapped arrays.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.plain.len() - self.levels, self.mipmapped.len()]
    }
}

/// Returns the answer to a call with a handle that is not alive. A real driver takes it for the address of
/// an object: it crashes, or answers falsely.
fn not_alive(state: State, is_of_ended: bool) -> CUresult {
    if is_of_ended {
        return CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    misuse(match state {
        State::Dead => "an array is used after it was destroyed",
        _ => "a handle that is not an array is used as an array",
    });
    CUresult::CUDA_ERROR_INVALID_HANDLE
}

impl World {
    pub(crate) fn array(&self, handle: usize) -> Answer<&Array> {
        fail_if(handle == 0, CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let its = &self.objects.arrays;
        let state = its.plain.state(handle);
        let found = its.plain.get(handle);
        found.ok_or_else(|| not_alive(state, its.of_ended.contains(&handle)))
    }

    pub(crate) fn mipmapped(&self, handle: usize) -> Answer<&Mipmapped> {
        fail_if(handle == 0, CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let its = &self.objects.arrays;
        let state = its.mipmapped.state(handle);
        let found = its.mipmapped.get(handle);
        found.ok_or_else(|| not_alive(state, its.of_ended.contains(&handle)))
    }

    /// Allocates an array whose descriptor was checked, in the current context.
    pub(crate) fn make_array(
        &mut self,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
        format: Format,
        is_level: bool,
        limit: u64,
    ) -> Answer<usize> {
        let (context, device) = self.home()?;
        let mut array = Array { context, descriptor, format, storage: 0, is_level };
        let size = array.size();
        array.storage = self.objects.memory.allocate(size, Kind::Plain, context, device, limit)?;
        Ok(self.add_array(array))
    }

    /// Adds an array whose texels have memory.
    pub(crate) fn add_array(&mut self, array: Array) -> usize {
        let (context, is_level, size) = (array.context, array.is_level, array.size());
        self.objects.memory.add_variable(array.storage);
        self.objects.memory.ignore_writes(array.storage);
        self.objects.arrays.levels += usize::from(is_level);
        let handle = self.objects.arrays.plain.insert(array);
        self.objects.arrays.plain_of.insert(context, handle);
        if !is_level {
            self.objects.memory.note_site_of_handle(handle, "array memory", size as u64);
        }
        handle
    }

    pub(crate) fn remove_array(&mut self, handle: usize) {
        if let Some(array) = self.objects.arrays.plain.remove(handle) {
            self.objects.arrays.levels -= usize::from(array.is_level);
            self.objects.arrays.plain_of.remove(array.context, handle);
            self.objects.memory.forget_site_of_handle(handle);
            self.objects.memory.free(array.storage);
        }
    }

    /// Adds a mipmapped array with its levels.
    pub(crate) fn add_mipmapped(&mut self, array: Mipmapped) -> usize {
        let context = array.context;
        let sizes = array.levels.iter().filter_map(|level| self.objects.arrays.plain.get(*level));
        let size: usize = sizes.map(Array::size).sum();
        let handle = self.objects.arrays.mipmapped.insert(array);
        self.objects.arrays.mipmapped_of.insert(context, handle);
        self.objects.memory.note_site_of_handle(handle, "mipmapped array memory", size as u64);
        handle
    }

    pub(crate) fn remove_mipmapped(&mut self, handle: usize) {
        let Some(removed) = self.objects.arrays.mipmapped.remove(handle) else {
            return;
        };
        self.objects.arrays.mipmapped_of.remove(removed.context, handle);
        self.objects.memory.forget_site_of_handle(handle);
        for level in removed.levels {
            self.remove_array(level);
        }
    }

    /// Removes the arrays, textures and surfaces of a context that is destroyed.
    pub(crate) fn forget_arrays_of(&mut self, context: usize) {
        let plain: Vec<usize> = self.objects.arrays.plain_of.of(context).collect();
        let mipmapped: Vec<usize> = self.objects.arrays.mipmapped_of.of(context).collect();
        self.objects.arrays.of_ended.extend(&plain);
        self.objects.arrays.of_ended.extend(&mipmapped);
        for handle in mipmapped {
            self.objects.memory.end_site_of_handle(handle);
            self.remove_mipmapped(handle);
        }
        for handle in plain {
            self.objects.memory.end_site_of_handle(handle);
            self.remove_array(handle);
        }
        self.objects.memory.objects.remove_of(context);
        let descriptions = &mut self.objects.arrays.descriptions;
        let its = descriptions.range((context, 0)..=(context, u64::MAX));
        for key in its.map(|(key, _)| *key).collect::<Vec<_>>() {
            descriptions.remove(&key);
        }
    }
}
