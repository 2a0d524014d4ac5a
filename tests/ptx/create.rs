//! Textures and surfaces on a GPU.

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null, null_mut};

use cuda_safe::Context;
use cuda_sys::{
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST,
    CUDA_ARRAY3D_TEXTURE_GATHER, CUDA_MEMCPY3D, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC,
    CUaddress_mode, CUarray, CUarray_format, CUdeviceptr, CUfilter_mode, CUmemorytype,
    CUmipmappedArray, CUresourcetype, CUresult, Zeroable,
};

use crate::object::{Number, Object, Sampler, Shape};

/// The bytes of a row of pitched memory.
pub(crate) const PITCH: usize = 512;

/// An object, and the memory with its texels.
pub(crate) struct Created {
    pub(crate) handle: u64,
    object: Object,
    array: CUarray,
    mipmapped: CUmipmappedArray,
    memory: CUdeviceptr,
}

fn check(code: CUresult, call: &str) -> Result<(), String> {
    match code.is_success() {
        true => Ok(()),
        false => Err(format!("{call}: {}", code.0)),
    }
}

/// Returns the format as in C.
fn format(number: Number, channels: usize) -> CUarray_format {
    let step = channels.ilog2();
    CUarray_format(match number {
        Number::U8 => 1,
        Number::U16 => 2,
        Number::U32 => 3,
        Number::S8 => 8,
        Number::S16 => 9,
        Number::S32 => 10,
        Number::F16 => 16,
        Number::F32 => 32,
        Number::Unorm8 => 192 + step,
        Number::Unorm16 => 195 + step,
        Number::Snorm8 => 198 + step,
        Number::Snorm16 => 201 + step,
    })
}

impl Created {
    /// Creates an object in the current context. It is not destroyed before the process ends.
    pub(crate) fn new(context: &Context, object: &Object) -> Result<Self, String> {
        // SAFETY: the context is alive.
        check(unsafe { cuda_sys::cuCtxSetCurrent(context.as_raw()) }, "cuCtxSetCurrent")?;
        let mut created = Self {
            handle: 0,
            object: object.clone(),
            array: null_mut(),
            mipmapped: null_mut(),
            memory: 0,
        };
        let mut resource = CUDA_RESOURCE_DESC::zeroed();
        let texels = object.texels(0);
        let channels = u32::try_from(object.channels).unwrap_or(1);
        match object.shape {
            Shape::Linear => {
                created.allocate(texels.len())?;
                // SAFETY: the memory has as many bytes as the texels.
                let done = unsafe {
                    cuda_sys::cuMemcpyHtoD_v2(created.memory, texels.as_ptr().cast(), texels.len())
                };
                check(done, "cuMemcpyHtoD")?;
                resource.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
                resource.res.linear.devPtr = created.memory;
                resource.res.linear.format = format(object.number, object.channels);
                resource.res.linear.numChannels = channels;
                resource.res.linear.sizeInBytes = texels.len();
            }
            Shape::Pitched => {
                let [width, height, _] = object.extent;
                created.allocate(PITCH * height)?;
                for (row, its) in texels.chunks_exact(width * object.texel()).enumerate() {
                    let to = created.memory + (row * PITCH) as u64;
                    // SAFETY: a row of the memory has more bytes than one of the texels.
                    let done =
                        unsafe { cuda_sys::cuMemcpyHtoD_v2(to, its.as_ptr().cast(), its.len()) };
                    check(done, "cuMemcpyHtoD")?;
                }
                resource.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
                resource.res.pitch2D.devPtr = created.memory;
                resource.res.pitch2D.format = format(object.number, object.channels);
                resource.res.pitch2D.numChannels = channels;
                resource.res.pitch2D.width = width;
                resource.res.pitch2D.height = height;
                resource.res.pitch2D.pitchInBytes = PITCH;
            }
            _ => {
                created.create_array(channels)?;
                for level in 0..object.levels {
                    created.copy(level, &mut object.texels(level), true)?;
                }
                if object.levels > 1 {
                    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
                    resource.res.mipmap.hMipmappedArray = created.mipmapped;
                } else {
                    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
                    resource.res.array.hArray = created.array;
                }
            }
        }
        created.handle = match &object.sampler {
            Some(sampler) => texture(&resource, sampler)?,
            None => surface(&resource)?,
        };
        Ok(created)
    }

    fn allocate(&mut self, size: usize) -> Result<(), String> {
        let place = from_mut(&mut self.memory);
        // SAFETY: the place is valid for a write.
        check(unsafe { cuda_sys::cuMemAlloc_v2(place, size) }, "cuMemAlloc")
    }

    fn create_array(&mut self, channels: u32) -> Result<(), String> {
        let object = &self.object;
        let shape = match object.shape {
            Shape::OneDLayered | Shape::TwoDLayered => CUDA_ARRAY3D_LAYERED,
            Shape::Cubemap => CUDA_ARRAY3D_CUBEMAP,
            Shape::CubemapLayered => CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED,
            _ => 0,
        };
        let surface = if object.sampler.is_none() { CUDA_ARRAY3D_SURFACE_LDST } else { 0 };
        let gather = if object.is_gathered { CUDA_ARRAY3D_TEXTURE_GATHER } else { 0 };
        let [width, height, depth] = object.extent;
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format(object.number, object.channels),
            NumChannels: channels,
            Flags: shape | surface | gather,
        };
        let descriptor = from_ref(&descriptor);
        if object.levels == 1 {
            let place = from_mut(&mut self.array);
            // SAFETY: the place is valid for a write, and the descriptor for a read.
            let done = unsafe { cuda_sys::cuArray3DCreate_v2(place, descriptor) };
            return check(done, "cuArray3DCreate");
        }
        let levels = u32::try_from(object.levels).unwrap_or(1);
        let place = from_mut(&mut self.mipmapped);
        // SAFETY: the place is valid for a write, and the descriptor for a read.
        let done = unsafe { cuda_sys::cuMipmappedArrayCreate(place, descriptor, levels) };
        check(done, "cuMipmappedArrayCreate")
    }

    /// Returns the array of a level.
    fn level(&self, level: usize) -> Result<CUarray, String> {
        if self.mipmapped.is_null() {
            return Ok(self.array);
        }
        let mut array = null_mut();
        let (place, level) = (from_mut(&mut array), u32::try_from(level).unwrap_or(0));
        // SAFETY: the place is valid for a write, and the array is alive.
        let done = unsafe { cuda_sys::cuMipmappedArrayGetLevel(place, self.mipmapped, level) };
        check(done, "cuMipmappedArrayGetLevel").map(|()| array)
    }

    /// Copies all texels of a level.
    fn copy(&self, level: usize, texels: &mut [u8], is_in: bool) -> Result<(), String> {
        let [width, height, depth] = self.object.extent_of(level).map(|extent| extent.max(1));
        let row = width * self.object.texel();
        let mut copy = CUDA_MEMCPY3D::zeroed();
        if is_in {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            copy.srcHost = texels.as_ptr().cast();
            (copy.srcPitch, copy.srcHeight) = (row, height);
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
            copy.dstArray = self.level(level)?;
        } else {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
            copy.srcArray = self.level(level)?;
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            copy.dstHost = texels.as_mut_ptr().cast::<c_void>();
            (copy.dstPitch, copy.dstHeight) = (row, height);
        }
        (copy.WidthInBytes, copy.Height, copy.Depth) = (row, height, depth);
        // SAFETY: the texels have as many bytes as the level.
        check(unsafe { cuda_sys::cuMemcpy3D_v2(&raw const copy) }, "cuMemcpy3D")
    }

    /// Returns the texels of a surface.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        let mut texels = self.object.texels(0);
        self.copy(0, &mut texels, false)?;
        Ok(texels)
    }
}

fn texture(resource: &CUDA_RESOURCE_DESC, sampler: &Sampler) -> Result<u64, String> {
    let mode = |is_linear: bool| match is_linear {
        true => CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
        false => CUfilter_mode::CU_TR_FILTER_MODE_POINT,
    };
    let description = CUDA_TEXTURE_DESC {
        addressMode: sampler.modes.map(CUaddress_mode),
        filterMode: mode(sampler.is_linear),
        flags: sampler.flags,
        maxAnisotropy: sampler.anisotropy,
        mipmapFilterMode: mode(sampler.is_mipmap_linear),
        mipmapLevelBias: sampler.bias,
        minMipmapLevelClamp: sampler.levels[0],
        maxMipmapLevelClamp: sampler.levels[1],
        borderColor: sampler.border,
        reserved: [0; 12],
    };
    let mut handle = 0;
    let (place, resource, how) =
        (from_mut(&mut handle), from_ref(resource), from_ref(&description));
    // SAFETY: the place is valid for a write, and the descriptions for reads.
    let done = unsafe { cuda_sys::cuTexObjectCreate(place, resource, how, null()) };
    check(done, "cuTexObjectCreate").map(|()| handle)
}

fn surface(resource: &CUDA_RESOURCE_DESC) -> Result<u64, String> {
    let mut handle = 0;
    let (place, resource) = (from_mut(&mut handle), from_ref(resource));
    // SAFETY: the place is valid for a write, and the description for a read.
    let done = unsafe { cuda_sys::cuSurfObjectCreate(place, resource) };
    check(done, "cuSurfObjectCreate").map(|()| handle)
}
