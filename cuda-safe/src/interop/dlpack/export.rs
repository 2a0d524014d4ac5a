//! Export of tensors.

use super::dtype::DataType;
use super::managed::MemoryKind;
use super::raw::{
    DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLPackVersion, DLTensor,
};
use super::{ConsumerStream, MAJOR, MINOR, TensorDescription, refused};
use crate::call::{Invalid, Rejected, Result, debug};
use crate::capture_state::ForeignStream;
use crate::event::Event;
use crate::interop::address::grant_for_export;
use crate::interop::{Element, ExportedStream, Layout};
use crate::memory::{DeviceBuffer, Reads};
use crate::release::{owners, release};
use crate::stream::Stream;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// A tensor for another library, with the owner of its memory, which is dropped when the consumer
/// calls the deleter.
///
/// [`into_raw_versioned`](Self::into_raw_versioned) and [`into_raw`](Self::into_raw) return the
/// pointer for a capsule. The deleter may be called on any thread, at any time, but only once.
///
/// DLPack has no rule for the consumer's work that is still running when it calls the deleter, and
/// some consumers do not wait for it. Use [`release_after`](Self::release_after) for these.
///
/// ```no_run
/// use cuda_safe::interop::dlpack::ConsumerStream;
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
/// // What `__dlpack__(stream=…, max_version=(1, 0))` does:
/// let consumer = ConsumerStream::from_number(None)?;
/// // SAFETY: the consumer's stream is the default stream.
/// unsafe { consumer.wait_stream(&stream) }?;
/// let tensor = buffer.into_dlpack()?.into_raw_versioned();
/// // … which goes into a capsule named "dltensor_versioned", whose destructor calls the deleter
/// // unless a consumer has renamed the capsule.
/// # // SAFETY: no other code has the pointer.
/// # drop(unsafe { cuda_safe::interop::dlpack::ManagedTensor::from_raw_versioned(tensor.as_ptr()) });
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "dropping this drops the owner of the memory"]
pub struct Export {
    description: Box<TensorDescription>,
    owner: Box<dyn Any + Send>,
}

impl Export {
    /// Creates a tensor whose elements are arranged according to `layout` at `address`, in memory
    /// that `owner` keeps alive.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] if the element size differs from that of the layout or is not a whole number
    /// of bytes, if a stride is not a multiple of the element size, if the address is 0 and the tensor
    /// is not empty, or if a number does not fit in the C structure. On an error, `owner` is dropped; to
    /// keep it, pass a clone of an `Arc`.
    pub fn new(
        dtype: DataType,
        layout: Layout,
        address: u64,
        memory: MemoryKind,
        device: u32,
        owner: impl Any + Send,
    ) -> Result<Self> {
        let description = TensorDescription { dtype, layout, address, memory, device, flags: 0 };
        check(&description)?;
        Ok(Self { description: Box::new(description), owner: Box::new(owner) })
    }

    /// Marks the tensor as read-only. The format before version 1 does not support this.
    #[inline]
    pub fn read_only(self) -> Self {
        self.with(DLPACK_FLAG_BITMASK_READ_ONLY)
    }

    /// Marks the tensor as a copy that was made for the consumer alone.
    #[inline]
    pub fn copied(self) -> Self {
        self.with(DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    #[inline]
    fn with(mut self, flag: u64) -> Self {
        self.description.flags |= flag;
        self
    }

    /// Makes `stream` wait for `consumer` when the deleter is called, before the owner is dropped.
    /// Use this for consumers that may have running work on the memory when they call the deleter.
    /// `stream` must be the stream on which the memory is reused or freed.
    ///
    /// The event for this is created now. The deleter then calls `cuEventRecord` and
    /// `cuStreamWaitEvent`. If that fails, the owner is leaked, and this is reported to the
    /// function of [`set_report_hook`](crate::set_report_hook).
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] for the per-thread default stream, which is a different stream on the
    /// deleter's thread; or an error of the driver. The tensor is then unchanged.
    ///
    /// # Safety
    /// A stream given by its handle must belong to the same context and be alive until the deleter
    /// has returned. If the deleter is called during a capture or in a host function, the stream
    /// must be alive until the next create, copy or wait outside of these.
    ///
    /// Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    #[inline]
    pub unsafe fn release_after(
        &mut self,
        consumer: ConsumerStream,
        stream: &Stream,
    ) -> Result<()> {
        let Some((consumer, end_event)) = consumer_and_end_event(consumer, stream)? else {
            return Ok(());
        };
        let owner = std::mem::replace(&mut self.owner, Box::new(()));
        self.owner = Box::new(WaitForConsumer(ConsumerWork {
            end_event,
            consumer,
            stream: stream.clone(),
            owner: Arc::new(SharedOwner(owner)),
        }));
        Ok(())
    }

    /// Returns the pointer to a tensor in the format before version 1, for a capsule named
    /// `dltensor`.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] if the tensor is [read-only](Self::read_only), which this format does not
    /// support. The tensor and the owner of its memory are then dropped.
    #[inline]
    pub fn into_raw(self) -> Result<NonNull<DLManagedTensor>> {
        if self.description.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0 {
            let problem = "the format before version 1 does not support read-only tensors";
            return Err(refused("flags", problem).into());
        }
        let (tensor, parts) = self.into_parts();
        Ok(into_pointer(Exported {
            managed: DLManagedTensor {
                dl_tensor: tensor,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete::<DLManagedTensor>),
            },
            parts,
        }))
    }

    /// Returns the pointer to a tensor of version 1, for a capsule named `dltensor_versioned`.
    #[inline]
    pub fn into_raw_versioned(self) -> NonNull<DLManagedTensorVersioned> {
        let flags = self.description.flags;
        let (tensor, parts) = self.into_parts();
        into_pointer(Exported {
            managed: DLManagedTensorVersioned {
                version: DLPackVersion { major: MAJOR, minor: MINOR },
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete::<DLManagedTensorVersioned>),
                flags,
                dl_tensor: tensor,
            },
            parts,
        })
    }

    #[inline]
    fn into_parts(self) -> (DLTensor, TensorParts) {
        let widened = |extent: &usize| *extent as i64;
        let item_size = self.description.layout.item_size().max(1) as isize;
        let strides = self.description.layout.strides().iter();
        let mut numbers = Vec::with_capacity(2 * self.description.layout.shape().len());
        numbers.extend(self.description.layout.shape().iter().map(widened));
        // Strides that are not a multiple of the element size are not used, as was checked.
        numbers.extend(strides.map(|stride| match stride % item_size {
            0 => (stride / item_size) as i64,
            _ => 1,
        }));
        let dimensions = numbers.len() / 2;
        let start = numbers.as_mut_ptr();
        let tensor = DLTensor {
            data: match self.description.layout.is_empty() {
                true => std::ptr::null_mut(),
                false => std::ptr::with_exposed_provenance_mut(self.description.address as usize),
            },
            device: DLDevice {
                device_type: match self.description.memory {
                    MemoryKind::Device => DLDeviceType::kDLCUDA,
                    MemoryKind::Pinned => DLDeviceType::kDLCUDAHost,
                    MemoryKind::Managed => DLDeviceType::kDLCUDAManaged,
                    MemoryKind::Host => DLDeviceType::kDLCPU,
                },
                // The numbers of the device and of the dimensions were checked.
                device_id: i32::try_from(self.description.device).unwrap_or(0),
            },
            ndim: i32::try_from(dimensions).unwrap_or(0),
            dtype: self.description.dtype.to_raw(),
            shape: start,
            strides: start.wrapping_add(dimensions),
            byte_offset: 0,
        };
        (tensor, TensorParts { _numbers: numbers, _owner: self.owner })
    }
}

/// Checks that the C structure can represent the tensor and DLPack supports it.
#[inline]
fn check(description: &TensorDescription) -> Result<(), Invalid> {
    let (dtype, layout) = (description.dtype, &description.layout);
    let size = dtype.checked_item_size(false)?;
    if size != layout.item_size() {
        let problem = format!("{dtype} in a layout for elements of {} bytes", layout.item_size());
        return Err(refused("dtype", problem));
    }
    // Strides of dimensions with at most one element are not used.
    let mut strides = layout.strides().iter().zip(layout.shape());
    let misaligned = strides.find(|(stride, extent)| {
        !layout.is_empty() && **extent > 1 && **stride % (size as isize) != 0
    });
    if let Some((stride, _)) = misaligned {
        let problem = format!("a stride of {stride} bytes is not a multiple of {size} bytes");
        return Err(refused("strides", problem));
    }
    let shape = layout.shape();
    if i32::try_from(shape.len()).is_err() {
        return Err(refused("ndim", format!("{} dimensions", shape.len())));
    }
    if shape.iter().any(|extent| i64::try_from(*extent).is_err()) {
        let problem = format!("an extent of {shape:?} exceeds 64-bit signed integers");
        return Err(refused("shape", problem));
    }
    if description.address == 0 && !layout.is_empty() {
        return Err(refused("data", "the address is 0, but the shape is not empty"));
    }
    match i32::try_from(description.device) {
        Ok(_) => Ok(()),
        Err(_) => Err(refused("device", format!("the number {}", description.device))),
    }
}

/// An exported tensor. The C structure is the first field, so that both have the same address.
#[repr(C)]
struct Exported<M> {
    managed: M,
    parts: TensorParts,
}

/// The numbers to which the tensor points, and the owner of its memory.
struct TensorParts {
    _numbers: Vec<i64>,
    _owner: Box<dyn Any + Send>,
}

fn into_pointer<M>(exported: Exported<M>) -> NonNull<M> {
    NonNull::from(Box::leak(Box::new(exported))).cast()
}

/// The deleter.
///
/// # Safety
/// `managed` must come from [`into_pointer`], and this must be called once.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: the caller's promise; the pointer is to the beginning of such a box.
    let exported = unsafe { Box::from_raw(managed.cast::<Exported<M>>()) };
    // The caller is C code, so a panic of the owner's destructor must not unwind further.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(exported))) {
        std::mem::forget(panic);
    }
}

/// Runs the wait for the consumer's work, and the release of the owner after it, when dropped.
struct WaitForConsumer(ConsumerWork);

#[derive(Clone)]
struct ConsumerWork {
    end_event: Event,
    consumer: ForeignStream,
    stream: Stream,
    #[allow(dead_code, reason = "held, not read")]
    owner: Arc<SharedOwner>,
}

/// The owner of the memory. It is dropped once, with the last clone of the `Arc`.
struct SharedOwner(#[allow(dead_code, reason = "held, not read")] Box<dyn Any + Send>);

// SAFETY: a shared reference gives no access to the owner.
unsafe impl Sync for SharedOwner {}

/// Returns the consumer's stream and the event for its work, or `None` if no wait is necessary.
#[inline]
fn consumer_and_end_event(
    consumer: ConsumerStream,
    stream: &Stream,
) -> Result<Option<(ForeignStream, Event)>> {
    let Some(exported) = consumer.exported() else { return Ok(None) };
    if exported == ExportedStream::PerThread {
        let problem = "the per-thread default stream is a different stream on the deleter's thread";
        return Err(refused("stream", problem).into());
    }
    let raw = exported.raw()?;
    if raw == stream.raw() {
        return Ok(None);
    }
    Ok(Some((ForeignStream::new(raw), stream.context().event()?)))
}

impl Drop for WaitForConsumer {
    #[inline]
    fn drop(&mut self) {
        let ConsumerWork { end_event, consumer, stream, .. } = &self.0;
        release(Reads::new(end_event, consumer.raw(), stream.raw()), &self.0);
    }
}

owners! {
    ConsumerWork |its| {
        context: Some(its.stream.context()),
        is_borrowed: its.stream.is_borrowed(),
        streams: {
            let consumer = its.consumer.by_ref();
            [Some(consumer), Some(its.stream.by_ref())]

        },
    }
}

impl<T: Element + Send> DeviceBuffer<T> {
    /// Converts the buffer to a one-dimensional tensor that owns it. When the consumer calls the
    /// deleter, the buffer is freed in stream order.
    ///
    /// If the consumer requested it with a stream, call [`ConsumerStream::wait_stream`] to make that
    /// stream wait for the work on the buffer.
    ///
    /// Other devices get access to memory of a pool: see
    /// [`grant_peer_access`](crate::interop::grant_peer_access).
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the length exceeds the address space; on a machine with several
    /// devices, an error of the driver. The buffer is then dropped.
    /// [`try_into_dlpack`](Self::try_into_dlpack) returns it with the error.
    #[doc(alias = "__dlpack__")]
    pub fn into_dlpack(self) -> Result<Export> {
        Ok(self.try_into_dlpack()?)
    }

    /// Does the same as [`into_dlpack`](Self::into_dlpack), but returns the buffer with the error.
    ///
    /// # Errors
    /// See [`into_dlpack`](Self::into_dlpack).
    pub fn try_into_dlpack(self) -> Result<Export, Rejected<Self>> {
        let (description, buffer) = Rejected::unless(self.describe(), self)?;
        Ok(Export { description: Box::new(description), owner: Box::new(buffer) })
    }

    /// Describes the buffer as a tensor, after granting the other devices access to it.
    fn describe(&self) -> Result<TensorDescription> {
        let layout = Layout::c_contiguous(&[self.len()], size_of::<T>())?;
        let (address, context) = (self.as_raw(), self.stream().context());
        // SAFETY: the buffer is owned.
        unsafe { grant_for_export(context, address) }?;
        let description = TensorDescription {
            dtype: DataType::of::<T>(),
            layout,
            address,
            memory: MemoryKind::Device,
            device: context.device().ordinal(),
            flags: 0,
        };
        check(&description)?;
        Ok(description)
    }
}

debug! { Export |its, f| its.description.debug(&mut f.debug_struct("Export")) }
