//! Images of external memory.

use super::memory::ExternalMemory;
use crate::array::{
    ArrayOptions, ArrayShape, MipmappedArray, Texel, check_mipmapped, create_array,
};
use crate::call::{Result, answer, call};
use crate::release::{Handle, Keep, destroy, release};
use crate::stream::{Stream, same_context};
use cuda_sys::{
    CUDA_ARRAY3D_COLOR_ATTACHMENT, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUmipmappedArray,
    Zeroable,
};

/// Options for [`ExternalMemory::map_image`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImageOptions {
    /// The offset of the image in the allocation, in bytes. It is 0 in a dedicated allocation.
    pub offset: usize,
    /// The options of the array.
    pub array: ArrayOptions,
    /// Whether the other API renders to the image (`VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT`). It must be true exactly
    /// then.
    pub color_attachment: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl ExternalMemory {
    /// Maps an image with this number of levels. Calls `cuExternalMemoryGetMappedMipmappedArray`.
    ///
    /// The image has the optimal layout (`VK_IMAGE_TILING_OPTIMAL`). Its allocation may have to be
    /// [dedicated](super::ExternalMemoryOptions::dedicated). An image with a linear layout is
    /// [mapped](Self::map) as a range.
    ///
    /// The array keeps the memory, and stays bound to its stream: [`MipmappedArray::rebind`] is an error. Dropping it
    /// waits for the work on the stream (`cuMipmappedArrayDestroy`).
    ///
    /// # Errors
    /// - [`Invalid::Array`](crate::Invalid::Array) if the shape exceeds a limit of the device or does not have as
    ///   many levels.
    /// - [`Invalid::OtherContext`](crate::Invalid::OtherContext);
    ///   [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - `CUDA_ERROR_INVALID_VALUE` if the image does not fit in the allocation.
    ///
    /// # Safety
    /// - The texels, the shape, the levels and the options are those of the image that the other API has bound to the
    ///   memory at this offset. The driver (580) checks only that they fit in the memory.
    /// - The accesses of the other API are ordered as [`ExternalMapping::into_buffer`] requires. The contents are
    ///   defined only after the other API has released the image: in Vulkan, by a barrier to
    ///   `VK_QUEUE_FAMILY_EXTERNAL`, in the layout `VK_IMAGE_LAYOUT_GENERAL`.
    ///
    /// [`ExternalMapping::into_buffer`]: super::ExternalMapping::into_buffer
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuExternalMemoryGetMappedMipmappedArray`](fn@cuda_sys::cuExternalMemoryGetMappedMipmappedArray),
    /// [`cuMipmappedArrayDestroy`](fn@cuda_sys::cuMipmappedArrayDestroy).
    #[doc(alias = "cuExternalMemoryGetMappedMipmappedArray", alias = "cuMipmappedArrayDestroy")]
    pub unsafe fn map_image<T: Texel>(
        &self,
        stream: &Stream,
        shape: ArrayShape,
        levels: u32,
        options: ImageOptions,
    ) -> Result<MipmappedArray<T>> {
        let ImageOptions { offset, array, color_attachment, _non_exhaustive: () } = options;
        same_context("the stream", stream.context(), self.context())?;
        check_mipmapped(stream, shape, levels, array)?;
        let mut description = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC::zeroed();
        (description.offset, description.numLevels) = (offset as u64, levels);
        description.arrayDesc = shape.descriptor::<T>(array);
        if color_attachment {
            description.arrayDesc.Flags |= CUDA_ARRAY3D_COLOR_ATTACHMENT;
        }
        let (raw, from) = (self.as_raw(), &raw const description);
        let raw = create_array(stream, |place| {
            // SAFETY: the import is alive, the pointers refer to variables, and the caller promises that the
            // memory has this image.
            unsafe { call!(cuExternalMemoryGetMappedMipmappedArray(place, raw, from)) }
        })?;
        let owner = Image { raw: Handle(raw), memory: self.clone(), stream: stream.clone() };
        // SAFETY: the array has just been created in the context of the stream, with this number of levels. The
        // owner destroys it after the work on the stream.
        unsafe { MipmappedArray::from_foreign(raw, levels, stream, owner) }
    }
}

/// The owner of a mapped image.
struct Image {
    raw: Handle<CUmipmappedArray>,
    memory: ExternalMemory,
    stream: Stream,
}

impl Drop for Image {
    #[inline]
    fn drop(&mut self) {
        release(MappedArray { raw: self.raw, memory: self.memory.clone() }, &self.stream);
    }
}

/// A mapped image, which keeps the memory.
struct MappedArray {
    raw: Handle<CUmipmappedArray>,
    memory: ExternalMemory,
}

destroy! {
    MappedArray as "a mapped image", after Uses, leaves MemoryInUse;
    // SAFETY: this value stands for the array, and the caller promises that this is the first call. The work on its
    // stream was waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuMipmappedArrayDestroy(its.raw.0)) };

    /// The work on the stream may still use the array, and the array uses the memory.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(self.memory.clone());
    }
}
