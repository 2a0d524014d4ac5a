//! One call of NCCL: its result, its faults, and its record.

use super::fault;
use crate::call::{Class, call as driver_call};
use crate::state::World;
use core::ffi::c_int;
use cuda_sys::CUresult;
use std::sync::{Mutex, PoisonError};

/// The result codes, by their numbers in C.
pub(super) const SUCCESS: u32 = 0;
pub(super) const CUDA_ERROR: u32 = 1;
pub(super) const INVALID_ARGUMENT: u32 = 4;
pub(super) const INVALID_USAGE: u32 = 5;
pub(super) const REMOTE_ERROR: u32 = 6;
pub(super) const IN_PROGRESS: u32 = 7;

/// The reason why a call does not succeed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// It returns this code.
    Nccl(u32),
    /// The driver stops it, perhaps to continue it later.
    Driver(CUresult),
}

impl From<CUresult> for Stop {
    fn from(code: CUresult) -> Self {
        Self::Driver(code)
    }
}

pub(super) type Outcome<T = ()> = Result<T, Stop>;

/// The message of the last error.
static LAST_ERROR: Mutex<[u8; 256]> = Mutex::new([0; 256]);

/// Fails with a code and a message.
pub(super) fn refuse<T>(code: u32, message: &str) -> Outcome<T> {
    let mut last = LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner);
    *last = [0; 256];
    for (place, byte) in last.iter_mut().take(255).zip(message.bytes()) {
        *place = byte;
    }
    Err(Stop::Nccl(code))
}

/// Returns the address of the last message, which ends with a NUL.
pub(super) fn last_error() -> *const u8 {
    LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
}

/// Makes one call. `body` returns the code of a success, which is `SUCCESS` or `IN_PROGRESS`. It is called again after
/// each wait.
pub(super) fn call(
    class: Class,
    name: &'static str,
    mut body: impl FnMut(&mut World) -> Outcome<u32>,
) -> c_int {
    if let Some(code) = fault::hit(name) {
        return code as i32;
    }
    let mut result = CUDA_ERROR;
    let code = driver_call(class, name, Vec::new(), &mut |world| match body(world) {
        Ok(code) => {
            result = code;
            Ok(())
        }
        Err(Stop::Nccl(code)) => {
            result = code;
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        Err(Stop::Driver(code)) => {
            result = CUDA_ERROR;
            Err(code)
        }
    });
    match code.is_success() || result != SUCCESS {
        true => result as i32,
        false => CUDA_ERROR as i32,
    }
}
