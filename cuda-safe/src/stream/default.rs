//! Default streams, which differ between contexts or threads.

use super::{ExecutionContext, Partition, RetainedStream, host, query_result};
use crate::call::{HostPanic, Result, call, debug_struct, refuse_in_host_function};
use crate::capture_state::{Operation, State, is_capturing};
use crate::context::{Context, CurrentContext};
use crate::release;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};
use std::cell::RefCell;
use std::sync::Arc;

/// A default stream of the current context or green context. Code that names no stream uses it.
///
/// Get one from a guard, with [`CurrentContext::legacy_stream`] or
/// [`CurrentContext::per_thread_stream`].
///
/// The handles of default streams, 1 and 2, mean a different stream in each context or on each thread.
/// A default stream is therefore not a [`Stream`](crate::Stream), and no buffer can be bound to it.
/// This type borrows the guard and stays on its thread. Use it to order work with other code: wait for
/// its work, make it wait for an event, or record an event in it. For memory and launches, create
/// [a stream for each thread](#a-stream-for-each-thread).
///
/// Each call checks whether the context of the guard is still current (`cuCtxGetCurrent`). If it is
/// not, for example inside another guard, the context is made current for the duration of the call.
///
/// ```no_run
/// use cuda_safe::{Context, Device};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let event = context.event()?;
/// context.with_current(|current| {
///     // A C library that was called here has enqueued work in the default stream.
///     let default = current.legacy_stream();
///     default.record_event(&event)?;
///     stream.wait_event(&event)
/// })??;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # A stream for each thread
/// A buffer on the per-thread default stream could not leave its thread: dropped on another thread, it
/// would be freed in the order of that thread's stream, while its own work is still running. A stream
/// that is created once for each thread replaces the per-thread default stream. As a
/// [blocking](crate::StreamOptions::blocking) stream it is ordered with the legacy default stream in the
/// same way. It can be passed to libraries, and its buffers can be sent to other threads and outlive the
/// thread:
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, Result, Stream, StreamOptions};
/// use std::cell::OnceCell;
///
/// /// Returns the stream of this thread. A program with several contexts needs one for each.
/// fn thread_stream(context: &Context) -> Result<Stream> {
///     thread_local! {
///         static STREAM: OnceCell<Stream> = const { OnceCell::new() };
///     }
///     STREAM.with(|stream| {
///         if let Some(stream) = stream.get() {
///             return Ok(stream.clone());
///         }
///         let options = StreamOptions { blocking: true, ..Default::default() };
///         let new = context.stream_with(options)?;
///         Ok(stream.get_or_init(|| new).clone())
///     })
/// }
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let worker = std::thread::spawn(move || {
///     let stream = thread_stream(&context)?;
///     let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 3)?;
///     buffer.fill(7)?;
///     Ok::<_, cuda_safe::Error>(buffer)
/// });
/// let buffer = worker.join().expect("no panic")?;
/// assert_eq!(buffer.to_vec()?, [7, 7, 7]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct DefaultStream<'guard> {
    raw: CUstream,
    guard: &'guard CurrentContext,
    /// The green context, if the guard makes its view current.
    green: Option<&'guard Arc<dyn Partition>>,
}

impl CurrentContext {
    /// Returns the legacy default stream of the context (`CU_STREAM_LEGACY`), which the driver uses for
    /// stream 0. This stream and the *blocking* streams of the context
    /// ([`StreamOptions::blocking`](crate::StreamOptions::blocking)) wait for each other.
    ///
    /// Since CUDA 7.0.
    #[doc(alias = "CU_STREAM_LEGACY")]
    #[inline]
    pub fn legacy_stream(&self) -> DefaultStream<'_> {
        DefaultStream { raw: CU_STREAM_LEGACY, guard: self, green: None }
    }

    /// Returns the per-thread default stream of the context (`CU_STREAM_PER_THREAD`). It is a blocking
    /// stream.
    ///
    /// Since CUDA 7.0.
    #[doc(alias = "CU_STREAM_PER_THREAD")]
    #[inline]
    pub fn per_thread_stream(&self) -> DefaultStream<'_> {
        DefaultStream { raw: CU_STREAM_PER_THREAD, guard: self, green: None }
    }
}

impl<'guard> DefaultStream<'guard> {
    /// Returns the same default stream for a green context whose view is the context of the guard.
    #[inline]
    pub(crate) fn of_green(mut self, green: &'guard Arc<dyn Partition>) -> Self {
        self.green = Some(green);
        self
    }

    /// Returns the handle, 1 or 2. It means this stream only on this thread and while its context is
    /// current.
    #[inline]
    pub fn as_raw(&self) -> CUstream {
        self.raw
    }

    /// Returns the context of events and memory for this stream. For a default stream of a green
    /// context this is the primary context.
    #[inline]
    pub fn context(&self) -> &Context {
        match self.green {
            Some(green) => green.context(),
            None => self.guard.context(),
        }
    }

    /// Returns the green context, if the guard makes its view current.
    #[inline]
    pub(crate) fn partition(&self) -> Option<&'guard Arc<dyn Partition>> {
        self.green
    }

    /// Blocks the thread until all work in the stream is complete. Calls `cuStreamSynchronize`.
    ///
    /// # Errors
    /// See [`Stream::synchronize`](crate::Stream::synchronize). Panics are returned for host functions
    /// that were launched through default streams of the same guard.
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamSynchronize`](fn@cuda_sys::cuStreamSynchronize).
    #[doc(alias = "cuStreamSynchronize")]
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        refuse_in_host_function()?;
        release::drain();
        {
            let _current = self.guard.context().enter()?;
            // SAFETY: this is a default stream of the current context or of this thread, which always
            // exists.
            unsafe { call!(cuStreamSynchronize(self.raw)) }?;
        }
        self.host_panic().take()
    }

    /// Returns whether all work in the stream is complete. Calls `cuStreamQuery`.
    ///
    /// # Errors
    /// The errors of completed work; [`Error::Forked`](crate::Error::Forked).
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamQuery`](fn@cuda_sys::cuStreamQuery).
    #[doc(alias = "cuStreamQuery")]
    #[inline]
    pub fn is_complete(&self) -> Result<bool> {
        let _current = self.guard.context().enter()?;
        // SAFETY: as in `synchronize`.
        query_result(unsafe { call!(cuStreamQuery(self.raw)) })
    }

    /// Enqueues a function that runs once on a driver thread. Calls `cuLaunchHostFunc`. See
    /// [`Stream::launch_host_function`](crate::Stream::launch_host_function).
    ///
    /// If the function panics, the next [`synchronize`](Self::synchronize) of a default stream of this
    /// guard returns the panic as an error.
    ///
    /// # Errors
    /// See [`Stream::launch_host_function`](crate::Stream::launch_host_function).
    ///
    /// Since CUDA 10.0. Raw: [`cuLaunchHostFunc`](fn@cuda_sys::cuLaunchHostFunc).
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        release::drain();
        let _current = self.guard.context().enter()?;
        let state = self.state();
        let call = state.enter(Operation::HostFunction);
        // SAFETY: as in `synchronize`. (For the legacy stream, the driver reports whether a blocking
        // stream is captured.)
        let ask = || unsafe { is_capturing(self.raw) };
        let _call = call.uncaptured(Operation::HostFunction, ask)?;
        host::launch(function, self.host_panic(), |run, data| {
            // SAFETY: as in `synchronize`; the function runs once and takes the box in `data`.
            unsafe { call!(cuLaunchHostFunc(self.raw, run, data)) }
        })
    }

    /// Returns the context that must be current for calls: that of the guard, which for a green context differs from
    /// [`context`](Self::context).
    #[inline]
    pub(crate) fn current_context(&self) -> &Context {
        self.guard.context()
    }

    /// Returns the object that a graph of this stream's work retains.
    #[inline]
    pub(crate) fn retained(&self) -> RetainedStream {
        RetainedStream::Home(match self.green {
            Some(green) => ExecutionContext::Green(Arc::clone(green)),
            None => ExecutionContext::Context(self.context().clone()),
        })
    }

    /// Returns the capture state. The per-thread default stream has one for each thread and context.
    /// The legacy default stream is never captured.
    #[inline]
    pub(crate) fn state(&self) -> Arc<State> {
        type States = Vec<(usize, Option<u64>, Arc<State>)>;
        thread_local! {
            static STATES: RefCell<States> = const { RefCell::new(Vec::new()) };
        }
        let current = self.guard.context();
        let (raw, id) = (current.as_raw().addr(), current.id());
        if self.raw == CU_STREAM_LEGACY {
            return State::of_default();
        }
        let state = STATES.try_with(|states| {
            let mut states = states.borrow_mut();
            let known = states.iter().find(|entry| (entry.0, entry.1) == (raw, id));
            if let Some((.., state)) = known {
                return Arc::clone(state);
            }
            // A state that no capture refers to has no information.
            states.retain(|(.., state)| Arc::strong_count(state) > 1);
            let state = State::of_default();
            states.push((raw, id, Arc::clone(&state)));
            state
        });
        // While a thread exits, the thread-local storage may already be destroyed.
        state.unwrap_or_else(|_| State::of_default())
    }

    #[inline]
    fn host_panic(&self) -> &Arc<HostPanic> {
        self.guard.host_panic()
    }
}

debug_struct! {
    DefaultStream<'_> |its| { raw: its.raw, context: its.context(), green: its.green.is_some() }
}
