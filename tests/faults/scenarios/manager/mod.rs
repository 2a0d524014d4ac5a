//! Memory managers, also with too little memory.

pub(crate) mod managers;
pub(crate) mod shortage;
