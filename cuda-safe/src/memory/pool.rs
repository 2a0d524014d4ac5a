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
mod options;

pub use access::MemoryAccess;
pub use options::MemoryPoolOptions;

use self::attribute::{High, PoolAttribute, PoolValue, Settable};
use super::allocation::Release;
use super::{DeviceBuffer, MemoryLocation, bytes_of};
use crate::call::{call, without_current};
use crate::context::Context;
use crate::error::Result;
use crate::hold::Hold;
use crate::release::{self, Parent, Resource, release};
use crate::report::count_leak;
use crate::stream::{Outside, Stream};
use cuda_sys::CUmemoryPool;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// `CUmemoryPool`: memory that is allocated and freed in the order of streams, and kept for the next
/// allocation in between.
///
/// Each device has one of its own, from which [`DeviceBuffer::zeroed`] and its kin allocate; another
/// can be [put in its place](crate::Device::set_memory_pool), or used beside it
/// ([`DeviceBuffer::uninit_from_pool`]). How much memory it keeps when nobody uses it is
/// [`attribute::RELEASE_THRESHOLD`].
///
/// Clones share the pool, and what is allocated from it holds it: it is destroyed with the last of
/// them, which waits for the streams on which its memory was freed, and which it holds until then.
/// (A driver, 580, crashes sooner or later if a pool goes before that.) One that was put in the place of a device's pool, or of which memory
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
    /// Those that were given frees of its memory, each once.
    freed_on: Mutex<Vec<Stream>>,
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
    /// [`Invalid::NeedsNewerDriver`](crate::Invalid::NeedsNewerDriver).
    ///
    /// Since CUDA 11.2.
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

    /// `cuDeviceGetDefaultMemPool(&pool, device)`: the pool that the context's device has by
    /// itself. It is never destroyed.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without pools.
    ///
    /// Since CUDA 11.2.
    #[doc(alias = "cuDeviceGetDefaultMemPool")]
    pub fn default_of(context: &Context) -> Result<Self> {
        let device = context.device();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGetDefaultMemPool(&raw mut raw, device.as_raw())) }?;
        let location = Some(MemoryLocation::Device(device));
        Ok(Self::own(raw, context, location, kept_by_the_driver()))
    }

    /// Takes over a pool: it is destroyed with the last clone.
    ///
    /// # Safety
    /// `raw` is a pool that is alive, and nobody else destroys it. Memory of it that was allocated
    /// elsewhere is freed before the last clone of this, and of what is allocated from it, is gone.
    pub unsafe fn from_raw(raw: CUmemoryPool, context: &Context) -> Self {
        Self::own(raw, context, None, Hold::Owned)
    }

    /// A pool that somebody else owns, as
    /// [`Device::memory_pool`](crate::Device::memory_pool) tells of one: never destroyed here.
    ///
    /// # Safety
    /// `raw` is a pool that stays alive until the last clone of this, and what is allocated from it, is
    /// gone: to the end of the process, if this is put in the place of a device's pool.
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
                freed_on: Mutex::default(),
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
    pub(super) fn stay(&self) {
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
    /// Since CUDA 11.2; each attribute says since when it is known.
    #[doc(alias = "cuMemPoolGetAttribute")]
    pub fn attribute<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>) -> Result<T> {
        // As large as the largest, and zero where a smaller one is written.
        let mut value = 0u64;
        let (place, raw) = ((&raw mut value).cast(), attribute.raw());
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a local that is large enough for
            // every attribute.
            unsafe { call!(cuMemPoolGetAttribute(self.as_raw(), raw, place)) }
        })
        .map_err(|error| attribute.explain(error))?;
        Ok(T::from_bytes(value.to_ne_bytes()))
    }

    /// `cuMemPoolSetAttribute(pool, attribute, &value)`: sets one of those that can be.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// Since CUDA 11.2.
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
    /// Since CUDA 11.2.
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
            unsafe { call!(cuMemPoolSetAttribute(self.as_raw(), raw, place)) }
        })
    }

    /// `cuMemPoolTrimTo(pool, keep)`: gives memory that is not allocated back to the system, down
    /// to `keep` bytes, those that are allocated counted in.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 11.2.
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        release::drain();
        without_current(self.context(), || {
            // SAFETY: the pool is alive.
            unsafe { call!(cuMemPoolTrimTo(self.as_raw(), keep)) }
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
    /// Since CUDA 11.2.
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
            unsafe { call!(cuMemAllocFromPoolAsync(place, bytes, raw, stream.as_raw())) }
        };
        stream.outside_captures(|| without_current(stream.context(), allocate))?;
        let release = Release::OfPool(pool.clone());
        Ok(Self::own(address, len, stream, release))
    }

    /// Memory of that pool, all bytes 0 once the stream comes to it.
    ///
    /// # Errors
    /// As for [`uninit_from_pool`](Self::uninit_from_pool).
    pub fn zeroed_from_pool(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self> {
        let mut buffer = Self::uninit_from_pool(pool, stream, len)?;
        buffer.zero()?;
        Ok(buffer)
    }
}

/// For the pools that the driver has by itself.
fn kept_by_the_driver() -> Hold {
    Hold::Foreign(Box::new(()))
}

/// What a pool needs until it is destroyed.
#[derive(Clone)]
struct Parents {
    streams: Vec<Stream>,
    context: Context,
}

impl Parent for Parents {
    fn context(&self) -> Option<&Context> {
        Some(&self.context)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.context.is_borrowed() || self.streams.iter().any(Stream::is_borrowed)
    }

    fn waited_for(&self) -> &[Stream] {
        &self.streams
    }
}

/// What memory of a pool needs until it is freed.
#[derive(Clone)]
pub(super) struct OfPool {
    stream: Stream,
    pool: MemoryPool,
}

impl OfPool {
    /// For memory that is about to be freed on the stream.
    pub(super) fn new(stream: &Stream, pool: &MemoryPool) -> Self {
        let freed_on = pool.inner.freed_on.lock();
        let mut freed_on = freed_on.unwrap_or_else(PoisonError::into_inner);
        if !freed_on.contains(stream) {
            freed_on.push(stream.clone());
        }
        Self {
            stream: stream.clone(),
            pool: pool.clone(),
        }
    }
}

impl Parent for OfPool {
    fn context(&self) -> Option<&Context> {
        Some(self.stream.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        matches!(self.pool.inner.hold, Hold::Borrowed) || self.stream.is_borrowed()
    }

    fn stay_outside_captures(&self) -> Option<Outside> {
        self.stream.stay_outside()
    }

    fn has_leaked(&self) {
        self.pool.stay();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.stays.get_mut() {
            match std::mem::replace(&mut self.hold, Hold::Borrowed) {
                Hold::Owned => count_leak(),
                Hold::Foreign(owner) => std::mem::forget(owner),
                Hold::Borrowed => {}
            }
        } else if self.hold.is_owned() {
            let streams = self.freed_on.get_mut();
            let streams = std::mem::take(streams.unwrap_or_else(PoisonError::into_inner));
            let parents = Parents {
                streams,
                context: self.context.clone(),
            };
            release(Resource::Pool(self.raw), &parents);
        }
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
