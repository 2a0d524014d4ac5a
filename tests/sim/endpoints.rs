//! Logical endpoints of the safe layer. Unverified (from documentation), since CUDA 13.3.
#![cfg(target_os = "linux")]

use crate::on;
use crate::recorded::calls;
use cuda_safe::virtual_memory::{
    EndpointDevices, EndpointHandle, EndpointIds, EndpointOptions, LogicalEndpoint,
    PendingEndpoint, PhysicalMemory, Reservation,
};
use cuda_safe::{CUresult, Device, Error, Invalid, Result};
use cuda_sim::{Profile, alive};

const PAGE: usize = 2 << 20;

fn with(profile: &str, body: impl FnOnce([Device; 2])) {
    let profile: Profile = profile.parse().expect("a profile");
    on(profile, |_| {
        let last = Device::count().expect("known") - 1;
        body([0, last].map(|ordinal| Device::get(ordinal).expect("a device")));
        assert_eq!(alive().physical_allocations, 0);
    });
}

fn finish(pending: PendingEndpoint) -> LogicalEndpoint {
    let again = pending
        .finish()
        .expect("known")
        .expect_err("under construction");
    again.finish().expect("known").expect("constructed")
}

fn memory(device: Device) -> PhysicalMemory {
    PhysicalMemory::new(device, PAGE).expect("memory")
}

fn invalid<T>(result: Result<T, impl Into<Error>>) -> Invalid {
    match result.map(drop).map_err(Into::into) {
        Err(Error::Invalid(what)) => *what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_and_mappings_are_bound_to_an_endpoint() {
    with("h200@13.4", |[device, _]| {
        let ids = EndpointIds::reserve(2).expect("ids");
        let options = EndpointOptions::new(EndpointDevices::Unicast(device), 2 * PAGE);
        assert_eq!(options.limits().expect("known").alignment, PAGE);
        let pending = ids.create(1, &options).expect("an endpoint");
        assert_eq!((pending.id(), ids.count()), (ids.first() + 1, 2));
        let endpoint = finish(pending);
        assert_eq!(endpoint.size(), 2 * PAGE);
        let one = endpoint.bind(device, 0, memory(device)).expect("bound");
        let space = Reservation::new(PAGE).expect("addresses");
        let mapping = space.map(0, memory(device)).expect("a mapping");
        let other = endpoint.bind_mapping(device, PAGE, mapping).expect("bound");
        assert_eq!((other.device(), other.offset()), (device, PAGE));
        assert_eq!(other.memory().address(), space.address());
        let taken = endpoint.bind(device, 0, memory(device));
        let rejected = taken.map(drop).expect_err("memory is bound there");
        assert_eq!(
            rejected.error.code(),
            Some(CUresult::CUDA_ERROR_INVALID_VALUE)
        );
        assert_eq!(one.unbind().expect("bound").size(), PAGE);
        // The last owner destroys the endpoint, and then releases its ids.
        drop((ids, endpoint, space));
        let called = calls(|| drop(other));
        let expected = [
            "cuLogicalEndpointUnbind",
            "cuLogicalEndpointDestroy",
            "cuLogicalEndpointIdRelease",
            "cuMemUnmap",
            "cuMemRelease",
            "cuMemAddressFree",
        ];
        assert_eq!(called, expected);
    });
}

#[test]
fn an_endpoint_of_several_devices_needs_all_of_them() {
    with("h200*2@13.4", |devices| {
        let ids = EndpointIds::reserve(1).expect("ids");
        let options = EndpointOptions::new(EndpointDevices::Multicast(2), PAGE);
        let mut pending = ids.create(0, &options).expect("an endpoint");
        pending.add(&devices[0]).expect("a device");
        let again = pending
            .finish()
            .expect("known")
            .expect_err("a device is missing");
        let mut pending = again
            .finish()
            .expect("known")
            .expect_err("a device is missing");
        pending.add(&devices[1]).expect("a device");
        let endpoint = finish(pending);
        let bound = devices.map(|device| endpoint.bind(device, 0, memory(device)).expect("bound"));
        drop(endpoint);
        drop(bound);
    });
}

#[test]
fn sizes_offsets_and_indexes_are_checked() {
    with("h200@13.4", |[device, _]| {
        let ids = EndpointIds::reserve(1).expect("ids");
        let unicast = EndpointDevices::Unicast(device);
        for size in [0, 4096] {
            let refused = ids.create(0, &EndpointOptions::new(unicast, size));
            assert!(
                matches!(invalid(refused), Invalid::Granularity { .. }),
                "{size}"
            );
        }
        let huge = EndpointOptions::new(unicast, 1 << 50);
        assert!(matches!(
            invalid(ids.create(0, &huge)),
            Invalid::TooLarge { .. }
        ));
        let options = EndpointOptions::new(unicast, PAGE);
        let beyond = invalid(ids.create(1, &options));
        let expected = Invalid::Range {
            start: 1,
            end: 2,
            len: 1,
        };
        assert_eq!(beyond, expected);
        let endpoint = finish(ids.create(0, &options).expect("an endpoint"));
        let twice = ids.create(0, &options).expect_err("the id has an endpoint");
        assert_eq!(twice.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
        let refused = endpoint.bind(device, 1, memory(device));
        assert!(matches!(invalid(refused), Invalid::Granularity { .. }));
        let refused = endpoint.bind(device, PAGE, memory(device));
        assert!(matches!(invalid(refused), Invalid::Range { .. }));
        let bytes = [7; EndpointHandle::BYTES];
        assert_eq!(EndpointHandle::from_bytes(&bytes).to_bytes(), bytes);
    });
}

#[test]
fn an_older_driver_has_no_logical_endpoints() {
    with("h200@13.0", |_| {
        let error = EndpointIds::reserve(1).expect_err("an old driver");
        assert!(matches!(error, Error::Missing(_)), "{error}");
    });
}
