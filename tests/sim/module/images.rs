//! Cubins and fat binaries: what the software driver loads from them, and the errors for other devices.
//!
//! `vector.fatbin` has cubins for `sm_80` and `sm_90a` and PTX for `compute_52` of tests/kernels/vector.ptx. It was
//! written by `fatbinary` of CUDA 13.0. So were `compressed.fatbin`, with `--compress-all` (zstd), and `lz4.fatbin`, with
//! `--compress-all --compress-mode=speed`.

use crate::prelude::*;
use cuda_safe::module::attribute as kernel_attribute;
use cuda_safe::sys::image::codes;

const STORED: &[u8] = include_bytes!("../../../cuda-sys/src/image/vector.fatbin");
const ZSTD: &[u8] = include_bytes!("../../../cuda-sys/src/image/compressed.fatbin");
const LZ4: &[u8] = include_bytes!("../../../cuda-sys/src/image/lz4.fatbin");

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

/// Checks the architecture of the code that a device gets from the fat binary, with and without compression.
#[track_caller]
fn expect_architecture(profile: Profile, architecture: u32) {
    let (_end, context) = in_child!(on(profile));
    for image in [STORED, ZSTD, LZ4] {
        expect_code(&load(&context, image).expect("code for the device"), architecture);
    }
}

#[track_caller]
fn expect_code(module: &Module, architecture: u32) {
    let add = module.kernel("add").expect("the kernel");
    assert_eq!(add.attribute(kernel_attribute::PTX_VERSION).expect("an attribute"), architecture);
    // Only a cubin says how many registers its machine code needs.
    let registers = add.attribute(kernel_attribute::REGISTERS);
    assert_eq!(registers.expect("an attribute") != 0, architecture != 52);
    let sizes = add.parameters().expect("parameters").map(|parameters| {
        let sizes = parameters.iter().map(|parameter| parameter.size);
        sizes.collect::<Vec<_>>()
    });
    assert!(sizes.is_none_or(|sizes| sizes == [8, 8, 8, 4]));
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
fn a_kernel_with_a_cubin_and_ptx_runs_by_its_ptx() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for image in [STORED, ZSTD, LZ4] {
        let module = load(&context, image).expect("code for the device");
        let add = module.kernel("add").expect("the kernel");
        let add = add.typed::<(&[f32], &[f32], &mut [f32], u32)>().expect("the parameters");
        let stream = context.stream().expect("a stream");
        let [a, b] =
            [1.0, 2.0].map(|x| DeviceBuffer::from_slice(&stream, &[x; 100]).expect("memory"));
        let mut sum = DeviceBuffer::zeroed(&stream, 100).expect("memory");
        let config = LaunchConfig::for_elements(100, 32).expect("a shape");
        // SAFETY: the kernel accesses 100 elements of the buffers.
        unsafe { add.launch(&stream, config, (&a, &b, &mut sum, 100)) }.expect("a launch");
        assert_eq!(sum.to_vec().expect("a copy"), [3.0f32; 100]);
    }
}

#[test]
fn the_launch_of_a_kernel_with_only_machine_code_says_what_it_is_for_and_what_to_do() {
    in_child!(start(Profile::h200()));
    let context = context();
    let [_, hopper] = cubins();
    let module = load(&context, hopper).expect("code for the device");
    let nothing =
        module.kernel("nothing").expect("the kernel").typed::<()>().expect("no parameters");
    let stream = context.stream().expect("a stream");
    // SAFETY: the kernel does nothing.
    unsafe { nothing.launch(&stream, LaunchConfig::linear(1, 1), ()) }.expect("a launch");
    let error = stream.synchronize().expect_err("it cannot run");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    let misuses = cuda_sim::misuses();
    for part in ["\"nothing\" has only machine code for sm_90", "to PTX", "nvidia-nvjitlink"] {
        assert!(misuses[0].contains(part), "{part}: {misuses:?}");
    }
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
    let (_end, context) = in_child!(on(Profile::h200()));
    let [ampere, _] = cubins();
    let text = refusal(&context, ampere);
    assert!(text.contains("the image has a cubin for sm_80; the device is sm_90"), "{text}");
    assert!(!text.contains("format"), "{text}");
}

#[test]
fn the_error_of_a_cubin_for_a_newer_driver_says_so() {
    let old = Profile::a100().with_driver(CudaVersion::new(12, 4));
    let (_end, context) = in_child!(on(old.expect("a simulated version")));
    let [ampere, hopper] = cubins();
    let reason = "format of CUDA 13.0, and the driver is for CUDA 12.4";
    let text = refusal(&context, ampere);
    assert!(text.contains(reason), "{text}");
    let text = refusal(&context, hopper);
    assert!(text.contains("the device is sm_80"), "{text}");
}

#[test]
fn the_error_of_a_fat_binary_without_code_for_the_device_lists_its_code() {
    let (_end, context) = in_child!(on(Profile::v100()));
    for image in [STORED, ZSTD, LZ4] {
        // The first two members.
        let mut image = image.to_vec();
        let members = codes(&image).expect("a fat binary");
        let last = members[1].bytes.or(members[1].compressed.map(|its| its.bytes));
        let end = last.expect("one of them").as_ptr_range().end;
        let length = (end.addr() - image.as_ptr().addr()).next_multiple_of(8);
        image.truncate(length);
        image[8..16].copy_from_slice(&(length as u64 - 16).to_le_bytes());
        let text = refusal(&context, &image);
        let all = "a cubin for sm_80, a cubin for sm_90a; the device is sm_70";
        assert!(text.contains(all), "{text}");
    }
    let empty = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(refusal(&context, &empty).contains("the image has no code"));
}

#[test]
fn the_attributes_of_a_cubin_are_those_of_its_kernel() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let module = load(&context, STORED).expect("code for the device");
    let add = module.kernel("add").expect("the kernel");
    let attribute = |attribute| add.attribute(attribute).expect("an attribute");
    assert!(attribute(kernel_attribute::REGISTERS) > 0);
    assert_eq!(attribute(kernel_attribute::LOCAL_BYTES), 0);
    // Without the part that the driver reserves, which the cubin has.
    assert_eq!(attribute(kernel_attribute::STATIC_SHARED_BYTES), 0);
}

#[test]
fn the_local_memory_of_a_kernel_is_that_of_its_cubin() {
    const BYTES: u32 = 4000;
    let (_end, context) = in_child!(on(Profile::h200()));
    let [_, hopper] = cubins();
    let mut image = hopper.to_vec();
    // The entries that name a function and the size of its frame, which is 0 in this cubin.
    let frame = [4, 0x11, 8, 0];
    let mut changed = 0;
    for at in 0..image.len() - 12 {
        if image[at..].starts_with(&frame) && image[at + 8..at + 12] == [0; 4] {
            image[at + 8..at + 12].copy_from_slice(&BYTES.to_le_bytes());
            changed += 1;
        }
    }
    assert_ne!(changed, 0);
    let module = load(&context, &image).expect("code for the device");
    let add = module.kernel("add").expect("the kernel");
    assert_eq!(add.attribute(kernel_attribute::LOCAL_BYTES).expect("an attribute"), BYTES);
}

#[test]
fn a_damaged_image_is_an_invalid_image_in_memory_and_in_a_file() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("a context");
    // `cuda-safe` rejects some of them itself.
    let invalid = |image: &[u8]| {
        let mut module = null_mut();
        // SAFETY: the pointers refer to a local variable and to an image that has the bytes of its header.
        let code = unsafe { cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_IMAGE);
    };
    invalid(b"\x7fELF\x02\x01\x07 of a future");
    invalid(b"\x50\xed\x55\xba\x02 of a future");
    let [_, hopper] = cubins();
    let mut damaged = hopper.to_vec();
    // The index of the section with names.
    damaged[62..64].fill(0xff);
    invalid(&damaged);
    let path = common::scratch().join(format!("shortened-{}.cubin", std::process::id()));
    let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    for (length, expected) in [
        (10, CUresult::CUDA_ERROR_INVALID_IMAGE),
        (100, CUresult::CUDA_ERROR_INVALID_IMAGE),
        (hopper.len() / 2, CUresult::CUDA_ERROR_INVALID_IMAGE),
        (hopper.len(), CUresult::CUDA_SUCCESS),
    ] {
        std::fs::write(&path, &hopper[..length]).expect("writing a file");
        let mut module = null_mut();
        // SAFETY: the pointers refer to a local variable and a C string.
        let code = unsafe { cuModuleLoad(&raw mut module, name.as_ptr()) };
        assert_eq!(code, expected, "{length}");
        let mut library = null_mut();
        let none = null_mut();
        // SAFETY: the pointers refer to a local variable and a C string, and there are no options.
        let code = unsafe {
            cuLibraryLoadFromFile(
                &raw mut library,
                name.as_ptr(),
                null_mut(),
                none,
                0,
                null_mut(),
                none,
                0,
            )
        };
        // A library reads its code when it is first used.
        if length == 0 {
            assert_eq!(code, expected, "{length}");
            continue;
        }
        assert!(code.is_success(), "{length}: {code}");
        let mut kernel = null_mut();
        // SAFETY: the pointers refer to a local variable and a C string, and the library is loaded.
        let code = unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()) };
        assert_eq!(code, expected, "{length}");
        // SAFETY: the library was just loaded, and is not used afterwards.
        let code = unsafe { cuLibraryUnload(library) };
        assert!(code.is_success(), "{code:?}");
    }
    std::fs::remove_file(path).expect("a file of this test");
}

#[test]
fn text_that_is_no_ptx_is_an_invalid_image_for_every_function_that_loads_a_module() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("a context");
    for (text, expected) in [
        (c"no PTX", CUresult::CUDA_ERROR_INVALID_IMAGE),
        (c"", CUresult::CUDA_ERROR_INVALID_IMAGE),
        (c".target sm_90", CUresult::CUDA_ERROR_INVALID_IMAGE),
        (c"// .version 6.0", CUresult::CUDA_ERROR_INVALID_IMAGE),
        (c".version 6.0", CUresult::CUDA_ERROR_INVALID_PTX),
    ] {
        let path = common::scratch().join(format!("text-{}.ptx", std::process::id()));
        std::fs::write(&path, text.to_bytes()).expect("writing a file");
        let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        let mut module = null_mut();
        let module = &raw mut module;
        let (image, name) = (text.as_ptr().cast(), name.as_ptr());
        let (keys, values) = (null_mut(), null_mut());
        for code in [
            code!(cuModuleLoadData(module, image)),
            code!(cuModuleLoadDataEx(module, image, 0, keys, values)),
            code!(cuModuleLoadFatBinary(module, image)),
            code!(cuModuleLoad(module, name)),
        ] {
            assert_eq!(code, expected, "{text:?}");
        }
        std::fs::remove_file(path).expect("a file of this test");
    }
}
