//! How objects end, and their raw handles.

pub(crate) mod drops;
pub(crate) mod handles;
