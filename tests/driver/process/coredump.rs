//! Core dumps of the device: settings, and a fault while dumps are on. Each test has its own process,
//! since the settings are those of the process.

use crate::common::{self, child};
use crate::module::kernels::launch_fault;
use cuda_safe::process::coredump::{CoredumpSettings, DumpFlags};
use cuda_safe::{Context, ContextFlags, Device, Error, Invalid};
use std::time::{Duration, Instant};

#[test]
fn settings_apply_until_the_guard_is_dropped() {
    child::with_gpu(|_| {
        or_skip!(common::since(12, 5));
        let before = CoredumpSettings::of_process().expect("known");
        assert_eq!(before.on_exception, Some(false));
        assert_eq!(before.user_trigger, Some(false));
        let settings = CoredumpSettings {
            on_exception: Some(true),
            file: Some("/tmp/cuda-tests.core".into()),
            pipe: Some("/tmp/cuda-tests.pipe".into()),
            flags: Some(DumpFlags::LIGHTWEIGHT | DumpFlags::SKIP_ABORT),
            ..Default::default()
        };
        let guard = settings.apply().expect("no context exists yet");
        let during = CoredumpSettings::of_process().expect("known");
        let expected = CoredumpSettings { user_trigger: Some(false), ..settings };
        assert_eq!(during, expected);
        guard.end().expect("restored");
        assert_eq!(CoredumpSettings::of_process().expect("known"), before);
    });
}

#[test]
fn settings_can_be_kept() {
    child::with_gpu(|_| {
        or_skip!(common::since(12, 1));
        let settings =
            CoredumpSettings { file: Some("/tmp/cuda-tests.core".into()), ..Default::default() };
        settings.apply().expect("set").keep();
        let after = CoredumpSettings::of_process().expect("known");
        assert_eq!(after.file, settings.file);
    });
}

#[test]
fn a_context_has_its_own_settings() {
    child::with_gpu(|_| {
        or_skip!(common::since(12, 1));
        let device = Device::get(0).expect("a device");
        let context = Context::new(&device, ContextFlags::empty()).expect("a context");
        let before = context.coredump_settings().expect("known");
        assert_eq!((before.user_trigger, &before.pipe), (None, &None));
        let settings =
            CoredumpSettings { file: Some("/tmp/cuda-tests.core".into()), ..Default::default() };
        let guard = context.apply_coredump_settings(&settings).expect("set");
        let during = context.coredump_settings().expect("known");
        assert_eq!(during.file, settings.file);
        let global = CoredumpSettings::of_process().expect("known");
        assert_ne!(global.file, settings.file);
        drop(guard);
        assert_eq!(context.coredump_settings().expect("known"), before);
    });
}

mod provoked {
    use super::*;

    #[test]
    fn paths_and_settings_that_cannot_be_set_are_refused() {
        child::with_context_since(12, 1, |context| {
            let file = |path: &str| CoredumpSettings {
                on_exception: Some(true),
                file: Some(path.into()),
                ..Default::default()
            };
            let long = file(&"x".repeat(2000)).apply().expect_err("too long");
            let (length, max) = (2000, 1023);
            assert_eq!(long, Error::from(Invalid::PathLength { length, max }));
            let torn = file("a\0b").apply().expect_err("a NUL");
            assert_eq!(torn, Error::from(Invalid::NulInText { position: 1 }));
            let settings = CoredumpSettings { user_trigger: Some(true), ..Default::default() };
            let error = context.apply_coredump_settings(&settings);
            let setting = "user_trigger";
            let expected = Error::from(Invalid::CoredumpOfProcess { setting });
            assert_eq!(error.expect_err("of the process"), expected);
            let after = CoredumpSettings::of_process().expect("known");
            assert_eq!(after.on_exception, Some(false), "nothing was changed");
        });
    }

    #[test]
    fn the_pipe_is_fixed_while_the_trigger_is_on() {
        child::with_gpu(|_| {
            or_skip!(common::since(12, 1));
            let settings = CoredumpSettings { user_trigger: Some(true), ..Default::default() };
            settings.apply().expect("set").keep();
            let settings = CoredumpSettings {
                file: Some("/tmp/cuda-tests.core".into()),
                pipe: Some("/tmp/cuda-tests.pipe".into()),
                ..Default::default()
            };
            let before = CoredumpSettings::of_process().expect("known");
            let error = settings.apply().expect_err("the trigger is on");
            let code = cuda_safe::CUresult::CUDA_ERROR_NOT_SUPPORTED;
            assert_eq!(error.code(), Some(code));
            let after = CoredumpSettings::of_process().expect("known");
            assert_eq!(after, before, "the file is restored");
        });
    }

    #[test]
    fn a_fault_leaves_a_dump_and_then_fails_calls() {
        child::with_gpu(|_| {
            or_skip!(common::since(12, 5));
            let path = common::scratch().join(format!("dump-{}", std::process::id()));
            let settings = CoredumpSettings {
                on_exception: Some(true),
                file: Some(path.clone()),
                flags: Some(DumpFlags::LIGHTWEIGHT | DumpFlags::SKIP_ABORT),
                ..Default::default()
            };
            settings.apply().expect("no context exists yet").keep();
            let (_context, stream) = or_skip!(common::context_and_stream());
            let _kernel = launch_fault(&stream).expect("a launch does not wait");
            // Driver 580 may return from the first wait with success, before the dump is complete.
            let begin = Instant::now();
            let error = loop {
                match stream.synchronize() {
                    Err(error) => break error,
                    Ok(()) => assert!(begin.elapsed() < Duration::from_secs(60), "no dump"),
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            assert!(error.is_fatal(), "{error}");
            let size = std::fs::metadata(&path).expect("a dump").len();
            let _ = std::fs::remove_file(path);
            assert_ne!(size, 0);
        });
    }
}
