//! Panics in host functions.

use crate::call::error::{Error, Result};
use crate::call::report::panic_message;
use crate::sync::Mutex;
use std::any::Any;
use std::sync::PoisonError;

/// The message of a panic in a host function of a stream, until a synchronization returns it.
#[derive(Debug, Default)]
pub(crate) struct HostPanic(Mutex<Option<String>>);

impl HostPanic {
    /// Takes the panic that has not been returned yet, as an error.
    #[inline]
    pub(crate) fn take(&self) -> Result<()> {
        let message = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        message.map_or(Ok(()), |message| Err(Error::HostFunctionPanicked(message)))
    }

    #[inline]
    pub(crate) fn keep_first(&self, payload: Box<dyn Any + Send>) {
        let message = panic_message(payload);
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(message);
    }
}
