//! Compressed fat binaries on the software driver: their decompression, and the errors of damaged ones.

use crate::prelude::*;
use cuda_safe::module::attribute as kernel_attribute;
use cuda_safe::sys::image::codes;

/// Two cubins and a text, without compression and in two formats. See images.rs.
const STORED: &[u8] = include_bytes!("../../../cuda-sys/src/image/vector.fatbin");
const ZSTD: &[u8] = include_bytes!("../../../cuda-sys/src/image/compressed.fatbin");
const LZ4: &[u8] = include_bytes!("../../../cuda-sys/src/image/lz4.fatbin");

/// The header of the first member, which is the cubin for `sm_80`: the length of its compressed bytes, its flags,
/// and the length after decompression. The compressed bytes follow it.
const HEADER: usize = 16;
const COMPRESSED_LENGTH: usize = HEADER + 16;
const FLAGS: usize = HEADER + 40;
const LENGTH: usize = HEADER + 56;
const FIRST: usize = HEADER + 64;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_IMAGE;

/// Loads and unloads an image that has all bytes of its header.
fn load(image: &[u8]) -> CUresult {
    let mut module = null_mut();
    let code = code!(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
    if code.is_success() {
        assert!(code!(cuModuleUnload(module)).is_success());
    }
    code
}

/// Runs a test on a device that gets the first member.
fn on_ampere(body: impl FnOnce()) {
    let (_end, context) = in_child!(on(Profile::a100()));
    let _current = context.make_current().expect("a context");
    body();
}

/// Returns all that a program can find out about the kernels of an image.
fn kernels(context: &Context, image: &[u8]) -> Vec<String> {
    // SAFETY: the image is complete and was made by NVIDIA's tools.
    let module = unsafe { Module::from_image(context, image) }.expect("code for the device");
    let describe = |name: &String| {
        let kernel = module.kernel(name).expect("a kernel");
        let parameters = kernel.parameters().expect("parameters");
        let attribute = |attribute| kernel.attribute(attribute).expect("an attribute");
        let registers = attribute(kernel_attribute::REGISTERS);
        let target = attribute(kernel_attribute::PTX_VERSION);
        format!("{name} {parameters:?} {registers} {target}")
    };
    let names = module.kernel_names().expect("names");
    names.iter().map(describe).collect()
}

/// Checks that a device gets the same code with and without compression.
#[track_caller]
fn expect_same_kernels(profile: Profile) {
    let (_end, context) = in_child!(on(profile));
    let stored = kernels(&context, STORED);
    assert!(stored.iter().any(|kernel| kernel.starts_with("add ")));
    for image in [ZSTD, LZ4] {
        assert_eq!(kernels(&context, image), stored);
    }
}

#[test]
fn a_compressed_cubin_has_the_kernels_of_the_stored_one() {
    expect_same_kernels(Profile::a100());
}

#[test]
fn a_compressed_cubin_for_exactly_its_architecture_has_the_kernels_of_the_stored_one() {
    expect_same_kernels(Profile::h200());
}

#[test]
fn compressed_ptx_has_the_kernels_of_the_stored_text() {
    expect_same_kernels(Profile::v100());
}

#[test]
fn damaged_compressed_code_is_an_invalid_image() {
    on_ampere(|| {
        for original in [ZSTD, LZ4] {
            assert_eq!(load(original), CUresult::CUDA_SUCCESS);
            for change in [
                (|image| image[LENGTH] += 1) as fn(&mut [u8]),
                |image| image[LENGTH] -= 1,
                |image| image[LENGTH..LENGTH + 8].fill(0),
                // More than an exbibyte, and 256 MiB.
                |image| image[LENGTH + 7] = 0x10,
                |image| image[LENGTH + 3] = 0x10,
                |image| image[COMPRESSED_LENGTH] -= 1,
                |image| image[COMPRESSED_LENGTH..COMPRESSED_LENGTH + 4].fill(0),
                |image| image[COMPRESSED_LENGTH + 3] = 0xff,
                |image| image[FIRST..FIRST + 64].fill(0xff),
                // The flag of the other format, LZ4 or zstd.
                |image| image[FLAGS + 1] ^= 0xa0,
            ] {
                let mut image = original.to_vec();
                change(&mut image);
                assert_eq!(load(&image), INVALID);
            }
        }
    });
}

#[test]
fn damaged_code_for_another_device_is_not_read() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("a context");
    for image in [ZSTD, LZ4] {
        let mut image = image.to_vec();
        image[FIRST..FIRST + 64].fill(0xff);
        assert_eq!(load(&image), CUresult::CUDA_SUCCESS);
    }
}

#[test]
fn random_changes_of_compressed_images_are_refused_or_loaded() {
    on_ampere(|| {
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut refused = 0;
        let (rounds, refusals) = if cfg!(miri) { (8, 1..9) } else { (3000, 1000..2900) };
        for round in 0..rounds {
            let mut image = [ZSTD, LZ4][round % 2].to_vec();
            for _ in 0..=random(3) {
                // Half of the changes are in the headers of the first member and of its frame. The header of the image
                // has its length, which must be true.
                let end = [FIRST + 32, image.len()][random(2)];
                let at = HEADER + random(end - HEADER);
                image[at] = random(256) as u8;
            }
            if random(4) == 0 {
                image.truncate(HEADER + random(image.len() - HEADER));
                let length = (image.len() - HEADER) as u64;
                image[8..16].copy_from_slice(&length.to_le_bytes());
            }
            refused += usize::from(!load(&image).is_success());
        }
        assert!(refusals.contains(&refused), "{refused}");
    });
}

#[test]
fn a_shortened_file_of_a_compressed_image_is_an_invalid_image() {
    on_ampere(|| {
        let path = common::scratch().join(format!("shortened-{}.fatbin", std::process::id()));
        let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        let mut module = null_mut();
        for image in [ZSTD, LZ4] {
            for length in [8, FIRST, FIRST + 100, image.len() - 1] {
                std::fs::write(&path, &image[..length]).expect("writing a file");
                let code = code!(cuModuleLoad(&raw mut module, name.as_ptr()));
                assert_eq!(code, INVALID, "{length}");
            }
        }
        std::fs::remove_file(path).expect("a file of this test");
    });
}

#[test]
fn code_in_a_format_that_is_not_simulated_is_no_code_for_the_device() {
    on_ampere(|| {
        // zlib, an LZ4 frame, and a combination.
        for flags in [0x10, 0x40, 0xa0] {
            let mut image = ZSTD.to_vec();
            image[FLAGS + 1] = flags;
            assert!(codes(&image).is_ok());
            assert_eq!(load(&image), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        }
    });
}
