//! Contexts, and the stack of current contexts that each thread has.

mod create;
mod end;
mod guard;
mod peer;
mod primary;
mod settings;

pub use create::GraphicsClient;
pub use guard::CurrentContext;
pub use primary::PrimaryState;
pub use settings::{CachePreference, Limit};

use self::end::{End, Origin};
use crate::call::{call, newest_or};
use crate::device::Device;
use crate::driver;
use crate::error::{Rejected, Result};
use crate::hold::Hold;
use crate::invalid::Invalid;
use crate::manager::Choice;
use crate::release;
use crate::stream::refuse_inside;
use bitflags::bitflags;
use cuda_sys::{CUcontext, CUctx_flags};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// `CUcontext`: to a GPU what a process is to a CPU, the container of memory, modules, streams and
/// events.
///
/// A `Context` *floats*: having one makes it current on no thread, and every thread may use it.
/// What needs a current context makes this one current for the length of the call and leaves the
/// thread's stack as it was. To have it current for longer, as foreign code (a runtime-API
/// library, say) needs it, use [`with_current`](Self::with_current).
///
/// Clones share the context; everything made in it holds one, so it is released after all of
/// them, in whatever order they are dropped. Contexts are equal if they are the same one.
///
/// ```no_run
/// use cuda_safe::{Context, Device};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// stream.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUcontext,
    device: Device,
    /// Unique in the process; none on drivers before 12.0.
    id: Option<u64>,
    /// Whether a manager allocates in it.
    is_managed: bool,
    /// Which, shared by all that are this context; none for what the manager itself has. Before the end
    /// in the order of drops.
    choice: Option<Arc<Choice>>,
    end: EndOf,
}

/// A context's end.
enum EndOf {
    Own(End),
    /// Shared with the one that the context's manager has.
    Shared(Arc<End>),
}

impl EndOf {
    fn get(&self) -> &End {
        match self {
            Self::Own(end) => end,
            Self::Shared(end) => end,
        }
    }
}

// SAFETY: a context may be used by any thread: the driver locks inside, and a context is current
// on a thread only while a guard, which is not Send, makes it so.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

bitflags! {
    /// `CUctx_flags`: how threads wait for a context's work, and what it allows.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ContextFlags: u32 {
        /// Spin while waiting: lowest latency, one core busy.
        const SCHED_SPIN = CUctx_flags::CU_CTX_SCHED_SPIN.0;
        /// Yield the core while waiting.
        const SCHED_YIELD = CUctx_flags::CU_CTX_SCHED_YIELD.0;
        /// Sleep while waiting.
        const SCHED_BLOCKING_SYNC = CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC.0;
        /// Allow pinned memory that the device maps (always on with unified addressing).
        const MAP_HOST = CUctx_flags::CU_CTX_MAP_HOST.0;
        /// Keep local memory at the largest size that a launch needed.
        const LMEM_RESIZE_TO_MAX = CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX.0;
        /// Errors of kernels make a core dump of the device. Since CUDA 12.1.
        const COREDUMP_ENABLE = CUctx_flags::CU_CTX_COREDUMP_ENABLE.0;
        /// Writing to the pipe of `cuCoredumpGetAttribute` makes one. Since CUDA 12.1.
        const USER_COREDUMP_ENABLE = CUctx_flags::CU_CTX_USER_COREDUMP_ENABLE.0;
        /// Synchronous memory operations always wait to the end. Since CUDA 12.1.
        const SYNC_MEMOPS = CUctx_flags::CU_CTX_SYNC_MEMOPS.0;
        // Flags that newer drivers know are kept.
        const _ = !0;
    }
}

impl Context {
    /// `cuDevicePrimaryCtxRetain(&context, device)`: the device's one primary context, which the
    /// runtime API and the libraries on it use too.
    ///
    /// The first retain in a process initialises it (some 100 ms); it is released with the last
    /// clone and the last thing made in it.
    ///
    /// Other code of the process can reset it (`cuDevicePrimaryCtxReset`, `cudaDeviceReset`), which
    /// kills all that anybody made in it: that is for the other code not to do.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_DEVICE_UNAVAILABLE` (exclusive mode), or a fatal
    /// error of earlier work.
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxRetain`](fn@cuda_sys::cuDevicePrimaryCtxRetain),
    /// [`cuDevicePrimaryCtxRelease_v2`](fn@cuda_sys::cuDevicePrimaryCtxRelease_v2).
    #[doc(alias = "cuDevicePrimaryCtxRetain")]
    #[doc(alias = "cuDevicePrimaryCtxRelease")]
    pub fn primary(device: &Device) -> Result<Self> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device is the driver's, and the pointer is to a local.
        unsafe { call!(cuDevicePrimaryCtxRetain(&raw mut raw, device.as_raw())) }?;
        Ok(Self::own(raw, *device, Origin::Primary))
    }

    /// Takes over a context that somebody created: it is destroyed with the last clone.
    ///
    /// # Errors
    /// The device of the context cannot be asked for; then it is still the caller's.
    ///
    /// # Safety
    /// `raw` is a context of `cuCtxCreate` that is alive, and nobody else destroys it or uses
    /// objects of it after the last clone of this is gone. It is on no thread's stack by then.
    pub unsafe fn from_raw(raw: CUcontext) -> Result<Self> {
        Ok(Self::own(raw, device_of(raw)?, Origin::Other(Hold::Owned)))
    }

    /// A context that somebody else owns (the runtime API, PyTorch, a C library): never released
    /// here.
    ///
    /// What is made in it cannot wait for its release, as nobody could tell how long: dropped in a
    /// host function, on a thread of the driver's callbacks, or while its stream is captured, it is
    /// leaked and reported. [`from_foreign`](Self::from_foreign) has an owner, who waits.
    ///
    /// # Errors
    /// The device of the context cannot be asked for.
    ///
    /// # Safety
    /// `raw` is a context, and not the view of a green context, that stays alive until the last
    /// clone of this, and everything made in it, is gone. (What this crate has leaked is not used
    /// any more.) By then it is on no thread's stack: a [guard](CurrentContext) that could not pop,
    /// or was forgotten, leaves it there.
    pub unsafe fn borrow_raw(raw: CUcontext) -> Result<Self> {
        Ok(Self::own(
            raw,
            device_of(raw)?,
            Origin::Other(Hold::Borrowed),
        ))
    }

    /// A context that `owner` keeps alive: never released here, and `owner` is dropped after the
    /// last clone of this and everything made in it.
    ///
    /// # Errors
    /// The device of the context cannot be asked for; the owner is given back.
    ///
    /// # Safety
    /// `raw` is a context, and not the view of a green context, that stays alive as long as
    /// `owner` is.
    pub unsafe fn from_foreign<O: Any + Send + Sync>(
        raw: CUcontext,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        match device_of(raw) {
            Ok(device) => {
                let hold = Hold::Foreign(Box::new(owner));
                Ok(Self::own(raw, device, Origin::Other(hold)))
            }
            Err(error) => Err(Rejected::new(error, owner)),
        }
    }

    /// Whether it lives for as long only as somebody promised.
    pub(crate) fn hangs_on_borrowed(&self) -> bool {
        matches!(
            self.inner.end.get().origin,
            Origin::Other(Hold::Borrowed) | Origin::Client
        )
    }

    fn own(raw: CUcontext, device: Device, origin: Origin) -> Self {
        let end = End {
            raw,
            device,
            origin,
        };
        let id = id_of(raw);
        let choice = Choice::of(raw, id);
        let is_managed = choice.is_some_manager();
        Self {
            inner: Arc::new(Inner {
                raw,
                device,
                id,
                is_managed,
                choice: Some(choice),
                end: match is_managed {
                    false => EndOf::Own(end),
                    true => EndOf::Shared(Arc::new(end)),
                },
            }),
        }
    }

    /// The same for a manager: what it makes in it does not keep the manager alive, and is allocated by
    /// the driver.
    pub(crate) fn without_manager(&self) -> Self {
        let EndOf::Shared(end) = &self.inner.end else {
            // It has none.
            return self.clone();
        };
        Self {
            inner: Arc::new(Inner {
                raw: self.inner.raw,
                device: self.inner.device,
                id: self.inner.id,
                is_managed: false,
                choice: None,
                end: EndOf::Shared(Arc::clone(end)),
            }),
        }
    }

    /// It is never released; but its manager, which is on no stack, is.
    #[cold]
    fn stay(&self) {
        std::mem::forget(self.without_manager());
    }

    /// Who allocates in it, if that is not the driver.
    #[inline]
    pub(crate) fn choice(&self) -> Option<&Choice> {
        match self.inner.is_managed {
            true => self.inner.choice.as_deref(),
            false => None,
        }
    }

    /// The view of a green context, which `owner` keeps alive: also when it stays on a stack.
    pub(crate) fn view(raw: CUcontext, device: Device, owner: impl Any + Send + Sync) -> Self {
        let origin = Origin::Other(Hold::Foreign(Box::new(owner)));
        let end = End {
            raw,
            device,
            origin,
        };
        Self {
            inner: Arc::new(Inner {
                raw,
                device,
                id: id_of(raw),
                is_managed: false,
                choice: None,
                end: EndOf::Own(end),
            }),
        }
    }

    /// The device that the context is on (`cuCtxGetDevice`, asked once).
    ///
    /// Since CUDA 2.0. Raw: [`cuCtxGetDevice_v2`](fn@cuda_sys::cuCtxGetDevice_v2).
    #[doc(alias = "cuCtxGetDevice")]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// `cuCtxGetId(context, &id)`: a number that no other context of this process has or will
    /// have; none on drivers before it.
    ///
    /// Since CUDA 12.0. Raw: [`cuCtxGetId`](fn@cuda_sys::cuCtxGetId).
    #[doc(alias = "cuCtxGetId")]
    pub fn id(&self) -> Option<u64> {
        self.inner.id
    }

    /// The driver's handle. It stays this object's: do not destroy it. Made current by raw calls, it
    /// is to be off every thread's stack before the last clone is gone.
    #[inline]
    pub fn as_raw(&self) -> CUcontext {
        self.inner.raw
    }

    /// Never releases the context: it and all that is in it stay until the process ends.
    pub fn leak(self) -> CUcontext {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// `cuCtxSynchronize()`: waits until all work of the context is done, that of its green
    /// contexts included.
    ///
    /// # Errors
    /// Those of the work that it waits for.
    ///
    /// Since CUDA 2.0 (from 13.0 on through `cuCtxSynchronize_v2`). Raw:
    /// [`cuCtxSynchronize_v2`](fn@cuda_sys::cuCtxSynchronize_v2).
    #[doc(alias = "cuCtxSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        refuse_inside()?;
        release::drain();
        self.wait_for_work()
    }

    /// The same, in the middle of a release.
    pub(crate) fn wait_for_work(&self) -> Result<()> {
        refuse_inside()?;
        newest_or(
            // SAFETY: the context is alive.
            unsafe { call!(cuCtxSynchronize_v2(self.as_raw())) },
            || {
                let _current = self.enter()?;
                // SAFETY: no arguments; the current context is this one.
                unsafe { call!(cuCtxSynchronize()) }
            },
        )
    }

    /// `cuMemGetInfo(&free, &total)`: the bytes of device memory that are free, and all there are.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemGetInfo_v2`](fn@cuda_sys::cuMemGetInfo_v2).
    #[doc(alias = "cuMemGetInfo")]
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: the pointers are to locals.
        unsafe { call!(cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInfo { free, total })
    }
}

/// Device memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free for allocations, of this process or another.
    pub free: usize,
    /// All that the device has.
    pub total: usize,
}

/// The number of a context; none before CUDA 12.0.
fn id_of(raw: CUcontext) -> Option<u64> {
    let mut id = 0;
    // SAFETY: the context is alive, and the pointer is to a local. (Before 12.0 there are no ids, and this
    // answers an error.)
    let known = unsafe { call!(cuCtxGetId(raw, &raw mut id)) }.is_ok();
    known.then_some(id)
}

/// The device of a context that is alive.
pub(crate) fn device_of(raw: CUcontext) -> Result<Device> {
    driver::init()?;
    if raw.is_null() {
        return Err(Invalid::Handle {
            what: "context",
            value: 0,
        }
        .into());
    }
    let mut number = 0;
    newest_or(
        // SAFETY: the pointer is to a local. (Of a handle that is no context newer drivers say so.)
        unsafe { call!(cuCtxGetDevice_v2(&raw mut number, raw)) },
        || {
            guard::with_raw_current(raw, || {
                // SAFETY: the pointer is to a local.
                unsafe { call!(cuCtxGetDevice(&raw mut number)) }
            })
        },
    )?;
    Ok(Device::unchecked(number))
}

impl PartialEq for Context {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Clones, as a rule.
        Arc::ptr_eq(&self.inner, &other.inner) || self.is_same(other)
    }
}

impl Context {
    #[inline(never)]
    fn is_same(&self, other: &Self) -> bool {
        let same_id = match (self.inner.id, other.inner.id) {
            (Some(its), Some(others)) => its == others,
            // One that could not be asked for tells nothing.
            _ => true,
        };
        self.inner.raw == other.inner.raw && same_id
    }
}

impl Eq for Context {}

impl Hash for Context {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.raw.hash(state);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.inner.end.get().origin {
            Origin::Primary => "primary",
            Origin::Other(Hold::Owned) | Origin::Client => "created",
            Origin::Other(Hold::Foreign(_)) => "foreign",
            Origin::Other(Hold::Borrowed) => "borrowed",
        };
        f.debug_struct("Context")
            .field("kind", &kind)
            .field("device", &self.inner.device)
            .field("id", &self.inner.id)
            .field("raw", &self.inner.raw)
            .finish()
    }
}

/// For error texts: `the primary context of device 0`, with its id.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.inner.end.get().origin {
            Origin::Primary => "the primary context",
            _ => "a context",
        };
        write!(f, "{kind} of device {}", self.inner.device.ordinal())?;
        match self.inner.id {
            Some(id) => write!(f, " (id {id})"),
            None => write!(f, " ({:p})", self.inner.raw),
        }
    }
}
