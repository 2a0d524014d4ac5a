//! Options, logs and errors of the driver's compiler.

use super::image;
use crate::call::{CompileError, Error, Invalid, Result, init, refuse_if};
use core::ffi::{CStr, c_void};
use cuda_sys::{
    CUjit_cacheMode, CUjit_fallback, CUjit_option as Key, CUjit_target, CUresult, CudaVersion,
};

/// Options for the driver's compiler and linker (`CUjit_option`). The default sets none; an error
/// always contains the error log.
///
/// Later versions may add fields: end each value with `..Default::default()`.
///
/// Most options apply to PTX, and the driver ignores them if there is nothing to compile. The driver
/// does not recompile code that is in its cache.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Module};
/// use cuda_safe::module::JitOptions;
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let options = JitOptions {
///     max_registers: Some(64),
///     info_log: true,
///     verbose: true,
///     ..Default::default()
/// };
/// let module = Module::from_ptx_with(&context, ptx, &options)?;
/// println!("{}", module.log());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # Omitted options
/// - `GLOBAL_SYMBOL_NAMES`, `…_ADDRESSES` and `…_COUNT` pass addresses that the code would use
///   unchecked.
/// - `WALL_TIME`: measure the time of the call instead.
/// - `TARGET_FROM_CUCONTEXT` is the default without [`target`](Self::target).
/// - `LTO`, `FTZ`, `PREC_DIV`, `PREC_SQRT`, `FMA`, `REFERENCED_…` and `OPTIMIZE_UNUSED_…` apply to a
///   kind of input that CUDA 12.0 removed. `NEW_SM3X_OPT` and `FAST_COMPILE` are internal to the
///   driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct JitOptions {
    /// The maximum number of registers per thread.
    pub max_registers: Option<u32>,
    /// The minimum number of threads per block with which the kernels will be launched. The compiler
    /// limits the registers accordingly. Cannot be combined with [`target`](Self::target).
    pub threads_per_block: Option<u32>,
    /// The optimization level, from 0 to 4. The driver's default is 4.
    pub optimization_level: Option<u32>,
    /// The architecture to compile for, instead of the context's device.
    pub target: Option<CUjit_target>,
    /// Whether binaries or PTX are preferred if an image has both and no binary matches exactly. Not
    /// for linkers.
    pub fallback: Option<CUjit_fallback>,
    /// Whether to generate debug information, which disables optimization.
    pub debug_info: bool,
    /// Whether to generate line information, for profilers.
    pub line_info: bool,
    /// How global loads are cached (`-dlcm`).
    pub cache_mode: Option<CUjit_cacheMode>,
    /// Whether to generate position-independent code. Since CUDA 12.0.
    pub position_independent: bool,
    /// The minimum number of blocks of a kernel that should run on an SM at the same time, if the PTX
    /// does not specify it. This is a hint. It also requires
    /// [`max_threads_per_block`](Self::max_threads_per_block), and is ignored if one of the first two
    /// limits is set. Since CUDA 12.3.
    pub min_blocks_per_sm: Option<u32>,
    /// The maximum number of threads per block, if the PTX does not specify it. Since CUDA 12.4.
    pub max_threads_per_block: Option<u32>,
    /// Whether these limits override those in the PTX. Since CUDA 12.4.
    pub override_directives: bool,
    /// The maximum number of threads that compile a module, or 0 for the number that the machine runs
    /// in parallel. Since CUDA 13.0.
    pub split_compile: Option<u32>,
    /// The maximum number of threads that load a binary, or 0 for the number that the machine runs in
    /// parallel. Since CUDA 13.1.
    pub loader_threads: Option<u32>,
    /// Whether to keep the compiler's info log for [`Module::log`](super::Module::log) and
    /// [`Linked::log`](super::Linked::log). A [`Library`](super::Library) compiles later and has no
    /// log.
    pub info_log: bool,
    /// Whether the compiler writes verbose log messages.
    pub verbose: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// An option in the driver's representation.
struct RawOption {
    name: &'static str,
    key: Key,
    value: usize,
    /// The version that introduced the option, if that is later than CUDA 11.7.
    since: Option<(u16, u16)>,
}

impl JitOptions {
    /// Returns all options that are set, except the logs.
    #[inline]
    fn entries(&self) -> Result<Vec<RawOption>> {
        let Self {
            max_registers,
            threads_per_block,
            optimization_level,
            target,
            fallback,
            debug_info,
            line_info,
            cache_mode,
            position_independent,
            min_blocks_per_sm,
            max_threads_per_block,
            override_directives,
            split_compile,
            loader_threads,
            info_log: _,
            verbose,
            _non_exhaustive: (),
        } = *self;
        let positive =
            |number: Option<u32>| number.map(|number| (number, 1..=u32::MAX, "1 or more"));
        let any = |number: Option<u32>| number.map(|number| (number, 0..=u32::MAX, ""));
        let flag = |is_set: bool| any(is_set.then_some(1));
        let level = optimization_level.map(|level| (level, 0..=4, "0 to 4"));
        let rows = [
            ("max_registers", Key::CU_JIT_MAX_REGISTERS, positive(max_registers), None),
            ("threads_per_block", Key::CU_JIT_THREADS_PER_BLOCK, positive(threads_per_block), None),
            ("optimization_level", Key::CU_JIT_OPTIMIZATION_LEVEL, level, None),
            ("target", Key::CU_JIT_TARGET, any(target.map(|value| value.0)), None),
            ("fallback", Key::CU_JIT_FALLBACK_STRATEGY, any(fallback.map(|value| value.0)), None),
            ("debug_info", Key::CU_JIT_GENERATE_DEBUG_INFO, flag(debug_info), None),
            ("line_info", Key::CU_JIT_GENERATE_LINE_INFO, flag(line_info), None),
            ("cache_mode", Key::CU_JIT_CACHE_MODE, any(cache_mode.map(|value| value.0)), None),
            (
                "position_independent",
                Key::CU_JIT_POSITION_INDEPENDENT_CODE,
                flag(position_independent),
                Some((12, 0)),
            ),
            (
                "min_blocks_per_sm",
                Key::CU_JIT_MIN_CTA_PER_SM,
                positive(min_blocks_per_sm),
                Some((12, 3)),
            ),
            (
                "max_threads_per_block",
                Key::CU_JIT_MAX_THREADS_PER_BLOCK,
                positive(max_threads_per_block),
                Some((12, 4)),
            ),
            (
                "override_directives",
                Key::CU_JIT_OVERRIDE_DIRECTIVE_VALUES,
                flag(override_directives),
                Some((12, 4)),
            ),
            ("split_compile", Key::CU_JIT_SPLIT_COMPILE, any(split_compile), Some((13, 0))),
            (
                "loader_threads",
                Key::CU_JIT_BINARY_LOADER_THREAD_COUNT,
                any(loader_threads),
                Some((13, 1)),
            ),
            ("verbose", Key::CU_JIT_LOG_VERBOSE, flag(verbose), None),
        ];
        if let (Some(_), Some(target)) = (threads_per_block, target) {
            let possible = "only without threads_per_block";
            return Err(refused("target", format!("{target:?}"), possible));
        }
        let mut entries = Vec::new();
        for (name, key, value, since) in rows {
            let Some((number, range, possible)) = value else { continue };
            refuse_if!(!range.contains(&number), refused(name, number.to_string(), possible));
            entries.push(RawOption { name, key, value: number as usize, since });
        }
        Ok(entries)
    }
}

#[inline]
fn refused(option: &'static str, given: String, possible: &'static str) -> Error {
    Invalid::JitOption { option, given, possible }.into()
}

/// The options and log buffers that are passed to the driver with code.
///
/// The driver may access all of this as long as a library is loaded or a linker exists, so everything
/// is on the heap and is freed with those.
pub(super) struct Request {
    keys: Vec<Key>,
    values: Vec<*mut c_void>,
    errors: Vec<u8>,
    /// Empty unless the info log was requested.
    info: Vec<u8>,
}

// SAFETY: the pointers refer to the memory of the other fields, which only the driver changes, during
// calls on the object that owns this request.
unsafe impl Send for Request {}
// SAFETY: see `Send`. The logs are read between such calls.
unsafe impl Sync for Request {}

impl Request {
    const LOG_BYTES: usize = 8192;

    /// # Errors
    /// An option has an invalid value, or is newer than the driver.
    #[inline]
    pub(super) fn new(options: &JitOptions) -> Result<Self> {
        let mut request = Self {
            keys: Vec::new(),
            values: Vec::new(),
            errors: vec![0; Self::LOG_BYTES],
            info: vec![0; if options.info_log { Self::LOG_BYTES } else { 0 }],
        };
        for entry in options.entries()? {
            check_driver(&entry)?;
            request.add(entry.key, entry.value);
        }
        let errors = request.errors.as_mut_ptr();
        request.add_log(
            [Key::CU_JIT_ERROR_LOG_BUFFER, Key::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
            errors,
        );
        if options.info_log {
            let info = request.info.as_mut_ptr();
            request.add_log(
                [Key::CU_JIT_INFO_LOG_BUFFER, Key::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES],
                info,
            );
        }
        Ok(request)
    }

    #[inline]
    fn add(&mut self, key: Key, number: usize) {
        self.keys.push(key);
        // The API passes numbers in place of pointers.
        self.values.push(std::ptr::without_provenance_mut(number));
    }

    #[inline]
    fn add_log(&mut self, [buffer, size]: [Key; 2], start: *mut u8) {
        self.keys.push(buffer);
        self.values.push(start.cast());
        self.add(size, Self::LOG_BYTES);
    }

    /// Returns the number of options, the keys and the values.
    #[inline]
    pub(super) fn options(&mut self) -> (u32, *mut Key, *mut *mut c_void) {
        let count = u32::try_from(self.keys.len()).unwrap_or(0);
        (count, self.keys.as_mut_ptr(), self.values.as_mut_ptr())
    }

    /// Returns the info log.
    #[inline]
    pub(super) fn info(&self) -> String {
        text(&self.info)
    }

    #[inline]
    fn full_log(&self) -> String {
        let (errors, info) = (self.errors(), self.info());
        if info.is_empty() { errors } else { format!("{errors}\n{info}").trim_start().to_owned() }
    }

    /// Adds the log to a compiler error.
    #[inline]
    pub(super) fn with_log<T>(&self, done: Result<T>) -> Result<T> {
        self.with_log_if(done, is_compile_error)
    }

    /// Returns the error log written so far.
    #[inline]
    pub(super) fn errors(&self) -> String {
        text(&self.errors)
    }

    /// Adds the log to an error of a linker. Unlike [`with_log`](Self::with_log), this does not depend on
    /// the error code, because the linker may have written the reason to the log. It ignores a log that
    /// equals `before`, which is about an earlier error.
    #[inline]
    pub(super) fn with_new_log(&self, done: Result<()>, log_before: &str) -> Result<()> {
        self.with_log_if(done, |code| is_compile_error(code) || self.errors() != log_before)
    }

    fn with_log_if<T>(&self, done: Result<T>, has_log: impl Fn(CUresult) -> bool) -> Result<T> {
        done.map_err(|error| match error {
            Error::Driver(error) if has_log(error.code) => {
                let log = self.full_log();
                Error::Compile(Box::new(CompileError { error, log }))
            }
            other => other,
        })
    }
}

/// Returns a log up to its NUL.
#[inline]
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0);
    let text = &log[..end.unwrap_or(log.len())];
    String::from_utf8_lossy(text).trim_end().to_owned()
}

/// Returns an error that names the option if the driver is too old for it.
#[inline]
fn check_driver(entry: &RawOption) -> Result<()> {
    let Some((major, minor)) = entry.since else { return Ok(()) };
    let (since, driver) = (CudaVersion::new(major, minor), init::version()?);
    if driver < since {
        return Err(Invalid::JitOptionNeedsNewerDriver { option: entry.name, since, driver }.into());
    }
    Ok(())
}

#[inline]
pub(super) fn is_compile_error(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_INVALID_PTX
            | CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_INVALID_SOURCE
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
            | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED
            | CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
            | CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
    )
}

/// Names both versions in the error if the PTX is newer than the compiler.
#[inline]
pub(super) fn explain_ptx(error: Error, text: &CStr) -> Error {
    match (error.code(), init::version()) {
        (Some(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION), Ok(driver)) => {
            Error::PtxTooNew { ptx: text.to_str().ok().and_then(image::ptx_version), driver }
        }
        _ => error,
    }
}
