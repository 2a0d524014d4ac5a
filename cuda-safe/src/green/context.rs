//! Green contexts.

use super::resource::{Part, SmGroup, together};
use crate::call::{call, newest_or};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Rejected, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::release::{self, Parent, Resource, release};
use crate::report::{Report, report};
use crate::stream::{Stream, StreamOptions};
use cuda_sys::{CUdevResource, CUdevResourceType, CUgreenCtx, CUgreenCtxCreate_flags};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `CUgreenCtx`: a partition of a device's SMs. Work on its [streams](Self::stream) runs there.
///
/// Clones share it; its streams hold it, and it holds its groups and the device's primary context.
/// Destroying it waits for *all* running work.
#[derive(Clone)]
pub struct GreenContext {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUgreenCtx,
    sm_count: u32,
    /// Calls that take the handle itself go one at a time: NVIDIA's text asked for it up to 13.4. So
    /// does the time for which the view is current: on one thread at a time, says the text.
    calls: Mutex<()>,
    needs: Arc<Needs>,
}

/// What a green context needs for as long as it is not destroyed.
struct Needs {
    #[allow(dead_code, reason = "held, not read: the SMs are in use")]
    groups: Vec<SmGroup>,
    primary: Context,
}

// SAFETY: the handle may be used by any thread; calls on it take the lock, and what makes its view
// current holds the lock until it is not any more.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl GreenContext {
    /// `cuDevResourceGenerateDesc(&descriptor, groups, count)` and
    /// `cuGreenCtxCreate(&context, descriptor, device, DEFAULT_STREAM)`: a partition of all SMs of
    /// one or several groups of one split. Its remainder counts as a group.
    ///
    /// The device's primary context is retained first. A descriptor (half a KiB) stays until the
    /// process ends: the driver has no call to give it back.
    ///
    /// # Errors
    /// With the groups given back: [`Invalid::NoGroups`], [`Invalid::GroupsOfDifferentSplits`],
    /// [`Invalid::SeveralGroupsNeedNewerDriver`]; `CUDA_ERROR_NOT_SUPPORTED`,
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the driver is older.
    ///
    /// Since CUDA 12.4; several groups since 12.5.
    #[doc(alias = "cuDevResourceGenerateDesc")]
    #[doc(alias = "cuGreenCtxCreate")]
    #[doc(alias = "cuGreenCtxDestroy")]
    pub fn new(groups: impl IntoIterator<Item = SmGroup>) -> Result<Self, Rejected<Vec<SmGroup>>> {
        let groups: Vec<SmGroup> = groups.into_iter().collect();
        let made = together(&groups).and_then(|mut raw| {
            let device = groups.first().ok_or(Invalid::NoGroups)?.device();
            create(device, &mut raw)
        });
        match made {
            Ok(made) => Ok(made.with_groups(groups)),
            Err(error) => Err(Rejected::new(error, groups)),
        }
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    pub fn as_raw(&self) -> CUgreenCtx {
        self.inner.raw
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.context().device()
    }

    /// The device's primary context, which the memory and the kernels of this partition belong to.
    pub fn context(&self) -> &Context {
        &self.inner.needs.primary
    }

    /// How many SMs the partition has, as the driver counts (`cuGreenCtxGetDevResource`).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    pub fn sm_count(&self) -> u32 {
        self.inner.sm_count
    }

    /// `cuGreenCtxGetDevResource(context, &resource, kind)`: a resource of the partition.
    pub(super) fn get_resource(
        &self,
        place: &mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Result<()> {
        self.inner.get_resource(place, kind)
    }

    /// `cuGreenCtxGetId(context, &id)`: a number that no other green context of this process has
    /// or will have.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.9.
    #[doc(alias = "cuGreenCtxGetId")]
    pub fn id(&self) -> Result<u64> {
        let mut id = 0;
        let _lock = self.inner.lock()?;
        // SAFETY: the green context is alive, and the pointer is to a local.
        unsafe { call!(cuGreenCtxGetId(self.as_raw(), &raw mut id)) }?;
        Ok(id)
    }

    /// A stream of this partition, of priority 0.
    ///
    /// # Errors
    /// As for [`stream_with`](Self::stream_with).
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// `cuGreenCtxStreamCreate(&stream, context, NON_BLOCKING, priority)`: a stream whose work runs
    /// on the SMs of this partition.
    ///
    /// # Errors
    /// [`Invalid::BlockingGreenStream`] if the options ask for a blocking one;
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 12.5 (on 12.4 through the context's view, made current for the call).
    #[doc(alias = "cuGreenCtxStreamCreate")]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        if options.blocking {
            return Err(Invalid::BlockingGreenStream.into());
        }
        release::drain();
        let mut raw = std::ptr::null_mut();
        let stream = &raw mut raw;
        let (flags, priority) = (options.flags(), options.priority);
        let made = {
            let _lock = self.inner.lock()?;
            let green = self.as_raw();
            // SAFETY: the green context is alive, and the pointer is to a local.
            unsafe { call!(cuGreenCtxStreamCreate(stream, green, flags, priority)) }
        };
        newest_or(made, || {
            self.with_view_current(|| {
                // SAFETY: the pointer is to a local, and the current context is this partition's.
                unsafe { call!(cuStreamCreateWithPriority(stream, flags, priority)) }
            })
        })?;
        Ok(Stream::own_green(raw, self.clone()))
    }

    /// `cuCtxFromGreenCtx(&view, context)`: makes a call with the green context, as a `CUcontext`,
    /// current; no other thread does meanwhile.
    fn with_view_current(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let lock = self.inner.lock()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the green context is alive, and the pointer is to a local.
        unsafe { call!(cuCtxFromGreenCtx(&raw mut raw, self.as_raw())) }?;
        // It holds this green context: should the view stay on the stack, so does that.
        let view = Context::view(raw, self.device(), self.clone());
        let current = view.make_current()?;
        let done = call();
        let left = current.finish();
        // The hook may want it.
        drop(lock);
        if let Err(error) = left {
            report(&Report::ContextStack { error });
        }
        done
    }
}

/// A green context whose groups have not been put into it yet.
struct Made {
    raw: CUgreenCtx,
    primary: Context,
}

fn create(device: Device, groups: &mut [CUdevResource]) -> Result<Made> {
    let primary = Context::primary(&device)?;
    let mut descriptor = std::ptr::null_mut();
    let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    let first = groups.as_mut_ptr();
    // SAFETY: the array holds `count` descriptions of the driver's, at least one (the driver
    // crashes on none), all of one split and each once; the other pointer is to a local.
    unsafe { call!(cuDevResourceGenerateDesc(&raw mut descriptor, first, count)) }?;
    let mut raw = std::ptr::null_mut();
    // Required up to 13.2, and allowed since.
    let flags = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    let number = device.as_raw();
    // SAFETY: the descriptor was just made, of resources of this device; the pointer is to a local.
    unsafe { call!(cuGreenCtxCreate(&raw mut raw, descriptor, number, flags)) }?;
    Ok(Made { raw, primary })
}

impl Made {
    fn with_groups(self, groups: Vec<SmGroup>) -> GreenContext {
        let given = groups.iter().map(SmGroup::sm_count).sum();
        let mut inner = Inner {
            raw: self.raw,
            sm_count: given,
            calls: Mutex::new(()),
            needs: Arc::new(Needs {
                groups,
                primary: self.primary,
            }),
        };
        // The driver's own count, which a caller is to see if it should differ.
        if let Some(count) = inner.query_sm_count() {
            inner.sm_count = count;
        }
        GreenContext {
            inner: Arc::new(inner),
        }
    }
}

impl Inner {
    fn lock(&self) -> Result<MutexGuard<'_, ()>> {
        // There a thread that is no more may have the lock.
        if fork::in_child() {
            return Err(Error::Forked);
        }
        Ok(self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get_resource(&self, place: &mut CUdevResource, kind: CUdevResourceType) -> Result<()> {
        let _lock = self.lock()?;
        // SAFETY: the green context is alive, and the pointer is to a borrowed resource.
        unsafe { call!(cuGreenCtxGetDevResource(self.raw, &raw mut *place, kind)) }
    }

    fn query_sm_count(&self) -> Option<u32> {
        let mut resource = CUdevResource::default();
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        self.get_resource(&mut resource, kind).ok()?;
        Some(Part::new(resource)?.sm_count())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        release(Resource::GreenContext(self.raw), &self.needs);
    }
}

impl Parent for Arc<Needs> {
    fn context(&self) -> Option<&Context> {
        Some(&self.primary)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(Self::clone(self))
    }

    fn is_borrowed(&self) -> bool {
        self.primary.is_borrowed()
    }
}

/// Green contexts are equal if they are the same one.
impl PartialEq for GreenContext {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for GreenContext {}

impl fmt::Debug for GreenContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GreenContext")
            .field("raw", &self.inner.raw)
            .field("sm_count", &self.inner.sm_count)
            .field("device", &self.device())
            .finish()
    }
}
