//! Attributes and settings of kernels, and when their code is loaded.

use crate::common;
use crate::module::kernels::{SHARED, kernel, nothing, vector};
use cuda_safe::context::CachePreference;
use cuda_safe::device::attribute;
use cuda_safe::module::attribute::Carveout;
use cuda_safe::module::{LoadingMode, attribute as of};
use cuda_safe::{CUresult, DeviceBuffer, Error, LaunchConfig, Module};

#[test]
fn a_kernel_reports_its_compiled_attributes() {
    let context = or_skip!(common::context());
    let bounded = kernel::<(&mut [u32],)>(&context, SHARED, "bounded");
    let bounded = bounded.kernel();
    let (major, minor) = context.device().compute_capability().expect("known");
    let ask = |which| bounded.attribute(which).expect("every driver knows the attribute");
    assert_eq!(ask(of::MAX_THREADS_PER_BLOCK), 64);
    assert_eq!(ask(of::STATIC_SHARED_BYTES), 1024);
    assert_eq!(ask(of::CONST_BYTES), 0);
    assert_eq!(ask(of::LOCAL_BYTES), 0);
    assert_eq!(ask(of::BINARY_VERSION), major * 10 + minor);
    assert!(ask(of::PTX_VERSION) >= 52);
    let caches = bounded.attribute(of::CACHE_MODE_CA);
    assert!(!caches.expect("every driver knows the attribute"));
    let registers = ask(of::REGISTERS);
    assert!(common::is_software() || registers > 0, "{registers}");
}

#[test]
fn cluster_attributes_are_none_for_a_kernel_without_clusters() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let ask = |which| nothing.kernel().attribute(which).expect("since 11.8");
    assert_eq!(ask(of::REQUIRED_CLUSTER_WIDTH), 0);
    assert_eq!(ask(of::REQUIRED_CLUSTER_HEIGHT), 0);
    assert_eq!(ask(of::REQUIRED_CLUSTER_DEPTH), 0);
    let kernel = nothing.kernel();
    let must = kernel.attribute(of::CLUSTER_SIZE_MUST_BE_SET);
    assert!(!must.expect("since 11.8"));
    let allowed = || kernel.attribute(of::NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    assert!(!allowed().expect("since 11.8"));
    let policy = kernel.attribute(of::CLUSTER_SCHEDULING_POLICY);
    assert_eq!(policy.expect("since 11.8").0, 0);
    if context.device().attribute(attribute::CLUSTER_LAUNCH).unwrap_or(false) {
        let set = kernel.set_attribute(of::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, true);
        set.expect("clusters may be larger");
        assert!(allowed().expect("since 11.8"));
    }
}

#[test]
fn the_error_for_a_newer_attribute_names_the_needed_version() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let mode = nothing.kernel().attribute(of::SHARED_MEMORY_MODE);
    if common::offers(13, 4) {
        mode.expect("the driver knows the attribute");
        return;
    }
    let text = mode.expect_err("newer").to_string();
    for part in ["SHARED_MEMORY_MODE", "13.4"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn settings_apply_to_all_clones_and_their_launches() {
    let context = or_skip!(common::context());
    let device = context.device();
    let opt_in = device.attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    let opt_in = opt_in.expect("every driver knows the attribute");
    let kernel = kernel::<(&mut [u32], u32)>(&context, SHARED, "through_shared");
    let clone = kernel.clone();
    let most = || clone.kernel().attribute(of::MAX_DYNAMIC_SHARED_BYTES);
    assert_eq!(most().expect("known"), 48 * 1024);
    let stream = context.stream().expect("a stream");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    for bytes in [48 * 1024, opt_in] {
        let set = kernel.kernel().set_attribute(of::MAX_DYNAMIC_SHARED_BYTES, bytes);
        set.expect("the device has that much");
        assert_eq!(most().expect("known"), bytes);
        let config = LaunchConfig::linear(1, 1).with_shared_bytes(bytes);
        // SAFETY: the kernel writes one element and the last word of its `bytes` of shared memory.
        unsafe { clone.launch(&stream, config, (&mut out, bytes)) }.expect("a launch");
        assert_eq!(out.to_vec().expect("a copy"), [bytes]);
    }
}

#[test]
fn preferences_are_set_for_a_kernel() {
    let context = or_skip!(common::context());
    let module = vector(&context);
    let add = module.kernel("add").expect("found");
    let carveout = || add.attribute(of::CARVEOUT).expect("known");
    assert_eq!(carveout(), Carveout::Default);
    for wanted in [Carveout::Percent(50), Carveout::Default] {
        add.set_attribute(of::CARVEOUT, wanted).expect("a hint");
        assert_eq!(carveout(), wanted);
    }
    for preference in [CachePreference::L1, CachePreference::None] {
        add.set_cache_preference(preference).expect("a preference");
    }
}

#[test]
fn a_kernel_is_loaded_on_request() {
    let context = or_skip!(common::context());
    let mode = Module::loading_mode().expect("a driver of 11.7 or later");
    assert!(matches!(mode, LoadingMode::Eager | LoadingMode::Lazy));
    let nothing = nothing(&context);
    if !common::offers(12, 4) {
        assert!(matches!(nothing.kernel().load(), Err(Error::Missing(_))));
        return;
    }
    nothing.kernel().load().expect("there is memory for it");
    assert!(nothing.kernel().is_loaded().expect("known"));
}

mod provoked {
    use super::*;

    #[test]
    fn more_shared_memory_than_the_device_has_is_refused() {
        let context = or_skip!(common::context());
        let nothing = nothing(&context);
        let opt_in = context.device().attribute(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        let opt_in = opt_in.expect("known");
        for bytes in [opt_in + 1, u32::MAX] {
            let set = nothing.kernel().set_attribute(of::MAX_DYNAMIC_SHARED_BYTES, bytes);
            let code = set.expect_err("too much").code();
            assert_eq!(code, Some(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        let stream = context.stream().expect("a stream");
        let config = LaunchConfig::linear(1, 1).with_shared_bytes(48 * 1024 + 4);
        // SAFETY: the kernel does nothing.
        let launched = unsafe { nothing.launch(&stream, config, ()) };
        let code = launched.expect_err("the kernel is not set to that much").code();
        assert_eq!(code, Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn a_block_of_more_threads_than_the_kernel_allows_is_refused() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let bounded = kernel::<(&mut [u32],)>(&context, SHARED, "bounded");
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
        for (threads, fits) in [(64, true), (65, false)] {
            let config = LaunchConfig::linear(1, threads);
            // SAFETY: the kernel writes one element.
            let launched = unsafe { bounded.launch(&stream, config, (&mut out,)) };
            assert_eq!(launched.is_ok(), fits, "{threads}: {launched:?}");
        }
        assert_eq!(out.to_vec().expect("a copy"), [7]);
    }
}
