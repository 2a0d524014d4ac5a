//! Resources of OpenGL and VDPAU: registrations, and mappings for a time.

use super::memory::create;
use crate::array::{Array, ArrayMut, MipmappedArray, Texel, array_error};
use crate::call::{Invalid, Result, answer, c_enum, call, debug_struct, expect_handle, refuse_if};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::memory::buffer::allocation::Release;
use crate::memory::{DeviceBuffer, DeviceSliceMut};
use crate::release::{self, Handle, Keep, OwnThread, destroy, relaxed, release};
use crate::stream::{Stream, same_context};
use cuda_sys::{CUgraphicsMapResourceFlags, CUgraphicsRegisterFlags, CUgraphicsResource, CUstream};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

c_enum! {
    /// What CUDA does with a resource while it is mapped (`CUgraphicsMapResourceFlags`). It is a hint, which nothing
    /// checks.
    #[derive(Default)]
    #[non_exhaustive]
    pub enum AccessHint = CUgraphicsMapResourceFlags {
        /// Kernels read and write the resource.
        #[default]
        ReadWrite = CU_GRAPHICS_MAP_RESOURCE_FLAGS_NONE,
        /// Kernels only read the resource.
        ReadOnly = CU_GRAPHICS_MAP_RESOURCE_FLAGS_READ_ONLY,
        /// Kernels write the whole resource and read nothing that was in it before. Its contents are undefined when a
        /// mapping begins.
        WriteDiscard = CU_GRAPHICS_MAP_RESOURCE_FLAGS_WRITE_DISCARD,
    }
}

/// Options for the registration of images.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisteredImageOptions {
    /// What CUDA does with the image.
    pub access: AccessHint,
    /// Whether kernels write the image as a [`Surface`](crate::array::Surface).
    pub surface: bool,
    /// Whether kernels gather texels of the image.
    pub texture_gather: bool,
    /// The number of levels of the image. The default is 1. The driver does not know it: it maps levels that the image does
    /// not have (measured, driver 580).
    pub levels: u32,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for RegisteredImageOptions {
    #[inline]
    fn default() -> Self {
        Self {
            access: AccessHint::ReadWrite,
            surface: false,
            texture_gather: false,
            levels: 1,
            _non_exhaustive: (),
        }
    }
}

impl RegisteredImageOptions {
    #[inline]
    pub(super) const fn flags(self) -> u32 {
        let Self { access, surface, texture_gather, levels: _, _non_exhaustive: () } = self;
        let surface = if surface {
            CUgraphicsRegisterFlags::CU_GRAPHICS_REGISTER_FLAGS_SURFACE_LDST.0
        } else {
            0
        };
        let gather = if texture_gather {
            CUgraphicsRegisterFlags::CU_GRAPHICS_REGISTER_FLAGS_TEXTURE_GATHER.0
        } else {
            0
        };
        // The flags of registrations have the values of those of mappings.
        access.raw().0 | surface | gather
    }
}

/// A buffer of OpenGL that is registered with CUDA (`CUgraphicsResource`). Created by
/// [`from_opengl`](Self::from_opengl). Dropping it ends the registration (`cuGraphicsUnregisterResource`).
///
/// [`map`](Self::map) gives its memory to CUDA for a time. In between it belongs to OpenGL.
///
/// It is not `Send`, because the context of OpenGL is current in one thread. A [deferred](crate::deferred_releases) end of
/// a mapping or of the registration is retried only in this thread. If the thread ends before, the registration is leaked,
/// and the leak is [reported](crate::set_report_hook).
///
/// # Ordering
/// A mapping orders the work of both APIs, so there is no semaphore: the stream begins the work after a mapping when the
/// commands of OpenGL are complete that the thread has issued before, and commands of OpenGL that follow the end of the
/// mapping begin after the work of the stream. Commands of other contexts of OpenGL, which share the buffer, need
/// `glFinish` or a fence before.
pub struct RegisteredBuffer {
    registration: Arc<Registration>,
    not_send: PhantomData<*mut ()>,
}

/// A texture or renderbuffer of OpenGL, or a surface of VDPAU, that is registered with CUDA (`CUgraphicsResource`).
/// Created by [`from_opengl`](Self::from_opengl), [`from_vdpau_video`](Self::from_vdpau_video) and
/// [`from_vdpau_output`](Self::from_vdpau_output). Dropping it ends the registration
/// (`cuGraphicsUnregisterResource`).
///
/// [`map`](Self::map) and [`map_levels`](Self::map_levels) give its texels to CUDA for a time.
///
/// It is not `Send`, because the context of OpenGL is current in one thread. [`RegisteredBuffer`] says what follows for
/// deferred releases.
///
/// # Ordering
/// A mapping orders the work of both APIs: see [`RegisteredBuffer`].
pub struct RegisteredImage {
    registration: Arc<Registration>,
    levels: u32,
    not_send: PhantomData<*mut ()>,
}

/// A registration, which is ended by the drop.
pub(super) struct Registration {
    resource: Resource,
    pub(super) context: Context,
}

/// The handle of a registration.
#[derive(Clone)]
struct Resource {
    raw: Handle<CUgraphicsResource>,
    /// The thread where the context of OpenGL is current, or `None` for a resource of another API. Without a current
    /// context of OpenGL, the driver (580) maps, unmaps and unregisters nothing of it.
    thread: Option<OwnThread>,
}

impl Registration {
    /// Registers a resource with a context current. Any thread can end the registration.
    #[inline]
    pub(super) fn new(
        context: &Context,
        register: impl FnOnce(*mut CUgraphicsResource) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let raw = create(context, register)?;
        Ok(Self::own(raw, None, context))
    }

    /// Registers a resource of OpenGL with a context current. Only this thread ends the registration.
    #[inline]
    pub(super) fn of_opengl(
        context: &Context,
        register: impl FnOnce(*mut CUgraphicsResource) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let raw = create(context, register)?;
        Ok(Self::own_here(raw, context))
    }

    /// Owns a resource that only this thread maps, unmaps and unregisters.
    #[inline]
    fn own_here(raw: CUgraphicsResource, context: &Context) -> Arc<Self> {
        Self::own(raw, Some(OwnThread::current()), context)
    }

    #[inline]
    fn own(raw: CUgraphicsResource, thread: Option<OwnThread>, context: &Context) -> Arc<Self> {
        let resource = Resource { raw: Handle(raw), thread };
        Arc::new(Self { resource, context: context.clone() })
    }

    #[inline]
    pub(super) fn raw(&self) -> CUgraphicsResource {
        self.resource.raw.0
    }

    #[inline]
    fn set_access(&self, hint: AccessHint) -> Result<()> {
        let _current = self.context.enter()?;
        // SAFETY: the registration is alive.
        unsafe { call!(cuGraphicsResourceSetMapFlags_v2(self.raw(), hint.raw().0)) }
    }
}

destroy! {
    Resource as "a registered resource";
    // SAFETY: this value stands for the registration, and the caller promises that this is the first call. Mappings
    // and arrays keep the registration. The context of OpenGL is current in this thread.
    |its| unsafe { answer!(cuGraphicsUnregisterResource(its.raw.0)) };

    #[inline]
    fn thread(&self) -> Option<&OwnThread> {
        self.thread.as_ref()
    }
}

impl Drop for Registration {
    #[inline]
    fn drop(&mut self) {
        release(self.resource.clone(), &self.context);
    }
}

/// The methods that both types of resources have.
macro_rules! registered {
    ($name:ident) => {
        impl $name {
            /// Returns the raw handle without giving up ownership. Do not unregister it.
            #[inline]
            pub fn as_raw(&self) -> CUgraphicsResource {
                self.registration.raw()
            }

            /// Returns the handle and leaks the registration: the handle and its context stay alive until the process
            /// ends.
            #[inline]
            pub fn into_raw(self) -> CUgraphicsResource {
                let raw = self.as_raw();
                std::mem::forget(self);
                raw
            }

            /// Returns the context that the resource is registered in.
            #[inline]
            pub fn context(&self) -> &Context {
                &self.registration.context
            }
        }

        debug_struct! { $name |its| { raw: its.as_raw(), context: its.context(), .. } }
    };
}

registered! { RegisteredBuffer }
registered! { RegisteredImage }

/// A mapping, which is ended by the drop.
struct Mapping<'a> {
    registration: Arc<Registration>,
    stream: Stream,
    is_over: bool,
    resource: PhantomData<(&'a mut (), *mut ())>,
}

impl Mapping<'_> {
    #[inline]
    fn new(registration: &Arc<Registration>, stream: &Stream) -> Result<Self> {
        same_context("the stream", stream.context(), &registration.context)?;
        release::drain();
        let _call = stream.uncaptured(Operation::Mapping)?;
        let _current = stream.context().enter()?;
        let mut raw = registration.raw();
        // SAFETY: the registration and the stream are alive, and the array has one element.
        relaxed(|| unsafe { call!(cuGraphicsMapResources(1, &raw mut raw, stream.raw())) })?;
        let registration = Arc::clone(registration);
        Ok(Self { registration, stream: stream.clone(), is_over: false, resource: PhantomData })
    }

    /// Calls a function that returns what is mapped.
    #[inline]
    fn get<T>(&self, get: impl FnOnce(CUgraphicsResource) -> Result<T>) -> Result<T> {
        let _current = self.stream.context().enter()?;
        get(self.registration.raw())
    }

    #[inline]
    fn end(&mut self) -> Result<()> {
        let _call = self.stream.uncaptured(Operation::Mapping)?;
        let _current = self.stream.context().enter()?;
        let mut raw = self.registration.raw();
        let stream = self.stream.raw();
        // SAFETY: the resource is mapped, the stream is alive, and the array has one element.
        relaxed(|| unsafe { call!(cuGraphicsUnmapResources(1, &raw mut raw, stream)) })?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for Mapping<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_over {
            let (registration, raw) = (Arc::clone(&self.registration), Handle(self.stream.raw()));
            release(InStream { registration, stream: raw }, &self.stream);
        }
    }
}

/// A resource that is mapped in a stream.
struct InStream {
    registration: Arc<Registration>,
    stream: Handle<CUstream>,
}

destroy! {
    InStream as "a mapped resource";
    |its| {
        let mut raw = its.registration.raw();
        // SAFETY: this value stands for the mapping, and the caller promises that this is the first call. The
        // owner keeps the stream alive, and the array has one element. The context of OpenGL is current in this thread.
        unsafe { answer!(cuGraphicsUnmapResources(1, &raw mut raw, its.stream.0)) }
    };

    #[inline]
    fn thread(&self) -> Option<&OwnThread> {
        self.registration.resource.thread()
    }

    /// The driver does not end the registration of a resource that is mapped.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(self.registration.clone());
    }
}

/// A resource while it is mapped: a [`DeviceBuffer`], an [`Array`] or a [`MipmappedArray`], bound to the stream of the
/// mapping.
///
/// Dropping it enqueues the end of the mapping in the stream (`cuGraphicsUnmapResources`). In a capture of the stream, the
/// mapping ends after the capture, in this thread. [`end`](Self::end) returns the errors that a drop can only report.
///
/// If it is forgotten, the resource stays mapped and registered: OpenGL must not access it again, and further mappings are
/// errors.
#[must_use = "dropping it ends the mapping"]
pub struct Mapped<'a, C> {
    /// Dropped before the mapping ends.
    content: C,
    mapping: Mapping<'a>,
}

impl<C> Mapped<'_, C> {
    /// Enqueues the end of the mapping in the stream. Calls `cuGraphicsUnmapResources`.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]: the mapping then ends after the capture. Errors of the driver.
    ///
    /// Since CUDA 3.0. Raw: [`cuGraphicsUnmapResources`](fn@cuda_sys::cuGraphicsUnmapResources).
    #[doc(alias = "cuGraphicsUnmapResources")]
    #[inline]
    pub fn end(self) -> Result<()> {
        let Self { content, mut mapping } = self;
        drop(content);
        mapping.end()
    }

    /// Returns the stream of the mapping.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.mapping.stream
    }
}

impl<C> Deref for Mapped<'_, C> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        &self.content
    }
}

impl<T> Mapped<'_, DeviceBuffer<T>> {
    /// Borrows the memory for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.content.as_mut_slice()
    }
}

impl<T> Mapped<'_, Array<T>> {
    /// Borrows the array for writing.
    #[inline]
    pub fn as_mut(&mut self) -> ArrayMut<'_, T> {
        self.content.as_mut()
    }
}

impl<T> Mapped<'_, MipmappedArray<T>> {
    /// Borrows a level for writing. Level 0 is the largest.
    ///
    /// # Errors
    /// See [`MipmappedArray::level`].
    #[inline]
    pub fn level_mut(&mut self, level: u32) -> Result<ArrayMut<'_, T>> {
        self.content.level_mut(level)
    }
}

impl RegisteredBuffer {
    #[inline]
    pub(super) fn new(registration: Arc<Registration>) -> Self {
        Self { registration, not_send: PhantomData }
    }

    /// Takes ownership of a handle.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the handle is null.
    ///
    /// # Safety
    /// `raw` was registered in this context, is a buffer, and is not mapped. No other code unregisters it. The
    /// conditions of [`from_opengl`](Self::from_opengl) hold.
    #[inline]
    pub unsafe fn from_raw(raw: CUgraphicsResource, context: &Context) -> Result<Self> {
        expect_handle("registered resource", raw)?;
        Ok(Self::new(Registration::own_here(raw, context)))
    }

    /// Sets the hint for the next mappings. Calls `cuGraphicsResourceSetMapFlags`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 3.0 (through `cuGraphicsResourceSetMapFlags_v2` since 6.5). Raw:
    /// [`cuGraphicsResourceSetMapFlags_v2`](fn@cuda_sys::cuGraphicsResourceSetMapFlags_v2).
    #[doc(alias = "cuGraphicsResourceSetMapFlags")]
    #[inline]
    pub fn set_access(&mut self, hint: AccessHint) -> Result<()> {
        self.registration.set_access(hint)
    }

    /// Maps the buffer for work in a stream. Calls `cuGraphicsMapResources` and
    /// `cuGraphicsResourceGetMappedPointer`.
    ///
    /// The buffer has as many elements as fit in the memory. Its address may be another one in each mapping.
    ///
    /// The context of OpenGL must be current in this thread, also when the mapping ends.
    ///
    /// # Errors
    /// - [`Invalid::Cast`] if the address is not aligned for the elements.
    /// - [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`].
    /// - `CUDA_ERROR_ALREADY_MAPPED` if a mapping was forgotten.
    ///
    /// Since CUDA 3.0. Raw: [`cuGraphicsMapResources`](fn@cuda_sys::cuGraphicsMapResources),
    /// [`cuGraphicsResourceGetMappedPointer_v2`](fn@cuda_sys::cuGraphicsResourceGetMappedPointer_v2).
    #[doc(alias = "cuGraphicsMapResources", alias = "cuGraphicsResourceGetMappedPointer")]
    pub fn map<T>(&mut self, stream: &Stream) -> Result<Mapped<'_, DeviceBuffer<T>>> {
        let mapping = Mapping::new(&self.registration, stream)?;
        let (mut address, mut size) = (0, 0);
        let (place, bytes) = (&raw mut address, &raw mut size);
        // SAFETY: the resource is mapped, and the pointers refer to variables.
        mapping.get(|raw| unsafe {
            call!(cuGraphicsResourceGetMappedPointer_v2(place, bytes, raw))
        })?;
        let (element, align) = (size_of::<T>(), align_of::<T>());
        let is_aligned = address % align as u64 == 0;
        refuse_if!(!is_aligned, Invalid::Cast { address, size, element, align });
        let len = size.checked_div(element).unwrap_or(0);
        let content = DeviceBuffer::own(address, len, stream, Release::Borrowed);
        Ok(Mapped { content, mapping })
    }
}

impl RegisteredImage {
    #[inline]
    pub(super) fn new(registration: Arc<Registration>, levels: u32) -> Self {
        Self { registration, levels, not_send: PhantomData }
    }

    /// Takes ownership of a handle.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the handle is null.
    ///
    /// # Safety
    /// `raw` was registered in this context, is an image with this number of levels, and is not mapped. No other code
    /// unregisters it. The conditions of [`from_opengl`](Self::from_opengl) hold.
    #[inline]
    pub unsafe fn from_raw(
        raw: CUgraphicsResource,
        levels: u32,
        context: &Context,
    ) -> Result<Self> {
        expect_handle("registered resource", raw)?;
        Ok(Self::new(Registration::own_here(raw, context), levels))
    }

    /// Returns the number of levels.
    #[inline]
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Sets the hint for the next mappings. Calls `cuGraphicsResourceSetMapFlags`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 3.0 (through `cuGraphicsResourceSetMapFlags_v2` since 6.5). Raw:
    /// [`cuGraphicsResourceSetMapFlags_v2`](fn@cuda_sys::cuGraphicsResourceSetMapFlags_v2).
    #[doc(alias = "cuGraphicsResourceSetMapFlags")]
    #[inline]
    pub fn set_access(&mut self, hint: AccessHint) -> Result<()> {
        self.registration.set_access(hint)
    }

    /// Maps a level of the image for work in a stream. Calls `cuGraphicsMapResources` and
    /// `cuGraphicsSubResourceGetMappedArray`.
    ///
    /// `index` is the face of a cube map, or the field and the channel of a video surface, and otherwise 0.
    ///
    /// The context of OpenGL must be current in this thread, also when the mapping ends.
    ///
    /// # Errors
    /// - [`Invalid::Array`] if the texels do not have the type `T`, or if there is no such level.
    /// - [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`].
    /// - `CUDA_ERROR_INVALID_VALUE` for another index; `CUDA_ERROR_ALREADY_MAPPED` if a mapping was forgotten.
    ///
    /// Since CUDA 3.0. Raw: [`cuGraphicsMapResources`](fn@cuda_sys::cuGraphicsMapResources),
    /// [`cuGraphicsSubResourceGetMappedArray`](fn@cuda_sys::cuGraphicsSubResourceGetMappedArray).
    #[doc(alias = "cuGraphicsMapResources", alias = "cuGraphicsSubResourceGetMappedArray")]
    pub fn map<T: Texel>(
        &mut self,
        stream: &Stream,
        index: u32,
        level: u32,
    ) -> Result<Mapped<'_, Array<T>>> {
        if level >= self.levels {
            let problem = format!("there is no level {level}: the image has {}", self.levels);
            return Err(array_error("the level", problem));
        }
        let mapping = Mapping::new(&self.registration, stream)?;
        let mut array = std::ptr::null_mut();
        let place = &raw mut array;
        // SAFETY: the resource is mapped, and the pointer refers to a variable.
        mapping.get(|raw| unsafe {
            call!(cuGraphicsSubResourceGetMappedArray(place, raw, index, level))
        })?;
        // SAFETY: the array is alive as long as the mapping, which outlives the object. The mapping orders the
        // accesses of the other API before the work of the stream.
        let content = unsafe { Array::borrow_raw(array, stream) }?;
        Ok(Mapped { content, mapping })
    }

    /// Maps all levels of the image for work in a stream. Calls `cuGraphicsMapResources` and
    /// `cuGraphicsResourceGetMappedMipmappedArray`.
    ///
    /// The context of OpenGL must be current in this thread, also when the mapping ends.
    ///
    /// # Errors
    /// - [`Invalid::Array`] if the texels do not have the type `T`, or if the shape does not have as many levels.
    /// - [`Invalid::OtherContext`]; [`Invalid::StreamIsCaptured`].
    /// - `CUDA_ERROR_ALREADY_MAPPED` if a mapping was forgotten.
    ///
    /// Since CUDA 5.0. Raw:
    /// [`cuGraphicsResourceGetMappedMipmappedArray`](fn@cuda_sys::cuGraphicsResourceGetMappedMipmappedArray).
    #[doc(alias = "cuGraphicsResourceGetMappedMipmappedArray")]
    pub fn map_levels<T: Texel>(
        &mut self,
        stream: &Stream,
    ) -> Result<Mapped<'_, MipmappedArray<T>>> {
        let levels = self.levels;
        let mapping = Mapping::new(&self.registration, stream)?;
        let mut array = std::ptr::null_mut();
        let place = &raw mut array;
        let get = |raw| {
            // SAFETY: the resource is mapped, and the pointer refers to a variable.
            unsafe { call!(cuGraphicsResourceGetMappedMipmappedArray(place, raw)) }
        };
        mapping.get(get)?;
        // SAFETY: as for one level.
        let content = unsafe { MipmappedArray::borrow_raw(array, levels, stream) }?;
        Ok(Mapped { content, mapping })
    }
}

debug_struct! {
    [C] Mapped<'_, C> |its| { resource: its.mapping.registration.raw(), stream: its.stream(), .. }
}
