//! Mipmapped arrays.

use super::array_error;
use super::limits::check_array;
use super::owned::create;
use super::part::{ArrayMut, ArrayRef, RawArray};
use super::shape::{ArrayOptions, ArrayShape};
use super::texel::{Texel, check_texel};
use crate::base::call::{Answer, answer, call, without_current};
use crate::base::error::Result;
use crate::base::release::{self, After, Destroy, Handle, release};
use crate::driver::stream::Stream;
use cuda_sys::{CUarray, CUmipmappedArray};
use std::marker::PhantomData;

/// Several arrays of decreasing size, which one [`Texture`](super::Texture) samples: the levels. Bound to
/// a stream.
///
/// Every level has half the extent of the level before it, but at least one texel along each dimension.
/// Layers and faces are not halved.
///
/// # Drop
/// See [`Array`](super::Array) (`cuMipmappedArrayDestroy`).
///
/// ```no_run
/// use cuda_safe::array::{ArrayShape, MipmappedArray};
/// use cuda_safe::{Context, Device};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let shape = ArrayShape::TwoD { width: 8, height: 8 };
/// let mut image = MipmappedArray::<f32>::new(&stream, shape, shape.max_levels())?;
/// image.level_mut(0)?.copy_from_slice(&[1.0; 64])?;
/// image.level_mut(1)?.copy_from_slice(&[2.0; 16])?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct MipmappedArray<T> {
    raw: RawMipmapped,
    levels: Vec<RawArray>,
    shape: ArrayShape,
    options: ArrayOptions,
    stream: Stream,
    texels: PhantomData<T>,
}

/// The handle of a mipmapped array. The driver takes it on any thread.
#[derive(Clone, Copy)]
struct RawMipmapped(CUmipmappedArray);

// SAFETY: the pointer is only passed to the driver, which takes it on any thread.
unsafe impl Send for RawMipmapped {}
// SAFETY: as above, also from several threads at once.
unsafe impl Sync for RawMipmapped {}

impl<T> MipmappedArray<T> {
    /// Creates a mipmapped array for textures, with this number of levels. The texels are not initialized.
    ///
    /// Calls `cuMipmappedArrayCreate(&array, &descriptor, levels)`, and `cuMipmappedArrayGetLevel` for each
    /// level.
    ///
    /// # Errors
    /// - [`Invalid::Array`](crate::Invalid::Array) if the number of levels is 0 or more than
    ///   [`ArrayShape::max_levels`] (the driver would create another number of levels), or if a dimension is
    ///   0 or exceeds the limit of the device.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// Since CUDA 5.0. Raw: [`cuMipmappedArrayCreate`](fn@cuda_sys::cuMipmappedArrayCreate),
    /// [`cuMipmappedArrayGetLevel`](fn@cuda_sys::cuMipmappedArrayGetLevel),
    /// [`cuMipmappedArrayDestroy`](fn@cuda_sys::cuMipmappedArrayDestroy).
    #[doc(alias = "cuMipmappedArrayCreate")]
    #[doc(alias = "cuMipmappedArrayGetLevel")]
    #[doc(alias = "cuMipmappedArrayDestroy")]
    pub fn new(stream: &Stream, shape: ArrayShape, levels: u32) -> Result<Self>
    where
        T: Texel,
    {
        Self::with_options(stream, shape, levels, ArrayOptions::default())
    }

    /// Creates a mipmapped array with options. The texels are not initialized.
    ///
    /// # Errors
    /// See [`new`](Self::new) and [`Array::with_options`](super::Array::with_options).
    pub fn with_options(
        stream: &Stream,
        shape: ArrayShape,
        levels: u32,
        options: ArrayOptions,
    ) -> Result<Self>
    where
        T: Texel,
    {
        check_texel::<T>();
        release::drain();
        check_array(&stream.context().device(), shape, options, true)?;
        let most = shape.max_levels();
        if !(1..=most).contains(&levels) {
            let problem = format!("{levels} is not between 1 and {most}, the most for {shape:?}");
            return Err(array_error("the number of levels", problem));
        }
        let descriptor = shape.descriptor::<T>(options);
        let mut raw = std::ptr::null_mut();
        create(stream, || {
            let (place, from) = (&raw mut raw, &raw const descriptor);
            // SAFETY: the pointers refer to local variables, and the context of the stream is current.
            unsafe { call!(cuMipmappedArrayCreate(place, from, levels)) }
        })
        .map_err(|error| {
            let bytes = (0..levels).map(|level| shape.level(level).bytes::<T>());
            error.with_requested_bytes(bytes.fold(0, usize::saturating_add))
        })?;
        // Owned from here on, so errors destroy it.
        let mut array = Self {
            raw: RawMipmapped(raw),
            levels: Vec::new(),
            shape,
            options,
            stream: stream.clone(),
            texels: PhantomData,
        };
        for level in 0..levels {
            let level = array.find_level(level)?;
            array.levels.push(RawArray(level));
        }
        Ok(array)
    }

    fn find_level(&self, level: u32) -> Result<CUarray> {
        let mut raw = std::ptr::null_mut();
        let (place, array) = (&raw mut raw, self.raw.0);
        without_current(self.stream.context(), || {
            // SAFETY: the array is alive, and the pointer refers to a local variable.
            unsafe { answer!(cuMipmappedArrayGetLevel(place, array, level)) }
        })?;
        Ok(raw)
    }

    /// Borrows a level for reading. Level 0 is the largest.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if there is no such level.
    pub fn level(&self, level: u32) -> Result<ArrayRef<'_, T>> {
        let Some(raw) = self.levels.get(level as usize) else {
            let problem = format!("there is no level {level}: the array has {}", self.levels());
            return Err(array_error("the level", problem));
        };
        let shape = self.shape.level(level);
        Ok(ArrayRef::new(*raw, shape, self.options, &self.stream))
    }

    /// Borrows a level for reading and writing. Level 0 is the largest.
    ///
    /// # Errors
    /// See [`level`](Self::level).
    pub fn level_mut(&mut self, level: u32) -> Result<ArrayMut<'_, T>> {
        Ok(ArrayMut::new(self.level(level)?))
    }

    /// Returns the number of levels.
    pub fn levels(&self) -> u32 {
        // At most 32 levels were requested.
        u32::try_from(self.levels.len()).unwrap_or(u32::MAX)
    }

    /// Returns the dimensions of the largest level.
    pub fn shape(&self) -> ArrayShape {
        self.shape
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.options
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    pub fn as_raw(&self) -> CUmipmappedArray {
        self.raw.0
    }
}

impl Destroy for Handle<CUmipmappedArray> {
    fn name(&self) -> &'static str {
        "a mipmapped CUDA array"
    }

    unsafe fn destroy(&self) -> Answer {
        // SAFETY: this value stands for the array, and the caller promises that this is the first call. The
        // work on its stream was waited for, and the driver waits for all other work.
        unsafe { answer!(cuMipmappedArrayDestroy(self.0)) }
    }

    fn after(&self) -> After {
        After::Uses
    }
}

impl<T> Drop for MipmappedArray<T> {
    fn drop(&mut self) {
        release(Handle(self.raw.0), &self.stream);
    }
}
