//! Errors and their texts.

mod check;
mod errors;
mod invalid;
mod result;
