//! Launches that every GPU refuses, and launches that only some GPUs refuse.

mod checks;
mod coverage;
mod initcheck;
mod interleavings;
pub(crate) mod kernels;

use crate::prelude::*;
use crate::stream::callbacks::with_misuse;
use cuda_safe::error::LaunchLimit;
use cuda_safe::module::attribute as kernel_attribute;

#[test]
fn shapes_beyond_the_limits_of_every_gpu_are_refused() {
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let kernel = module.kernel("nothing").expect("found");
    let launch = |grid: [u32; 3], block: [u32; 3], shared| {
        let none: *mut *mut c_void = std::ptr::null_mut();
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let (kernel, stream) = (kernel.as_raw(), stream.as_raw());
        // SAFETY: the kernel has no parameters and does nothing.
        unsafe { cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, none, none) }
    };
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let one = [1; 3];
    assert_eq!(launch(one, [u32::MAX; 3], 0), invalid);
    assert_eq!(launch(one, [1024, 1, 2], 0), invalid);
    assert_eq!(launch(one, [1, 1, 65], 0), invalid);
    assert_eq!(launch([1, 65_536, 1], one, 0), invalid);
    assert_eq!(launch([1, 1, 65_536], one, 0), invalid);
    assert_eq!(launch([1 << 31, 1, 1], one, 0), invalid);
    assert_eq!(launch(one, one, 48 * 1024 + 1), invalid);
    for (grid, shared) in [([i32::MAX.unsigned_abs(), 65_535, 65_535], 0), (one, 48 * 1024)] {
        assert!(launch(grid, one, shared).is_success());
    }
    stream.synchronize().expect("a wait");
}

/// A driver that cannot allocate the local memory of a kernel refuses the launch.
#[test]
fn a_launch_that_fails_for_lack_of_memory_is_an_error_and_can_be_repeated() {
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let scale = module.kernel("scale").expect("found");
    let scale = scale.typed::<(&mut [i32], i32, i32, u32)>().expect("its parameters");
    let mut x = DeviceBuffer::from_slice(&stream, &[1; 4]).expect("memory");
    let config = LaunchConfig::linear(1, 4);
    let attributes = LaunchAttributes::default();
    for function in ["cuLaunchKernel", "cuLaunchKernelEx"] {
        let mut launch = || {
            let arguments = (&mut x, 2, 0, 4);
            match function {
                // SAFETY: the kernel accesses 4 elements, and the buffer has that many.
                "cuLaunchKernel" => unsafe { scale.launch(&stream, config, arguments) },
                // SAFETY: as above.
                _ => unsafe { scale.launch_with(&stream, config, &attributes, arguments) },
            }
        };
        let fault = Fault::of_function(function)
            .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
            .inject(Scope::Thread);
        let error = launch().expect_err("there is no memory");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(error.to_string().starts_with(function), "{error}");
        assert!(!error.is_fatal());
        assert_eq!(fault.hits(), 1);
        drop(fault);
        launch().expect("there is memory again");
    }
    assert_eq!(x.to_vec().expect("a copy"), [4; 4]);
}

#[test]
fn a_buffer_of_arguments_that_is_incomplete_is_refused() {
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let [scale, nothing] = ["scale", "nothing"].map(|name| module.kernel(name).expect("found"));
    // The kernel does nothing with 0 elements.
    let mut bytes = [0u8; 20];
    let (mut exact, mut zero) = (20usize, 0usize);
    let (buffer, end) = (bytes.as_mut_ptr().cast(), CU_LAUNCH_PARAM_END);
    let [exact, zero] = [&mut exact, &mut zero].map(|size| (&raw mut *size).cast::<c_void>());
    let none: *mut c_void = std::ptr::null_mut();
    let (pointer, size) = (CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE);
    let unknown: *mut c_void = std::ptr::without_provenance_mut(3);
    let launch = |kernel: &cuda_safe::Kernel, list: &mut [*mut c_void]| {
        let (kernel, stream) = (kernel.as_raw(), stream.as_raw());
        let (params, extra) = (std::ptr::null_mut(), list.as_mut_ptr());
        // SAFETY: each list ends, and its buffer has at least as many bytes as it states.
        unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, extra) }
    };
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    for list in [
        &mut [end][..],
        &mut [pointer, buffer, end],
        &mut [size, exact, end],
        &mut [pointer, buffer, size, zero, end],
        &mut [pointer, buffer, size, none, end],
        &mut [pointer, none, size, exact, end],
        &mut [pointer, buffer, size, exact, unknown, buffer, end],
    ] {
        assert_eq!(launch(&scale, list), invalid, "{list:?}");
    }
    let complete = &mut [size, exact, pointer, buffer, end];
    assert!(launch(&scale, complete).is_success());
    // A kernel without parameters takes any buffer.
    for list in [&mut [end][..], complete] {
        assert!(launch(&nothing, list).is_success());
    }
    stream.synchronize().expect("a wait");
}

#[test]
fn a_kernel_that_reads_past_the_address_space_is_an_illegal_address() {
    let (context, stream) = &in_child!(crate::software::misuses::expecting_misuse());
    cuda_sim::kernel::register("scale", |launch| launch.read::<i32>(0, usize::MAX / 2).map(|_| ()));
    let module = Module::from_ptx(context, VECTOR).expect("the test kernels");
    let scale = module.kernel("scale").expect("found").typed::<(&mut [i32], i32, i32, u32)>();
    let mut x = DeviceBuffer::<i32>::zeroed(stream, 1).expect("memory");
    let (scale, config) = (scale.expect("its parameters"), LaunchConfig::linear(1, 1));
    // SAFETY: the contract is violated on purpose: the buffer has only one element.
    unsafe { scale.launch(stream, config, (&mut x, 1, 1, 1)) }.expect("enqueued");
    assert!(stream.synchronize().expect_err("too much").is_fatal());
    crate::software::misuses::found("go past the end");
}

/// Returns the driver's answer to a launch with one attribute of this number, whose value is all
/// zeros.
fn with_attribute(context: &Context, id: u32) -> CUresult {
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(context, VECTOR).expect("the test kernels");
    let kernel = module.kernel("nothing").expect("found");
    let mut attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID(id),
        pad: [0; 4],
        value: CUlaunchAttributeValue { pad: [0; 64] },
    };
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream.as_raw(),
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    let none: *mut *mut c_void = std::ptr::null_mut();
    // SAFETY: the kernel has no parameters and does nothing, and there is one attribute.
    let code = unsafe { cuLaunchKernelEx(&raw const config, kernel.as_raw(), none, none) };
    stream.synchronize().expect("a wait");
    code
}

/// Checks which attributes a driver knows. `knows` and `knows_not` are ids of attributes for which
/// zeros are a valid value.
#[track_caller]
fn newest(profile: &str, knows: u32, knows_not: u32) {
    let (_end, context) = in_child!(on(profile.parse().expect("a profile")));
    assert!(with_attribute(&context, knows).is_success());
    // The last of these is an attribute of streams only.
    for id in [knows_not, 3] {
        assert_eq!(with_attribute(&context, id), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn a_driver_of_11_8_has_no_memory_domains() {
    newest("h200@11.8", 8, 9);
}

#[test]
fn a_driver_of_12_6_knows_the_carveout_and_no_preferred_clusters() {
    newest("h200@12.6", 14, 11);
}

#[test]
fn a_driver_of_13_5_knows_the_shared_memory_mode() {
    newest("h200@13.5", 18, 19);
}

const HOPPER: &str = include_str!("../../kernels/hopper.ptx");

#[test]
fn clusters_have_the_size_that_the_kernel_requires() {
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, HOPPER).expect("the test kernels");
    let ranks = module.kernel("cluster_ranks").expect("found");
    let ranks = ranks.typed::<(&mut [u32],)>().expect("its parameters");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 32).expect("memory");
    let mut launch = |size| {
        let attributes = LaunchAttributes { cluster: Some([size, 1, 1]), ..Default::default() };
        let config = LaunchConfig::linear(32, 32);
        // SAFETY: the kernel writes one element for each of 32 blocks.
        unsafe { ranks.launch_with(&stream, config, &attributes, (&mut out,)) }.is_ok()
    };
    assert!(launch(8) && !launch(16) && !launch(3));
    let larger = kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    let set = ranks.kernel().set_attribute(larger, true);
    set.expect("clusters may be larger");
    assert!(launch(16) && !launch(32));
    // The required size applies whether or not a launch names it.
    for (attribute, extent) in [
        (kernel_attribute::REQUIRED_CLUSTER_WIDTH, 4),
        (kernel_attribute::REQUIRED_CLUSTER_HEIGHT, 1),
        (kernel_attribute::REQUIRED_CLUSTER_DEPTH, 1),
    ] {
        ranks.kernel().set_attribute(attribute, extent).expect("a size");
    }
    assert!(launch(4) && !launch(8));
    let config = LaunchConfig::linear(32, 32);
    // SAFETY: as above.
    unsafe { ranks.launch(&stream, config, (&mut out,)) }.expect("clusters of 4");
    let ranks = out.to_vec().expect("a copy");
    assert_eq!(ranks[..5], [0x4_0000, 0x4_0001, 0x4_0002, 0x4_0003, 0x4_0000]);
}

#[test]
fn devices_before_9_0_have_no_clusters() {
    let (_end, context) = in_child!(on(Profile::a100()));
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let nothing = module.kernel("nothing").expect("found").typed::<()>().expect("its parameters");
    let attributes = LaunchAttributes { cluster: Some([2, 1, 1]), ..Default::default() };
    let config = LaunchConfig::linear(2, 32);
    // SAFETY: the kernel does nothing.
    let refused = unsafe { nothing.launch_with(&stream, config, &attributes, ()) };
    let code = refused.expect_err("no clusters").code();
    assert_eq!(code, Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn a_launch_event_completes_after_its_kernel() {
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let scale = module.kernel("scale").expect("found").typed::<(&mut [i32], i32, i32, u32)>();
    let scale = scale.expect("its parameters");
    let mut x = DeviceBuffer::from_slice(&stream, &[1; 4]).expect("a copy");
    let event = context.event().expect("an event");
    let attributes = LaunchAttributes { completion_event: Some(&event), ..Default::default() };
    let config = LaunchConfig::linear(1, 4);
    // SAFETY: the kernel accesses 4 elements, and the memory has 4.
    unsafe { scale.launch_with(&stream, config, &attributes, (&mut x, 2, 1, 4)) }
        .expect("a launch");
    assert!(!event.is_complete().expect("an answer"), "no wait so far");
    event.synchronize().expect("a wait");
    assert_eq!(x.to_vec().expect("a copy"), [3; 4]);
}

#[test]
fn a_cooperative_launch_in_a_green_context_uses_only_its_sms() {
    use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
    let (_end, context) = in_child!(on(Profile::h200()));
    let device = context.device();
    let split = SmResource::of_device(&device).expect("its SMs");
    let split =
        split.split_by_count(SplitByCount { min: 16, max_groups: Some(1), ..Default::default() });
    let green = GreenContext::new(split.expect("a split").groups).expect("a partition");
    let stream = green.stream().expect("a stream");
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let nothing = module.kernel("nothing").expect("found").typed::<()>().expect("its parameters");
    let cooperative = LaunchAttributes { cooperative: true, ..Default::default() };
    for (blocks, fits) in [(2 * 16, true), (2 * 16 + 1, false)] {
        let config = LaunchConfig::linear(blocks, 1024);
        // SAFETY: the kernel does nothing.
        let launched = unsafe { nothing.launch_with(&stream, config, &cooperative, ()) };
        assert_eq!(launched.is_ok(), fits, "{blocks}: {launched:?}");
        let Err(error) = launched else { continue };
        let Error::Launch(error) = error else {
            panic!("{error}");
        };
        let limit = LaunchLimit::CooperativeBlocks { blocks: 33, max: 32, per_sm: 2, sm_count: 16 };
        assert_eq!(error.limit, limit);
    }
    stream.synchronize().expect("a wait");
}

#[test]
fn a_launch_may_allow_larger_clusters_by_an_attribute() {
    use CUlaunchAttributePortableClusterMode as Mode;
    let (_end, context) = in_child!(on("h200@13.5".parse().expect("a profile")));
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, HOPPER).expect("the test kernels");
    let ranks = module.kernel("cluster_ranks").expect("found");
    let ranks = ranks.typed::<(&mut [u32],)>().expect("its parameters");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 32).expect("memory");
    let attributes = LaunchAttributes {
        cluster: Some([8, 1, 1]),
        preferred_cluster: Some([16, 1, 1]),
        ..Default::default()
    };
    let larger = LaunchAttributes {
        cluster: Some([16, 1, 1]),
        portable_cluster_mode: Some(Mode::CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE),
        ..Default::default()
    };
    let config = LaunchConfig::linear(32, 32);
    for attributes in [attributes, larger] {
        // SAFETY: the kernel writes one element for each of 32 blocks.
        unsafe { ranks.launch_with(&stream, config, &attributes, (&mut out,)) }
            .expect("clusters that the device has");
    }
    assert_eq!(ranks.kernel().max_cluster_size(config, &larger).expect("an answer"), 16);
    stream.synchronize().expect("a wait");
}

/// A real driver accepts the buffer. The kernel reads what the driver had in place of the missing bytes.
#[test]
fn a_buffer_of_arguments_that_is_too_short_is_a_misuse() {
    let (_end, context) = in_child!(with_misuse("has 19 bytes, and its parameters 20"));
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let kernel = module.kernel("scale").expect("found").as_raw();
    let (mut bytes, mut size) = ([0u8; 19], 19usize);
    let mut list = [
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        bytes.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        (&raw mut size).cast(),
        CU_LAUNCH_PARAM_END,
    ];
    let (params, extra) = (std::ptr::null_mut(), list.as_mut_ptr());
    let raw = stream.as_raw();
    // SAFETY: the list ends, and its buffer has the stated length. The kernel does nothing with 0 elements.
    let code = unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, raw, params, extra) };
    assert!(code.is_success(), "{code}");
    stream.synchronize().expect("a wait");
}

#[test]
fn memory_that_a_kernel_allocates_and_frees_is_unknown_after_it() {
    const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry allocate(.param .u64 out, .param .u32 frees) {
    .reg .b64 %x, %o; .reg .b32 %f; .reg .pred %p;
    ld.param.u64 %o, [out];
    ld.param.u32 %f, [frees];
    { .param .b64 n; .param .b64 r; st.param.b64 [n], 64;
      call.uni (r), malloc, (n); ld.param.b64 %x, [r]; }
    st.global.u64 [%o], %x;
    setp.eq.u32 %p, %f, 0;
    @%p ret;
    { .param .b64 p; st.param.b64 [p], %x; call.uni free, (p); }
    ret;
}
";
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, PTX).expect("the kernel");
    let kernel = module.kernel("allocate").expect("found");
    let kernel = kernel.typed::<(&mut [u64], u32)>().expect("its parameters");
    let mut out = DeviceBuffer::<u64>::zeroed(&stream, 1).expect("memory");
    let config = LaunchConfig::linear(1, 1);
    for frees in [0, 1] {
        // SAFETY: the kernel writes one element.
        unsafe { kernel.launch(&stream, config, (&mut out, frees)) }.expect("a launch");
        let address = out.to_vec().expect("a copy")[0];
        assert_ne!(address, 0);
        let is_known = context.pointer_info(address).expect("an answer").is_some();
        assert_eq!(is_known, frees == 0);
    }
}
