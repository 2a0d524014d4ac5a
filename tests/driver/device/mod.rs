//! Devices: their attributes, and access between peers.

pub(crate) mod peer;

use crate::common;
use cuda_safe::device::{Uuid, attribute};
use cuda_safe::{Device, Error, Invalid};

#[test]
fn every_device_reports_its_name_uuid_memory_and_capability() {
    let first = or_skip!(common::gpu());
    let devices = Device::all().expect("at least one device");
    assert_eq!(devices.len(), Device::count().expect("the count") as usize);
    assert_eq!(devices[0], first);
    for (ordinal, device) in devices.iter().enumerate() {
        assert_eq!(device.ordinal() as usize, ordinal);
        assert!(!device.name().expect("a name").is_empty());
        assert!(device.total_memory().expect("memory") > 1 << 28);
        assert!(device.compute_capability().expect("capability") >= (5, 0));
        let uuid = device.uuid().expect("a uuid").to_string();
        assert_eq!(uuid.len(), "GPU-00000000-0000-0000-0000-000000000000".len());
        let found = Device::by_uuid(device.uuid().expect("a uuid"));
        assert_eq!(found.expect("known"), Some(*device));
    }
    assert_eq!(Device::by_uuid(Uuid([7; 16])).expect("known"), None);
}

#[test]
fn typed_attributes_agree_with_the_raw_numbers() {
    let device = or_skip!(common::gpu());
    let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT);
    let raw = device.attribute_raw(attribute::MULTIPROCESSOR_COUNT.as_raw());
    assert_eq!(
        i64::from(sms.expect("every device has this attribute")),
        i64::from(raw.expect("every device has this attribute"))
    );
    assert_eq!(device.attribute(attribute::WARP_SIZE).expect("known"), 32);
    assert!(device.attribute(attribute::UNIFIED_ADDRESSING).expect("known"));
    let (major, minor) = device.compute_capability().expect("known");
    assert_eq!(device.attribute(attribute::COMPUTE_CAPABILITY_MAJOR).expect("known"), major);
    assert_eq!(device.attribute(attribute::COMPUTE_CAPABILITY_MINOR).expect("known"), minor);
}

mod provoked {
    //! Unknown attributes and ordinals are errors of the driver.

    use super::*;

    #[test]
    fn all_attributes_that_the_driver_knows_are_listed() {
        let device = or_skip!(common::gpu());
        let all = attribute::all(&device).expect("the known ones");
        // The software driver knows only the attributes that were needed so far.
        let least = if common::is_software() { 30 } else { 110 };
        assert!(all.len() >= least, "{}", all.len());
        assert!(all.iter().any(|(name, _)| *name == "WARP_SIZE"));
    }

    #[test]
    fn the_error_for_an_attribute_newer_than_the_driver_names_both_versions() {
        let device = or_skip!(common::gpu());
        let newest = attribute::TENSOR_MAP_LARGE_TENSOR_MIN_SIZE;
        let driver = cuda_safe::version().expect("a driver");
        let since = newest.since().expect("newer than 11.7");
        match device.attribute(newest) {
            Ok(_) => assert!(driver >= since),
            // The software driver does not know every attribute.
            Err(_) if driver >= since && common::is_software() => {}
            Err(Error::Invalid(invalid)) => assert_eq!(
                *invalid,
                Invalid::UnknownAttribute {
                    attribute: "TENSOR_MAP_LARGE_TENSOR_MIN_SIZE",
                    since,
                    driver
                }
            ),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_error_for_an_ordinal_out_of_range_names_the_device_count() {
        or_skip!(common::gpu());
        let count = Device::count().expect("the count");
        for ordinal in [count, count + 1, u32::MAX] {
            assert_eq!(
                common::invalid(Device::get(ordinal)),
                Invalid::DeviceOrdinal { ordinal, count }
            );
        }
    }
}
