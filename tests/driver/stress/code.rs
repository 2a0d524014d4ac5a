//! Modules, their variables, the linker, and kernels. Releasing code waits for all work, so actions
//! that load a module run rarely.

use super::worker::Worker;
use crate::module::kernels::{APPLY, GLOBALS, TWICE, kernel_of, nothing};
use cuda_safe::launch::LaunchAttributes;
use cuda_safe::module::Linker;
use cuda_safe::module::attribute as of;
use cuda_safe::{DeviceBuffer, LaunchConfig, Module, Result};

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

pub(super) fn module(worker: &mut Worker<'_>) -> Result<()> {
    if worker.below(8) != 0 {
        return Ok(());
    }
    let stream = worker.stream()?;
    let nothing = nothing(stream.context());
    // SAFETY: the kernel does nothing.
    unsafe { nothing.launch(&stream, ONE, ()) }
}

pub(super) fn variable(worker: &mut Worker<'_>) -> Result<()> {
    if worker.below(8) != 0 {
        return Ok(());
    }
    let stream = worker.stream()?;
    let module = Module::from_ptx(stream.context(), GLOBALS)?;
    let bump = kernel_of::<(u32,)>(&module, "bump");
    let counter = module.global("counter")?;
    // SAFETY: the module belongs to this thread, which uses it on this stream only.
    let mut value = unsafe { counter.buffer::<u32>(&stream) }?;
    let start = worker.below(100) as u32;
    value.copy_from_slice(&[start])?;
    // SAFETY: the kernel modifies the variable, which only work of this stream uses.
    unsafe { bump.launch(&stream, ONE, (3,)) }?;
    assert_eq!(value.to_vec()?, [start + 3]);
    Ok(())
}

pub(super) fn link(worker: &mut Worker<'_>) -> Result<()> {
    if worker.below(32) != 0 {
        return Ok(());
    }
    let stream = worker.stream()?;
    let mut linker = Linker::new(stream.context())?;
    linker.add_ptx("apply", APPLY)?;
    linker.add_ptx("twice", TWICE)?;
    let module = Module::from_linked(stream.context(), &linker.complete()?)?;
    let apply = kernel_of::<(&mut [u32],)>(&module, "apply");
    let mut x = DeviceBuffer::from_slice(&stream, &[1, 2])?;
    // SAFETY: the kernel has a thread for each of the 2 elements.
    unsafe { apply.launch(&stream, LaunchConfig::linear(1, 2), (&mut x,)) }?;
    assert_eq!(x.to_vec()?, [2, 4]);
    Ok(())
}

/// A launch with attributes that every device accepts.
pub(super) fn attributes(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let attributes = LaunchAttributes {
        cooperative: worker.below(2) == 0,
        priority: (worker.below(2) == 0).then_some(0),
        ..LaunchAttributes::default()
    };
    let nothing = &worker.arena.home(stream.context()).nothing;
    // SAFETY: the kernel does nothing.
    unsafe { nothing.launch_with(&stream, ONE, &attributes, ()) }
}

pub(super) fn ask_kernel(worker: &mut Worker<'_>) -> Result<()> {
    let kernel = worker.home().nothing.kernel();
    assert!(kernel.attribute(of::MAX_THREADS_PER_BLOCK)? > 0);
    assert!(kernel.max_active_blocks(64, Default::default())? > 0);
    assert!(kernel.suggested_block(Default::default())?.threads > 0);
    Ok(())
}
