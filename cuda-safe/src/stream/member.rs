//! Streams as members of captures.

use super::{RetainedStream, Stream};
use crate::call::{Result, without_current};
use crate::capture_state::{DriverStatus, Member, driver_status};
use std::sync::Arc;

impl Stream {
    /// Returns this stream as a member of a capture.
    #[inline]
    pub(crate) fn member(&self) -> Member<'_> {
        Member {
            state: self.state(),
            stream: Some(Arc::new(RetainedStream::Stream(self.clone()))),
            retained: Arc::new(self.retained()),
        }
    }

    /// Asks the driver which capture the stream belongs to.
    #[inline]
    pub(crate) fn driver_status(&self) -> Result<DriverStatus> {
        let mut status = DriverStatus::None;
        without_current(self.context(), || {
            // SAFETY: the stream is alive.
            status = unsafe { driver_status(self.raw()) }?;
            Ok(())
        })?;
        Ok(status)
    }
}
