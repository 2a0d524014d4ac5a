//! Tensors for others.

use super::dtype::DataType;
use super::managed::MemoryKind;
use super::raw::{
    DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLPackVersion, DLTensor,
};
use super::{ConsumerStream, Described, MAJOR, MINOR, refused};
use crate::context::Context;
use crate::error::{Rejected, Result};
use crate::event::Event;
use crate::interop::peers::grant_for_export;
use crate::interop::{Element, ExportedStream, Layout};
use crate::invalid::Invalid;
use crate::memory::DeviceBuffer;
use crate::release::{Parent, Resource, release};
use crate::stream::{ForeignStream, OrderedOn, Stream};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// A tensor for others, with what keeps its memory: that is dropped when they say that they are done.
///
/// [`into_raw_versioned`](Self::into_raw_versioned) and [`into_raw`](Self::into_raw) are what a
/// capsule takes. Its deleter may be called on any thread, at any time, and once.
///
/// DLPack has no rule for work of the consumer that is under way when it calls the deleter. Some do
/// not wait for it: [`behind`](Self::behind) is for those.
///
/// ```no_run
/// use cuda_safe::interop::dlpack::ConsumerStream;
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
/// // What `__dlpack__(stream=…, max_version=(1, 0))` does:
/// let consumer = ConsumerStream::from_number(None)?;
/// // SAFETY: it is the default stream.
/// unsafe { consumer.wait_for(&stream) }?;
/// let tensor = buffer.into_dlpack()?.into_raw_versioned();
/// // … which goes into a capsule named "dltensor_versioned", whose destructor, unless somebody has
/// // renamed it, calls the deleter.
/// # // SAFETY: nobody else has it.
/// # drop(unsafe { cuda_safe::interop::dlpack::ManagedTensor::from_raw_versioned(tensor.as_ptr()) });
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "what keeps the memory is dropped with it"]
pub struct Export {
    said: Box<Described>,
    owner: Box<dyn Any + Send>,
}

impl Export {
    /// A tensor whose elements lie in `layout` from `address` on, in memory that `owner` keeps.
    ///
    /// # Errors
    /// With the owner given back, [`Invalid::Dlpack`]: elements of another size than the layout's, or
    /// of no whole bytes; strides to another element that are no whole elements; no address for an
    /// array that has elements; numbers that the C structure cannot hold.
    pub fn new<O: Any + Send>(
        dtype: DataType,
        layout: Layout,
        address: u64,
        memory: MemoryKind,
        device: u32,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        let said = Described {
            dtype,
            layout,
            address,
            memory,
            device,
            flags: 0,
        };
        match check(&said) {
            Ok(()) => Ok(Self {
                said: Box::new(said),
                owner: Box::new(owner),
            }),
            Err(invalid) => Err(Rejected::new(invalid, owner)),
        }
    }

    /// The same, to be read only. Tensors before version 1 cannot say so.
    pub fn read_only(self) -> Self {
        self.with(DLPACK_FLAG_BITMASK_READ_ONLY)
    }

    /// The same, as a copy that was made for the consumer alone.
    pub fn copied(self) -> Self {
        self.with(DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    fn with(mut self, flag: u64) -> Self {
        self.said.flags |= flag;
        self
    }

    /// The same, for consumers that may have work on the memory under way when they call the deleter:
    /// has `stream`, in whose order the memory is used again or freed, wait for `consumer` then
    /// (`cuEventRecord`, `cuStreamWaitEvent`), before the owner is dropped. Makes the event for it
    /// now. Should it fail then, the owner is never dropped, and
    /// [`set_report_hook`](crate::set_report_hook)'s function hears of it.
    ///
    /// # Errors
    /// With this given back: the default stream of a thread, as it is another one on the deleter's
    /// thread; those of the driver.
    ///
    /// # Safety
    /// A handle is of a stream of the same context that is alive until the deleter has returned; or,
    /// where that is called in a capture or a host function, until the next create, copy or wait
    /// outside of those.
    ///
    /// Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub unsafe fn behind(
        self,
        consumer: ConsumerStream,
        stream: &Stream,
    ) -> Result<Self, Rejected<Self>> {
        let (consumer, end) = match end_of_use(consumer, stream) {
            Ok(Some(end)) => end,
            Ok(None) => return Ok(self),
            Err(error) => return Err(Rejected::new(error, self)),
        };
        let used = Used(Use {
            end,
            consumer,
            home: stream.clone(),
            owner: Arc::new(Kept(self.owner)),
        });
        Ok(Self {
            owner: Box::new(used),
            ..self
        })
    }

    /// A tensor as before version 1, for a capsule named `dltensor`.
    ///
    /// # Errors
    /// It is read-only, which such a tensor cannot say; this is given back.
    pub fn into_raw(self) -> Result<NonNull<DLManagedTensor>, Rejected<Self>> {
        if self.said.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0 {
            let problem = "a tensor before version 1 cannot say that it is read-only";
            return Err(Rejected::new(refused("flags", problem), self));
        }
        let (tensor, kept) = self.into_parts();
        Ok(give_out(Exported {
            managed: DLManagedTensor {
                dl_tensor: tensor,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete::<DLManagedTensor>),
            },
            kept,
        }))
    }

    /// A tensor of version 1, for a capsule named `dltensor_versioned`.
    pub fn into_raw_versioned(self) -> NonNull<DLManagedTensorVersioned> {
        let flags = self.said.flags;
        let (tensor, kept) = self.into_parts();
        give_out(Exported {
            managed: DLManagedTensorVersioned {
                version: DLPackVersion {
                    major: MAJOR,
                    minor: MINOR,
                },
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete::<DLManagedTensorVersioned>),
                flags,
                dl_tensor: tensor,
            },
            kept,
        })
    }

    fn into_parts(self) -> (DLTensor, Parts) {
        let wide = |extent: &usize| *extent as i64;
        let items = self.said.layout.item_size().max(1) as isize;
        let strides = self.said.layout.strides().iter();
        let mut numbers = Vec::with_capacity(2 * self.said.layout.shape().len());
        numbers.extend(self.said.layout.shape().iter().map(wide));
        // What is no whole number of elements leads nowhere: it was checked.
        numbers.extend(strides.map(|stride| match stride % items {
            0 => (stride / items) as i64,
            _ => 1,
        }));
        let dimensions = numbers.len() / 2;
        let start = numbers.as_mut_ptr();
        let tensor = DLTensor {
            data: match self.said.layout.is_empty() {
                true => std::ptr::null_mut(),
                false => std::ptr::with_exposed_provenance_mut(self.said.address as usize),
            },
            device: DLDevice {
                device_type: match self.said.memory {
                    MemoryKind::Device => DLDeviceType::kDLCUDA,
                    MemoryKind::Pinned => DLDeviceType::kDLCUDAHost,
                    MemoryKind::Managed => DLDeviceType::kDLCUDAManaged,
                },
                // It was checked, as the number of dimensions was.
                device_id: i32::try_from(self.said.device).unwrap_or(0),
            },
            ndim: i32::try_from(dimensions).unwrap_or(0),
            dtype: self.said.dtype.to_raw(),
            shape: start,
            strides: start.wrapping_add(dimensions),
            byte_offset: 0,
        };
        (
            tensor,
            Parts {
                _numbers: numbers,
                _owner: self.owner,
            },
        )
    }
}

/// What the C structure can hold, and DLPack has a form for.
fn check(said: &Described) -> Result<(), Invalid> {
    let (dtype, layout) = (said.dtype, &said.layout);
    let size = dtype.checked_item_size(false)?;
    if size != layout.item_size() {
        let problem = format!("{dtype} in a layout for {} bytes", layout.item_size());
        return Err(refused("dtype", problem));
    }
    // Of one element, or none, they lead nowhere.
    let mut strides = layout.strides().iter().zip(layout.shape());
    let wrong = strides.find(|(stride, extent)| {
        !layout.is_empty() && **extent > 1 && **stride % (size as isize) != 0
    });
    if let Some((stride, _)) = wrong {
        let problem = format!("{stride} bytes are no whole elements of {size}");
        return Err(refused("strides", problem));
    }
    let shape = layout.shape();
    if i32::try_from(shape.len()).is_err() {
        return Err(refused("ndim", format!("{} dimensions", shape.len())));
    }
    if shape.iter().any(|extent| i64::try_from(*extent).is_err()) {
        let problem = format!("{shape:?} is more than can be counted");
        return Err(refused("shape", problem));
    }
    if said.address == 0 && !layout.is_empty() {
        return Err(refused("data", "the address is 0, and the shape not empty"));
    }
    match i32::try_from(said.device) {
        Ok(_) => Ok(()),
        Err(_) => Err(refused("device", format!("the number {}", said.device))),
    }
}

/// A tensor in the hands of others: what they see comes first, so that its address is this one's.
#[repr(C)]
struct Exported<M> {
    managed: M,
    kept: Parts,
}

/// What a tensor points to, and what keeps its memory.
struct Parts {
    _numbers: Vec<i64>,
    _owner: Box<dyn Any + Send>,
}

fn give_out<M>(exported: Exported<M>) -> NonNull<M> {
    NonNull::from(Box::leak(Box::new(exported))).cast()
}

/// The deleter.
///
/// # Safety
/// `managed` is of [`give_out`], and given back once.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: the caller's promise: it is the beginning of such a box.
    let exported = unsafe { Box::from_raw(managed.cast::<Exported<M>>()) };
    // Whoever calls this is C: a panic of the owner's goes no further.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(exported))) {
        std::mem::forget(panic);
    }
}

/// What comes behind the consumer's work when it is dropped.
struct Used(Use);

#[derive(Clone)]
struct Use {
    end: Event,
    consumer: ForeignStream,
    home: Stream,
    #[allow(dead_code, reason = "held, not read")]
    owner: Arc<Kept>,
}

/// The owner. It is dropped once, by whoever drops the last of the clones.
struct Kept(#[allow(dead_code, reason = "held, not read")] Box<dyn Any + Send>);

// SAFETY: a shared reference to it gives no access to the owner.
unsafe impl Sync for Kept {}

/// The consumer's stream, and the event that will mark its work; none if there is nothing to wait for.
fn end_of_use(consumer: ConsumerStream, stream: &Stream) -> Result<Option<(ForeignStream, Event)>> {
    let Some(exported) = consumer.exported() else {
        return Ok(None);
    };
    if exported == ExportedStream::PerThread {
        let problem = "the default stream of a thread is another one where the deleter is called";
        return Err(refused("stream", problem).into());
    }
    let raw = exported.raw()?;
    if raw == stream.raw() {
        return Ok(None);
    }
    Ok(Some((ForeignStream::new(raw), stream.context().event()?)))
}

impl Drop for Used {
    fn drop(&mut self) {
        let reads = Resource::Reads {
            end: self.0.end.raw(),
            stream: self.0.consumer.raw(),
            home: self.0.home.raw(),
        };
        release(reads, &self.0);
    }
}

impl Parent for Use {
    fn context(&self) -> Option<&Context> {
        Some(self.home.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.home.is_borrowed()
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        let consumer = OrderedOn::Foreign(&self.consumer);
        [Some(consumer), Some(OrderedOn::Stream(&self.home))]
    }
}

impl<T: Element + Send> DeviceBuffer<T> {
    /// The buffer for others, as a tensor of one dimension that owns it: it is freed in the order of its
    /// stream when they call the deleter.
    ///
    /// Whoever asked for it on a stream gets that put behind the work on the buffer:
    /// [`ConsumerStream::wait_for`].
    ///
    /// Memory of a pool becomes accessible to the other devices: [`grant_peer_access`](crate::interop::grant_peer_access).
    ///
    /// # Errors
    /// With the buffer given back: the length is more than can be addressed; those of the driver, on a machine
    /// with several devices.
    #[doc(alias = "__dlpack__")]
    pub fn into_dlpack(self) -> Result<Export, Rejected<Self>> {
        let layout = match Layout::c_contiguous(&[self.len()], size_of::<T>()) {
            Ok(layout) => layout,
            Err(invalid) => return Err(Rejected::new(invalid, self)),
        };
        let (address, context) = (self.as_raw(), self.stream().context());
        // SAFETY: the buffer is owned.
        if let Err(error) = unsafe { grant_for_export(context, address) } {
            return Err(Rejected::new(error, self));
        }
        let device = context.device().ordinal();
        let dtype = DataType::of::<T>();
        Export::new(dtype, layout, address, MemoryKind::Device, device, self)
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.debug(&mut f.debug_struct("Export"))
    }
}
