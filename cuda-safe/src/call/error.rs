//! Errors.

use crate::call::invalid::Invalid;
use crate::call::texts::texts;
use crate::call::{convert, driver_log};
use cuda_sys::{CUresult, CudaVersion, LoadError, MissingFunction};
use std::fmt;
use std::sync::Arc;

/// A `Result` with [`Error`] as the default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns an error from the function if a condition holds: `refuse_if!(count == 0, Invalid::NoBodies)`.
macro_rules! refuse_if {
    ($condition:expr, $error:expr) => {
        if $condition {
            return Err($error.into());
        }
    };
}
pub(crate) use refuse_if;

/// The error type of this crate.
///
/// The type is small, `Send`, `Sync` and `'static`, so that it converts to any other error type. The
/// texts are available without a driver.
///
/// Every function that calls the driver can fail with [`Load`](Self::Load), [`Missing`](Self::Missing),
/// [`Forked`](Self::Forked) and the fatal codes of earlier work. In a host function it can also fail
/// with `CUDA_ERROR_NOT_PERMITTED`, because the driver permits few calls there. The "Errors" section of
/// a function lists only its additional errors.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, Error};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// match DeviceBuffer::<u8>::zeroed(&stream, 1 << 45) {
///     Ok(buffer) => println!("{} bytes", buffer.len()),
///     Err(Error::OutOfMemory(error)) => {
///         println!("not enough memory for {} bytes", error.bytes);
///     }
///     Err(Error::Missing(function)) => println!("the driver is too old: {function}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<_, Error>(())
/// ```
///
/// # Comparison
/// Two errors are equal if they are the same variant with equal values. Two
/// [`Manager`](Self::Manager) errors are equal only if they share one error object (they are clones of
/// one error), because that object may not be comparable.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// A driver function returned an error code.
    Driver(DriverError),
    /// The driver returned `CUDA_ERROR_OUT_OF_MEMORY` for an allocation. The value has the number of
    /// requested bytes.
    OutOfMemory(Box<OutOfMemory>),
    /// The driver rejected a launch that exceeds a limit of the device or the kernel. The value names
    /// the limit.
    Launch(Box<LaunchError>),
    /// The driver library could not be loaded. The value lists the attempts and their failures.
    Load(LoadError),
    /// The driver does not have this function. The value names the function and the CUDA version that
    /// introduced it.
    Missing(MissingFunction),
    /// A driver is installed, but this process can use no GPU.
    NoDevice,
    /// An argument is invalid: this crate rejected it, or explains the driver's error code with it.
    Invalid(Box<Invalid>),
    /// The JIT compiler of the driver rejected a module. The value has the error code and the compiler
    /// log.
    Compile(Box<CompileError>),
    /// The PTX version is newer than the JIT compiler of the driver supports.
    PtxTooNew {
        /// The version in the `.version` directive of the text, if there is one.
        ptx: Option<(u32, u32)>,
        /// The CUDA version that the driver supports.
        driver: CudaVersion,
    },
    /// A host function in the stream panicked with this message.
    HostFunctionPanicked(String),
    /// A blocking call in a host function, in the report hook or in a log callback, where it could deadlock.
    InHostFunction,
    /// This process was forked from a process that had initialized CUDA. The driver does not work here.
    Forked,
    /// A [memory manager](crate::manager::MemoryManager) failed with an error of its own. This crate
    /// returns the error to the caller unchanged.
    Manager(Arc<dyn std::error::Error + Send + Sync>),
}

/// An error code of the driver, with the function that returned it and the reasons that the driver logged.
///
/// Two of these errors are equal if they have the same code and function. Their logs may differ.
#[derive(Clone)]
pub struct DriverError {
    /// The error code.
    pub code: CUresult,
    /// The symbol name of the driver API function.
    pub call: &'static str,
    log: Option<Arc<String>>,
    /// Always false. The unused values of a `bool` have room for the variant of an [`Error`], which is
    /// 32 bytes long instead of 40.
    _room: bool,
}

impl DriverError {
    /// Returns the error of a function, without a log. To get the error of a call that has just failed,
    /// use [`check`](crate::check), which also reads the log.
    #[inline]
    pub const fn new(code: CUresult, call: &'static str) -> Self {
        Self { code, call, log: None, _room: false }
    }

    /// Returns the error of a call that has just failed on this thread.
    #[inline]
    pub(crate) fn of_failure(code: CUresult, call: &'static str) -> Self {
        Self { log: driver_log::of_failure(call, code), ..Self::new(code, call) }
    }

    /// Returns the reasons that the driver logged for this failure, one on each line. The text of the
    /// error contains them.
    ///
    /// The log is empty with a driver before CUDA 12.9, before [`init`](crate::init), in host functions,
    /// and for the many failures for which the driver logs no reason. It is read when the error is made.
    /// The driver has one log for the process, so the entries are chosen by their thread, function and
    /// code. On systems other than Linux, where the thread of an entry cannot be recognized, the log may
    /// be that of a call of the same function that failed with the same code on another thread.
    ///
    /// Since CUDA 12.9. Raw: [`cuLogsDumpToMemory`](fn@cuda_sys::cuLogsDumpToMemory).
    #[doc(alias = "cuLogsDumpToMemory")]
    #[inline]
    pub fn log(&self) -> &str {
        self.log.as_deref().map_or("", String::as_str)
    }
}

impl PartialEq for DriverError {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.code, self.call) == (other.code, other.call)
    }
}

impl Eq for DriverError {}

/// The failure of an allocation, with its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The error of the allocating function. Its code is `CUDA_ERROR_OUT_OF_MEMORY`.
    pub error: DriverError,
    /// The number of bytes that were requested from the driver.
    pub bytes: usize,
}

/// The failure of the driver's JIT compiler for a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The error of the loading function.
    pub error: DriverError,
    /// The compiler log. Empty if the compiler wrote none.
    pub log: String,
}

impl Error {
    /// Returns the error code of the driver, if a driver function returned one.
    #[inline]
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::NoDevice => Some(CUresult::CUDA_ERROR_NO_DEVICE),
            _ => self.driver_error().map(|error| error.code),
        }
    }

    /// Returns the error code of the driver and the function that returned it, if this error has them.
    #[inline]
    pub fn driver_error(&self) -> Option<&DriverError> {
        match self {
            Self::Driver(error) => Some(error),
            Self::OutOfMemory(error) => Some(&error.error),
            Self::Launch(error) => Some(&error.error),
            Self::Compile(error) => Some(&error.error),
            _ => None,
        }
    }

    /// Returns whether the process can no longer use the GPU.
    ///
    /// After such an error (for example an illegal address in a kernel), every further call in every
    /// context of this process fails. A reset does not help: only a new process can use the GPU again.
    #[inline]
    pub fn is_fatal(&self) -> bool {
        self.code().is_some_and(is_fatal)
    }

    /// Adds the number of requested bytes to the error of an allocating function: converts
    /// [`Driver`](Self::Driver) to [`OutOfMemory`](Self::OutOfMemory) if there was not enough memory.
    /// Other errors are unchanged.
    ///
    /// The allocations of this crate do this. It is meant for [memory
    /// managers](crate::manager::MemoryManager) that call the driver themselves.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn with_requested_bytes(self, bytes: usize) -> Self {
        match self {
            Self::Driver(error) if is_out_of_memory(&error) => {
                Self::OutOfMemory(Box::new(OutOfMemory { error, bytes }))
            }
            other => other,
        }
    }

    /// Returns whether the error means that the driver rejected the call. A call can also return the
    /// error of earlier work; then it is not known whether the driver executed the call. An unknown code
    /// is treated in the same way.
    #[inline]
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Driver(error) => matches!(
                error.code,
                CUresult::CUDA_ERROR_INVALID_VALUE
                    | CUresult::CUDA_ERROR_OUT_OF_MEMORY
                    | CUresult::CUDA_ERROR_NOT_INITIALIZED
                    | CUresult::CUDA_ERROR_DEINITIALIZED
                    | CUresult::CUDA_ERROR_INVALID_DEVICE
                    | CUresult::CUDA_ERROR_INVALID_CONTEXT
                    | CUresult::CUDA_ERROR_INVALID_HANDLE
                    | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
                    | CUresult::CUDA_ERROR_NOT_PERMITTED
                    | CUresult::CUDA_ERROR_NOT_SUPPORTED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
            ),
            // No driver function was called, or the error says why the driver rejected the call.
            _ => true,
        }
    }
}

/// Returns whether a function that allocates memory failed because there was not enough. Other functions
/// return the same code for other resources, for example while they make a context current.
#[inline]
pub(crate) fn is_out_of_memory(error: &DriverError) -> bool {
    error.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
        && (error.call.starts_with("cuMem")
            || matches!(
                error.call,
                "cuGraphAddMemAllocNode" | "cuArray3DCreate_v2" | "cuMipmappedArrayCreate"
            ))
}

#[inline]
pub(crate) fn is_fatal(code: CUresult) -> bool {
    code.is_fatal()
}

/// Returns whether a code means that no work runs or will run.
#[inline]
pub(crate) fn ends_all_work(code: CUresult) -> bool {
    is_fatal(code)
        || matches!(
            code,
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_DEINITIALIZED
        )
}

impl fmt::Display for Error {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => error.fmt(f),
            Self::OutOfMemory(error) => {
                error.error.fmt(f)?;
                write!(f, "; {} bytes were requested", error.bytes)
            }
            Self::Launch(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Missing(error) => error.fmt(f),
            Self::NoDevice => f.write_str(
                "the NVIDIA driver is installed, but reports no GPU: the machine has none, or \
                 CUDA_VISIBLE_DEVICES hides it",
            ),
            Self::Invalid(what) => what.fmt(f),
            Self::Compile(error) => {
                error.error.fmt(f)?;
                if !error.log.is_empty() {
                    write!(f, "\n{}", error.log)?;
                }
                Ok(())
            }
            Self::PtxTooNew { ptx, driver } => {
                match ptx {
                    Some((major, minor)) => write!(f, "PTX {major}.{minor}")?,
                    None => f.write_str("the PTX")?,
                }
                write!(
                    f,
                    " is newer than the JIT compiler of this driver supports (CUDA {driver}): \
                     install a newer driver, or compile for an older PTX version"
                )
            }
            Self::HostFunctionPanicked(message) => {
                write!(f, "a host function in the stream panicked: {message}")
            }
            Self::InHostFunction => f.write_str(
                "cannot wait in a host function, in the report hook or in a log callback, because the \
                 wait may never end: wait on another thread",
            ),
            Self::Forked => f.write_str(
                "this process was forked from a process that had initialized CUDA, and the driver \
                 does not work in a forked process: fork before the first CUDA call, or start a \
                 new process",
            ),
            Self::Manager(error) => write!(f, "the memory manager failed: {error}"),
        }
    }
}

impl fmt::Display for DriverError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.code)?;
        if is_fatal(self.code) {
            f.write_str(" (possibly caused by earlier work on the device)")?;
        }
        for (i, reason) in self.log().lines().enumerate() {
            let before = if i == 0 { ": " } else { "; " };
            write!(f, "{before}{reason}")?;
        }
        Ok(())
    }
}

cuda_sys::debug_text! { struct DriverError { code, call, log } }

impl std::error::Error for DriverError {}

impl PartialEq for Error {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Driver(a), Self::Driver(b)) => a == b,
            (Self::OutOfMemory(a), Self::OutOfMemory(b)) => a == b,
            (Self::Launch(a), Self::Launch(b)) => a == b,
            (Self::Load(a), Self::Load(b)) => a == b,
            (Self::Missing(a), Self::Missing(b)) => a == b,
            (Self::Invalid(a), Self::Invalid(b)) => a == b,
            (Self::Compile(a), Self::Compile(b)) => a == b,
            (
                Self::PtxTooNew { ptx, driver },
                Self::PtxTooNew { ptx: other_ptx, driver: other_driver },
            ) => (ptx, driver) == (other_ptx, other_driver),
            (Self::HostFunctionPanicked(a), Self::HostFunctionPanicked(b)) => a == b,
            (Self::NoDevice, Self::NoDevice)
            | (Self::InHostFunction, Self::InHostFunction)
            | (Self::Forked, Self::Forked) => true,
            (Self::Manager(a), Self::Manager(b)) => Arc::ptr_eq(a, b),
            // All variants are listed, so that a new one cannot be forgotten above.
            (
                Self::Driver(_)
                | Self::OutOfMemory(_)
                | Self::Launch(_)
                | Self::Load(_)
                | Self::Missing(_)
                | Self::NoDevice
                | Self::Invalid(_)
                | Self::Compile(_)
                | Self::PtxTooNew { .. }
                | Self::HostFunctionPanicked(_)
                | Self::InHostFunction
                | Self::Forked
                | Self::Manager(_),
                _,
            ) => false,
        }
    }
}

impl Eq for Error {}

cuda_sys::debug_text! { enum Error {
    Driver(_), OutOfMemory(_), Launch(_), Load(_), Missing(_), NoDevice, Invalid(_), Compile(_), PtxTooNew { ptx, driver },
    HostFunctionPanicked(_), InHostFunction, Forked, Manager(_),
} }

/// Has no source, because the text already contains the text of the inner error.
impl std::error::Error for Error {}

convert! {
    |error: DriverError| -> Error { Self::Driver(error) }
    |invalid: Invalid| -> Error { Self::Invalid(Box::new(invalid)) }
}

/// The error of a `try_` function that takes ownership of a value, together with that value.
///
/// A function that takes ownership of a value that its caller cannot get again (a group of SMs, a
/// vector, device or pinned memory with data) exists in two variants. [`DeviceBuffer::share`] returns
/// an [`Error`] and drops the buffer if it fails, so one `?` is enough for every error type that
/// implements `From<Error>`. [`DeviceBuffer::try_share`] returns a `Rejected` with the error and the
/// buffer. Other functions that take ownership have no `try_` variant: they return an `Error` and drop
/// the value, and their documentation says how to keep it or how to prevent the failure.
///
/// [`DeviceBuffer::share`]: crate::DeviceBuffer::share
/// [`DeviceBuffer::try_share`]: crate::DeviceBuffer::try_share
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, SharedBuffer};
///
/// /// The error type of a library.
/// #[derive(Debug)]
/// enum LibraryError {
///     Cuda(cuda_safe::Error),
///     Empty,
/// }
///
/// // The crate `thiserror` derives this from `#[from] cuda_safe::Error`.
/// impl From<cuda_safe::Error> for LibraryError {
///     fn from(error: cuda_safe::Error) -> Self {
///         Self::Cuda(error)
///     }
/// }
///
/// fn share(buffer: DeviceBuffer<f32>) -> Result<SharedBuffer<f32>, LibraryError> {
///     if buffer.is_empty() {
///         return Err(LibraryError::Empty);
///     }
///     Ok(buffer.share()?)
/// }
///
/// fn share_or_keep(buffer: DeviceBuffer<f32>) -> Result<SharedBuffer<f32>, DeviceBuffer<f32>> {
///     buffer.try_share().map_err(|rejected| {
///         eprintln!("the buffer cannot be shared: {}", rejected.error);
///         rejected.value
///     })
/// }
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// assert_eq!(share(DeviceBuffer::zeroed(&stream, 8)?).map(|shared| shared.len()).ok(), Some(8));
/// assert!(share_or_keep(DeviceBuffer::zeroed(&stream, 8)?).is_ok());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// The operator `?` converts a `Rejected` to the [`Error`] and drops the value.
#[derive(Debug)]
pub struct Rejected<T> {
    /// The reason for the failure.
    pub error: Error,
    /// The value that the caller passed.
    pub value: T,
}

impl<T> Rejected<T> {
    pub(crate) fn new(error: impl Into<Error>, value: T) -> Self {
        Self { error: error.into(), value }
    }

    /// Returns what was done and the value, or the value with the error.
    pub(crate) fn unless<R>(done: Result<R>, value: T) -> Result<(R, T), Self> {
        match done {
            Ok(done) => Ok((done, value)),
            Err(error) => Err(Self { error, value }),
        }
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Rejected<T> {}

convert! { [T] |rejected: Rejected<T>| -> Error { rejected.error } }

/// A launch that the driver rejected because it exceeds a limit of the device or the kernel.
///
/// This is the content of [`Error::Launch`](super::Error::Launch). A rejected launch that exceeds none of
/// the known limits is [`Error::Driver`](super::Error::Driver).
#[derive(Clone, PartialEq, Eq)]
pub struct LaunchError {
    /// The error of the launching function.
    pub error: DriverError,
    /// The kernel's name in its module.
    pub kernel: String,
    /// The limit that the launch exceeds. If it exceeds several limits, this is one of them.
    pub limit: LaunchLimit,
}

texts! {
    /// A limit of a device or a kernel, with the values of a launch that exceeds it.
    pub enum LaunchLimit {
        /// A dimension of the block exceeds the limit of the device. `axis` is `'x'`, `'y'` or `'z'`.
        BlockDimension {
            /// The axis of the dimension.
            axis: char,
            /// The number of threads along the axis.
            given: u32,
            /// The limit of the device.
            max: u32,
        } => "the block has {given} threads along {axis}, but the device supports at most {max}";
        /// A dimension of the grid exceeds the limit of the device. `axis` is `'x'`, `'y'` or `'z'`.
        GridDimension {
            /// The axis of the dimension.
            axis: char,
            /// The number of blocks along the axis.
            given: u32,
            /// The limit of the device.
            max: u32,
        } => "the grid has {given} blocks along {axis}, but the device supports at most {max}";
        /// A block has more threads than the device supports.
        DeviceThreads {
            /// The number of threads along x, y and z.
            block: [u32; 3],
            /// The number of threads in the block.
            threads: u64,
            /// The limit of the device.
            max: u32,
        } => "a block of {} has {threads} threads, but the device supports at most {max}", extents(*block);
        /// A block has more threads than the kernel supports, because of its registers or its launch bounds.
        KernelThreads {
            /// The number of threads in the block.
            threads: u64,
            /// The limit of the kernel on this device.
            max: u32,
            /// The number of registers per thread.
            registers: u32,
        } =>
            "the block has {threads} threads, but the kernel supports at most {max} on this device, because of its \
             {registers} registers per thread or its launch bounds (__launch_bounds__)";
        /// The dynamic shared memory of a block exceeds the limit that is set for the kernel. All values are
        /// in bytes.
        DynamicSharedMemory {
            /// The dynamic shared memory of a block.
            given: u32,
            /// The limit of the kernel: its attribute
            /// [`MAX_DYNAMIC_SHARED_BYTES`](crate::module::attribute::MAX_DYNAMIC_SHARED_BYTES).
            max: u32,
            /// The largest value that the attribute can have on this device.
            settable: u32,
        } =>
            "the block has {given} bytes of dynamic shared memory, but the kernel's limit is {max} bytes{}",
            way_out(*given, *settable);
        /// The device does not support clusters.
        NoClusters {
            /// The cluster size in blocks along x, y and z.
            cluster: [u32; 3],
        } => "the launch has clusters of {} blocks, but the device does not support clusters", extents(*cluster);
        /// The kernel requires a cluster size at each launch, and the launch has none.
        ClusterMissing =>
            "the kernel needs a cluster size: set LaunchAttributes::cluster, or the required cluster size of the kernel";
        /// The kernel requires another cluster size.
        RequiredCluster {
            /// The cluster size of the launch, in blocks along x, y and z.
            cluster: [u32; 3],
            /// The cluster size that the kernel requires.
            required: [u32; 3],
        } =>
            "the launch has clusters of {} blocks, but the kernel requires clusters of {}", extents(*cluster),
            extents(*required);
        /// The cluster size does not divide the grid.
        ClusterDivision {
            /// The number of blocks along x, y and z.
            grid: [u32; 3],
            /// The cluster size in blocks along x, y and z.
            cluster: [u32; 3],
        } => "a grid of {} blocks cannot be divided into clusters of {}", extents(*grid), extents(*cluster);
        /// A cluster has too many blocks.
        ClusterSize {
            /// The number of blocks in a cluster.
            blocks: u64,
            /// The limit for this launch.
            max: u32,
        } =>
            "a cluster has {blocks} blocks, but this launch supports at most {max} \
             (kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED may raise the limit)";
        /// The device does not support cooperative launches.
        NoCooperativeLaunch => "the device does not support cooperative launches";
        /// A cooperative launch has more blocks than can run at the same time.
        CooperativeBlocks {
            /// The number of blocks in the grid.
            blocks: u128,
            /// The number of blocks that can run at the same time.
            max: u64,
            /// The number of blocks that fit on one multiprocessor.
            per_sm: u32,
            /// The number of multiprocessors on which the launch may run.
            sm_count: u32,
        } =>
            "the cooperative launch has {blocks} blocks, but at most {max} can run at the same time ({per_sm} on each \
             of {sm_count} SMs)";
    }
}

impl fmt::Display for LaunchError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, kernel, limit } = self;
        write!(f, "{error}; kernel \"{kernel}\": {limit}")
    }
}

cuda_sys::debug_text! { struct LaunchError { error, kernel, limit } }

impl std::error::Error for LaunchError {}

/// Returns three extents as text.
#[inline]
fn extents([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

/// Returns how to raise the limit of dynamic shared memory, or that this is not possible.
#[inline]
fn way_out(given: u32, settable: u32) -> String {
    if given > settable {
        return format!(", and the device supports at most {settable}");
    }
    format!(": raise it with kernel_attribute::MAX_DYNAMIC_SHARED_BYTES (to at most {settable})")
}
