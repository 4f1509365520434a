//! See [`nephila_fuzz::robots`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::robots(data));
