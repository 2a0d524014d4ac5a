//! Green contexts as streams see them.

use crate::call::Result;
use crate::context::Context;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A green context, which keeps its partition alive.
pub(crate) trait Partition: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Returns the primary context of the device.
    fn context(&self) -> &Context;

    /// Returns the number of SMs.
    fn sm_count(&self) -> u32;

    /// Returns whether the green context, or an object that it depends on, is borrowed.
    fn is_borrowed(&self) -> bool;

    /// Returns whether both are the same green context.
    fn is_same(&self, other: &dyn Partition) -> bool;

    /// Makes a call with the green context current.
    fn with_current(self: Arc<Self>, call: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}
