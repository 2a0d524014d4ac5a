//! The kernels, with their types and with implementations for the software driver.

use cuda_safe::{Context, Module, Result, TypedKernel};
use cuda_sim::kernel::register;

pub(crate) struct Kernels {
    /// `(data, out, steps)`
    pub(crate) respond: TypedKernel<(&'static [f32], &'static mut [f32], u32)>,
    /// `(out, cycles)`
    pub(crate) compute: TypedKernel<(&'static mut [f32], u32)>,
    /// `(data, number of 16-byte words per block)`
    pub(crate) sweep: TypedKernel<(&'static mut [u32], u32)>,
}

impl Kernels {
    pub(crate) fn load(context: &Context) -> Result<Self> {
        let module = Module::from_ptx(context, include_str!("kernels.ptx"))?;
        Ok(Self {
            respond: module.kernel("respond")?.typed()?,
            compute: module.kernel("compute")?.typed()?,
            sweep: module.kernel("sweep")?.typed()?,
        })
    }
}

/// Registers the kernels with the software driver. They only access their memory and compute nothing,
/// because times on the software driver are meaningless.
pub(crate) fn register_kernels() {
    register("respond", |launch| {
        launch.read::<f32>(0, 1)?;
        let threads = launch.blocks() * launch.block()[0] as usize;
        launch.update::<f32>(1, threads, |_, x| x)
    });
    register("compute", |launch| {
        let threads = launch.blocks() * launch.block()[0] as usize;
        launch.update::<f32>(0, threads, |_, x| x)
    });
    register("sweep", |launch| {
        let words = 4 * launch.blocks() * launch.value::<u32>(1)? as usize;
        launch.update::<u32>(0, words, |_, x| x.wrapping_add(1))
    });
}
