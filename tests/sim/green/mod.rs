//! Green contexts: the default streams of their views, and streams that outlive them.

pub(crate) mod calls;
pub(crate) mod pool;
pub(crate) mod rules;

use crate::prelude::*;
use crate::software::misuses::succeeds;
use cuda_safe::green::{Overlap, SmProbe};

pub(crate) fn green(context: &Context) -> GreenContext {
    let resource = SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split = resource.split_by_count(SplitByCount { max_groups: Some(1), ..Default::default() });
    let group = split.expect("a split").groups.pop().expect("a group");
    GreenContext::new([group]).expect("a green context")
}

fn launch(module: &Module, stream: CUstream) -> CUresult {
    let kernel = module.kernel("nothing").expect("found").as_raw();
    // SAFETY: the kernel has no parameters and does nothing.
    unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) }
}

fn vector(context: &Context) -> Module {
    Module::from_ptx(context, include_str!("../../kernels/vector.ptx")).expect("the test kernels")
}

/// As measured on an H200.
#[test]
fn the_default_stream_of_a_view_accepts_kernels_of_the_primary_context() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let module = vector(&context);
    let green = green(&context);
    let mut view = null_mut();
    // SAFETY: the green context is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuCtxFromGreenCtx(&raw mut view, green.as_raw()) });
    // SAFETY: the view is alive.
    succeeds(unsafe { cuCtxPushCurrent_v2(view) });
    succeeds(launch(&module, CU_STREAM_LEGACY));
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxPopCurrent_v2(&raw mut view) });
    context.synchronize().expect("a wait");
}

#[test]
fn a_view_that_is_current_on_two_threads_is_reported() {
    let (context, _stream) = &in_child!(expecting_misuse());
    let green = green(context);
    let mut view = null_mut();
    // SAFETY: the green context is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuCtxFromGreenCtx(&raw mut view, green.as_raw()) });
    let address = view.expose_provenance();
    let pop = || {
        let mut popped = null_mut();
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { cuCtxPopCurrent_v2(&raw mut popped) });
    };
    // SAFETY: the view is alive.
    succeeds(unsafe { cuCtxPushCurrent_v2(view) });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let view = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: the view is alive.
            succeeds(unsafe { cuCtxPushCurrent_v2(view) });
            pop();
        });
    });
    pop();
    found("current on two threads");
}

/// For null, from documentation.
#[test]
fn null_names_the_current_green_context_and_a_handle_its_own() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let resource = SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split = resource.split_by_count(SplitByCount { max_groups: Some(2), ..Default::default() });
    let groups = split.expect("a split").groups.into_iter();
    let made: Vec<_> =
        groups.map(|group| GreenContext::new([group]).expect("a green context")).collect();
    let id = |green: CUgreenCtx| {
        let mut id = 0;
        succeeds!(cuGreenCtxGetId(green, &raw mut id));
        id
    };
    let [first, second] = [&made[0], &made[1]].map(|green| id(green.as_raw()));
    assert_ne!(first, second);
    let current = made[0].make_current().expect("it is current nowhere");
    assert_eq!(id(made[1].as_raw()), second);
    assert_eq!(id(null_mut()), first);
    current.end().expect("it is current");
}

/// With CUDA 12.4, streams are created with the view current.
#[test]
fn threads_that_create_streams_of_one_partition_do_not_share_its_view() {
    let (_end, context) = in_child!(on("h200@12.4".parse().expect("a profile")));
    let green = green(&context);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 5 } else { 500 } {
                    drop(green.stream().expect("a stream"));
                }
            });
        }
    });
}

/// The groups have another group between them. A split of the resource contains only their SMs.
#[test]
fn the_resource_of_a_green_context_holds_its_own_sms() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let resource = SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split = resource.split_by_count(SplitByCount { max_groups: Some(3), ..Default::default() });
    let mut groups = split.expect("a split").groups;
    let between = GreenContext::new([groups.remove(1)]).expect("a green context");
    let around = GreenContext::new(groups).expect("a green context");
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    let (mut whole, mut parts) = (CUdevResource::default(), [CUdevResource::default(); 2]);
    let (raw, place) = (around.as_raw(), &raw mut whole);
    // SAFETY: the green context is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuGreenCtxGetDevResource(raw, place, kind) });
    drop(around);
    let (mut count, first) = (2, parts.as_mut_ptr());
    let (count, whole) = (&raw mut count, &raw const whole);
    // SAFETY: the pointers refer to local variables, and the array has room for two groups.
    succeeds(unsafe { cuDevSmResourceSplitByCount(first, count, whole, null_mut(), 0, 8) });
    let mut descriptor = null_mut();
    // SAFETY: the array has two groups of one split.
    succeeds(unsafe { cuDevResourceGenerateDesc(&raw mut descriptor, first, 2) });
    let (mut green, flags) = (null_mut(), 1);
    // SAFETY: the descriptor was just created, and the pointer refers to a local variable.
    succeeds(unsafe { cuGreenCtxCreate(&raw mut green, descriptor, 0, flags) });
    // SAFETY: the green context was just created, and belongs to the primary context.
    let again = unsafe { GreenContext::from_raw(green, &context) }.expect("a green context");
    let probe = SmProbe::new(&context).expect("a probe");
    let sms_of = |green: &GreenContext| {
        let stream = green.stream().expect("a stream");
        probe.sms(&stream).expect("a trace")
    };
    let (sms, others) = (sms_of(&again), sms_of(&between));
    assert_eq!(sms.len(), 16);
    assert!(sms.is_disjoint(&others), "{sms:?}, {others:?}");
    drop((again, between));
}

#[test]
fn sms_that_the_hardware_added_to_a_partition_are_counted() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (green, probe) = (green(&context), SmProbe::new(&context).expect("a probe"));
    let stream = green.stream().expect("a stream");
    assert_eq!(probe.trace(&stream).expect("a trace").added, None);
    for count in [1, 3] {
        let sms = green.sm_count() + count;
        kernel::register("cuda_safe_record_sm", move |launch| {
            launch.update::<u32>(0, launch.blocks(), |block, _| block as u32 % sms)
        });
        let added = probe.trace(&stream).expect("a trace").added.expect("more than given");
        assert_eq!((added.count, added.by_dynamic_parallelism), (count, count <= 2));
        assert!(!added.by_mps, "this process is no client of MPS");
    }
}

#[test]
fn streams_that_outlive_their_green_context_are_unusable() {
    let (context, _stream) = &in_child!(expecting_misuse());
    let module = vector(context);
    let green = green(context);
    let stream: Stream = green.stream().expect("a stream");
    // SAFETY: the contract is violated on purpose: the object and its stream still exist.
    succeeds(unsafe { cuGreenCtxDestroy(green.as_raw()) });
    found("before its streams");
    let stream = stream.as_raw();
    let destroyed = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_eq!(launch(&module, stream), destroyed);
    // SAFETY: the software driver recognizes the destroyed handle.
    assert_eq!(unsafe { cuStreamQuery(stream) }, destroyed);
    // SAFETY: as above.
    assert_eq!(unsafe { cuStreamDestroy_v2(stream) }, destroyed);
}

#[test]
fn concurrent_kernels_of_partitions_that_share_sms_are_a_misuse() {
    in_child!();
    start(Profile::h200());
    let device = Device::get(0).expect("a device");
    let context = Context::primary(&device).expect("a context");
    let module = Module::from_ptx(&context, include_str!("../../kernels/vector.ptx"));
    let nothing = module.expect("the test kernels").kernel("nothing");
    let nothing = nothing.expect("found").typed::<()>().expect("none");
    let streams = [Overlap::Refuse, Overlap::Allow].map(|overlap| {
        let split = SmResource::of_device(&device).expect("a resource");
        let split = split.split_by_count(SplitByCount {
            max_groups: Some(1),
            overlap,
            ..SplitByCount::default()
        });
        let partition = GreenContext::new(split.expect("a split").groups);
        partition.expect("a partition").stream().expect("a stream")
    });
    let launch = |stream| {
        // SAFETY: the kernel does nothing.
        unsafe { nothing.launch(stream, LaunchConfig::linear(1, 1), ()) }.expect("a launch");
    };
    launch(&streams[0]);
    let event = context.event().expect("an event");
    event.record(&streams[0]).expect("a record");
    streams[1].wait_event(&event).expect("a wait");
    launch(&streams[1]);
    context.synchronize().expect("a wait");
    assert_eq!(cuda_sim::misuses(), [""; 0], "one after the other");
    streams.iter().for_each(launch);
    context.synchronize().expect("a wait");
    let misuses = cuda_sim::misuses();
    assert!(misuses[0].contains("share SMs"), "{misuses:?}");
}

/// The driver's description of the SMs refers to a green context, which must be alive.
#[test]
fn the_sms_of_a_green_context_keep_it_alive() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let whole = green(&context);
    let resource = SmResource::of_green_context(&whole).expect("its SMs");
    drop(whole);
    assert_eq!(cuda_sim::alive().green_contexts, 1);
    let split =
        resource.split_by_count(SplitByCount { overlap: Overlap::Allow, ..Default::default() });
    drop(resource);
    assert_eq!(cuda_sim::alive().green_contexts, 1);
    drop(split);
    assert_eq!(cuda_sim::alive().green_contexts, 0);
}

/// As measured on an H200.
#[test]
fn work_outlives_its_green_context_and_its_executable_graph() {
    let (context, stream) = &in_child!(expecting_misuse());
    let green = green(context);
    let its = green.stream().expect("a stream");
    let ran = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&ran);
    cuda_sim::kernel::register("nothing", move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let module = vector(context);
    let graph = stream.capture::<Error>(CaptureMode::default(), |stream| {
        succeeds(launch(&module, stream.as_raw()));
        Ok(())
    });
    let graph = graph.expect("a graph").instantiate().expect("an executable graph");
    // SAFETY: the kernel does nothing.
    unsafe { graph.launch_unchecked(stream) }.expect("a launch");
    // SAFETY: the graph object is forgotten below.
    succeeds(unsafe { cuGraphExecDestroy(graph.as_raw()) });
    succeeds(launch(&module, its.as_raw()));
    // SAFETY: the stream object is forgotten below.
    succeeds(unsafe { cuStreamDestroy_v2(its.as_raw()) });
    // SAFETY: the green context object is forgotten below.
    succeeds(unsafe { cuGreenCtxDestroy(green.as_raw()) });
    assert_eq!(ran.load(Ordering::Relaxed), 0, "neither waited");
    context.synchronize().expect("a wait");
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    std::mem::forget((green, its, graph));
}

/// Each split has its own exclusive right to the device.
#[test]
fn the_end_of_one_split_does_not_release_the_guard_of_another() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let split = |overlap| {
        let resource = SmResource::of_device(&context.device()).expect("SMs");
        resource.split_by_count(SplitByCount { overlap, ..Default::default() })
    };
    let first = split(Overlap::Allow).expect("groups");
    let second = split(Overlap::Allow).expect("groups");
    drop(first);
    split(Overlap::Refuse).expect_err("the second has the SMs");
    drop(second);
    split(Overlap::Refuse).expect("the SMs are unused");
}
