//! Kernels that are ready to be launched.

use super::kernel::KernelFn;
use crate::code::KernelInfo;

/// A kernel of a module with the host function that is registered for it, if any.
#[derive(Clone)]
pub(crate) struct Runnable {
    pub(crate) info: KernelInfo,
    /// The function handle that the kernel was launched by.
    pub(crate) function: usize,
    /// The module or library of the kernel.
    pub(crate) module: usize,
    pub(crate) body: Option<KernelFn>,
    pub(crate) settings: FunctionSettings,
    /// The variables of its module in the context where it runs: name, address, size.
    pub(crate) variables: Vec<(String, u64, usize)>,
}

impl std::fmt::Debug for Runnable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runnable")
            .field("info", &self.info)
            .field("registered", &self.body.is_some())
            .finish()
    }
}

/// The settings of a kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionSettings {
    /// Maximum dynamic shared memory of a block, if it was set.
    pub(crate) dynamic_shared: Option<u32>,
    /// In percent. `None` for the driver's choice.
    pub(crate) carveout: Option<u32>,
    /// Zeros if it was not set; the size in the PTX then applies.
    pub(crate) cluster: [u32; 3],
    pub(crate) non_portable: bool,
    pub(crate) policy: u32,
    pub(crate) shared_mode: u32,
    pub(crate) cache: u32,
    pub(crate) loaded: bool,
}
