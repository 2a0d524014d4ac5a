//! Linking of several inputs into one image, and options of the compiler.

use crate::common::{self, invalid};
use crate::green::refusal;
use crate::module::kernels::{APPLY, TWICE, VECTOR, kernel_of};
use cuda_safe::module::{JitOptions, Library, LinkInput, Linked, Linker};
use cuda_safe::sys::{CUjit_fallback, CUjit_target};
use cuda_safe::{
    CUresult, Context, DeviceBuffer, Error, Invalid, LaunchConfig, Module, TypedKernel,
};

/// Returns a linker that has the kernel `apply`, which needs the function `twice`.
#[track_caller]
fn with_apply(context: &Context, options: &JitOptions) -> Linker {
    let mut linker = Linker::with(context, options).expect("a linker");
    linker.add_ptx("apply", APPLY).expect("PTX");
    linker
}

/// Returns an image of the kernel and the function.
#[track_caller]
fn linked(context: &Context, options: &JitOptions) -> Linked {
    let mut linker = with_apply(context, options);
    linker.add_ptx("twice", TWICE).expect("PTX");
    linker.complete().expect("a complete program")
}

/// Returns the log of an error of the compiler.
#[track_caller]
fn log<T>(result: Result<T, Error>) -> String {
    match result.map(drop) {
        Err(Error::Compile(error)) => error.log,
        done => panic!("{done:?}"),
    }
}

type Apply = TypedKernel<(&'static mut [u32],)>;

#[track_caller]
fn doubles(context: &Context, apply: &Apply) {
    let stream = context.stream().expect("a stream");
    let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4]).expect("a copy");
    // SAFETY: the kernel has a thread for each of the 4 elements.
    unsafe { apply.launch(&stream, LaunchConfig::linear(1, 4), (&mut x,)) }.expect("a launch");
    assert_eq!(x.to_vec().expect("a copy"), [2, 4, 6, 8]);
}

#[test]
fn a_kernel_and_its_function_are_linked() {
    let context = or_skip!(common::context());
    let options = JitOptions { info_log: true, verbose: true, ..Default::default() };
    let linked = linked(&context, &options);
    assert!(linked.bytes().starts_with(b"\x7fELF"));
    let module = Module::from_linked(&context, &linked).expect("an image that the driver created");
    doubles(&context, &kernel_of(&module, "apply"));
    if !common::offers(12, 0) {
        return;
    }
    let library = Library::from_linked(&linked).expect("an image that the driver created");
    let apply = library.kernel(&context, "apply").expect("found");
    doubles(&context, &apply.typed().expect("its parameters"));
}

#[test]
fn an_image_can_be_loaded_with_options() {
    let context = or_skip!(common::context());
    let image = linked(&context, &JitOptions::default()).bytes().to_vec();
    // The image needs no compilation, so the logs stay empty.
    let options = JitOptions { info_log: true, ..Default::default() };
    let too_hard = JitOptions { optimization_level: Some(5), ..Default::default() };
    // SAFETY: the driver created the image. (The other images are refused before the driver reads
    // them.)
    let load = |image: &[u8], options| unsafe { Module::from_image_with(&context, image, options) };
    doubles(&context, &kernel_of(&load(&image, &options).expect("a complete image"), "apply"));
    let refused = load(&image, &too_hard).expect_err("an invalid level");
    assert!(matches!(refusal(refused), Invalid::JitOption { .. }));
    let refused = load(b"abcd", &options).expect_err("no image");
    assert!(matches!(refusal(refused), Invalid::NotAnImage { .. }));

    or_skip!(common::since(12, 0));
    // SAFETY: as above.
    let load = |image: &[u8], options| unsafe { Library::from_image_with(image, options) };
    let library = load(&image, &options).expect("a complete image");
    let apply = library.kernel(&context, "apply").expect("found");
    doubles(&context, &apply.typed().expect("its parameters"));
    let cut = &image[..image.len() / 2];
    let refused = load(cut, &options).expect_err("half of the image");
    assert!(matches!(refusal(refused), Invalid::TruncatedImage { .. }));
}

#[test]
fn a_file_can_be_linked() {
    let context = or_skip!(common::context());
    let path = std::env::temp_dir().join(format!("twice-{}.ptx", std::process::id()));
    std::fs::write(&path, TWICE).expect("a file");
    let mut linker = with_apply(&context, &JitOptions::default());
    // SAFETY: the file contains PTX.
    let added = unsafe { linker.add_file(LinkInput::Ptx, &path) };
    std::fs::remove_file(&path).expect("the file");
    added.expect("the file is PTX");
    let linked = linker.complete().expect("a complete program");
    let module = Module::from_linked(&context, &linked).expect("an image that the driver created");
    doubles(&context, &kernel_of(&module, "apply"));
}

#[test]
fn a_linker_can_move_to_another_thread_and_be_dropped_at_any_time() {
    let context = or_skip!(common::context());
    let mut linker = with_apply(&context, &JitOptions::default());
    let dropped = Linker::new(&context).expect("a linker");
    drop(context);
    let linked = std::thread::spawn(move || {
        drop(dropped);
        linker.add_ptx("twice", TWICE)?;
        linker.complete()
    });
    let linked = linked.join().expect("no panic").expect("a complete program");
    assert!(!linked.bytes().is_empty());
}

#[test]
fn invalid_code_is_refused_before_the_driver_reads_it() {
    let context = or_skip!(common::context());
    let mut linker = Linker::new(&context).expect("a linker");
    assert_eq!(invalid(linker.add_ptx("none", "")), Invalid::EmptyImage);
    assert_eq!(invalid(linker.add_ptx("C", "int x;")), Invalid::NotPtx);
    assert_eq!(invalid(linker.add_ptx("a\0", TWICE)), Invalid::NulInText { position: 1 });
    // SAFETY: all of these calls are refused and access nothing.
    let mut add = |kind, data: &[u8]| invalid(unsafe { linker.add_data(kind, "data", data) });
    assert_eq!(add(LinkInput::Cubin, b""), Invalid::EmptyImage);
    assert_eq!(add(LinkInput::Object, b""), Invalid::EmptyImage);
    assert_eq!(add(LinkInput::Ptx, b"\xff"), Invalid::NotPtx);
    let cut = add(LinkInput::Fatbin, b"\x50\xed\x55\xba");
    assert!(matches!(cut, Invalid::TruncatedImage { .. }), "{cut}");
}

#[test]
fn compiler_options_are_accepted() {
    let context = or_skip!(common::context());
    let (major, minor) = context.device().compute_capability().expect("known");
    let options = JitOptions {
        max_registers: Some(32),
        optimization_level: Some(2),
        target: Some(CUjit_target(major * 10 + minor)),
        fallback: Some(CUjit_fallback::CU_PREFER_PTX),
        line_info: true,
        info_log: true,
        verbose: true,
        position_independent: common::offers(12, 0),
        min_blocks_per_sm: common::offers(12, 3).then_some(2),
        max_threads_per_block: common::offers(12, 4).then_some(256),
        split_compile: common::offers(13, 0).then_some(1),
        ..Default::default()
    };
    let module = Module::from_ptx_with(&context, VECTOR, &options).expect("it compiles");
    assert_eq!(module.kernel("add").expect("found").name(), "add");
    let plain = Module::from_ptx(&context, VECTOR).expect("it compiles");
    assert_eq!(plain.log(), "");
    if common::offers(12, 0) {
        let library = Library::from_ptx_with(VECTOR, &options).expect("PTX");
        library.kernel(&context, "add").expect("it compiles");
    }
}

#[test]
fn invalid_option_values_are_refused() {
    let context = or_skip!(common::context());
    let target = Some(CUjit_target::CU_TARGET_COMPUTE_52);
    let cases = [
        ("optimization_level", JitOptions { optimization_level: Some(5), ..Default::default() }),
        ("max_registers", JitOptions { max_registers: Some(0), ..Default::default() }),
        ("target", JitOptions { threads_per_block: Some(64), target, ..Default::default() }),
    ];
    for (name, options) in cases {
        for error in [
            Module::from_ptx_with(&context, VECTOR, &options).expect_err("refused"),
            Library::from_ptx_with(VECTOR, &options).expect_err("refused"),
            Linker::with(&context, &options).expect_err("refused"),
        ] {
            let why = refusal(error);
            assert!(matches!(why, Invalid::JitOption { option, .. } if option == name), "{why}");
        }
    }
}

#[test]
fn an_option_newer_than_the_driver_is_refused() {
    let context = or_skip!(common::context());
    if common::offers(13, 1) {
        return common::skip("the driver has all options");
    }
    let options = JitOptions { loader_threads: Some(2), ..Default::default() };
    let error = Module::from_ptx_with(&context, VECTOR, &options).expect_err("newer");
    let text = error.to_string();
    for part in ["loader_threads", "13.1"] {
        assert!(text.contains(part), "{text}");
    }
}

mod provoked {
    use super::*;

    #[test]
    fn an_undefined_function_is_named_in_the_log() {
        let context = or_skip!(common::context());
        let linked = with_apply(&context, &JitOptions::default()).complete();
        // Without the function it cannot be loaded as a module either.
        for log in [log(linked), log(Module::from_ptx(&context, APPLY))] {
            assert!(log.contains("twice"), "{log}");
        }
    }

    #[test]
    fn a_compiler_error_includes_the_log() {
        let context = or_skip!(common::context());
        let mut linker = Linker::new(&context).expect("a linker");
        let wrong = TWICE.replace("%r1, %r1", "%r1, %nonsense");
        let log = log(linker.add_ptx("twice", &wrong));
        assert!(log.contains("nonsense"), "{log}");
        let newer = TWICE.replace(".version 6.0", ".version 99.7");
        let mut linker = Linker::new(&context).expect("a linker");
        let error = linker.add_ptx("newer", &newer).expect_err("far newer");
        let ptx = Some((99, 7));
        assert!(matches!(error, Error::PtxTooNew { ptx: its, .. } if its == ptx));
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let context = or_skip!(common::context());
        let mut linker = Linker::new(&context).expect("a linker");
        // SAFETY: the file does not exist.
        let added = unsafe { linker.add_file(LinkInput::Cubin, "/nonexistent/code.cubin") };
        assert_eq!(added.expect_err("missing").code(), Some(CUresult::CUDA_ERROR_FILE_NOT_FOUND));
    }
}
