//! Type strings: `cargo fuzz run type_string`.

#![no_main]

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::type_string(data));
