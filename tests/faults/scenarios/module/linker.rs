//! Compiler options, and the linker.

use crate::scenarios::{APPLY, TWICE, VECTOR, expect, primary, refused};
use crate::trace::Trace;
use cuda_safe::module::{JitOptions, Library, LinkInput, Linked, Linker};
use cuda_safe::{Error, Invalid, Module, Result};

pub(crate) fn options(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let options = JitOptions {
        max_registers: Some(40),
        optimization_level: Some(3),
        min_blocks_per_sm: Some(2),
        info_log: true,
        ..Default::default()
    };
    let module = Module::from_ptx_with(&context, VECTOR, &options)?;
    assert!(!module.log().is_empty());
    let library = Library::from_ptx_with(VECTOR, &options)?;
    let kernel = library.kernel(&context, "add")?;
    let too_hard = JitOptions { optimization_level: Some(5), ..Default::default() };
    refused(Module::from_ptx_with(&context, VECTOR, &too_hard), |why| {
        matches!(why, Invalid::JitOption { .. })
    })?;
    trace.drop((module, library, kernel));
    trace.drops_from_here()
}

pub(crate) fn linker(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let mut linker = Linker::new(&context)?;
    linker.add_ptx("apply", APPLY)?;
    let is_compile = |error: &Error| matches!(error, Error::Compile(_));
    let wrong = TWICE.replace("%r1, %r1", "%r1, %nonsense");
    expect(linker.add_ptx("wrong", &wrong), is_compile)?;
    // SAFETY: the file does not exist.
    let missing = unsafe { linker.add_file(LinkInput::Cubin, "/nonexistent/code.cubin") };
    let not_found = cuda_safe::CUresult::CUDA_ERROR_FILE_NOT_FOUND;
    expect(missing, |error| error.code() == Some(not_found))?;
    linker.add_ptx("twice", TWICE)?;
    let linked = completed(trace, linker)?;

    let mut alone = Linker::new(&context)?;
    alone.add_ptx("apply", APPLY)?;
    expect(completed(trace, alone), is_compile)?;
    trace.drop(Linker::new(&context)?);

    let module = Module::from_linked(&context, &linked)?;
    let library = Library::from_linked(&linked)?;
    let apply = library.kernel(&context, "apply")?;
    apply.typed::<(&mut [u32],)>()?;
    trace.drop((module, context));
    trace.drops_from_here()
}

/// Completes a linker, which is destroyed after it returned its image.
fn completed(trace: &mut Trace, linker: Linker) -> Result<Linked> {
    trace.drops_after("cuLinkComplete", || linker.complete())
}
