//! Arguments of recorded calls. With them a test checks how an option is passed to the driver.

use cuda_sys::{
    CUcheckpointRestoreArgs, CUctxCreateParams, CUlaunchConfig, CUstreamCigCaptureParams,
};
use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An argument of a [`Call`](crate::Call): the value, or a copy of the values that a pointer referred to
/// when the call began.
#[derive(Clone)]
pub struct Argument {
    /// The parameter's name in this crate, or `config.attrs` for the array that a field of `config`
    /// points to.
    pub name: &'static str,
    type_name: &'static str,
    values: Arc<dyn Any + Send + Sync>,
}

/// The values of one argument, as the caller passed them.
struct Values<T>(Box<[T]>);

// SAFETY: `List` creates these only from arguments of driver functions, which are numbers and addresses
// that are never dereferenced.
unsafe impl<T> Send for Values<T> {}
// SAFETY: see the implementation of `Send`.
unsafe impl<T> Sync for Values<T> {}

impl Argument {
    fn new<T: Copy + 'static>(name: &'static str, values: &[T]) -> Self {
        Self { name, type_name: type_name::<T>(), values: Arc::new(Values(values.into())) }
    }

    /// Returns the values: one value for an argument that is passed by value, the elements of an array,
    /// or an empty slice for a null pointer. Returns `None` if `T` is not the type of the argument.
    pub fn values<T: 'static>(&self) -> Option<&[T]> {
        let values = self.values.downcast_ref::<Values<T>>()?;
        Some(&values.0)
    }
}

/// Prints the name and the type. [`values`](Argument::values) returns the values.
impl fmt::Debug for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.type_name)
    }
}

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Turns the recording of arguments on or off. It is off at first, because it takes time and memory in
/// every call.
///
/// Values behind a pointer are recorded for parameters from which the driver reads structures and
/// arrays, that is, for options. The memory that a copy moves is not recorded.
///
/// ```
/// use cuda_safe::{Context, Device};
/// use cuda_safe::context::Limit;
/// use cuda_sys::CUlimit;
///
/// # cuda_sim::install(cuda_sim::Profile::h200()).expect("nothing was called before");
/// let context = Context::primary(&Device::get(0)?)?;
/// cuda_sim::record_arguments(true);
/// context.set_limit(Limit::StackSize, 4096)?;
/// let calls = cuda_sim::calls();
/// let call = calls.iter().find(|call| call.function == "cuCtxSetLimit").expect("it was called");
/// assert_eq!(call.values("limit"), Some(&[CUlimit::CU_LIMIT_STACK_SIZE][..]));
/// assert_eq!(call.values::<usize>("value"), Some(&[4096][..]));
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub fn record_arguments(on: bool) {
    IS_ON.store(on, Ordering::Relaxed);
}

/// Returns the arguments that `fill` adds, or no arguments if recording is off.
#[inline]
pub(crate) fn arguments(fill: impl FnOnce(&mut List)) -> Vec<Argument> {
    if !IS_ON.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let mut list = List(Vec::new());
    fill(&mut list);
    list.0
}

/// The arguments of a call that is starting.
pub(crate) struct List(Vec<Argument>);

impl List {
    /// Adds an argument that is passed by value.
    pub(crate) fn value<T: Copy + 'static>(&mut self, name: &'static str, value: T) {
        self.0.push(Argument::new(name, &[value]));
    }

    /// Adds the values that a pointer refers to.
    ///
    /// # Safety
    /// `start` is null or points to `count` readable values. The same is true of the pointers in a
    /// `CUlaunchConfig`, in `CUctxCreateParams`, in `CUstreamCigCaptureParams` and in
    /// `CUcheckpointRestoreArgs`, with their counts.
    pub(crate) unsafe fn pointed<T: Copy + 'static>(
        &mut self,
        name: &'static str,
        start: *const T,
        count: usize,
    ) {
        let values = if start.is_null() || count == 0 {
            &[]
        } else {
            // SAFETY: the caller guarantees that `start` points to `count` readable values, and it is
            // not null here.
            unsafe { std::slice::from_raw_parts(start, count) }
        };
        self.0.push(Argument::new(name, values));
        if let Some(value) = values.first() {
            // SAFETY: the caller guarantees this for the pointers in the structures.
            unsafe { self.nested(value) };
        }
    }

    /// Adds the values that the pointers in a structure refer to.
    ///
    /// # Safety
    /// See [`pointed`](Self::pointed).
    unsafe fn nested(&mut self, value: &dyn Any) {
        if let Some(config) = value.downcast_ref::<CUlaunchConfig>() {
            // SAFETY: the caller guarantees this for the pointers in a `CUlaunchConfig`.
            unsafe { self.pointed("config.attrs", config.attrs, config.numAttrs as usize) };
        }
        if let Some(params) = value.downcast_ref::<CUctxCreateParams>() {
            let count = usize::try_from(params.numExecAffinityParams).unwrap_or(0);
            let affinity = params.execAffinityParams;
            // SAFETY: the caller guarantees this for the pointers in `CUctxCreateParams`.
            unsafe { self.pointed("params.execAffinityParams", affinity, count) };
            // SAFETY: the caller guarantees this for the pointers in `CUctxCreateParams`.
            unsafe { self.pointed("params.cigParams", params.cigParams, 1) };
        }
        if let Some(params) = value.downcast_ref::<CUstreamCigCaptureParams>() {
            let cig = params.streamCigParams;
            // SAFETY: the caller guarantees this for the pointer in `CUstreamCigCaptureParams`.
            unsafe { self.pointed("params.streamCigParams", cig, 1) };
        }
        if let Some(options) = value.downcast_ref::<CUcheckpointRestoreArgs>() {
            let count = options.gpuPairsCount as usize;
            // SAFETY: the caller guarantees this for the pointer in `CUcheckpointRestoreArgs`.
            unsafe { self.pointed("options.gpuPairs", options.gpuPairs, count) };
        }
    }
}
