//! Memory managers, and what they do with too little memory.

pub(crate) mod managers;
pub(crate) mod shortage;
