//! Fatal errors, exits and forks, each in a child process.

mod provoked {
    use crate::common::{self, child};
    use crate::module::kernels::{Scale, launch_fault};
    use cuda_safe::{DeviceBuffer, Error};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn an_illegal_address_is_fatal_and_later_drops_do_not_panic() {
        child::with_stream(|context, stream| {
            let buffer = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");
            let scale = launch_fault(&stream).expect("a launch does not wait");
            let error = stream.synchronize().expect_err("an illegal address");
            assert!(error.is_fatal(), "{error}");
            assert!(error.to_string().contains("earlier work"), "{error}");

            let leaked = cuda_safe::leaked();
            let later = buffer.to_vec().expect_err("the process cannot use the GPU");
            assert!(later.is_fatal(), "{later}");
            drop((buffer, scale, stream, context));
            assert!(cuda_safe::leaked() > leaked, "the objects are leaked and counted");
        });
    }

    #[test]
    fn a_process_exits_with_the_error_that_main_returns() {
        or_skip!(common::gpu());
        child::exits(3, || {
            let work = || {
                let stream = common::context().expect("a context").stream()?;
                let _buffer = DeviceBuffer::from_slice(&stream, &[1; 10])?;
                let _kernel = launch_fault(&stream)?;
                stream.synchronize()
            };
            match work() {
                Err(error) if error.is_fatal() => 3,
                done => panic!("{done:?}"),
            }
        });
    }

    #[test]
    fn a_process_can_exit_while_its_threads_are_busy() {
        or_skip!(common::gpu());
        child::exits(5, || {
            let context = common::context().expect("a context");
            let scale = Arc::new(Scale::new(&context));
            let rounds = Arc::new(AtomicUsize::new(0));
            for _ in 0..6 {
                let (context, scale, rounds) = (context.clone(), scale.clone(), rounds.clone());
                std::thread::spawn(move || {
                    loop {
                        // All calls fail once the process is exiting, which ends this thread.
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
        child::with_stream(|context, stream| {
            let buffer = DeviceBuffer::from_slice(&stream, &[1; 10]).expect("a copy");
            let scale = Scale::new(&context);
            // Only the child drops the objects. The parent keeps using them.
            let mut all = Some((context, stream, buffer, scale));
            let clean = common::fork::in_fork(|| {
                let Some((context, stream, buffer, scale)) = all.take() else {
                    return false;
                };
                let waits = [stream.synchronize(), context.synchronize()];
                let refused = waits.iter().all(|wait| matches!(wait, Err(Error::Forked)))
                    && matches!(stream.is_complete(), Err(Error::Forked))
                    && matches!(cuda_safe::init(), Err(Error::Forked))
                    && buffer.to_vec().is_err();
                drop((buffer, scale, stream, context));
                refused
            });
            assert!(clean, "the forked child exited cleanly");
            let (_context, stream, mut buffer, scale) = all.expect("the child has a copy");
            scale.run(&stream, &mut buffer, 2, 0).expect("the parent continues");
            assert_eq!(buffer.to_vec().expect("a copy"), [2; 10]);
        });
    }
}
