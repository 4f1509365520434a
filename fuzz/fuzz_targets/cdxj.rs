//! See [`nephila_fuzz::cdxj`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nephila_fuzz::cdxj(data));
