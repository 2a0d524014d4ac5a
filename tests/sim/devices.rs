//! Other devices, and several of them.

use crate::{common, on, start};
use cuda_safe::green::SmResource;
use cuda_safe::{Context, Device, DeviceBuffer, Error, Invalid, LaunchConfig, Module};
use cuda_sim::Profile;

#[test]
fn profiles_are_named_and_say_what_is_behind_them() {
    let h200: Profile = "h200".parse().expect("a profile");
    assert!(h200.is_recorded());
    assert_eq!(h200.to_string(), "NVIDIA H200, CUDA 13.0");
    let older: Profile = "h200@12.4".parse().expect("a profile");
    assert!(!older.is_recorded());
    assert!(
        older
            .to_string()
            .ends_with("unverified (from documentation)")
    );
    for wrong in ["", "h300", "h200@", "h200@12.3", "h200@new"] {
        let error = wrong.parse::<Profile>().expect_err(wrong).to_string();
        assert!(error.contains("a100") && error.contains("12.4"), "{error}");
    }
}

#[test]
fn a_driver_without_a_device_says_so() {
    common::child::in_child(&[], || {
        start(Profile::h200().with_devices(0));
        assert!(matches!(Device::count(), Err(Error::NoDevice)));
    });
}

#[test]
fn a_driver_older_than_green_contexts_names_both_versions() {
    common::child::in_child(&[], || {
        start("h200@12.2".parse().expect("a profile"));
        let device = Device::get(0).expect("a device");
        let error = SmResource::of_device(&device).expect_err("12.2");
        let text = error.to_string();
        assert_eq!(
            text,
            "cuDeviceGetDevResource needs CUDA 12.4; this driver offers 12.2"
        );
    });
}

#[test]
fn things_of_two_devices_do_not_mix() {
    on(Profile::h200().with_devices(2), |first| {
        assert_eq!(Device::count().expect("two"), 2);
        let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
        assert_ne!(first, second);
        let (a, b) = (
            first.stream().expect("a stream"),
            second.stream().expect("a stream"),
        );
        let invalid = |error: Error| match error {
            Error::Invalid(invalid) => *invalid,
            other => panic!("{other}"),
        };
        // Waiting for another device's event is what events are for; recording it is not.
        let event = second.event().expect("an event");
        event.record(&b).expect("its device");
        a.wait(&event).expect("another device");
        let wrong = invalid(event.record(&a).expect_err("another device"));
        assert!(matches!(wrong, Invalid::OtherContext { .. }), "{wrong}");

        let from = DeviceBuffer::<u8>::zeroed(&a, 4).expect("memory");
        let mut to = DeviceBuffer::<u8>::zeroed(&b, 4).expect("memory");
        let wrong = invalid(to.copy_from(&from).expect_err("another device"));
        assert!(wrong.to_string().contains("device 0") && wrong.to_string().contains("device 1"));

        let module = Module::from_ptx(&second, include_str!("../kernels/vector.ptx"));
        let nothing = module
            .expect("the test kernels")
            .kernel("nothing")
            .expect("is there");
        let nothing = nothing.typed::<()>().expect("no parameters");
        // SAFETY: the kernel does nothing.
        let wrong = unsafe { nothing.launch(&a, LaunchConfig::linear(1, 1), ()) };
        let wrong = invalid(wrong.expect_err("another device"));
        assert!(matches!(wrong, Invalid::OtherContext { .. }), "{wrong}");
    });
}

#[test]
fn work_of_one_seed_is_the_same_every_time() {
    /// The order in which two streams, without an order between them, write to one place.
    fn order(seed: u64) -> Vec<u8> {
        let seed = seed.to_string();
        let marker = std::env::temp_dir().join(format!("cuda-sim-{}-{seed}", std::process::id()));
        common::child::in_child(
            &[
                ("ORDER_SEED", &seed),
                ("ORDER_FILE", &marker.to_string_lossy()),
            ],
            || {
                let seed = std::env::var("ORDER_SEED").expect("set by the parent");
                start(Profile::h200().with_seed(seed.parse().expect("a number")));
                let context = crate::context();
                let streams: Vec<_> = (0..4)
                    .map(|_| context.stream().expect("a stream"))
                    .collect();
                let mut buffer = DeviceBuffer::<u8>::zeroed(&streams[0], 1).expect("memory");
                streams[0].synchronize().expect("a wait");
                let mut seen = Vec::new();
                for round in 0..8u8 {
                    for (number, stream) in (0u8..).zip(&streams) {
                        let (at, value) = (buffer.as_raw(), 4 * round + number);
                        // SAFETY: the byte is there; the race is what is looked at.
                        let code = unsafe {
                            cuda_safe::sys::cuMemsetD8Async(at, value, 1, stream.as_raw())
                        };
                        assert!(code.is_success());
                    }
                    context.synchronize().expect("a wait");
                    seen.push(buffer.to_vec().expect("a copy")[0] % 4);
                }
                buffer.zero().expect("a fill");
                std::fs::write(std::env::var("ORDER_FILE").expect("set"), seen).expect("a file");
            },
        );
        let seen = std::fs::read(&marker).unwrap_or_default();
        let _ = std::fs::remove_file(marker);
        seen
    }
    let first = order(1);
    if first.is_empty() {
        // This is the child.
        return;
    }
    assert_eq!(order(1), first, "the same seed");
    assert!(
        (2..6).any(|seed| order(seed) != first),
        "other seeds, other orders"
    );
}
