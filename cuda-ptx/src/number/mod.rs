//! The arithmetic of PTX on the bits of numbers, as an H200 computes it.
