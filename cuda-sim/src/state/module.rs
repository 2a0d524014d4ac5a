//! The functions and variables of modules and libraries.

use super::handles::State;
use super::objects::{Function, Module};
use super::{Answer, World};
use crate::account::misuse;
use crate::code::KernelInfo;
use crate::exec::{FunctionSettings, Placed};
use crate::memory::Kind;
use cuda_sys::CUresult;
use std::sync::Arc;

impl World {
    /// Creates a handle for each kernel of a module. Later queries return the same handle.
    pub(crate) fn add_functions(
        &mut self,
        module: usize,
        context: Option<usize>,
        count: usize,
    ) -> Vec<usize> {
        (0..count)
            .map(|kernel| {
                self.objects.functions.insert(Function {
                    module,
                    context,
                    kernel,
                    settings: FunctionSettings::default(),
                    is_kernel: context.is_none(),
                    function: None,
                })
            })
            .collect()
    }

    pub(crate) fn module(&self, handle: usize) -> Answer<&Module> {
        let module =
            self.objects.modules.get(handle).or_else(|| self.objects.libraries.get(handle));
        module.ok_or_else(|| {
            if self.objects.modules.state(handle) == State::Dead
                || self.objects.libraries.state(handle) == State::Dead
            {
                misuse("a module or library is used after it was unloaded");
            }
            CUresult::CUDA_ERROR_INVALID_HANDLE
        })
    }

    /// Returns the kernel of a function handle, or of a library's kernel handle, which is the same here.
    pub(crate) fn kernel_info(&self, function: usize) -> Answer<&KernelInfo> {
        let function = self.function(function)?;
        Ok(&self.module(function.module)?.kernels[function.kernel])
    }

    /// Allocates the variables of a module or library in a context, unless they are allocated there.
    pub(crate) fn place_variables(&mut self, module: usize, context: usize) -> Answer {
        let its = self.module(module)?;
        its.refused.map_or(Ok(()), Err)?;
        if its.placed.contains_key(&context) {
            return Ok(());
        }
        let device = self.context(context)?.device;
        let mut places = Vec::new();
        let variables = its.variables.clone();
        for variable in variables.iter() {
            let limit = self.settings.profile.gpu.memory;
            let size = variable.size.max(1);
            let place = self.objects.memory.allocate(size, Kind::Plain, context, device, limit)?;
            self.objects.memory.add_variable(place);
            self.objects.memory.note_all_written(place);
            if let Ok(bytes) = self.objects.memory.bytes(place, size) {
                bytes.fill(0);
                bytes[..variable.initial.len()].copy_from_slice(&variable.initial);
            }
            places.push(place);
        }
        let its = match self.objects.modules.get_mut(module) {
            Some(its) => Some(its),
            None => self.objects.libraries.get_mut(module),
        };
        if let Some(its) = its {
            let placed = Placed::new(variables, places);
            its.placed.insert(context, Arc::new(placed));
        }
        Ok(())
    }

    /// Removes the functions and variables of an unloaded module.
    pub(crate) fn forget_functions(&mut self, module: &Module) {
        for address in module.placed.values().flat_map(|its| &its.addresses) {
            self.objects.memory.free(*address);
        }
        for function in &module.functions {
            let its = self.objects.functions.remove(*function);
            if let Some(function) = its.and_then(|its| its.function) {
                self.objects.functions.remove(function);
            }
        }
    }

    /// Returns the function of a library's kernel. Later queries return the same handle.
    pub(crate) fn function_of_kernel(&mut self, kernel: usize) -> Answer<usize> {
        let its = self.function(kernel)?.clone();
        if let Some(function) = its.function {
            return Ok(function);
        }
        let mut made = Function { is_kernel: false, ..its };
        made.settings.loaded = true;
        let made = self.objects.functions.insert(made);
        if let Some(its) = self.objects.functions.get_mut(kernel) {
            its.function = Some(made);
        }
        Ok(made)
    }
}
