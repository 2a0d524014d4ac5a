//! The one place where a `CUresult` becomes a `Result`.

use crate::context::Context;
use crate::error::{DriverError, Error, Result};
use crate::fork;
use cuda_sys::{CUresult, Function, Unavailable};

/// Calls a function of the driver: `unsafe { call!(cuStreamQuery(stream)) }` is a `Result<()>`
/// whose error names the function. (In a forked child `cuda-sys` calls nothing.)
macro_rules! call {
    (abi::$function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::call!(@ $function, cuda_sys::abi::$function($($argument),*))
    };
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::call!(@ $function, cuda_sys::$function($($argument),*))
    };
    (@ $function:ident, $call:expr) => {
        $crate::call::check(stringify!($function), $call)
    };
}
pub(crate) use call;

/// As `call!`, without a look at the code: for [`without_current`], which looks at it.
macro_rules! answer {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::Answer {
            call: stringify!($function),
            code: cuda_sys::$function($($argument),*),
        }
    };
}
pub(crate) use answer;

#[inline]
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<()> {
    if code.is_success() {
        Ok(())
    } else {
        Err(fail(call, code))
    }
}

/// What a function of the driver answered.
pub(crate) struct Answer {
    pub(crate) call: &'static str,
    pub(crate) code: CUresult,
}

/// What calls come to, of which an error is made only where it is asked for.
pub(crate) trait Outcome {
    fn is_done(&self) -> bool;
    fn result(self) -> Result<()>;
}

impl Outcome for Answer {
    #[inline]
    fn is_done(&self) -> bool {
        self.code.is_success()
    }

    #[inline]
    fn result(self) -> Result<()> {
        check(self.call, self.code)
    }
}

impl Outcome for Result<()> {
    #[inline]
    fn is_done(&self) -> bool {
        self.is_ok()
    }

    #[inline]
    fn result(self) -> Result<()> {
        self
    }
}

/// An error code, or what stands behind it where there was no function to call.
#[cold]
#[inline(never)]
pub(crate) fn fail(call: &'static str, code: CUresult) -> Error {
    if fork::in_child() {
        return Error::Forked;
    }
    let perhaps_not_called = matches!(
        code,
        CUresult::CUDA_ERROR_NOT_INITIALIZED
            | CUresult::CUDA_ERROR_STUB_LIBRARY
            | CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
            | CUresult::CUDA_ERROR_NOT_FOUND
    );
    if perhaps_not_called {
        match Function::find(call).map(Function::address) {
            Some(Err(Unavailable::Load(error))) => return Error::Load(error),
            Some(Err(Unavailable::Missing(missing))) => return Error::Missing(missing),
            Some(Ok(_)) | None => {}
        }
    }
    Error::Driver(DriverError { code, call })
}

/// Makes the call that newer drivers have, or where it is missing the older one.
#[inline]
pub(crate) fn newest_or(newest: Result<()>, older: impl FnOnce() -> Result<()>) -> Result<()> {
    match newest {
        Err(Error::Missing(_)) => older(),
        done => done,
    }
}

/// Makes a call that names its stream, event or memory and so needs no current context; should a
/// driver want one all the same, the call is repeated once with `context` current.
#[inline]
pub(crate) fn without_current<O: Outcome>(
    context: &Context,
    mut call: impl FnMut() -> O,
) -> Result<()> {
    let outcome = call();
    if outcome.is_done() {
        return Ok(());
    }
    under_current(outcome, context, call)
}

/// All of the rare half, so that nothing of it is in the way of the other.
#[cold]
#[inline(never)]
fn under_current<O: Outcome>(
    outcome: O,
    context: &Context,
    mut call: impl FnMut() -> O,
) -> Result<()> {
    match outcome.result() {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_CONTEXT) => {
            let _current = context.enter()?;
            call().result()
        }
        result => result,
    }
}
