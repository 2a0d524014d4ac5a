//! Tensors of others.

use super::dtype::DataType;
use super::raw::{
    DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor,
};
use super::{Described, MAJOR, of_layout, refused};
use crate::interop::{ArrayInterface, Dtype, ExportedStream, Layout};
use crate::invalid::Invalid;
use std::fmt;
use std::ptr::NonNull;

/// Where the memory of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MemoryKind {
    /// `kDLCUDA`: on a device.
    Device,
    /// `kDLCUDAHost`: pinned, on the host.
    Pinned,
    /// `kDLCUDAManaged`: managed.
    Managed,
}

/// A tensor of somebody else's, with the duty to tell them, once, that it is used no more.
///
/// It was checked for what cannot be, and for being in memory that a CUDA device reaches. Dropping it
/// calls the tensor's deleter, on whichever thread that is.
///
/// ```no_run
/// use cuda_safe::interop::Handover;
/// use cuda_safe::interop::dlpack::ManagedTensor;
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// // What a capsule "dltensor_versioned" has, which was asked for with this stream.
/// # let capsule = DeviceBuffer::from_slice(&stream, &[1.0f32])?.into_dlpack()?;
/// # let capsule = capsule.into_raw_versioned().as_ptr();
/// // SAFETY: the capsule is ours, and was renamed.
/// let tensor = unsafe { ManagedTensor::from_raw_versioned(capsule) }?;
/// println!("{:?} of {}", tensor.layout().shape(), tensor.dtype());
/// // SAFETY: its producer does not write it before it is told that this is the end.
/// let array = unsafe { tensor.import::<f32>(&stream, Handover::WaitByEvent) }?;
/// let mut own = DeviceBuffer::<f32>::uninit(&stream, array.len())?;
/// own.copy_from(&array)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ManagedTensor {
    pub(super) said: Box<Described>,
    version: Option<(u32, u32)>,
    /// The producer's, if somebody knows it.
    pub(super) stream: Option<ExportedStream>,
    /// Held, to be dropped.
    _raw: Owned,
}

/// The tensor as it came, whose deleter is called when this is dropped.
enum Owned {
    Legacy(NonNull<DLManagedTensor>),
    Versioned(NonNull<DLManagedTensorVersioned>),
}

// SAFETY: nothing is read through the pointer after the checks; all that is left to do with it is the
// call of the deleter, which any thread may make: see `ManagedTensor::from_raw`.
unsafe impl Send for Owned {}
// SAFETY: as for Send; a shared reference gives no access.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        match *self {
            Self::Legacy(tensor) => {
                // SAFETY: the tensor is alive until its deleter is called, which is here.
                let deleter = unsafe { (*tensor.as_ptr()).deleter };
                if let Some(deleter) = deleter {
                    // SAFETY: it is the tensor's own deleter, called once.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
            Self::Versioned(tensor) => {
                // SAFETY: as above; the field is at its place in every version.
                let deleter = unsafe { (*tensor.as_ptr()).deleter };
                if let Some(deleter) = deleter {
                    // SAFETY: as above.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
        }
    }
}

impl ManagedTensor {
    /// Takes over a tensor as before version 1, of a capsule named `dltensor`.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`], with the field that cannot be: no tensor; memory of another kind of device
    /// (of the host too), or of none; elements that do not begin at bytes; a shape, strides or an
    /// offset beyond all addresses; no address for an array that has elements. The deleter is called.
    ///
    /// # Safety
    /// `tensor` is null, or a tensor as DLPack describes it, whose shape and strides have as many
    /// entries as it has dimensions; nobody else calls its deleter. That may be called at any time,
    /// on any thread, also on one of the driver's: if it takes a lock, as that of an interpreter, no
    /// thread drops this, or what was made of it, while it has that lock in a way that the deleter cannot
    /// have it again.
    pub unsafe fn from_raw(tensor: *mut DLManagedTensor) -> Result<Self, Invalid> {
        let tensor = NonNull::new(tensor).ok_or_else(no_tensor)?;
        // From here on the deleter is called, whatever comes.
        let raw = Owned::Legacy(tensor);
        // SAFETY: the caller promised that it is one.
        let array = unsafe { (*tensor.as_ptr()).dl_tensor };
        // SAFETY: likewise of its shape and strides.
        unsafe { Self::read(array, 0, None, raw) }
    }

    /// Takes over a tensor of version 1, of a capsule named `dltensor_versioned`.
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw); a major version above 1, of which nothing else is read.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw).
    pub unsafe fn from_raw_versioned(
        tensor: *mut DLManagedTensorVersioned,
    ) -> Result<Self, Invalid> {
        let tensor = NonNull::new(tensor).ok_or_else(no_tensor)?;
        // From here on the deleter is called, whatever comes.
        let raw = Owned::Versioned(tensor);
        // SAFETY: the version is first in every version.
        let version = unsafe { (*tensor.as_ptr()).version };
        if version.major != MAJOR {
            let problem = format!("{}.{}; known is {MAJOR}", version.major, version.minor);
            return Err(refused("version", problem));
        }
        // SAFETY: the caller promised that it is one, and its version is known.
        let flags = unsafe { (*tensor.as_ptr()).flags };
        // SAFETY: as above.
        let array = unsafe { (*tensor.as_ptr()).dl_tensor };
        let version = Some((version.major, version.minor));
        // SAFETY: likewise of its shape and strides.
        unsafe { Self::read(array, flags, version, raw) }
    }

    /// Takes the tensor by value: the deleter, which frees it, may be called before this returns.
    ///
    /// # Safety
    /// The shape and strides have as many entries as there are dimensions, or are null.
    unsafe fn read(
        tensor: DLTensor,
        flags: u64,
        version: Option<(u32, u32)>,
        raw: Owned,
    ) -> Result<Self, Invalid> {
        let (memory, device) = place(tensor.device)?;
        let dtype = DataType::from_raw(tensor.dtype);
        let padded = flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0;
        let item_size = dtype.checked_item_size(padded)?;
        let dimensions = usize::try_from(tensor.ndim)
            .map_err(|_| refused("ndim", format!("{} dimensions", tensor.ndim)))?;
        // SAFETY: the caller's promise.
        let shape = unsafe { numbers(tensor.shape, dimensions) };
        // SAFETY: as above.
        let strides = unsafe { numbers(tensor.strides, dimensions) };
        let shape = shape.ok_or_else(|| refused("shape", "it is null"))?;
        let layout = layout(shape, strides, item_size)?;
        let start = tensor.data.expose_provenance() as u64;
        if start == 0 && !layout.is_empty() {
            let problem = format!("it is null, and the shape {shape:?} not empty");
            return Err(refused("data", problem));
        }
        let beyond = |field| {
            let problem = format!("from {start:#x} on the tensor goes beyond all addresses");
            refused(field, problem)
        };
        let address = start
            .checked_add(tensor.byte_offset)
            .ok_or_else(|| beyond("byte_offset"))?;
        let range = layout.byte_range();
        let fits = address.checked_add_signed(range.start as i64).is_some()
            && address.checked_add_signed(range.end as i64).is_some();
        if !fits {
            return Err(beyond("data"));
        }
        Ok(Self {
            said: Box::new(Described {
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

    /// What the elements are.
    pub fn dtype(&self) -> DataType {
        self.said.dtype
    }

    /// Where they lie, from the [address](Self::address) on; strides are in bytes here.
    pub fn layout(&self) -> &Layout {
        &self.said.layout
    }

    /// Of the first element; anything for a tensor without one.
    pub fn address(&self) -> u64 {
        self.said.address
    }

    /// Where the memory is.
    pub fn memory(&self) -> MemoryKind {
        self.said.memory
    }

    /// The number of the device; it means nothing for memory that is no device's.
    pub fn device(&self) -> u32 {
        self.said.device
    }

    /// Whether it must not be written. (Tensors before version 1 do not say.)
    pub fn is_read_only(&self) -> bool {
        self.said.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0
    }

    /// Whether it is a copy that was made for this reader alone.
    pub fn is_copied(&self) -> bool {
        self.said.flags & DLPACK_FLAG_BITMASK_IS_COPIED != 0
    }

    /// The version that it says it has; none before version 1.
    pub fn version(&self) -> Option<(u32, u32)> {
        self.version
    }

    /// The same as an array interface says it, which owns nothing: this has to outlive its use.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`]: elements of a type that NumPy has not:
    /// [`array_interface_as`](Self::array_interface_as) gives their bytes.
    pub fn array_interface(&self) -> Result<ArrayInterface, Invalid> {
        let ty = self.said.dtype.numpy().ok_or_else(|| {
            let problem = format!("NumPy has no {}", self.said.dtype);
            refused("dtype", problem)
        })?;
        self.array_interface_as(ty)
    }

    /// The same with elements taken for others of their size: `bfloat16` for `<u2`, as an example.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: they are of another size.
    pub fn array_interface_as(&self, dtype: impl Into<Dtype>) -> Result<ArrayInterface, Invalid> {
        let array = ArrayInterface::new(dtype, self.said.layout.clone(), self.said.address)?;
        let array = array.with_stream(self.stream);
        Ok(match self.is_read_only() {
            true => array.read_only(),
            false => array,
        })
    }
}

fn no_tensor() -> Invalid {
    refused("tensor", "the pointer is null")
}

/// The kind of memory, and the number of the device.
fn place(device: DLDevice) -> Result<(MemoryKind, u32), Invalid> {
    let memory = match device.device_type {
        DLDeviceType::kDLCUDA => MemoryKind::Device,
        DLDeviceType::kDLCUDAHost => MemoryKind::Pinned,
        DLDeviceType::kDLCUDAManaged => MemoryKind::Managed,
        DLDeviceType(kind) => {
            let name = match device.device_type {
                DLDeviceType::kDLCPU => "memory of the host that is not pinned (kDLCPU)".to_owned(),
                _ => format!("memory of a device of kind {kind}"),
            };
            let problem = format!(
                "{name}; what CUDA reaches is kDLCUDA (2), kDLCUDAHost (3) and kDLCUDAManaged (13)"
            );
            return Err(refused("device", problem));
        }
    };
    let number = u32::try_from(device.device_id)
        .map_err(|_| refused("device", format!("the number {}", device.device_id)))?;
    Ok((memory, number))
}

/// The entries of a shape or of strides; none if the pointer is null and there should be some.
///
/// # Safety
/// There are so many, or the pointer is null.
unsafe fn numbers<'a>(start: *const i64, count: usize) -> Option<&'a [i64]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: it is not null then, and the caller promised the rest.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, count) })
}

fn layout(shape: &[i64], strides: Option<&[i64]>, item_size: usize) -> Result<Layout, Invalid> {
    let extents: Option<Vec<usize>> = shape
        .iter()
        .map(|extent| usize::try_from(*extent).ok())
        .collect();
    let extents =
        extents.ok_or_else(|| refused("shape", format!("{shape:?} is no shape of an array")))?;
    let Some(strides) = strides else {
        return Layout::c_contiguous(&extents, item_size).map_err(of_layout);
    };
    // In bytes, and in elements before.
    let steps: Option<Vec<isize>> = strides
        .iter()
        .map(|stride| {
            let size = isize::try_from(item_size).ok()?;
            isize::try_from(*stride).ok()?.checked_mul(size)
        })
        .collect();
    let steps = steps.ok_or_else(|| {
        let problem = format!("{strides:?} go further than can be addressed");
        refused("strides", problem)
    })?;
    Layout::strided(&extents, &steps, item_size).map_err(of_layout)
}

impl fmt::Debug for ManagedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.debug(&mut f.debug_struct("ManagedTensor"))
    }
}
