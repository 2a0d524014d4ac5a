//! Memory pools: what stream-ordered memory comes from. [`MemoryPool`] has the tour, and
//! [`attribute`] what pools are asked and told.
//!
//! ```no_run
//! use cuda_safe::pool::attribute::USED_CURRENT;
//! use cuda_safe::{Context, Device, DeviceBuffer, MemoryPool};
//!
//! // What `DeviceBuffer::zeroed` allocates comes from the device's own pool.
//! let context = Context::primary(&Device::get(0)?)?;
//! let pool = MemoryPool::default_of(&context)?;
//! let buffer = DeviceBuffer::<u8>::zeroed(&context.stream()?, 1 << 20)?;
//! assert!(pool.attribute(USED_CURRENT)? >= 1 << 20);
//! # Ok::<_, cuda_safe::Error>(())
//! ```

mod access;
pub mod attribute;
mod current;
mod frees;
mod options;
mod share;

pub use access::MemoryAccess;
pub(super) use frees::OfPool;
pub use options::MemoryPoolOptions;
pub use share::ImportedPool;
pub(crate) use share::not_shareable;

use self::attribute::{High, PoolAttribute, PoolValue, Settable};
use self::frees::Ends;
use super::allocation::Release;
use super::{DeviceBuffer, MemoryLocation, bytes_of};
use crate::call::{answer, call, without_current};
use crate::capture::Operation;
use crate::context::Context;
use crate::error::Result;
use crate::hold::Hold;
use crate::release::{self, Behind, Resource, release};
use crate::report::count_leak;
use crate::stream::Stream;
use cuda_sys::CUmemoryPool;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `CUmemoryPool`: memory that is allocated and freed in the order of streams, and kept for the next
/// allocation in between.
///
/// Each device has one of its own, from which [`DeviceBuffer::zeroed`] and its kin allocate; another
/// can be [put in its place](crate::Device::set_memory_pool), or used beside it
/// ([`DeviceBuffer::uninit_from_pool`]). How much memory it keeps when nobody uses it is
/// [`attribute::RELEASE_THRESHOLD`].
///
/// Clones share the pool, and what is allocated from it holds it: it is destroyed with the last of
/// them, which waits until the frees of its memory are done. (A driver, 580, crashes sooner or later
/// if a pool goes before that.) One that was put in the place of a device's pool, or of which memory
/// was [given away](DeviceBuffer::into_raw), is not destroyed, as nobody knows when its memory is freed.
///
/// ```no_run
/// use cuda_safe::pool::attribute::{RELEASE_THRESHOLD, USED_CURRENT};
/// use cuda_safe::{Context, DeviceBuffer, Device, MemoryPool, MemoryPoolOptions};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let pool = MemoryPool::new(&context, MemoryPoolOptions::default())?;
/// pool.set_attribute(RELEASE_THRESHOLD, 1 << 30)?;
/// let buffer = DeviceBuffer::<f32>::zeroed_from_pool(&pool, &stream, 1000)?;
/// assert!(pool.attribute(USED_CURRENT)? >= 4000);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryPool {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUmemoryPool,
    hold: Hold,
    /// Where its memory is; none if that is not known here.
    location: Option<MemoryLocation>,
    /// Whether there may be memory of it that does not hold it: somebody else's, if it was put in the
    /// place of a device's pool, what was given away, and what could not be freed.
    stays: AtomicBool,
    ends: Ends,
    /// Whether the driver has it by itself, and never destroys it.
    is_drivers: bool,
    /// Whether a manager has it, and nobody notes when its memory is freed: it goes behind all work.
    is_managers: bool,
    /// For handles of its memory.
    exported: share::Exported,
    context: Context,
}

// SAFETY: the driver lets any thread use a pool, several at once.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl MemoryPool {
    /// `cuMemPoolCreate(&pool, props)`: a pool beside those of the devices. It holds the context.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without pools
    /// ([`MEMORY_POOLS_SUPPORTED`](crate::attribute::MEMORY_POOLS_SUPPORTED)),
    /// `CUDA_ERROR_INVALID_VALUE` for a place where there can be none;
    /// [`Invalid::NeedsNewerDriver`](crate::Invalid::NeedsNewerDriver);
    /// [`Invalid::PoolHandles`](crate::Invalid::PoolHandles).
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolCreate`](fn@cuda_sys::cuMemPoolCreate),
    /// [`cuMemPoolDestroy`](fn@cuda_sys::cuMemPoolDestroy).
    #[doc(alias = "cuMemPoolCreate")]
    #[doc(alias = "cuMemPoolDestroy")]
    pub fn new(context: &Context, options: MemoryPoolOptions) -> Result<Self> {
        release::drain();
        let props = options.props(context.device())?;
        let mut raw = std::ptr::null_mut();
        {
            let _current = context.enter()?;
            // SAFETY: the pointers are to locals; the properties that the driver does not know are
            // zero.
            unsafe { call!(cuMemPoolCreate(&raw mut raw, &raw const props)) }?;
        }
        let place = options.location;
        let location = place.unwrap_or(MemoryLocation::Device(context.device()));
        Ok(Self::own(raw, context, Some(location), Hold::Owned))
    }

    /// The same for a manager, which frees its memory in whichever order: the pool's end waits for all work of
    /// the context.
    pub(crate) fn for_manager(context: &Context, options: MemoryPoolOptions) -> Result<Self> {
        let mut pool = Self::new(context, options)?;
        if let Some(inner) = Arc::get_mut(&mut pool.inner) {
            inner.is_managers = true;
        }
        pool.check_access(context.device())?;
        Ok(pool)
    }

    /// `cuDeviceGetDefaultMemPool(&pool, device)`: the pool that the context's device has by
    /// itself. It is never destroyed.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without pools.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceGetDefaultMemPool`](fn@cuda_sys::cuDeviceGetDefaultMemPool).
    #[doc(alias = "cuDeviceGetDefaultMemPool")]
    pub fn default_of(context: &Context) -> Result<Self> {
        let device = context.device();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGetDefaultMemPool(&raw mut raw, device.as_raw())) }?;
        let location = Some(MemoryLocation::Device(device));
        Ok(Self::drivers(raw, context, location))
    }

    /// Takes over a pool: it is destroyed with the last clone.
    ///
    /// # Safety
    /// `raw` is a pool that is alive, and nobody else destroys it. Of memory of it that was allocated, or
    /// freed, elsewhere, the frees are done before the last clone of this, and of what is allocated from
    /// it, is gone.
    pub unsafe fn from_raw(raw: CUmemoryPool, context: &Context) -> Self {
        Self::own(raw, context, None, Hold::Owned)
    }

    /// A pool that somebody else owns, as
    /// [`Device::memory_pool`](crate::Device::memory_pool) tells of one: never destroyed here.
    ///
    /// # Safety
    /// `raw` is a pool that stays alive until the last clone of this, and what is allocated from it, is
    /// gone and the frees of that are done: to the end of the process, if this is put in the place of a
    /// device's pool, or memory of it is given away.
    pub unsafe fn borrow_raw(raw: CUmemoryPool, context: &Context) -> Self {
        Self::own(raw, context, None, Hold::Borrowed)
    }

    /// A pool that `owner` keeps alive: never destroyed here, and `owner` is dropped after the last
    /// clone of this.
    ///
    /// # Safety
    /// `raw` is a pool that stays alive as long as `owner` is.
    pub unsafe fn from_foreign(
        raw: CUmemoryPool,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Self {
        Self::own(raw, context, None, Hold::Foreign(Box::new(owner)))
    }

    /// One that the driver has by itself.
    fn drivers(raw: CUmemoryPool, context: &Context, location: Option<MemoryLocation>) -> Self {
        let mut pool = Self::own(raw, context, location, Hold::Borrowed);
        if let Some(inner) = Arc::get_mut(&mut pool.inner) {
            inner.is_drivers = true;
        }
        pool
    }

    fn is_borrowed(&self) -> bool {
        matches!(self.inner.hold, Hold::Borrowed) || self.context().hangs_on_borrowed()
    }

    fn own(
        raw: CUmemoryPool,
        context: &Context,
        location: Option<MemoryLocation>,
        hold: Hold,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                hold,
                location,
                stays: AtomicBool::new(false),
                ends: Ends::default(),
                is_drivers: false,
                is_managers: false,
                exported: share::Exported::default(),
                context: context.clone(),
            }),
        }
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    pub fn as_raw(&self) -> CUmemoryPool {
        self.inner.raw
    }

    /// Never destroys the pool: it and its context stay until the process ends.
    pub fn leak(self) -> CUmemoryPool {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// There may be memory of it that does not hold it: it is not destroyed any more.
    pub(crate) fn stay(&self) {
        self.inner.stays.store(true, Ordering::Relaxed);
    }

    /// The context that the pool holds.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// `cuMemPoolGetAttribute(pool, attribute, &value)`: one of the pool's [attributes](attribute),
    /// as the type that it has.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute) if it is newer than the driver.
    ///
    /// Since CUDA 11.2; each attribute says since when it is known. Raw:
    /// [`cuMemPoolGetAttribute`](fn@cuda_sys::cuMemPoolGetAttribute).
    #[doc(alias = "cuMemPoolGetAttribute")]
    pub fn attribute<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>) -> Result<T> {
        // As large as the largest, and zero where a smaller one is written.
        let mut value = 0u64;
        let (place, raw) = ((&raw mut value).cast(), attribute.raw());
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a local that is large enough for
            // every attribute.
            unsafe { answer!(cuMemPoolGetAttribute(self.as_raw(), raw, place)) }
        })
        .map_err(|error| attribute.explain(error))?;
        Ok(T::from_bytes(value.to_ne_bytes()))
    }

    /// `cuMemPoolSetAttribute(pool, attribute, &value)`: sets one of those that can be.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAttribute`](fn@cuda_sys::cuMemPoolSetAttribute).
    #[doc(alias = "cuMemPoolSetAttribute")]
    pub fn set_attribute<T: PoolValue>(
        &self,
        attribute: PoolAttribute<T, Settable>,
        value: T,
    ) -> Result<()> {
        self.set(attribute, value)
    }

    /// `cuMemPoolSetAttribute(pool, attribute, 0)`: a high is what there is now, until there is
    /// more.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAttribute`](fn@cuda_sys::cuMemPoolSetAttribute).
    #[doc(alias = "cuMemPoolSetAttribute")]
    pub fn reset_high(&self, attribute: PoolAttribute<u64, High>) -> Result<()> {
        self.set(attribute, 0)
    }

    fn set<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>, value: T) -> Result<()> {
        let mut value = u64::from_ne_bytes(value.to_bytes());
        let (place, raw) = ((&raw mut value).cast(), attribute.raw());
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a local with the value, as large as
            // the largest.
            unsafe { answer!(cuMemPoolSetAttribute(self.as_raw(), raw, place)) }
        })
    }

    /// `cuMemPoolTrimTo(pool, keep)`: gives memory that is not allocated back to the system, down
    /// to `keep` bytes, those that are allocated counted in.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolTrimTo`](fn@cuda_sys::cuMemPoolTrimTo).
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        release::drain();
        without_current(self.context(), || {
            // SAFETY: the pool is alive.
            unsafe { answer!(cuMemPoolTrimTo(self.as_raw(), keep)) }
        })
    }
}

impl<T> DeviceBuffer<T> {
    /// `cuMemAllocFromPoolAsync(&address, bytes, pool, stream)`: memory of that pool with whatever
    /// is in it. If the pool is not of the stream's device, `cuMemPoolGetAccess` is asked first.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`;
    /// [`Invalid::NoAccessToPool`](crate::Invalid::NoAccessToPool); a length that cannot be
    /// addressed; [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 11.2. Raw: [`cuMemAllocFromPoolAsync`](fn@cuda_sys::cuMemAllocFromPoolAsync).
    #[doc(alias = "cuMemAllocFromPoolAsync")]
    pub fn uninit_from_pool(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self::own(0, len, stream, Release::Nothing));
        }
        pool.check_access(stream.context().device())?;
        let mut address = 0;
        let (place, raw) = (&raw mut address, pool.as_raw());
        let allocate = || {
            // SAFETY: the pool and the stream are alive, and the pointer is to a local.
            unsafe { answer!(cuMemAllocFromPoolAsync(place, bytes, raw, stream.raw())) }
        };
        let _call = stream.uncaptured(Operation::Allocate)?;
        without_current(stream.context(), allocate)?;
        let release = if pool.inner.is_drivers {
            Release::Ordered
        } else {
            Release::OfPool(pool.clone())
        };
        Ok(Self::own(address, len, stream, release))
    }

    /// Memory of that pool, all bytes 0 once the stream comes to it.
    ///
    /// # Errors
    /// As for [`uninit_from_pool`](Self::uninit_from_pool).
    pub fn zeroed_from_pool(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self> {
        Self::uninit_from_pool(pool, stream, len)?.into_zeroed()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ends = self.ends.take();
        let stays = *self.stays.get_mut();
        let (resource, owner) = match std::mem::replace(&mut self.hold, Hold::Borrowed) {
            Hold::Owned if self.is_managers => (Resource::LoosePool(self.raw), None),
            Hold::Owned => (Resource::Pool(self.raw), None),
            Hold::Foreign(owner) => (Resource::LentPool, Some(owner)),
            Hold::Borrowed => return,
        };
        if stays {
            count_leak();
            return std::mem::forget(owner);
        }
        if owner.is_some() && ends.is_empty() {
            return;
        }
        let parents = Behind {
            ends,
            owner: owner.map(Arc::from),
            context: self.context.clone(),
        };
        release(resource, &parents);
    }
}

/// Pools are equal if they are the same one.
impl PartialEq for MemoryPool {
    fn eq(&self, other: &Self) -> bool {
        self.inner.raw == other.inner.raw
    }
}

impl Eq for MemoryPool {}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPool")
            .field("raw", &self.inner.raw)
            .field("location", &self.inner.location)
            .field("hold", &self.inner.hold)
            .finish()
    }
}
