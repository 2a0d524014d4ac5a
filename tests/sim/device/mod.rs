//! Other kinds of devices, and several devices.

pub(crate) mod other;
pub(crate) mod report;

use crate::prelude::*;
use cuda_safe::interop::grant_peer_access;
use cuda_safe::stream::AccessWindow;

#[path = "../../gpu/two_devices.rs"]
mod two_devices;

#[test]
fn profiles_have_names_and_describe_their_sources() {
    let h200: Profile = "h200".parse().expect("a profile");
    assert!(h200.is_recorded());
    assert_eq!(h200.to_string(), "NVIDIA H200, CUDA 13.0");
    let older: Profile = "h200@12.4".parse().expect("a profile");
    assert!(!older.is_recorded());
    assert!(older.to_string().ends_with("unverified (from documentation)"));
    let two: Profile = "h200*2@12.4#7".parse().expect("a profile");
    assert_eq!(two, older.with_devices(2).with_seed(7));
    for wrong in ["", "h300", "h200@", "h200@12.3", "h200@new", "h200*", "h200*-1", "*2"] {
        let error = wrong.parse::<Profile>().expect_err(wrong).to_string();
        assert!(error.contains("a100") && error.contains("12.4"), "{error}");
    }
}

#[test]
fn a_driver_without_a_device_reports_no_device() {
    in_child!();
    start(Profile::h200().with_devices(0));
    assert!(matches!(Device::count(), Err(Error::NoDevice)));
}

#[test]
fn the_error_for_a_driver_older_than_green_contexts_names_both_versions() {
    in_child!();
    start("h200@12.2".parse().expect("a profile"));
    let device = Device::get(0).expect("a device");
    let text = SmResource::of_device(&device).expect_err("12.2").to_string();
    assert_eq!(text, "cuDeviceGetDevResource needs CUDA 12.4; this driver offers 12.2");
}

#[test]
fn objects_of_two_devices_combine_as_documented() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    assert_eq!(Device::count().expect("two"), 2);
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    two_devices::table(&first, &second);
}

#[test]
fn a_green_context_has_only_sms_of_its_device() {
    in_child!();
    start(Profile::h200().with_devices(2));
    let device = |ordinal| Device::get(ordinal).expect("there are two");
    two_devices::green(&device(0), &device(1));
    let found = [
        "a descriptor of resources of different devices",
        "a green context is created from a descriptor of another device",
    ];
    assert_eq!(cuda_sim::misuses(), found);
    assert_eq!(cuda_sim::alive(), Alive::default());
}

/// Checks the table in the documentation of `Stream`.
#[test]
fn streams_and_events_of_two_devices_combine_as_documented() {
    #[track_caller]
    fn refused<T: Debug>(result: Result<T, Error>) {
        let invalid = common::invalid(result);
        assert!(matches!(invalid, Invalid::OtherContext { .. }), "{invalid}");
    }
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    let (here, there) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let (ours, theirs) = (first.event().expect("an event"), second.event().expect("an event"));
    let mut a = DeviceBuffer::<u8>::zeroed(&here, 4).expect("memory");
    let mut b = DeviceBuffer::<u8>::zeroed(&there, 4).expect("memory");
    here.synchronize().expect("a wait");
    there.synchronize().expect("a wait");
    for context in [None, Some(&first), Some(&second)] {
        let guard = context.map(|context| context.make_current().expect("current"));
        a.fill(1).expect("a fill");
        ours.record(&here).expect("its own");
        there.wait_event(&ours).expect("an event of another device");
        b.fill(2).expect("a fill");
        theirs.record(&there).expect("its own");
        here.wait_event(&theirs).expect("an event of another device");
        there.synchronize().expect("a wait");
        assert!(ours.is_complete().expect("a query"), "the order spans both devices");
        here.synchronize().expect("a wait");
        refused(ours.record(&there));
        refused(theirs.record_external(&here));
        refused(here.copy_attributes_from(&there));
        refused(here.set_access_window(&b, AccessWindow::default()));
        if let Some(guard) = &guard {
            let legacy = guard.legacy_stream();
            legacy.wait_event(&ours).expect("any event");
            legacy.wait_event(&theirs).expect("any event");
            let foreign = if guard.context() == &first { &theirs } else { &ours };
            refused(legacy.record_event(foreign));
        }
        drop(guard);
    }
    // The stream of the other device joins the capture, and its work runs there.
    let graph = here.capture(CaptureMode::default(), |here| {
        ours.record(here)?;
        there.wait_event(&ours)?;
        assert_eq!(there.capture_id()?, here.capture_id()?);
        a.fill(3)?;
        b.fill(4)?;
        theirs.record(&there)?;
        here.wait_event(&theirs)
    });
    let graph = graph.expect("joined").instantiate().expect("an executable graph");
    // SAFETY: the call is refused and accesses nothing.
    refused(unsafe { graph.launch_unchecked(&there) });
    // SAFETY: the buffers are alive and idle.
    unsafe { graph.launch_unchecked(&here) }.expect("a launch");
    here.synchronize().expect("a wait");
    assert_eq!(a.to_vec().expect("a copy"), [3; 4]);
    assert_eq!(b.to_vec().expect("a copy"), [4; 4]);
}

/// Returns how often an export calls each of these functions.
fn calls_of_an_export(buffer: &DeviceBuffer<u8>, names: [&str; 2]) -> [usize; 2] {
    cuda_sim::clear_calls();
    buffer.array_interface().expect("an array");
    let calls = cuda_sim::calls();
    names.map(|name| calls.iter().filter(|call| call.function == name).count())
}

const QUERY_AND_GRANT: [&str; 2] = ["cuPointerGetAttributes", "cuMemPoolSetAccess"];

#[test]
fn an_export_grants_access_to_each_peer_once() {
    let (_end, context) = in_child!(on(Profile::h200().with_devices(3)));
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    assert_eq!(calls_of_an_export(&buffer, QUERY_AND_GRANT), [1, 2]);
    assert_eq!(calls_of_an_export(&buffer, QUERY_AND_GRANT), [1, 0]);
    // Memory that does not belong to a pool.
    let sync = DeviceBuffer::<u8>::zeroed_sync(&stream, 4).expect("memory");
    assert_eq!(calls_of_an_export(&sync, QUERY_AND_GRANT), [1, 0]);
}

#[test]
fn an_export_on_a_machine_with_one_device_queries_no_pool() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    assert_eq!(calls_of_an_export(&buffer, QUERY_AND_GRANT), [0, 0]);
}

#[test]
fn an_array_is_exported_even_if_its_peers_cannot_be_granted_access() {
    let (_end, context) = in_child!(on(Profile::h200().with_devices(2)));
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    let fault = Fault::of_function("cuMemPoolSetAccess").from_then_on().with(code);
    let injected = fault.inject(Scope::Process);
    assert_eq!(buffer.array_interface().expect("an array").address(), buffer.as_raw());
    assert_eq!(injected.hits(), 1);
    // SAFETY: the buffer is alive.
    let answer = unsafe { grant_peer_access(&context, buffer.as_raw()) };
    assert_eq!(answer.expect_err("the fault").code(), Some(code));
}

#[test]
fn a_kernel_that_uses_peer_memory_without_access_is_fatal() {
    in_child!();
    start(Profile::h200().with_devices(2));
    let first = crate::context();
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    let (here, there) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let plain = DeviceBuffer::<f32>::zeroed_sync(&there, 4).expect("memory");
    let reader = plain.share().expect("an event").on_peer(&here).expect("a reader");
    let add = two_devices::add(&first);
    let mut sum = DeviceBuffer::<f32>::zeroed(&here, 4).expect("memory");
    // SAFETY: the contract is violated on purpose: no access is enabled, which the driver must
    // detect.
    let source = unsafe { reader.as_slice() };
    let config = LaunchConfig::linear(1, 4);
    // SAFETY: the kernel adds 4 elements, and the buffers have 4; otherwise as above.
    unsafe { add.launch(&here, config, (source, source, &mut sum, 4)) }.expect("a launch");
    let error = here.synchronize().expect_err("no access");
    assert!(error.is_fatal(), "{error}");
    let misuses = cuda_sim::misuses();
    assert!(misuses[0].contains("memory of device 1"), "{misuses:?}");
}

#[test]
fn work_with_one_seed_is_reproducible() {
    /// Returns the order in which two unordered streams write to one address.
    fn order(seed: u64) -> Vec<u8> {
        let seed = seed.to_string();
        let marker = std::env::temp_dir().join(format!("cuda-sim-{}-{seed}", std::process::id()));
        common::child::in_child(
            &[("ORDER_SEED", &seed), ("ORDER_FILE", &marker.to_string_lossy())],
            || {
                let seed = std::env::var("ORDER_SEED").expect("set by the parent");
                start(Profile::h200().with_seed(seed.parse().expect("a number")));
                let context = crate::context();
                let streams: Vec<_> = (0..4).map(|_| context.stream().expect("a stream")).collect();
                let mut buffer = DeviceBuffer::<u8>::zeroed(&streams[0], 1).expect("memory");
                streams[0].synchronize().expect("a wait");
                let mut seen = Vec::new();
                for round in 0..8u8 {
                    for (number, stream) in (0u8..).zip(&streams) {
                        let (at, value) = (buffer.as_raw(), 4 * round + number);
                        // SAFETY: the byte is valid memory, and the race is the subject of the
                        // test.
                        let code = unsafe { cuMemsetD8Async(at, value, 1, stream.as_raw()) };
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
        // This process is the child.
        return;
    }
    assert_eq!(order(1), first, "the same seed");
    assert!((2..6).any(|seed| order(seed) != first), "other seeds, other orders");
}

#[test]
fn atomic_reductions_are_an_attribute_since_13_1() {
    let (_end, context) = in_child!(on("h200@13.1".parse().expect("a profile")));
    context
        .device()
        .attribute(cuda_safe::device::attribute::ATOMIC_REDUCTION_SUPPORTED)
        .expect("known");
}
