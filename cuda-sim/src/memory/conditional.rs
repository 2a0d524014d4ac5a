//! What kernels do to graphs: they set the values of conditional handles, and launch graphs.

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

    /// Launches an executable graph from a kernel of another one, when the kernel's launch is complete.
    pub(crate) fn launch_graph(
        &mut self,
        own: Option<usize>,
        executable: u64,
    ) -> Result<(), String> {
        let own = own.ok_or("a kernel that is not part of a graph launches a graph")?;
        let launched = usize::try_from(executable).unwrap_or(0);
        if !self.device_launchable.contains(&launched) {
            return Err(format!(
                "{executable:#x} is not an uploaded graph that a device can launch"
            ));
        }
        self.device_launches.push((own, launched));
        Ok(())
    }
}
