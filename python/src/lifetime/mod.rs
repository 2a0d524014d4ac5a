//! How long calls and values last: calls that the end of the interpreter ends, values that can be closed,
//! references whose release may block, and objects that are created once.

pub(crate) mod ending;
pub(crate) mod exclusive;
pub(crate) mod hold;
pub(crate) mod once;
