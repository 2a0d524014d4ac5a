//! Interfaces that are mostly valid: `cargo fuzz run likely_interface`.

#![no_main]

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::likely_interface(data));
