//! Imported tensors.

use super::dtype::DataType;
use super::raw::{
    DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor,
};
use super::{MAJOR, TensorDescription, from_layout_error, refused};
use crate::call::{Invalid, Result, debug, refuse_if};
use crate::interop::{
    ArrayInterface, Dtype, Element, ExportedStream, Imported, ImportedArray, Layout, StreamSync,
};
use crate::stream::Stream;
use std::ptr::NonNull;

/// The kind of memory of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MemoryKind {
    /// Device memory (`kDLCUDA`).
    Device,
    /// Pinned host memory (`kDLCUDAHost`).
    Pinned,
    /// Managed memory (`kDLCUDAManaged`).
    Managed,
    /// Host memory that is not pinned (`kDLCPU`). It can be exported, but not imported, because a
    /// device cannot access it.
    Host,
}

/// A tensor of another library, with the obligation to call its deleter once.
///
/// It was checked to be valid and in memory that a CUDA device can access. Dropping it calls the
/// tensor's deleter on the current thread.
///
/// ```no_run
/// use cuda_safe::interop::StreamSync;
/// use cuda_safe::interop::dlpack::ManagedTensor;
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// // The contents of a capsule "dltensor_versioned" that was requested with this stream.
/// # let capsule = DeviceBuffer::from_slice(&stream, &[1.0f32])?.into_dlpack()?;
/// # let capsule = capsule.into_raw_versioned().as_ptr();
/// // SAFETY: the capsule is owned here, and was renamed.
/// let tensor = unsafe { ManagedTensor::from_raw_versioned(capsule) }?;
/// println!("{:?} of {}", tensor.layout().shape(), tensor.dtype());
/// // SAFETY: the producer does not write the memory before the deleter is called.
/// let array = unsafe { tensor.import::<f32>(&stream, StreamSync::WaitEvent) }?;
/// let mut own = DeviceBuffer::<f32>::uninit(&stream, array.len())?;
/// own.copy_from(&array)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ManagedTensor {
    pub(super) description: Box<TensorDescription>,
    version: Option<(u32, u32)>,
    /// The producer's stream, if the caller has set it.
    pub(super) stream: Option<ExportedStream>,
    /// Kept only to be dropped.
    _raw: RawTensor,
}

/// The original tensor, whose deleter is called when this is dropped.
enum RawTensor {
    Legacy(NonNull<DLManagedTensor>),
    Versioned(NonNull<DLManagedTensorVersioned>),
}

// SAFETY: the pointer is not used for reading after the checks. It is only used for the call of the
// deleter, which any thread may make: see `ManagedTensor::from_raw`.
unsafe impl Send for RawTensor {}
// SAFETY: see `Send`; a shared reference gives no access.
unsafe impl Sync for RawTensor {}

impl Drop for RawTensor {
    #[inline]
    fn drop(&mut self) {
        match *self {
            Self::Legacy(tensor) => {
                // SAFETY: the tensor is alive until its deleter is called below.
                let deleter = unsafe { (*tensor.as_ptr()).deleter };
                if let Some(deleter) = deleter {
                    // SAFETY: it is the tensor's deleter, and is called once.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
            Self::Versioned(tensor) => {
                // SAFETY: see above; the field is at the same place in every version.
                let deleter = unsafe { (*tensor.as_ptr()).deleter };
                if let Some(deleter) = deleter {
                    // SAFETY: see above.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
        }
    }
}

impl ManagedTensor {
    /// Takes ownership of a tensor in the format before version 1, from a capsule named `dltensor`.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] with the invalid field: a null pointer; memory of an unsupported kind
    /// (including plain host memory) or an invalid device number; elements that do not begin at
    /// byte boundaries; a shape, strides or an offset that exceed the address space; or a null
    /// address of a tensor that is not empty. The deleter is then called.
    ///
    /// # Safety
    /// `tensor` must be null or point to a valid DLPack tensor, whose shape and strides have one
    /// entry per dimension. No other code may call its deleter. It must be possible to call the
    /// deleter at any time and on any thread, including driver callback threads. If the deleter
    /// takes a lock, for example that of an interpreter, no thread may drop the tensor, or an
    /// object created from it, while it holds that lock in a way that prevents the deleter from
    /// taking it.
    #[inline]
    pub unsafe fn from_raw(tensor: *mut DLManagedTensor) -> Result<Self, Invalid> {
        let tensor = NonNull::new(tensor).ok_or_else(null_tensor)?;
        // From here on, the deleter is called in every case.
        let raw = RawTensor::Legacy(tensor);
        // SAFETY: the caller promised that this is a valid tensor.
        let array = unsafe { (*tensor.as_ptr()).dl_tensor };
        // SAFETY: the caller promised that its shape and strides are valid.
        unsafe { Self::read(array, 0, None, raw) }
    }

    /// Takes ownership of a tensor of version 1, from a capsule named `dltensor_versioned`.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw). Also [`Invalid::Dlpack`] for a major version other than 1;
    /// in this case no other field is read.
    ///
    /// # Safety
    /// See [`from_raw`](Self::from_raw).
    #[inline]
    pub unsafe fn from_raw_versioned(
        tensor: *mut DLManagedTensorVersioned,
    ) -> Result<Self, Invalid> {
        let tensor = NonNull::new(tensor).ok_or_else(null_tensor)?;
        // From here on, the deleter is called in every case.
        let raw = RawTensor::Versioned(tensor);
        // SAFETY: the version is the first field in every version.
        let version = unsafe { (*tensor.as_ptr()).version };
        if version.major != MAJOR {
            let problem = format!(
                "version {}.{} is not supported; the supported major version is {MAJOR}",
                version.major, version.minor
            );
            return Err(refused("version", problem));
        }
        // SAFETY: the caller promised that this is a valid tensor, and its version is known.
        let flags = unsafe { (*tensor.as_ptr()).flags };
        // SAFETY: see above.
        let array = unsafe { (*tensor.as_ptr()).dl_tensor };
        let version = Some((version.major, version.minor));
        // SAFETY: the caller promised that its shape and strides are valid.
        unsafe { Self::read(array, flags, version, raw) }
    }

    /// Reads a copy of the tensor, because the deleter, which frees the original, may be called
    /// before this returns.
    ///
    /// # Safety
    /// The shape and strides must have one entry per dimension, or be null.
    #[inline]
    unsafe fn read(
        tensor: DLTensor,
        flags: u64,
        version: Option<(u32, u32)>,
        raw: RawTensor,
    ) -> Result<Self, Invalid> {
        let (memory, device) = memory_of(tensor.device)?;
        let dtype = DataType::from_raw(tensor.dtype);
        let padded = flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0;
        let item_size = dtype.checked_item_size(padded)?;
        let dimensions = usize::try_from(tensor.ndim)
            .map_err(|_| refused("ndim", format!("{} dimensions", tensor.ndim)))?;
        // SAFETY: the caller's promise.
        let shape = unsafe { read_array(tensor.shape, dimensions) };
        // SAFETY: see above.
        let strides = unsafe { read_array(tensor.strides, dimensions) };
        let shape = shape.ok_or_else(|| refused("shape", "the pointer is null"))?;
        let layout =
            Layout::from_signed(shape, strides, item_size, item_size).map_err(from_layout_error)?;
        let start = tensor.data.expose_provenance() as u64;
        if start == 0 && !layout.is_empty() {
            let problem = format!("the pointer is null, but the shape {shape:?} is not empty");
            return Err(refused("data", problem));
        }
        let exceeds = |field| {
            let problem = format!("the tensor at {start:#x} extends beyond the address space");
            refused(field, problem)
        };
        let address =
            start.checked_add(tensor.byte_offset).ok_or_else(|| exceeds("byte_offset"))?;
        refuse_if!(!layout.fits_at(address), exceeds("data"));
        Ok(Self {
            description: Box::new(TensorDescription {
                dtype,
                layout,
                address,
                memory,
                device,
                flags,
            }),
            version,
            stream: None,
            _raw: raw,
        })
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> DataType {
        self.description.dtype
    }

    /// Returns the arrangement of the elements, relative to the [address](Self::address). The
    /// strides are in bytes.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.description.layout
    }

    /// Returns the address of the first element. The value has no meaning for an empty tensor.
    #[inline]
    pub fn address(&self) -> u64 {
        self.description.address
    }

    /// Returns the kind of memory.
    #[inline]
    pub fn memory(&self) -> MemoryKind {
        self.description.memory
    }

    /// Returns the number of the device. It has no meaning for memory that is not on a device.
    #[inline]
    pub fn device(&self) -> u32 {
        self.description.device
    }

    /// Returns whether the tensor must not be written. (Tensors before version 1 do not report
    /// this.)
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.description.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0
    }

    /// Returns whether the tensor is a copy that was made for this consumer alone.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.description.flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0
    }

    /// Returns the version of the tensor, or `None` before version 1.
    #[inline]
    pub fn version(&self) -> Option<(u32, u32)> {
        self.version
    }

    /// Returns the description of the tensor as an array interface. It does not own the memory, so
    /// the tensor must outlive its use.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] if NumPy does not have the type of the elements. Use
    /// [`array_interface_as`](Self::array_interface_as) to get their bytes.
    #[inline]
    pub fn array_interface(&self) -> Result<ArrayInterface, Invalid> {
        let ty = self.description.dtype.numpy().ok_or_else(|| {
            let problem = format!("NumPy has no {}", self.description.dtype);
            refused("dtype", problem)
        })?;
        self.array_interface_as(ty)
    }

    /// Returns the description as an array interface with another type of the same size, for
    /// example `<u2` for `bfloat16`.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the sizes differ.
    pub fn array_interface_as(&self, dtype: impl Into<Dtype>) -> Result<ArrayInterface, Invalid> {
        let array =
            ArrayInterface::new(dtype, self.description.layout.clone(), self.description.address)?;
        let array = array.with_stream(self.stream);
        Ok(if self.is_read_only() { array.read_only() } else { array })
    }
}

#[inline]
fn null_tensor() -> Invalid {
    refused("tensor", "the pointer is null")
}

/// Returns the kind of memory and the number of the device.
#[inline]
fn memory_of(device: DLDevice) -> Result<(MemoryKind, u32), Invalid> {
    let memory = match device.device_type {
        DLDeviceType::kDLCUDA => MemoryKind::Device,
        DLDeviceType::kDLCUDAHost => MemoryKind::Pinned,
        DLDeviceType::kDLCUDAManaged => MemoryKind::Managed,
        DLDeviceType(kind) => {
            let name = match device.device_type {
                DLDeviceType::kDLCPU => "host memory that is not pinned (kDLCPU)".to_owned(),
                _ => format!("memory of a device of kind {kind}"),
            };
            let problem = format!(
                "{name} is not supported: use kDLCUDA (2), kDLCUDAHost (3) or kDLCUDAManaged (13)"
            );
            return Err(refused("device", problem));
        }
    };
    let number = u32::try_from(device.device_id)
        .map_err(|_| refused("device", format!("the number {}", device.device_id)))?;
    Ok((memory, number))
}

/// Returns the entries of a shape or of strides, or `None` if the pointer is null and there are
/// dimensions.
///
/// # Safety
/// The pointer must be null or point to `count` entries.
#[inline]
unsafe fn read_array<'a>(start: *const i64, count: usize) -> Option<&'a [i64]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: the pointer is not null here, and the caller promised the rest.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, count) })
}

debug! { ManagedTensor |its, f| its.description.debug(&mut f.debug_struct("ManagedTensor")) }

impl ManagedTensor {
    /// Sets the stream on which the producer continues to use the memory after the deleter was
    /// called. DLPack does not report it, so this is for callers that know the producer. With it,
    /// [`StreamSync::WaitEvent`] needs no wait of the host when the import is dropped, and
    /// [`StreamSync::ProducerStream`] has a stream for the work.
    #[must_use]
    #[inline]
    pub fn with_producer_stream(mut self, stream: Option<ExportedStream>) -> Self {
        self.stream = stream;
        self
    }

    /// Imports the tensor for work on `stream`. The producer must have been asked to order its own
    /// work before this stream ([`ConsumerStream`](super::ConsumerStream)). When the
    /// [`ImportedArray`] is dropped, its work is waited for or ordered according to `sync`, and
    /// then the deleter is called.
    ///
    /// Unless the [producer's stream](Self::with_producer_stream) is known, the host waits for
    /// `stream` at that time, because DLPack does not report where the producer continues.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] if the elements have another [type](Self::dtype) than `T`, or if the memory
    /// is on another [device](Self::device) than the stream; and the errors of
    /// [`ArrayInterface::import`]. On an error, the tensor is dropped, which calls the deleter. To keep
    /// it, import its [`array_interface`](Self::array_interface) with a clone of an `Arc` of the tensor
    /// as the owner.
    ///
    /// # Safety
    /// The memory must stay valid until the deleter is called: readable and, unless it is marked as
    /// read-only, writable by the stream's device, with valid bits for `T`. All work on the memory
    /// so far must be complete, or `stream` must be ordered after it. No other code may work on the
    /// memory until the deleter is called. A stream that was set with
    /// [`with_producer_stream`](Self::with_producer_stream) must be alive until then, and belong to
    /// the same context. See also [`ArrayInterface::import`].
    pub unsafe fn import<T: Element>(
        self,
        stream: &Stream,
        sync: StreamSync,
    ) -> Result<ImportedArray<T>> {
        let array = self.interface_for::<T>(stream)?;
        // SAFETY: the caller's promise; the interface describes the tensor, which is the owner.
        unsafe { array.import(stream, sync, self) }
    }

    /// Imports the tensor, of any type and layout, for work on `stream`. This is like
    /// [`import`](Self::import), but interprets the elements as `dtype`. [`DataType::numpy`]
    /// returns the NumPy type of the tensor if there is one.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if `dtype` has another size than the elements;
    /// [`Invalid::Dlpack`] if the memory is on another device than the stream; and the errors of
    /// [`ArrayInterface::import_untyped`]. On an error, the tensor is dropped. See
    /// [`import`](Self::import).
    ///
    /// # Safety
    /// See [`import`](Self::import). The bits must be valid for every type that the memory is used
    /// as.
    pub unsafe fn import_untyped(
        self,
        dtype: impl Into<Dtype>,
        stream: &Stream,
        sync: StreamSync,
    ) -> Result<Imported> {
        self.check_device(stream)?;
        let array = self.array_interface_as(dtype)?;
        // SAFETY: the caller's promise; the interface describes the tensor, which is the owner.
        unsafe { array.import_untyped(stream, sync, self) }
    }

    fn interface_for<T: Element>(&self, stream: &Stream) -> Result<ArrayInterface, Invalid> {
        let expected = DataType::of::<T>();
        if self.description.dtype != expected {
            let problem = format!("{} where {expected} is expected", self.description.dtype);
            return Err(refused("dtype", problem));
        }
        self.check_device(stream)?;
        self.array_interface()
    }

    #[inline]
    fn check_device(&self, stream: &Stream) -> Result<(), Invalid> {
        let (tensor_device, stream_device) =
            (self.description.device, stream.context().device().ordinal());
        if self.description.memory == MemoryKind::Device && tensor_device != stream_device {
            let problem =
                format!("memory of device {tensor_device} for a stream of device {stream_device}");
            return Err(refused("device", problem));
        }
        Ok(())
    }
}
