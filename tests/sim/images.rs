//! Cubins and fat binaries: what the software driver loads from them, and the errors for other devices.
//!
//! `vector.fatbin` has cubins for `sm_80` and `sm_90a` and PTX for `compute_52` of tests/kernels/vector.ptx. It was
//! written by `fatbinary` of CUDA 13.0, and `compressed.fatbin` too, with `--compress-all`.

use crate::on;
use cuda_safe::sys::image::codes;
use cuda_safe::{CUresult, Context, CudaVersion, Error, Module, kernel_attribute};
use cuda_sim::Profile;

const STORED: &[u8] = include_bytes!("../../cuda-sys/src/image/vector.fatbin");
const COMPRESSED: &[u8] = include_bytes!("../../cuda-sys/src/image/compressed.fatbin");

fn cubins() -> [&'static [u8]; 2] {
    let codes = codes(STORED).expect("a fat binary");
    [0, 1].map(|at| codes[at].bytes.expect("not compressed"))
}

fn load(context: &Context, image: &[u8]) -> Result<Module, Error> {
    // SAFETY: the image is complete and was made by NVIDIA's tools.
    unsafe { Module::from_image(context, image) }
}

#[track_caller]
fn refusal(context: &Context, image: &[u8]) -> String {
    let error = load(context, image).expect_err("no code for the device");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    error.to_string()
}

/// Checks the architecture of the code that a device gets from the fat binary.
#[track_caller]
fn expect_architecture(profile: Profile, architecture: u32) {
    on(profile, |context| {
        let module = load(&context, STORED).expect("code for the device");
        let add = module.kernel("add").expect("the kernel");
        let version = add.attribute(kernel_attribute::PTX_VERSION);
        assert_eq!(version.expect("an attribute"), architecture);
        // Only a cubin says how many registers its machine code needs.
        let registers = add.attribute(kernel_attribute::REGISTERS);
        assert_eq!(registers.expect("an attribute") != 0, architecture != 52);
        let sizes = add.parameters().expect("parameters").map(|parameters| {
            let sizes = parameters.iter().map(|parameter| parameter.size);
            sizes.collect::<Vec<_>>()
        });
        assert!(sizes.is_none_or(|sizes| sizes == [8, 8, 8, 4]));
    });
}

#[test]
fn a_device_gets_its_cubin_of_a_fat_binary() {
    expect_architecture(Profile::a100(), 80);
}

#[test]
fn a_device_gets_a_cubin_for_exactly_its_architecture() {
    expect_architecture(Profile::h200(), 90);
}

#[test]
fn a_later_minor_architecture_gets_the_cubin_of_an_earlier_one() {
    expect_architecture(Profile::l40s(), 80);
}

#[test]
fn a_device_without_a_cubin_gets_the_ptx_of_a_fat_binary() {
    expect_architecture(Profile::v100(), 52);
}

#[test]
fn a_driver_that_is_older_than_the_format_of_the_cubins_gets_the_ptx() {
    let old = Profile::h200().with_driver(CudaVersion::new(12, 4));
    expect_architecture(old.expect("a simulated version"), 52);
}

#[test]
fn the_error_of_a_cubin_for_another_device_names_both_architectures() {
    on(Profile::h200(), |context| {
        let [ampere, _] = cubins();
        let text = refusal(&context, ampere);
        let both = "the image has a cubin for sm_80; the device is sm_90";
        assert!(text.contains(both), "{text}");
        assert!(!text.contains("format"), "{text}");
    });
}

#[test]
fn the_error_of_a_cubin_for_a_newer_driver_says_so() {
    let old = Profile::a100().with_driver(CudaVersion::new(12, 4));
    on(old.expect("a simulated version"), |context| {
        let [ampere, hopper] = cubins();
        let reason = "format of CUDA 13.0, and the driver is for CUDA 12.4";
        let text = refusal(&context, ampere);
        assert!(text.contains(reason), "{text}");
        let text = refusal(&context, hopper);
        assert!(text.contains("the device is sm_80"), "{text}");
    });
}

#[test]
fn the_error_of_a_fat_binary_without_code_for_the_device_lists_its_code() {
    on(Profile::h200(), |context| {
        // The software driver does not decompress code.
        let text = refusal(&context, COMPRESSED);
        let all = "a cubin for sm_80, a cubin for sm_90a, PTX for compute_52; the device is sm_90";
        assert!(text.contains(all), "{text}");
        let empty = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(refusal(&context, &empty).contains("the image has no code"));
    });
}
