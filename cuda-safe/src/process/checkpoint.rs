//! Checkpoints of processes: the GPU state of another process is moved to host memory, which frees its
//! GPUs, and is restored later, also on other GPUs. Only on Linux.
//!
//! The type of a value is the state of the process:
//!
//! ```text
//! RunningProcess ──lock──▶ LockedProcess ──checkpoint──▶ CheckpointedProcess
//!                ◀─unlock──              ◀──restore────
//! ```
//!
//! A [locked](LockedProcess) process blocks in its next CUDA call. Together with a tool that saves the
//! host memory of a process, such as CRIU, this makes a whole process portable between machines.
//!
//! ```no_run
//! use cuda_safe::process::checkpoint::RunningProcess;
//! use std::time::Duration;
//!
//! # cuda_safe::init()?;
//! # let pid = std::process::id();
//! let locked = RunningProcess::of(pid)?.lock(Some(Duration::from_secs(10)))?;
//! let checkpointed = locked.checkpoint()?;
//! // ... the GPU is free for other processes ...
//! checkpointed.restore()?.unlock()?;
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # What cannot be restored
//! - A process that imported memory by a file descriptor, or opened an IPC handle of another process. The
//!   driver 580 checkpoints it, but never restores it: the process is lost. Do not
//!   checkpoint such a process. A process that exported memory can be restored.
//! - A process with managed memory is not checkpointed (`CUDA_ERROR_NOT_SUPPORTED`); it stays locked and
//!   can be unlocked.
//!
//! # The calling process
//! A process can be given its own id. After it is locked, every CUDA call of it blocks, also on other
//! threads, except for the functions of this module.
//!
//! # Which processes
//! The driver needs the rights to trace the process (`ptrace`); root has them. The id of a process that
//! ended can be given to another process. A parent prevents that by not waiting for its child.

use crate::call::{Invalid, Rejected, Result, answer, c_enum, call, init, out};
use crate::device::Uuid;
use crate::release::{Root, destroy, release_now};
use cuda_sys::{
    CUcheckpointGpuPair, CUcheckpointLockArgs, CUcheckpointRestoreArgs, CUprocessState, CUuuid,
    CudaVersion,
};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::time::Duration;

/// The first version that restores a process on other GPUs.
const GPU_PAIRS_SINCE: CudaVersion = CudaVersion::new(13, 0);

c_enum! {
    /// The state of a process that uses CUDA (`CUprocessState`).
    pub enum ProcessState = CUprocessState or Other {
        /// It runs.
        Running = CU_PROCESS_STATE_RUNNING,
        /// Its next CUDA call blocks.
        Locked = CU_PROCESS_STATE_LOCKED,
        /// It is locked, and its GPU state is in host memory.
        Checkpointed = CU_PROCESS_STATE_CHECKPOINTED,
        /// An operation failed, and the process cannot use CUDA again.
        Failed = CU_PROCESS_STATE_FAILED,
        /// A checkpoint to the caller's own storage is in progress. Since CUDA 13.4.
        Checkpointing = CU_PROCESS_STATE_CHECKPOINTING,
        /// A restore from the caller's own storage is in progress. Since CUDA 13.4.
        Restoring = CU_PROCESS_STATE_RESTORING,
    }
}

impl ProcessState {
    /// Returns the state of a process. Calls `cuCheckpointProcessGetState`. Does not need
    /// [`init`](crate::init).
    ///
    /// # Errors
    /// [`Invalid::ProcessId`]; `CUDA_ERROR_OPERATING_SYSTEM` if there is no such process;
    /// `CUDA_ERROR_NOT_INITIALIZED` if it does not use CUDA.
    ///
    /// Since CUDA 12.8. Raw:
    /// [`cuCheckpointProcessGetState`](fn@cuda_sys::cuCheckpointProcessGetState).
    #[doc(alias = "cuCheckpointProcessGetState")]
    #[inline]
    pub fn of(pid: u32) -> Result<Self> {
        let pid = raw_pid(pid)?;
        // SAFETY: `out` passes a valid pointer.
        let state = out(|place| unsafe { call!(cuCheckpointProcessGetState(pid, place)) })?;
        Ok(Self::from_raw(state))
    }

    #[inline]
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Locked => "locked",
            Self::Checkpointed => "checkpointed",
            Self::Failed => "failed",
            Self::Checkpointing => "being checkpointed",
            Self::Restoring => "being restored",
            Self::Other(_) => "in an unknown state",
        }
    }

    /// Checks that a process is in this state, and returns its id as the driver receives it.
    #[inline]
    fn check(self, pid: u32) -> Result<c_int> {
        let state = Self::of(pid)?;
        if state != self {
            return Err(
                Invalid::ProcessState { pid, state: state.name(), needed: self.name() }.into()
            );
        }
        raw_pid(pid)
    }
}

/// Returns the thread of a process that restores it, which a tool that saves the process must let run.
/// Calls `cuCheckpointProcessGetRestoreThreadId`.
///
/// # Errors
/// See [`ProcessState::of`].
///
/// Since CUDA 12.8. Raw:
/// [`cuCheckpointProcessGetRestoreThreadId`](fn@cuda_sys::cuCheckpointProcessGetRestoreThreadId).
#[doc(alias = "cuCheckpointProcessGetRestoreThreadId")]
#[inline]
pub fn restore_thread_of(pid: u32) -> Result<u32> {
    let pid = raw_pid(pid)?;
    // SAFETY: `out` passes a valid pointer.
    let thread = out(|place| unsafe { call!(cuCheckpointProcessGetRestoreThreadId(pid, place)) })?;
    Ok(thread.unsigned_abs())
}

/// A process that runs. Dropping this does nothing.
#[derive(Debug)]
pub struct RunningProcess {
    pid: c_int,
}

/// A process whose CUDA calls block. Dropping this unlocks the process, so that an error or a panic of
/// the caller does not leave the process stopped; [`keep_locked`](Self::keep_locked) prevents that.
#[derive(Debug)]
#[must_use = "dropping this unlocks the process"]
pub struct LockedProcess {
    lock: ProcessLock,
}

/// A locked process whose GPU state is in host memory. Dropping this does nothing: the process stays
/// checkpointed, and [`CheckpointedProcess::of`] finds it again.
#[derive(Debug)]
#[must_use = "the process stays stopped until it is restored and unlocked"]
pub struct CheckpointedProcess {
    pid: c_int,
}

impl RunningProcess {
    /// Returns a process that is running. Calls `cuCheckpointProcessGetState`.
    ///
    /// # Errors
    /// [`Invalid::ProcessState`] if it is in another state. See also [`ProcessState::of`].
    ///
    /// Since CUDA 12.8. Raw:
    /// [`cuCheckpointProcessGetState`](fn@cuda_sys::cuCheckpointProcessGetState).
    #[doc(alias = "cuCheckpointProcessGetState")]
    #[inline]
    pub fn of(pid: u32) -> Result<Self> {
        let pid = ProcessState::Running.check(pid)?;
        Ok(Self { pid })
    }

    /// Returns the process id.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Locks the process. Calls `cuCheckpointProcessLock`. Waits until the GPU work that the process has
    /// enqueued is complete, at most for `timeout` (rounded up to a millisecond).
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` if the work is not complete within `timeout`: the process keeps running.
    /// `CUDA_ERROR_ILLEGAL_STATE` if the process is not running.
    ///
    /// Since CUDA 12.8. Raw: [`cuCheckpointProcessLock`](fn@cuda_sys::cuCheckpointProcessLock).
    #[doc(alias = "cuCheckpointProcessLock")]
    #[inline]
    pub fn lock(self, timeout: Option<Duration>) -> Result<LockedProcess> {
        Ok(self.try_lock(timeout)?)
    }

    /// Locks the process, or returns it with the error. See [`lock`](Self::lock).
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    ///
    /// Since CUDA 12.8. Raw: [`cuCheckpointProcessLock`](fn@cuda_sys::cuCheckpointProcessLock).
    #[doc(alias = "cuCheckpointProcessLock")]
    #[inline]
    pub fn try_lock(self, timeout: Option<Duration>) -> Result<LockedProcess, Rejected<Self>> {
        let mut options = CUcheckpointLockArgs {
            // Zero would mean no limit.
            timeoutMs: timeout.map_or(0, |its| milliseconds(its).max(1)),
            ..Default::default()
        };
        // SAFETY: the pointer is to a local variable.
        let locked = unsafe { call!(cuCheckpointProcessLock(self.pid, &raw mut options)) };
        let ((), process) = Rejected::unless(locked, self)?;
        Ok(LockedProcess::new(process.pid))
    }
}

impl LockedProcess {
    #[inline]
    fn new(pid: c_int) -> Self {
        Self { lock: ProcessLock { pid } }
    }

    /// Returns a process that is locked, for example by another tool. Calls
    /// `cuCheckpointProcessGetState`.
    ///
    /// # Errors
    /// See [`RunningProcess::of`].
    ///
    /// Since CUDA 12.8. Raw:
    /// [`cuCheckpointProcessGetState`](fn@cuda_sys::cuCheckpointProcessGetState).
    #[doc(alias = "cuCheckpointProcessGetState")]
    #[inline]
    pub fn of(pid: u32) -> Result<Self> {
        Ok(Self::new(ProcessState::Locked.check(pid)?))
    }

    /// Returns the process id.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.lock.pid.unsigned_abs()
    }

    /// Moves the GPU state of the process to host memory, and frees its GPUs. Calls
    /// `cuCheckpointProcessCheckpoint`. 512 MiB of device memory take about half a second.
    ///
    /// Read [what cannot be restored](self#what-cannot-be-restored) first.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` if the process has managed memory; `CUDA_ERROR_ILLEGAL_STATE` if it is
    /// not locked. The process is unlocked after an error; [`try_checkpoint`](Self::try_checkpoint) keeps
    /// it locked.
    ///
    /// Since CUDA 12.8. Raw:
    /// [`cuCheckpointProcessCheckpoint`](fn@cuda_sys::cuCheckpointProcessCheckpoint).
    #[doc(alias = "cuCheckpointProcessCheckpoint")]
    #[inline]
    pub fn checkpoint(self) -> Result<CheckpointedProcess> {
        Ok(self.try_checkpoint()?)
    }

    /// Moves the GPU state of the process to host memory, or returns the locked process with the error.
    /// See [`checkpoint`](Self::checkpoint).
    ///
    /// # Errors
    /// See [`checkpoint`](Self::checkpoint).
    ///
    /// Since CUDA 12.8. Raw:
    /// [`cuCheckpointProcessCheckpoint`](fn@cuda_sys::cuCheckpointProcessCheckpoint).
    #[doc(alias = "cuCheckpointProcessCheckpoint")]
    #[inline]
    pub fn try_checkpoint(self) -> Result<CheckpointedProcess, Rejected<Self>> {
        // SAFETY: null stands for no options.
        let done = unsafe { call!(cuCheckpointProcessCheckpoint(self.lock.pid, null_mut())) };
        let ((), process) = Rejected::unless(done, self)?;
        Ok(CheckpointedProcess { pid: process.into_raw_pid() })
    }

    /// Unlocks the process. Calls `cuCheckpointProcessUnlock`. Its blocked calls continue.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_STATE` if the process is not locked.
    ///
    /// Since CUDA 12.8. Raw: [`cuCheckpointProcessUnlock`](fn@cuda_sys::cuCheckpointProcessUnlock).
    #[doc(alias = "cuCheckpointProcessUnlock")]
    #[inline]
    pub fn unlock(self) -> Result<RunningProcess> {
        Ok(self.try_unlock()?)
    }

    /// Unlocks the process, or returns it with the error. See [`unlock`](Self::unlock).
    ///
    /// # Errors
    /// See [`unlock`](Self::unlock).
    ///
    /// Since CUDA 12.8. Raw: [`cuCheckpointProcessUnlock`](fn@cuda_sys::cuCheckpointProcessUnlock).
    #[doc(alias = "cuCheckpointProcessUnlock")]
    #[inline]
    pub fn try_unlock(self) -> Result<RunningProcess, Rejected<Self>> {
        // SAFETY: null stands for no options.
        let unlocked = unsafe { call!(cuCheckpointProcessUnlock(self.lock.pid, null_mut())) };
        let ((), process) = Rejected::unless(unlocked, self)?;
        Ok(RunningProcess { pid: process.into_raw_pid() })
    }

    /// Leaves the process locked and returns its id. [`LockedProcess::of`] finds the process again.
    #[inline]
    pub fn keep_locked(self) -> u32 {
        self.into_raw_pid().unsigned_abs()
    }

    #[inline]
    fn into_raw_pid(self) -> c_int {
        let pid = self.lock.pid;
        std::mem::forget(self);
        pid
    }
}

impl CheckpointedProcess {
    /// Returns a process that is checkpointed. Calls `cuCheckpointProcessGetState`.
    ///
    /// # Errors
    /// See [`RunningProcess::of`].
    ///
    /// Since CUDA 12.8. Raw:
    /// [`cuCheckpointProcessGetState`](fn@cuda_sys::cuCheckpointProcessGetState).
    #[doc(alias = "cuCheckpointProcessGetState")]
    #[inline]
    pub fn of(pid: u32) -> Result<Self> {
        let pid = ProcessState::Checkpointed.check(pid)?;
        Ok(Self { pid })
    }

    /// Returns the process id.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Moves the GPU state of the process back to its GPUs. Calls `cuCheckpointProcessRestore`. The
    /// process is locked afterwards.
    ///
    /// # Errors
    /// The error of the driver if the state cannot be restored, for example because a GPU has too little
    /// free memory (`CUDA_ERROR_OUT_OF_MEMORY`). `CUDA_ERROR_OPERATING_SYSTEM` if a thread of the process
    /// has called the driver since the checkpoint: its call blocks, and the process cannot be restored any
    /// more (measured with driver 580). `CUDA_ERROR_NOT_SUPPORTED` and
    /// `CUDA_ERROR_INVALID_VALUE` for a process that [can never be
    /// restored](self#what-cannot-be-restored). `CUDA_ERROR_ILLEGAL_STATE` if the process is not
    /// checkpointed.
    ///
    /// Since CUDA 12.8. Raw: [`cuCheckpointProcessRestore`](fn@cuda_sys::cuCheckpointProcessRestore).
    #[doc(alias = "cuCheckpointProcessRestore")]
    #[inline]
    pub fn restore(self) -> Result<LockedProcess> {
        Ok(self.try_restore_on(&[])?)
    }

    /// Moves the GPU state of the process to other GPUs, or returns the checkpointed process with the
    /// error. Calls `cuCheckpointProcessRestore`. The process is locked afterwards.
    ///
    /// `gpus` is empty if all GPUs stay the same. Otherwise it names each GPU that the process uses, with
    /// the GPU that replaces it, which must be of the same type.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`] if `gpus` is not empty, on a driver before CUDA 13.0. See also
    /// [`restore`](Self::restore).
    ///
    /// Since CUDA 12.8; other GPUs since CUDA 13.0. Raw:
    /// [`cuCheckpointProcessRestore`](fn@cuda_sys::cuCheckpointProcessRestore).
    #[doc(alias = "cuCheckpointProcessRestore")]
    #[inline]
    pub fn try_restore_on(self, gpus: &[GpuPair]) -> Result<LockedProcess, Rejected<Self>> {
        // The driver needs it, or a GPU in persistence mode.
        let mut ready = init::init();
        if !gpus.is_empty() {
            // An older driver has no such option. It could ignore the pairs and use the same GPUs.
            ready = ready.and_then(|()| init::needs("restoring on other GPUs", GPU_PAIRS_SINCE));
        }
        let ((), process) = Rejected::unless(ready, self)?;
        let mut pairs: Vec<CUcheckpointGpuPair> = gpus.iter().map(GpuPair::raw).collect();
        let mut options = CUcheckpointRestoreArgs {
            gpuPairs: pairs.as_mut_ptr(),
            // A process uses far fewer GPUs.
            gpuPairsCount: u32::try_from(pairs.len()).unwrap_or(u32::MAX),
            ..Default::default()
        };
        let options = if gpus.is_empty() { null_mut() } else { &raw mut options };
        // SAFETY: the pointer is null, or to a local variable with the number of pairs.
        let restored = unsafe { call!(cuCheckpointProcessRestore(process.pid, options)) };
        let ((), process) = Rejected::unless(restored, process)?;
        Ok(LockedProcess::new(process.pid))
    }
}

/// A GPU of a checkpointed process, and the GPU that replaces it (`CUcheckpointGpuPair`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPair {
    /// The GPU that the process used.
    pub old: Uuid,
    /// The GPU that it will use.
    pub new: Uuid,
}

impl GpuPair {
    #[inline]
    fn raw(&self) -> CUcheckpointGpuPair {
        let raw = |uuid: Uuid| CUuuid { bytes: uuid.0.map(|byte| byte as _) };
        CUcheckpointGpuPair { oldUuid: raw(self.old), newUuid: raw(self.new) }
    }
}

/// The right to unlock a process.
#[derive(Clone, Copy, Debug)]
struct ProcessLock {
    pid: c_int,
}

destroy! {
    ProcessLock as "the lock of a process";
    // SAFETY: null stands for no options.
    |its| unsafe { answer!(cuCheckpointProcessUnlock(its.pid, null_mut())) }
}

impl Drop for LockedProcess {
    #[inline]
    fn drop(&mut self) {
        release_now(self.lock, &Root { is_borrowed: false });
    }
}

/// Converts a process id.
#[inline]
fn raw_pid(pid: u32) -> Result<c_int> {
    let raw = c_int::try_from(pid).ok().filter(|raw| *raw != 0);
    raw.ok_or_else(|| Invalid::ProcessId { pid }.into())
}

/// Converts a duration to milliseconds, rounded up.
#[inline]
fn milliseconds(duration: Duration) -> u32 {
    let milliseconds = duration.as_nanos().div_ceil(1_000_000);
    u32::try_from(milliseconds).unwrap_or(u32::MAX)
}
