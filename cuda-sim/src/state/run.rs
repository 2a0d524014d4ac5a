//! How calls run enqueued work, and wait for it.

use super::{Answer, World};
use crate::account::misuse;
use crate::exec::{Callback, Done, Executor, Failure, Progress};
use cuda_sys::CUresult;

/// The operation that a call waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// `None` if there is nothing to wait for.
    pub(crate) operation: Option<u64>,
    /// Whether the wait has not ended.
    is_waiting: bool,
}

impl World {
    /// Runs work until `done` returns true.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Executor) -> bool) -> Answer {
        while !done(&self.runs.executor) {
            if !self.step()? {
                self.stuck()?;
                break;
            }
        }
        self.runs.fatal.map_or(Ok(()), Err)
    }

    /// Waits for the operation that `given` returns. `given` is called once, although the body of a call
    /// runs again after each callback: it must wait for the same operation.
    pub(crate) fn wait_for(
        &mut self,
        given: impl FnOnce(&mut Self) -> Answer<Option<u64>>,
    ) -> Answer {
        let mut kept = match self.runs.kept {
            Some(kept) => kept,
            None => {
                let operation = given(self)?;
                self.begin_wait(operation);
                Kept { operation, is_waiting: true }
            }
        };
        let operation = kept.operation;
        let done = self.run_until(|executor| operation.is_none_or(|id| executor.is_done(id)));
        let is_interrupted = matches!(done, Err(Self::CALLBACK | Self::WAIT));
        if kept.is_waiting && !is_interrupted {
            self.end_wait(operation, done);
            kept.is_waiting = false;
        }
        self.runs.kept = Some(kept);
        done
    }

    /// Called when a call returns. It may return without the end of its wait: a callback of another thread has
    /// failed or has destroyed an object that the call names.
    pub(crate) fn abandon_wait(&mut self, kept: Option<Kept>) {
        if let Some(kept) = kept.filter(|kept| kept.is_waiting) {
            self.end_wait(kept.operation, Err(CUresult::CUDA_ERROR_UNKNOWN));
        }
    }

    /// Runs the work that can run now, without waiting for other threads.
    pub(crate) fn run_ready(&mut self) -> Answer {
        while self.step()? {}
        Ok(())
    }

    /// Called when no work is ready. Returns an error if the reason is a callback that has not ended.
    fn stuck(&mut self) -> Answer {
        self.take_back()?;
        let memory = &self.objects.memory;
        match (self.runs.executor.in_callbacks(), self.runs.executor.awaited_value(memory)) {
            (Progress::None, Some(address)) => {
                misuse(match memory.is_signal(address) {
                    true => {
                        "a stream waits for an external semaphore that nothing has signaled; a real GPU hangs"
                    }
                    false => {
                        "a stream waits for a value that no enqueued work writes; a real GPU hangs"
                    }
                });
                Err(CUresult::CUDA_ERROR_NOT_PERMITTED)
            }
            // A real GPU would hang, too, until another thread or process makes the missing call.
            (Progress::None, None) if self.runs.executor.has_joint() => Err(Self::WAIT),
            (Progress::None, None) => Ok(()),
            (Progress::Elsewhere, _) => Err(Self::WAIT),
            (Progress::Never, _) => {
                misuse("a host function waits for work that comes after it; a real driver hangs");
                Err(CUresult::CUDA_ERROR_NOT_PERMITTED)
            }
        }
    }

    /// Runs one operation, if one is ready.
    pub(crate) fn step(&mut self) -> Answer<bool> {
        if let Some(fatal) = self.runs.fatal {
            return Err(fatal);
        }
        let done = self.runs.executor.step(&mut self.objects.memory);
        self.runs.executor.apply_marks(&mut self.objects.memory);
        match done {
            None => return Ok(false),
            Some(Done::Well) => self.start_from_device(),
            Some(Done::Recorded(event, tick)) => {
                if let Some(event) = self.objects.events.get_mut(event) {
                    // Only the last record counts: an older one may run before or after it.
                    if event.time.is_none()
                        && event.recorded.is_some_and(|last| self.runs.executor.is_done(last))
                    {
                        event.time = Some(tick);
                    }
                }
            }
            Some(Done::Host(callback)) => {
                self.runs.executor.callback = Some(callback);
                return Err(Self::CALLBACK);
            }
            Some(Done::Fatal(Failure { code, text })) => {
                misuse(text);
                if !self.settings.profile.lenient_misuse {
                    self.runs.fatal = Some(code);
                    return Err(code);
                }
            }
        }
        Ok(true)
    }

    /// Returns the callbacks that must be notified of a fatal error.
    pub(crate) fn failed_callbacks(&mut self) -> Vec<Callback> {
        let failed = self.runs.fatal.map(|fatal| self.runs.executor.take_failed(fatal));
        failed.unwrap_or_default()
    }

    /// Runs all work, and all callbacks on the driver's thread that no call waits for.
    pub(crate) fn run_everything(&mut self) -> Answer {
        self.run_until(Executor::is_empty)?;
        self.host_learns_all();
        Ok(())
    }

    /// Runs all work. `cuMemFree`, unloading a module and destroying a context do this first.
    pub(crate) fn run_all(&mut self) -> Answer {
        let current = self.current().and_then(|current| self.context(current));
        let device = current.ok().map(|context| context.device);
        self.run_all_of(device)
    }

    /// Runs all work. If nothing is ready because operations of other devices wait for their peers, that is enough: a
    /// call waits for its own device.
    fn run_all_of(&mut self, device: Option<usize>) -> Answer {
        while !self.runs.executor.is_all_idle() {
            if self.step()? {
                continue;
            }
            let is_of_device = |stream: usize| {
                let context = self.objects.streams.get(stream).map(|its| its.context);
                let context = context.and_then(|context| self.objects.contexts.get(context));
                device.is_none() || context.is_none_or(|its| Some(its.device) == device)
            };
            let executor = &self.runs.executor;
            if executor.has_joint() && !executor.busy_streams().any(is_of_device) {
                break;
            }
            self.stuck()?;
            break;
        }
        self.runs.fatal.map_or(Ok(()), Err)?;
        self.host_learns_all();
        Ok(())
    }

    /// The same as [`run_all`](Self::run_all) for a call that destroys something whether the work
    /// succeeds or fails. The outer error means that a callback must run or end before the body runs
    /// again, or that this call is inside the callback that it would wait for.
    pub(crate) fn run_down(&mut self) -> Answer<Answer> {
        let done = self.run_all();
        self.run_down_after(done)
    }

    /// The same for a call that ends something of a device.
    pub(crate) fn run_down_device(&mut self, device: usize) -> Answer<Answer> {
        let done = self.run_all_of(Some(device));
        self.run_down_after(done)
    }

    fn run_down_after(&self, done: Answer) -> Answer<Answer> {
        match done {
            Err(code) if self.runs.fatal.is_none() => Err(code),
            done => Ok(done),
        }
    }
}
