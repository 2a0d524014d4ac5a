//! The kernels, with their types.

use cuda_safe::{Context, Module, Result, TypedKernel};

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
