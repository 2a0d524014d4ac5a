//! Processes that use CUDA, as `cuCheckpointProcess*` sees them.

use crate::state::{Answer, fail_if, with};
use cuda_sys::{CUprocessState as State, CUresult};
use std::collections::BTreeMap;

/// A process that uses CUDA. The software driver knows its own process; a test adds others with
/// [`add_process`](crate::add_process). They do not run, so a lock blocks nothing.
#[derive(Clone, Debug, Default)]
pub struct CudaProcess {
    /// Whether its GPU is so busy that a lock with a time limit fails.
    pub is_busy: bool,
    /// Whether it has managed memory, so that it cannot be checkpointed.
    pub has_managed_memory: bool,
    /// Whether it has imported memory of another process, by a file descriptor or an IPC handle. It can
    /// be checkpointed, but never restored.
    pub has_imports: bool,
}

#[derive(Debug)]
struct Known {
    properties: CudaProcess,
    state: State,
}

impl Known {
    fn new(properties: CudaProcess) -> Self {
        Self { properties, state: State::CU_PROCESS_STATE_RUNNING }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Processes {
    known: BTreeMap<i32, Known>,
}

/// Adds a process that uses CUDA, or replaces it. Its state is running.
pub fn add_process(pid: u32, properties: CudaProcess) {
    with(|world| {
        let known = Known::new(properties);
        world.settings.processes.known.insert(pid as i32, known);
    });
}

impl Processes {
    fn known(&mut self, pid: i32, initialised: bool) -> Answer<&mut Known> {
        if initialised && pid == std::process::id() as i32 {
            let own = self.known.entry(pid);
            return Ok(own.or_insert_with(|| Known::new(CudaProcess::default())));
        }
        let exists = pid > 0 && std::path::Path::new(&format!("/proc/{pid}")).exists();
        self.known.get_mut(&pid).ok_or(if exists {
            CUresult::CUDA_ERROR_NOT_INITIALIZED
        } else {
            CUresult::CUDA_ERROR_OPERATING_SYSTEM
        })
    }

    pub(crate) fn state(&mut self, pid: i32, initialised: bool) -> Answer<State> {
        Ok(self.known(pid, initialised)?.state)
    }

    /// Changes the state of a process. `check` may refuse the change.
    pub(crate) fn change(
        &mut self,
        pid: i32,
        initialised: bool,
        (from, to): (State, State),
        check: impl FnOnce(&CudaProcess) -> Answer,
    ) -> Answer {
        let known = self.known(pid, initialised)?;
        fail_if(known.state != from, CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        check(&known.properties)?;
        known.state = to;
        Ok(())
    }
}
