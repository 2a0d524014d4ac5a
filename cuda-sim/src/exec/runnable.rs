//! Kernels that are ready to be launched.

use super::kernel::KernelFn;
use crate::code::{Code, KernelInfo, Variable};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A kernel of a module with the host function that is registered for it, if any.
#[derive(Clone)]
pub(crate) struct Runnable {
    pub(crate) info: Arc<KernelInfo>,
    /// The function handle that the kernel was launched by.
    pub(crate) function: usize,
    /// The module or library of the kernel.
    pub(crate) module: usize,
    pub(crate) body: Option<KernelFn>,
    /// What runs if there is no host function.
    pub(crate) code: Code,
    pub(crate) settings: FunctionSettings,
    /// The variables of its module in the context where it runs.
    pub(crate) variables: Option<Arc<Placed>>,
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

/// The variables of a module in a context.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) variables: Arc<[Variable]>,
    pub(crate) addresses: Vec<u64>,
    /// The first variable of each name, and the first managed one.
    names: HashMap<String, [Option<usize>; 2]>,
    /// Whether their initial values have the addresses of other variables.
    pub(crate) is_relocated: AtomicBool,
}

impl Placed {
    pub(crate) fn new(variables: Arc<[Variable]>, addresses: Vec<u64>) -> Self {
        let mut names: HashMap<String, [Option<usize>; 2]> = HashMap::new();
        for (index, its) in variables.iter().enumerate() {
            let [first, managed] = names.entry(its.name.clone()).or_default();
            first.get_or_insert(index);
            if its.managed {
                managed.get_or_insert(index);
            }
        }
        Self { variables, addresses, names, is_relocated: AtomicBool::new(false) }
    }

    /// Returns the address and the size of a variable.
    pub(crate) fn find(&self, name: &str, managed: bool) -> Option<(u64, usize)> {
        let index = self.names.get(name)?[usize::from(managed)]?;
        Some((*self.addresses.get(index)?, self.variables.get(index)?.size))
    }
}
