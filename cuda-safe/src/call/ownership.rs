//! Ownership of driver handles.

use crate::call::error::Result;
use crate::call::invalid::Invalid;
use std::any::Any;
use std::fmt;

/// Who owns a handle. In a struct, this field must come *before* the parent objects, so that a foreign
/// owner, whose `Drop` may release the handle, is dropped while the parents are alive.
pub(crate) enum Ownership {
    /// This crate owns the handle and releases it in `Drop`.
    Owned,
    /// This value owns the handle. Keeping the value keeps the handle alive.
    Foreign(Box<dyn Any + Send + Sync>),
    /// Other code owns the handle and has promised to keep it alive until everything created from it is dropped. A
    /// release that depends on it is never deferred, because a deferred release uses the handle after that.
    Borrowed,
}

impl Ownership {
    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self, Self::Owned)
    }
}

/// Checks a handle of other code, in the constructors `from_raw`, `borrow_raw` and `from_foreign`.
///
/// # Errors
/// [`Invalid::Handle`] if the handle is null. `what` is the kind of object.
pub(crate) fn expect_handle<T>(what: &'static str, raw: *mut T) -> Result<()> {
    if raw.is_null() { Err(Invalid::Handle { what, value: 0 }.into()) } else { Ok(()) }
}

impl fmt::Debug for Ownership {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "Owned",
            Self::Foreign(_) => "Foreign",
            Self::Borrowed => "Borrowed",
        })
    }
}
