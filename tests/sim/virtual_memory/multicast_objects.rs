//! Multicast objects of the safe layer, with two devices. Unverified (from documentation), as no machine
//! with several linked devices was measured. They are never created on a real driver.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use cuda_safe::virtual_memory::MulticastObject;

pub(crate) const PAGE: usize = 2 << 20;
/// The header of a fatbin without images.
const IMAGE: &[u8] = &[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn two_devices() -> (AtEnd, Context, [Device; 2]) {
    let (end, context) = on(Profile::h200().with_devices(2));
    let devices = [0, 1].map(|ordinal| Device::get(ordinal).expect("a device"));
    (end.after(|| assert_eq!(alive().physical_allocations, 0)), context, devices)
}

pub(crate) fn object(devices: &[Device], pages: usize) -> MulticastObject {
    let options = MulticastOptions::new(devices.len() as u32, pages * PAGE);
    let mut team = MulticastTeam::new(&options).expect("an object");
    for device in devices {
        team.add(device).expect("a device of the team");
    }
    assert_eq!(team.devices(), devices);
    team.complete().expect("all devices")
}

pub(crate) fn memory(device: Device) -> PhysicalMemory {
    PhysicalMemory::new(device, PAGE).expect("memory")
}

pub(crate) fn mapping(device: Device) -> Mapping {
    let space = Reservation::new(PAGE).expect("addresses");
    space.map(0, memory(device)).expect("a mapping")
}

#[test]
fn a_kernel_adds_up_the_memory_of_all_devices() {
    let (_end, context, devices) = in_child!(two_devices());
    kernel::register_image(IMAGE, &[("sum_up", &[8])]);
    kernel::register("sum_up", |launch| {
        launch.update_multicast::<u32>(0, 2, |_, values| values.iter().sum())
    });
    let stream = context.stream().expect("a stream");
    let object = object(&devices, 1);
    let mut mappings = devices.map(mapping);
    for (mapping, value) in mappings.iter_mut().zip([5_u32, 6]) {
        mapping.set_access(devices[0], MemoryAccess::ReadWrite).expect("access");
        // SAFETY: the mapping is alive, and only this stream uses it.
        let part = unsafe { DeviceBuffer::borrow_raw(mapping.address(), 2, &stream) };
        part.expect("memory").fill(value).expect("a fill");
    }
    let bound: Vec<_> = devices
        .into_iter()
        .zip(mappings)
        .map(|(device, mapping)| object.bind(device, 0, mapping).expect("bound"))
        .collect();
    assert_eq!((bound[1].device(), bound[1].offset()), (devices[1], 0));
    let space = Reservation::new(PAGE).expect("addresses");
    let mut both = object.map(&space, 0).expect("a mapping");
    assert_eq!((both.address(), both.size()), (space.address(), PAGE));
    assert_eq!(both.reservation().address(), space.address());
    both.set_access(devices[0], MemoryAccess::ReadWrite).expect("access");
    // SAFETY: the image is valid.
    let module = unsafe { Module::from_image(&context, IMAGE) }.expect("a module");
    let kernel = module.kernel("sum_up").expect("a kernel").typed::<(u64,)>().expect("one address");
    let config = LaunchConfig::new([1; 3], [1; 3]);
    // SAFETY: the address is a mapping of the object, which lives until the work is done.
    unsafe { kernel.launch(&stream, config, (both.address(),)) }.expect("a launch");
    stream.synchronize().expect("a wait");
    both.unmap().expect("mapped");
    for binding in bound {
        let mapping = binding.unbind().expect("bound");
        // SAFETY: the mapping is alive, and only this stream uses it.
        let part = unsafe { DeviceBuffer::<u32>::borrow_raw(mapping.address(), 2, &stream) };
        assert_eq!(part.expect("memory").to_vec().expect("a copy"), [11, 11]);
    }
}

#[test]
fn an_object_without_all_of_its_devices_binds_nothing() {
    let (_end, _rest0, devices) = in_child!(two_devices());
    let options = MulticastOptions::new(2, PAGE);
    let mut team = MulticastTeam::new(&options).expect("an object");
    team.add(&devices[0]).expect("a device");
    let twice = team.add(&devices[0]).expect_err("it has this one");
    assert_eq!(twice.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    let rejected = team.try_complete().expect_err("one is missing");
    let missing = Invalid::MissingDevices { devices: 2, added: 1 };
    assert!(matches!(&rejected.error, Error::Invalid(what) if **what == missing));
    // Another process may add the other device.
    let refused = rejected.value.complete_elsewhere().try_bind(devices[0], 0, memory(devices[0]));
    let rejected = refused.map(drop).expect_err("not all devices were added");
    assert_eq!(rejected.error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(rejected.value.size(), PAGE);
}

#[test]
fn sizes_and_offsets_are_checked() {
    let (_end, _rest0, devices) = in_child!(two_devices());
    for size in [0, 4096] {
        let refused = MulticastTeam::new(&MulticastOptions::new(2, size));
        let expected = Invalid::Granularity { what: "the size", bytes: size, granularity: PAGE };
        assert_eq!(invalid(refused), expected);
    }
    assert_eq!(MulticastOptions::new(2, PAGE).recommended_granularity().expect("known"), PAGE);
    let object = object(&devices, 2);
    assert_eq!((object.size(), object.granularity()), (2 * PAGE, PAGE));
    let refused = object.bind(devices[0], 4096, memory(devices[0]));
    assert!(matches!(invalid(refused), Invalid::Granularity { .. }));
    let refused = object.bind(devices[0], 2 * PAGE, memory(devices[0]));
    let end = 3 * PAGE;
    assert_eq!(invalid(refused), Invalid::Range { start: 2 * PAGE, end, len: 2 * PAGE });
    let space = Reservation::new(2 * PAGE).expect("addresses");
    assert!(matches!(invalid(object.map(&space, PAGE)), Invalid::Range { .. }));
    // SAFETY: 0 is not a handle.
    let none = unsafe { MulticastTeam::from_raw(0, &MulticastOptions::new(2, PAGE)) };
    assert!(matches!(invalid(none), Invalid::Handle { .. }));
}

#[test]
fn objects_bindings_and_mappings_are_dropped_in_any_order() {
    let (_end, _rest0, devices) = in_child!(two_devices());
    let object = object(&devices, 1);
    let space = Reservation::new(PAGE).expect("addresses");
    let mapping = object.map(&space, 0).expect("a mapping");
    let bound = devices.map(|device| object.bind(device, 0, memory(device)).expect("bound"));
    assert_eq!(bound[0].memory().size(), PAGE);
    drop((object, space));
    let [first, second] = bound;
    let called = calls(|| drop(first));
    assert_eq!(called, ["cuMulticastUnbind", "cuMemRelease"]);
    let called = calls(|| drop(mapping));
    assert_eq!(called, ["cuMemUnmap", "cuMemAddressFree"]);
    assert_eq!(calls(|| drop(second)), ["cuMulticastUnbind", "cuMemRelease", "cuMemRelease"]);
}

#[test]
fn a_driver_before_13_1_takes_the_device_from_the_memory() {
    let older: Profile = "h200*2@12.4".parse().expect("a profile");
    let (_end, _context) = in_child!(on(older));
    let devices = [0, 1].map(|ordinal| Device::get(ordinal).expect("a device"));
    let object = object(&devices, 1);
    let called = calls(|| {
        let one = object.bind(devices[0], 0, memory(devices[0])).expect("bound");
        drop((one, object.bind(devices[1], 0, mapping(devices[1])).expect("bound")));
    });
    for function in ["cuMulticastBindMem", "cuMulticastBindAddr"] {
        assert!(called.contains(&function), "{called:?}");
    }
}

#[test]
fn one_device_has_no_multicast() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let error = MulticastTeam::new(&MulticastOptions::new(2, PAGE)).expect_err("one device");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn a_failed_unbind_leaves_the_binding_to_its_drop() {
    let (_end, _rest0, devices) = in_child!(two_devices());
    let object = object(&devices, 1);
    let bound = object.bind(devices[0], 0, memory(devices[0])).expect("bound");
    let fault = fail("cuMulticastUnbind", 1, CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(bound.unbind().expect_err("a fault").code(), Some(CUresult::CUDA_ERROR_UNKNOWN));
    drop(fault);
    // The drop has unbound the memory, so the place is free.
    drop(object.bind(devices[0], 0, memory(devices[0])).expect("bound"));
}
