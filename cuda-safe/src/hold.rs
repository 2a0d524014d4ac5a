//! Who releases a handle.

use std::any::Any;
use std::fmt;

/// Whose a handle is. Objects have it *before* their parents in the order of fields: a foreign
/// owner, whose `Drop` may well release the handle, is dropped while the parents live.
pub(crate) enum Hold {
    /// Ours: released in `Drop`.
    Owned,
    /// Somebody else's, who is kept alive here.
    Foreign(Box<dyn Any + Send + Sync>),
    /// Somebody else's, who promised to keep it.
    Borrowed,
}

impl Hold {
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self, Self::Owned)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "Owned",
            Self::Foreign(_) => "Foreign",
            Self::Borrowed => "Borrowed",
        })
    }
}
