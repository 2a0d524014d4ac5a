//! PTX and images: how the software driver reads them.

pub(crate) mod compressed_images;
pub(crate) mod images;

use crate::prelude::*;
use cuda_safe::module::LinkInput;

fn text(version: &str, params: &str, body: &str) -> String {
    format!(
        ".version {version}\n.target sm_52\n.address_size 64\n\
         .visible .entry k({params})\n{{\n{body}\n ret;\n}}\n"
    )
}

fn load(context: &Context, params: &str, body: &str) -> Result<Module, Error> {
    Module::from_ptx(context, &text("6.0", params, body))
}

fn code(result: Result<Module, Error>) -> Option<CUresult> {
    result.expect_err("unknown PTX").code()
}

#[test]
fn parameters_that_exceed_the_limit_are_refused() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for params in [
        ".param .align 8 .u64 a[9223372036854775807]",
        ".param .align 8 .b8 a[18446744073709551615], .param .u64 b",
        ".param .u8 a, .param .align 18446744073709551615 .b8 b[1]",
        ".param .b8 a[32765]",
    ] {
        let refused = code(load(&context, params, ""));
        assert_eq!(refused, Some(CUresult::CUDA_ERROR_INVALID_PTX), "{params}");
    }
    load(&context, ".param .b8 a[32764]", "").expect("it fits");
}

#[test]
fn the_alignment_of_a_pointee_does_not_align_the_parameter() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let params = ".param .u8 a, .param .u64 .ptr .global .align 1 b";
    let kernel = load(&context, params, "").and_then(|module| module.kernel("k")).expect("PTX");
    let all = kernel.parameters().expect("known").expect("known");
    assert_eq!((all[1].offset, all[1].size), (8, 8));
}

#[test]
fn special_registers_need_no_declaration() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for register in [
        "lanemask_lt",
        "nwarpid",
        "cluster_ctarank",
        "clock_hi",
        "cluster_ctaid.x",
        "envreg7",
        "pm3",
        "pm0_64",
        "globaltimer_lo",
        "total_smem_size",
    ] {
        let ty = if register.ends_with("64") { "u64" } else { "u32" };
        let body = format!(".reg .{ty} %r;\n mov.{ty} %r, %{register};");
        load(&context, "", &body).expect(register);
    }
    let body = ".reg .pred %p;\n mov.pred %p, %is_explicit_cluster;";
    load(&context, "", body).expect("a special register");
    for register in ["lanemask", "envreg", "pm", "clockwise", "s"] {
        let body = format!(".reg .b32 %r;\n mov.u32 %r, %{register};");
        let refused = code(load(&context, "", &body));
        assert_eq!(refused, Some(CUresult::CUDA_ERROR_INVALID_PTX), "{register}");
    }
}

#[track_caller]
fn newest(profile: &str, knows: &str, knows_not: &str) {
    let (_end, context) = in_child!(on(profile.parse().expect("a profile")));
    Module::from_ptx(&context, &text(knows, "", "")).expect("known");
    let refused = Module::from_ptx(&context, &text(knows_not, "", ""));
    let refused = refused.expect_err("newer").to_string();
    assert!(refused.contains(knows_not), "{refused}");
}

#[test]
fn a_driver_of_12_6_knows_ptx_8_5() {
    newest("h200@12.6", "8.5", "8.6");
}

#[test]
fn a_driver_of_12_9_knows_ptx_8_8() {
    newest("h200@12.9", "8.8", "8.9");
}

#[test]
fn a_kernel_attribute_is_one_of_the_values_that_the_newest_driver_knows() {
    let (_end, context) = in_child!(on("h200@13.5".parse().expect("a profile")));
    let kernel = load(&context, "", "").and_then(|module| module.kernel("k")).expect("PTX");
    for (attribute, last) in [
        (CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 3),
        (CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE, 4),
    ] {
        let set = |value| code!(cuFuncSetAttribute(kernel.as_raw(), attribute, value));
        assert_eq!([last, last + 1, -1].map(set), [CUresult::CUDA_SUCCESS, INVALID, INVALID]);
    }
}

#[test]
fn registering_an_image_that_is_a_prefix_of_another_is_refused() {
    let kernels: &[(&str, &[usize])] = &[("k", &[])];
    cuda_sim::kernel::register_image(b"\x7fELF-planted", kernels);
    cuda_sim::kernel::register_image(b"\x7fELF-planted", kernels);
    let longer = std::panic::catch_unwind(|| {
        cuda_sim::kernel::register_image(b"\x7fELF-planted-longer", kernels);
    });
    let why = longer.expect_err("a panic");
    let why = why.downcast_ref::<&str>().expect("a text");
    assert!(why.contains("a prefix of another"), "{why}");
}

#[test]
fn the_parameters_of_a_registered_kernel_are_aligned_to_their_sizes() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("current");
    let image = b"\x7fELF-planted";
    cuda_sim::kernel::register_image(image, &[("planted", &[4, 8, 2])]);
    let module: CUmodule = out!(cuModuleLoadData(image.as_ptr().cast()));
    let function: CUfunction = out!(cuModuleGetFunction(module, c"planted".as_ptr()));
    let places = [0, 1, 2].map(|index| {
        let (mut offset, mut size) = (0, 0);
        succeeds!(cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size));
        (offset, size)
    });
    assert_eq!(places, [(0, 4), (8, 8), (16, 2)]);
    succeeds!(cuModuleUnload(module));
}

#[test]
fn kernels_are_unloaded_with_the_context_of_their_module() {
    in_child!();
    start(Profile::h200());
    let own = Context::new(&context().device(), ContextFlags::empty()).expect("a context");
    let kernel = load(&own, "", "").and_then(|module| module.kernel("k")).expect("found");
    // SAFETY: the contract is violated on purpose: the object still owns the handle.
    assert!(unsafe { cuCtxDestroy_v2(own.as_raw()) }.is_success());
    let mut name = std::ptr::null();
    // SAFETY: the pointer refers to a local variable, and the driver detects that the kernel no
    // longer exists.
    let code = unsafe { cuFuncGetName(&raw mut name, kernel.as_raw()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE);
    crate::software::misuses::found("a kernel is used after its module was unloaded");
}

const GLOBALS: &str = include_str!("../../kernels/globals.ptx");

#[test]
fn freeing_a_variable_is_refused() {
    let (context, _stream) = &in_child!(crate::software::misuses::expecting_misuse());
    let module = Module::from_ptx(context, GLOBALS).expect("the test kernels");
    let counter = module.global("counter").expect("found");
    // SAFETY: the contract is violated on purpose, which this test is about.
    let code = unsafe { cuMemFree_v2(counter.as_raw()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    crate::software::misuses::found("cuMemFree of a variable");
}

#[test]
fn variables_are_freed_with_their_module() {
    let (context, stream) = &in_child!(crate::software::misuses::expecting_misuse());
    let module = Module::from_ptx(context, GLOBALS).expect("the test kernels");
    let address = module.global("counter").expect("found").as_raw();
    drop(module);
    // SAFETY: the contract is violated on purpose: the variable was unloaded.
    let stale = unsafe { DeviceBuffer::<u32>::borrow_raw(address, 1, stream) }.expect("memory");
    stale.to_vec().expect_err("gone");
    crate::software::misuses::found("are not allocated");
}

#[test]
fn destroying_a_linker_twice_is_a_misuse() {
    let (context, _stream) = &in_child!(crate::software::misuses::expecting_misuse());
    let linker = Linker::new(context).expect("a linker");
    // SAFETY: the contract is violated on purpose: the object still owns the handle.
    assert!(unsafe { cuLinkDestroy(linker.as_raw()) }.is_success());
    drop(linker);
    crate::software::misuses::found("a linker is used after it was destroyed");
}

#[test]
fn each_link_creates_its_own_image() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let link = |text: &str| {
        let mut linker = Linker::new(&context).expect("a linker");
        linker.add_ptx("text", text).expect("PTX");
        linker.complete().expect("a complete program")
    };
    let (one, two) = (link(GLOBALS), link(include_str!("../../kernels/vector.ptx")));
    assert_ne!(one.bytes(), two.bytes());
    let load =
        |linked| Module::from_linked(&context, linked).expect("an image that the driver created");
    load(&one).kernel("bump").expect("of the first");
    load(&two).kernel("add").expect("of the second");
    // A saved image can be loaded again.
    let saved = one.bytes().to_vec();
    // SAFETY: the driver created the image.
    let again = unsafe { Module::from_image(&context, &saved) };
    again.expect("the same").global("counter").expect("there");
}

#[test]
fn an_image_that_another_process_linked_has_its_ptx() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let mut linker = Linker::new(&context).expect("a linker");
    linker.add_ptx("text", GLOBALS).expect("PTX");
    let mut saved = linker.complete().expect("a complete program").bytes().to_vec();
    // This process has not created an image with this number.
    saved[8..12].fill(0xff);
    // SAFETY: the bytes are those of an image, but for its number.
    let module = unsafe { Module::from_image(&context, &saved) }.expect("the text of the image");
    module.kernel("bump").expect("of the text");
}

#[test]
fn binary_inputs_can_be_linked() {
    let (_end, context) = in_child!(on(Profile::h200()));
    // The header of a fatbin without images.
    let image = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cuda_sim::kernel::register_image(&image, &[("of_a_binary", &[8, 4])]);
    let mut linker = Linker::new(&context).expect("a linker");
    assert_eq!(*linker.context(), context);
    // SAFETY: the image is complete for the software driver.
    unsafe { linker.add_data(LinkInput::Fatbin, "binary", &image) }.expect("an image");
    // SAFETY: the data is PTX.
    unsafe { linker.add_data(LinkInput::Ptx, "text", GLOBALS.as_bytes()) }.expect("PTX");
    // SAFETY: the software driver does not read the data.
    let added = unsafe { linker.add_data(LinkInput::Object, "host", b"an object") };
    let code = added.expect_err("no code").code();
    assert_eq!(code, Some(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    // SAFETY: the software driver does not read the data.
    unsafe { linker.add_data(LinkInput::Library, "device runtime", b"!<arch>") }.expect("ignored");
    assert!(format!("{linker:?}").starts_with("Linker"));
    let linked = linker.complete().expect("a complete program");
    // An image with machine code has no text.
    assert!(format!("{linked:?}").contains("bytes: 64"));
    let module = Module::from_linked(&context, &linked).expect("an image that the driver created");
    module.kernel("of_a_binary").expect("of the image");
    module.kernel("bump").expect("of the text");
    let counter = module.global("counter").expect("of the text");
    assert!(format!("{counter:?}").contains("counter"));
}

/// From documentation.
#[test]
fn functions_are_loaded_lazily_since_12_2() {
    let (_end, _context) = in_child!(on("h200@12.2".parse().expect("a profile")));
    let mode = Module::loading_mode().expect("known");
    assert_eq!(mode, cuda_safe::module::LoadingMode::Lazy);
}
