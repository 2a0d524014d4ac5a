//! The arithmetic of PTX against an independent implementation of floating point.

mod arithmetic;
mod conversion;
mod integer;
mod oracle;
mod video;
