//! Rejected launches: the error says which limit of the device or the kernel the launch exceeds.

mod provoked {
    use crate::common;
    use crate::module::kernels::{HOPPER, SHARED, kernel, nothing};
    use cuda_safe::device::attribute;
    use cuda_safe::error::{LaunchError, LaunchLimit};
    use cuda_safe::launch::LaunchAttributes;
    use cuda_safe::module::attribute as kernel_attribute;
    use cuda_safe::{CUresult, Context, DeviceBuffer, Error, LaunchConfig};
    use cuda_safe::{Stream, TypedKernel};

    fn limit(launched: cuda_safe::Result<()>) -> LaunchLimit {
        match launched {
            Err(Error::Launch(error)) => {
                let text = Error::Launch(error.clone()).to_string();
                let LaunchError { error, kernel, limit } = *error;
                // The text says everything.
                assert!(text.starts_with(&error.to_string()), "{text}");
                assert!(text.contains(&format!("kernel \"{kernel}\": {limit}")));
                limit
            }
            other => panic!("{other:?}"),
        }
    }

    fn refused(
        kernel: &TypedKernel<()>,
        stream: &Stream,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> LaunchLimit {
        // SAFETY: the kernel does nothing.
        let plain = unsafe { kernel.launch_with(stream, config, attributes, ()) };
        let found = limit(plain);
        // The same launch without attributes fails in the same way.
        if !attributes.cooperative && attributes.cluster.is_none() {
            // SAFETY: as above.
            assert_eq!(limit(unsafe { kernel.launch(stream, config, ()) }), found);
        }
        stream.synchronize().expect("nothing is broken");
        found
    }

    fn start() -> Option<(Context, Stream, TypedKernel<()>)> {
        let (context, stream) = common::context_and_stream()?;
        let nothing = nothing(&context);
        Some((context, stream, nothing))
    }

    #[test]
    fn shapes_beyond_the_device_name_the_dimension() {
        let (context, stream, nothing) = or_skip!(start());
        let none = LaunchAttributes::default();
        let refused = |grid, block| {
            let config = LaunchConfig::new(grid, block);
            refused(&nothing, &stream, config, &none)
        };
        let max = |limit| context.device().attribute(limit).expect("known");
        let (block, max_threads) = ([2048, 1, 1], max(attribute::MAX_THREADS_PER_BLOCK));
        let limit = LaunchLimit::DeviceThreads { block, threads: 2048, max: max_threads };
        assert_eq!(refused([1; 3], block), limit);
        let max_z = max(attribute::MAX_BLOCK_DIM_Z);
        let limit = LaunchLimit::BlockDimension { axis: 'z', given: 128, max: max_z };
        assert_eq!(refused([1; 3], [1, 1, 128]), limit);
        let max_y = max(attribute::MAX_GRID_DIM_Y);
        let limit = LaunchLimit::GridDimension { axis: 'y', given: 70_000, max: max_y };
        assert_eq!(refused([1, 70_000, 1], [1; 3]), limit);
    }

    #[test]
    fn dynamic_shared_memory_beyond_the_kernel_says_how_to_raise_the_limit() {
        let (context, stream, nothing) = or_skip!(start());
        let none = LaunchAttributes::default();
        let opt_in = attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let settable = context.device().attribute(opt_in).expect("known");
        let config = LaunchConfig::linear(1, 32);
        for given in [64 * 1024, settable + 1] {
            let found = refused(&nothing, &stream, config.with_shared_bytes(given), &none);
            assert_eq!(found, LaunchLimit::DynamicSharedMemory { given, max: 48 * 1024, settable });
            let way_out = found.to_string().contains("MAX_DYNAMIC_SHARED_BYTES");
            assert_eq!(way_out, given <= settable, "{found}");
        }
        let most = kernel_attribute::MAX_DYNAMIC_SHARED_BYTES;
        nothing.kernel().set_attribute(most, settable).expect("the device has as much");
        // SAFETY: the kernel does nothing.
        unsafe { nothing.launch(&stream, config.with_shared_bytes(settable), ()) }
            .expect("now it may");
    }

    #[test]
    fn more_threads_than_the_kernel_supports_name_its_limit() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let bounded = kernel::<(&mut [u32],)>(&context, SHARED, "bounded");
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
        // SAFETY: nothing is launched.
        let found = unsafe { bounded.launch(&stream, LaunchConfig::linear(1, 65), (&mut out,)) };
        let registers = bounded.kernel().attribute(kernel_attribute::REGISTERS).expect("known");
        assert_eq!(limit(found), LaunchLimit::KernelThreads { threads: 65, max: 64, registers });
    }

    #[test]
    fn clusters_that_break_a_rule_name_it() {
        let (context, stream, nothing) = or_skip!(start());
        let has_clusters = context.device().attribute(attribute::CLUSTER_LAUNCH);
        let attributes =
            |size| LaunchAttributes { cluster: Some([size, 1, 1]), ..Default::default() };
        let refused = |blocks, size| {
            let config = LaunchConfig::linear(blocks, 32);
            refused(&nothing, &stream, config, &attributes(size))
        };
        if !has_clusters.unwrap_or(false) {
            if common::since(11, 8).is_some() {
                let cluster = [2, 1, 1];
                assert_eq!(refused(8, 2), LaunchLimit::NoClusters { cluster });
            }
            return;
        }
        let cluster = [2, 1, 1];
        assert_eq!(refused(7, 2), LaunchLimit::ClusterDivision { grid: [7, 1, 1], cluster });
        assert_eq!(refused(32, 16), LaunchLimit::ClusterSize { blocks: 16, max: 8 });
        let ranks = kernel::<(&mut [u32],)>(&context, HOPPER, "cluster_ranks");
        for (attribute, extent) in [
            (kernel_attribute::REQUIRED_CLUSTER_WIDTH, 4),
            (kernel_attribute::REQUIRED_CLUSTER_HEIGHT, 1),
            (kernel_attribute::REQUIRED_CLUSTER_DEPTH, 1),
        ] {
            ranks.kernel().set_attribute(attribute, extent).expect("a size");
        }
        let mut out = DeviceBuffer::<u32>::zeroed(&stream, 8).expect("memory");
        let (config, two) = (LaunchConfig::linear(8, 32), attributes(2));
        // SAFETY: the kernel writes one element for each of its 8 blocks.
        let found = unsafe { ranks.launch_with(&stream, config, &two, (&mut out,)) };
        assert_eq!(limit(found), LaunchLimit::RequiredCluster { cluster, required: [4, 1, 1] });
    }

    #[test]
    fn a_cooperative_grid_that_does_not_fit_says_how_many_blocks_do() {
        let (context, stream, nothing) = or_skip!(start());
        let cooperative = LaunchAttributes { cooperative: true, ..Default::default() };
        let fit = nothing.kernel().max_active_blocks(1024, Default::default());
        let per_sm = fit.expect("an answer");
        let sms = context.device().attribute(attribute::MULTIPROCESSOR_COUNT);
        let sm_count = sms.expect("known");
        let most = per_sm * sm_count;
        let config = LaunchConfig::linear(most + 1, 1024);
        let (blocks, max) = (u128::from(most) + 1, u64::from(most));
        let limit = LaunchLimit::CooperativeBlocks { blocks, max, per_sm, sm_count };
        assert_eq!(refused(&nothing, &stream, config, &cooperative), limit);
        // SAFETY: the kernel does nothing.
        let launched = unsafe { nothing.launch_with(&stream, config, &cooperative, ()) };
        let code = launched.expect_err("refused").code();
        assert_eq!(code, Some(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE));
    }

    #[test]
    fn a_refused_launch_does_not_break_a_capture() {
        let (_context, stream, nothing) = or_skip!(start());
        let graph = stream.capture(cuda_safe::capture::CaptureMode::default(), |stream| {
            // SAFETY: nothing is launched.
            let refused = unsafe { nothing.launch(stream, LaunchConfig::linear(1, 2048), ()) };
            assert!(matches!(limit(refused), LaunchLimit::DeviceThreads { threads: 2048, .. }));
            Ok::<_, Error>(())
        });
        // Whether the refused launch broke the capture is the driver's decision; asking for the limits
        // has not changed it.
        if let Err(error) = graph {
            let broken = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            assert_eq!(error.code(), Some(broken));
        }
    }
}
