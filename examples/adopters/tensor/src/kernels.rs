//! The kernels of an element type: generated as CUDA C++, compiled once, and typed.

use crate::element::Element;
use crate::error::Result;
use cuda_nvrtc::{Cache, CompileOptions, Program, Target};
use cuda_safe::{Context, Module, TypedKernel};

/// A kernel with the parameters `(a, b, out, x, y, z)`. kernels.cu says what the numbers mean.
pub(crate) type Kernel<T> =
    TypedKernel<(&'static [T], &'static [T], &'static mut [T], u32, u32, u32)>;

/// The number of threads in a block of each kernel.
pub(crate) const THREADS: u32 = 256;

/// The kernels of one element type.
#[derive(Debug)]
pub(crate) struct Kernels<T: Element> {
    pub(crate) add: Kernel<T>,
    pub(crate) mul: Kernel<T>,
    pub(crate) max: Kernel<T>,
    pub(crate) sum: Kernel<T>,
    pub(crate) matmul: Kernel<T>,
}

impl<T: Element> Kernels<T> {
    /// Compiles the kernels, or takes them from the cache, and loads them.
    pub(crate) fn load(context: &Context, cache: &Cache) -> Result<Self> {
        let module = match compile::<T>(context, cache) {
            // NVRTC is not installed, or it is not for this device or this driver.
            Err(error) if error.is_unavailable() => {
                Module::from_ptx(context, include_str!("kernels.ptx"))?
            }
            compiled => compiled?,
        };
        let kernel = |name: &str| module.kernel(&format!("{name}_{}", T::SUFFIX))?.typed();
        Ok(Self {
            add: kernel("add")?,
            mul: kernel("mul")?,
            max: kernel("max")?,
            sum: kernel("sum")?,
            matmul: kernel("matmul")?,
        })
    }
}

/// Compiles the source for the element type and the device.
fn compile<T: Element>(context: &Context, cache: &Cache) -> cuda_nvrtc::Result<Module> {
    let (name, suffix) = (T::C_NAME, T::SUFFIX);
    let source = format!(
        "typedef {name} T;\n#define NAME(op) op##_{suffix}\n#line 1 \"kernels.cu\"\n{}",
        include_str!("kernels.cu")
    );
    let options = CompileOptions {
        target: Some(Target::of_device(&context.device())?),
        ..Default::default()
    };
    cache.compile(&Program::new(source), &options)?.load(context)
}
