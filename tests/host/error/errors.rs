//! `cuda_safe::Error`: its text, and its conversions between threads and types.

use crate::fakes::NOWHERE;
use cuda_safe::error::{CompileError, DriverError, Rejected};
use cuda_safe::error::{LaunchError, LaunchLimit, OutOfMemory};
use cuda_safe::{Error, Invalid};
use cuda_sys::{CUresult, CudaVersion, Function, InstallError, LoadError, MissingFunction};
use std::error::Error as AnyError;
use std::io;
use std::sync::Arc;

fn driver_error(code: CUresult) -> DriverError {
    DriverError::new(code, "cuStreamCreate")
}

fn load_error() -> LoadError {
    // SAFETY: the file does not exist, so no code runs and no handle is kept.
    match unsafe { cuda_sys::load_from(NOWHERE) } {
        Err(InstallError::Load(error)) => error,
        other => panic!("no test of this file has a driver: {other:?}"),
    }
}

fn missing() -> MissingFunction {
    MissingFunction {
        function: Function::find("cuGreenCtxCreate").expect("a symbol of the headers"),
        driver: Some(CudaVersion::new(12, 2)),
    }
}

fn launch_error() -> LaunchError {
    LaunchError {
        error: driver_error(CUresult::CUDA_ERROR_INVALID_VALUE),
        kernel: "scale".to_owned(),
        limit: LaunchLimit::DeviceThreads { block: [2, 3, 700], threads: 4200, max: 1024 },
    }
}

/// Returns every variant, each with words that its text must contain.
fn errors() -> Vec<(Error, &'static [&'static str])> {
    let out_of_memory = driver_error(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let compile = CompileError {
        error: driver_error(CUresult::CUDA_ERROR_INVALID_PTX),
        log: "line 7: unknown opcode".to_owned(),
    };
    let driver = CudaVersion::new(12, 2);
    vec![
        (
            Error::Driver(out_of_memory.clone()),
            &["cuStreamCreate", "CUDA_ERROR_OUT_OF_MEMORY (2)", "memory"],
        ),
        (
            Error::OutOfMemory(Box::new(OutOfMemory {
                error: out_of_memory,
                bytes: 35_184_372_088_832,
            })),
            &["CUDA_ERROR_OUT_OF_MEMORY (2)", "35184372088832 bytes"],
        ),
        (
            Error::Launch(Box::new(launch_error())),
            &[
                "cuStreamCreate",
                "CUDA_ERROR_INVALID_VALUE (1)",
                "kernel \"scale\"",
                "2 x 3 x 700",
                "4200",
                "1024",
            ],
        ),
        (Error::Load(load_error()), &["no CUDA driver", NOWHERE]),
        (Error::Missing(missing()), &["cuGreenCtxCreate", "12.4", "12.2"]),
        (Error::NoDevice, &["no GPU", "CUDA_VISIBLE_DEVICES"]),
        (Error::from(Invalid::NoGroups), &["at least one group"]),
        (
            Error::Compile(Box::new(compile)),
            &["CUDA_ERROR_INVALID_PTX", "\nline 7: unknown opcode"],
        ),
        (Error::PtxTooNew { ptx: Some((9, 1)), driver }, &["PTX 9.1", "CUDA 12.2"]),
        (Error::PtxTooNew { ptx: None, driver }, &["the PTX", "CUDA 12.2"]),
        (
            Error::HostFunctionPanicked("out of ideas".to_owned()),
            &["host function", "out of ideas"],
        ),
        (Error::InHostFunction, &["host function", "another thread"]),
        (Error::Forked, &["forked"]),
        (
            Error::Manager(Arc::new(io::Error::other("no slab left"))),
            &["memory manager", "no slab left"],
        ),
    ]
}

#[test]
fn debug_formats_the_text_and_its_alternate_form_the_fields() {
    for (error, _) in errors() {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_ne!(format!("{error:#?}"), error.to_string());
    }
    let error = Error::PtxTooNew { ptx: Some((9, 1)), driver: CudaVersion::new(13, 0) };
    let fields = format!("{error:#?}");
    for part in ["PtxTooNew {", "ptx: Some(", "9,", "driver: CudaVersion(13.0)"] {
        assert!(fields.contains(part), "{fields}");
    }
    let invalid = Invalid::DeviceOrdinal { ordinal: 5, count: 2 };
    let fields = format!("{:#?}", Error::from(invalid));
    for part in ["Invalid(", "DeviceOrdinal {", "ordinal: 5", "count: 2"] {
        assert!(fields.contains(part), "{fields}");
    }
}

#[test]
fn every_error_names_its_subject() {
    for (error, words) in errors() {
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{error:?} prints {text:?}");
        }
        assert!(!text.ends_with('.') && text.trim() == text, "{text:?}");
        assert_eq!(error.clone().to_string(), text);
    }
}

#[test]
fn errors_are_small_and_can_be_sent_and_shared() {
    fn anywhere<T: AnyError + Send + Sync + Clone + 'static>() -> usize {
        size_of::<T>()
    }
    // `Error` is part of the result of every call.
    let size = anywhere::<Error>();
    assert!(size <= 32, "{size} bytes");
    anywhere::<LoadError>();
    anywhere::<MissingFunction>();
    anywhere::<DriverError>();
    anywhere::<Invalid>();
}

#[test]
fn error_codes_are_those_of_the_driver() {
    for (error, _) in errors() {
        let expected = match &error {
            Error::Driver(error) => Some(error.code),
            Error::OutOfMemory(error) => Some(error.error.code),
            Error::Launch(error) => Some(error.error.code),
            Error::Compile(error) => Some(error.error.code),
            Error::NoDevice => Some(CUresult::CUDA_ERROR_NO_DEVICE),
            // No call was made, or the error contains more than the code of the call.
            _ => None,
        };
        assert_eq!(error.code(), expected, "{error:?}");
        if !matches!(error, Error::NoDevice) {
            let its = error.driver_error().map(|its| its.code);
            assert_eq!(its, expected, "{error:?}");
        }
        assert!(!error.is_fatal(), "{error:?}");
    }
}

#[test]
fn only_allocations_without_memory_have_requested_bytes() {
    let error = |call, code| Error::Driver(DriverError::new(code, call)).with_requested_bytes(7);
    let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    assert!(matches!(error("cuMemAlloc_v2", full), Error::OutOfMemory(its) if its.bytes == 7));
    // Another function ran out of another resource.
    assert!(matches!(error("cuStreamCreate", full), Error::Driver(_)));
    let other = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert!(matches!(error("cuMemAlloc_v2", other), Error::Driver(_)));
}

#[test]
fn fatal_codes_say_that_earlier_work_may_be_at_fault() {
    for code in (0..=2000).step_by(if cfg!(miri) { 100 } else { 1 }).map(CUresult) {
        let error = driver_error(code);
        let text = error.to_string();
        let fatal = Error::Driver(error).is_fatal();
        assert_eq!(fatal, text.contains("earlier work"), "{text}");
    }
    let fatal = |code| Error::Driver(driver_error(code)).is_fatal();
    assert!(fatal(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    assert!(fatal(CUresult::CUDA_ERROR_LAUNCH_FAILED));
    assert!(!fatal(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert!(!fatal(CUresult::CUDA_ERROR_INVALID_CONTEXT));
}

#[test]
fn errors_are_equal_if_their_variants_and_values_are() {
    let (these, those) = (errors(), errors());
    for (i, (this, _)) in these.iter().enumerate() {
        for (j, (that, _)) in those.iter().enumerate() {
            let shares_an_object = !matches!(this, Error::Manager(_));
            assert_eq!(this == that, i == j && shares_an_object, "{this:?}, {that:?}");
        }
        assert_eq!(*this, this.clone());
    }
    let panicked = |message: &str| Error::HostFunctionPanicked(message.to_owned());
    assert_ne!(panicked("one"), panicked("two"));
    let [first, second] = [CUresult(1), CUresult(2)].map(|code| Error::Driver(driver_error(code)));
    assert_ne!(first, second);
}

#[test]
fn a_rejection_returns_the_value_or_becomes_the_error() {
    fn reject() -> Result<(), Rejected<String>> {
        Err(Rejected { error: Invalid::NoGroups.into(), value: "the value".to_owned() })
    }
    fn as_error() -> cuda_safe::Result<()> {
        Ok(reject()?)
    }
    fn as_any() -> Result<(), Box<dyn AnyError + Send + Sync>> {
        Ok(reject()?)
    }
    let rejected = reject().expect_err("it is rejected");
    assert_eq!(rejected.to_string(), Invalid::NoGroups.to_string());
    assert_eq!(rejected.value, "the value");
    let error = as_error().expect_err("it is rejected");
    assert!(matches!(error, Error::Invalid(what) if *what == Invalid::NoGroups));
    let any = as_any().expect_err("it is rejected");
    assert_eq!(any.to_string(), Invalid::NoGroups.to_string());
}

#[test]
fn a_chain_of_sources_repeats_no_text() {
    for (error, _) in errors() {
        let mut said = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            let text = source.to_string();
            assert!(!said.contains(&text), "{said:?}, followed by {text:?}");
            said.push_str(&text);
            next = source.source();
        }
    }
}
