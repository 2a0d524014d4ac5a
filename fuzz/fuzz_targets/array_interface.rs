//! Arbitrary interfaces: `cargo fuzz run array_interface`.

#![no_main]

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::array_interface(data));
