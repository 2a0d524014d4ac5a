//! Kernels with `multimem` instructions on multicast objects of two devices. Unverified (from documentation), as no machine
//! with several linked devices was measured. The objects are never created on a real driver.
#![cfg(target_os = "linux")]

use super::multicast_objects::{PAGE, mapping, memory, object};
use crate::prelude::*;
use cuda_safe::virtual_memory::{Binding, MulticastMapping, MulticastObject};
use cuda_sim::checks::{Check, Checks};

/// Each thread adds up 16 bytes at `p` + 16 × its index over the devices, and stores the sums on each device. Others access
/// the word at `p` in one way each.
const PTX: &str = "\
.version 8.2
.target sm_90
.address_size 64
.visible .entry all_reduce(.param .u64 p) {
    .reg .b32 %t; .reg .b64 %p, %o; .reg .f32 %f<4>;
    ld.param.u64 %p, [p]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16; add.u64 %p, %p, %o;
    multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%p];
    multimem.st.relaxed.sys.global.v4.f32 [%p], {%f0, %f1, %f2, %f3};
    ret;
}
.visible .entry count(.param .u64 p) {
    .reg .b64 %p; ld.param.u64 %p, [p]; multimem.red.release.sys.global.add.u32 [%p], 1; ret;
}
.visible .entry load(.param .u64 p) {
    .reg .b64 %p; .reg .b32 %r; ld.param.u64 %p, [p]; multimem.ld_reduce.add.u32 %r, [%p]; ret;
}
.visible .entry plain(.param .u64 p) {
    .reg .b64 %p; .reg .b32 %r; ld.param.u64 %p, [p]; ld.global.u32 %r, [%p]; ret;
}
.visible .entry both(.param .u64 p, .param .u64 q) {
    .reg .b64 %p, %q; .reg .b32 %r; .reg .pred %x;
    ld.param.u64 %p, [p]; ld.param.u64 %q, [q]; mov.u32 %r, %ctaid.x; setp.eq.u32 %x, %r, 0;
    @%x multimem.st.global.u32 [%p], 1; @!%x ld.global.u32 %r, [%q]; ret;
}
";

/// A multicast object of two devices that is mapped, with access for the first device.
struct Setup {
    context: Context,
    stream: Stream,
    devices: [Device; 2],
    both: MulticastMapping,
    object: MulticastObject,
}

impl Setup {
    fn new(profile: Profile) -> Self {
        start(profile.with_devices(2));
        let context = context();
        let devices = [0, 1].map(|ordinal| Device::get(ordinal).expect("a device"));
        let object = object(&devices, 2);
        let space = Reservation::new(2 * PAGE).expect("addresses");
        let mut both = object.map(&space, 0).expect("a mapping");
        both.set_access(devices[0], MemoryAccess::ReadWrite).expect("access");
        Self { stream: context.stream().expect("a stream"), context, devices, both, object }
    }

    /// Binds mapped memory of each device to the first page, which the first device may access.
    fn bind(&self) -> [(u64, Binding<MulticastObject, Mapping>); 2] {
        self.devices.map(|device| {
            let mut its = mapping(device);
            its.set_access(self.devices[0], MemoryAccess::ReadWrite).expect("access");
            (its.address(), self.object.bind(device, 0, its).expect("bound"))
        })
    }

    /// Launches a kernel with one parameter, and waits for it.
    fn run(&self, kernel: &str, threads: u32, address: u64) -> Result<()> {
        run(&self.context, &self.stream, kernel, threads, address)
    }
}

fn run(context: &Context, stream: &Stream, kernel: &str, threads: u32, address: u64) -> Result<()> {
    let module = Module::from_ptx(context, PTX)?;
    let kernel = module.kernel(kernel)?.typed::<(u64,)>()?;
    // SAFETY: the software driver reports accesses to other memory.
    unsafe { kernel.launch(stream, LaunchConfig::linear(1, threads), (address,)) }?;
    stream.synchronize()
}

/// Returns a buffer of mapped memory.
///
/// # Safety
/// The memory is mapped while the buffer is used, and has so many elements.
unsafe fn buffer<T>(address: u64, len: usize, stream: &Stream) -> DeviceBuffer<T> {
    // SAFETY: see above.
    unsafe { DeviceBuffer::borrow_raw(address, len, stream) }.expect("memory")
}

#[test]
fn an_all_reduce_of_two_devices_gives_both_of_them_the_sums() {
    in_child!();
    let mut setup = Setup::new(Profile::h200());
    let bound = setup.bind();
    let [first, second] = [bound[0].0, bound[1].0];
    for (address, scale) in [(first, 1.0), (second, 100.0)] {
        let values: Vec<f32> = (0..256).map(|at| at as f32 * scale).collect();
        // SAFETY: the memory is bound until the end.
        let mut part = unsafe { buffer::<f32>(address, 256, &setup.stream) };
        part.copy_from_slice(&values).expect("a copy");
    }
    setup.stream.synchronize().expect("a wait");
    // Each device adds up one half.
    setup.both.set_access(setup.devices[1], MemoryAccess::ReadWrite).expect("access");
    let other = Context::primary(&setup.devices[1]).expect("a context");
    let stream = other.stream().expect("a stream");
    setup.run("all_reduce", 32, setup.both.address()).expect("a launch");
    run(&other, &stream, "all_reduce", 32, setup.both.address() + 512).expect("a launch");
    setup.run("count", 70, setup.both.address() + 2048).expect("a launch");
    let expected: Vec<f32> = (0..256).map(|at| at as f32 * 101.0).collect();
    for address in [first, second] {
        // SAFETY: as above.
        let part = unsafe { buffer::<f32>(address, 256, &setup.stream) };
        assert_eq!(part.to_vec().expect("a copy"), expected);
    }
    for address in [first, second] {
        // SAFETY: as above.
        let part = unsafe { buffer::<u32>(address + 2048, 1, &setup.stream) };
        assert_eq!(part.to_vec().expect("a copy")[0], 70);
    }
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn memory_without_a_mapping_of_its_own_is_reached_too() {
    in_child!();
    let setup = Setup::new(Profile::h200().with_race_detection());
    let bound = setup.devices.map(|its| setup.object.bind(its, 0, memory(its)).expect("bound"));
    setup.run("all_reduce", 1, setup.both.address()).expect("a launch");
    setup.run("count", 5, setup.both.address() + 16).expect("a launch");
    for binding in bound {
        let space = Reservation::new(PAGE).expect("addresses");
        let mut its = space.map(0, binding.unbind().expect("bound")).expect("a mapping");
        its.set_access(setup.devices[0], MemoryAccess::Read).expect("access");
        // SAFETY: the mapping is alive.
        let part = unsafe { buffer::<u32>(its.address(), 5, &setup.stream) };
        assert_eq!(part.to_vec().expect("a copy"), [0, 0, 0, 0, 5]);
    }
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

/// Runs a kernel on an address that ends it, and returns the address and the misuse.
fn fault(kernel: &str, address: impl FnOnce(&Setup) -> u64) -> (u64, String) {
    let setup = Setup::new(Profile::h200());
    let bound = setup.bind();
    let address = address(&setup);
    let error = setup.run(kernel, 1, address).expect_err("a fault");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    let misuses = cuda_sim::misuses();
    std::mem::forget((bound, setup));
    (address, misuses.into_iter().next().expect("a misuse"))
}

#[test]
fn a_load_from_a_multicast_address_is_fatal() {
    in_child!();
    let (address, misuse) = fault("plain", |setup| setup.both.address());
    let expected = format!(
        "load from 4 bytes at {address:#x}: they are a mapping of a multicast object, which only `multimem` \
         instructions"
    );
    assert!(misuse.contains(&expected), "{misuse}");
}

#[test]
fn a_multimem_instruction_on_other_memory_is_fatal() {
    in_child!();
    let (address, misuse) = fault("load", |setup| {
        let memory = DeviceBuffer::<u32>::zeroed_sync(&setup.stream, 16).expect("memory");
        memory.into_raw().0
    });
    let expected = format!(
        "load from 4 bytes at {address:#x}: they are not a mapping of a multicast object: `multimem.ld_reduce.add.u32`"
    );
    assert!(misuse.contains(&expected), "{misuse}");
}

#[test]
fn a_multimem_instruction_on_mapped_memory_is_fatal() {
    in_child!();
    let (address, misuse) = fault("count", |setup| {
        let mut its = mapping(setup.devices[0]);
        its.set_access(setup.devices[0], MemoryAccess::ReadWrite).expect("access");
        let address = its.address();
        std::mem::forget(its);
        address
    });
    let expected = format!(
        "atomic operation on 4 bytes at {address:#x}: they are not a mapping of a multicast object"
    );
    assert!(misuse.contains(&expected), "{misuse}");
}

#[test]
fn a_part_of_an_object_without_memory_of_each_device_is_fatal() {
    in_child!();
    let (_, misuse) = fault("count", |setup| {
        let address = setup.both.address() + PAGE as u64;
        let first = setup.devices[0];
        std::mem::forget(setup.object.bind(first, PAGE, memory(first)).expect("bound"));
        address
    });
    assert!(
        misuse.contains("they are not bound on every device of the multicast object"),
        "{misuse}"
    );
}

#[test]
fn a_device_without_access_to_the_mapping_is_refused() {
    in_child!();
    let setup = Setup::new(Profile::h200());
    let _bound = setup.bind();
    let other = Context::primary(&setup.devices[1]).expect("a context");
    let stream = other.stream().expect("a stream");
    let error = run(&other, &stream, "load", 1, setup.both.address()).expect_err("a fault");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    let misuses = cuda_sim::misuses();
    assert!(misuses[0].contains("they are mapped, but may not be read"), "{misuses:?}");
}

#[test]
fn poisoned_memory_of_a_device_is_refused() {
    in_child!();
    let (_, misuse) = fault("count", |setup| {
        let its = mapping(setup.devices[0]);
        let address = its.address();
        cuda_sim::poison(address, 64, None).expect("mapped memory");
        let others = setup.devices[1];
        std::mem::forget(setup.object.bind(setup.devices[0], PAGE, its).expect("bound"));
        std::mem::forget(setup.object.bind(others, PAGE, memory(others)).expect("bound"));
        setup.both.address() + PAGE as u64
    });
    assert!(misuse.contains("are poisoned"), "{misuse}");
}

#[test]
fn racecheck_compares_the_memory_of_each_device_with_other_accesses() {
    in_child!();
    let checks = Checks::MEMCHECK.with(Check::Racecheck);
    let setup = Setup::new(Profile::h200().with_kernel_checks(checks));
    let bound = setup.bind();
    let module = Module::from_ptx(&setup.context, PTX).expect("the kernels");
    let kernel = module.kernel("both").expect("found").typed::<(u64, u64)>().expect("addresses");
    let second = bound[1].0;
    for offset in [4, 0] {
        let arguments = (setup.both.address(), second + offset);
        let config = LaunchConfig::linear(2, 1);
        // SAFETY: the memory is bound until the end.
        unsafe { kernel.launch(&setup.stream, config, arguments) }.expect("a launch");
        setup.stream.synchronize().expect("a wait");
        let found = cuda_sim::findings();
        let addresses: Vec<_> = found.iter().map(|its| its.error.address).collect();
        let expected = Some(cuda_sim::checks::check::Address::Global(second));
        assert_eq!(addresses, [expected][..usize::from(offset == 0)]);
    }
}

#[test]
fn races_of_operations_are_found_in_the_memory_of_each_device() {
    in_child!();
    let setup = Setup::new(Profile::h200().with_race_detection());
    let bound = setup.bind();
    let module = Module::from_ptx(&setup.context, PTX).expect("the kernels");
    let kernel = module.kernel("count").expect("found").typed::<(u64,)>().expect("an address");
    let other = setup.context.stream().expect("a stream");
    for (address, races) in [(bound[0].0 + 4, 0), (bound[1].0, 1)] {
        // SAFETY: the memory is bound until the end.
        let mut part = unsafe { buffer::<u32>(address, 1, &other) };
        part.fill(7).expect("a fill");
        let arguments = (setup.both.address(),);
        // SAFETY: as above.
        unsafe { kernel.launch(&setup.stream, LaunchConfig::linear(1, 1), arguments) }
            .expect("a launch");
        setup.context.synchronize().expect("a wait");
        let found = cuda_sim::races();
        assert_eq!(found.len(), races, "{found:?}");
        assert!(found.iter().all(|its| its.memory.start == bound[1].0), "{found:?}");
    }
}

#[test]
fn a_race_on_memory_without_a_mapping_names_the_object() {
    in_child!();
    let setup = Setup::new(Profile::h200().with_race_detection());
    let bound = setup.devices.map(|its| setup.object.bind(its, 0, memory(its)).expect("bound"));
    let module = Module::from_ptx(&setup.context, PTX).expect("the kernels");
    let other = setup.context.stream().expect("a stream");
    for (kernel, stream) in [("load", &setup.stream), ("count", &other)] {
        let kernel = module.kernel(kernel).expect("found").typed::<(u64,)>().expect("an address");
        let arguments = (setup.both.address(),);
        // SAFETY: the memory is bound until the end.
        unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), arguments) }.expect("a launch");
    }
    setup.context.synchronize().expect("a wait");
    let found = cuda_sim::races();
    let kinds: Vec<_> = found.iter().map(|its| its.memory.kind).collect();
    assert_eq!(kinds, ["memory of a multicast object without a mapping of its own"; 2]);
    assert_ne!(found[0].memory.start, found[1].memory.start);
    drop(bound);
}
