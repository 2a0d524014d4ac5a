//! The engine runs kernels.

mod checks;
mod control;
mod copies;
mod corpus;
mod counts;
mod device;
mod faults;
mod fidelity;
mod fragments;
mod interleavings;
mod matrices;
mod memory;
mod multimem;
mod planted;
mod random;
mod rejected;
mod seeds;
mod tensors;
mod textures;
mod warps;
