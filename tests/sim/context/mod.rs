//! The objects of a destroyed context, and the objects that retain a primary context.

pub(crate) mod borrowed;
pub(crate) mod bound;
pub(crate) mod guards;

use crate::array::{FLOAT, SURFACE, shape};
use crate::prelude::*;
use crate::software::misuses::succeeds;

const VECTOR: &str = concat!(include_str!("../../kernels/vector.ptx"), "\0");

fn pop() {
    let mut popped: CUcontext = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxPopCurrent_v2(&raw mut popped) });
}

#[test]
fn destroying_a_context_destroys_everything_created_in_it() {
    let (context, _stream) = &in_child!(expecting_misuse());
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context").into_raw();
    let before = cuda_sim::alive();
    // SAFETY: the context is alive.
    succeeds(unsafe { cuCtxPushCurrent_v2(own) });
    let (mut stream, mut event, mut module) = (null_mut(), null_mut(), null_mut());
    let (mut memory, mut managed, mut host) = (0, 0, null_mut());
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuStreamCreate(&raw mut stream, 1) });
    // SAFETY: as above.
    succeeds(unsafe { cuEventCreate(&raw mut event, 0) });
    // SAFETY: as above.
    succeeds(unsafe { cuMemAlloc_v2(&raw mut memory, 64) });
    let global = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0;
    // SAFETY: as above.
    succeeds(unsafe { cuMemAllocManaged(&raw mut managed, 64, global) });
    // SAFETY: as above.
    succeeds(unsafe { cuMemHostAlloc(&raw mut host, 64, 0) });
    // SAFETY: the text ends with a NUL, and the pointer refers to a local variable.
    succeeds(unsafe { cuModuleLoadData(&raw mut module, VECTOR.as_ptr().cast()) });
    let (mut array, mut mipmapped) = (null_mut(), null_mut());
    let (mut texture, mut surface) = (0, 0);
    let mut plane = shape(FLOAT, 1, [8, 8, 0]);
    plane.Flags = SURFACE;
    // SAFETY: the pointers refer to local variables.
    succeeds(unsafe { cuArray3DCreate_v2(&raw mut array, &raw const plane) });
    // SAFETY: as above.
    succeeds(unsafe { cuMipmappedArrayCreate(&raw mut mipmapped, &raw const plane, 2) });
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.res.array.hArray = array;
    let mut sampler = CUDA_TEXTURE_DESC::zeroed();
    sampler.addressMode = [CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP; 3];
    let (resource, sampler) = (&raw const resource, &raw const sampler);
    // SAFETY: as above, and the array is alive.
    succeeds(unsafe { cuTexObjectCreate(&raw mut texture, resource, sampler, null()) });
    // SAFETY: as above.
    succeeds(unsafe { cuSurfObjectCreate(&raw mut surface, resource) });
    pop();
    let during = cuda_sim::alive();
    assert_eq!(
        [
            during.streams - before.streams,
            during.events - before.events,
            during.modules - before.modules,
            during.device_allocations - before.device_allocations,
            during.managed_allocations - before.managed_allocations,
            during.pinned_allocations - before.pinned_allocations,
            during.arrays - before.arrays,
            during.mipmapped_arrays - before.mipmapped_arrays,
            during.textures - before.textures,
            during.surfaces - before.surfaces,
        ],
        [1; 10]
    );
    // SAFETY: nothing uses the context or the objects created in it any more.
    succeeds(unsafe { cuCtxDestroy_v2(own) });
    let after = cuda_sim::alive();
    assert_eq!(after.contexts, before.contexts - 1);
    let without_context = |its| Alive { contexts: 0, ..its };
    assert_eq!(without_context(after), without_context(before));

    let mut function = null_mut();
    // SAFETY: the software driver recognizes the destroyed handle.
    let of_stream = unsafe { cuStreamQuery(stream) };
    assert_eq!(of_stream, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    // SAFETY: as above.
    let of_event = unsafe { cuEventQuery(event) };
    // SAFETY: as above.
    let of_memory = unsafe { cuMemFree_v2(memory) };
    // SAFETY: as above, and the pointer refers to a local variable.
    let of_module = unsafe { cuModuleGetFunction(&raw mut function, module, c"add".as_ptr()) };
    // SAFETY: as above.
    let of_array = unsafe { cuArrayDestroy(array) };
    let refused = [of_event, of_memory, of_module, of_array];
    assert!(refused.iter().all(|code| !code.is_success()), "{refused:?}");
}

#[test]
fn an_affinity_has_parameters_and_a_count() {
    let _bench = in_child!(without_misuse_on("h200@12.4".parse().expect("a profile")));
    let mut context: CUcontext = null_mut();
    let mut affinity = CUexecAffinityParam::zeroed();
    let unsupported = CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    for (params, count) in [(&raw mut affinity, 0), (null_mut(), 1), (&raw mut affinity, 1)] {
        refused!(
            unsupported,
            cuda_safe::sys::abi::cuCtxCreate_v3(&raw mut context, params, count, 0, 0)
        );
    }
}

#[test]
fn equal_contexts_have_the_same_hash_and_others_another() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let state = std::collections::hash_map::RandomState::new();
    let hash = |its: &Context| std::hash::BuildHasher::hash_one(&state, its);
    let same = crate::context();
    assert_eq!((&same, hash(&same)), (&context, hash(&context)));
    assert_ne!(hash(&other), hash(&context));
}

#[test]
fn a_primary_context_is_retained_before_its_green_contexts_are_created() {
    in_child!();
    start(Profile::h200());
    let device = Device::get(0).expect("a device");
    let split = SmResource::of_device(&device)
        .and_then(|resource| resource.split_by_count(SplitByCount::default()));
    let group = split.expect("a split").groups.pop().expect("a group");
    cuda_sim::clear_calls();
    let green = GreenContext::new([group]).expect("a green context");
    let calls = cuda_sim::calls();
    let at = |function| {
        let place = calls.iter().position(|call| call.function == function);
        place.unwrap_or_else(|| panic!("no {function} in {calls:?}"))
    };
    assert!(at("cuDevicePrimaryCtxRetain") < at("cuGreenCtxCreate"));
    drop(green);
    crate::check();
}

#[test]
fn objects_that_end_with_their_context_are_counted() {
    in_child!();
    start(Profile::h200());
    let device = Device::get(0).expect("a device");
    let ended = cuda_sim::ended_with_contexts;
    let allocate = |context: &Context| {
        let _current = context.make_current().expect("current");
        let mut address = 0;
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { cuMemAlloc_v2(&raw mut address, 4000) });
        address
    };
    let context = Context::new(&device, ContextFlags::empty()).expect("a context");
    let address = allocate(&context);
    // SAFETY: the memory is not used again.
    succeeds(unsafe { cuMemFree_v2(address) });
    drop(context);
    assert_eq!(ended(), Alive::default());
    let context = Context::new(&device, ContextFlags::empty()).expect("a context");
    allocate(&context);
    drop(context);
    let expected = Alive { device_allocations: 1, device_bytes: 4000, ..Alive::default() };
    assert_eq!(ended(), expected);
}
