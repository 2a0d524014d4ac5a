//! Imported memory and semaphores of other APIs.

pub(crate) mod graphics;

use super::handles::{Handles, State};
use super::{Answer, World};
use crate::account::misuse;
use crate::memory::Signal;
use cuda_sys::CUresult;
use std::collections::BTreeSet;
use std::fs::File;

pub(crate) struct ExternalMemory {
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) file: File,
    /// Where the memory starts in the file.
    pub(crate) start: u64,
    /// The size that the program has declared, and that of the memory in the file.
    pub(crate) size: u64,
    pub(crate) file_size: u64,
    pub(crate) is_dedicated: bool,
    pub(crate) is_dma_buf: bool,
    /// The addresses of its mappings, also of those that were freed.
    pub(crate) mapped: Vec<u64>,
}

pub(crate) struct ExternalSemaphore {
    pub(crate) context: usize,
    pub(crate) signal: Signal,
    /// The address of its word.
    pub(crate) word: u64,
}

/// The memory and the semaphores of all contexts.
pub(crate) struct Externals {
    pub(crate) memories: Handles<ExternalMemory>,
    pub(crate) semaphores: Handles<ExternalSemaphore>,
    pub(crate) graphics: graphics::Graphics,
    /// Objects that were destroyed with their context.
    of_ended: BTreeSet<usize>,
}

impl Externals {
    pub(crate) fn new() -> Self {
        Self {
            memories: Handles::new(16),
            semaphores: Handles::new(17),
            graphics: graphics::Graphics::new(),
            of_ended: BTreeSet::new(),
        }
    }

    /// Returns the answer to a call with a handle that is not alive. A real driver crashes, unless the handle is null.
    fn not_alive(&self, handle: usize, state: State, what: &str) -> CUresult {
        if self.of_ended.contains(&handle) {
            misuse(format!(
                "{what} is used after its context was destroyed; a real driver crashes"
            ));
        } else if state == State::Dead {
            misuse(format!("{what} is used after it was destroyed; a real driver crashes"));
        }
        CUresult::CUDA_ERROR_INVALID_VALUE
    }
}

impl World {
    pub(crate) fn external_memory(&mut self, handle: usize) -> Answer<&mut ExternalMemory> {
        let its = &mut self.objects.externals;
        let state = its.memories.state(handle);
        if state != State::Alive {
            return Err(its.not_alive(handle, state, "external memory"));
        }
        its.memories.get_mut(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn external_semaphore(&self, handle: usize) -> Answer<&ExternalSemaphore> {
        let its = &self.objects.externals;
        let state = its.semaphores.state(handle);
        let found = its.semaphores.get(handle);
        found.ok_or_else(|| its.not_alive(handle, state, "an external semaphore"))
    }

    pub(crate) fn add_external_memory(&mut self, memory: ExternalMemory) -> usize {
        let size = memory.size;
        let handle = self.objects.externals.memories.insert(memory);
        self.objects.memory.note_site_of_handle(handle, "external memory", size);
        handle
    }

    /// Removes external memory. Its mappings keep the contents.
    pub(crate) fn remove_external_memory(&mut self, handle: usize) {
        let removed = self.objects.externals.memories.remove(handle);
        for address in removed.into_iter().flat_map(|its| its.mapped) {
            self.objects.memory.external_is_destroyed(address);
        }
        self.objects.memory.forget_site_of_handle(handle);
    }

    pub(crate) fn add_external_semaphore(&mut self, semaphore: ExternalSemaphore) -> usize {
        let handle = self.objects.externals.semaphores.insert(semaphore);
        self.objects.memory.note_site_of_handle(handle, "an external semaphore", 0);
        handle
    }

    pub(crate) fn remove_external_semaphore(&mut self, handle: usize) {
        if let Some(removed) = self.objects.externals.semaphores.remove(handle) {
            self.objects.memory.free(removed.word);
            self.objects.memory.forget_site_of_handle(handle);
        }
    }

    /// Removes the memory and the semaphores of a context that is destroyed.
    pub(crate) fn forget_externals_of(&mut self, context: usize) {
        self.forget_registered_of(context);
        let its = &mut self.objects.externals;
        let memories = its.memories.iter().filter(|(_, its)| its.context == context);
        let memories: Vec<usize> = memories.map(|(handle, _)| handle).collect();
        let semaphores = its.semaphores.iter().filter(|(_, its)| its.context == context);
        let semaphores: Vec<usize> = semaphores.map(|(handle, _)| handle).collect();
        its.of_ended.extend(memories.iter().chain(&semaphores));
        for handle in memories {
            self.objects.memory.end_site_of_handle(handle);
            self.remove_external_memory(handle);
        }
        for handle in semaphores {
            self.objects.memory.end_site_of_handle(handle);
            self.remove_external_semaphore(handle);
        }
    }
}
