//! The values of conditional handles, which kernels set.

use super::Memory;
use std::collections::BTreeMap;

/// By handle: the executable graph whose launches may set the value, and the value.
#[derive(Debug, Default)]
pub(super) struct Conditionals(BTreeMap<u64, (usize, u32)>);

impl Memory {
    /// Allows the launches of an executable graph to set a value. A value that exists stays.
    pub(crate) fn assign_conditional(&mut self, handle: u64, executable: usize) {
        self.conditionals.0.entry(handle).or_default().0 = executable;
    }

    pub(crate) fn forget_conditional(&mut self, handle: u64) {
        self.conditionals.0.remove(&handle);
    }

    pub(crate) fn conditional(&self, handle: u64) -> u32 {
        self.conditionals.0.get(&handle).map_or(0, |(_, value)| *value)
    }

    /// Sets a value at the start of a launch.
    pub(crate) fn reset_conditional(&mut self, handle: u64, value: u32) {
        if let Some(its) = self.conditionals.0.get_mut(&handle) {
            its.1 = value;
        }
    }

    /// Sets a value from a kernel of an executable graph. Measured: from any other kernel this is an
    /// illegal address.
    pub(crate) fn set_conditional(
        &mut self,
        handle: u64,
        value: u32,
        executable: Option<usize>,
    ) -> Result<(), String> {
        match self.conditionals.0.get_mut(&handle) {
            Some(its) if Some(its.0) == executable => {
                its.1 = value;
                Ok(())
            }
            _ => Err(format!(
                "the conditional handle {handle:#x} is set outside of a launch of its graph"
            )),
        }
    }
}
