//! DLPack tensors: which ones are accepted, which are refused, and that each deleter is called
//! once.

use cuda_safe::Invalid;
use cuda_safe::interop::dlpack::raw::{
    DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY, DLPackVersion, DLTensor,
};
use cuda_safe::interop::dlpack::{
    ConsumerStream, DataType, Export, ManagedTensor, MemoryKind, TypeCode,
};
use cuda_safe::interop::{Kind, Layout, TypeString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ADDRESS: usize = 0x7f00_0000_0000;
const FLOAT32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

/// A handmade tensor, which counts the calls of its deleter.
struct Tensor {
    data: usize,
    device: (i32, i32),
    ndim: Option<i32>,
    dtype: DLDataType,
    shape: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    byte_offset: u64,
    flags: u64,
    version: (u32, u32),
}

impl Default for Tensor {
    fn default() -> Self {
        Self {
            data: ADDRESS,
            device: (2, 0),
            ndim: None,
            dtype: FLOAT32,
            shape: Some(vec![2, 3]),
            strides: None,
            byte_offset: 0,
            flags: 0,
            version: (1, 0),
        }
    }
}

/// The target of a tensor's `manager_ctx`.
struct Held {
    _shape: Option<Vec<i64>>,
    _strides: Option<Vec<i64>>,
    deleted: Arc<AtomicUsize>,
}

fn start(numbers: &mut Option<Vec<i64>>) -> *mut i64 {
    numbers.as_mut().map_or(std::ptr::null_mut(), |numbers| numbers.as_mut_ptr())
}

unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: the tensor comes from `Tensor::legacy`, and this is called once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: as above.
    let held = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Held>()) };
    held.deleted.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor comes from `Tensor::versioned`, and this is called once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: as above.
    let held = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Held>()) };
    held.deleted.fetch_add(1, Ordering::SeqCst);
}

impl Tensor {
    fn parts(mut self, deleted: &Arc<AtomicUsize>) -> (DLTensor, *mut Held) {
        let dimensions = self.shape.as_ref().map_or(0, Vec::len);
        let tensor = DLTensor {
            data: std::ptr::without_provenance_mut(self.data),
            device: DLDevice { device_type: DLDeviceType(self.device.0), device_id: self.device.1 },
            ndim: self.ndim.unwrap_or(dimensions as i32),
            dtype: self.dtype,
            shape: start(&mut self.shape),
            strides: start(&mut self.strides),
            byte_offset: self.byte_offset,
        };
        let held =
            Held { _shape: self.shape, _strides: self.strides, deleted: Arc::clone(deleted) };
        (tensor, Box::into_raw(Box::new(held)))
    }

    fn legacy(self, deleted: &Arc<AtomicUsize>) -> *mut DLManagedTensor {
        let (dl_tensor, held) = self.parts(deleted);
        Box::into_raw(Box::new(DLManagedTensor {
            dl_tensor,
            manager_ctx: held.cast(),
            deleter: Some(delete_legacy),
        }))
    }

    fn versioned(self, deleted: &Arc<AtomicUsize>) -> *mut DLManagedTensorVersioned {
        let (major, minor) = self.version;
        let flags = self.flags;
        let (dl_tensor, held) = self.parts(deleted);
        Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major, minor },
            manager_ctx: held.cast(),
            deleter: Some(delete_versioned),
            flags,
            dl_tensor,
        }))
    }
}

/// Reads the tensor, in both forms if both can express it, and drops the result.
#[track_caller]
fn with<R>(tensor: impl Fn() -> Tensor, check: impl Fn(Result<&ManagedTensor, Invalid>) -> R) -> R {
    let deleted = Arc::new(AtomicUsize::new(0));
    let check_deletions = |read: Result<ManagedTensor, Invalid>, before: usize| {
        assert_eq!(deleted.load(Ordering::SeqCst) - before, usize::from(read.is_err()));
        let result = check(read.as_ref().map_err(Clone::clone));
        drop(read);
        assert_eq!(deleted.load(Ordering::SeqCst) - before, 1);
        result
    };
    let plain = tensor();
    if plain.flags == 0 && plain.version.0 == 1 {
        // SAFETY: the fields of the tensor that are read are valid, and this is the only owner.
        check_deletions(unsafe { ManagedTensor::from_raw(plain.legacy(&deleted)) }, 0);
    }
    let before = deleted.load(Ordering::SeqCst);
    let raw = tensor().versioned(&deleted);
    // SAFETY: as above.
    check_deletions(unsafe { ManagedTensor::from_raw_versioned(raw) }, before)
}

#[track_caller]
fn refused(tensor: impl Fn() -> Tensor, expected: &str, words: &str) {
    with(tensor, |read| match read {
        Err(Invalid::Dlpack { field, problem }) => {
            assert_eq!(field, expected, "{problem}");
            assert!(problem.contains(words), "{problem}");
        }
        done => panic!("{done:?}"),
    });
}

#[test]
fn a_tensor_is_read() {
    with(Tensor::default, |read| {
        let tensor = read.expect("it is valid");
        assert_eq!(tensor.layout().shape(), [2, 3]);
        assert_eq!(tensor.layout().strides(), [12, 4]);
        assert_eq!(tensor.dtype().to_string(), "float32");
        assert_eq!((tensor.address(), tensor.device()), (ADDRESS as u64, 0));
        assert_eq!(tensor.memory(), MemoryKind::Device);
        assert!(!tensor.is_read_only() && !tensor.is_copied());
        let array = tensor.array_interface().expect("a type of NumPy");
        assert_eq!(array.dtype().typestr(), "<f4");
    });
    let strided = || Tensor {
        strides: Some(vec![-1, 2]),
        byte_offset: 64,
        device: (13, 0),
        flags: DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED,
        version: (1, 99),
        ..Tensor::default()
    };
    with(strided, |read| {
        let tensor = read.expect("it is valid");
        assert_eq!(tensor.layout().strides(), [-4, 8]);
        assert_eq!(tensor.address(), ADDRESS as u64 + 64);
        assert_eq!(tensor.memory(), MemoryKind::Managed);
        assert!(tensor.is_read_only() && tensor.is_copied());
        assert_eq!(tensor.version(), Some((1, 99)));
        let array = tensor.array_interface().expect("a type of NumPy");
        assert!(array.is_read_only());
    });
    // A tensor without dimensions, and one without elements.
    let scalar = || Tensor { shape: Some(vec![]), device: (3, 0), ..Tensor::default() };
    with(scalar, |read| {
        let tensor = read.expect("it is valid");
        assert_eq!(tensor.layout().len(), Some(1));
        assert_eq!(tensor.memory(), MemoryKind::Pinned);
    });
    let empty = || Tensor {
        shape: Some(vec![3, 0]),
        strides: Some(vec![0, 1]),
        data: 0,
        ..Tensor::default()
    };
    with(empty, |read| {
        assert_eq!(read.expect("it is valid").layout().len(), Some(0));
    });
}

#[test]
fn each_invalid_field_is_refused_by_name() {
    let of = |change: fn(&mut Tensor)| {
        move || {
            let mut tensor = Tensor::default();
            change(&mut tensor);
            tensor
        }
    };
    refused(of(|tensor| tensor.version = (2, 0)), "version", "2.0");
    refused(of(|tensor| tensor.version = (0, 8)), "version", "0.8");
    refused(of(|tensor| tensor.device = (1, 0)), "device", "kDLCPU");
    refused(of(|tensor| tensor.device = (10, 0)), "device", "kind 10");
    refused(of(|tensor| tensor.device = (2, -1)), "device", "-1");
    refused(of(|tensor| tensor.ndim = Some(-1)), "ndim", "-1");
    refused(of(|tensor| (tensor.shape, tensor.ndim) = (None, Some(2))), "shape", "null");
    refused(of(|tensor| tensor.shape = Some(vec![2, -3])), "shape", "-3");
    refused(of(|tensor| tensor.shape = Some(vec![1 << 40, 1 << 40])), "shape", "addressed");
    refused(of(|tensor| tensor.strides = Some(vec![i64::MAX, 1])), "strides", "address space");
    refused(of(|tensor| tensor.strides = Some(vec![1 << 60, 1 << 60])), "strides", "address space");
    refused(of(|tensor| tensor.data = 0), "data", "null");
    refused(of(|tensor| tensor.data = usize::MAX - 8), "data", "beyond");
    refused(of(|tensor| tensor.byte_offset = u64::MAX - 8), "byte_offset", "beyond");
    refused(of(|tensor| tensor.strides = Some(vec![-(1 << 46), 1])), "data", "beyond");
    refused(of(|tensor| tensor.dtype.bits = 0), "dtype", "0 bits");
    refused(of(|tensor| tensor.dtype.lanes = 0), "dtype", "0 lanes");
    refused(of(|tensor| tensor.dtype.bits = 4), "dtype", "packed");
    refused(
        of(|tensor| (tensor.dtype.code, tensor.dtype.bits) = (10, 16)),
        "dtype",
        "float8_e4m3fn with 16 bits",
    );
    // SAFETY: null is allowed.
    let legacy = unsafe { ManagedTensor::from_raw(std::ptr::null_mut()) };
    // SAFETY: as above.
    let versioned = unsafe { ManagedTensor::from_raw_versioned(std::ptr::null_mut()) };
    for read in [legacy, versioned] {
        assert!(matches!(read, Err(Invalid::Dlpack { field: "tensor", .. })));
    }
}

#[test]
fn a_tensor_without_a_deleter_is_accepted() {
    let deleted = Arc::new(AtomicUsize::new(0));
    let raw = Tensor::default().versioned(&deleted);
    // SAFETY: the tensor is alive, and this is the only owner.
    unsafe { (*raw).deleter = None };
    // SAFETY: the tensor is valid.
    let read = unsafe { ManagedTensor::from_raw_versioned(raw) };
    drop(read.expect("it is valid"));
    assert_eq!(deleted.load(Ordering::SeqCst), 0);
    // SAFETY: the tensor is still alive.
    unsafe { delete_versioned(raw) };
}

#[test]
fn types_map_to_numpy_types_if_they_exist() {
    let table = [
        ((0, 8, 1), "int8", Some("|i1"), Some(1)),
        ((1, 64, 1), "uint64", Some("<u8"), Some(8)),
        ((2, 16, 1), "float16", Some("<f2"), Some(2)),
        ((5, 128, 1), "complex128", Some("<c16"), Some(16)),
        ((6, 8, 1), "bool", Some("|b1"), Some(1)),
        ((6, 1, 1), "bool1", None, None),
        ((4, 16, 1), "bfloat16", None, Some(2)),
        ((10, 8, 1), "float8_e4m3fn", None, Some(1)),
        ((17, 4, 1), "float4_e2m1fn", None, None),
        ((17, 4, 2), "float4_e2m1fnx2", None, Some(1)),
        ((2, 32, 4), "float32x4", None, Some(16)),
        ((3, 64, 1), "handle64", None, Some(8)),
        ((77, 24, 1), "type code 77 of 24 bits", None, Some(3)),
        ((0, 24, 1), "int24", None, Some(3)),
    ];
    for ((code, bits, lanes), text, numpy, size) in table {
        let ty = DataType { code: TypeCode(code), bits, lanes };
        assert_eq!((ty.to_string().as_str(), ty.item_size()), (text, size));
        let theirs = ty.numpy().map(|ty| ty.to_string());
        assert_eq!(theirs.as_deref(), numpy);
        if let Some(theirs) = ty.numpy() {
            assert_eq!(DataType::from_numpy(&theirs.into()), Ok(ty));
        }
    }
    assert_eq!(DataType::of::<u16>().to_string(), "uint16");
    assert_eq!(DataType::of::<[f64; 2]>().to_string(), "complex128");
    for text in [">f4", "<M8[s]", "|S3", "|V8", "<U2"] {
        let ty: TypeString = text.parse().expect("a type");
        match DataType::from_numpy(&ty.into()) {
            Err(Invalid::Dlpack { field: "dtype", problem }) => assert!(problem.contains(text)),
            done => panic!("{done:?}"),
        }
    }
}

#[test]
fn types_unknown_to_numpy_are_read_by_their_size() {
    let bfloat =
        || Tensor { dtype: DLDataType { code: 4, bits: 16, lanes: 1 }, ..Tensor::default() };
    with(bfloat, |read| {
        let tensor = read.expect("it is valid");
        assert_eq!(tensor.dtype(), DataType::scalar(TypeCode::BFLOAT, 16));
        let text = tensor.array_interface().expect_err("bfloat16").to_string();
        assert!(text.contains("bfloat16"), "{text}");
        let bytes = TypeString::native(Kind::Uint, 2).expect("u2");
        let array = tensor.array_interface_as(bytes).expect("a type of that size");
        assert_eq!(array.layout().strides(), [6, 2]);
        tensor
            .array_interface_as(TypeString::native(Kind::Uint, 4).expect("u4"))
            .expect_err("a type of another size");
    });
    let padded = || Tensor {
        dtype: DLDataType { code: 17, bits: 4, lanes: 1 },
        flags: DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
        ..Tensor::default()
    };
    with(padded, |read| {
        assert_eq!(read.expect("one byte each").layout().item_size(), 1);
    });
}

/// An owner that counts its drops.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn export(layout: Layout, address: u64, dropped: &Arc<AtomicUsize>) -> Export {
    let owner = Counted(Arc::clone(dropped));
    let memory = MemoryKind::Managed;
    Export::new(DataType::of::<f32>(), layout, address, memory, 3, owner).expect("it is valid")
}

#[test]
fn an_exported_tensor_reads_back_the_same_and_drops_its_owner_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let layouts = [
        Layout::c_contiguous(&[2, 3], 4),
        Layout::strided(&[2, 3], &[-40, 8], 4),
        Layout::strided(&[2, 3], &[0, 4], 4),
        Layout::c_contiguous(&[], 4),
        Layout::c_contiguous(&[4, 0, 2], 4),
    ];
    for (index, layout) in layouts.into_iter().enumerate() {
        let layout = layout.expect("a layout");
        let given = export(layout.clone(), ADDRESS as u64, &dropped).copied();
        let raw = given.read_only().into_raw_versioned();
        // SAFETY: the tensor is alive.
        let tensor = unsafe { raw.as_ref() };
        assert_eq!((tensor.version.major, tensor.flags), (1, 3));
        assert!(!tensor.dl_tensor.strides.is_null());
        assert_eq!(tensor.dl_tensor.data.is_null(), layout.is_empty());
        let legacy = export(layout.clone(), ADDRESS as u64, &dropped).into_raw();
        // SAFETY: this function is the only owner of the tensors.
        let read = [
            unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) },
            // SAFETY: as above.
            unsafe { ManagedTensor::from_raw(legacy.expect("it is writable").as_ptr()) },
        ];
        for tensor in read {
            let tensor = tensor.expect("it is valid");
            assert_eq!(*tensor.layout(), layout);
            assert_eq!((tensor.device(), tensor.memory()), (3, MemoryKind::Managed));
            assert_eq!(tensor.is_read_only(), tensor.version().is_some());
            // The deleter is called on another thread.
            std::thread::spawn(move || drop(tensor)).join().expect("no panic");
        }
        assert_eq!(dropped.load(Ordering::SeqCst), 2 * (index + 1));
    }
}

#[test]
fn memory_of_the_host_is_exported_but_not_imported() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let layout = Layout::c_contiguous(&[2, 3], 4).expect("a layout");
    let (dtype, owner) = (DataType::of::<f32>(), Counted(Arc::clone(&dropped)));
    let export = Export::new(dtype, layout, ADDRESS as u64, MemoryKind::Host, 0, owner);
    let raw = export.expect("it is valid").into_raw_versioned();
    // SAFETY: the tensor is alive.
    let device = unsafe { raw.as_ref() }.dl_tensor.device;
    assert_eq!((device.device_type, device.device_id), (DLDeviceType::kDLCPU, 0));
    // SAFETY: this function is the only owner of the tensor.
    match unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) } {
        Err(Invalid::Dlpack { field: "device", .. }) => {}
        done => panic!("{done:?}"),
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn unused_strides_may_be_fractions_of_elements() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for (shape, strides, written) in [
        ([2, 1], [8, 3], [2, 1]),
        ([1, 3], [-5, 4], [1, 1]),
        ([1, 2], [12, 4], [3, 1]),
        ([0, 2], [3, 5], [1, 1]),
    ] {
        let layout = Layout::strided(&shape, &strides, 4).expect("a layout");
        let raw = export(layout, ADDRESS as u64, &dropped).into_raw_versioned();
        // SAFETY: the tensor is alive.
        let strides = unsafe { raw.as_ref() }.dl_tensor.strides;
        // SAFETY: there are two strides.
        assert_eq!(unsafe { *strides.cast::<[i64; 2]>() }, written);
        // SAFETY: this function is the only owner.
        let read = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
        assert_eq!(read.expect("it is valid").layout().shape(), shape);
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 4);
}

#[test]
fn arrays_that_cannot_be_exported_are_refused_and_their_owner_dropped() {
    let float = DataType::of::<f32>();
    let layout = |strides: &[isize]| Layout::strided(&[2], strides, 4).expect("a layout");
    let memory = MemoryKind::Device;
    let address = ADDRESS as u64;
    let shared = Arc::new(());
    let owner = || Arc::clone(&shared);
    let cases = [
        (Export::new(float, layout(&[6]), address, memory, 0, owner()), "strides"),
        (Export::new(float, layout(&[4]), 0, memory, 0, owner()), "data"),
        (Export::new(float, layout(&[4]), address, memory, u32::MAX, owner()), "device"),
        (Export::new(DataType::of::<u8>(), layout(&[4]), address, memory, 0, owner()), "dtype"),
        (
            Export::new(
                DataType::scalar(TypeCode::INT, 4),
                layout(&[4]),
                address,
                memory,
                0,
                owner(),
            ),
            "dtype",
        ),
    ];
    for (refused, expected) in cases {
        let text = refused.expect_err(expected).to_string();
        assert!(text.starts_with(&format!("DLPack, {expected}")), "{text}");
    }
    assert_eq!(Arc::strong_count(&shared), 1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let constant = export(layout(&[4]), address, &dropped).read_only();
    let error = constant.into_raw().expect_err("the array is read-only");
    assert!(error.to_string().contains("read-only"));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panic_of_the_owner_does_not_unwind_into_c() {
    #[derive(Debug)]
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let layout = Layout::c_contiguous(&[2], 4).expect("a layout");
    let memory = MemoryKind::Device;
    let tensor = Export::new(DataType::of::<f32>(), layout, 64, memory, 0, Panics);
    let raw = tensor.expect("it is valid").into_raw_versioned();
    // SAFETY: this function is the only owner.
    let tensor = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
    drop(tensor.expect("it is valid"));
}

#[test]
fn the_streams_of_consumers_are_those_of_the_protocol() {
    let of = ConsumerStream::from_number;
    assert_eq!(of(None), Ok(ConsumerStream::Legacy));
    for (number, stream) in [
        (-1, ConsumerStream::NoSync),
        (1, ConsumerStream::Legacy),
        (2, ConsumerStream::PerThread),
        (0x55_0000, ConsumerStream::Handle(0x55_0000)),
    ] {
        assert_eq!(of(Some(number)), Ok(stream));
        assert_eq!(stream.number(), number);
    }
    for (number, words) in [(0, "1 for the legacy"), (-2, "-2"), (1 << 70, "not a stream handle")] {
        match of(Some(number)) {
            Err(Invalid::Dlpack { field: "stream", problem }) => {
                assert!(problem.contains(words), "{problem}");
            }
            done => panic!("{done:?}"),
        }
    }
}
