//! DLPack tensors.

use super::{Number, names_a_field};
use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::Invalid;
use cuda_safe::interop::dlpack::raw::{
    DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, Export, ManagedTensor};
use std::cell::Cell;

/// A tensor that is accepted can be exported and imported again with the same contents; any other tensor
/// is rejected. Each deleter is called once.
pub(crate) fn dlpack(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(mut tensor) = Tensor::arbitrary(&mut input) else {
        return;
    };
    let number = tensor.stream.take().map(i128::from);
    match ConsumerStream::from_number(number) {
        Ok(stream) => assert_eq!(stream.number(), number.unwrap_or(1)),
        Err(refusal) => names_a_field(&refusal),
    }
    let deleted = Cell::new(0);
    match tensor.read(&deleted) {
        Err(refusal) => {
            assert_eq!(deleted.get(), 1);
            names_a_field(&refusal);
        }
        Ok(tensor) => {
            assert_eq!(deleted.get(), 0);
            given_out(&tensor);
            drop(tensor);
            assert_eq!(deleted.get(), 1);
        }
    }
}

fn given_out(tensor: &ManagedTensor) {
    match tensor.array_interface() {
        Ok(array) => {
            assert_eq!(array.layout(), tensor.layout());
            assert_eq!(array.is_read_only(), tensor.is_read_only());
            assert_eq!(DataType::from_numpy(array.dtype()), Ok(tensor.dtype()));
        }
        Err(refusal) => {
            names_a_field(&refusal);
            let name = tensor.dtype().to_string();
            assert!(refusal.to_string().contains(&name), "{refusal}");
        }
    }
    let said = format!("{tensor:?} {:?}", tensor.version());
    assert!(said.contains(&tensor.dtype().to_string()), "{said}");
    assert!(!tensor.is_copied() || tensor.version().is_some());
    let (layout, address) = (tensor.layout().clone(), tensor.address());
    let (memory, device) = (tensor.memory(), tensor.device());
    let export = Export::new(tensor.dtype(), layout, address, memory, device, ());
    let Ok(mut export) = export else {
        // The elements are smaller than a byte.
        return assert!(tensor.dtype().item_size().is_none());
    };
    if tensor.is_read_only() {
        export = export.read_only();
    }
    let raw = export.into_raw_versioned();
    // SAFETY: nothing else refers to the tensor.
    let again = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
    let again = again.expect("an exported tensor can be imported");
    assert_eq!(again.dtype(), tensor.dtype());
    assert_eq!(again.layout(), tensor.layout());
    assert_eq!(again.is_read_only(), tensor.is_read_only());
    if !tensor.layout().is_empty() {
        assert_eq!(again.address(), tensor.address());
    }
}

/// A tensor as exported by another library, whose shape and strides have the right number of entries.
#[derive(Arbitrary)]
struct Tensor {
    is_legacy: bool,
    version: Option<(u32, u32)>,
    stream: Option<Number>,
    device: (Device, i8),
    dtype: (u8, Bits, u8),
    flags: u8,
    data: Option<u64>,
    byte_offset: Option<Number>,
    dimensions: Dimensions,
}

#[derive(Arbitrary)]
enum Device {
    Cuda,
    Pinned,
    Managed,
    Other(i8),
}

#[derive(Arbitrary)]
enum Bits {
    Some(Power),
    Other(u8),
}

#[derive(Arbitrary)]
enum Power {
    Eight,
    Sixteen,
    ThirtyTwo,
    SixtyFour,
}

#[derive(Arbitrary)]
enum Dimensions {
    Strided(Vec<(Number, Number)>),
    Contiguous(Vec<Number>),
    /// A number of dimensions without a shape.
    Of(i8),
}

struct Held<'a> {
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    deleted: &'a Cell<u32>,
}

unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: the tensor was created by `Tensor::read`, and the deleter is called once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: `Tensor::read` created the context, and the deleter is called once.
    let held = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Held<'_>>()) };
    held.deleted.set(held.deleted.get() + 1);
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor was created by `Tensor::read`, and the deleter is called once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: `Tensor::read` created the context, and the deleter is called once.
    let held = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Held<'_>>()) };
    held.deleted.set(held.deleted.get() + 1);
}

impl Tensor {
    fn read(self, deleted: &Cell<u32>) -> Result<ManagedTensor, Invalid> {
        let small = |number: Number| i64::try_from(i128::from(number)).unwrap_or(i64::MAX);
        let (ndim, mut shape, mut strides) = match self.dimensions {
            Dimensions::Of(ndim) => (ndim.into(), Vec::new(), Vec::new()),
            Dimensions::Contiguous(shape) => {
                let shape: Vec<i64> = shape.into_iter().map(small).collect();
                (shape.len() as i32, shape, Vec::new())
            }
            Dimensions::Strided(both) => {
                let both = both.into_iter().map(|(n, s)| (small(n), small(s)));
                let (shape, strides): (Vec<i64>, Vec<i64>) = both.unzip();
                (shape.len() as i32, shape, strides)
            }
        };
        let start = |numbers: &mut Vec<i64>| match numbers.is_empty() {
            true => std::ptr::null_mut(),
            false => numbers.as_mut_ptr(),
        };
        let kind = match self.device.0 {
            Device::Cuda => 2,
            Device::Pinned => 3,
            Device::Managed => 13,
            Device::Other(kind) => kind.into(),
        };
        let (code, bits, lanes) = self.dtype;
        let data = self.data.and_then(|data| usize::try_from(data).ok());
        let dl_tensor = DLTensor {
            data: std::ptr::without_provenance_mut(data.unwrap_or(0x7000_0000)),
            device: DLDevice { device_type: DLDeviceType(kind), device_id: self.device.1.into() },
            ndim,
            dtype: DLDataType {
                code,
                bits: match bits {
                    Bits::Some(Power::Eight) => 8,
                    Bits::Some(Power::Sixteen) => 16,
                    Bits::Some(Power::ThirtyTwo) => 32,
                    Bits::Some(Power::SixtyFour) => 64,
                    Bits::Other(bits) => bits,
                },
                // One lane in most cases.
                lanes: if lanes < 200 { 1 } else { u16::from(lanes) - 200 },
            },
            shape: start(&mut shape),
            strides: start(&mut strides),
            byte_offset: match self.byte_offset {
                None => 0,
                Some(offset) => u64::try_from(i128::from(offset)).unwrap_or(u64::MAX),
            },
        };
        let held = Held { _shape: shape, _strides: strides, deleted };
        let manager_ctx = Box::into_raw(Box::new(held)).cast();
        if self.is_legacy {
            let raw = Box::into_raw(Box::new(DLManagedTensor {
                dl_tensor,
                manager_ctx,
                deleter: Some(delete_legacy),
            }));
            // SAFETY: the tensor is valid as far as it is read, and nothing else refers to it.
            return unsafe { ManagedTensor::from_raw(raw) };
        }
        let (major, minor) = self.version.unwrap_or((1, 0));
        let raw = Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major, minor },
            manager_ctx,
            deleter: Some(delete_versioned),
            flags: self.flags.into(),
            dl_tensor,
        }));
        // SAFETY: the tensor is valid as far as it is read, and nothing else refers to it.
        unsafe { ManagedTensor::from_raw_versioned(raw) }
    }
}
