//! The target `ops` of `esker_fuzz_targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_fuzz_targets::run("ops", bytes));
