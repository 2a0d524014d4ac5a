//! Host memory whose device address differs from its host address: every device operation must use
//! the device address.

use crate::prelude::*;
use cuda_safe::DeviceSliceMut;
use cuda_safe::device::attribute;
use cuda_safe::interop::dlpack::{DataType, Export, ManagedTensor, MemoryKind};
use cuda_safe::interop::{ArrayInterface, ArrayView, ImportedArray, Kind, Layout, TypeString};

const LEN: usize = if cfg!(miri) { 40 } else { 1000 };

fn profile() -> Profile {
    Profile::h200().with_disjoint_host_addresses()
}

/// Returns pinned memory of each kind that has a separate device address.
fn disjoint(context: &Context) -> [PinnedBuffer<i32>; 2] {
    let options = PinnedOptions { mapped: true, write_combined: true, ..Default::default() };
    let write_combined = PinnedBuffer::zeroed_with(context, LEN, options);
    let options = RegisterOptions { mapped: true, ..Default::default() };
    let registered = PinnedBuffer::register_with(context, vec![0; LEN], options);
    [write_combined.expect("memory"), registered.expect("registered")]
}

fn host_address(memory: &PinnedBuffer<i32>) -> u64 {
    memory.as_ptr().addr() as u64
}

/// Enqueues a kernel that multiplies by 3 and adds 1.
fn scale<'a>(stream: &Stream, x: impl Into<DeviceSliceMut<'a, i32>>) -> Result<(), Error> {
    let x = x.into();
    let module = Module::from_ptx(stream.context(), include_str!("../../kernels/vector.ptx"))?;
    let kernel = module.kernel("scale")?.typed::<(&mut [i32], i32, i32, u32)>()?;
    let config = LaunchConfig::for_elements(LEN, 128)?;
    // SAFETY: the kernel accesses the first `LEN` elements, and the memory has that many.
    unsafe { kernel.launch(stream, config, (x, 3, 1, LEN as u32)) }
}

#[test]
fn only_registered_and_write_combined_memory_has_a_separate_device_address() {
    let (_end, context) = in_child!(on(profile()));
    let usual = PinnedBuffer::<i32>::zeroed(&context, LEN).expect("memory");
    let info = context.pointer_info(host_address(&usual)).expect("an answer").expect("known");
    assert_eq!(info.device_address, Some(host_address(&usual)));
    let shared = context.device().attribute(attribute::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    assert!(!shared.expect("known"));
    for memory in disjoint(&context) {
        let host = host_address(&memory);
        let info = context.pointer_info(host).expect("an answer").expect("known");
        let device = info.device_address.expect("it is mapped");
        assert_ne!(device, host);
        assert_eq!(info.host_address, Some(host));
        // Each address converts to the other, at any offset in the memory.
        for offset in [0, 4 * LEN as u64 - 1] {
            let its = context.pointer_info(device + offset).expect("an answer").expect("known");
            assert_eq!(its.device_address, Some(device + offset));
            assert_eq!(its.host_address, Some(host + offset));
            assert_eq!(its.buffer_id, info.buffer_id);
            let range = context.address_range(device + offset).expect("known");
            assert_eq!(range, device..device + 4 * LEN as u64);
        }
        assert_eq!(context.pointer_info(device + 4 * LEN as u64).expect("an answer"), None);
    }
}

#[test]
fn mapped_memory_is_accessed_at_its_device_address() {
    let (_end, context) = in_child!(on(profile()));
    let stream = context.stream().expect("a stream");
    for memory in disjoint(&context) {
        let host = host_address(&memory);
        let mut mapped = MappedBuffer::new(memory, &stream).expect("mapped");
        assert_ne!(mapped.as_raw(), host);
        mapped.host().expect("a wait")[0] = 5;
        scale(&stream, &mut mapped).expect("a launch");
        let mut copy = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
        copy.copy_from(&mapped).expect("a copy");
        assert_eq!(copy.to_vec().expect("a copy")[..2], [16, 1]);
        let exported = ArrayView::new(mapped.as_slice(), &[LEN]).expect("a view").array_interface();
        assert_eq!(exported.expect("an interface").address(), mapped.as_raw());
        mapped.as_mut_slice().fill(9).expect("a fill");
        assert_eq!(*mapped.host().expect("a wait"), [9; LEN]);
        drop(mapped.into_pinned().expect("a wait"));
    }
}

#[test]
fn mapped_memory_of_a_manager_reports_its_device_address() {
    in_child!();
    set_memory_manager(DriverManager::new).expect("a matching version");
    start(profile());
    let context = crate::context();
    let mut bytes = vec![0u8; 64];
    let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
    let none = PinnedFlags::empty();
    // SAFETY: the vector is kept alive, and its bytes do not move.
    let pinned = unsafe { MappedMemory::pin(&context, bytes, start, 64, none) };
    let combined = MappedMemory::allocate(&context, 64, PinnedFlags::WRITE_COMBINED);
    for memory in [pinned.expect("pinned"), combined.expect("memory")] {
        let host = memory.as_ptr().addr() as u64;
        let device = context.pointer_info(host).expect("an answer").expect("known").device_address;
        assert_ne!(device, Some(host));
        assert_eq!(Some(memory.as_raw()), device);
    }
}

/// Enqueues a kernel on an imported array and drops the array.
fn work(stream: &Stream, mut array: ImportedArray<i32>) {
    scale(stream, array.as_mut_slice().expect("it is writable")).expect("a launch");
}

#[test]
fn foreign_arrays_in_host_memory_are_imported_with_their_device_address() {
    let (_end, context) = in_child!(on(profile()));
    let stream = context.stream().expect("a stream");
    for memory in disjoint(&context) {
        let layout = || Layout::c_contiguous(&[LEN], 4).expect("a layout");
        let host = host_address(&memory);
        let device = context.pointer_info(host).expect("an answer").expect("known").device_address;
        let array =
            ArrayInterface::new(TypeString::native(Kind::Int, 4).expect("i4"), layout(), host);
        let array = array.expect("it is valid");
        // SAFETY: the memory outlives the array, and nothing else uses it meanwhile.
        let imported = unsafe { array.import::<i32>(&stream, StreamSync::Ignore, ()) };
        let imported = imported.expect("an import");
        assert_eq!(Some(imported.as_slice().as_raw()), device);
        work(&stream, imported);
        // The same with DLPack, in which such memory is host memory.
        let ty = DataType::of::<i32>();
        let export = Export::new(ty, layout(), host, MemoryKind::Pinned, 0, ());
        let raw = export.expect("it is valid").into_raw_versioned();
        // SAFETY: the tensor has no other owner.
        let tensor = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
        let tensor = tensor.expect("it is valid");
        // SAFETY: as above.
        let imported = unsafe { tensor.import::<i32>(&stream, StreamSync::Ignore) };
        let imported = imported.expect("an import");
        assert_eq!(Some(imported.as_slice().as_raw()), device);
        work(&stream, imported);
        stream.synchronize().expect("a wait");
        assert_eq!(*memory, [4; LEN]);
    }
}

#[test]
fn a_kernel_that_uses_the_host_address_is_fatal() {
    in_child!();
    start(profile());
    let context = crate::context();
    let stream = context.stream().expect("a stream");
    let [memory, _other] = disjoint(&context);
    let module = Module::from_ptx(&context, include_str!("../../kernels/vector.ptx"));
    let kernel = module.and_then(|module| module.kernel("scale"));
    let kernel = kernel.expect("the test kernels").typed::<(u64, i32, i32, u32)>();
    let kernel = kernel.expect("its parameters");
    let arguments = (host_address(&memory), 3, 1, LEN as u32);
    // SAFETY: the contract is violated on purpose: devices cannot access the memory at this
    // address, which the software driver detects.
    unsafe { kernel.launch(&stream, LaunchConfig::linear(8, 128), arguments) }.expect("enqueued");
    let error = stream.synchronize().expect_err("a fatal error");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    found("host memory that has another address on devices");
}
