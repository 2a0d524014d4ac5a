//! Modules and libraries.

use crate::scenarios::{
    GLOBALS, SMID, VECTOR, expect, if_there_is, invalid, primary, primary_and_streams,
};
use crate::trace::Trace;
use cuda_safe::module::JitOptions;
use cuda_safe::module::{Library, LinkInput, Linker, attribute as kernel_attribute};
use cuda_safe::{CUresult, Context, ContextFlags, DeviceBuffer, Error, Invalid};
use cuda_safe::{LaunchConfig, Module, Result};

fn no_such_kernel(error: &Error) -> bool {
    invalid(|why| matches!(why, Invalid::NoSuchKernel { .. }))(error)
}

fn wrong() -> String {
    VECTOR.replace("add.f32 %f3, %f1, %f2;", "add.f32 %f3, %f1, %nonsense;")
}

fn newer() -> String {
    VECTOR.replace(".version 6.0", ".version 99.7")
}

fn too_new(error: &Error) -> bool {
    matches!(error, Error::PtxTooNew { .. })
}

pub(crate) fn module(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let module = Module::from_ptx(&context, VECTOR)?;
    assert_eq!(module.kernel_names()?.len(), 3);
    let add = module.kernel("add")?;
    assert_eq!(add.parameters()?.map(|its| its.len()), Some(4));
    expect(trace.provoke(|| module.kernel("subtract")), no_such_kernel)?;
    let is_compile = |error: &Error| matches!(error, Error::Compile(_));
    expect(Module::from_ptx(&context, &wrong()), is_compile)?;
    expect(Module::from_ptx(&context, &newer()), too_new)?;

    let other = Context::new(&context.device(), ContextFlags::empty())?;
    let elsewhere = Module::from_ptx(&other, SMID)?.kernel("record_smid")?;
    trace.drop((other, module, context));
    // Kernels keep their modules alive.
    elsewhere.parameters()?;
    add.attribute(kernel_attribute::REGISTERS)?;
    trace.drops_from_here()
}

pub(crate) fn library(trace: &mut Trace) -> Result<()> {
    let library = Library::from_ptx(VECTOR)?;
    assert_eq!(library.kernel_names()?.len(), 3);
    let context = primary()?;
    let add = library.kernel(&context, "add")?;
    expect(trace.provoke(|| library.kernel(&context, "subtract")), no_such_kernel)?;
    // A library reads its code when it is first used.
    let unusable = Library::from_ptx(&newer())?;
    let of_newer = unusable.kernel(&context, "add");
    trace.drop(unusable);
    expect(of_newer, too_new)?;
    let unusable = Library::from_ptx(&wrong())?;
    let of_wrong = unusable.kernel(&context, "add");
    trace.drop(unusable);
    expect(of_wrong, |error| error.code() == Some(cuda_safe::CUresult::CUDA_ERROR_INVALID_PTX))?;

    let other = Context::new(&context.device(), ContextFlags::empty())?;
    let elsewhere = library.kernel(&other, "scale")?;
    trace.drop((library, other));
    if_there_is(elsewhere.parameters())?;
    if_there_is(add.parameters())?;
    trace.drops_from_here()
}

/// Code for a device, which is loaded without compilation.
pub(crate) fn images(trace: &mut Trace) -> Result<()> {
    // The header of a fatbin without images. The software driver gets the contents in another way.
    let image = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cuda_sim::kernel::register_image(&image, &[("scale", &[8, 4, 4, 4])]);
    cuda_sim::kernel::register("scale", |launch| {
        let (factor, offset) = (launch.value::<i32>(1)?, launch.value::<i32>(2)?);
        let n = launch.value::<u32>(3)? as usize;
        launch.update::<i32>(0, n, |_, x| x.wrapping_mul(factor).wrapping_add(offset))
    });
    let context = primary()?;
    let options = JitOptions { info_log: true, ..Default::default() };
    // SAFETY: the image is complete for the software driver, here and below.
    let plain = unsafe { Module::from_image(&context, &image) }?;
    // SAFETY: as above.
    let module = unsafe { Module::from_image_with(&context, &image, &options) }?;
    // SAFETY: as above.
    let bare = unsafe { Library::from_image(&image) }?;
    // SAFETY: as above.
    let library = unsafe { Library::from_image_with(&image, &options) }?;
    // SAFETY: the call is refused and accesses nothing.
    let cut = unsafe { Module::from_image(&context, &image[..8]) };
    expect(cut, invalid(|why| matches!(why, Invalid::TruncatedImage { .. })))?;
    let mut linker = Linker::new(&context)?;
    // SAFETY: as above.
    unsafe { linker.add_data(LinkInput::Fatbin, "binary", &image) }?;
    // SAFETY: the data is PTX.
    unsafe { linker.add_data(LinkInput::Ptx, "text", GLOBALS.as_bytes()) }?;
    // SAFETY: the software driver does not read the data.
    let host = unsafe { linker.add_data(LinkInput::Object, "host", b"!<arch>") };
    let no_code = Some(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    expect(host, |error| error.code() == no_code)?;
    let linked = trace.drops_after("cuLinkComplete", || linker.complete())?;
    let both = Module::from_linked(&context, &linked)?;
    trace.drop((plain, bare, linked));

    let scale = library.kernel(&context, "scale")?;
    let scale = scale.typed::<(&mut [i32], i32, i32, u32)>()?;
    trace.drop(library);
    let stream = context.stream()?;
    let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    // SAFETY: the kernel accesses 3 elements, and the memory has 3.
    unsafe { scale.launch(&stream, LaunchConfig::linear(1, 3), (&mut x, 2, 1, 3)) }?;
    assert_eq!(x.to_vec()?, [3, 5, 7]);
    module.kernel("scale")?;
    both.kernel("scale")?;
    both.kernel("bump")?;
    trace.drop(context);
    trace.drops_from_here()
}

fn no_such_global(error: &Error) -> bool {
    invalid(|why| matches!(why, Invalid::NoSuchGlobal { .. }))(error)
}

pub(crate) fn globals(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let module = Module::from_ptx(&context, GLOBALS)?;
    let bump = module.kernel("bump")?.typed::<(u32,)>()?;
    let counter = module.global("counter")?;
    expect(module.global("nowhere"), no_such_global)?;
    // SAFETY: only work of this stream uses the variable.
    let mut value = unsafe { counter.buffer::<u32>(&stream) }?;
    value.copy_from_slice(&[7])?;
    trace.drop((module, counter));
    // SAFETY: as above.
    unsafe { bump.launch(&stream, LaunchConfig::linear(1, 1), (2,)) }?;
    trace.drop(bump);
    assert_eq!(value.to_vec()?, [9]);
    // Drops the last owner of the module.
    trace.drop(value);

    let library = Library::from_ptx(GLOBALS)?;
    let everywhere = library.managed(&context, "everywhere")?;
    let factors = library.global(&context, "factors")?;
    expect(library.global(&context, "nowhere"), no_such_global)?;
    let unusable = Library::from_ptx(&wrong())?;
    let of_wrong = unusable.global(&context, "factors");
    trace.drop(unusable);
    expect(of_wrong, |error| error.code() == Some(cuda_safe::CUresult::CUDA_ERROR_INVALID_PTX))?;
    trace.drop((library, context));
    assert_eq!(everywhere.size_bytes(), 4);
    // SAFETY: nothing else uses the variable.
    let all = unsafe { factors.buffer::<f32>(&stream) }?;
    assert_eq!(all.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
    trace.drops_from_here()
}
