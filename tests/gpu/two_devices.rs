//! Objects of one device on a stream of another: each combination fails or works as the table in
//! the crate's documentation says.

use cuda_safe::device::attribute;
use cuda_safe::device::{AtomicOperation, PeerAttribute};
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::interop::{ArrayView, StreamSync};
use cuda_safe::memory::{ManagedBuffer, MappedBuffer, MemoryAccess, MemoryPool, MemoryPoolOptions};
use cuda_safe::module::Library;
use cuda_safe::sys::{
    CUdevResource, CUdevResourceType, CUgreenCtxCreate_flags, cuDevResourceGenerateDesc,
    cuDevSmResourceSplitByCount, cuDeviceGetDevResource, cuGreenCtxCreate, cuGreenCtxDestroy,
};
use cuda_safe::{
    CUresult, Context, CudaVersion, Device, DeviceBuffer, Error, Invalid, LaunchConfig, Module,
    PinnedBuffer, Result, TypedKernel,
};

const VECTOR: &str = include_str!("../kernels/vector.ptx");

type Add = TypedKernel<(&'static [f32], &'static [f32], &'static mut [f32], u32)>;

pub(crate) fn add(context: &Context) -> Add {
    let kernel = Module::from_ptx(context, VECTOR).and_then(|module| module.kernel("add"));
    let kernel = kernel.expect("the test kernels");
    kernel.typed().expect("its parameters")
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, is_right: impl Fn(&Invalid) -> bool) {
    match answer {
        Err(Error::Invalid(invalid)) if is_right(&invalid) => {
            let text = invalid.to_string();
            let both = text.contains("device 0") && text.contains("device 1");
            assert!(both, "the error names both: {text}");
        }
        answer => panic!("{answer:?}"),
    }
}

fn other_context(invalid: &Invalid) -> bool {
    matches!(invalid, Invalid::OtherContext { .. })
}

fn other_stream(invalid: &Invalid) -> bool {
    matches!(invalid, Invalid::OtherStream { .. })
}

/// Checks every row of the table, on two contexts of two devices.
pub(crate) fn table(first: &Context, second: &Context) {
    assert_ne!(first.device(), second.device());
    let (a, b) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    events(first, second);

    // Each buffer belongs to one stream.
    let from = DeviceBuffer::from_slice(&a, &[1.0f32; 4]).expect("memory");
    let mut to = DeviceBuffer::<f32>::zeroed(&b, 4).expect("memory");
    refused(to.copy_from(&from), other_stream);
    let here = add(first);
    let config = LaunchConfig::linear(1, 4);
    let mut sum = DeviceBuffer::<f32>::zeroed(&a, 4).expect("memory");
    // SAFETY: the launch is refused and accesses nothing.
    let launched = unsafe { here.launch(&a, config, (&from, &to, &mut sum, 4)) };
    refused(launched, other_stream);
    refused(to.rebind(&a), other_context);

    // A kernel belongs to one context; a library belongs to none.
    let mut other_sum = DeviceBuffer::<f32>::zeroed(&b, 4).expect("memory");
    // SAFETY: the launch is refused and accesses nothing.
    let launched = unsafe { here.launch(&b, config, (&to, &to, &mut other_sum, 4)) };
    refused(launched, other_context);
    match Library::from_ptx(VECTOR) {
        Ok(library) => {
            for (context, stream) in [(first, &a), (second, &b)] {
                let nothing = library.kernel(context, "nothing").expect("a kernel");
                let nothing = nothing.typed::<()>().expect("no parameters");
                // SAFETY: the kernel does nothing.
                unsafe { nothing.launch(stream, config, ()) }.expect("a launch");
            }
        }
        Err(error) => assert!(matches!(error, Error::Missing(_)), "{error}"),
    }

    // Pinned memory can be used in every context.
    let mut pinned = PinnedBuffer::<f32>::zeroed(first, 4).expect("memory");
    pinned.fill(2.0);
    let pending = to.copy_from_pinned(pinned).expect("a copy");
    pending.synchronize().expect("a wait");
    assert_eq!(to.to_vec().expect("a copy"), [2.0; 4]);

    // Shared memory can be read by the streams of its context, and copied by all streams.
    let shared = from.share().expect("an event");
    refused(shared.on(&b), other_context);
    to.copy_from_peer(&shared.on_peer(&b).expect("a reader")).expect("a copy");
    assert_eq!(to.to_vec().expect("a copy"), [1.0; 4]);

    kinds(first, second);
    access(first, second);
    exported(first, second);
}

/// Checks that an exported array is usable on every device that can access its memory.
fn exported(first: &Context, second: &Context) {
    let (a, b) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let peer = second.device();
    let supported = peer.can_access_peer(&first.device()).expect("an answer");
    let expected = match supported {
        true => MemoryAccess::ReadWrite,
        false => MemoryAccess::None,
    };
    let pool = || MemoryPool::new(first, MemoryPoolOptions::default()).expect("a pool");
    let of = |pool: &MemoryPool| {
        let mut buffer = DeviceBuffer::<f32>::zeroed_from_pool(pool, &a, 4).expect("memory");
        buffer.fill(5.0).expect("a fill");
        a.synchronize().expect("a wait");
        assert_eq!(pool.access(&peer).expect("known"), MemoryAccess::None);
        buffer
    };

    // With each way to make the memory accessible.
    let (first_pool, second_pool, third_pool) = (pool(), pool(), pool());
    let buffer = of(&first_pool);
    let interface = buffer.array_interface().expect("an array");
    assert_eq!(first_pool.access(&peer).expect("known"), expected);
    let tensor = of(&second_pool).into_dlpack().expect("a tensor");
    assert_eq!(second_pool.access(&peer).expect("known"), expected);
    drop(tensor);
    let viewed = of(&third_pool);
    let view = ArrayView::new(&viewed, &[2, 2]).expect("a view");
    view.array_interface().expect("an array");
    assert_eq!(third_pool.access(&peer).expect("known"), expected);
    if !supported {
        return;
    }

    // SAFETY: the buffer outlives the import, no work is pending, and nothing else uses it.
    let there = unsafe { interface.import::<f32>(&b, StreamSync::Ignore, ()) }.expect("an import");
    let mut sum = DeviceBuffer::<f32>::zeroed(&b, 4).expect("memory");
    let add = add(second);
    let config = LaunchConfig::linear(1, 4);
    // SAFETY: the kernel adds 4 elements, and the buffers have 4.
    unsafe { add.launch(&b, config, (&there, &there, &mut sum, 4)) }.expect("a launch");
    assert_eq!(sum.to_vec().expect("a copy"), [10.0; 4]);
}

/// Returns one group of a device's SMs, with raw calls, so that the `SplitGuard` of this crate is
/// not involved.
fn group(device: &Device) -> CUdevResource {
    let (mut all, mut group) = (CUdevResource::default(), CUdevResource::default());
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuDeviceGetDevResource(device.as_raw(), &raw mut all, kind) };
    assert!(code.is_success(), "{code}");
    let (mut count, rest) = (1, std::ptr::null_mut());
    let (first, number) = (&raw mut group, &raw mut count);
    // SAFETY: the array has room for one group, and no remainder is requested.
    let code = unsafe { cuDevSmResourceSplitByCount(first, number, &raw const all, rest, 0, 0) };
    assert!(code.is_success(), "{code}");
    group
}

/// Checks that a green context can be created only on the device of its SMs. Needs CUDA 12.5.
pub(crate) fn green(first: &Device, second: &Device) {
    let mut both = [group(first), group(second)];
    let refused = CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    let mut descriptor = std::ptr::null_mut();
    // SAFETY: there are two resources, and the other pointer refers to a local variable.
    let code = unsafe { cuDevResourceGenerateDesc(&raw mut descriptor, both.as_mut_ptr(), 2) };
    assert_eq!(code, refused, "a descriptor of groups of two devices");
    // SAFETY: there is one resource, and the other pointer refers to a local variable.
    let code = unsafe { cuDevResourceGenerateDesc(&raw mut descriptor, both.as_mut_ptr(), 1) };
    assert!(code.is_success(), "{code}");
    let flags = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    let mut green = std::ptr::null_mut();
    let create = |green, device: &Device| {
        // SAFETY: the descriptor was just created, and the other pointer refers to a local
        // variable.
        unsafe { cuGreenCtxCreate(green, descriptor, device.as_raw(), flags) }
    };
    let code = create(&raw mut green, second);
    let other_device = CUresult::CUDA_ERROR_INVALID_DEVICE;
    assert_eq!(code, other_device, "a green context of SMs of another device");
    let code = create(&raw mut green, first);
    assert!(code.is_success(), "{code}");
    // SAFETY: the green context was just created, and nothing else uses it.
    let code = unsafe { cuGreenCtxDestroy(green) };
    assert!(code.is_success(), "{code}");

    // The crate refuses such groups without a driver call.
    let groups = [first, second].map(|device| {
        let split = SmResource::of_device(device)
            .and_then(|all| all.split_by_count(SplitByCount::default()));
        split.expect("a split").groups.remove(0)
    });
    let error = GreenContext::new(groups).expect_err("two devices");
    assert_eq!(error, Invalid::GroupsOfDifferentSplits.into());
}

/// Checks memory that host and device both access, and memory pools.
fn kinds(first: &Context, second: &Context) {
    let (a, b) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let pinned = || PinnedBuffer::<f32>::zeroed(first, 4).expect("memory");
    refused(MappedBuffer::new(pinned(), &b), other_context);
    let mapped = MappedBuffer::new(pinned(), &a).expect("mapped");
    let mut to = DeviceBuffer::<f32>::zeroed(&b, 4).expect("memory");
    refused(to.copy_from(&mapped), other_stream);
    if first.device().attribute(attribute::MANAGED_MEMORY).expect("known") {
        let managed = ManagedBuffer::<f32>::zeroed(&a, 4).expect("memory");
        let there = managed.device().expect("device access");
        refused(to.copy_from(there), other_stream);
    }

    let pool = MemoryPool::new(first, MemoryPoolOptions::default()).expect("a pool");
    let without = DeviceBuffer::<f32>::zeroed_from_pool(&pool, &b, 4);
    refused(without, |why| matches!(why, Invalid::NoAccessToPool { .. }));
    match pool.grant_access(&second.device()) {
        Ok(()) => {
            let with = DeviceBuffer::<f32>::zeroed_from_pool(&pool, &b, 4).expect("memory");
            assert_eq!(with.to_vec().expect("a copy"), [0.0; 4]);
            drop(with);
            b.synchronize().expect("a wait");
            // SAFETY: no memory of the pool is allocated any more.
            unsafe { pool.set_access(&second.device(), MemoryAccess::None) }.expect("taken away");
        }
        Err(error) => {
            assert!(!first.device().can_access_peer(&second.device()).expect("known"), "{error}")
        }
    }
    assert_eq!(pool.access(&second.device()).expect("known"), MemoryAccess::None);
}

fn events(first: &Context, second: &Context) {
    let (a, b) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    // A stream may wait for an event of another device, but not record it.
    let event = second.event().expect("an event");
    event.record(&b).expect("its device");
    a.wait_event(&event).expect("another device");
    refused(event.record(&a), other_context);
    refused(first.record_event(&event), other_context);
    match first.wait_event(&event) {
        Ok(()) => {}
        Err(error) => assert!(matches!(error, Error::Missing(_)), "{error}"),
    }
}

/// Checks synchronous memory of one device that kernels of the other use.
fn access(first: &Context, second: &Context) {
    let (device, peer) = (first.device(), second.device());
    let attribute = |attribute| device.peer_attribute(attribute, &peer).expect("a number");
    let supported = attribute(PeerAttribute::AccessSupported) == 1;
    assert_eq!(device.can_access_peer(&peer).expect("an answer"), supported);
    attribute(PeerAttribute::PerformanceRank);
    let known_since = CudaVersion::new(13, 0);
    let atomics = device.peer_atomics(AtomicOperation::IntegerAdd, &peer);
    if cuda_safe::version().expect("a driver") >= known_since {
        atomics.expect("an answer");
    } else {
        assert!(matches!(atomics, Err(Error::Missing(_))));
    }
    if !supported {
        let refusal = first.enable_peer_access(second).expect_err("no access");
        let code = CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        assert_eq!(refusal.code(), Some(code));
        return;
    }
    first.enable_peer_access(second).expect("there is access");
    let again = first.enable_peer_access(second).expect_err("already enabled");
    let code = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    assert_eq!(again.code(), Some(code));

    let (a, b) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let mut plain = DeviceBuffer::<f32>::zeroed_sync(&b, 4).expect("memory");
    plain.fill(3.0).expect("a fill");
    let shared = plain.share().expect("an event");
    let reader = shared.on_peer(&a).expect("a reader");
    let mut sum = DeviceBuffer::<f32>::zeroed(&a, 4).expect("memory");
    let add = add(first);
    // SAFETY: access to synchronous memory was enabled above, and stays enabled until the wait
    // below has returned.
    let there = unsafe { reader.as_slice() };
    let config = LaunchConfig::linear(1, 4);
    // SAFETY: the kernel adds 4 elements, and the buffers have 4.
    unsafe { add.launch(&a, config, (there, there, &mut sum, 4)) }.expect("a launch");
    assert_eq!(sum.to_vec().expect("a copy"), [6.0; 4]);
    drop(reader);
    // SAFETY: the work that used the memory has completed.
    unsafe { first.disable_peer_access(second) }.expect("it was enabled");
    // SAFETY: as above.
    let not = unsafe { first.disable_peer_access(second) }.expect_err("it was disabled");
    let code = CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    assert_eq!(not.code(), Some(code));
}
