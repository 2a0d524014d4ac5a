//! Errors that end the process's use of the GPU, and forks: each in a process of its own.

mod provoked {
    use crate::common::{self, child};
    use crate::kernels::{Scale, vector};
    use crate::need;
    use cuda_safe::{DeviceBuffer, Error, LaunchConfig};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn an_illegal_address_is_fatal_and_drops_go_on_quietly() {
        need!(common::gpu());
        child::in_child(&[], || {
            let context = need!(common::context());
            let stream = context.stream().expect("a stream");
            let buffer = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");
            let scale = vector(&context).kernel("scale").expect("is in the module");
            let scale = scale.typed::<(u64, i32, i32, u32)>().expect("its sizes");
            // SAFETY: not kept, on purpose: the kernel writes to an address that is nobody's. The
            // device notices, and this process does not use it any more.
            unsafe { scale.launch(&stream, LaunchConfig::linear(1, 32), (64, 1, 1, 32)) }
                .expect("a launch does not wait");
            let error = stream.synchronize().expect_err("an illegal address");
            assert!(error.is_fatal(), "{error}");
            assert!(error.to_string().contains("earlier work"), "{error}");

            let leaked = cuda_safe::leaked();
            let later = buffer.to_vec().expect_err("the process cannot use the GPU");
            assert!(later.is_fatal(), "{later}");
            drop((buffer, scale, stream, context));
            assert!(
                cuda_safe::leaked() > leaked,
                "leaked, counted, and no crash"
            );
        });
    }

    #[test]
    fn a_process_whose_main_returns_the_error_ends_with_it() {
        need!(common::gpu());
        child::exits(3, || {
            let work = || {
                let stream = common::context().expect("a context").stream()?;
                let scale = vector(stream.context()).kernel("scale")?;
                let scale = scale.typed::<(u64, i32, i32, u32)>()?;
                let _buffer = DeviceBuffer::from_slice(&stream, &[1; 10])?;
                // SAFETY: as above.
                unsafe { scale.launch(&stream, LaunchConfig::linear(1, 32), (64, 1, 1, 32)) }?;
                stream.synchronize()
            };
            match work() {
                Err(error) if error.is_fatal() => 3,
                done => panic!("{done:?}"),
            }
        });
    }

    #[test]
    fn a_process_exits_while_its_threads_are_busy() {
        need!(common::gpu());
        child::exits(5, || {
            let context = common::context().expect("a context");
            let scale = Arc::new(Scale::new(&context));
            let rounds = Arc::new(AtomicUsize::new(0));
            for _ in 0..6 {
                let (context, scale, rounds) = (context.clone(), scale.clone(), rounds.clone());
                std::thread::spawn(move || {
                    loop {
                        // At the end of the process all calls fail, which ends this thread.
                        let Ok(stream) = context.stream() else { return };
                        let Ok(mut buffer) = DeviceBuffer::from_slice(&stream, &[1; 100]) else {
                            return;
                        };
                        let launched = scale.run(&stream, &mut buffer, 2, 1);
                        if launched.and_then(|()| buffer.to_vec()).is_err() {
                            return;
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while rounds.load(Ordering::Relaxed) < 100 {
                std::thread::yield_now();
            }
            5
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_forked_child_releases_nothing_and_waits_for_nothing() {
        need!(common::gpu());
        child::in_child(&[], || {
            let context = need!(common::context());
            let stream = context.stream().expect("a stream");
            let buffer = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");
            let scale = Scale::new(&context);
            // Dropped in the child alone: the parent goes on with them.
            let mut all = Some((context, stream, buffer, scale));
            let clean = common::fork::in_fork(|| {
                let Some((context, stream, buffer, scale)) = all.take() else {
                    return false;
                };
                let waits = [stream.synchronize(), context.synchronize()];
                let refused = waits.iter().all(|wait| matches!(wait, Err(Error::Forked)))
                    && matches!(stream.is_idle(), Err(Error::Forked))
                    && matches!(cuda_safe::init(), Err(Error::Forked))
                    && buffer.to_vec().is_err();
                drop((buffer, scale, stream, context));
                refused
            });
            assert!(clean, "the forked child ended cleanly");
            let (_context, stream, mut buffer, scale) = all.expect("the child has a copy");
            scale
                .run(&stream, &mut buffer, 2, 0)
                .expect("the parent goes on");
            assert_eq!(buffer.to_vec().expect("a copy"), [2; 10]);
        });
    }
}
