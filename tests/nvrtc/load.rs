//! Loading compiled code into a context of a GPU or of the software driver.

use crate::common::{self, child::in_child};
use crate::{libraries, or_skip};
use cuda_nvrtc::{
    Architecture, CompileOptions, Error, Invalid, Program, Target, supported_architectures, version,
};
use cuda_safe::sys::CUresult;
use cuda_safe::{Context, CudaVersion, Device, DeviceBuffer, LaunchConfig, Module};

const SAXPY: &str = include_str!("saxpy.cu");

/// The variables for a software driver with this profile, even if there is a GPU.
const fn software(profile: &str) -> [(&str, &str); 2] {
    [("CUDA_SIM", profile), ("CUDA_TESTS", "")]
}

/// A software driver that accepts the PTX of the pinned NVRTC.
const NEW_DRIVER: [(&str, &str); 2] = software("h200@13.5");

fn for_target(target: Target) -> CompileOptions {
    CompileOptions { target: Some(target), ..Default::default() }
}

/// Runs SAXPY, and checks the result.
fn run(context: &Context, program: &Program, target: Target) {
    let compiled = program.compile(&for_target(target)).expect("a correct program");
    let module = compiled.load(context).expect("code for this device");
    let kernel = module.kernel("saxpy").expect("the kernel");
    let stream = context.stream().expect("a stream");
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; 300]).expect("memory");
    let mut y = DeviceBuffer::from_slice(&stream, &[2.0f32; 300]).expect("memory");
    let saxpy = kernel.typed::<(f32, &[f32], &mut [f32], u32)>();
    let saxpy = saxpy.expect("the parameters");
    let config = LaunchConfig::for_elements(300, 128).expect("a shape");
    // SAFETY: the kernel accesses 300 elements of both buffers.
    unsafe { saxpy.launch(&stream, config, (3.0, &x, &mut y, 300)) }.expect("a launch");
    assert_eq!(y.to_vec().expect("a copy"), [5.0; 300]);
}

#[test]
fn a_kernel_compiled_from_source_runs() {
    let device = or_skip!(common::gpu());
    or_skip!(libraries::nvrtc());
    let context = Context::primary(&device).expect("a context");
    let target = Target::of_device(&device).expect("a target");
    run(&context, &Program::new(SAXPY), target);
}

#[test]
fn ptx_runs_on_a_driver_that_is_not_older_than_the_library() {
    in_child(&NEW_DRIVER, || {
        let device = or_skip!(common::gpu());
        or_skip!(libraries::nvrtc());
        if cuda_safe::version().expect("a driver") < version().expect("NVRTC") {
            return libraries::skip("the driver is older than NVRTC");
        }
        let context = Context::primary(&device).expect("a context");
        let oldest = supported_architectures().expect("NVRTC")[0];
        run(&context, &Program::new(SAXPY), Target::Ptx(oldest));
    });
}

#[test]
fn the_target_of_a_device_is_a_cubin_if_the_library_knows_the_device() {
    let device = or_skip!(common::gpu());
    or_skip!(libraries::nvrtc());
    let architecture = Architecture::of_device(&device).expect("a device");
    if supported_architectures().expect("NVRTC").contains(&architecture) {
        let target = Target::of_device(&device).expect("a target");
        assert_eq!(target, Target::Cubin(architecture));
    }
}

#[test]
fn a_device_that_the_library_no_longer_supports_is_named() {
    in_child(&software("v100"), || {
        or_skip!(libraries::nvrtc());
        if version().expect("NVRTC") < CudaVersion::new(13, 0) {
            return libraries::skip("needs NVRTC of CUDA 13");
        }
        let device = or_skip!(common::gpu());
        let error = Target::of_device(&device).expect_err("sm_70 is not supported");
        assert!(error.is_unavailable());
        let text = error.to_string();
        assert!(text.contains("architecture 70") && text.contains("CUDA 13"), "{text}");
    });
}

#[test]
fn ptx_that_is_newer_than_the_driver_is_refused_with_both_versions() {
    in_child(&software("h200@12.4"), || {
        let device: Device = or_skip!(common::gpu());
        or_skip!(libraries::nvrtc());
        if version().expect("NVRTC") < CudaVersion::new(13, 0) {
            return libraries::skip("needs NVRTC of CUDA 13");
        }
        let context = Context::primary(&device).expect("a context");
        let options = for_target(Target::Ptx(Architecture::new(9, 0)));
        let compiled = Program::new(SAXPY).compile(&options).expect("a correct program");
        let error = compiled.load(&context).expect_err("a newer PTX");
        assert!(matches!(error, Error::NotLoadable(_)), "{error:?}");
        assert!(error.is_unavailable());
        let text = error.to_string();
        for part in ["compute_90", "CUDA 12.4", "PTX 9.", "no cubin"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    });
}

#[test]
fn code_for_another_device_is_refused_with_both_architectures() {
    in_child(&NEW_DRIVER, || {
        let device = or_skip!(common::gpu());
        or_skip!(libraries::nvrtc());
        let supported = supported_architectures().expect("NVRTC");
        let newest = *supported.last().expect("an architecture");
        if newest <= Architecture::of_device(&device).expect("a device") {
            return libraries::skip("NVRTC supports no newer architecture");
        }
        let context = Context::primary(&device).expect("a context");
        let compiled = Program::new(SAXPY).compile(&for_target(Target::Cubin(newest)));
        let error = compiled.expect("a correct program").load(&context);
        let error = error.expect_err("another architecture");
        assert!(!error.is_unavailable(), "the target is the caller's mistake");
        let text = error.to_string();
        let own = Architecture::of_device(&device).expect("a device");
        for part in [format!("sm_{newest}"), format!("architecture {own}"), "no cubin".into()] {
            assert!(text.contains(&part), "{part}: {text}");
        }
    });
}

#[test]
fn a_cubin_of_a_newer_major_version_is_refused_with_the_reasons() {
    in_child(&software("h200@12.4"), || {
        let device: Device = or_skip!(common::gpu());
        or_skip!(libraries::nvrtc());
        if version().expect("NVRTC") < CudaVersion::new(13, 0) {
            return libraries::skip("needs NVRTC of CUDA 13");
        }
        let context = Context::primary(&device).expect("a context");
        let options = for_target(Target::of_device(&device).expect("a target"));
        let compiled = Program::new(SAXPY).compile(&options).expect("a correct program");
        let text = compiled.load(&context).expect_err("a newer cubin").to_string();
        for part in ["sm_90", "CUDA 12.4", "its cubin: cuModuleLoadDataEx", "PTX 9."] {
            assert!(text.contains(part), "{part}: {text}");
        }
    });
}

#[test]
fn templates_and_variables_are_found_in_a_cubin() {
    let device = or_skip!(common::gpu());
    or_skip!(libraries::nvrtc());
    let context = Context::primary(&device).expect("a context");
    let source = "__constant__ int table[3] = {4, 5, 6};
        template <class T> __global__ void fill(T *x, T y, char z) { *x = y + z + table[1]; }";
    let program =
        Program::new(source).with_name_expression("fill<double>").with_name_expression("&table");
    let options = for_target(Target::of_device(&device).expect("a target"));
    let compiled = program.compile(&options).expect("a correct program");
    let module = compiled.load(&context).expect("code for this device");
    let kernel = module.kernel(compiled.lowered_name("fill<double>").expect("registered"));
    let kernel = kernel.expect("the kernel");
    if common::offers(12, 4) {
        let sizes = kernel.parameters().expect("parameters").expect("known");
        let sizes: Vec<usize> = sizes.iter().map(|parameter| parameter.size).collect();
        assert_eq!(sizes, [8, 8, 1]);
    }
    let table = module.global(compiled.lowered_name("&table").expect("registered"));
    assert_eq!(table.expect("the variable").size_bytes(), 12);
}

#[test]
fn the_error_of_a_cubin_for_another_device_names_both_architectures() {
    let device = or_skip!(common::gpu());
    or_skip!(libraries::nvrtc());
    let own = Architecture::of_device(&device).expect("a device");
    let context = Context::primary(&device).expect("a context");
    let supported = supported_architectures().expect("NVRTC");
    let other = supported
        .into_iter()
        .find(|other| other.compute_capability().0 != own.compute_capability().0);
    let options = for_target(Target::Cubin(other.expect("another architecture")));
    let compiled = Program::new(SAXPY).compile(&options).expect("a correct program");
    let cubin = compiled.cubin().expect("a cubin");
    // SAFETY: the compiler has made the cubin.
    let error = unsafe { Module::from_image(&context, cubin) }.expect_err("another device");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    let text = error.to_string();
    for part in [format!("sm_{}", other.expect("as above")), format!("sm_{own}")] {
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn lto_ir_must_be_linked_before_it_is_loaded() {
    let device = or_skip!(common::gpu());
    or_skip!(libraries::nvrtc());
    let context = Context::primary(&device).expect("a context");
    let target = Target::LtoIr(Architecture::new(9, 0));
    let compiled = Program::new(SAXPY).compile(&for_target(target)).expect("a correct program");
    let error = compiled.load(&context).expect_err("LTO-IR");
    assert!(
        matches!(&error, Error::Invalid(invalid) if matches!(**invalid, Invalid::NoCode { .. })),
        "{error:?}"
    );
}
