//! Core dumps of GPUs: the state of the GPU at a fault of a kernel, or on request, in a file that
//! `cuda-gdb` reads.
//!
//! The environment variables `CUDA_ENABLE_COREDUMP_ON_EXCEPTION`, `CUDA_COREDUMP_FILE` and others do the
//! same without a change of the program, and take precedence over the settings here.
//!
//! ```no_run
//! use cuda_safe::process::coredump::{CoredumpSettings, DumpFlags};
//!
//! let settings = CoredumpSettings {
//!     on_exception: Some(true),
//!     file: Some("/tmp/core.cuda".into()),
//!     flags: Some(DumpFlags::LIGHTWEIGHT | DumpFlags::SKIP_ABORT),
//!     ..Default::default()
//! };
//! let guard = settings.apply()?;
//! // A kernel that fails while `guard` is alive leaves a dump in /tmp/core.cuda.
//! drop(guard);
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # A fault while dumps are on
//! The process behaves differently than without dumps (measured with driver 580):
//!
//! - **The first wait after the fault succeeds**, and so do further calls, while a thread of the driver
//!   writes the dump. No error tells that the results are wrong.
//! - When the dump is written, the process ends by `SIGABRT`; with [`DumpFlags::SKIP_ABORT`], calls return
//!   the error of the fault instead.
//! - A process that exits before leaves no file. [`DumpFlags::LIGHTWEIGHT`] dumps take about 50 ms. Full
//!   ones contain all allocated memory, and 256 MiB take about 2 s.

use super::logs::path_text;
use crate::call::{
    Closures, Invalid, Report, Result, answer, argument, call, debug_struct, fork, init, refuse_if,
    report, run_host_function,
};
use crate::context::Context;
use crate::release::{Handle, Root, destroy, release_now};
use bitflags::bitflags;
use cuda_sys::{
    CUCoredumpGenerationFlags as Raw, CUcoredumpCallbackHandle, CUcoredumpSettings as Attribute,
    CUdevice, CudaVersion,
};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// The number of bytes of the longest path that the driver accepts.
const MAX_PATH: usize = 1023;

/// The first version with [`DumpFlags`].
const FLAGS_SINCE: CudaVersion = CudaVersion::new(12, 5);

/// Settings of core dumps, of the process or of a context. A field that is `None` is not changed.
///
/// End the fields with `..Default::default()`; a later version may add some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoredumpSettings {
    /// Whether a fault of a kernel causes a dump.
    pub on_exception: Option<bool>,
    /// Whether a write to [`pipe`](Self::pipe) causes a dump. Of the process only. The context of the work
    /// that the dump interrupts fails afterwards (measured with driver 580). It cannot be turned off again
    /// reliably, and needs a context that is created after it is turned on.
    pub user_trigger: Option<bool>,
    /// The file of the dump, at most 1023 bytes. By default `core.cuda.HOSTNAME.PID` in the current
    /// directory. If the driver cannot create the file, for example because its directory does not exist, a
    /// wait for the failed work does not return (measured with driver 580).
    pub file: Option<PathBuf>,
    /// The pipe of [`user_trigger`](Self::user_trigger), at most 1023 bytes. Of the process only. It cannot
    /// be changed while the trigger is on. By default `corepipe.cuda.HOSTNAME.PID` in the current
    /// directory.
    pub pipe: Option<PathBuf>,
    /// What dumps contain. Since CUDA 12.5.
    pub flags: Option<DumpFlags>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl CoredumpSettings {
    /// Returns the settings of the process. Calls `cuCoredumpGetAttributeGlobal`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) before CUDA 12.1.
    ///
    /// Since CUDA 12.1. Raw:
    /// [`cuCoredumpGetAttributeGlobal`](fn@cuda_sys::cuCoredumpGetAttributeGlobal).
    #[doc(alias = "cuCoredumpGetAttributeGlobal")]
    #[inline]
    pub fn of_process() -> Result<Self> {
        Scope::Process.read()
    }

    /// Changes the settings of the process until the returned guard is dropped. Calls
    /// `cuCoredumpSetAttributeGlobal`.
    ///
    /// The driver is initialized first, because it crashes if dumps are enabled before. The settings apply
    /// to contexts that are created afterwards, and to existing ones that have no settings of their own.
    ///
    /// # Errors
    /// [`Invalid::PathLength`], [`Invalid::NulInText`] and [`Invalid::PathEncoding`] for paths; the error
    /// of the driver if a setting cannot be changed, for example because an environment variable has set
    /// it. After an error, no setting is changed.
    ///
    /// Since CUDA 12.1. Raw:
    /// [`cuCoredumpSetAttributeGlobal`](fn@cuda_sys::cuCoredumpSetAttributeGlobal).
    #[doc(alias = "cuCoredumpSetAttributeGlobal")]
    #[inline]
    pub fn apply(&self) -> Result<CoredumpGuard> {
        Scope::Process.apply(self)
    }
}

impl Context {
    /// Returns the settings of core dumps of this context. Calls `cuCoredumpGetAttribute`. Those that apply
    /// only to the process are `None`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) before CUDA 12.1.
    ///
    /// Since CUDA 12.1. Raw: [`cuCoredumpGetAttribute`](fn@cuda_sys::cuCoredumpGetAttribute).
    #[doc(alias = "cuCoredumpGetAttribute")]
    #[inline]
    pub fn coredump_settings(&self) -> Result<CoredumpSettings> {
        Scope::Context(self.clone()).read()
    }

    /// Changes the settings of core dumps of this context until the returned guard is dropped. Calls
    /// `cuCoredumpSetAttribute`.
    ///
    /// With driver 580, a dump that is enabled for an existing context was not written. Settings of the
    /// process work: [`CoredumpSettings::apply`].
    ///
    /// # Errors
    /// [`Invalid::CoredumpOfProcess`] for [`user_trigger`](CoredumpSettings::user_trigger) and
    /// [`pipe`](CoredumpSettings::pipe). See also [`CoredumpSettings::apply`].
    ///
    /// Since CUDA 12.1. Raw: [`cuCoredumpSetAttribute`](fn@cuda_sys::cuCoredumpSetAttribute).
    #[doc(alias = "cuCoredumpSetAttribute")]
    #[inline]
    pub fn apply_coredump_settings(&self, settings: &CoredumpSettings) -> Result<CoredumpGuard> {
        let setting = match (settings.user_trigger, &settings.pipe) {
            (Some(_), _) => Some("user_trigger"),
            (None, Some(_)) => Some("pipe"),
            (None, None) => None,
        };
        match setting {
            Some(setting) => Err(Invalid::CoredumpOfProcess { setting }.into()),
            None => Scope::Context(self.clone()).apply(settings),
        }
    }
}

/// Settings of core dumps that were changed. Dropping this restores the settings before.
///
/// Drop guards in the reverse order of their creation; otherwise the settings of an earlier guard
/// remain.
#[derive(Debug)]
#[must_use = "dropping this restores the settings"]
pub struct CoredumpGuard {
    scope: Scope,
    /// The attributes that were changed, with their values before, in the order of the changes.
    before: Vec<(Attribute, Vec<u8>)>,
}

impl CoredumpGuard {
    /// Restores the settings, and returns the error that a drop could only report.
    ///
    /// # Errors
    /// The first error of the driver. The other settings are still restored.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.restore()
    }

    /// Leaves the changed settings.
    #[inline]
    pub fn keep(mut self) {
        self.before.clear();
    }

    #[inline]
    fn restore(&mut self) -> Result<()> {
        let mut done = Ok(());
        while let Some((attribute, value)) = self.before.pop() {
            done = done.and(self.scope.set(attribute, &value));
        }
        done
    }
}

impl Drop for CoredumpGuard {
    #[inline]
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            report(&Report::Guard { what: "settings of core dumps", error });
        }
    }
}

/// The owner of settings.
#[derive(Clone, Debug)]
enum Scope {
    Process,
    Context(Context),
}

impl Scope {
    #[inline]
    fn read(&self) -> Result<CoredumpSettings> {
        let is_process = matches!(self, Self::Process);
        let flag = |value: Vec<u8>| value.first().is_some_and(|byte| *byte != 0);
        let process_only = |attribute| match is_process {
            true => self.get(attribute).map(Some),
            false => Ok(None),
        };
        let flags = match init::version()? {
            version if version < FLAGS_SINCE => None,
            _ => Some(self.get(Attribute::CU_COREDUMP_GENERATION_FLAGS)?),
        };
        let bits = |value: Vec<u8>| <[u8; 4]>::try_from(value).map_or(0, u32::from_ne_bytes);
        let user_trigger = process_only(Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER)?;
        Ok(CoredumpSettings {
            on_exception: Some(flag(self.get(Attribute::CU_COREDUMP_ENABLE_ON_EXCEPTION)?)),
            user_trigger: user_trigger.map(flag),
            file: Some(path(&self.get(Attribute::CU_COREDUMP_FILE)?)),
            pipe: process_only(Attribute::CU_COREDUMP_PIPE)?.map(|value| path(&value)),
            flags: flags.map(|value| DumpFlags::from_bits_retain(bits(value))),
            _non_exhaustive: (),
        })
    }

    #[inline]
    fn apply(&self, settings: &CoredumpSettings) -> Result<CoredumpGuard> {
        let CoredumpSettings { on_exception, user_trigger, file, pipe, flags, _non_exhaustive: () } =
            settings;
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path_bytes(path)).transpose();
        let flag = |flag: Option<bool>| flag.map(|flag| vec![u8::from(flag)]);
        // Dumps are enabled last, when the other settings are complete, and disabled first when the guard
        // restores them. The pipe cannot be changed after the trigger is on.
        let changes = [
            (
                Attribute::CU_COREDUMP_GENERATION_FLAGS,
                flags.map(|flags| flags.bits().to_ne_bytes().to_vec()),
            ),
            (Attribute::CU_COREDUMP_FILE, path(file)?),
            (Attribute::CU_COREDUMP_PIPE, path(pipe)?),
            (Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER, flag(*user_trigger)),
            (Attribute::CU_COREDUMP_ENABLE_ON_EXCEPTION, flag(*on_exception)),
        ];
        // The driver crashes if dumps are enabled before it is initialized.
        init::init()?;
        // If a change fails, the drop of the guard undoes the changes before it.
        let mut guard = CoredumpGuard { scope: self.clone(), before: Vec::new() };
        for (attribute, value) in changes {
            if let Some(value) = value {
                let before = self.get(attribute)?;
                self.set(attribute, &value)?;
                guard.before.push((attribute, before));
            }
        }
        Ok(guard)
    }

    /// Returns the value of an attribute. A string ends with its NUL.
    #[inline]
    fn get(&self, attribute: Attribute) -> Result<Vec<u8>> {
        let mut value = vec![0_u8; size_of_value(attribute)];
        let mut size = value.len();
        let start: *mut c_void = value.as_mut_ptr().cast();
        match self {
            Self::Process => {
                // SAFETY: the pointers refer to a buffer of `size` bytes and to a local variable.
                unsafe { call!(cuCoredumpGetAttributeGlobal(attribute, start, &raw mut size)) }?;
            }
            Self::Context(context) => {
                let _current = context.enter()?;
                // SAFETY: see above.
                unsafe { call!(cuCoredumpGetAttribute(attribute, start, &raw mut size)) }?;
            }
        }
        if is_path(attribute) {
            let end = value.iter().position(|byte| *byte == 0);
            value.truncate(end.map_or(MAX_PATH, |end| end + 1));
        }
        Ok(value)
    }

    #[inline]
    fn set(&self, attribute: Attribute, value: &[u8]) -> Result<()> {
        let mut size = value.len();
        // The driver does not write to the value.
        let start = value.as_ptr().cast_mut().cast();
        match self {
            Self::Process => {
                // SAFETY: the pointers refer to a value of `size` bytes and to a local variable.
                unsafe { call!(cuCoredumpSetAttributeGlobal(attribute, start, &raw mut size)) }
            }
            Self::Context(context) => {
                let _current = context.enter()?;
                // SAFETY: see above.
                unsafe { call!(cuCoredumpSetAttribute(attribute, start, &raw mut size)) }
            }
        }
    }
}

#[inline]
fn is_path(attribute: Attribute) -> bool {
    matches!(attribute, Attribute::CU_COREDUMP_FILE | Attribute::CU_COREDUMP_PIPE)
}

/// Returns the size of an attribute, or the largest size of a path.
#[inline]
fn size_of_value(attribute: Attribute) -> usize {
    match attribute {
        Attribute::CU_COREDUMP_GENERATION_FLAGS => size_of::<c_int>(),
        _ if is_path(attribute) => MAX_PATH + 1,
        _ => size_of::<bool>(),
    }
}

/// Returns the bytes of a path, with a NUL.
#[inline]
fn path_bytes(path: &std::path::Path) -> Result<Vec<u8>> {
    let bytes = path_text(path)?.into_bytes_with_nul();
    let length = bytes.len() - 1;
    refuse_if!(length > MAX_PATH, Invalid::PathLength { length, max: MAX_PATH });
    Ok(bytes)
}

/// Returns the path of bytes that may end with a NUL.
#[inline]
fn path(bytes: &[u8]) -> PathBuf {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    #[cfg(unix)]
    return PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes));
    #[cfg(not(unix))]
    return PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
}

/// A core dump that begins or is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpEvent {
    /// The process with the fault.
    pub pid: u32,
    /// The ordinal of the device.
    pub device: u32,
}

type Closure = dyn Fn(DumpEvent) + Send + Sync;

static CLOSURES: Closures<Closure> = Closures::new();

/// A closure that is called for each core dump. Dropping this deregisters the closure.
///
/// # The closure
/// It runs while the driver writes the dump, and the dump waits for it. It must make no CUDA calls, as in
/// a host function: functions of this crate that wait return
/// [`Error::InHostFunction`](crate::Error::InHostFunction), and objects that are dropped in it are released
/// later. A panic in the closure is ignored.
///
/// While this is dropped on one thread, the closure may still be running on another one, and return after
/// the drop.
#[must_use = "dropping this deregisters the closure"]
pub struct DumpCallback {
    number: usize,
    registered: Registered,
}

/// The moment at which a closure is called, and the handle of its registration.
#[derive(Clone, Copy, Debug)]
enum Registered {
    Start(Handle<CUcoredumpCallbackHandle>),
    Complete(Handle<CUcoredumpCallbackHandle>),
}

impl DumpCallback {
    /// Registers a closure that is called when a dump begins. Calls `cuCoredumpRegisterStartCallback`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) before CUDA 13.2; `CUDA_ERROR_NOT_PERMITTED` in such a
    /// closure.
    ///
    /// Since CUDA 13.2. Raw:
    /// [`cuCoredumpRegisterStartCallback`](fn@cuda_sys::cuCoredumpRegisterStartCallback),
    /// [`cuCoredumpDeregisterStartCallback`](fn@cuda_sys::cuCoredumpDeregisterStartCallback).
    #[doc(alias = "cuCoredumpRegisterStartCallback", alias = "cuCoredumpDeregisterStartCallback")]
    pub fn on_start(closure: impl Fn(DumpEvent) + Send + Sync + 'static) -> Result<Self> {
        Self::register(Arc::new(closure), |data, raw| {
            // SAFETY: the function takes any argument, and the pointer is to a local variable.
            let done = unsafe { call!(cuCoredumpRegisterStartCallback(Some(run), data, raw)) };
            done.map(|()| Registered::Start as fn(_) -> _)
        })
    }

    /// Registers a closure that is called when a dump is in its file. Calls
    /// `cuCoredumpRegisterCompleteCallback`.
    ///
    /// # Errors
    /// See [`on_start`](Self::on_start).
    ///
    /// Since CUDA 13.2. Raw:
    /// [`cuCoredumpRegisterCompleteCallback`](fn@cuda_sys::cuCoredumpRegisterCompleteCallback),
    /// [`cuCoredumpDeregisterCompleteCallback`](fn@cuda_sys::cuCoredumpDeregisterCompleteCallback).
    #[doc(alias = "cuCoredumpRegisterCompleteCallback")]
    #[doc(alias = "cuCoredumpDeregisterCompleteCallback")]
    pub fn on_complete(closure: impl Fn(DumpEvent) + Send + Sync + 'static) -> Result<Self> {
        Self::register(Arc::new(closure), |data, raw| {
            // SAFETY: the function takes any argument, and the pointer is to a local variable.
            let done = unsafe { call!(cuCoredumpRegisterCompleteCallback(Some(run), data, raw)) };
            done.map(|()| Registered::Complete as fn(_) -> _)
        })
    }

    /// Registers a closure with a call that receives the argument and the place of the handle.
    fn register(
        closure: Arc<Closure>,
        call: impl FnOnce(
            *mut c_void,
            &mut CUcoredumpCallbackHandle,
        ) -> Result<fn(Handle<CUcoredumpCallbackHandle>) -> Registered>,
    ) -> Result<Self> {
        init::init()?;
        let number = CLOSURES.insert(closure);
        let mut raw = std::ptr::null_mut();
        match call(argument(number), &mut raw) {
            Ok(moment) => Ok(Self { number, registered: moment(Handle(raw)) }),
            Err(error) => {
                CLOSURES.remove(number);
                Err(error)
            }
        }
    }
}

debug_struct! { DumpCallback |_its| { .. } }

impl Drop for DumpCallback {
    #[inline]
    fn drop(&mut self) {
        // A forked child may have inherited the table in a locked state.
        let closure = (!fork::in_child()).then(|| CLOSURES.remove(self.number));
        release_now(self.registered, &Root { is_borrowed: false });
        // Its drop may panic.
        drop(closure);
    }
}

destroy! {
    Registered as "a callback of core dumps";
    |its| {
        match *its {
            // SAFETY: the caller guarantees that the callback is still registered.
            Self::Start(Handle(raw)) => unsafe { answer!(cuCoredumpDeregisterStartCallback(raw)) },
            // SAFETY: see above.
            Self::Complete(Handle(raw)) => unsafe { answer!(cuCoredumpDeregisterCompleteCallback(raw)) },
        }
    }
}

#[inline]
unsafe extern "C" fn run(data: *mut c_void, pid: c_int, device: CUdevice) {
    // A closure that was dropped meanwhile is no longer in the table.
    let Some(closure) = CLOSURES.get(data) else { return };
    let event = DumpEvent { pid: pid.unsigned_abs(), device: device.unsigned_abs() };
    run_host_function(|| {
        // A panic must not unwind into the driver. The closure is also dropped inside: this may be the
        // last reference.
        let done = catch_unwind(AssertUnwindSafe(move || closure(event)));
        if let Err(payload) = done {
            // The drop of the payload could panic, too.
            std::mem::forget(payload);
        }
    });
}

bitflags! {
    /// The contents of core dumps, and what follows a dump (`CUCoredumpGenerationFlags`). Without flags, a
    /// dump has everything, and the process ends after it.
    ///
    /// A driver that does not know a flag ignores it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DumpFlags: u32 {
        /// Leave out the images of modules that are not relocated.
        const SKIP_NONRELOCATED_ELF_IMAGES = Raw::CU_COREDUMP_SKIP_NONRELOCATED_ELF_IMAGES.0 as u32;
        /// Leave out global memory.
        const SKIP_GLOBAL_MEMORY = Raw::CU_COREDUMP_SKIP_GLOBAL_MEMORY.0 as u32;
        /// Leave out shared memory.
        const SKIP_SHARED_MEMORY = Raw::CU_COREDUMP_SKIP_SHARED_MEMORY.0 as u32;
        /// Leave out local memory.
        const SKIP_LOCAL_MEMORY = Raw::CU_COREDUMP_SKIP_LOCAL_MEMORY.0 as u32;
        /// Do not abort the process after the dump. Its calls return the error of the fault.
        const SKIP_ABORT = Raw::CU_COREDUMP_SKIP_ABORT.0 as u32;
        /// Leave out the constant banks.
        const SKIP_CONSTBANK_MEMORY = Raw::CU_COREDUMP_SKIP_CONSTBANK_MEMORY.0 as u32;
        /// Compress the file with gzip.
        const GZIP_COMPRESS = Raw::CU_COREDUMP_GZIP_COMPRESS.0 as u32;
        /// Include only contexts with a fault.
        const FAULTED_CONTEXTS_ONLY = Raw::CU_COREDUMP_FAULTED_CONTEXTS_ONLY.0 as u32;
        /// Leave out tensor memory.
        const SKIP_TENSOR_MEMORY = Raw::CU_COREDUMP_SKIP_TENSOR_MEMORY.0 as u32;
        /// Let warps with a fault end. By default the GPU prevents this while dumps are on, which may make
        /// kernels slower.
        const NO_ERRBAR_AT_EXIT = Raw::CU_COREDUMP_NO_ERRBAR_AT_EXIT.0 as u32;
        /// Write no file, and only log the fault.
        const LOG_ONLY = Raw::CU_COREDUMP_LOG_ONLY.0 as u32;
        /// Leave out all memory and images.
        const LIGHTWEIGHT = Raw::CU_COREDUMP_LIGHTWEIGHT_FLAGS.0 as u32;
    }
}
