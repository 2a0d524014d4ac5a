//! Stream-ordered changes of the bytes that a program makes inaccessible.

use super::{Answer, INVALID, World, fail_if};
use crate::races::Place;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUresult};

impl World {
    /// Makes bytes inaccessible, or accessible again, when a stream reaches this point, or at once without a stream.
    pub(crate) fn poison(
        &mut self,
        (address, len): (u64, usize),
        stream: Option<usize>,
        is_poisoned: bool,
    ) -> Answer {
        fail_if(!self.objects.memory.can_be_poisoned(address, len), INVALID)?;
        if len == 0 {
            return Ok(());
        }
        let bytes = address..address + len as u64;
        let stream = stream.map(|stream| self.stream_at(address, stream)).transpose()?;
        let capture = stream.and_then(|stream| self.objects.streams.get(stream)?.capture.as_ref());
        if capture.is_some() && is_poisoned {
            // No node of a graph stands for it.
            return Ok(());
        }
        let Some(stream) = stream.filter(|_| capture.is_none()) else {
            let memory = &mut self.objects.memory;
            memory.clear_poison(bytes.clone());
            if is_poisoned {
                let mark = memory.mark(bytes, Some(Place::Host));
                memory.apply_mark(mark);
            }
            return Ok(());
        };
        let place = self.objects.streams.get(stream).map(|its| its.place());
        let after = self.last_before(stream);
        let memory = &mut self.objects.memory;
        let mark = memory.mark(bytes, place.filter(|_| is_poisoned));
        self.runs.executor.mark_after(mark, &after, memory);
        Ok(())
    }

    /// Returns a stream by its handle. A default stream is that of the context which owns the memory at an address, or of
    /// the current context for mapped memory, which belongs to no context.
    fn stream_at(&mut self, address: u64, handle: usize) -> Answer<usize> {
        if handle > CU_STREAM_PER_THREAD.addr() {
            let is_alive = self.objects.streams.get(handle).is_some();
            return is_alive.then_some(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let context = match self.objects.memory.containing(address) {
            Some((_, its)) => its.context,
            None => self.current()?,
        };
        match handle <= CU_STREAM_LEGACY.addr() {
            true => Ok(self.context(context)?.legacy),
            false => self.per_thread_stream(context),
        }
    }
}
