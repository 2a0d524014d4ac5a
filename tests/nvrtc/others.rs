//! The equivalents of other code for compilation at run time: the module `nvrtc` of cudarc, and a port of
//! cubecl.

use crate::{libraries, or_skip};
use cuda_nvrtc::{CompileOptions, Error, Program, Target, supported_architectures};

const SOURCE: &str = "extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }";

/// `compile_ptx`.
#[test]
fn one_line_compiles_to_ptx_as_in_cudarc() {
    or_skip!(libraries::nvrtc());
    let compiled = Program::new(SOURCE).compile(&CompileOptions::default());
    let compiled = compiled.expect("a correct program");
    assert!(compiled.ptx().expect("PTX").contains(".entry twice("));
}

/// `compile_ptx_with_opts`: `ftz`, `prec_sqrt`, `prec_div`, `fmad`, `options`, `use_fast_math`, `maxrregcount`,
/// `include_paths`, `arch` and `name` of `CompileOptions`.
#[test]
fn the_options_of_cudarc_are_available() {
    or_skip!(libraries::nvrtc());
    let newest = supported_architectures().expect("NVRTC").pop();
    let options = CompileOptions {
        target: newest.map(Target::Ptx),
        include_paths: vec!["/nowhere".into()],
        fast_math: true,
        max_registers: Some(64),
        extra: ["--ftz=true", "--prec-sqrt=false", "--prec-div=false", "--fmad=false"]
            .map(str::to_owned)
            .to_vec(),
        ..Default::default()
    };
    let compiled = Program::new(SOURCE).with_name("twice.cu").compile(&options);
    assert!(compiled.expect("a correct program").ptx().is_some());
}

/// `CompileError::CompileError { log, .. }`, where the log is a C string.
#[test]
fn an_error_has_its_log_as_in_cudarc() {
    or_skip!(libraries::nvrtc());
    match Program::new("wrong").compile(&CompileOptions::default()) {
        Err(Error::Compile(error)) => assert!(error.log.contains("error"), "{error}"),
        other => panic!("expected an error of the compiler, got {other:?}"),
    }
}

/// A port of cubecl declared nine functions: `nvrtcCreateProgram`, `nvrtcCompileProgram`, `nvrtcDestroyProgram`, and
/// those that return the sizes and the contents of the log, the PTX and the cubin.
#[test]
fn what_cubecl_does_with_nine_functions_is_one_call() {
    or_skip!(libraries::nvrtc());
    let newest = *supported_architectures().expect("NVRTC").last().expect("one");
    let options = CompileOptions {
        target: Some(Target::Cubin(newest)),
        include_paths: vec!["/usr/local/cuda/include".into()],
        extra: vec!["-lineinfo".into()],
        ..Default::default()
    };
    let compiled = Program::new(SOURCE).compile(&options).expect("a correct program");
    assert!(compiled.ptx().is_some() && compiled.cubin().is_some());
}
