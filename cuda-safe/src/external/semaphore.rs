//! What both types of semaphores share: imports, enqueued operations, and the destruction after them.

use super::memory::create;
use crate::call::{Answer, Result, answer, call, without_current};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::event::LastUse;
use crate::release::{Handle, Keep, destroy, release};
use crate::stream::{Stream, same_context};
use crate::sync::{Mutex, lock};
use cuda_sys::{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUexternalSemaphore, CUexternalSemaphoreHandleType,
    CUresult, Zeroable,
};
use std::sync::Arc;
#[cfg(unix)]
use {super::memory::import_descriptor, crate::call::Rejected, std::os::fd::OwnedFd};

/// A semaphore, with the last uses by streams.
pub(super) struct Semaphore {
    imported: Arc<Imported>,
    uses: Mutex<Vec<LastUse>>,
    /// The stream of the last ordered operation.
    last: Option<Stream>,
}

struct Imported {
    raw: Handle<CUexternalSemaphore>,
    context: Context,
}

impl Semaphore {
    /// # Safety
    /// The handle is that of a semaphore with the described properties.
    #[inline]
    pub(super) unsafe fn import_from(
        context: &Context,
        description: &CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    ) -> Result<Self> {
        let from = &raw const *description;
        // SAFETY: `create` passes a valid pointer, and the caller promises a valid handle.
        let raw =
            create(context, |place| unsafe { call!(cuImportExternalSemaphore(place, from)) })?;
        Ok(Self::own(raw, context))
    }

    /// # Safety
    /// The descriptor is that of a semaphore of this type.
    #[cfg(unix)]
    #[inline]
    pub(super) unsafe fn import(
        context: &Context,
        kind: CUexternalSemaphoreHandleType,
        descriptor: OwnedFd,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let mut description = description(kind);
        import_descriptor("cuImportExternalSemaphore", descriptor, |descriptor| {
            description.handle.fd = descriptor;
            // SAFETY: the descriptor is open, and the caller promises what it is.
            unsafe { Self::import_from(context, &description) }
        })
    }

    #[inline]
    pub(super) fn own(raw: CUexternalSemaphore, context: &Context) -> Self {
        let imported = Arc::new(Imported { raw: Handle(raw), context: context.clone() });
        Self { imported, uses: Mutex::default(), last: None }
    }

    #[inline]
    pub(super) fn raw(&self) -> CUexternalSemaphore {
        self.imported.raw.0
    }

    #[inline]
    pub(super) fn context(&self) -> &Context {
        &self.imported.context
    }

    /// Notes that work on a stream uses the semaphore.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext); errors of the driver.
    #[inline]
    fn note_use(&self, stream: &Stream) -> Result<()> {
        same_context("the stream", stream.context(), &self.imported.context)?;
        let is_known = |uses: &[LastUse]| uses.iter().any(|its| its.stream() == stream);
        if is_known(&lock(&self.uses)) {
            return Ok(());
        }
        // Created without the lock.
        let end = stream.context().event()?;
        let mut uses = lock(&self.uses);
        if !is_known(&uses) {
            uses.push(LastUse::new(stream, end));
        }
        Ok(())
    }

    /// Orders an operation on a stream after the last ordered one.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); errors of the driver.
    #[inline]
    fn order(&self, stream: &Stream) -> Result<()> {
        same_context("the stream", stream.context(), self.context())?;
        let Some(last) = self.last.as_ref().filter(|last| *last != stream) else { return Ok(()) };
        let event = self.context().event()?;
        event.record_uncaptured(last)?;
        stream.wait_private(&event)
    }

    /// Enqueues a signal after the last ordered operation.
    ///
    /// # Errors
    /// See [`order`](Self::order).
    #[inline]
    pub(super) fn signal(
        &mut self,
        stream: &Stream,
        parameters: &CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    ) -> Result<()> {
        self.order(stream)?;
        let _call = stream.uncaptured(Operation::Semaphore)?;
        self.note_use(stream)?;
        let (raw, from) = (self.raw(), &raw const *parameters);
        without_current(stream.context(), || {
            // SAFETY: the semaphore is alive until the work of the stream is complete, the stream is alive, and the
            // driver copies one semaphore and its parameters.
            unsafe {
                answer!(cuSignalExternalSemaphoresAsync(&raw const raw, from, 1, stream.raw()))
            }
        })?;
        self.last = Some(stream.clone());
        Ok(())
    }

    /// Enqueues a wait after the last ordered operation.
    ///
    /// # Errors
    /// See [`order`](Self::order).
    #[inline]
    pub(super) fn wait_in_order(
        &mut self,
        stream: &Stream,
        parameters: &CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    ) -> Result<()> {
        self.order(stream)?;
        self.wait(stream, parameters)?;
        self.last = Some(stream.clone());
        Ok(())
    }

    /// Enqueues a wait.
    ///
    /// # Errors
    /// See [`order`](Self::order).
    #[inline]
    pub(super) fn wait(
        &self,
        stream: &Stream,
        parameters: &CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    ) -> Result<()> {
        let _call = stream.uncaptured(Operation::Semaphore)?;
        self.note_use(stream)?;
        let (raw, from) = (self.raw(), &raw const *parameters);
        without_current(stream.context(), || {
            // SAFETY: as for a signal.
            unsafe { answer!(cuWaitExternalSemaphoresAsync(&raw const raw, from, 1, stream.raw())) }
        })
    }
}

#[inline]
pub(super) fn description(
    kind: CUexternalSemaphoreHandleType,
) -> CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
    let mut description = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC::zeroed();
    description.type_ = kind;
    description
}

#[inline]
pub(super) fn signal_of(value: u64) -> CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
    let mut parameters = CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS::zeroed();
    parameters.params.fence.value = value;
    parameters
}

#[inline]
pub(super) fn wait_of(value: u64) -> CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
    let mut parameters = CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::zeroed();
    parameters.params.fence.value = value;
    parameters
}

destroy! {
    Handle<CUexternalSemaphore> as "an external semaphore";
    // SAFETY: this value stands for the semaphore, and the caller promises that this is the first call. Each use on a
    // stream keeps the semaphore until it is complete.
    |its| unsafe { answer!(cuDestroyExternalSemaphore(its.0)) }
}

impl Drop for Imported {
    #[inline]
    fn drop(&mut self) {
        release(self.raw, &self.context);
    }
}

/// The uses of a semaphore by a stream, which keep it.
struct Uses {
    last: LastUse,
    imported: Arc<Imported>,
}

destroy! {
    Uses as "the use of an external semaphore";
    |its| its.last.obstacle().unwrap_or(Answer {
        call: "cuDestroyExternalSemaphore",
        code: CUresult::CUDA_SUCCESS,
    });

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(self.imported.clone());
    }
}

impl Drop for Semaphore {
    #[inline]
    fn drop(&mut self) {
        let uses = std::mem::take(&mut *lock(&self.uses));
        for last in uses {
            let stream = last.stream().clone();
            release(Uses { last, imported: self.imported.clone() }, &stream);
        }
    }
}
