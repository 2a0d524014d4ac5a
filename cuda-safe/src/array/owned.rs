//! Arrays that are owned.

use super::array_error;
use super::shape::{ArrayDescriptor, ArrayOptions, ArrayShape, check_array};
use super::texel::{Texel, check_texel};
use crate::call::{
    Extent, Invalid, Ownership, Result, answer, call, convert, copy, debug, debug_struct,
    expect_handle, out, out_without_current, refuse_if,
};
use crate::capture_state::Operation;
use crate::memory::copy::volume::Side;
use crate::release::{self, Destroy, Handle, destroy, relaxed, release};
use crate::stream::{Stream, same_context};
use cuda_sys::{CUarray, CUmipmappedArray, Zeroable};
use std::any::Any;
use std::marker::PhantomData;

/// A CUDA array: device memory in a layout of the driver, which kernels access through a
/// [`Texture`](super::Texture) or a [`Surface`](super::Surface). Bound to a stream, as a
/// [`DeviceBuffer`](crate::DeviceBuffer) is.
///
/// The type [`T`](Texel) of the texels determines the format and the number of channels. The memory has no
/// address: copies fill and read it. [`as_ref`](Self::as_ref) and [`as_mut`](Self::as_mut) have the copies
/// of parts.
///
/// # Drop
/// Destroying an array waits for *all* work of the context (`cuArrayDestroy`), as freeing a
/// [synchronous allocation](crate::DeviceBuffer::zeroed_sync) does. In a host function and during a
/// capture, where that is not possible, it is [deferred](crate::reference::releases).
///
/// ```no_run
/// use cuda_safe::array::{Array, ArrayShape, Sampler, Texture};
/// use cuda_safe::{Context, Device};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let shape = ArrayShape::TwoD { width: 64, height: 32 };
/// let mut image = Array::<[u8; 4]>::new(&stream, shape)?;
/// image.copy_from_slice(&[[0, 0, 0, 255]; 64 * 32])?;
/// let texture = Texture::new(&image, &Sampler::default())?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Array<T> {
    owner: Owner<CUarray>,
    shape: ArrayShape,
    options: ArrayOptions,
    texels: PhantomData<T>,
}

/// A handle that is bound to a stream, and destroyed after the work on it if it is owned.
struct Owner<P: Copy>
where
    Handle<P>: Destroy,
{
    raw: Handle<P>,
    ownership: Ownership,
    stream: Stream,
}

impl<P: Copy> Owner<P>
where
    Handle<P>: Destroy,
{
    fn new(raw: P, ownership: Ownership, stream: &Stream) -> Self {
        Self { raw: Handle(raw), ownership, stream: stream.clone() }
    }

    /// Releases ownership. A foreign owner is never dropped.
    fn into_raw(mut self) -> (P, Stream) {
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Borrowed));
        (self.raw.0, self.stream.clone())
    }

    /// Orders the work of another stream after that of this stream, which it replaces.
    ///
    /// # Errors
    /// See [`Array::rebind`].
    fn rebind(&mut self, to: &Stream, is_owned: bool) -> Result<()> {
        if self.stream == *to {
            return Ok(());
        }
        let context = self.stream.context();
        same_context("the stream", to.context(), context)?;
        refuse_if!(!is_owned, Invalid::ForeignMemory);
        let event = context.event()?;
        event.record_uncaptured(&self.stream)?;
        to.wait_private(&event)?;
        self.stream = to.clone();
        Ok(())
    }
}

impl<P: Copy> Drop for Owner<P>
where
    Handle<P>: Destroy,
{
    fn drop(&mut self) {
        if self.ownership.is_owned() {
            release(self.raw, &self.stream);
        }
    }
}

impl<T: Texel> Array<T> {
    /// Creates an array for textures. The texels are not initialized.
    ///
    /// Calls `cuArray3DCreate(&array, &descriptor)`.
    ///
    /// # Errors
    /// - [`Invalid::Array`] if a dimension is 0 or exceeds the limit of the device. The driver accepts some
    ///   arrays that are too large.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// Since CUDA 3.2. Raw: [`cuArray3DCreate_v2`](fn@cuda_sys::cuArray3DCreate_v2),
    /// [`cuArrayDestroy`](fn@cuda_sys::cuArrayDestroy).
    #[doc(alias = "cuArray3DCreate", alias = "cuArrayDestroy")]
    pub fn new(stream: &Stream, shape: ArrayShape) -> Result<Self> {
        Self::with(stream, shape, ArrayOptions::default())
    }

    /// Creates an array with options. The texels are not initialized.
    ///
    /// # Errors
    /// See [`new`](Self::new). In addition: [`Invalid::Array`] if the option
    /// [`gather`](ArrayOptions::gather) is set for another shape than [`ArrayShape::TwoD`].
    pub fn with(stream: &Stream, shape: ArrayShape, options: ArrayOptions) -> Result<Self> {
        check_texel::<T>();
        check_array(&stream.context().device(), shape, options, false)?;
        let descriptor = shape.descriptor::<T>(options);
        let from = &raw const descriptor;
        // SAFETY: the pointers refer to variables, and the context of the stream is current.
        let raw = create(stream, |place| unsafe { call!(cuArray3DCreate_v2(place, from)) })
            .map_err(|error| error.with_requested_bytes(shape.bytes::<T>()))?;
        Ok(Self::own(raw, shape, options, Ownership::Owned, stream))
    }

    fn own(
        raw: CUarray,
        shape: ArrayShape,
        options: ArrayOptions,
        ownership: Ownership,
        stream: &Stream,
    ) -> Self {
        let owner = Owner::new(raw, ownership, stream);
        Self { owner, shape, options, texels: PhantomData }
    }

    /// Uses an array that this object never destroys.
    pub(super) fn borrow(
        raw: CUarray,
        shape: ArrayShape,
        options: ArrayOptions,
        stream: &Stream,
    ) -> Self {
        Self::own(raw, shape, options, Ownership::Borrowed, stream)
    }

    /// Takes ownership of an array. Queries its shape (`cuArray3DGetDescriptor`).
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the handle is null; [`Invalid::Array`] if the texels do not have the type `T`;
    /// errors of the driver. The caller then keeps ownership.
    ///
    /// # Safety
    /// - `raw` is an array of the context of the stream. It is not a level of a mipmapped array, and it has
    ///   all of its memory: it is neither sparse nor mapped later.
    /// - No other code destroys or uses the array.
    /// - All previous uses of the array, which may be on other streams, are ordered before the work that is
    ///   enqueued on `stream` from now on.
    pub unsafe fn from_raw(raw: CUarray, stream: &Stream) -> Result<Self> {
        // SAFETY: the caller promises a valid array.
        unsafe { Self::of_raw(raw, Ownership::Owned, stream) }
    }

    /// Borrows an array that other code owns. The array is never destroyed by this object.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// The requirements of [`from_raw`](Self::from_raw) apply, except that the array may be a level of a
    /// mipmapped array. It stays alive, and no other code uses it, until this object has been dropped and
    /// the work enqueued on `stream` before the drop has completed.
    pub unsafe fn borrow_raw(raw: CUarray, stream: &Stream) -> Result<Self> {
        // SAFETY: the caller promises a valid array.
        unsafe { Self::of_raw(raw, Ownership::Borrowed, stream) }
    }

    /// Uses an array that `owner` keeps alive. Dropping this drops `owner`.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw). `owner` is then dropped.
    ///
    /// # Safety
    /// The requirements of [`borrow_raw`](Self::borrow_raw) apply, except that `owner` keeps the array
    /// alive. In addition, `owner` may be dropped on any thread and at any time, also in host functions and
    /// captures, and dropping it waits for the work enqueued on `stream` before, or is ordered after it.
    pub unsafe fn from_foreign(
        raw: CUarray,
        stream: &Stream,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        let owner = Ownership::Foreign(Box::new(owner));
        // SAFETY: the caller promises a valid array, which the owner keeps alive.
        unsafe { Self::of_raw(raw, owner, stream) }
    }

    /// # Safety
    /// The handle is null or an array.
    unsafe fn of_raw(raw: CUarray, ownership: Ownership, stream: &Stream) -> Result<Self> {
        check_texel::<T>();
        expect_handle("array", raw)?;
        // SAFETY: the handle is an array, as the caller promises.
        let its = unsafe { descriptor_of(raw, stream) }?;
        its.expect_texels::<T>()?;
        Ok(Self::own(raw, its.shape, its.options, ownership, stream))
    }
}

impl<T> Array<T> {
    /// Returns the raw handle without giving up ownership. Do not destroy it.
    pub fn as_raw(&self) -> CUarray {
        self.owner.raw.0
    }

    /// Releases ownership and returns the handle and the stream. The caller destroys the array
    /// (`cuArrayDestroy`) while its context is alive. A foreign owner is never dropped.
    pub fn into_raw(self) -> (CUarray, Stream) {
        self.owner.into_raw()
    }

    /// Returns the dimensions.
    pub fn shape(&self) -> ArrayShape {
        self.shape
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.options
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Returns whether the array has no texels. No array of this crate is empty.
    pub fn is_empty(&self) -> bool {
        self.as_ref().is_empty()
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &Stream {
        &self.owner.stream
    }

    /// Queries the shape, the format and the flags of the array. Calls `cuArray3DGetDescriptor`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuArray3DGetDescriptor_v2`](fn@cuda_sys::cuArray3DGetDescriptor_v2).
    #[doc(alias = "cuArray3DGetDescriptor")]
    pub fn descriptor(&self) -> Result<ArrayDescriptor> {
        // SAFETY: the array is alive.
        unsafe { descriptor_of(self.as_raw(), self.stream()) }
    }

    /// Borrows the array for reading.
    pub fn as_ref(&self) -> ArrayRef<'_, T> {
        ArrayRef::new(self.owner.raw, self.shape, self.options, self.stream())
    }

    /// Borrows the array for reading and writing.
    pub fn as_mut(&mut self) -> ArrayMut<'_, T> {
        ArrayMut::new(self.as_ref())
    }

    /// Binds the array to another stream of the context. Makes that stream wait for the work enqueued
    /// before (`cuEventRecord`, `cuStreamWaitEvent`). Does not block the host.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`]; [`Invalid::ForeignMemory`] if the array is
    /// not owned, because its lifetime was promised for the stream. The array stays bound to its stream.
    pub fn rebind(&mut self, stream: &Stream) -> Result<()> {
        self.owner.rebind(stream, self.owner.ownership.is_owned())
    }

    /// Does the same as [`rebind`](Self::rebind), also if the array is not owned.
    ///
    /// # Errors
    /// See [`rebind`](Self::rebind).
    pub(super) fn follow(&mut self, stream: &Stream) -> Result<()> {
        self.owner.rebind(stream, true)
    }
}

/// Returns the handle that a call creates, with the context of the stream current. Captures of other streams are
/// not disturbed.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`]; errors of the call.
pub(crate) fn create<T: Zeroable>(
    stream: &Stream,
    create: impl FnOnce(*mut T) -> Result<()>,
) -> Result<T> {
    release::drain();
    let _call = stream.uncaptured(Operation::Allocate)?;
    let _current = stream.context().enter()?;
    relaxed(|| out(create))
}

/// # Safety
/// The handle is an array.
#[inline]
pub(super) unsafe fn descriptor_of(raw: CUarray, stream: &Stream) -> Result<ArrayDescriptor> {
    // SAFETY: the handle is an array, as the caller promises, and `out` passes a valid pointer.
    let descriptor = out_without_current(stream.context(), |place| unsafe {
        answer!(cuArray3DGetDescriptor_v2(place, raw))
    })?;
    Ok(ArrayDescriptor::from_raw(&descriptor))
}

destroy! {
    Handle<CUarray> as "a CUDA array", after Uses;
    // SAFETY: this value stands for the array, and the caller promises that this is the first call. The
    // work on its stream was waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuArrayDestroy(its.0)) }
}

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
    owner: Owner<CUmipmappedArray>,
    levels: Vec<Handle<CUarray>>,
    shape: ArrayShape,
    options: ArrayOptions,
    texels: PhantomData<T>,
}

impl<T: Texel> MipmappedArray<T> {
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
    #[doc(alias = "cuMipmappedArrayCreate", alias = "cuMipmappedArrayGetLevel")]
    #[doc(alias = "cuMipmappedArrayDestroy")]
    pub fn new(stream: &Stream, shape: ArrayShape, levels: u32) -> Result<Self> {
        Self::with(stream, shape, levels, ArrayOptions::default())
    }

    /// Creates a mipmapped array with options. The texels are not initialized.
    ///
    /// # Errors
    /// See [`new`](Self::new) and [`Array::with`](super::Array::with).
    pub fn with(
        stream: &Stream,
        shape: ArrayShape,
        levels: u32,
        options: ArrayOptions,
    ) -> Result<Self> {
        check_texel::<T>();
        check_mipmapped(stream, shape, levels, options)?;
        let descriptor = shape.descriptor::<T>(options);
        let from = &raw const descriptor;
        let raw = create(stream, |place| {
            // SAFETY: the pointers refer to variables, and the context of the stream is current.
            unsafe { call!(cuMipmappedArrayCreate(place, from, levels)) }
        })
        .map_err(|error| {
            let bytes = (0..levels).map(|level| shape.level(level).bytes::<T>());
            error.with_requested_bytes(bytes.fold(0, usize::saturating_add))
        })?;
        // Owned from here on, so errors destroy it.
        let owner = Owner::new(raw, Ownership::Owned, stream);
        let mut array = Self { owner, levels: Vec::new(), shape, options, texels: PhantomData };
        array.find_levels(levels)?;
        Ok(array)
    }

    /// Takes ownership of a mipmapped array with this number of levels. Queries the levels
    /// (`cuMipmappedArrayGetLevel`) and the shape of the first one (`cuArray3DGetDescriptor`).
    ///
    /// # Errors
    /// - [`Invalid::Handle`](crate::Invalid::Handle) if the handle is null.
    /// - [`Invalid::Array`](crate::Invalid::Array) if the texels do not have the type `T`, or if the shape
    ///   does not have as many levels.
    /// - Errors of the driver. The caller keeps ownership in all these cases.
    ///
    /// # Safety
    /// - `raw` is a mipmapped array of the context of the stream, with at least this number of levels. It
    ///   has all of its memory: it is neither sparse nor mapped later.
    /// - No other code destroys or uses the array.
    /// - All previous uses of the array, which may be on other streams, are ordered before the work that is
    ///   enqueued on `stream` from now on.
    pub unsafe fn from_raw(raw: CUmipmappedArray, levels: u32, stream: &Stream) -> Result<Self> {
        // SAFETY: the caller promises a valid array.
        unsafe { Self::of_raw(raw, levels, Ownership::Owned, stream) }
    }

    /// Borrows a mipmapped array that other code owns. The array is never destroyed by this object.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// The requirements of [`from_raw`](Self::from_raw) apply. The array stays alive, and no other code uses
    /// it, until this object has been dropped and the work enqueued on `stream` before the drop has
    /// completed.
    pub unsafe fn borrow_raw(raw: CUmipmappedArray, levels: u32, stream: &Stream) -> Result<Self> {
        // SAFETY: the caller promises a valid array.
        unsafe { Self::of_raw(raw, levels, Ownership::Borrowed, stream) }
    }

    /// Uses a mipmapped array that `owner` keeps alive. Dropping this drops `owner`.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw). `owner` is then dropped.
    ///
    /// # Safety
    /// The requirements of [`borrow_raw`](Self::borrow_raw) apply, except that `owner` keeps the array
    /// alive. In addition, `owner` may be dropped on any thread and at any time, also in host functions and
    /// captures, and dropping it waits for the work enqueued on `stream` before, or is ordered after it.
    pub unsafe fn from_foreign(
        raw: CUmipmappedArray,
        levels: u32,
        stream: &Stream,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        let owner = Ownership::Foreign(Box::new(owner));
        // SAFETY: the caller promises a valid array, which the owner keeps alive.
        unsafe { Self::of_raw(raw, levels, owner, stream) }
    }

    /// # Safety
    /// The handle is null or a mipmapped array with this number of levels.
    unsafe fn of_raw(
        raw: CUmipmappedArray,
        levels: u32,
        ownership: Ownership,
        stream: &Stream,
    ) -> Result<Self> {
        check_texel::<T>();
        expect_handle("mipmapped array", raw)?;
        // Not owned until everything is known, so errors do not destroy it.
        let mut array = Self {
            owner: Owner::new(raw, Ownership::Borrowed, stream),
            levels: Vec::new(),
            shape: ArrayShape::OneD { width: 1 },
            options: ArrayOptions::default(),
            texels: PhantomData,
        };
        array.find_levels(levels)?;
        let Some(first) = array.levels.first() else {
            return Err(array_error("the number of levels", "0 is less than 1"));
        };
        // SAFETY: the first level is an array as long as the mipmapped array is alive.
        let its = unsafe { descriptor_of(first.0, stream) }?;
        its.expect_texels::<T>()?;
        check_levels(its.shape, levels)?;
        (array.shape, array.options) = (its.shape, its.options);
        array.owner.ownership = ownership;
        Ok(array)
    }

    fn find_levels(&mut self, levels: u32) -> Result<()> {
        let array = self.as_raw();
        for level in 0..levels {
            // SAFETY: the array is alive, and the pointer is valid.
            let level = out_without_current(self.stream().context(), |place| unsafe {
                answer!(cuMipmappedArrayGetLevel(place, array, level))
            })?;
            self.levels.push(Handle(level));
        }
        Ok(())
    }
}

impl<T> MipmappedArray<T> {
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
        Ok(ArrayRef::new(*raw, shape, self.options, self.stream()))
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
        &self.owner.stream
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    pub fn as_raw(&self) -> CUmipmappedArray {
        self.owner.raw.0
    }

    /// Releases ownership and returns the handle and the stream. The caller destroys the array
    /// (`cuMipmappedArrayDestroy`) while its context is alive. A foreign owner is never dropped.
    pub fn into_raw(self) -> (CUmipmappedArray, Stream) {
        self.owner.into_raw()
    }

    /// Binds the array to another stream of the context. Makes that stream wait for the work enqueued
    /// before (`cuEventRecord`, `cuStreamWaitEvent`). Does not block the host.
    ///
    /// # Errors
    /// See [`Array::rebind`](super::Array::rebind).
    pub fn rebind(&mut self, stream: &Stream) -> Result<()> {
        self.owner.rebind(stream, self.owner.ownership.is_owned())
    }
}

/// Checks the dimensions and the number of levels of a new mipmapped array.
///
/// # Errors
/// [`Invalid::Array`](crate::Invalid::Array); errors of the driver.
#[inline]
pub(crate) fn check_mipmapped(
    stream: &Stream,
    shape: ArrayShape,
    levels: u32,
    options: ArrayOptions,
) -> Result<()> {
    check_array(&stream.context().device(), shape, options, true)?;
    check_levels(shape, levels)
}

/// # Errors
/// [`Invalid::Array`](crate::Invalid::Array) if the shape does not have this number of levels.
#[inline]
fn check_levels(shape: ArrayShape, levels: u32) -> Result<()> {
    let most = shape.max_levels();
    if (1..=most).contains(&levels) {
        return Ok(());
    }
    let problem = format!("{levels} is not between 1 and {most}, the most for {shape:?}");
    Err(array_error("the number of levels", problem))
}

destroy! {
    Handle<CUmipmappedArray> as "a mipmapped CUDA array", after Uses;
    // SAFETY: this value stands for the array, and the caller promises that this is the first call. The
    // work on its stream was waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuMipmappedArrayDestroy(its.0)) }
}

/// A borrowed [`Array`], a level of a [`MipmappedArray`], or a part of one, for reading.
///
/// It is bound to the stream of the array. Functions that take `impl Into<ArrayRef>` also accept
/// `&Array`.
pub struct ArrayRef<'a, T> {
    raw: Handle<CUarray>,
    /// The first texel.
    at: [usize; 3],
    extent: Extent,
    /// The shape of the whole array or level.
    shape: ArrayShape,
    options: ArrayOptions,
    stream: &'a Stream,
    texels: PhantomData<&'a T>,
}

/// A mutably borrowed [`Array`], a level of a [`MipmappedArray`], or a part of one.
///
/// It is bound to the stream of the array.
pub struct ArrayMut<'a, T> {
    whole: ArrayRef<'a, T>,
    texels: PhantomData<&'a mut T>,
}

impl<'a, T> ArrayRef<'a, T> {
    pub(super) fn new(
        raw: Handle<CUarray>,
        shape: ArrayShape,
        options: ArrayOptions,
        stream: &'a Stream,
    ) -> Self {
        Self {
            raw,
            at: [0; 3],
            extent: shape.extent(),
            shape,
            options,
            stream,
            texels: PhantomData,
        }
    }

    /// Returns a part of this: the texels from `[x, y, z]` on. Layers and faces are slices, which `z`
    /// counts.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if the part is not within this.
    pub fn part(mut self, [x, y, z]: [usize; 3], extent: Extent) -> Result<Self> {
        let whole = self.extent;
        let fits = |at: usize, len: usize, all| at.checked_add(len).is_some_and(|end| end <= all);
        if !fits(x, extent.width, whole.width)
            || !fits(y, extent.height, whole.height)
            || !fits(z, extent.depth, whole.depth)
        {
            let problem = format!("{extent:?} at {:?} is not within {whole:?}", [x, y, z]);
            return Err(array_error("the part", problem));
        }
        self.at = [self.at[0] + x, self.at[1] + y, self.at[2] + z];
        self.extent = extent;
        Ok(self)
    }

    /// Returns the number of texels along each dimension.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the shape of the whole array or level.
    pub fn shape(&self) -> ArrayShape {
        self.shape
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.options
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.extent.width * self.extent.height * self.extent.depth
    }

    /// Returns whether there are no texels.
    pub fn is_empty(&self) -> bool {
        self.extent.is_empty()
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Returns the raw handle of the array or level. Do not destroy it.
    pub fn as_raw(&self) -> CUarray {
        self.raw.0
    }

    /// Returns the position of the first texel in the array or level.
    pub(super) fn side(&self) -> Side {
        Side::of_array(self.raw.0, self.at)
    }

    /// Checks the extent of the source of a copy to texels with the extent `target`.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array).
    pub(crate) fn expect_extent(&self, target: Extent) -> Result<()> {
        if self.extent == target {
            return Ok(());
        }
        let problem = format!("{:?} is copied to {target:?}", self.extent);
        Err(array_error("the extent of the source", problem))
    }

    /// Checks that this is the whole array or level, as the objects of kernels require.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array).
    pub(super) fn expect_whole(&self) -> Result<()> {
        if self.extent == self.shape.extent() {
            return Ok(());
        }
        let problem = "a texture or surface object accesses a whole array or level";
        Err(array_error("the part", problem))
    }
}

impl<'a, T> ArrayMut<'a, T> {
    pub(super) fn new(whole: ArrayRef<'a, T>) -> Self {
        Self { whole, texels: PhantomData }
    }

    /// Borrows the same texels for reading.
    pub fn as_ref(&self) -> ArrayRef<'_, T> {
        self.whole
    }

    /// Borrows the same texels for reading and writing, with a shorter lifetime.
    pub fn reborrow(&mut self) -> ArrayMut<'_, T> {
        ArrayMut::new(self.whole)
    }

    /// Returns a part of this. See [`ArrayRef::part`].
    ///
    /// # Errors
    /// See [`ArrayRef::part`].
    pub fn part(self, at: [usize; 3], extent: Extent) -> Result<Self> {
        Ok(Self::new(self.whole.part(at, extent)?))
    }

    /// Returns the number of texels along each dimension.
    pub fn extent(&self) -> Extent {
        self.whole.extent
    }

    /// Returns the shape of the whole array or level.
    pub fn shape(&self) -> ArrayShape {
        self.whole.shape
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.whole.options
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Returns whether there are no texels.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.whole.stream
    }

    /// Returns the raw handle of the array or level. Do not destroy it.
    pub fn as_raw(&self) -> CUarray {
        self.whole.raw.0
    }
}

copy! { [T] ArrayRef<'_, T> }

convert! {
    ['a, T] |array: &'a Array<T>| -> ArrayRef<'a, T> { array.as_ref() }
    ['a, T] |array: ArrayMut<'a, T>| -> ArrayRef<'a, T> { array.whole }
    ['a, T] |array: &'a mut Array<T>| -> ArrayMut<'a, T> { array.as_mut() }
}

debug_struct! {
    [T] ArrayRef<'_, T> |its| {
        raw: its.raw.0, texel: std::any::type_name::<T>(), shape: its.shape, at: its.at, extent: its.extent,
        stream: its.stream, ..
    }
}

debug! { [T] ArrayMut<'_, T> |its, f| f.debug_tuple("ArrayMut").field(&its.whole).finish() }

debug! { [T] Array<T> |its, f| f.debug_tuple("Array").field(&its.as_ref()).finish() }

debug_struct! {
    [T] MipmappedArray<T> |its| {
        raw: its.as_raw(), texel: std::any::type_name::<T>(), shape: its.shape(), levels: its.levels(),
        stream: its.stream(), ..
    }
}
